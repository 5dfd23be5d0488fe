//! The tools of a deployment: sam, the AWS CLI and `tenon`, as processes.
//!
//! Decides how they are called: endpoint, region and credentials come from the environment of the server's script.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

/// How to get everything that these tests need.
pub(crate) const RUN: &str = "run `tests/deploy/run`, which starts the servers and builds what is deployed";

/// A tool's output and status.
#[derive(Debug, Clone)]
pub(crate) struct Printed {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Printed {
    /// The output of a successful call.
    #[track_caller]
    pub(crate) fn well(self, what: &str) -> String {
        assert_eq!(self.status, Some(0), "{what}:\n{}\n{}", self.out, self.err);
        self.out
    }
}

/// A variable that the scripts set.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("`{name}` isn't set: {RUN}"))
}

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Runs a program at the root of the checkout, without input.
pub(crate) async fn run(command: &mut Command) -> Printed {
    let printed = command.current_dir(root()).stdin(Stdio::null()).output().await;
    let printed = printed.unwrap_or_else(|error| panic!("{command:?} doesn't start: {error}; {RUN}"));
    Printed {
        status: printed.status.code(),
        out: String::from_utf8_lossy(&printed.stdout).into_owned(),
        err: String::from_utf8_lossy(&printed.stderr).into_owned(),
    }
}

/// `sam`.
pub(crate) async fn sam(arguments: &[&str]) -> Printed {
    run(Command::new(variable("TENON_SAM")).args(arguments).env("SAM_CLI_TELEMETRY", "0")).await
}

/// `aws`, answering in JSON.
pub(crate) async fn aws(arguments: &[&str]) -> Value {
    let printed =
        run(Command::new(variable("TENON_AWS_CLI")).args(arguments).args(["--output", "json"])).await;
    let out = printed.well(&format!("aws {}", arguments.join(" ")));
    if out.trim().is_empty() { Value::Null } else { serde_json::from_str(&out).expect("aws prints JSON") }
}

/// A line of a shell in which `aws` is the AWS CLI.
pub(crate) async fn shell(line: &str) -> Printed {
    let aws = PathBuf::from(variable("TENON_AWS_CLI"));
    let path = format!("{}:{}", aws.parent().unwrap().display(), variable("PATH"));
    run(Command::new("bash").args(["-euo", "pipefail", "-c", line]).env("PATH", path)).await
}

/// `tenon`, built with the feature `aws`.
pub(crate) async fn tenon(arguments: &[&str]) -> Printed {
    run(Command::new(variable("TENON_CLI")).args(arguments)).await
}
