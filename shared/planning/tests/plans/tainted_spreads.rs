//! Spreads that count only nodes whose taints their pods tolerate, on nodes of the same plan.

use crate::support::*;
use crate::topology::all_placed;
use tenon_domain::api::pod::{NodeInclusionPolicy, PodShape};
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::PoolInput;

const LABEL: &str = "example.com/domain";

fn tainted(name: &str, taint: Option<&str>, key: &str, values: &[&str]) -> PoolInput {
    let mut one = pool(name, six());
    one.pool.template.requirements.add(Requirement::one_of(key, values.iter().copied()));
    one.pool.template.taints =
        taint.iter().map(|taint| Taint::new(*taint, TaintEffect::NoSchedule)).collect();
    one
}

fn spreading(taint: Option<&str>, key: &str) -> PodShape {
    let mut one = app("web", "1");
    one.tolerations = taint.iter().map(|taint| Toleration::exists(*taint)).collect();
    let mut rule = spread(key, "web", 1);
    rule.node_taints_policy = NodeInclusionPolicy::Honor;
    one.topology_spread = vec![rule];
    one
}

#[test]
fn domains_of_claims_that_pods_do_not_tolerate_are_not_counted() {
    let check = |first: usize, second: usize| {
        let pools = vec![
            tainted("a", Some("a"), LABEL, &["foo", "bar"]),
            tainted("b", Some("b"), LABEL, &["foo", "baz"]),
        ];
        let mut all = pods("a", first, spreading(Some("a"), LABEL));
        all.extend(pods("b", second, spreading(Some("b"), LABEL)));
        all_placed(&input(all, pools));
    };
    check(2, 4);
    check(2, 6);
    check(5, 1);
}

#[test]
fn pods_on_claims_that_others_do_not_tolerate_hold_up_no_spread() {
    let pools = vec![
        tainted("p", None, labels::ZONE, &ZONES[..2]),
        tainted("t", Some("t"), labels::ZONE, &ZONES[2..]),
    ];
    let mut one = app("web", "1");
    one.tolerations = vec![Toleration::exists("t")];
    let mut all = pods("one", 1, selecting(one, labels::ZONE, ZONES[2]));
    all.extend(pods("web", 6, spreading(None, labels::ZONE)));
    all_placed(&input(all, pools));
}
