//! The adapters against independent servers; see `tests/`.
//!
//! A plain `cargo test` runs none of it: each test is ignored with the command that runs it, and fails without its
//! server.
