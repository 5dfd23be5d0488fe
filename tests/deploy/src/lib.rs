//! The rehearsal of a deployment: both stacks on servers that others wrote, with the binaries that are deployed; see
//! `tests/` and `docs/rehearsal.md`.
//!
//! Nothing here runs in a plain `cargo test`: each test is ignored with the command that runs it, and fails where the
//! servers, the tools or the binaries that it needs aren't named.
