//! `tenon local --kubeconfig`, as a process beside the test cluster.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::sync::MutexGuard;

use crate::binary::tenon_binary;
use crate::cluster::Cluster;
use crate::live::{Moment, clear, one, summary};

/// Its pods are in this namespace.
const NAMESPACE: &str = "default";
/// How often the cluster is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The process, and the cluster's administrator.
pub struct Local {
    admin: Cluster,
    runtime: Runtime,
    child: Child,
    log: PathBuf,
    _one: MutexGuard<'static, ()>,
}

impl Local {
    /// Applies manifests to the test cluster, which is cleared first, and starts the process.
    ///
    /// # Panics If the binary isn't built.
    #[must_use]
    pub fn start(manifests: &[&str]) -> Self {
        let one = one();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let admin = runtime.block_on(async {
            let admin = Cluster::admin().await;
            admin.install_definitions().await;
            clear(&admin).await;
            for manifest in manifests {
                admin.apply(manifest).await;
            }
            admin
        });
        let log = std::env::temp_dir().join(format!("tenon-local-{}", std::process::id()));
        let file = File::create(&log).expect("a log is made");
        let errors = file.try_clone().expect("a log is shared");
        let child = Command::new(tenon_binary())
            .args(["local", "--port", "0", "-o", "json", "--kubeconfig"])
            .arg(std::env::var_os("KUBECONFIG").expect("the script names it"))
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(errors)
            .spawn()
            .expect("the binary starts");
        Self { admin, runtime, child, log, _one: one }
    }

    /// `kubectl scale deployment NAME --replicas COUNT`.
    pub fn scale(&self, name: &str, count: usize) {
        let place = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": NAMESPACE}});
        let to = Patch::Merge(json!({"spec": {"replicas": count}}));
        let scaling = async {
            let api = self.admin.api_of(&place).await;
            api.patch_scale(name, &PatchParams::default(), &to).await
        };
        self.runtime.block_on(scaling).expect("the Deployment is scaled");
    }

    /// How the cluster is now, with the pods of the namespace `default`.
    #[must_use]
    pub fn look(&self) -> Moment {
        self.runtime.block_on(Moment::of(&self.admin, NAMESPACE))
    }

    /// All objects of a kind.
    #[must_use]
    pub fn all(&self, version: &str, kind: &str) -> Vec<DynamicObject> {
        self.runtime.block_on(self.admin.all(version, kind))
    }

    /// Waits until the condition holds.
    ///
    /// # Panics If it doesn't hold in time, with the process's output and the cluster's state.
    pub fn until(&self, what: &str, within: Duration, mut is_so: impl FnMut(&Self) -> bool) {
        let began = Instant::now();
        while !is_so(self) {
            assert!(
                began.elapsed() < within,
                "{what}: not within {within:?}\n{}\n{:#?}",
                std::fs::read_to_string(&self.log).unwrap_or_default(),
                summary(&self.look())
            );
            std::thread::sleep(LOOK_EVERY);
        }
        println!("{what}: after {:.1} s", began.elapsed().as_secs_f64());
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
        let _gone = std::fs::remove_file(&self.log);
    }
}
