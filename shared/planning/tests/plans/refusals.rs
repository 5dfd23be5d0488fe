//! Refused pods, and the reasons.

use crate::support::*;
use tenon_domain::api::meta::ObjectMeta;
use tenon_domain::api::pod::{PodShape, PodVolume};
use tenon_domain::api::storage::{
    ClaimUsers, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeBinding,
};
use tenon_domain::budget::DisruptionReason;
use tenon_domain::catalog::{Availability, Unavailability};
use tenon_domain::evidence::{CatalogPart, Waiting};
use tenon_domain::id::{ClaimName, CommandId, NamespacedName, NodeClassName, NodePoolName};
use tenon_domain::labels;
use tenon_domain::report::{Finding, Report};
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::disruption::{DisruptionRefusal, DisruptionReport, InvalidAnnotation, RefusalReason};
use tenon_planning::provision::{PoolInput, PoolReadiness, Purpose, Storage, plan};

#[test]
fn refusals_say_why() {
    let one = |shape: PodShape| pods("web", 1, shape);
    let plain = || shape(&[("cpu", "1")]);
    check_reason(&input(one(plain()), Vec::new()), "NoNodePool");
    let mut leaving = input(one(plain()), Vec::new());
    leaving.leaving_pools = [NodePoolName::parse("old").unwrap()].into();
    let report = check_reason(&leaving, "NoNodePool");
    assert_eq!(
        report.unschedulable[0].message(),
        "NodePool `old` is being deleted, and there is no other: create one"
    );
    let mut fixed = input(one(plain()), Vec::new());
    fixed.static_pools = [NodePoolName::parse("steady").unwrap()].into();
    let report = check_reason(&fixed, "OnlyStaticNodePools");
    assert_eq!(
        report.unschedulable[0].message(),
        "NodePool `steady` is static (`spec.replicas`), which Tenon doesn't support yet, so that pods get no node from it: \
         create a NodePool without `spec.replicas`"
    );
    let mut gated = plain();
    gated.scheduling_gates = vec!["example.com/wait".to_owned()];
    check_reason(&input(one(gated), vec![default_pool()]), "SchedulingGated");
    let mut missing = default_pool();
    missing.readiness = PoolReadiness::NodeClassNotFound(NodeClassName::parse("gone").unwrap());
    check_reason(&input(one(plain()), vec![missing.clone()]), "NodeClassNotFound");
    missing.pool.template.node_class.kind = "AKSNodeClass".to_owned();
    let report = check_reason(&input(one(plain()), vec![missing]), "NodeClassNotServed");
    assert_eq!(
        report.unschedulable[0].message(),
        "NodePool `default`: its `nodeClassRef` is kind `AKSNodeClass` of group `karpenter.k8s.aws`, and Tenon serves kind \
         `EC2NodeClass` of group `karpenter.k8s.aws`: correct it"
    );
    let mut tainted = default_pool();
    tainted.pool.template.taints = vec![Taint::new("dedicated", TaintEffect::NoSchedule)];
    check_reason(&input(one(plain()), vec![tainted.clone()]), "TaintsNotTolerated");
    let mut tolerating = plain();
    tolerating.tolerations = vec![Toleration::exists("dedicated")];
    claims(&input(one(tolerating), vec![tainted]), 1);
    check_reason(&input(one(shape(&[("cpu", "100")])), vec![default_pool()]), "InsufficientResources");
    check_reason(
        &input(one(selecting(plain(), labels::ARCH, "s390x")), vec![default_pool()]),
        "NoInstanceType",
    );
    let spot_in_three =
        selecting(selecting(plain(), labels::ZONE, "test-zone-3"), labels::CAPACITY_TYPE, "spot");
    check_reason(&input(one(spot_in_three), vec![default_pool()]), "NoOffering");
}

#[test]
fn a_label_that_nothing_defines_is_refused_with_what_was_probably_meant() {
    let typo = selecting(shape(&[("cpu", "1")]), "topology.kubernetes.io/zones", "test-zone-1");
    let report = check_reason(&input(pods("web", 1, typo), vec![default_pool()]), "IncompatibleRequirements");
    assert_eq!(
        report.unschedulable[0].message(),
        "NodePool `default`: incompatible requirements: label `topology.kubernetes.io/zones` does not have known \
         values (did you mean `topology.kubernetes.io/zone`?): change the pod's or the pool's"
    );
}

