//! A cluster of the installation: a simulated one with the real agent, on the deployed table and bus.
//!
//! Decides the cluster's objects. Its nodes don't join: the rehearsal ends with the instance.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_agent::bell::DETAIL_TYPE;
use tenon_agent::{Agent, Bell, BellError, Burst, Reported, Ring};
use tenon_domain::id::ClusterName;
use tenon_domain::manifest;
use tenon_dynamodb::DynamoTable;
use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
use tenon_snapshot::object::Kind;
use tokio::sync::Mutex;

use crate::account::{INSTALLATION, RehearsalAccount, put_event};
use crate::classes::{alias_version, ready};

/// The cluster's name.
pub(crate) const CLUSTER: &str = "prod";
/// Its pool, and that pool's class.
pub(crate) const POOL: &str = "default";

/// The pool and the class, as their users write them.
const GETTING_STARTED: &str = include_str!("../../../manifests/getting-started.yaml");
/// The cheapest type for one such pod has two processors, which leaves too little for another: each gets a node of its
/// own.
const POD_CPU: &str = "1500m";

/// A cluster with its agent.
pub(crate) struct Cluster {
    objects: SimulatedCluster,
    agent: Agent<SimulatedCluster, DynamoTable, BusBell>,
    rung: Arc<Mutex<Option<Instant>>>,
    pods: u32,
}

impl Cluster {
    /// A cluster with the pool and the class of Karpenter's getting-started page. The class is ready.
    pub(crate) async fn join(account: &RehearsalAccount) -> Self {
        let name: ClusterName = CLUSTER.parse().unwrap();
        let objects = SimulatedCluster::new(SimulationConfig::default(), Timestamp::now());
        let variables = [("${CLUSTER_NAME}", CLUSTER), ("${ALIAS_VERSION}", &alias_version().await)];
        let manifests = variables.iter().fold(GETTING_STARTED.to_owned(), |text, (name, value)| {
            assert!(text.contains(name), "the page has `{name}`");
            text.replace(name, value)
        });
        for object in manifest::objects("getting-started.yaml", &manifests) {
            objects.apply(object).expect("the API server takes it");
        }
        let rung = Arc::new(Mutex::new(None));
        let bell = BusBell { events: account.events.clone(), rung: Arc::clone(&rung) };
        let agent = Agent::new(name, objects.clone(), account.table.clone(), bell);
        let mut cluster = Self { objects, agent, rung, pods: 0 };
        cluster.report().await;
        ready(account, POOL).await;
        cluster
    }

    /// Applies a class and reports it.
    pub(crate) async fn apply_class(&mut self, class: Value) {
        self.apply(class).await;
    }

    /// Applies an object and reports it.
    pub(crate) async fn apply(&mut self, object: Value) {
        self.objects.apply(object).expect("the API server takes it");
        self.report().await;
    }

    /// Deletes a class and reports that.
    pub(crate) async fn delete_class(&mut self, name: &str) {
        self.delete(Kind::Ec2NodeClass, "", name).await;
    }

    /// Deletes an object and reports that.
    pub(crate) async fn delete(&mut self, kind: Kind, namespace: &str, name: &str) {
        let _accepted = self.objects.delete(kind, namespace, name);
        self.report().await;
    }

    /// Lets the agent report; returns the time of its ring, if it rang.
    pub(crate) async fn report(&mut self) -> Option<Instant> {
        *self.rung.lock().await = None;
        let now = Timestamp::now();
        self.objects.tick(now);
        match self.agent.report(now, Burst::Over).await {
            Ok(Reported::Changed(_) | Reported::Unchanged | Reported::Later(_)) => {}
            Err(error) => panic!("the agent doesn't report: {error:?}"),
        }
        *self.rung.lock().await
    }

    /// Adds a pod that needs its own node, and reports it; returns the time of the ring.
    pub(crate) async fn add_pod(&mut self) -> Instant {
        self.pods += 1;
        self.objects.apply(pod(&format!("web-{}", self.pods))).expect("the API server takes it");
        self.report().await.expect("a pod that waits is rung for")
    }
}

/// Rings as the agent's binary does: an event on the installation's bus, from the cluster's own source.
struct BusBell {
    events: aws_sdk_eventbridge::Client,
    rung: Arc<Mutex<Option<Instant>>>,
}

impl Bell for BusBell {
    async fn ring(&self, ring: &Ring) -> Result<(), BellError> {
        let form = ring.to_form(&CLUSTER.parse().unwrap());
        let mut detail = serde_json::to_value(form).unwrap();
        detail["installation"] = json!(INSTALLATION);
        *self.rung.lock().await = Some(Instant::now());
        put_event(&self.events, &format!("tenon.agent.{CLUSTER}"), DETAIL_TYPE, &detail).await;
        Ok(())
    }
}

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "containers": [{ "name": "web", "resources": { "requests": { "cpu": POD_CPU, "memory": "1Gi" } } }],
        },
    })
}
