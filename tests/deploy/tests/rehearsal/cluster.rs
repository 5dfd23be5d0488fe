//! A cluster of the installation: a simulated one with the real agent, on the deployed table and bus.
//!
//! Decides the cluster's objects. Its nodes don't join: the rehearsal ends with the instance.

use std::sync::Arc;
use std::time::Instant;

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_agent::bell::DETAIL_TYPE;
use tenon_agent::{Agent, Bell, BellError, Burst, Reported, Ring};
use tenon_domain::id::ClusterName;
use tenon_dynamodb::DynamoTable;
use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
use tokio::sync::Mutex;

use crate::account::{INSTALLATION, RehearsalAccount};
use crate::network::{DISCOVERY, Network};
use crate::wait::eventually;

/// The cluster's name.
pub(crate) const CLUSTER: &str = "prod";
/// Its one pool, and its one class.
pub(crate) const POOL: &str = "default";

/// Of a node with two processors this leaves too little for another such pod: each gets a node of its own.
const POD_CPU: &str = "1500m";

/// A cluster with its agent.
pub(crate) struct Cluster {
    objects: SimulatedCluster,
    agent: Agent<SimulatedCluster, DynamoTable, BusBell>,
    rung: Arc<Mutex<Option<Instant>>>,
    pods: u32,
}

impl Cluster {
    /// A cluster that uses the network. Its class is resolved and its pool can launch.
    pub(crate) async fn join(account: &RehearsalAccount, network: &Network) -> Self {
        let name: ClusterName = CLUSTER.parse().unwrap();
        let objects = SimulatedCluster::new(SimulationConfig::default(), Timestamp::now());
        for object in [class(network), pool()] {
            objects.apply(object).expect("the API server takes it");
        }
        let rung = Arc::new(Mutex::new(None));
        let bell = BusBell { events: account.events.clone(), rung: Arc::clone(&rung) };
        let agent = Agent::new(name, objects.clone(), account.table.clone(), bell);
        let mut cluster = Self { objects, agent, rung, pods: 0 };
        cluster.report().await;
        let pk = format!("CLUSTER#{CLUSTER}");
        let item = eventually("the class's status", || account.item(pk.as_str(), "NODECLASS#default")).await;
        assert!(format!("{:?}", item.get("images")).contains(&network.image), "{item:?}");
        cluster
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
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(INSTALLATION)
            .source(format!("tenon.agent.{CLUSTER}"))
            .detail_type(DETAIL_TYPE)
            .detail(detail.to_string())
            .build();
        *self.rung.lock().await = Some(Instant::now());
        let sent = self.events.put_events().entries(entry).send().await.expect("the bus answers");
        assert_eq!(sent.failed_entry_count, 0, "{sent:?}");
        Ok(())
    }
}

fn class(network: &Network) -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": { "name": POOL },
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{ "id": network.image }],
            "subnetSelectorTerms": [{ "tags": { DISCOVERY: CLUSTER } }],
            "securityGroupSelectorTerms": [{ "tags": { DISCOVERY: CLUSTER } }],
            "role": format!("{CLUSTER}-node"),
        },
    })
}

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": { "name": POOL },
        "spec": {
            "template": { "spec": {
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": POOL },
                "requirements": [
                    { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
                    { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] },
                    { "key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"] },
                    { "key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["2"] },
                ],
                "expireAfter": "720h",
            } },
            "disruption": { "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never" },
        },
    })
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
