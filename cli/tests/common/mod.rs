//! `tenon` as a user starts it in a shell.
//!
//! Decides where it runs and with which environment: in `tests/data`, without a region of the user's. It doesn't decide
//! what its answer must be.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

/// The command with these arguments, not yet started.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenon"));
    command.args(arguments).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"));
    command.env_remove("AWS_REGION");
    command
}

/// Runs the command with this standard input: its status, its output and its errors.
pub(crate) fn tenon(arguments: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let mut command = command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let written = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    // A command that reads no standard input may have ended.
    written.or_else(|error| if error.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
