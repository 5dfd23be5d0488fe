//! Pods that come while a node is on its way, and have room there.

use std::collections::BTreeMap;

use tenon_domain::claim::{CommandRole, LaunchedInstance};
use tenon_domain::id::{CommandId, NodeName, Uid};
use tenon_domain::launch::PODS_PER_LAUNCH;
use tenon_harness::{EPOCH, claims};
use tenon_table::items::LaunchedPods;

use super::*;

/// A pod that waits.
fn add(cluster: &mut Cluster, name: &str) {
    cluster.objects.pods.push(Arc::new(SeenPod::read(&pod(name, "500m", None)).unwrap()));
    cluster.report().unwrap();
}

/// A cluster with a node on its way for the pod `first`, and room for another of the pod `late`, which waits since then.
pub(super) fn joining() -> Cluster {
    let mut cluster = cluster(0);
    add(&mut cluster, "first");
    for _ in 0..2 {
        wake(&cluster);
    }
    check_settled(&cluster, 1);
    advance(&cluster, SignedDuration::from_secs(1));
    add(&mut cluster, "late");
    cluster
}

/// The only launch.
fn launch(cluster: &Cluster) -> Launch {
    let [launch] = <[Launch; 1]>::try_from(cluster.launches().unwrap()).unwrap();
    launch
}

fn uids(launch: &Launch) -> Vec<&str> {
    launch.claims.iter().flat_map(|claim| &claim.pods).map(Uid::as_str).collect()
}

/// The journal's items.
fn journal(cluster: &Cluster) -> BTreeMap<tenon_table::Key, tenon_table::Item> {
    cluster.world.table.dump().filter(|(key, _)| key.pk.starts_with("JOURNAL#prod#")).collect()
}

#[test]
fn a_pod_with_room_on_a_node_on_its_way_joins_its_launch_once() {
    let cluster = joining();
    let before = launch(&cluster);
    let heads = keys::steps(&cluster.name);
    let steps = cluster.world.table.peek(&heads);
    wake(&cluster);
    let after = launch(&cluster);
    check_settled(&cluster, 1);
    assert_eq!((uids(&after), after.revision), (vec!["uid-first", "uid-late"], before.revision + 1));
    assert_eq!(cluster.world.table.peek(&heads), steps, "no other function needs to look");
    let told = journal(&cluster);
    let placed: Vec<&str> = told
        .iter()
        .filter(|(key, item)| key.pk.contains("#claim#") && item["decision"].as_text() == Some("Placed"))
        .filter_map(|(_, item)| item["message"].as_text())
        .collect();
    let claim = &after.claims[0].name;
    let expected =
        format!("planned 1 pending pod for spare room on NodeClaim `{claim}`, which is on its way");
    assert_eq!(placed, [expected.as_str()]);
    let names = told.iter().filter(|(key, _)| key.pk == keys::launched_pods_pk(&cluster.name));
    let names = names.flat_map(|(key, item)| from_item::<LaunchedPods>(key, item).unwrap().claims);
    let names: BTreeSet<String> = names.flat_map(|claim| claim.pods).map(|pod| pod.to_string()).collect();
    assert_eq!(names, ["default/first", "default/late"].map(str::to_owned).into());
    // It is counted: the next look plans nothing for it.
    for _ in 0..2 {
        wake(&cluster);
        assert_eq!(launch(&cluster), after);
        assert_eq!(journal(&cluster), told);
    }
}

#[test]
fn a_pod_joins_while_others_get_nodes_of_their_own() {
    let mut cluster = joining();
    cluster.objects.pods.push(Arc::new(SeenPod::read(&pod("large", "1900m", None)).unwrap()));
    cluster.report().unwrap();
    let first = launch(&cluster).id;
    wake(&cluster);
    check_settled(&cluster, 2);
    let launches = cluster.launches().unwrap();
    let (joined, other): (Vec<Launch>, Vec<Launch>) =
        launches.into_iter().partition(|launch| launch.id == first);
    assert_eq!(joined.iter().map(uids).collect::<Vec<_>>(), [["uid-first", "uid-late"]]);
    assert_eq!(other.iter().map(uids).collect::<Vec<_>>(), [["uid-large"]]);
}

