//! The released binaries: the agent, and `tenon`.

use std::path::PathBuf;

/// The agent.
///
/// # Panics
/// If it isn't built: with the command that does.
#[must_use]
pub fn agent_binary() -> PathBuf {
    // target/debug/deps/test
    built(3, "agent/tenon-agent", "infra/build host")
}

/// `tenon`, of the tests' own profile.
///
/// # Panics
/// If it isn't built: with the command that does.
#[must_use]
pub fn tenon_binary() -> PathBuf {
    built(2, "tenon", "cargo build --workspace --bins")
}

/// A path that begins so many folders above the test.
fn built(above: usize, path: &str, command: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.ancestors().nth(above).expect("it lies in `deps` of a profile");
    let binary = folder.join(path);
    assert!(binary.exists(), "there is no {}: {command}", binary.display());
    binary
}
