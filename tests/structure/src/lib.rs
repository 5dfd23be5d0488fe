//! House rules about the whole workspace; see `tests/`.
