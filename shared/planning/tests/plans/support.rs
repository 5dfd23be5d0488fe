//! What tests of plans share: the peer's set of types, and checks of a plan in few words.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::api::meta::{OwnerReference, OwnerRole};
use tenon_domain::api::pod::PodShape;
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::report::{Finding, Report};
use tenon_planning::provision::{PoolInput, ProvisionInput, ProvisionPlan, ProvisionReport, plan};
pub(crate) use tenon_replay::small::*;

/// The peer's set of six.
pub(crate) fn six() -> Vec<InstanceTypeOption> {
    let mut arm = FakeType::new("arm.instance-type", 16, 128, 5);
    arm.arch = "arm64";
    let mut vendor_a = FakeType::new("gpu-vendor.instance-type", 4, 4, 5);
    vendor_a.extra = vec![("fake.com/vendor-a", "2")];
    let mut vendor_b = FakeType::new("gpu-vendor-b.instance-type", 4, 4, 5);
    vendor_b.extra = vec![("fake.com/vendor-b", "2")];
    [
        FakeType::new("default.instance-type", 4, 4, 5),
        FakeType::new("small.instance-type", 2, 2, 5),
        FakeType::new("single-pod.instance-type", 4, 4, 1),
        vendor_a,
        vendor_b,
        arm,
    ]
    .iter()
    .map(FakeType::option)
    .collect()
}

/// A pod that runs somewhere.
pub(crate) fn running(requests: &[(&str, &str)]) -> Arc<PodShape> {
    Arc::new(PodShape { requests: list(requests), ..PodShape::default() })
}

/// The same, made by a DaemonSet.
pub(crate) fn of_daemon_set(shape: &PodShape) -> Arc<PodShape> {
    let owner = OwnerReference {
        kind: "DaemonSet".to_owned(),
        name: "agent".to_owned(),
        uid: String::new(),
        role: OwnerRole::Controller,
    };
    Arc::new(PodShape { owner: Some(owner), ..shape.clone() })
}

pub(crate) fn default_pool() -> PoolInput {
    pool("default", six())
}

pub(crate) fn claims(input: &ProvisionInput, expected: usize) -> (ProvisionPlan, ProvisionReport) {
    let (plan, report) = plan(input);
    assert_eq!(plan.claims.len(), expected, "{report:#?}");
    (plan, report)
}

pub(crate) fn check_reason(input: &ProvisionInput, expected: &str) -> ProvisionReport {
    let (plan, report) = plan(input);
    assert!(plan.claims.is_empty(), "{plan:#?}");
    let reasons: BTreeSet<&str> = report.unschedulable.iter().map(|one| one.reason().into_str()).collect();
    assert_eq!(reasons, BTreeSet::from([expected]), "{:?}", report.unschedulable);
    report
}

pub(crate) fn selecting(mut shape: PodShape, key: &str, value: &str) -> PodShape {
    shape.node_selector.insert(key.to_owned(), value.to_owned());
    shape
}

/// The sentences of a report.
pub(crate) fn told_findings(tell: impl FnOnce(&mut Report)) -> Vec<String> {
    let (mut report, mut findings) = (Report::default(), Vec::<Finding>::new());
    tell(&mut report);
    report.deliver(&mut findings);
    findings.iter().map(|finding| finding.message("planner")).collect()
}
