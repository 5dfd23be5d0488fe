//! The adapters against servers that others wrote; see `tests/`.
//!
//! Nothing here runs in a plain `cargo test`: each test is ignored with the command that runs it, and fails where the
//! server that it needs isn't named.
