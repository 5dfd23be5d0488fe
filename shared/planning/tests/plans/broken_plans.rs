//! The checkers of plans see broken plans: a checker that finds nothing checks nothing.

use std::sync::Arc;

use crate::checker::{faults, lasting_faults};
use crate::claims_checker::claim_faults;
use crate::support::*;
use tenon_domain::api::pod::{NodeInclusionPolicy, PodVolume, TopologySpreadConstraint};
use tenon_domain::api::storage::ClaimUsers;
use tenon_domain::id::Zone;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_planning::provision::{NodeKind, PlannedClaim, ProvisionInput, ProvisionPlan, plan};
use tenon_replay::wide::wide_world;

/// Of so many worlds.
const WORLDS: u64 = 150;

/// Breaks each plan of the worlds in one place, and counts those in which the checker sees it. A break returns whether
/// there was something to break.
fn check(
    faults: impl Fn(&ProvisionInput, &ProvisionPlan) -> Vec<String>,
    breaks: impl Fn(&mut ProvisionInput, &mut ProvisionPlan) -> bool,
    expected: &str,
) {
    let (mut broken, mut seen) = (0, 0);
    for number in 0..WORLDS {
        let mut world = wide_world(number);
        let (mut made, _) = plan(&world);
        if breaks(&mut world, &mut made) {
            broken += 1;
            seen += usize::from(faults(&world, &made).iter().any(|fault| fault.contains(expected)));
        }
    }
    assert!(seen > 0, "{expected}: seen in none of {broken} broken plans");
}

fn first(made: &mut ProvisionPlan, of: impl Fn(&PlannedClaim) -> bool) -> Option<&mut PlannedClaim> {
    made.claims.iter_mut().find(|claim| of(claim))
}

#[test]
fn plans_of_wide_worlds_keep_what_every_claim_must() {
    for number in 0..WORLDS {
        let world = wide_world(number);
        let (made, _) = plan(&world);
        assert_eq!(claim_faults(&world, &made), Vec::<String>::new(), "world {number}");
    }
}

#[test]
fn a_claim_of_a_type_that_is_too_small_is_seen() {
    let small = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let Some(claim) = first(made, |_| true) else { return false };
        let pool = world.pools.iter().find(|pool| pool.pool.name == claim.pool).unwrap();
        let all: Vec<_> = pool.types.iter().map(|one| one.facts.name.clone()).collect();
        claim.instance_types = all.into();
        true
    };
    check(claim_faults, small, "doesn't hold its pods");
}

#[test]
fn plans_of_wide_worlds_leave_room_for_daemon_sets_of_a_zone_and_of_a_way_to_pay() {
    for number in 0..WORLDS {
        let mut world = wide_world(number);
        let on = |name: &str, cpu: &str, key: &str, value: &str| {
            daemon_set(name, selecting(shape(&[("cpu", cpu)]), key, value))
        };
        world.daemon_sets.push(on("zonal", "700m", labels::ZONE, ZONES[0]));
        world.daemon_sets.push(on("handler", "300m", labels::CAPACITY_TYPE, "spot"));
        let (made, _) = plan(&world);
        assert_eq!(claim_faults(&world, &made), Vec::<String>::new(), "world {number}");
    }
}

#[test]
fn a_zone_whose_daemon_sets_leave_no_room_is_seen() {
    let zonal = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let Some(zone) = first(made, |_| true).and_then(|claim| claim.zones.first()) else { return false };
        let set = selecting(shape(&[("cpu", "1000")]), labels::ZONE, zone.as_str());
        world.daemon_sets.push(daemon_set("zonal", set));
        true
    };
    check(claim_faults, zonal, "no room beside DaemonSets");
}

#[test]
fn a_node_that_attaches_fewer_volumes_is_seen() {
    let fewer = |world: &mut ProvisionInput, _: &mut ProvisionPlan| {
        for option in world.pools.iter_mut().flat_map(|pool| Arc::make_mut(&mut pool.types)) {
            option.ebs_volumes = Some(0);
        }
        true
    };
    check(claim_faults, fewer, "attaches fewer volumes");
    let none = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let nodes = world.storage.nodes.iter_mut();
        nodes.flat_map(|node| node.drivers.values_mut()).for_each(|most| *most = Some(0));
        !made.placements.is_empty()
    };
    check(claim_faults, none, "a node attaches fewer volumes");
}

#[test]
fn pods_that_share_a_claim_for_one_pod_are_seen() {
    let shared = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let Some(claim) = world.storage.claims.first_mut() else { return false };
        claim.users = ClaimUsers::OnePod;
        for pod in &mut world.pods {
            let shape = Arc::make_mut(&mut pod.shape);
            shape.namespace.clone_from(&claim.meta.namespace);
            shape.volumes = vec![PodVolume::Claim(claim.meta.name.clone())];
        }
        made.claims.len() > 1
    };
    check(claim_faults, shared, "a claim for one pod has several");
}

