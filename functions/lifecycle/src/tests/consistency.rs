//! A Node that is smaller than its instance type is told of its claim.

use super::*;
use tenon_domain::report::CONSISTENCY_CHECK_FAILED;

/// What is told of an m5.large with so much memory and CPU, in a claim with pods that request memory and CPU.
fn told(state: ClaimState, memory: i64, cpu: &str) -> Vec<String> {
    let requests = claim(0, ClaimState::Planned).requests;
    let requests = requests.with(ResourceName::MEMORY, Quantity::from_mebi(512));
    let mut seen = node(0);
    let of_type = [(labels::INSTANCE_CPU, "2"), (labels::INSTANCE_MEMORY, "8192")];
    seen.meta.labels.extend(of_type.map(|(key, value)| (key.to_owned(), value.to_owned())));
    seen.capacity = ResourceList::new()
        .with(ResourceName::CPU, Quantity::parse(cpu).unwrap())
        .with(ResourceName::MEMORY, Quantity::from_mebi(memory));
    told_of(&input(minutes(30), vec![Claim { requests, ..claim(0, state) }], vec![seen]))
}

fn told_of(seen: &LifecycleInput) -> Vec<String> {
    let told = |finding: &Finding| {
        let details: Vec<String> =
            finding.details.iter().map(|(name, value)| format!(" [{name}: {value}]")).collect();
        format!("{}{}", finding.message("lifecycle"), details.join(""))
    };
    found(seen).iter().map(told).collect()
}

fn found(seen: &LifecycleInput) -> Vec<Finding> {
    let (_, report) = planned(seen);
    let mut findings: Vec<Finding> = Vec::new();
    report.deliver(&mut findings);
    findings.retain(|finding| finding.reason == CONSISTENCY_CHECK_FAILED);
    findings
}

/// An m5.large with so much memory and two CPUs.
fn small(n: usize, memory: i64) -> Node {
    let mut seen = node(n);
    seen.meta.labels.insert(labels::INSTANCE_MEMORY.to_owned(), "8192".to_owned());
    seen.capacity = ResourceList::new().with(ResourceName::MEMORY, Quantity::from_mebi(memory));
    seen
}

#[test]
fn nodes_that_lack_the_same_resources_are_one_finding_whatever_they_have_of_them() {
    let requests = ResourceList::new().with(ResourceName::MEMORY, Quantity::from_mebi(512));
    let lacking = |n: usize| Claim { requests: requests.clone(), ..claim(n, initialized(n, minutes(1))) };
    let nodes = (0..60).zip(4000..).map(|(n, memory)| small(n, memory)).collect();
    let found = found(&input(minutes(30), (0..60).map(lacking).collect(), nodes));
    assert_eq!(found.iter().map(|finding| finding.count).collect::<Vec<_>>(), [60]);
}

#[test]
fn a_node_with_less_than_nine_tenths_of_what_its_type_promises_is_told() {
    let check = |memory, cpu, expected: Option<(&str, &str)>| {
        let words = told(initialized(0, minutes(1)), memory, cpu);
        let expected = expected.map(|(names, lacks)| {
            format!(
                "less capacity than expected for NodeClaim `default-00000`: the Node has less than 90 % of what its \
                 instance type promises of {names}; check its kubelet and device plugins, or delete the NodeClaim to \
                 replace it {lacks}"
            )
        });
        assert_eq!(words, Vec::from_iter(expected));
    };
    // 7577 MiB are expected of 8192.
    check(7600, "2", None);
    check(6820, "2", None);
    let less = "[memory: 6819Mi of 7577Mi (89.9 %)]";
    check(6819, "2", Some(("`memory`", less)));
    let one = "[cpu: 1 of 2 (50.0 %)]";
    check(7600, "1", Some(("`cpu`", one)));
    check(6819, "1", Some(("`cpu`, `memory`", &format!("{one} {less}"))));
}

#[test]
fn only_a_node_that_is_up_and_stays_is_judged() {
    assert_eq!(told(draining(0, minutes(29), None), 1, "1"), [""; 0]);
    // Without the catalogue's labels nothing is expected.
    let bare = input(minutes(30), vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]);
    assert_eq!(told_of(&bare), [""; 0]);
}
