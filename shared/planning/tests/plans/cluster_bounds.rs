//! The bounds of the cluster's stack on plans: its vCPUs over all pools and plans, and the families of its types.

use std::collections::BTreeSet;

use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::id::CommandId;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::resources::ResourceName;
use tenon_planning::provision::{
    ExclusionCause, GuessedVcpus, PlanTrials, PlannedClaim, PoolInput, ProvisionInput, Purpose, explain, plan,
};

use crate::drawn::world;
use crate::support::*;

/// A pool of the types of amd64, of 2 and 4 vCPUs, in a cluster with so many left.
fn bounded(name: &str, vcpus_left: u32) -> PoolInput {
    let mut made = PoolInput { vcpus_left: Some(vcpus_left), ..pool(name, six()) };
    made.pool.template.requirements = [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
    made
}

/// The most vCPUs that the claims may get.
fn vcpus(world: &ProvisionInput, claims: &[PlannedClaim]) -> i64 {
    let largest = |claim: &PlannedClaim| {
        let pool = world.pools.iter().find(|pool| pool.pool.name == claim.pool).unwrap();
        let own = pool.types.iter().filter(|one| claim.instance_types.contains(&one.facts.name));
        own.map(|one| one.capacity.get(&ResourceName::CPU).value_ceil()).max().unwrap()
    };
    claims.iter().map(largest).sum()
}

#[test]
fn pods_wait_once_the_cluster_has_as_many_vcpus_as_its_stack_allows() {
    let check = |vcpus_left, launched, waiting| {
        let large = pods("large", 3, shape(&[("cpu", "3500m")]));
        let (_, report) = claims(&input(large, vec![bounded("default", vcpus_left)]), launched);
        assert_eq!(report.unschedulable.len(), waiting, "{vcpus_left} vCPUs");
        for refused in &report.unschedulable {
            assert_eq!(refused.reason().into_str(), "MaxVcpusReached");
            assert_eq!(
                refused.message(),
                "NodePool `default`: the cluster has as many vCPUs as `MaxVcpus` allows: raise it in the cluster's stack"
            );
        }
    };
    check(0, 0, 3);
    check(3, 0, 3);
    check(4, 1, 2);
    check(11, 2, 1);
    check(12, 3, 0);
}

#[test]
fn a_refusal_says_which_claims_count_by_a_guess() {
    let check = |more: u32, expected: &str| {
        let guessed = GuessedVcpus { first: "default-abcde".parse().unwrap(), more, each: 448 };
        let pool = PoolInput { vcpus_guessed: Some(guessed), ..bounded("default", 0) };
        let (_, report) = claims(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![pool]), 0);
        let counted = format!(
            "NodePool `default`: the cluster has as many vCPUs as `MaxVcpus` allows, NodeClaim `default-abcde` {expected}, \
             the largest instance type, until their Nodes report: raise it in the cluster's stack"
        );
        assert_eq!(report.unschedulable[0].message(), counted);
    };
    check(0, "of unknown size counted as 448");
    check(2, "and 2 more of unknown size counted as 448 each");
}

#[test]
fn a_claim_has_only_types_for_which_the_cluster_has_vcpus_left() {
    let (plan, _) = claims(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![bounded("default", 3)]), 1);
    let types: Vec<&str> = plan.claims[0].instance_types.iter().map(AsRef::as_ref).collect();
    assert_eq!(types, ["small.instance-type"]);
}

#[test]
fn vcpus_are_counted_over_all_pools_and_besides_a_pools_own_limits() {
    let mut first = bounded("default", 8);
    first.pool.limits = list(&[("nodes", "1")]);
    let large = || pods("large", 4, shape(&[("cpu", "3500m")]));
    let (_, report) = claims(&input(large(), vec![first.clone(), bounded("a-second", 8)]), 2);
    assert_eq!(report.unschedulable.len(), 2);
    let (_, report) = claims(&input(large(), vec![first]), 1);
    assert_eq!(report.unschedulable[0].reason().into_str(), "LimitsExceeded");
}

#[test]
fn vcpus_of_a_plan_that_is_taken_are_gone_for_the_next() {
    let world = input(pods("large", 4, shape(&[("cpu", "3500m")])), vec![bounded("default", 12)]);
    let mut trials = PlanTrials::new(&world, |_| true, &world.pods);
    let moving = |number: u32| Purpose::Replacement(CommandId::parse(format!("command-{number}")).unwrap());
    let (one, other) = world.pods.split_at(2);
    let first = trials.plan(&moving(1), &BTreeSet::new(), one).0;
    trials.take(&BTreeSet::new(), &first, one);
    let (second, report) = trials.plan(&moving(2), &BTreeSet::new(), other);
    assert_eq!((first.claims.len(), second.claims.len(), report.unschedulable.len()), (2, 1, 1));
}

