//! Deletions: the Nodes accept no more pods at once, with or without AWS, and the draining function is rung.

use super::*;
use crate::deleted::Tainted;
use crate::pace::{StepWork, run_step};
use tenon_table::{CommitError, Item, Key, Query, QueryPage, TableError};

/// A table that nothing reaches.
#[derive(Debug, Clone, Copy)]
struct Away;

fn away<T>() -> Result<T, TableError> {
    Err(TableError::Throttled { pk: String::new() })
}

impl Table for Away {
    async fn get(&self, _: &Key, _: Consistency) -> Result<Option<Item>, TableError> {
        away()
    }

    async fn batch_get(&self, _: &[Key], _: Consistency) -> Result<BTreeMap<Key, Item>, TableError> {
        away()
    }

    async fn query(&self, _: &Query) -> Result<QueryPage, TableError> {
        away()
    }

    async fn commit(&self, _: &Commit) -> Result<(), CommitError> {
        Ok(())
    }
}

fn pool(finalizers: &Value) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "finalizers": finalizers}, "spec": {}})
}

/// A NodeClaim of ours, of the pool `default`.
fn claim(name: &str, finalizers: &Value) -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name,
        "finalizers": finalizers, "labels": {"karpenter.sh/nodepool": "default"},
        "annotations": {"tenon.dev/launch": "launch-1"}}, "status": {"providerID": provider_id(name)}})
}

/// The same, which goes with its pool.
fn owned_claim(name: &str, pool: &str) -> Value {
    let mut claim = claim(name, &json!(["karpenter.sh/termination"]));
    claim["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": pool}]);
    claim
}

/// Nodes `a` and `b` with pods, registered and owned by their NodeClaims, of the pool `default`, which owns those.
fn world() -> AgentFixture {
    let mut world = AgentFixture::with_pods(2, Value::Null, json!({}));
    world.kube.apply(pool(&json!([]))).unwrap();
    let uid = object::uid(&world.kube.object(Kind::NodePool, "", "default").unwrap()).to_owned();
    for name in ["a", "b"] {
        world.kube.apply(owned_claim(name, &uid)).unwrap();
        world.act(name, ActionKind::Initialize, None);
    }
    world.run(5);
    assert_eq!(tainted(&world), Vec::<&str>::new());
    world
}

fn tainted(world: &AgentFixture) -> Vec<&'static str> {
    let tainted = |node: &Value| object::taints(node).contains(&Taint::disrupted());
    ["a", "b"].into_iter().filter(|name| tainted(&world.node(name).unwrap())).collect()
}

/// Executes the part of a step that needs only the cluster.
fn step_without_aws(world: &AgentFixture) {
    let mut agent = Agent::new(name(), world.kube.clone(), Away, world.rings.clone());
    let ended = block_on(run_step(&mut agent, StepWork::Converge, || at(world.now)));
    assert_eq!((ended.tainted, ended.errors.len()), (Some(Tainted::All), 1));
}

#[test]
fn a_deleted_nodeclaim_taints_its_node_while_aws_is_away() {
    let world = world();
    world.kube.delete(Kind::NodeClaim, "", "a");
    step_without_aws(&world);
    assert_eq!(tainted(&world), ["a"]);
    assert_eq!(world.pods("a"), 2, "evictions are for functions to decide");
    // Nothing is written twice.
    let version = |world: &AgentFixture| {
        text(&world.node("a").unwrap(), "/metadata/resourceVersion").unwrap().to_owned()
    };
    let before = version(&world);
    step_without_aws(&world);
    assert_eq!(version(&world), before);
}

#[test]
fn a_deleted_node_is_tainted() {
    let world = world();
    world.kube.delete(Kind::Node, "", "b");
    step_without_aws(&world);
    assert_eq!(tainted(&world), ["b"]);
}

#[test]
fn a_nodepool_that_is_gone_or_going_taints_its_nodes() {
    let gone = world();
    gone.kube.delete(Kind::NodePool, "", "default");
    step_without_aws(&gone);
    assert_eq!(tainted(&gone), ["a", "b"]);
    // Deleted in the foreground, it waits for its NodeClaims.
    let going = world();
    going.kube.apply(pool(&json!(["foregroundDeletion"]))).unwrap();
    going.kube.delete(Kind::NodePool, "", "default");
    assert!(going.kube.object(Kind::NodePool, "", "default").is_some());
    step_without_aws(&going);
    assert_eq!(tainted(&going), ["a", "b"]);
}

#[test]
fn a_nodepool_that_leaves_its_nodeclaims_behind_or_isnt_there_yet_taints_no_node() {
    let world = world();
    for name in ["a", "b"] {
        let mut orphan = Value::clone(&*world.kube.object(Kind::NodeClaim, "", name).unwrap());
        orphan["metadata"]["ownerReferences"] = json!([]);
        world.kube.apply(orphan).unwrap();
    }
    world.kube.delete(Kind::NodePool, "", "default");
    step_without_aws(&world);
    assert_eq!(tainted(&world), Vec::<&str>::new());
}

