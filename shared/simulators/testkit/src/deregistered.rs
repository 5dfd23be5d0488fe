//! The invariant of load balancers: they have the time that a NodePool gives them.
//!
//! Decides from the manifests of the pools, and from the claims' own times. A drain that EC2 ends may leave them less.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::id::ClaimName;
use tenon_region::engine::SimulatedRegion;

use crate::history::ClusterMoment;
use crate::invariants::{Invariant, has_deadline};

/// The annotation, and the values that the worlds have.
pub(crate) const DEREGISTRATION: &str = "tenon.dev/load-balancer-deregistration";
pub(crate) const TIMES: [(&str, SignedDuration); 3] = [
    ("30s", SignedDuration::from_secs(30)),
    ("90s", SignedDuration::from_secs(90)),
    ("5m", SignedDuration::from_mins(5)),
];

/// The times of a cluster's pools, and since when its claims are drained.
#[derive(Debug, Default)]
pub(crate) struct Deregistrations {
    pools: BTreeMap<String, SignedDuration>,
    began: BTreeMap<ClaimName, Timestamp>,
}

impl Deregistrations {
    /// Those of a world's objects.
    pub(crate) fn of(objects: &[Value]) -> Self {
        let time = |object: &Value| {
            let written = object.pointer("/metadata/annotations")?.get(DEREGISTRATION)?.as_str()?;
            let (_, time) = TIMES.iter().find(|(text, _)| *text == written)?;
            Some((object.pointer("/metadata/name")?.as_str()?.to_owned(), *time))
        };
        Self { pools: objects.iter().filter_map(time).collect(), began: BTreeMap::new() }
    }
}

/// No instance is terminated before load balancers had the time of its pool, from the drain's begin. Instances
/// that fail a status check aside: their drain may end at once.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_deregistration_waited(
    region: &SimulatedRegion,
    moment: &ClusterMoment,
    seen: &mut Deregistrations,
) -> Result<(), (Invariant, String)> {
    let Deregistrations { pools, began } = seen;
    let is_impaired = |claim: &Claim| {
        let record = claim.state.instance().and_then(|held| region.twin().instance(&held.id));
        record.is_some_and(|record| !record.impaired.is_empty())
    };
    for claim in &moment.claims {
        let Some(time) = pools.get(claim.pool.as_str()) else { continue };
        match &claim.state {
            ClaimState::Draining { at, .. } => {
                began.insert(claim.name.clone(), *at);
            }
            ClaimState::Drained { reason, at, .. } | ClaimState::Terminating { reason, at, .. }
                if !has_deadline(*reason) && !is_impaired(claim) =>
            {
                let Some(since) = began.get(&claim.name) else { continue };
                if at.duration_since(*since) < *time {
                    let text = format!(
                        "claim {} was drained since {since}, and its instance ended at {at}: load balancers have \
                         {time:#} in its pool",
                        claim.name
                    );
                    return Err((Invariant::DeregistrationWaited, text));
                }
            }
            ClaimState::Planned
            | ClaimState::LaunchFailed { .. }
            | ClaimState::Launched { .. }
            | ClaimState::Registered { .. }
            | ClaimState::Initialized { .. }
            | ClaimState::Disrupting { .. }
            | ClaimState::Drained { .. }
            | ClaimState::Terminating { .. }
            | ClaimState::Terminated { .. } => {}
        }
    }
    Ok(())
}
