//! Two replicas of the agent's binary: which of them acts, and the lease when one is killed, terminated, cut off from
//! the API server, or frozen.
//!
//! Run by `tests/servers/ministack -- tests/servers/control-plane -- cargo test --workspace --test replicas --
//! --ignored`, after `infra/build host`.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

mod account;
mod relay;
mod replica;

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tenon_cluster_tests::Cluster;
use tenon_domain::manifest;
use tenon_kube::lease::{DURATION, EVERY, RENEW_WITHIN};
use tenon_snapshot::ActionKind;
use tokio::sync::{Mutex, MutexGuard};

use crate::account::{ReplicasAccount, provider_id};
use crate::relay::Way;
use crate::replica::{NAMESPACE, Replica, Signal};

/// The agent's rights, as the chart installs them.
const RBAC: &str = include_str!("../../../../infra/chart/rbac.yaml");
/// The limit for starts, first lists and steps on two busy cores.
const SOON: Duration = Duration::from_secs(20);
/// The largest delay at which a due event is seen.
const LATE: Duration = Duration::from_secs(4);
/// A step that is under way ends well within this.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// There is one lease.
static ONE: Mutex<()> = Mutex::const_new(());

struct ReplicasWorld {
    admin: Cluster,
    account: ReplicasAccount,
    nodes: Vec<String>,
    _one: MutexGuard<'static, ()>,
}

impl ReplicasWorld {
    async fn new(name: &str) -> Self {
        let one = ONE.lock().await;
        let admin = Cluster::admin().await;
        admin.install_definitions().await;
        admin.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}")).await;
        for object in manifest::objects("rbac.yaml", RBAC) {
            admin.apply_object(&object).await;
        }
        for (namespace, name) in [(NAMESPACE, "tenon-agent"), ("kube-system", "tenon-agent-generation")] {
            let leases: Api<Lease> = Api::namespaced(admin.client(), namespace);
            let _none = leases.delete(name, &DeleteParams::default()).await;
        }
        Self { admin, account: ReplicasAccount::new(name).await, nodes: Vec::new(), _one: one }
    }

    /// Two replicas, the first of which leads.
    async fn pair(&self) -> (Replica, Replica) {
        let first = Replica::start("first", &self.account).await;
        until("the first leads", SOON, || async { first.leads().await }).await;
        let second = Replica::start("second", &self.account).await;
        until("the second waits", SOON, || async { second.get("/healthz").await.is_some() }).await;
        assert_eq!(self.holder().await, "first");
        (first, second)
    }

    /// The lease's holder, by the API server.
    async fn holder(&self) -> String {
        let leases: Api<Lease> = Api::namespaced(self.admin.client(), NAMESPACE);
        let lease = leases.get_opt("tenon-agent").await.expect("the API server answers");
        lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
    }

    /// A kubelet makes its Node, and functions ask for its registration.
    async fn join(&mut self, node: &str) {
        let node = format!("{node}-{}", self.account.name);
        let made = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node},
            "spec": {"providerID": provider_id(&node), "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]}});
        self.admin.create_node(&made.to_string()).await;
        self.account.act(&node, ActionKind::Register).await;
        self.nodes.push(node);
    }

    /// Whether all Nodes that joined are registered.
    async fn is_registered(&self) -> bool {
        let nodes: Api<Node> = Api::all(self.admin.client());
        for name in &self.nodes {
            let node = nodes.get(name).await.expect("it joined");
            let labels = node.metadata.labels.unwrap_or_default();
            if labels.get("karpenter.sh/registered").map(String::as_str) != Some("true") {
                return false;
            }
        }
        true
    }

    async fn registers(&self, who: &str) -> Duration {
        until(&format!("{who} registers"), SOON, || self.is_registered()).await
    }

    /// How long it takes until a replica leads, by its own metric and by the lease.
    async fn leads(&self, replica: &Replica, within: Duration) -> Duration {
        let what = format!("{} leads", replica.name);
        until(&what, within, || async { replica.leads().await && self.holder().await == replica.name }).await
    }

    /// Takes its Nodes away.
    async fn end(self) {
        let nodes: Api<Node> = Api::all(self.admin.client());
        for name in &self.nodes {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            nodes.patch(name, &PatchParams::default(), &free).await.expect("it is there");
            nodes.delete(name, &DeleteParams::default()).await.expect("it is there");
        }
    }
}