#[test]
fn a_custom_label_must_be_defined_by_the_pool() {
    let team = || pods("web", 1, selecting(shape(&[("cpu", "1")]), "team", "a"));
    check_reason(&input(team(), vec![default_pool()]), "IncompatibleRequirements");
    let mut defined = default_pool();
    defined.pool.template.requirements = [Requirement::one_of("team", ["a", "b"])].into_iter().collect();
    let (plan, _) = claims(&input(team(), vec![defined]), 1);
    assert_eq!(plan.claims[0].labels.get("team").map(String::as_str), Some("a"));
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let check = |shape: PodShape, field: &str| {
        let report =
            check_reason(&input(pods("web", 1, shape), vec![default_pool()]), "UnsupportedConstraint");
        assert!(report.unschedulable[0].message().contains(field), "{:?}", report.unschedulable);
    };
    let newer = PodShape { unknown: vec!["spec.tolerations[0].new".to_owned()], ..shape(&[("cpu", "1")]) };
    check(newer, "`spec.tolerations[0].new` isn't supported");
    let mistyped = PodShape {
        unknown: vec!["spec.nodeSelectr".to_owned()],
        meant: Some("nodeSelector"),
        ..shape(&[("cpu", "1")])
    };
    check(mistyped, "`spec.nodeSelectr` isn't supported (did you mean `nodeSelector`?): correct it");
    let claiming = PodShape { resource_claims: vec!["gpu".to_owned()], ..shape(&[("cpu", "1")]) };
    check(claiming, "spec.resourceClaims");
}

#[test]
fn exhausted_capacity_is_waited_for_and_other_zones_are_used() {
    let exhausted = |zones: &[&str]| {
        let mut types = six();
        for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
            if zones.contains(&offering.zone.as_str()) {
                offering.availability = Availability::Unavailable(Unavailability::Exhausted {
                    until: at(180),
                    last_resort_at: at(180),
                });
            }
        }
        pool("default", types)
    };
    let pod = || pods("web", 1, shape(&[("cpu", "1")]));
    let (plan, _) = claims(&input(pod(), vec![exhausted(&ZONES[..2])]), 1);
    assert_eq!(plan.claims[0].zones.iter().map(|z| z.as_str()).collect::<Vec<_>>(), ["test-zone-3"]);
    let all = input(pod(), vec![exhausted(&ZONES)]);
    check_reason(&all, "AllOfferingsUnavailable");
    assert_eq!(tenon_planning::provision::plan(&all).0.wake_at, Some(at(180)));
}

#[test]
fn a_zone_that_is_shifted_away_from_is_not_launched_in_and_named_where_nothing_else_is_left() {
    let shifted = |zones: &[&str]| {
        let mut types = six();
        for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
            if zones.contains(&offering.zone.as_str()) {
                offering.availability = Availability::Unavailable(Unavailability::ZoneShifted);
            }
        }
        pool("default", types)
    };
    let pod = || pods("web", 1, shape(&[("cpu", "1")]));
    let (plan, _) = claims(&input(pod(), vec![shifted(&ZONES[..2])]), 1);
    assert_eq!(plan.claims[0].zones.iter().map(|z| z.as_str()).collect::<Vec<_>>(), ["test-zone-3"]);
    let all = input(pod(), vec![shifted(&ZONES)]);
    check_reason(&all, "ZonesShifted");
    let (_, report) = tenon_planning::provision::plan(&all);
    let message = report.unschedulable[0].message();
    assert!(
        message.contains("with a zonal shift: `test-zone-1`, `test-zone-2`, `test-zone-3`: end it"),
        "{message}"
    );
}

#[test]
fn a_pool_that_waits_says_what_for() {
    let waiting =
        Waiting::NodeClassNotReady { class: "default".to_owned(), reason: "AMINotFound".to_owned() };
    let mut unready = default_pool();
    unready.readiness = PoolReadiness::NotReady(waiting.clone());
    let report =
        check_reason(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![unready]), "NodeClassNotReady");
    assert_eq!(
        report.unschedulable[0].message(),
        "EC2NodeClass `default` isn't ready: AMINotFound: its conditions say what to do"
    );
    assert_eq!(report.waiting, [waiting]);
}

