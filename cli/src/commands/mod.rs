//! The commands, one module each.

pub(crate) mod simulate;
pub(crate) mod types;
