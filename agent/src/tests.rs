//! The agent against a simulated cluster and a table in memory, as a user of the cluster sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::{Agent, Bell, BellError, Burst, Ring};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClientToken, ClusterName, LaunchId, NodeClassName, NodePoolName, Uid};
use tenon_domain::launch::{Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::snapshot::{ActionProgress, Snapshot};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_memory_table::block_on;
use tenon_memory_table::{MemoryConfig, MemoryTable};
use tenon_simulated_cluster::{NodeSpec, SimulatedCluster, SimulationConfig};
use tenon_snapshot::object::{self, text};
use tenon_snapshot::snapshot::{self, ChunkCache};
use tenon_snapshot::{ActionKind, Kind, Kube, NodeAction, action};
use tenon_table::items::{keys, put};
use tenon_table::{Commit, CommitToken, Consistency, Table, Write};

mod deleted;
mod held;
mod planned;
mod reported;
mod rung;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Received rings, and the number of further rings to drop.
#[derive(Clone, Default)]
struct Rings(Arc<Mutex<Vec<Ring>>>, Arc<Mutex<usize>>);

impl Bell for Rings {
    async fn ring(&self, ring: &Ring) -> Result<(), BellError> {
        let mut deaf = self.1.lock().unwrap();
        if *deaf > 0 {
            *deaf -= 1;
            return Err(BellError(Arc::new(std::io::Error::other("throttled"))));
        }
        self.0.lock().unwrap().push(ring.clone());
        Ok(())
    }
}

fn quiet_table() -> MemoryTable {
    let zero = SignedDuration::ZERO;
    let config = MemoryConfig {
        seed: 0,
        staleness_max: zero,
        ttl_delay_max: zero,
        throughput: tenon_memory_table::Throughput::Off,
    };
    MemoryTable::new(config, Arc::new(|| Timestamp::UNIX_EPOCH))
}

struct AgentFixture {
    kube: SimulatedCluster,
    table: MemoryTable,
    rings: Rings,
    agent: Agent<SimulatedCluster, MemoryTable, Rings>,
    now: i64,
    number: u64,
}

fn name() -> ClusterName {
    ClusterName::parse("prod").unwrap()
}

impl AgentFixture {
    fn new() -> Self {
        let kube = SimulatedCluster::new(SimulationConfig::default(), at(0));
        let table = quiet_table();
        let rings = Rings::default();
        let agent = Agent::new(name(), kube.clone(), table.clone(), rings.clone());
        Self { kube, table, rings, agent, now: 0, number: 0 }
    }

    /// Another agent takes over, without this one's memory.
    fn restart(&mut self) {
        self.agent = Agent::new(name(), self.kube.clone(), self.table.clone(), self.rings.clone());
    }

    fn boot(&mut self, node: &str) {
        let resources: BTreeMap<String, String> = [("cpu", "4"), ("memory", "8Gi"), ("pods", "20")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        self.kube.add_node(NodeSpec {
            name: node.to_owned(),
            provider_id: provider_id(node),
            labels: BTreeMap::new(),
            taints: vec![json!({"key": "karpenter.sh/unregistered", "effect": "NoExecute"})],
            capacity: resources.clone(),
            allocatable: resources,
            joins_after: SignedDuration::from_secs(5),
            ready_after: SignedDuration::from_secs(5),
        });
    }

    fn act(&mut self, node: &str, kind: ActionKind, deadline: Option<i64>) {
        let action = self.action(node, kind, deadline);
        self.ask(action);
    }

    fn action(&mut self, node: &str, kind: ActionKind, deadline: Option<i64>) -> NodeAction {
        self.number += 1;
        NodeAction {
            claim: ClaimName::parse(node).unwrap(),
            number: self.number,
            kind,
            provider_id: Some(provider_id(node)),
            node: None,
            labels: BTreeMap::from([("karpenter.sh/nodepool".to_owned(), "default".to_owned())]),
            annotations: BTreeMap::new(),
            taints: vec![],
            startup_taints: vec![Taint::new("starting", TaintEffect::PreferNoSchedule)],
            deadline: deadline.map(at),
            replacement: tenon_snapshot::ReplacementOrder::Anytime,
        }
    }

    fn ask(&self, action: NodeAction) {
        let key = action::action_key(&name(), &action.claim);
        self.commit(Write::Put { key, item: action.to_item().unwrap() });
    }

    /// A launch of a claim for one pod.
    fn plan(&self, claim: &str, pod: &str) {
        let claim = Claim::planned(
            ClaimName::parse(claim).unwrap(),
            (NodePoolName::parse("default").unwrap(), NodeClassName::parse("default").unwrap()),
            LaunchId::parse("launch-1").unwrap(),
            at(0),
        );
        let launch = Launch {
            id: claim.launch.clone(),
            revision: 1,
            pool: claim.pool.clone(),
            class: claim.class.clone(),
            token: ClientToken::parse("token-1").unwrap(),
            made_from: None,
            reservation: None,
            placement: None,
            request: String::new(),
            claims: vec![LaunchClaim { name: claim.name.clone(), pods: vec![Uid::parse(pod).unwrap()] }],
            cause: LaunchCause::PendingPods,
            created_at: at(0),
            state: LaunchState::Settled { at: at(0), instances: 1 },
        };
        self.commit(put(keys::launch(&name(), &launch.id), &launch));
        self.commit(put(keys::claim(&name(), &claim.name), &claim));
    }

    fn commit(&self, write: Write) {
        let commit =
            Commit { token: CommitToken::parse("test").unwrap(), conditions: vec![], writes: vec![write] };
        block_on(self.table.commit(&commit)).unwrap();
    }

    /// Second by second: the cluster lives, the agent converges and reports.
    fn run(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now += 1;
            self.kube.tick(at(self.now));
            block_on(self.agent.taint_deleted()).unwrap();
            block_on(self.agent.converge(at(self.now))).unwrap();
            block_on(self.agent.report(at(self.now), Burst::Over)).unwrap();
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut cache = ChunkCache::default();
        block_on(snapshot::read(&self.table, &name(), Consistency::Strong, &mut cache)).unwrap().unwrap()
    }

    fn is_done(&self, claim: &str) -> bool {
        let reports = self.snapshot().reports;
        reports.iter().any(|report| report.claim == claim && report.progress == ActionProgress::Done)
    }

    fn node(&self, node: &str) -> Option<Arc<Value>> {
        self.kube.object(Kind::Node, "", node)
    }

    fn pods(&self, node: &str) -> usize {
        self.kube.pods_by_node().get(node).map_or(0, Vec::len)
    }

    /// Two registered nodes, `pods` of a workload on the first.
    fn with_pods(pods: usize, budget: Value, extra: Value) -> Self {
        let mut world = Self::new();
        world.boot("a");
        world.act("a", ActionKind::Register, None);
        let mut template = json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "100m"}}}]}});
        if let Some(annotations) = extra.get("annotations") {
            template["metadata"]["annotations"] = annotations.clone();
        }
        world
            .kube
            .apply(json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                "spec": {"replicas": pods, "template": template}}))
            .unwrap();
        if !budget.is_null() {
            let selector = json!({"matchLabels": {"app": "web"}});
            let mut spec = budget;
            spec["selector"] = selector;
            world
                .kube
                .apply(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                    "spec": spec}))
                .unwrap();
        }
        world.run(30);
        assert_eq!(world.pods("a"), pods);
        world.boot("b");
        world.act("b", ActionKind::Register, None);
        world.run(30);
        world
    }
}