/// Waits until a condition holds; returns the time that it took.
async fn until<F: Future<Output = bool>>(what: &str, within: Duration, is: impl Fn() -> F) -> Duration {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{what}: after {:.1?}", began.elapsed());
    began.elapsed()
}

/// Waits until a replica ended, with 0.
async fn ends(replica: &mut Replica, within: Duration) {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = replica.ended() {
            break status;
        }
        assert!(began.elapsed() < within, "{} didn't end within {within:?}", replica.name);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    println!("{} ended: after {:.1?}", replica.name, began.elapsed());
    assert_eq!(status.code(), Some(0), "{}: {:?}", replica.name, replica.logged());
}

fn assert_none<T: Debug>(found: &[T], what: &str) {
    assert!(found.is_empty(), "{what}: {found:?}");
}

const OK: (u16, &str) = (200, "ok");

async fn assert_healthy(replica: &Replica) {
    for path in ["/healthz", "/readyz"] {
        let answer = replica.get(path).await;
        let answer = answer.as_ref().map(|(status, body)| (*status, body.as_str()));
        assert_eq!(answer, Some(OK), "{path} of {}", replica.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs tests/servers/ministack and tests/servers/control-plane"]
async fn the_holder_alone_acts_and_one_that_is_killed_is_replaced_when_its_lease_ends() {
    let mut world = ReplicasWorld::new("killed").await;
    let (first, second) = world.pair().await;
    world.join("a").await;
    world.registers("the first").await;
    // Several looks of the one that waits.
    tokio::time::sleep(EVERY * 3).await;
    for replica in [&first, &second] {
        assert_healthy(replica).await;
    }
    assert_eq!(second.aws.connections(), 0, "one that waits asks neither table nor queue");
    assert_eq!(second.metric("tenon_agent_leader").await, Some(0.0));
    assert_eq!(second.metric("tenon_agent_steps_total{outcome=\"ended\"}").await, None);
    assert!(first.metric("tenon_agent_steps_total{outcome=\"ended\"}").await > Some(1.0));
    assert!(first.metric("tenon_agent_rings_total").await >= Some(1.0));
    assert!(first.metric("tenon_agent_snapshot_generation").await >= Some(1.0));
    assert_rang(&world).await;
    first.signal(Signal::Kill);
    let killed = Instant::now();
    world.join("b").await;
    world.leads(&second, DURATION + EVERY + LATE).await;
    // The last renewal was at most EVERY before, and one more attempt may have been running.
    assert!(killed.elapsed() + EVERY + EVERY >= DURATION, "a lease is taken only once it ended");
    world.registers("the second").await;
    println!("from the kill to the Node's registration: {:.1?}", killed.elapsed());
    assert_none(&first.troubles(), "nothing went wrong until it was killed");
    assert_none(&second.troubles(), "nothing went wrong");
    world.end().await;
}

/// The bus heard the leader, under its own source.
async fn assert_rang(world: &ReplicasWorld) {
    let heard = world.account.heard().await;
    let source = json!(format!("tenon.agent.{}", world.account.name));
    assert!(!heard.is_empty(), "the bus heard nothing");
    for event in heard {
        assert_eq!(event.get("source"), Some(&source), "{event}");
        assert_eq!(event.get("detail-type"), Some(&json!("Snapshot Changed")), "{event}");
        assert_eq!(event.pointer("/detail/installation"), Some(&json!("tenon")), "{event}");
        assert_eq!(event.pointer("/detail/cluster"), Some(&json!(world.account.name)), "{event}");
        assert!(event.pointer("/detail/generation").and_then(Value::as_u64) >= Some(1), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs tests/servers/ministack and tests/servers/control-plane"]
async fn one_that_is_told_to_stop_ends_its_step_and_gives_the_lease_up() {
    let mut world = ReplicasWorld::new("stopped").await;
    let (mut first, second) = world.pair().await;
    // A step is under way that waits for the table.
    first.aws.set(Way::Parted);
    world.join("a").await;
    tokio::time::sleep(EVERY).await;
    first.signal(Signal::Terminate);
    tokio::time::sleep(EVERY).await;
    assert!(first.ended().is_none(), "its step is under way");
    assert_eq!(world.holder().await, "first");
    first.aws.set(Way::Open);
    ends(&mut first, ENDS_WITHIN).await;
    world.leads(&second, EVERY + LATE).await;
    world.registers("the second").await;
    world.join("b").await;
    world.registers("the second").await;
    assert_none(&first.troubles(), "nothing went wrong");
    assert_none(&second.troubles(), "nothing went wrong");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs tests/servers/ministack and tests/servers/control-plane"]
async fn one_that_waits_ends_at_once_and_the_lease_stays() {
    let world = ReplicasWorld::new("waiting").await;
    let (first, mut second) = world.pair().await;
    second.signal(Signal::Terminate);
    ends(&mut second, Duration::from_secs(1)).await;
    tokio::time::sleep(EVERY * 2).await;
    assert_eq!(world.holder().await, "first");
    assert!(first.leads().await);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs tests/servers/ministack and tests/servers/control-plane"]
async fn one_that_is_cut_off_stops_before_another_takes_over() {
    let mut world = ReplicasWorld::new("cut").await;
    let (first, second) = world.pair().await;
    first.api.set(Way::Parted);
    let cut = Instant::now();
    until("the first leads no more", RENEW_WITHIN + LATE, || async { !first.leads().await }).await;
    assert!(!second.leads().await, "both led");
    world.join("a").await;
    world.leads(&second, DURATION + EVERY + LATE).await;
    assert!(cut.elapsed() + EVERY + EVERY >= DURATION, "a lease is taken only once it ended");
    world.registers("the second").await;
    assert_healthy(&first).await;
    first.api.set(Way::Open);
    tokio::time::sleep(EVERY * 3).await;
    assert_eq!((first.leads().await, second.leads().await), (false, true), "the first waits now");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs tests/servers/ministack and tests/servers/control-plane"]
async fn one_that_leads_and_is_cut_off_ends_all_the_same() {
    let world = ReplicasWorld::new("alone").await;
    let mut first = Replica::start("first", &world.account).await;
    until("the first leads", SOON, || async { first.leads().await }).await;
    first.api.set(Way::Parted);
    first.signal(Signal::Terminate);
    // A step that waits for the API server continues until the lease ends; then the lease can't be released.
    ends(&mut first, RENEW_WITHIN + ENDS_WITHIN).await;
    assert!(!first.troubles().is_empty(), "the failed release is logged");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
#[ignore = "needs tests/servers/ministack and tests/servers/control-plane"]
async fn one_that_stands_still_is_unhealthy_and_acts_no_more_when_it_goes_on() {
    let mut world = ReplicasWorld::new("still").await;
    let (first, second) = world.pair().await;
    first.signal(Signal::Stop);
    assert_eq!(first.get("/healthz").await, None, "the kubelet gets no answer");
    world.join("a").await;
    world.leads(&second, DURATION + EVERY + LATE).await;
    world.registers("the second").await;
    let before = first.aws.connections();
    first.signal(Signal::Continue);
    until("the first leads no more", LATE, || async {
        first.metric("tenon_agent_leader").await == Some(0.0)
    })
    .await;
    assert_healthy(&first).await;
    tokio::time::sleep(EVERY * 3).await;
    assert_eq!((first.leads().await, second.leads().await), (false, true));
    assert_eq!(first.aws.connections(), before, "it asked neither table nor queue again");
    assert_eq!(world.holder().await, "second");
    world.end().await;
}
