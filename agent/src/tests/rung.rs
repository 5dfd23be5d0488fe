//! When the agent writes a snapshot, and for what it rings.

use tenon_snapshot::snapshot::ChunkKind;

use super::*;
use crate::Reported;

#[test]
fn a_quiet_cluster_costs_a_heartbeat_and_no_ring() {
    let mut world = AgentFixture::with_pods(2, Value::Null, json!({}));
    let (rings, before) = (world.rings.0.lock().unwrap().len(), world.snapshot());
    world.run(45);
    let after = world.snapshot();
    assert_eq!(world.rings.0.lock().unwrap().len(), rings);
    assert_eq!(after.generation, before.generation);
    assert!(at(world.now).duration_since(after.seen_at) <= SignedDuration::from_secs(40));
}

#[test]
fn a_ring_names_what_changed_and_how_many_pods_wait() {
    let mut world = AgentFixture::new();
    world.run(1);
    world
        .kube
        .apply(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}}),
        )
        .unwrap();
    world.kube.tick(at(2));
    let Reported::Changed(ring) = block_on(world.agent.report(at(2), Burst::Over)).unwrap() else {
        panic!("a pod came")
    };
    assert_eq!((ring.pending_pods, ring.generation), (1, 2));
    assert_eq!(ring.changed.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(), ["pods", "shapes"]);
    assert_eq!(block_on(world.agent.report(at(2), Burst::Over)).unwrap(), Reported::Unchanged);
}

#[test]
fn a_ring_that_isnt_heard_is_rung_again() {
    let mut world = AgentFixture::new();
    world.run(1);
    *world.rings.1.lock().unwrap() = 2;
    let heard = world.rings.0.lock().unwrap().len();
    world.boot("a");
    world.run(12);
    assert!(world.rings.0.lock().unwrap().len() > heard);
    assert!(world.rings.0.lock().unwrap().iter().any(|ring| ring.changed.contains(&ChunkKind::Nodes)));
}

#[test]
fn pods_of_a_burst_are_rung_for_when_it_is_over() {
    let mut world = AgentFixture::new();
    world.run(1);
    let rung = |world: &AgentFixture| world.rings.0.lock().unwrap().clone();
    let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": []}});
    let before = rung(&world).len();
    world.kube.apply(pod("a")).unwrap();
    world.kube.tick(at(2));
    // Only pods: nothing is written yet.
    let reported = block_on(world.agent.report(at(2), Burst::GoesOn)).unwrap();
    assert!(matches!(reported, Reported::Later(_)), "{reported:?}");
    // A Node can't wait; the pods are written with it, but no plan is made for them.
    world.boot("a");
    for second in 2..8 {
        world.kube.tick(at(second));
    }
    let reported = block_on(world.agent.report(at(8), Burst::GoesOn)).unwrap();
    assert!(matches!(&reported, Reported::Changed(ring) if ring.pending_pods == 1), "{reported:?}");
    let rings = rung(&world).split_off(before);
    assert!(!rings.is_empty() && rings.iter().all(|ring| ring.pending_pods == 0), "{rings:?}");
    assert!(rings.iter().all(|ring| !ring.changed.contains(&ChunkKind::Pods)), "{rings:?}");
    // The burst is over: it rings once for the pods, though nothing is new.
    block_on(world.agent.report(at(9), Burst::Over)).unwrap();
    block_on(world.agent.report(at(10), Burst::Over)).unwrap();
    let pods: Vec<_> = rung(&world).into_iter().filter(|ring| ring.pending_pods > 0).collect();
    assert_eq!(pods.len(), 1, "{pods:?}");
    assert!(pods.iter().all(|ring| ring.changed.contains(&ChunkKind::Pods)));
}

#[test]
fn bound_pods_that_go_are_told_with_the_next_heartbeat() {
    let mut world = AgentFixture::with_pods(2, Value::Null, json!({}));
    world.run(60);
    let (rings, before) = (world.rings.0.lock().unwrap().len(), world.snapshot());
    let web = world.kube.object(Kind::Deployment, "default", "web").unwrap();
    let mut fewer = (*web).clone();
    fewer["spec"]["replicas"] = json!(1);
    world.kube.apply(fewer).unwrap();
    world.now += 1;
    world.kube.tick(at(world.now));
    let reported = block_on(world.agent.report(at(world.now), Burst::Over)).unwrap();
    let Reported::Later(due) = reported else { panic!("{reported:?}") };
    assert_eq!(world.snapshot().generation, before.generation);
    while at(world.now) < due {
        world.run(1);
    }
    let after = world.snapshot();
    assert!(after.generation > before.generation && after.pods != before.pods);
    assert!(after.seen_at.duration_since(before.seen_at) <= SignedDuration::from_secs(40));
    assert_eq!(world.rings.0.lock().unwrap().len(), rings, "nobody listens for that");
}

#[test]
fn a_clock_that_is_set_back_corrects_the_reports_time_at_once() {
    let mut world = AgentFixture::with_pods(2, Value::Null, json!({}));
    let pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}});
    world.kube.apply(pod).unwrap();
    let ahead = at(world.now + 3600);
    block_on(world.agent.report(ahead, Burst::Over)).unwrap();
    assert_eq!(world.snapshot().seen_at, ahead);
    world.run(1);
    assert_eq!(world.snapshot().seen_at, at(world.now));
    // Nor do heartbeats wait for the time that the agent remembers.
    let ahead = at(world.now + 3600);
    block_on(world.agent.report(ahead, Burst::Over)).unwrap();
    world.run(1);
    assert_eq!(world.snapshot().seen_at, at(world.now));
}

#[test]
fn a_restored_table_is_noticed_and_generations_never_go_back() {
    let mut world = AgentFixture::with_pods(2, Value::Null, json!({}));
    let generation = world.snapshot().generation;
    let manifest = |world: &AgentFixture| {
        block_on(snapshot::read_manifest(&world.table, &name(), Consistency::Strong)).unwrap()
    };
    let mut old = manifest(&world).unwrap();
    assert_eq!(old.restored_at, None);
    old.generation = 2;
    old.revision = 2;
    world.commit(Write::Put { key: snapshot::manifest_key(&name()), item: old.to_item().unwrap() });
    world.restart();
    world.run(1);
    let new = manifest(&world).unwrap();
    assert!(new.generation > generation, "{} {generation}", new.generation);
    assert_eq!(new.restored_at, Some(at(world.now)));
    world.run(100);
    assert_eq!(manifest(&world).unwrap().generation, new.generation, "told once");
}