fn provider_id(node: &str) -> String {
    let digits: String = node.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("aws:///us-east-1a/i-{digits}")
}

#[test]
fn a_node_is_registered_once_and_later_changes_are_the_users() {
    let mut world = AgentFixture::new();
    world.boot("a");
    world.act("a", ActionKind::Register, None);
    world.run(4);
    assert!(!world.is_done("a"), "there is no Node yet");
    world.run(20);
    let node = world.node("a").unwrap();
    assert_eq!(text(&node, "/metadata/labels/karpenter.sh~1registered"), Some("true"));
    assert_eq!(text(&node, "/metadata/labels/karpenter.sh~1nodepool"), Some("default"));
    assert_eq!(object::list(&node, "/metadata/finalizers"), [json!("karpenter.sh/termination")]);
    assert_eq!(object::taints(&node), [Taint::new("starting", TaintEffect::PreferNoSchedule)]);
    assert!(world.is_done("a"));
    world
        .kube
        .apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a",
            "labels": {"karpenter.sh/nodepool": "mine"}}, "spec": {"providerID": provider_id("a")}}))
        .unwrap();
    world.run(5);
    let node = world.node("a").unwrap();
    assert_eq!(text(&node, "/metadata/labels/karpenter.sh~1nodepool"), Some("mine"));
    world.act("a", ActionKind::Initialize, None);
    world.run(2);
    assert_eq!(text(&world.node("a").unwrap(), "/metadata/labels/karpenter.sh~1initialized"), Some("true"));
}

