//! The rehearsal of a deployment: both stacks on independent servers, with the released binaries; see `tests/` and
//! `docs/rehearsal.md`.
//!
//! A plain `cargo test` runs none of it: each test is ignored with the command that runs it, and fails without its
//! servers, tools or binaries.