#[test]
fn an_older_action_keeps_the_taint_and_a_pool_that_is_back_takes_it_away() {
    let mut world = world();
    // Kubernetes hasn't deleted the NodeClaims yet.
    world.kube.delete(Kind::NodePool, "", "default");
    for name in ["a", "b"] {
        world.kube.apply(owned_claim(name, "gone")).unwrap();
    }
    for kind in [ActionKind::Register, ActionKind::Initialize] {
        world.act("a", kind, None);
        world.run(3);
        assert_eq!(tainted(&world), ["a", "b"], "{kind}");
    }
    world.kube.apply(pool(&json!([]))).unwrap();
    world.run(2);
    assert_eq!(tainted(&world), Vec::<&str>::new());
}

#[test]
fn a_claim_that_isnt_ours_takes_no_node_with_it() {
    let world = world();
    let mut foreign = claim("b", &json!(["other"]));
    foreign["metadata"]["name"] = json!("foreign");
    foreign["metadata"]["annotations"] = json!({});
    world.kube.apply(foreign).unwrap();
    world.kube.delete(Kind::NodeClaim, "", "foreign");
    step_without_aws(&world);
    assert_eq!(tainted(&world), Vec::<&str>::new());
}

#[test]
fn a_nodeclaim_without_our_finalizer_takes_its_node_with_it_all_the_same() {
    let mut world = world();
    // A user removed the finalizer, so the NodeClaim disappears at once; another one of its name is created before
    // Kubernetes' garbage collector runs.
    let uid = object::uid(&world.kube.object(Kind::NodeClaim, "", "a").unwrap()).to_owned();
    let mut node = Value::clone(&*world.node("a").unwrap());
    node["metadata"]["ownerReferences"][0]["uid"] = json!(format!("{uid}-gone"));
    world.kube.apply(node).unwrap();
    step_without_aws(&world);
    assert_eq!(tainted(&world), ["a"]);
    world.run(3);
    let owners = object::list(&world.node("a").unwrap(), "/metadata/ownerReferences").to_vec();
    assert_eq!(owners.len(), 1);
    assert_eq!(text(&owners[0], "/uid"), Some(format!("{uid}-gone").as_str()), "it isn't adopted again");
    assert_eq!(tainted(&world), ["a"]);
}

#[test]
fn a_node_that_registers_after_its_claim_was_deleted_takes_no_pods() {
    let mut world = AgentFixture::new();
    world.kube.apply(pool(&json!([]))).unwrap();
    world.kube.apply(claim("a", &json!(["somebody"]))).unwrap();
    world.kube.delete(Kind::NodeClaim, "", "a");
    world.boot("a");
    world.act("a", ActionKind::Register, None);
    world.run(20);
    let node = world.node("a").unwrap();
    assert_eq!(text(&node, "/metadata/labels/karpenter.sh~1registered"), Some("true"));
    assert!(object::taints(&node).contains(&Taint::disrupted()));
}

#[test]
fn functions_are_rung_at_once_for_a_node_that_becomes_empty() {
    let mut world = world();
    let rings = |world: &AgentFixture| world.rings.0.lock().unwrap().clone();
    world.run(60);
    let before = rings(&world).len();
    world.kube.delete(Kind::Deployment, "default", "web");
    world.run(2);
    let after = rings(&world);
    assert_eq!((after.len(), after.last().unwrap().freed), (before + 1, 1));
    world.run(60);
    assert_eq!(rings(&world).len(), before + 1, "once");
}

#[test]
fn functions_are_rung_once_a_minute_while_pods_leave_nodes() {
    let mut world = world();
    let freed = |world: &AgentFixture| {
        let rings = world.rings.0.lock().unwrap().clone();
        rings.iter().filter(|ring| ring.freed > 0).count()
    };
    world.kube.scale("web", |_| 9).unwrap();
    world.run(60);
    let before = freed(&world);
    for replicas in (3..9).rev() {
        world.kube.scale("web", |_| replicas).unwrap();
        world.run(10);
    }
    assert_eq!(freed(&world), before + 1);
    world.run(60);
    assert_eq!(freed(&world), before + 2, "what came since is told in the end");
}

#[test]
fn functions_are_rung_for_the_room_of_a_pod_once_it_is_gone() {
    let mut world = world();
    let freed = |world: &AgentFixture| {
        let rings = world.rings.0.lock().unwrap().clone();
        rings.iter().filter(|ring| ring.freed > 0).count()
    };
    world.kube.scale("web", |_| 9).unwrap();
    world.run(70);
    let before = freed(&world);
    world.kube.scale("web", |_| 8).unwrap();
    world.run(1);
    assert_eq!(freed(&world), before, "it still fills its room");
    world.run(5);
    assert_eq!(freed(&world), before + 1);
    world.run(70);
    assert_eq!(freed(&world), before + 1, "once");
}

#[test]
fn functions_are_rung_for_what_was_deleted_until_its_drain_begins() {
    let mut world = world();
    let last = |world: &AgentFixture| world.rings.0.lock().unwrap().last().unwrap().clone();
    assert_eq!(last(&world).deletions, 0);
    world.kube.delete(Kind::NodeClaim, "", "a");
    world.run(2);
    assert_eq!(last(&world).deletions, 1);
    world.act("a", ActionKind::Drain, None);
    world.run(2);
    assert_eq!(last(&world).deletions, 0);
    world.kube.delete(Kind::NodePool, "", "default");
    world.run(1);
    assert_eq!(last(&world).deletions, 1, "the other claim of the pool");
}
