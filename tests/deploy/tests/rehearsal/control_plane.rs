//! A real control plane beside the account, with Helm and kubectl, for as long as a test needs it.
//!
//! Decides how it begins and ends: the servers' scripts run a command that names them and waits for the end of its input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::tools::{root, run, variable};
use crate::wait::eventually;

/// Writes its environment into a file, and waits for the end of its input.
const TELL: &str = r#"env -0 >"$1.new" && mv "$1.new" "$1" && exec cat >/dev/null"#;

/// The servers.
pub(crate) struct RealControlPlane {
    scripts: Child,
    folder: PathBuf,
    /// What the scripts export.
    pub(crate) variables: BTreeMap<String, String>,
}

impl RealControlPlane {
    /// Starts it, with files in a folder.
    pub(crate) async fn start(folder: &Path) -> Self {
        let told = folder.join("servers");
        let mut command = Command::new(root().join("tests/servers/kubectl"));
        command.args(["--", "tests/servers/helm", "--", "tests/servers/control-plane", "--"]);
        command.args(["bash", "-c", TELL, "-"]).arg(&told).current_dir(root()).stdin(Stdio::piped());
        let mut scripts = command.spawn().expect("the servers' scripts start");
        let variables = eventually("the control plane", || {
            let ended = scripts.try_wait().expect("the scripts are our child");
            assert!(ended.is_none(), "the control plane's scripts ended: {ended:?}");
            let found = std::fs::read_to_string(&told).ok();
            async move { found }
        })
        .await;
        let variables = variables.split('\0').filter_map(|one| one.split_once('='));
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { scripts, folder: folder.to_owned(), variables }
    }

    /// A variable that the scripts export.
    pub(crate) fn variable(&self, name: &str) -> &str {
        self.variables.get(name).unwrap_or_else(|| panic!("the servers' scripts export no `{name}`"))
    }

    /// kubectl's output for the administrator.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let mut command = tokio::process::Command::new(self.variable("TENON_KUBECTL"));
        command.args(arguments).env("KUBECONFIG", self.variable("KUBECONFIG"));
        run(&mut command).await.well(&format!("kubectl {}", arguments.join(" ")))
    }

    /// What `kubectl get` finds; null if there is nothing.
    pub(crate) async fn get(&self, arguments: &[&str]) -> Value {
        let all = [&["get"][..], arguments, &["--ignore-not-found", "--output", "json"]].concat();
        let out = self.kubectl(&all).await;
        if out.trim().is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&out).expect("kubectl prints JSON")
        }
    }

    /// Creates an object with its status, as a kubelet does.
    pub(crate) async fn create(&self, object: &Value) {
        let file = self.folder.join("object.json");
        std::fs::write(&file, object.to_string()).expect("a file is written");
        self.kubectl(&["create", "--filename", &file.display().to_string()]).await;
    }

    /// Creates a Deployment of one container that does nothing.
    pub(crate) async fn create_deployment(&self, namespace: &str, name: &str, node_selector: &Value) {
        let labels = json!({"app": name});
        self.create(&json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "nodeSelector": node_selector,
                        "terminationGracePeriodSeconds": 0,
                        "containers": [{"name": name, "image": format!("example.com/{name}")}],
                    },
                },
            },
        }))
        .await;
    }

    /// The administrator's configuration, with its certificates in it.
    async fn configuration(&self) -> Value {
        let out = self.kubectl(&["config", "view", "--raw", "--flatten", "--output", "json"]).await;
        serde_json::from_str(&out).expect("kubectl prints JSON")
    }

    /// The administrator's token.
    pub(crate) async fn token(&self) -> String {
        let configuration = self.configuration().await;
        configuration["users"][0]["user"]["token"].as_str().expect("the administrator has a token").to_owned()
    }

    /// Makes EKS tell of a cluster that this is its control plane, and that this is its security group.
    pub(crate) async fn serve_as(&self, name: &str, security_group: &str) {
        let configuration = self.configuration().await;
        let cluster = &configuration["clusters"][0]["cluster"];
        let told = json!({
            "endpoint": cluster["server"],
            "certificateAuthority": {"data": cluster["certificate-authority-data"]},
            "resourcesVpcConfig": {"clusterSecurityGroupId": security_group},
        });
        let file = Path::new(&variable("TENON_EKS_CLUSTERS")).join(format!("{name}.json"));
        std::fs::write(file, told.to_string()).expect("EKS's file is written");
    }
}

impl Drop for RealControlPlane {
    fn drop(&mut self) {
        drop(self.scripts.stdin.take());
        let _ended = self.scripts.wait();
    }
}