#[test]
fn volumes_that_can_not_be_bound_are_refused_and_others_are_planned() {
    let meta = |name: &str, namespace: &str| ObjectMeta {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        ..ObjectMeta::default()
    };
    let class = |name: &str, binding| StorageClass {
        meta: meta(name, ""),
        provisioner: "ebs.csi.aws.com".to_owned(),
        binding,
        allowed_topologies: Vec::new(),
    };
    let claim = |name: &str, class: &str, volume: Option<&str>| PersistentVolumeClaim {
        meta: meta(name, "default"),
        storage_class: Some(class.to_owned()),
        volume: volume.map(str::to_owned),
        phase: "Pending".to_owned(),
        users: ClaimUsers::Many,
    };
    let volume =
        |name: &str| PersistentVolume { meta: meta(name, ""), node_affinity: Vec::new(), driver: None };
    let storage = || Storage {
        volumes: vec![volume("anywhere")],
        claims: vec![
            claim("later", "waits", None),
            claim("at-once", "immediate", None),
            claim("classless", "unknown", None),
            claim("bound", "immediate", Some("anywhere")),
            claim("bound-to-nothing", "immediate", Some("gone")),
        ],
        classes: vec![
            class("waits", VolumeBinding::WaitForFirstConsumer),
            class("immediate", VolumeBinding::Immediate),
        ],
        ..Storage::default()
    };
    let check = |volume: PodVolume, expected: Option<&str>| {
        let shape = PodShape { volumes: vec![volume], ..shape(&[("cpu", "1")]) };
        let mut world = input(pods("web", 1, shape), vec![default_pool()]);
        world.storage = storage();
        match expected {
            None => drop(claims(&world, 1)),
            Some(reason) => drop(check_reason(&world, reason)),
        }
    };
    let named = |name: &str| PodVolume::Claim(name.to_owned());
    let ephemeral = |class: Option<&str>| PodVolume::Ephemeral {
        volume: "scratch".to_owned(),
        storage_class: class.map(str::to_owned),
    };
    check(named("later"), None);
    check(named("bound"), None);
    check(ephemeral(Some("waits")), None);
    check(named("at-once"), Some("VolumeUnusable"));
    check(named("classless"), Some("VolumeUnusable"));
    check(named("bound-to-nothing"), Some("VolumeUnusable"));
    check(named("missing"), Some("VolumeClaimNotFound"));
    check(ephemeral(Some("immediate")), Some("VolumeUnusable"));
    check(ephemeral(None), Some("VolumeUnusable"));
}

/// A pool of the six types, with these zones' offerings unavailable.
fn without(why: &[(&str, Unavailability)]) -> PoolInput {
    let mut types = six();
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        if let Some((_, why)) = why.iter().find(|(zone, _)| *zone == offering.zone.as_str()) {
            offering.availability = Availability::Unavailable(why.clone());
        }
    }
    pool("default", types)
}

#[test]
fn a_shift_is_named_only_where_coming_back_would_help() {
    let one = || pods("web", 1, shape(&[("cpu", "1")]));
    let exhausted = Unavailability::Exhausted { until: at(180), last_resort_at: at(180) };
    let shifted = |zone| (zone, Unavailability::ZoneShifted);
    let [a, b, c] = ZONES;
    // A zone without the type is no alternative.
    let never = without(&[shifted(a), shifted(b), (c, Unavailability::NotOffered)]);
    let report = check_reason(&input(one(), vec![never]), "ZonesShifted");
    let message = report.unschedulable[0].message();
    assert!(message.contains("with a zonal shift: `test-zone-1`, `test-zone-2`: end it"), "{message}");
    // An exhausted offering may be available before the shift ends.
    let soon = without(&[shifted(a), shifted(b), (c, exhausted)]);
    let report = check_reason(&input(one(), vec![soon]), "AllOfferingsUnavailable");
    let message = report.unschedulable[0].message();
    let told = "NodePool `default`: 6 instance types fit, none is available now in `test-zone-1`, `test-zone-2`, \
        `test-zone-3`; next try at `2026-01-01T00:03:00Z`: allow other instance types, zones or capacity types";
    assert_eq!(message, told);
}

