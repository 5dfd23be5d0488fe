//! The released binary of the agent.

use std::path::PathBuf;

/// Where it is.
///
/// # Panics
/// If it isn't built: with the command that does.
#[must_use]
pub fn agent_binary() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // target/debug/deps/test
    let target = test.ancestors().nth(3).expect("it lies in `deps` of a profile");
    let binary = target.join("agent/tenon-agent");
    assert!(binary.exists(), "there is no {}: infra/build host", binary.display());
    binary
}