#[test]
fn no_drawn_world_gets_more_vcpus_than_its_registry_allows() {
    let mut full = 0;
    for number in 0..72 {
        let (mut world, most) = (world(number), u32::try_from(number % 7).unwrap() * 6);
        world.pools.iter_mut().for_each(|pool| pool.vcpus_left = Some(most));
        let (plan, report) = plan(&world);
        let used = vcpus(&world, &plan.claims);
        assert!(used <= i64::from(most), "world {number}: {used} vCPUs, {most} are allowed");
        full +=
            usize::from(report.unschedulable.iter().any(|one| one.reason().into_str() == "MaxVcpusReached"));
    }
    assert!(full > 5, "the bound was reached in {full} worlds");
}

/// A pool of the six types, without the families that the stack doesn't allow.
fn without(families: &[&str]) -> PoolInput {
    let mut types = six();
    let barred = types.iter_mut().filter(|one| families.contains(&one.facts.name.family()));
    barred.for_each(InstanceTypeOption::disallow_family);
    pool("default", types)
}

#[test]
fn pods_whose_only_types_are_of_other_families_are_told_so() {
    let check = |families: &[&str], requests: &[(&str, &str)], selects: Option<&str>, told: &str| {
        let mut asked = shape(requests);
        if let Some(name) = selects {
            asked = selecting(asked, labels::INSTANCE_TYPE, name);
        }
        let report =
            check_reason(&input(pods("web", 1, asked), vec![without(families)]), "FamiliesNotAllowed");
        let remedy =
            "among `AllowedFamilies` of the cluster's stack: add to them, or allow other instance types";
        let message = report.unschedulable[0].message();
        assert_eq!(message, format!("NodePool `default`: {told} {remedy}"));
    };
    let one = [("cpu", "1")];
    check(&["default"], &one, Some("default.instance-type"), "family `default` isn't");
    // Only one type is large enough.
    check(&["arm", "small"], &[("cpu", "10")], None, "family `arm` isn't");
    check(
        &["arm", "default", "gpu-vendor", "gpu-vendor-b", "single-pod", "small"],
        &one,
        None,
        "families `arm`, `default`, `gpu-vendor`, `gpu-vendor-b`, `single-pod` and 1 more aren't",
    );
}

#[test]
fn types_of_other_families_are_never_launched_and_are_no_choice_of_a_pod_that_waits() {
    let (plan, _) = claims(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![without(&["small"])]), 1);
    assert!(plan.claims[0].instance_types.iter().all(|name| name.family() != "small"));
    let mut limited = without(&["small", "default"]);
    limited.pool.limits = list(&[("cpu", "1")]);
    check_reason(&input(pods("web", 1, shape(&[("cpu", "1")])), vec![limited]), "LimitsExceeded");
}

#[test]
fn an_explanation_names_the_bounds_of_the_stack() {
    let check = |world: &ProvisionInput, expected: &[(&str, &str, usize)]| {
        let explained = explain(world, &world.pods[0]);
        let of_cluster = |cause: &ExclusionCause| {
            matches!(cause, ExclusionCause::FamilyNotAllowed { .. } | ExclusionCause::MaxVcpusReached)
        };
        let excluded = explained.pools[0].excluded.iter().filter(|one| of_cluster(&one.cause));
        let found: Vec<_> =
            excluded.map(|one| (one.cause.to_string(), one.cause.remedy(), one.types.len())).collect();
        let text = |text: &str| text.to_owned();
        let expected: Vec<_> =
            expected.iter().map(|(cause, remedy, types)| (text(cause), text(remedy), *types)).collect();
        assert_eq!(found, expected);
    };
    let one = || pods("web", 1, shape(&[("cpu", "1")]));
    let remedy = "allow other families in the NodePool, or this one in the cluster's stack";
    check(
        &input(one(), vec![without(&["arm", "small"])]),
        &[
            ("family `arm` isn't among `AllowedFamilies` of the cluster's stack", remedy, 1),
            ("family `small` isn't among `AllowedFamilies` of the cluster's stack", remedy, 1),
        ],
    );
    check(
        &input(one(), vec![bounded("default", 2)]),
        &[(
            "the cluster has as many vCPUs as `MaxVcpus` allows",
            "raise `MaxVcpus` in the cluster's stack",
            4,
        )],
    );
}