#[test]
fn prices_that_are_missing_are_named_only_where_something_is_bought_by_them() {
    let one = || pods("web", 1, shape(&[("cpu", "1")]));
    let waiting = Waiting::CatalogNotHydrated { part: CatalogPart::SpotPrices };
    let all = |why: Unavailability| {
        let mut pool = without(&ZONES.map(|zone| (zone, why.clone())));
        pool.without = Some(waiting.clone());
        pool
    };
    check_reason(&input(one(), vec![all(Unavailability::NotOffered)]), "NoOffering");
    check_reason(&input(one(), vec![all(Unavailability::PriceUnknown)]), "NodeClassNotReady");
}

#[test]
fn zones_where_the_class_lacks_a_subnet_are_named() {
    let [a, b, c] = ZONES;
    let pool = without(&[
        (a, Unavailability::NotOffered),
        (b, Unavailability::NoSubnet),
        (c, Unavailability::NoSubnet),
    ]);
    let asked = pods("web", 1, shape(&[("cpu", "1")]));
    let report = check_reason(&input(asked, vec![pool]), "NoOffering");
    assert_eq!(
        report.unschedulable[0].reason().to_string(),
        "no matching instance type is offered in the zones of the EC2NodeClass's subnets, but some in `test-zone-2`, \
         `test-zone-3`: give the class subnets there, or allow other instance types"
    );
}

#[test]
fn what_is_short_is_told_of_the_type_that_lacks_least() {
    // One lacks both, the other only memory.
    let types = [FakeType::new("a.little", 1, 1, 5), FakeType::new("a.long", 8, 2, 5)];
    let all = pool("default", types.iter().map(FakeType::option).collect());
    let asked = pods("web", 1, shape(&[("cpu", "4"), ("memory", "16Gi")]));
    let report = check_reason(&input(asked, vec![all.clone()]), "InsufficientResources");
    assert_eq!(
        report.unschedulable[0].reason().to_string(),
        "no instance type is large enough: `16Gi` of `memory` is requested, `2038Mi` is available at most: request less, or allow \
         larger types"
    );
    // An exact fit is no shortage: the first type lacks only memory, the other only CPU.
    let types = [FakeType::new("a.long", 8, 2, 5), FakeType::new("a.wide", 4, 64, 5)];
    let all = pool("default", types.iter().map(FakeType::option).collect());
    let just = pods("web", 1, shape(&[("cpu", "7900m"), ("memory", "16Gi")]));
    let report = check_reason(&input(just, vec![all]), "InsufficientResources");
    assert!(report.unschedulable[0].message().contains("`memory`"), "{:?}", report.unschedulable);
}

#[test]
fn cpu_in_millions_is_told_to_be_a_slip() {
    let asked = pods("web", 1, shape(&[("cpu", "1M")]));
    let report = check_reason(&input(asked, vec![default_pool()]), "InsufficientResources");
    assert_eq!(
        report.unschedulable[0].reason().to_string(),
        "no instance type is large enough: `1M` of `cpu` is requested, `15900m` is available at most: `M` is a million \
         cores, write `m` for a thousandth"
    );
}

#[test]
fn min_values_count_only_zones_and_ways_to_pay_in_which_something_can_be_had() {
    let exhausted = || Unavailability::Exhausted { until: at(180), last_resort_at: at(180) };
    let check = |lost: &[&str], key: &str, least: u32| {
        let lost: Vec<_> = lost.iter().map(|zone| (*zone, exhausted())).collect();
        let mut pool = without(&lost);
        pool.pool.template.requirements.add(Requirement::exists(key).with_min_values(Some(least)));
        check_reason(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![pool]), "MinValuesNotSatisfied");
    };
    check(&["test-zone-3"], labels::ZONE, 3);
    check(&["test-zone-3"], labels::ZONE_ID, 3);
    // Spot is sold in the first two.
    check(&["test-zone-1", "test-zone-2"], labels::CAPACITY_TYPE, 2);
}

