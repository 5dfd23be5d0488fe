//! A region on this machine with the real cluster, for tests: one at a time, in real time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_ec2::port::{Instance, InstanceState};
use tenon_region::engine::SimulatedRegion;
use tenon_region::kubelet::BootTimes;
use tenon_region::scenario::{ClusterForm, ImageForm, Scenario, SetupOptions, add_outside, build};
use tenon_region::{live::AgentHold, live::ClusterTelling, live::LiveCluster, live::LiveWorld};
use tenon_twin::{Delays, Span};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, MutexGuard};

use crate::cluster::Cluster;

/// A class that takes the region's image and network.
pub const CLASS: &str = "
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  amiFamily: AL2023
  role: demo-node
  amiSelectorTerms: [{tags: {team: platform}}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
";
/// The agent's rights, as the chart installs them.
const RBAC: &str = include_str!("../../../infra/chart/rbac.yaml");
/// Machines of tests boot at once, like those of the peer's own rig on kwok, and EC2 answers in a moment: the tests
/// measure Kubernetes and Tenon.
const BOOT: BootTimes = BootTimes { joins_after: SignedDuration::ZERO, ready_after: SignedDuration::ZERO };
/// How long EC2 takes.
const DELAYS: Delays = Delays {
    start: Span::seconds(0, 0),
    shut_down: Span::seconds(1, 2),
    stop: Span::seconds(1, 2),
    image: Span::seconds(1, 2),
};
/// The longest pause of the region while a test waits.
const TURN: Duration = Duration::from_millis(50);
/// The cluster's name in the registry.
const NAME: &str = "demo";
/// Two regions would make Nodes for the same pods.
static ONE: Mutex<()> = Mutex::const_new(());

/// The right to the test cluster's Nodes and objects, as long as it is held.
pub(crate) fn one() -> MutexGuard<'static, ()> {
    ONE.blocking_lock()
}

/// The same for a test with a runtime of its own.
pub async fn alone() -> MutexGuard<'static, ()> {
    ONE.lock().await
}

/// A region with a real cluster.
pub struct Live {
    /// The region.
    pub region: SimulatedRegion,
    /// A hold on the cluster's agent.
    pub agent: AgentHold,
    /// The cluster's administrator.
    pub admin: Cluster,
    /// A namespace of the test's own.
    pub namespace: String,
    /// The happenings during the test's last wait, a line each.
    pub told: Vec<String>,
    telling: ClusterTelling,
    runtime: Runtime,
    _one: MutexGuard<'static, ()>,
}

/// How the cluster is at a moment.
#[derive(Debug)]
pub struct Moment {
    /// Its Nodes.
    pub nodes: Vec<Node>,
    /// The pods of the test's namespace.
    pub pods: Vec<Pod>,
}

impl Moment {
    /// A cluster, with the pods of a namespace.
    pub(crate) async fn of(cluster: &Cluster, namespace: &str) -> Self {
        let nodes: Api<Node> = Api::all(cluster.client());
        let pods: Api<Pod> = Api::namespaced(cluster.client(), namespace);
        Self {
            nodes: nodes.list(&ListParams::default()).await.expect("Nodes are listed").items,
            pods: pods.list(&ListParams::default()).await.expect("pods are listed").items,
        }
    }

    /// The pods that run and are Ready and stay.
    pub fn ready_pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.iter().filter(|pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let ready =
                conditions.into_iter().flatten().any(|one| one.type_ == "Ready" && one.status == "True");
            ready && pod.metadata.deletion_timestamp.is_none()
        })
    }

    /// The names of the Nodes.
    #[must_use]
    pub fn node_names(&self) -> Vec<String> {
        self.nodes.iter().filter_map(|node| node.metadata.name.clone()).collect()
    }
}

