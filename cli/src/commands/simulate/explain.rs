//! `--explain`: one pod, the instance types that fit it, and what excludes the others.
//!
//! Decides which pod is meant, and the form of the explanation. The planner knows the causes.

use std::collections::BTreeSet;

use serde::Serialize;
use tenon_domain::api::Pod;
use tenon_domain::catalog::CapacityType;
use tenon_domain::report::counted;
use tenon_planning::provision::{
    ExcludedTypes, FittingType, PoolExplanation, PricedOffering, Reason, explain,
};

use super::Simulated;
use super::table::RESERVED;
use crate::catalogue::{PriceOrigin, SpotOrigin};
use crate::errors::{Failure, Problem, did_you_mean};
use crate::output::Columns;

/// How many fitting types a table names.
const TYPES_NAMED: usize = 10;
/// How many excluded types are named beside their number.
const EXAMPLES: usize = 3;
/// What fits a pod may be excluded by others.
const BESIDE: &str = "rules about other pods aren't looked at: they may leave fewer zones and types\n";
/// How many pods an ambiguous name lists.
const PODS_NAMED: usize = 5;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Explanation {
    pod: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    node_pools: Vec<PoolDocument>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolDocument {
    node_pool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<RefusalDocument>,
    fits: Vec<FitDocument>,
    excluded: Vec<ExclusionDocument>,
}

#[derive(Debug, Serialize)]
struct RefusalDocument {
    reason: &'static str,
    message: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct FitDocument {
    instance_type: String,
    offerings: Vec<ExplainedOffering>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExplainedOffering {
    zone: String,
    capacity_type: &'static str,
    price_usd_per_hour: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    price_assumed: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExclusionDocument {
    cause: &'static str,
    types: usize,
    examples: Vec<String>,
    message: String,
    remedy: String,
}

impl Explanation {
    /// Explains the pod of that name.
    ///
    /// # Errors [`Failure`] if no pod or several pods have the name.
    pub(super) fn of(simulated: &Simulated, name: &str) -> Result<Self, Failure> {
        let pod = find(simulated, name)?;
        let Simulated { input, plan, report, .. } = simulated;
        let found = explain(input, pod);
        let claim = plan.claims.iter().find(|claim| claim.pods.iter().any(|one| one.uid == pod.uid));
        let placed = plan.placements.iter().find(|placed| placed.pod.uid == pod.uid);
        let refused = report.unschedulable.iter().find(|refused| refused.pod.uid == pod.uid);
        Ok(Self {
            pod: pod.name.to_string(),
            claim: claim.map(|claim| claim.name.to_string()),
            node: placed.map(|placed| placed.node.clone()),
            reason: refused.map(|refused| refused.reason().into_str()),
            message: refused.map(tenon_planning::provision::Unschedulable::message),
            node_pools: found.pools.into_iter().map(|pool| PoolDocument::new(pool, simulated)).collect(),
        })
    }

    /// The explanation as text.
    pub(super) fn text(&self) -> String {
        let outcome = match (&self.claim, &self.node, &self.message) {
            (Some(claim), _, _) => format!("on NodeClaim `{claim}`"),
            (_, Some(node), _) => format!("on existing node `{node}`"),
            (_, _, Some(message)) => format!("without a place: {message}"),
            (None, None, None) => "not planned".to_owned(),
        };
        let mut parts = vec![format!("POD {}: {outcome}\n", self.pod)];
        parts.extend(self.node_pools.iter().map(PoolDocument::text));
        if self.node_pools.iter().any(|pool| !pool.fits.is_empty()) {
            parts.push(BESIDE.to_owned());
        }
        parts.join("\n")
    }
}

/// The pod of a name: `namespace/name`, or the name or its last part if only one pod has it, with its namespace or without.
fn find<'p>(simulated: &'p Simulated, name: &str) -> Result<&'p Pod, Failure> {
    let Simulated { input, aside, .. } = simulated;
    let pods = &input.pods;
    if let Some(pod) = pods.iter().find(|pod| pod.name.to_string() == name) {
        return Ok(pod);
    }
    let of_name: Vec<&Pod> = pods.iter().filter(|pod| pod.name.name == name).collect();
    let (namespace, last) = name.split_once('/').map_or((None, name), |(of, last)| (Some(of), last));
    let ends = |pod: &&Pod| {
        namespace.is_none_or(|namespace| pod.name.namespace == *namespace)
            && pod.name.to_string().rsplit('/').next() == Some(last)
    };
    let found = if of_name.is_empty() { pods.iter().filter(ends).collect() } else { of_name };
    match found.as_slice() {
        [pod] => Ok(pod),
        [] => {
            let is_named = |whole: &str| whole == name || whole.rsplit('/').next() == Some(name);
            if let Some((whole, why)) = aside.iter().find(|(whole, _)| is_named(whole)) {
                let message = format!("pod `{whole}` isn't planned for: {why}");
                return Err(Problem::new(message, "name a pod that waits for a node").at("--explain").into());
            }
            // A short name is compared with short names.
            let known = |pod: &Pod| {
                let whole = pod.name.to_string();
                let last = whole.rsplit('/').next().unwrap_or_default().to_owned();
                if name.contains('/') { whole } else { last }
            };
            let names: BTreeSet<String> = pods.iter().map(known).collect();
            let remedy = did_you_mean(
                name,
                names.iter().map(String::as_str),
                "name a pod that is pending: `namespace/name`, for a controller's pod such as `default/deployment/web-0`",
            );
            Err(Problem::new(format!("no pending pod `{name}`"), remedy).at("--explain").into())
        }
        several => {
            let mut names: Vec<String> = several.iter().map(|pod| pod.name.to_string()).collect();
            names.sort();
            names.truncate(PODS_NAMED);
            let message = format!("{} are called `{name}`", counted(several.len(), "pod", "pods"));
            let remedy = format!("give one with its namespace, such as `{}`", names.join("`, `"));
            Err(Problem::new(message, remedy).at("--explain").into())
        }
    }
}

impl PoolDocument {
    fn new(pool: PoolExplanation, simulated: &Simulated) -> Self {
        let PoolExplanation { pool, refused, fits, excluded } = pool;
        Self {
            node_pool: pool.to_string(),
            refused: refused.map(|reason| RefusalDocument::new(&reason)),
            fits: fits.into_iter().map(|one| FitDocument::new(one, simulated)).collect(),
            excluded: excluded.iter().map(ExclusionDocument::new).collect(),
        }
    }

    fn text(&self) -> String {
        let fits = counted(self.fits.len(), "instance type fits", "instance types fit");
        let mut text = format!("NODEPOOL {}: {fits}\n", self.node_pool);
        if let Some(refused) = &self.refused {
            text = format!("NODEPOOL {}: no place: {}\n", self.node_pool, refused.message);
        }
        if !self.fits.is_empty() {
            let mut table = Columns::new(&["TYPE", "ZONE", "CAPACITY", "USD/H"]).right(&[3]);
            for one in self.fits.iter().take(TYPES_NAMED) {
                let Some(first) = one.offerings.first() else { continue };
                table.row([
                    one.instance_type.clone(),
                    first.zone.clone(),
                    first.capacity_type.to_owned(),
                    first.price(),
                ]);
            }
            text += &table.text();
            if let Some(more @ 1..) = self.fits.len().checked_sub(TYPES_NAMED) {
                text += &format!("and {more} more\n");
            }
        }
        if !self.excluded.is_empty() {
            let mut table = Columns::new(&["EXCLUDED", "CAUSE", "EXAMPLES", "WHAT HELPS"]).right(&[0]);
            for one in &self.excluded {
                table.row([
                    one.types.to_string(),
                    one.message.clone(),
                    one.examples.join(","),
                    one.remedy.clone(),
                ]);
            }
            text += &table.text();
        }
        text
    }
}

impl RefusalDocument {
    fn new(reason: &Reason) -> Self {
        Self { reason: reason.into_str(), message: reason.to_string() }
    }
}

impl FitDocument {
    fn new(one: FittingType, simulated: &Simulated) -> Self {
        let offering = |offering: PricedOffering| {
            let price = match simulated.origin {
                PriceOrigin::Own => offering.price.map(|price| price.to_string()),
                PriceOrigin::Borrowed => None,
            };
            let of_spot = offering.capacity_type == CapacityType::Spot;
            ExplainedOffering {
                zone: offering.zone.to_string(),
                capacity_type: offering.capacity_type.as_str(),
                price_assumed: price.is_some() && of_spot && simulated.spot_origin == SpotOrigin::Assumed,
                price_usd_per_hour: price,
            }
        };
        Self {
            instance_type: one.instance_type.to_string(),
            offerings: one.offerings.into_iter().map(offering).collect(),
        }
    }
}

impl ExplainedOffering {
    fn price(&self) -> String {
        if self.capacity_type == RESERVED {
            return RESERVED.to_owned();
        }
        let mark = if self.price_assumed { "~" } else { "" };
        self.price_usd_per_hour.as_ref().map_or_else(|| "-".to_owned(), |price| format!("{mark}{price}"))
    }
}

impl ExclusionDocument {
    fn new(one: &ExcludedTypes) -> Self {
        Self {
            cause: one.cause.into_str(),
            types: one.types.len(),
            examples: one.types.iter().take(EXAMPLES).map(ToString::to_string).collect(),
            message: one.cause.to_string(),
            remedy: one.cause.remedy(),
        }
    }
}
