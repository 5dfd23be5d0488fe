//! PodDisruptionBudget, `policy/v1`.
//!
//! Decides that a budget has one bound. How many pods may go is in its status.

use crate::api::workload::{IntOrPercent, PdbBound, PodDisruptionBudget, UnhealthyPodEviction};
use crate::requirement::hints::parse_word;

use super::decode::{At, Fields};
use super::meta::{Scope, read_meta};
use super::selector::read_label_selector;
use super::tree::Value;

pub(super) fn read_pod_disruption_budget(at: At<'_>) -> Option<PodDisruptionBudget> {
    let meta = read_meta(at, Scope::Namespaced, Fields::Any);
    let spec = at.required_object("spec", Fields::Any)?;
    let selector = read_label_selector(spec, "selector");
    let min_available = spec.field("minAvailable").map(read_int_or_percent);
    let max_unavailable = spec.field("maxUnavailable").map(read_int_or_percent);
    if min_available.is_some() && max_unavailable.is_some() {
        spec.error("`minAvailable` and `maxUnavailable` exclude each other", "keep one of them");
    }
    let all = [UnhealthyPodEviction::IfHealthyBudget, UnhealthyPodEviction::AlwaysAllow];
    let unhealthy_pods = spec
        .field("unhealthyPodEvictionPolicy")
        .and_then(|field| {
            field.word(|text| {
                parse_word("an unhealthy pod eviction policy", text, &all, |policy| match policy {
                    UnhealthyPodEviction::IfHealthyBudget => "IfHealthyBudget",
                    UnhealthyPodEviction::AlwaysAllow => "AlwaysAllow",
                })
            })
        })
        .unwrap_or_default();
    let disruptions_allowed = at
        .object("status", Fields::Any)
        .and_then(|status| status.integer_of("disruptionsAllowed", 0..=i64::from(i32::MAX)))
        .unwrap_or(0);
    let bound = match (min_available, max_unavailable) {
        (_, Some(max)) => PdbBound::MaxUnavailable(max?),
        (Some(min), None) => PdbBound::MinAvailable(min?),
        // Neither: nothing has to stay.
        (None, None) => PdbBound::MinAvailable(IntOrPercent::Int(0)),
    };
    Some(PodDisruptionBudget { meta: meta?, selector, bound, disruptions_allowed, unhealthy_pods })
}

fn read_int_or_percent(at: At<'_>) -> Option<IntOrPercent> {
    let Value::Text(text) = &at.tree().value else {
        return at.integer(0..=i64::from(i32::MAX)).map(IntOrPercent::Int);
    };
    let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
    if percent.is_none() {
        at.error(format!("`{text}` is neither a number nor a percentage"), "write `2` or `\"50%\"`");
    }
    percent.map(IntOrPercent::Percent)
}