impl Live {
    /// A region with an image, beside the test cluster, which is cleared first.
    #[must_use]
    pub fn start(namespace: &str) -> Self {
        let one = one();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (admin, agent) = runtime.block_on(async {
            let (admin, agent) = (Cluster::admin().await, Cluster::agent().await);
            admin.install_definitions().await;
            clear(&admin).await;
            for name in ["tenon-system", namespace] {
                admin
                    .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}"))
                    .await;
            }
            admin.apply(RBAC).await;
            (admin, agent)
        });
        let scenario = Scenario {
            title: namespace.to_owned(),
            region: "us-east-1".to_owned(),
            seed: 1,
            types: Vec::new(),
            zones: Vec::new(),
            clusters: Vec::new(),
            images: vec![image("node-1")],
            steps: Vec::new(),
        };
        let options = SetupOptions { start: Timestamp::now(), delays: DELAYS, ..SetupOptions::default() };
        let mut region = build(&scenario, &options).expect("a region");
        let world = LiveWorld {
            name: ClusterName::parse(NAME).expect("a name"),
            installation: Arc::clone(region.installation()),
            table: region.table().clone(),
            boot: BOOT,
        };
        let (cluster, telling, agent) =
            LiveCluster::start(runtime.handle(), admin.client(), agent.client(), world);
        let form = ClusterForm { name: NAME.to_owned(), ..ClusterForm::default() };
        add_outside(&mut region, &form, Box::new(cluster)).expect("a stack");
        Self {
            region,
            agent,
            admin,
            namespace: namespace.to_owned(),
            told: Vec::new(),
            telling,
            runtime,
            _one: one,
        }
    }

    /// Applies manifests; `NAMESPACE` stands for the test's.
    pub fn apply(&self, yaml: &str) {
        self.runtime.block_on(self.admin.apply(&yaml.replace("NAMESPACE", &self.namespace)));
    }

    /// Deletes a cluster-scoped object, like `kubectl delete`, with its dependents.
    pub fn delete(&self, (version, kind): (&str, &str), name: &str) {
        let place = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
        let deleting = async {
            let api = self.admin.api_of(&place).await;
            api.delete(name, &DeleteParams::background()).await
        };
        self.runtime.block_on(deleting).expect("it is there to be deleted");
    }

    /// Makes an image that takes the place of the first one; pending first.
    pub fn make_image(&mut self, name: &str) -> tenon_domain::id::ImageId {
        self.region.make_image(&image(name))
    }

    /// The instances that EC2 reports as running.
    #[must_use]
    pub fn running(&self) -> Vec<Instance> {
        let records = self.region.twin().instances().into_iter();
        records
            .map(|record| record.instance.clone())
            .filter(|one| one.state == InstanceState::Running)
            .collect()
    }

    /// How the cluster is now.
    #[must_use]
    pub fn look(&self) -> Moment {
        self.runtime.block_on(Moment::of(&self.admin, &self.namespace))
    }

    /// All objects of a kind.
    #[must_use]
    pub fn all(&self, version: &str, kind: &str) -> Vec<DynamicObject> {
        self.runtime.block_on(self.admin.all(version, kind))
    }

    /// Makes the volumes for which kube-scheduler has chosen a Node.
    pub fn make_volumes(&self) {
        self.runtime.block_on(self.admin.make_volumes());
    }

    /// How many replicas of the namespace's Deployments are Ready.
    #[must_use]
    pub fn ready_replicas(&self) -> usize {
        let deployments: Api<Deployment> = Api::namespaced(self.admin.client(), &self.namespace);
        let all =
            self.runtime.block_on(deployments.list(&ListParams::default())).expect("Deployments are listed");
        let ready = all.items.iter().filter_map(|one| one.status.as_ref()?.ready_replicas);
        ready.filter_map(|count| usize::try_from(count).ok()).sum()
    }

    /// Deletes the namespace's Deployments; their pods go after them.
    pub fn delete_deployments(&self) {
        let deployments: Api<Deployment> = Api::namespaced(self.admin.client(), &self.namespace);
        let (how, which) = (DeleteParams::default(), ListParams::default());
        let deleting = deployments.delete_collection(&how, &which);
        let _going = self.runtime.block_on(deleting).expect("Deployments are deleted");
    }

    /// Runs the region until the condition holds; returns the time that it took.
    ///
    /// # Panics If it doesn't hold in time, with the happenings and the cluster's state.
    pub fn until(&mut self, what: &str, within: Duration, mut is_so: impl FnMut(&Self) -> bool) -> Duration {
        let began = Instant::now();
        self.told.clear();
        while began.elapsed() < within {
            self.region.run_until(Timestamp::now());
            for news in self.telling.pass_on(&mut self.region, TURN) {
                self.told.push(format!("{:>6.1} s  {news:?}", began.elapsed().as_secs_f64()));
            }
            for happened in self.region.take_happenings() {
                let at = began.elapsed().as_secs_f64();
                self.told.push(format!("{at:>6.1} s  {}: {}", happened.subject, happened.message));
            }
            if is_so(self) {
                println!("{what}: after {:.1} s", began.elapsed().as_secs_f64());
                return began.elapsed();
            }
        }
        let left = self.region.unsettled().0;
        panic!(
            "{what}: not within {within:?}\n{}\nunsettled: {left:?}\n{:#?}",
            self.told.join("\n"),
            summary(&self.look())
        )
    }
}

fn image(name: &str) -> ImageForm {
    let takes = Some(SignedDuration::from_secs(2));
    ImageForm { takes, ..ImageForm::tagged(name, ("team", "platform")) }
}

pub(crate) fn summary(moment: &Moment) -> Value {
    let pods: Vec<Value> = moment
        .pods
        .iter()
        .map(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            json!([
                pod.metadata.name,
                node,
                pod.status.as_ref().and_then(|status| status.phase.clone()),
                pod.metadata.deletion_timestamp.is_some()
            ])
        })
        .collect();
    let nodes: Vec<Value> = moment
        .nodes
        .iter()
        .map(|node| {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
            json!([
                node.metadata.name,
                node.metadata.labels,
                taints,
                node.metadata.deletion_timestamp.is_some()
            ])
        })
        .collect();
    json!({"nodes": nodes, "pods": pods})
}

/// Deletes the remains of an earlier test: its pods and their controllers, volumes, pools, classes, claims and Nodes, and
/// the agent's record of the old table.
pub async fn clear(admin: &Cluster) {
    for (version, kind) in [
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "ReplicaSet"),
        ("policy/v1", "PodDisruptionBudget"),
        ("v1", "Pod"),
        ("storage.k8s.io/v1", "VolumeAttachment"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "PersistentVolume"),
        ("storage.k8s.io/v1", "StorageClass"),
        ("storage.k8s.io/v1", "CSINode"),
        ("karpenter.sh/v1", "NodePool"),
        ("karpenter.sh/v1", "NodeClaim"),
        ("karpenter.k8s.aws/v1", "EC2NodeClass"),
        ("v1", "Node"),
    ] {
        for object in admin.all(version, kind).await {
            remove(admin, (version, kind), &object).await;
        }
    }
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "tenon-agent-generation", "namespace": "kube-system"}});
    let _none = admin.api_of(&lease).await.delete("tenon-agent-generation", &DeleteParams::default()).await;
}

async fn remove(admin: &Cluster, (version, kind): (&str, &str), object: &DynamicObject) {
    let name = object.metadata.name.clone().unwrap_or_default();
    let place = json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": object.metadata.namespace}});
    let api = admin.api_of(&place).await;
    if object.metadata.finalizers.is_some() {
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let _gone = api.patch(&name, &PatchParams::default(), &free).await;
    }
    let _gone = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
}