/// A label keeps a Node's taints apart from its NodeClaim's.
#[test]
fn taints_are_added_unless_the_node_is_kept_from_it() {
    let check = |value: Option<&str>, expected: &[Taint]| {
        let mut world = AgentFixture::new();
        world.boot("a");
        world.run(6);
        let labels: BTreeMap<&str, &str> =
            value.into_iter().map(|value| ("karpenter.sh/do-not-sync-taints", value)).collect();
        world
            .kube
            .apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": labels},
                "spec": {"providerID": provider_id("a"),
                    "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}}))
            .unwrap();
        world.act("a", ActionKind::Register, None);
        world.run(20);
        assert!(world.is_done("a"), "{value:?}");
        assert_eq!(object::taints(&world.node("a").unwrap()), expected, "{value:?}");
    };
    let own = [Taint::new("starting", TaintEffect::PreferNoSchedule)];
    check(None, &own);
    check(Some("false"), &own);
    check(Some("true"), &[]);
}

#[test]
fn c116_a_node_without_the_taint_of_its_boot_is_registered_and_its_claim_tells_it() {
    let told = |taints: Value| {
        let mut world = AgentFixture::new();
        world.boot("a");
        world.run(6);
        world
            .kube
            .apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"},
                "spec": {"providerID": provider_id("a"), "taints": taints}}))
            .unwrap();
        world.act("a", ActionKind::Register, None);
        world.run(20);
        assert!(world.is_done("a"));
        events(&world, "UnregisteredTaintMissing").into_iter().collect::<Vec<_>>()
    };
    assert_eq!(told(json!([{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}])), [""; 0]);
    assert_eq!(told(json!([])), ["NodeClaim a"]);
}

/// The objects of Events with a reason.
fn events(world: &AgentFixture, reason: &str) -> BTreeSet<String> {
    let notes = world.kube.notes();
    notes.iter().filter(|note| note.reason == reason).map(|note| note.about.to_string()).collect()
}

#[test]
fn a_claims_own_label_keeps_the_taints_off_its_node() {
    let mut world = AgentFixture::new();
    world.boot("a");
    world.run(6);
    let labels = BTreeMap::from([("karpenter.sh/do-not-sync-taints".to_owned(), "true".to_owned())]);
    let action = NodeAction { labels, ..world.action("a", ActionKind::Register, None) };
    world.ask(action);
    world.run(20);
    assert!(world.is_done("a"));
    assert_eq!(object::taints(&world.node("a").unwrap()), []);
}

/// The NodeClaim of a node; Tenon's have the annotation of their launch. One without a claim in the table stays while
/// its Node exists.
fn apply_claim(world: &AgentFixture, name: &str, annotations: &Value) -> String {
    let claim = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "annotations": annotations}, "status": {"providerID": provider_id(name)}});
    object::uid(&world.kube.apply(claim).unwrap()).to_owned()
}

#[test]
fn a_node_is_owned_by_its_claim() {
    let mut world = AgentFixture::new();
    let ours = json!({"tenon.dev/launch": "launch-1"});
    let owner = |name: &str, uid: &str| {
        json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": name, "uid": uid,
            "blockOwnerDeletion": true})
    };
    let owners = |world: &AgentFixture, node: &str| {
        object::list(&world.node(node).unwrap(), "/metadata/ownerReferences").to_vec()
    };
    for node in ["a", "b", "c"] {
        world.boot(node);
        world.act(node, ActionKind::Register, None);
    }
    // They join in the fifth second.
    world.run(4);
    let uid = apply_claim(&world, "a", &ours);
    apply_claim(&world, "c", &json!({}));
    world.run(20);
    assert_eq!(owners(&world, "a"), [owner("a", &uid)]);
    assert_eq!(owners(&world, "b"), Vec::<Value>::new(), "there is no claim yet");
    assert_eq!(owners(&world, "c"), Vec::<Value>::new(), "the claim isn't ours");
    // Created late, with another owner already there.
    let other = json!({"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "n"});
    world
        .kube
        .apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b",
            "ownerReferences": [other]}, "spec": {"providerID": provider_id("b")}}))
        .unwrap();
    let uid = apply_claim(&world, "b", &ours);
    world.act("b", ActionKind::Initialize, None);
    world.run(2);
    assert_eq!(owners(&world, "b"), [other, owner("b", &uid)]);
    assert!(world.is_done("b"));
}

