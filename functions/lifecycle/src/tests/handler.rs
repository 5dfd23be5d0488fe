//! Whole wakes: reads, commits and findings.

use std::sync::Arc;

use tenon_domain::catalog::PartData;
use tenon_domain::catalog::describe::facts;
use tenon_domain::wake::FunctionName;
use tenon_ec2::data::Ec2Data;
use tenon_table::Item;
use tenon_table::Value;
use tenon_table::items::{CatalogMeta, refresh, set_expiring};

use super::*;

/// A timed-out registration in a cluster whose agent never reported; EC2 doesn't have the instance.
fn late() -> FunctionWorld {
    let world = world_with(&[claim(0, launched(0, EPOCH))]);
    world.clock.advance(SignedDuration::from_mins(16));
    world
}

#[test]
fn an_unchanged_world_ends_a_sweep_after_one_read() {
    let (world, lifecycle) = (world_with(&[]), Lifecycle::new());
    sweep(&world, &lifecycle);
    world.clock.advance(SignedDuration::from_secs(59));
    world.table.reset_meter();
    sweep(&world, &lifecycle);
    let total = world.table.meter().total();
    assert_eq!((total.calls, total.write_units), (1, 0));
    assert_eq!(world.ec2.calls().values().map(|count| count.made).sum::<u64>(), 1);
}

#[test]
fn steps_commit_once_and_the_end_is_told() {
    let (world, lifecycle) = (late(), Lifecycle::new());
    sweep(&world, &lifecycle);
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Terminating);
    let rung = world.signals.take();
    let wakes = |rung: &[RungBell], woken: FunctionName| {
        rung.iter().any(|rung| matches!(rung, RungBell::Wake { function, .. } if *function == woken))
    };
    assert!(wakes(&rung, FunctionName::Lifecycle), "{rung:?}");
    // A budget is free, or a replacement failed.
    assert!(wakes(&rung, FunctionName::Disruption), "{rung:?}");
    // Replayed at once: only the record of the pass changes.
    let before = claim_in(&world, 0);
    sweep(&world, &lifecycle);
    assert_eq!(claim_in(&world, 0), before);
    world.clock.advance(SignedDuration::from_mins(3));
    sweep(&world, &lifecycle);
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Terminated);
    let rung = world.signals.take();
    assert!(!wakes(&rung, FunctionName::Disruption), "{rung:?}");
    let ended = |rung: &RungBell| {
        let RungBell::Event(event) = rung else { return false };
        event.detail_type == "NodeClaim Terminated" && event.detail["nodeClaim"] == name(0).as_str()
    };
    assert!(rung.iter().any(ended), "{rung:?}");
    let revision = claim_in(&world, 0).revision;
    sweep(&world, &lifecycle);
    assert_eq!(claim_in(&world, 0).revision, revision);
}

#[test]
fn a_lost_race_keeps_no_other_claim() {
    let world = world_with(&[claim(0, launched(0, EPOCH)), claim(1, launched(1, EPOCH))]);
    world.clock.advance(SignedDuration::from_mins(16));
    let check = block_on(crate::observe::observe_check(&world, &cluster(), tenon_table::Consistency::Strong))
        .unwrap();
    let cache = &mut tenon_snapshot::snapshot::ChunkCache::default();
    let now = world.clock.now();
    let mut seen = block_on(crate::observe::observe(&world, &cluster(), &check, now, cache)).unwrap();
    block_on(crate::observe::observe_ec2(&world, &mut seen)).unwrap();
    let (planned, _) = plan(&seen);
    let changed = Claim { revision: 4, ..claim(0, launched(0, EPOCH)) };
    commit(&world, vec![put(keys::claim(&cluster(), &name(0)), &changed)]);
    let done = block_on(crate::commit::commit(&world, &cluster(), &planned, now)).unwrap();
    assert_eq!((done.lost, done.claims), (1, BTreeSet::from([name(1)])));
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Launched);
}

#[test]
fn an_event_of_somebody_elses_instance_ends_after_one_read() {
    let world = world_with(&[]);
    world.table.reset_meter();
    let cause = WakeCause::InstanceState { instance: id(9), state: "terminated".to_owned() };
    block_on(Lifecycle::new().handle(&world, &WakeScope::Region, &[cause])).unwrap();
    assert_eq!(world.table.meter().total().calls, 1);
    let starting = WakeCause::InstanceState { instance: id(9), state: "running".to_owned() };
    block_on(Lifecycle::new().handle(&world, &WakeScope::Region, &[starting])).unwrap();
    assert_eq!(world.table.meter().total().calls, 1);
}

