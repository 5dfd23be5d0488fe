//! The default constraints of a cluster's kube-scheduler: which pods get them, and which pods they count.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::*;
use crate::topology::{all_placed, by_zone};
use tenon_domain::api::Pod;
use tenon_domain::api::meta::{OwnerReference, OwnerRole};
use tenon_domain::api::pod::PodShape;
use tenon_domain::api::workload::Service;
use tenon_domain::default_spread::DefaultConstraint;
use tenon_domain::labels;
use tenon_domain::registry::PreferencePolicy;
use tenon_planning::provision::{DefaultSpread, NodeKind, ProvisionInput};

const BY_ZONE: &str = "topology.kubernetes.io/zone=1:DoNotSchedule";

fn constraint(text: &str) -> DefaultConstraint {
    DefaultConstraint::parse(text).unwrap()
}

fn of(kind: &str, name: &str, shape: PodShape) -> PodShape {
    let (kind, name) = (kind.to_owned(), name.to_owned());
    let owner = OwnerReference { kind, name, uid: String::new(), role: OwnerRole::Controller };
    PodShape { owner: Some(owner), ..shape }
}

fn service(name: &str, namespace: &str, selector: Option<&[(&str, &str)]>) -> Service {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    Service { meta: meta(name, namespace), selector: selector.map(labels) }
}

/// A world with the constraint by zone.
fn world(pods: Vec<Pod>, services: Vec<Service>) -> ProvisionInput {
    let mut world = input(pods, vec![default_pool()]);
    world.default_spread = DefaultSpread { constraints: vec![constraint(BY_ZONE)], services };
    world
}

fn zones(pods: Vec<Pod>, services: Vec<Service>) -> Vec<usize> {
    by_zone(&all_placed(&world(pods, services)))
}

/// Six small pods: without a rule they share few nodes, in one zone.
fn six_of(shape: PodShape) -> Vec<Pod> {
    pods("web", 6, shape)
}

#[test]
fn c100_pods_of_a_workload_are_spread_and_others_are_left_alone() {
    let tiny = || app("web", "10m");
    for kind in ["ReplicaSet", "ReplicationController", "StatefulSet"] {
        assert_eq!(zones(six_of(of(kind, "web", tiny())), Vec::new()), [2, 2, 2], "{kind}");
    }
    let alone = |shape| claims(&world(six_of(shape), Vec::new()), 2);
    // No selector can be deduced for these.
    alone(tiny());
    alone(of("Job", "web", tiny()));
    // A constraint of its own, whatever it says, takes the place of all defaults.
    let own = spread(labels::HOSTNAME, "other", 1);
    alone(PodShape { topology_spread: vec![own], ..of("ReplicaSet", "web", tiny()) });
    // Kubernetes' own defaults only score nodes.
    let mut unlisted = world(six_of(of("ReplicaSet", "web", tiny())), Vec::new());
    unlisted.default_spread.constraints.clear();
    claims(&unlisted, 2);
}

#[test]
fn c100_each_workload_and_each_revision_is_spread_for_itself() {
    let of_set = |name: &str| of("ReplicaSet", name, app("web", "10m"));
    let crowded = |zone: &str| {
        let mut node = node(zone, NodeKind::Initialized, &[("cpu", "1"), ("pods", "20")]);
        node.labels.insert(labels::ZONE.to_owned(), zone.to_owned());
        (0..5).for_each(|_| node.occupancy.add(&Arc::new(of_set("web-2"))));
        node
    };
    let placed = |set: &str| {
        let mut one = world(pods("web", 3, of_set(set)), Vec::new());
        one.nodes = vec![crowded(ZONES[1]), crowded(ZONES[2])];
        let plan = all_placed(&one);
        let on_claims: usize = plan.claims.iter().map(|claim| claim.pods.len()).sum();
        (plan.placements.len(), on_claims)
    };
    // Pods of another revision that run in two zones don't count, those of the same do.
    assert_eq!(placed("web-1"), (2, 1), "one in each zone");
    assert_eq!(placed("web-2"), (0, 3), "all in the zone that has none");
}

#[test]
fn c100_the_selectors_of_services_are_merged_with_the_owner() {
    let labelled = |tier: &str| {
        let mut shape = app("web", "10m");
        shape.labels.insert("tier".to_owned(), tier.to_owned());
        shape
    };
    let all = || service("all", "default", Some(&[("app", "web")]));
    let front = || service("front", "default", Some(&[("tier", "front")]));
    // Without an owner a Service alone spreads its pods.
    assert_eq!(zones(six_of(labelled("front")), vec![all()]), [2, 2, 2]);
    let alone = |services| drop(claims(&world(six_of(labelled("front")), services), 2));
    alone(vec![service("other", "default", Some(&[("app", "db")]))]);
    alone(vec![service("elsewhere", "shop", Some(&[("app", "web")]))]);
    // One without a selector selects nothing; an empty selector says nothing.
    alone(vec![service("external", "default", None), service("empty", "default", Some(&[]))]);
    // The pods of two Services are spread with those that both select: three of each tier, one a zone.
    let mut both = pods("front", 3, labelled("front"));
    both.extend(pods("back", 3, labelled("back")));
    assert_eq!(zones(both, vec![all(), front()]), [2, 2, 2]);
    // The owner's pods among a Service's.
    let mut owned = pods("one", 3, of("ReplicaSet", "one", labelled("front")));
    owned.extend(pods("two", 3, of("ReplicaSet", "two", labelled("front"))));
    assert_eq!(zones(owned, vec![all()]), [2, 2, 2]);
}

#[test]
fn a_default_that_may_be_broken_is_a_preference() {
    let shape = || of("ReplicaSet", "web", app("web", "10m"));
    let mut soft = world(six_of(shape()), Vec::new());
    soft.default_spread.constraints = vec![constraint("topology.kubernetes.io/zone=1:ScheduleAnyway")];
    assert_eq!(by_zone(&all_placed(&soft)), [2, 2, 2]);
    soft.policies.preferences = PreferencePolicy::Ignore;
    claims(&soft, 2);
    // It is given up where it can't be kept, and a required one isn't.
    soft.policies.preferences = PreferencePolicy::Respect;
    soft.default_spread.constraints = vec![constraint("example.com/none=1:ScheduleAnyway")];
    all_placed(&soft);
    soft.default_spread.constraints = vec![constraint("example.com/none=1:DoNotSchedule")];
    check_reason(&soft, "NoDomain");
}