#[test]
fn a_node_goes_with_its_claim() {
    let mut world = AgentFixture::with_pods(2, Value::Null, json!({}));
    apply_claim(&world, "a", &json!({"tenon.dev/launch": "launch-1"}));
    world.run(2);
    assert!(object::deleted_at(&world.node("a").unwrap()).is_none());
    world.kube.delete(Kind::NodeClaim, "", "a");
    world.run(2);
    // Our finalizer holds it until functions have drained it.
    assert!(object::deleted_at(&world.node("a").unwrap()).is_some());
    assert_eq!(world.pods("a"), 2);
}

#[test]
fn a_drain_under_a_budget_waits_and_proceeds() {
    let mut world = AgentFixture::with_pods(4, json!({"maxUnavailable": 1}), json!({}));
    world.act("a", ActionKind::Disrupt, None);
    world.run(2);
    assert!(object::taints(&world.node("a").unwrap()).contains(&Taint::disrupted()));
    assert_eq!(world.pods("a"), 4);
    world.act("a", ActionKind::Drain, None);
    world.run(3);
    let node = world.node("a").unwrap();
    assert!(object::deleted_at(&node).is_some());
    let excluded = "/metadata/labels/node.kubernetes.io~1exclude-from-external-load-balancers";
    assert_eq!(text(&node, excluded), Some("karpenter"));
    assert!(!world.is_done("a"));
    world.run(90);
    assert!(world.is_done("a"));
    assert_eq!((world.pods("a"), world.pods("b")), (0, 4));
    let evictions = world.kube.evictions();
    assert_eq!(evictions.len(), 4);
    assert!(evictions.iter().all(|evicted| evicted.budgets == [("web".to_owned(), 1)]));
    // Our finalizer holds the Node until EC2 reports the instance as terminated.
    assert!(world.node("a").is_some());
    world.act("a", ActionKind::Finalize, None);
    world.run(2);
    assert!(world.node("a").is_none() && world.is_done("a"));
}

#[test]
fn restarted_in_the_middle_it_ends_in_the_same_place() {
    let mut world = AgentFixture::with_pods(4, json!({"maxUnavailable": 1}), json!({}));
    world.act("a", ActionKind::Drain, None);
    for _ in 0..100 {
        world.restart();
        world.run(1);
    }
    assert!(world.is_done("a"));
    assert_eq!((world.pods("a"), world.pods("b")), (0, 4));
    assert_eq!(world.kube.evictions().len(), 4);
}

#[test]
fn a_budget_that_never_lets_go_holds_until_the_deadline() {
    let mut world = AgentFixture::with_pods(2, json!({"maxUnavailable": 0}), json!({}));
    let deadline = world.now + 60;
    world.act("a", ActionKind::Drain, Some(deadline));
    // Pods with 30 s of grace are deleted 30 s before the deadline.
    world.run(29);
    assert_eq!(world.pods("a"), 2);
    assert!(events(&world, "FailedDraining").contains("Node a"));
    world.run(15);
    assert!(world.is_done("a"));
    assert_eq!(world.kube.evictions(), []);
}

#[test]
fn do_not_disrupt_pods_stay() {
    let annotations = json!({"annotations": {"karpenter.sh/do-not-disrupt": "true"}});
    let mut world = AgentFixture::with_pods(2, Value::Null, annotations);
    world.act("a", ActionKind::Drain, None);
    world.run(120);
    assert_eq!(world.pods("a"), 2);
    assert!(!world.is_done("a"));
}

#[test]
fn an_empty_node_is_drained_for_five_seconds() {
    let mut world = AgentFixture::with_pods(1, Value::Null, json!({}));
    world.act("b", ActionKind::Drain, None);
    world.run(5);
    assert!(!world.is_done("b"));
    world.run(2);
    assert!(world.is_done("b"));
}

#[test]
fn a_pod_runs_on_the_node_that_was_launched_for_it() {
    let mut world = AgentFixture::new();
    world.boot("a");
    world.boot("b");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default", "uid": "uid-p"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    world.kube.apply(pod).unwrap();
    world.plan("b", "uid-p");
    world.run(12);
    world.act("a", ActionKind::Register, None);
    world.act("b", ActionKind::Register, None);
    world.run(20);
    // Both are as empty as the other, and kube-scheduler would have taken the first.
    assert_eq!((world.pods("a"), world.pods("b")), (0, 1));
}