#[test]
fn a_limit_that_is_just_enough_is_not_what_stands_in_the_way() {
    let mut one = pool("default", vec![FakeType::new("default.instance-type", 4, 4, 5).option()]);
    one.pool.limits = list(&[("cpu", "4")]);
    one.pool.template.requirements.add(Requirement::exists(labels::INSTANCE_TYPE).with_min_values(Some(2)));
    check_reason(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![one]), "MinValuesNotSatisfied");
}

#[test]
fn what_is_due_now_and_is_not_asked_for_by_this_plan_is_looked_at_again_in_a_minute() {
    let due = Unavailability::Exhausted { until: at(0), last_resort_at: at(0) };
    let all = without(&ZONES.map(|zone| (zone, due.clone())));
    let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![all]);
    // A replacement causes no probe.
    world.purpose = Purpose::Replacement(CommandId::parse("command-1").unwrap());
    check_reason(&world, "AllOfferingsUnavailable");
    assert_eq!(plan(&world).0.wake_at, Some(at(60)));
}

#[test]
fn what_disruption_waits_for_and_annotations_that_say_nothing_are_told() {
    let waiting = vec![Waiting::SnapshotMissing];
    let pod = NamespacedName { namespace: "shop".to_owned(), name: "web".to_owned() };
    let invalid = vec![InvalidAnnotation { pod, owner: None, value: "soon".to_owned() }];
    let report = DisruptionReport { waiting, invalid, ..DisruptionReport::default() };
    let told = told_findings(|to| report.tell(to));
    let annotation = "ignoring annotation `karpenter.sh/do-not-disrupt` of pod `shop/web`: its value `soon` is neither \
                      `true` nor a duration such as `30m`; correct it";
    let waits = "planner waits: the cluster's agent hasn't reported yet: install it, or check its pods";
    assert_eq!(told, [annotation, waits]);
}

#[test]
fn one_more_pod_of_a_controller_with_a_bad_annotation_is_no_news() {
    let identities = |owner: &str, pods: &[&str]| -> Vec<String> {
        let invalid = pods.iter().map(|name| InvalidAnnotation {
            pod: NamespacedName { namespace: "shop".to_owned(), name: (*name).to_owned() },
            owner: Some(owner.to_owned()),
            value: "soon".to_owned(),
        });
        let (mut report, mut findings) = (Report::default(), Vec::<Finding>::new());
        DisruptionReport { invalid: invalid.collect(), ..DisruptionReport::default() }.tell(&mut report);
        report.deliver(&mut findings);
        findings.iter().map(Finding::identity).collect()
    };
    let first = identities("ReplicaSet/web", &["web-2"]);
    assert_eq!(first.len(), 1);
    assert_eq!(identities("ReplicaSet/web", &["web-1", "web-2", "web-3"]), first);
    assert_ne!(identities("ReplicaSet/api", &["web-2"]), first);
}

#[test]
fn a_pool_whose_budgets_allow_nothing_is_told_once_for_each_reason() {
    use DisruptionReason::{Drifted, Empty};
    let refusal = |claim: &str, allowed, of| DisruptionRefusal {
        claim: ClaimName::parse(claim).unwrap(),
        reason: RefusalReason::BudgetExhausted {
            pool: NodePoolName::parse("default").unwrap(),
            allowed,
            going: 1,
            of,
            closed: None,
        },
        waits_for: None,
    };
    let of_pool = |refusals: Vec<DisruptionRefusal>| {
        let report = DisruptionReport { refusals, ..DisruptionReport::default() };
        let all = told_findings(|to| report.tell(to));
        all.into_iter().filter(|one| one.starts_with("disrupting no nodes")).collect::<Vec<_>>()
    };
    let expected = |reason: &str| {
        format!(
            "disrupting no nodes of NodePool `default`: its budgets allow none now for the reason `{reason}`"
        )
    };
    let drifted = |claim: &str| refusal(claim, 0, Some(Drifted));
    let all = vec![drifted("default-a"), refusal("default-b", 0, Some(Empty)), drifted("default-c")];
    assert_eq!(of_pool(all), [expected("Drifted"), expected("Empty")]);
    // One that is in use, and what budgets can't name.
    assert_eq!(of_pool(vec![refusal("default-a", 1, Some(Drifted)), refusal("default-b", 0, None)]), [""; 0]);
}