#[test]
fn pods_of_a_volume_in_several_zones_are_seen() {
    let apart = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let mut unbound = world.storage.claims.iter().filter(|claim| claim.volume.is_none());
        let Some(claim) = unbound.next() else { return false };
        for pod in &mut world.pods {
            let shape = Arc::make_mut(&mut pod.shape);
            shape.namespace.clone_from(&claim.meta.namespace);
            shape.volumes = vec![PodVolume::Claim(claim.meta.name.clone())];
        }
        made.claims.len() > 1
    };
    check(claim_faults, apart, "pods of one volume may be in several zones");
}

#[test]
fn a_taint_that_no_pod_tolerates_is_seen() {
    let tainted = |_: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let Some(claim) = first(made, |_| true) else { return false };
        claim.taints.push(Taint {
            key: "new".to_owned(),
            value: String::new(),
            effect: TaintEffect::NoSchedule,
        });
        true
    };
    check(claim_faults, tainted, "doesn't tolerate its taints");
}

#[test]
fn a_pod_on_two_claims_and_one_that_moved_are_seen() {
    let twice = |_: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let [a, .., b] = made.claims.as_mut_slice() else { return false };
        b.pods.push(a.pods[0].clone());
        true
    };
    check(claim_faults, twice, "on another claim, too");
    let moved = |_: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let [a, .., b] = made.claims.as_mut_slice() else { return false };
        let pods = std::mem::take(&mut a.pods);
        b.pods.extend(pods);
        true
    };
    check(claim_faults, moved, "doesn't hold its pods");
    check(claim_faults, moved, "isn't certain for a node selector");
    check(claim_faults, moved, "is taken twice");
    check(lasting_faults, moved, "a pod beside one that it is apart from");
}

#[test]
fn a_claim_that_is_pinned_to_no_zone_is_seen() {
    let unpinned = |_: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let zones: Vec<Zone> = ZONES.iter().map(|zone| zone.parse().unwrap()).collect();
        let mut any = false;
        for claim in made.claims.iter_mut().filter(|claim| claim.zones.len() == 1) {
            claim.zones.extend(zones.iter().cloned());
            any = true;
        }
        any
    };
    check(claim_faults, unpinned, &format!("{} isn't certain for a node selector", labels::ZONE));
    check(lasting_faults, unpinned, "isn't certain for a spread");
    check(lasting_faults, unpinned, "isn't certain for an affinity");
}

#[test]
fn limits_that_are_exceeded_are_seen() {
    let limited = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        let Some(claim) = first(made, |_| true) else { return false };
        let pool = world.pools.iter_mut().find(|pool| pool.pool.name == claim.pool).unwrap();
        pool.pool.limits = list(&[("cpu", "1"), ("nodes", "1000")]);
        true
    };
    check(claim_faults, limited, "more cpu than its limit");
    let allowed = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        world.pools.iter_mut().for_each(|pool| pool.nodes_left = Some(0));
        !made.claims.is_empty()
    };
    check(claim_faults, allowed, "more nodes than the registry allows");
    let sized = |world: &mut ProvisionInput, made: &mut ProvisionPlan| {
        world.pools.iter_mut().for_each(|pool| pool.vcpus_left = Some(0));
        !made.claims.is_empty()
    };
    check(claim_faults, sized, "more vCPUs than the registry allows");
}

/// Pods that are spread over zones, beside a node of a third zone with a taint that they don't tolerate.
fn beside_a_tainted_zone(policy: NodeInclusionPolicy) -> ProvisionInput {
    let mut plain = default_pool();
    let two_zones = Requirement::one_of(labels::ZONE, [ZONES[0], ZONES[1]]);
    plain.pool.template.requirements.add(two_zones);
    let mut web = app("web", "1");
    let rule = TopologySpreadConstraint { node_taints_policy: policy, ..spread(labels::ZONE, "web", 1) };
    web.topology_spread = vec![rule];
    let mut world = input(pods("web", 6, web), vec![plain]);
    let mut tainted = node("far", NodeKind::Initialized, &[("cpu", "8"), ("memory", "16Gi"), ("pods", "20")]);
    tainted.labels.insert(labels::ZONE.to_owned(), ZONES[2].to_owned());
    tainted.taints = vec![Taint::new("dedicated", TaintEffect::NoSchedule)];
    world.nodes = vec![tainted];
    world
}

#[test]
fn a_zone_of_tainted_nodes_that_a_spread_counts_is_seen() {
    let honouring = beside_a_tainted_zone(NodeInclusionPolicy::Honor);
    let (made, report) = plan(&honouring);
    assert!(report.unschedulable.is_empty());
    assert_eq!(faults(&honouring, &made), Vec::<String>::new());
    let seen = faults(&beside_a_tainted_zone(NodeInclusionPolicy::Ignore), &made);
    assert!(seen.iter().any(|fault| fault.contains("no order of arrival")), "{seen:?}");
}
