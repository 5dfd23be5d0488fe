//! The forms of the items that the table holds, by kind.
