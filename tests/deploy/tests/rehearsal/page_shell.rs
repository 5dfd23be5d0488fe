//! The shell of somebody who types a page's commands: each has the variables of those before.
//!
//! Decides what comes from outside: the programs, and folders for kubectl's configuration and registry credentials.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::control_plane::RealControlPlane;
use crate::tools::{Printed, root, run, variable};

/// The variables' file. A command sees those of all before, whether or not these export them.
const KEEP: (&str, &str) = ("set -a\n[ ! -e \"$KEPT\" ] || source \"$KEPT\"\n", "\nexport -p >\"$KEPT\"\n");

/// `aws`, except that the control plane knows its administrator by a token of its own instead of EKS's. It has no
/// authenticator that asks IAM.
const AWS: &str = r#"#!/usr/bin/env bash
case " $* " in
*" eks get-token "*)
    printf '{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "spec": {},
        "status": {"token": "%s"}}' "$ADMINISTRATORS_TOKEN"
    ;;
*) exec "$TENON_AWS_CLI" "$@" ;;
esac
"#;

/// The shell.
pub(crate) struct PageShell {
    folder: PathBuf,
    variables: BTreeMap<String, String>,
}

impl PageShell {
    /// A shell with the servers' programs, and with more variables.
    pub(crate) async fn new(folder: &Path, servers: &RealControlPlane, more: &[(&str, String)]) -> Self {
        let programs = folder.join("programs");
        std::fs::create_dir_all(&programs).expect("a folder is made");
        for (name, variable) in [("helm", "TENON_HELM"), ("kubectl", "TENON_KUBECTL")] {
            symlink(servers.variable(variable), programs.join(name)).expect("a link is made");
        }
        let aws = programs.join("aws");
        std::fs::write(&aws, AWS).expect("a program is written");
        std::fs::set_permissions(&aws, std::fs::Permissions::from_mode(0o755)).expect("it can be run");
        let path = |name: &str| folder.join(name).display().to_string();
        let mut variables: BTreeMap<String, String> = servers
            .variables
            .iter()
            .filter(|(name, _)| name.starts_with("HELM_"))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let own = [
            ("PATH", format!("{}:{}", programs.display(), variable("PATH"))),
            ("ADMINISTRATORS_TOKEN", servers.token().await),
            ("KEPT", path("variables")),
            ("KUBECONFIG", path("kubeconfig")),
            ("DOCKER_CONFIG", path("docker")),
        ];
        variables.extend(own.iter().chain(more).map(|(name, value)| ((*name).to_owned(), value.clone())));
        Self { folder: folder.to_owned(), variables }
    }

    fn command(&self, typed: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", &format!("{}{typed}{}", KEEP.0, KEEP.1)]);
        command.envs(&self.variables);
        command
    }

    /// Types a command and waits for its end.
    pub(crate) async fn run(&self, typed: &str) -> Printed {
        run(&mut self.command(typed)).await
    }

    /// Types a command that doesn't end.
    pub(crate) fn watch(&self, typed: &str) -> WatchingCommand {
        let path = self.folder.join("watched");
        let file = std::fs::File::create(&path).expect("a file is made");
        // The shell becomes the command, so that its end is the command's.
        let mut command = self.command(&format!("exec {typed}"));
        command.current_dir(root()).stdin(Stdio::null()).stdout(file).kill_on_drop(true);
        WatchingCommand { path, _child: command.spawn().expect("bash starts") }
    }
}

/// A command that runs until this goes.
pub(crate) struct WatchingCommand {
    path: PathBuf,
    _child: Child,
}

impl WatchingCommand {
    /// The lines that it has printed.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
