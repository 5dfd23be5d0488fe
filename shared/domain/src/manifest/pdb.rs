//! PodDisruptionBudget, `policy/v1`.
//!
//! Decides that a budget has one bound. Its status says how many pods may be evicted.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use super::decode::{At, KeepUnknown, reread, told};
use super::fields::{MOST, integer, within};
use super::meta::{KindScope, ObjectFields};
use crate::api::pod::LabelSelector;
use crate::api::workload::{IntOrPercent, PdbBound, PodDisruptionBudget, UnhealthyPodEviction};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetSpec {
    selector: Option<LabelSelector>,
    min_available: Option<IntOrPercent>,
    max_unavailable: Option<IntOrPercent>,
    unhealthy_pod_eviction_policy: UnhealthyPodEviction,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetStatus {
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    disruptions_allowed: Option<u32>,
}

#[derive(Deserialize)]
struct BudgetCount(#[serde(deserialize_with = "integer::<0, MOST, _, _>")] u32);

impl<'de> Deserialize<'de> for IntOrPercent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(deserializer)?;
        let Value::String(text) = &given else {
            return reread(&given).map(|BudgetCount(count)| Self::Int(count));
        };
        let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok()).map(Self::Percent);
        percent.ok_or_else(|| {
            let message = format!("`{text}` is neither a number nor a percentage");
            Error::custom(told(message, "write `2` or `\"50%\"`"))
        })
    }
}

pub(super) fn read_pod_disruption_budget(at: At<'_, '_>) -> Option<PodDisruptionBudget> {
    let mut form: ObjectFields<KeepUnknown<BudgetSpec>, BudgetStatus> = at.read()?;
    let KeepUnknown(spec) = form.spec(&at.place)?;
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        at.place
            .key("spec")
            .error("`minAvailable` and `maxUnavailable` exclude each other", "keep one of them");
    }
    let bound = match (spec.min_available, spec.max_unavailable) {
        (_, Some(max)) => PdbBound::MaxUnavailable(max),
        (Some(min), None) => PdbBound::MinAvailable(min),
        // Neither field: the budget protects no pod.
        (None, None) => PdbBound::MinAvailable(IntOrPercent::Int(0)),
    };
    Some(PodDisruptionBudget {
        meta: form.metadata.of_object(&at.place, KindScope::Namespaced)?,
        selector: spec.selector,
        bound,
        disruptions_allowed: form.status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
        unhealthy_pods: spec.unhealthy_pod_eviction_policy,
    })
}
