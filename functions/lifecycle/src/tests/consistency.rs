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
    let (_, report) = planned(seen);
    let mut findings: Vec<Finding> = Vec::new();
    report.deliver(&mut findings);
    findings.retain(|finding| finding.reason == CONSISTENCY_CHECK_FAILED);
    findings.iter().map(|finding| finding.message("lifecycle")).collect()
}

#[test]
fn a_node_with_less_than_nine_tenths_of_what_its_type_promises_is_told() {
    let check = |memory, cpu, expected: Option<&str>| {
        let words = told(initialized(0, minutes(1)), memory, cpu);
        let expected = expected.map(|lacks| {
            format!(
                "less capacity than expected for NodeClaim `default-00000`: {lacks}; check its kubelet and device \
                 plugins, or delete the NodeClaim to replace it"
            )
        });
        assert_eq!(words, Vec::from_iter(expected));
    };
    // 7577 MiB are expected of 8192.
    check(7600, "2", None);
    check(6820, "2", None);
    let less = "expected 7577Mi of resource `memory`, but its Node has 6819Mi (89.9 % of that)";
    check(6819, "2", Some(less));
    let one = "expected 2 of resource `cpu`, but its Node has 1 (50.0 % of that)";
    check(7600, "1", Some(one));
    check(6819, "1", Some(&format!("{one}; {less}")));
}

#[test]
fn only_a_node_that_is_up_and_stays_is_judged() {
    assert_eq!(told(draining(0, minutes(29), None), 1, "1"), [""; 0]);
    // Without the catalogue's labels nothing is expected.
    let bare = input(minutes(30), vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]);
    assert_eq!(told_of(&bare), [""; 0]);
}
