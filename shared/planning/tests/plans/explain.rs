//! Explanations of one pod: the types that fit with their prices, and each cause with its types.

use std::sync::Arc;

use tenon_domain::labels;
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_planning::provision::{ProvisionInput, explain};

use crate::support::*;

/// The explanation in lines: what fits with its cheapest offering, then the causes with how many types.
fn check(input: &ProvisionInput, expected: &[&str]) {
    let mut lines = Vec::new();
    let explained = explain(input, &input.pods[0]);
    lines.extend(explained.refused.map(|reason| format!("refused: {reason}")));
    for pool in explained.pools {
        lines.extend(pool.refused.map(|reason| format!("no place: {reason}")));
        for one in pool.fits {
            let first = &one.offerings[0];
            let at = format!("{} {}", first.zone, first.capacity_type);
            lines.push(format!("{} {at} of {}", one.instance_type, one.offerings.len()));
        }
        lines.extend(pool.excluded.iter().map(|one| format!("{}: {}", one.types.len(), one.cause)));
    }
    assert_eq!(lines, expected);
}

#[test]
fn each_type_fits_with_its_cheapest_offering_or_has_one_cause() {
    let mut pool = default_pool();
    pool.pool.limits = list(&[("cpu", "8")]);
    let amd64 = selecting(shape(&[("cpu", "3")]), labels::ARCH, "amd64");
    check(
        &input(pods("a", 1, amd64), vec![pool.clone()]),
        &[
            "default.instance-type test-zone-1 spot of 5",
            "gpu-vendor-b.instance-type test-zone-1 spot of 5",
            "gpu-vendor.instance-type test-zone-1 spot of 5",
            "single-pod.instance-type test-zone-1 spot of 5",
            "1: the pod requires `kubernetes.io/arch In [amd64]`",
            "1: not enough `cpu`",
        ],
    );
    let large = shape(&[("cpu", "10"), ("fake.com/vendor-a", "1")]);
    check(
        &input(pods("a", 1, large), vec![pool]),
        &["5: no `fake.com/vendor-a` at all", "1: not enough `cpu`"],
    );
}

#[test]
fn limits_taints_and_zones_are_named() {
    let mut limited = default_pool();
    limited.pool.limits = list(&[("cpu", "1")]);
    check(&input(pods("a", 1, shape(&[])), vec![limited]), &["6: the `cpu` limit leaves no room"]);
    let mut tainted = default_pool();
    tainted.pool.template.taints = vec![Taint::new("dedicated", TaintEffect::NoSchedule)];
    check(
        &input(pods("a", 1, shape(&[])), vec![tainted]),
        &["no place: untolerated taints `dedicated:NoSchedule`: add a toleration to the pod"],
    );
    let elsewhere = selecting(shape(&[]), labels::ZONE, "test-zone-9");
    check(
        &input(pods("a", 1, elsewhere), vec![default_pool()]),
        &["6: the pod requires `topology.kubernetes.io/zone In [test-zone-9]`"],
    );
}

#[test]
fn the_daemon_sets_without_which_a_pod_has_room_are_named() {
    let types = vec![FakeType::new("small.instance-type", 2, 4, 20).option()];
    let mut world = input(pods("a", 1, shape(&[("cpu", "1")])), vec![pool("default", types)]);
    world.daemon_sets = vec![daemon_set("agent", shape(&[("cpu", "1500m")]))];
    check(&world, &["1: not enough `cpu` beside `1500m` of DaemonSet `default/agent`"]);
}

#[test]
fn a_pod_that_cant_be_planned_for_has_no_pools() {
    let mut gated = shape(&[]);
    gated.scheduling_gates = vec!["example.com/quota".to_owned()];
    let world = input(vec![pod("a", &Arc::new(gated))], vec![default_pool()]);
    check(
        &world,
        &["refused: the pod has scheduling gates: `example.com/quota`; whoever set them has to remove them"],
    );
}