/// Whoever has the credentials of its agent can write any heartbeat.
#[test]
fn a_cluster_that_cant_be_read_hides_no_instance_of_others() {
    let world = late();
    let broken = "broken".parse().unwrap();
    let heartbeat = Item::from([("seen_at".to_owned(), Value::text("never"))]);
    let owner = InstanceOwner { instance: id(9), cluster: broken, claim: name(9), offering: None };
    commit(
        &world,
        vec![
            Write::Put { key: keys::heartbeat(&owner.cluster), item: heartbeat },
            put(keys::instance(&id(9)), &owner),
        ],
    );
    let ended = |n| WakeCause::InstanceState { instance: id(n), state: "terminated".to_owned() };
    let handled = block_on(Lifecycle::new().handle(&world, &WakeScope::Region, &[ended(0), ended(9)]));
    assert!(handled.is_err());
    assert_ne!(claim_in(&world, 0).phase(), ClaimPhase::Launched);
}

#[test]
fn nothing_is_terminated_while_halt_stands() {
    let (world, lifecycle) = (late(), Lifecycle::new());
    let halt = Halt { since: EPOCH, reason: "restored".to_owned() };
    commit(&world, vec![put(keys::halt(&cluster()), &halt)]);
    sweep(&world, &lifecycle);
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Launched);
}

/// Planners read the packed catalogue, which is there before the items of its types. A stale read must not miss it: a
/// Node's labels are set once.
#[test]
fn a_type_whose_item_isnt_written_yet_is_known_from_the_packed_catalogue() {
    for staleness_max in [SignedDuration::ZERO, SignedDuration::from_secs(1)] {
        let world = world_of(
            &WorldConfig { staleness_max, ..WorldConfig::default() },
            &[claim(0, launched(0, EPOCH))],
        );
        let (data, wanted) = (Ec2Data::get().unwrap(), held(0).instance_type);
        let facts = Arc::new(facts(&data.types[&wanted], &data.limits).unwrap());
        let types = PartData::InstanceTypes(BTreeMap::from([(wanted.clone(), facts)]));
        let region = &world.installation.region;
        let arrived = refresh(region, &CatalogMeta::default(), &types, world.clock.now()).unwrap();
        arrived.commits().for_each(|commit| block_on(world.table.commit(commit)).unwrap());
        let check =
            block_on(crate::observe::observe_check(&world, &cluster(), tenon_table::Consistency::Strong))
                .unwrap();
        let cache = &mut tenon_snapshot::snapshot::ChunkCache::default();
        let seen =
            block_on(crate::observe::observe(&world, &cluster(), &check, world.clock.now(), cache)).unwrap();
        let labels = &seen.types[&wanted].labels;
        assert_eq!(labels[tenon_domain::labels::INSTANCE_MEMORY], "8192", "{labels:?}");
    }
}

/// The agent has to know of its action before the Node joins.
#[test]
fn the_agent_is_rung_for_a_node_that_is_to_be_registered() {
    let world = world_with(&[claim(0, launched(0, EPOCH))]);
    ended::pass(&world, 60);
    ended::report(&world, 1, vec![]);
    sweep(&world, &Lifecycle::new());
    let action = world.table.peek(&keys::action(&cluster(), &name(0))).unwrap();
    assert_eq!(NodeAction::from_item(&action).unwrap().kind, ActionKind::Register);
    assert_eq!(claim_in(&world, 0).phase(), ClaimPhase::Launched);
    assert!(world.signals.take().contains(&RungBell::Agent(cluster())));
}

/// A wake's reads depend on the claims that begin and end, not on the number of nodes.
#[test]
fn launches_and_types_are_read_only_for_claims_that_need_them() {
    let read = |state: ClaimState, expires: bool| {
        let of = claim(0, state);
        let world = world_with(std::slice::from_ref(&of));
        let launch =
            with_launch(input(EPOCH, vec![], vec![]), settled()).launches.into_values().next().unwrap();
        let known = type_record();
        let mut writes = vec![
            put(keys::launch(&cluster(), &launch.id), &launch),
            put(keys::instance_type(&world.installation.region, &known.name), &known),
        ];
        if expires {
            writes.push(set_expiring(keys::claim(&cluster(), &of.name), &of, minutes(60)));
        }
        commit(&world, writes);
        let strong = tenon_table::Consistency::Strong;
        let check = block_on(crate::observe::observe_check(&world, &cluster(), strong)).unwrap();
        let cache = &mut tenon_snapshot::snapshot::ChunkCache::default();
        let seen = block_on(crate::observe::observe(&world, &cluster(), &check, EPOCH, cache)).unwrap();
        (seen.launches.len(), seen.types.len())
    };
    assert_eq!(read(launched(0, EPOCH), false), (0, 1));
    assert_eq!(read(initialized(0, EPOCH), false), (0, 0));
    assert_eq!(read(terminated(0, EPOCH), false), (1, 0));
    // It was deleted, and its launch with it.
    assert_eq!(read(terminated(0, EPOCH), true), (0, 0));
}