/// What a state has of a claim whose Node is there.
fn parts(claim: &Claim) -> (LaunchedInstance, NodeName, Timestamp) {
    let instance = claim.state.instance().unwrap().clone();
    (instance, NodeName::parse(claim.name.as_str()).unwrap(), claim.created_at)
}

#[test]
fn a_pod_joins_a_node_that_is_there_and_takes_no_pods_yet() {
    let check = |state: fn(&Claim) -> ClaimState, expected: &[&str]| {
        let mut cluster = joining();
        let claim = cluster.claims().unwrap().remove(0);
        cluster.objects.nodes = vec![Arc::new(node_of(&claim, "2"))];
        let joined = Claim { state: state(&claim), ..claim };
        cluster.put(set(keys::claim(&cluster.name, &joined.name), &joined)).unwrap();
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(uids(&launch(&cluster)), expected, "{:?}", joined.phase());
    };
    check(|claim| claim.state.clone(), &["uid-first", "uid-late"]);
    check(
        |claim| {
            let (instance, node, at) = parts(claim);
            ClaimState::Registered { instance, node, at }
        },
        &["uid-first", "uid-late"],
    );
    // kube-scheduler may bind it at once.
    check(
        |claim| {
            let (instance, node, at) = parts(claim);
            ClaimState::Initialized { instance, node, at }
        },
        &["uid-first"],
    );
}

/// A node, and the pod `moving` of it, for which the node on its way was planned as well.
fn add_candidate(cluster: &mut Cluster, state: fn(LaunchedInstance, NodeName) -> ClaimState) {
    let mut replacement = cluster.claims().unwrap().remove(0);
    replacement.role = CommandRole::Replacement(CommandId::parse("command-1").unwrap());
    cluster.put(set(keys::claim(&cluster.name, &replacement.name), &replacement)).unwrap();
    let launch_id = launch(cluster).id;
    let candidate = claims::claim(7, state(claims::instance(7), claims::node_name(7)));
    let candidate = Claim { launch: launch_id, ..candidate };
    cluster.put(set(keys::claim(&cluster.name, &candidate.name), &candidate)).unwrap();
    cluster.objects.nodes.push(Arc::new(node_of(&candidate, "1200m")));
    let moving = SeenPod::read(&pod("moving", "1200m", Some(candidate.name.as_str()))).unwrap();
    let mut launch = launch(cluster);
    launch.claims[0].pods.extend(moving.counted_as());
    cluster.objects.pods.push(Arc::new(moving));
    cluster.put(set(keys::launch(&cluster.name, &launch.id), &launch)).unwrap();
    cluster.report().unwrap();
}

#[test]
fn a_replacement_keeps_its_room_for_the_pods_of_the_node_that_it_replaces() {
    let check = |state: fn(LaunchedInstance, NodeName) -> ClaimState, expected: (usize, usize)| {
        let mut cluster = joining();
        add_candidate(&mut cluster, state);
        wake(&cluster);
        let launches_now = cluster.launches().unwrap();
        let with_late = launches_now.iter().find(|one| uids(one).contains(&"uid-late")).unwrap();
        assert_eq!((launches_now.len(), uids(with_late).len()), expected);
    };
    check(
        |instance, node| {
            let command = CommandId::parse("command-1").unwrap();
            ClaimState::Disrupting { instance, node, command, at: EPOCH }
        },
        (2, 1),
    );
    // Its command was undone.
    check(|instance, node| ClaimState::Initialized { instance, node, at: EPOCH }, (1, 3));
}

#[test]
fn a_full_launch_is_not_written_again() {
    let cluster = joining();
    let mut full = launch(&cluster);
    full.claims[0].pods = (0..PODS_PER_LAUNCH).map(|n| Uid::parse(n.to_string()).unwrap()).collect();
    cluster.put(set(keys::launch(&cluster.name, &full.id), &full)).unwrap();
    wake(&cluster);
    assert_eq!(launch(&cluster), full);
    assert_eq!(cluster.claims().unwrap().len(), 1);
}
