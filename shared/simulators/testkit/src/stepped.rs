//! The invariant of claims that aren't ready yet: each gets on, or ends, within its timeout.
//!
//! Decides from the claims' phases, and counts from the step at which it saw a phase first, whatever the claim's item says.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::ClaimPhase;
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_region::engine::SimulatedRegion;

use crate::consolidated::decides_nothing;
use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};
use crate::pace::HistoryPace;

/// How long a claim waits for EC2's answer, for its Node, and for its Node's readiness.
const TIMEOUTS: [(ClaimPhase, SignedDuration); 3] = [
    (ClaimPhase::Planned, SignedDuration::from_mins(12)),
    (ClaimPhase::Launched, SignedDuration::from_mins(15)),
    (ClaimPhase::Registered, SignedDuration::from_mins(30)),
];

/// The phases of claims that aren't ready yet, and since when.
#[derive(Debug, Default)]
pub(crate) struct PhasesSeen(BTreeMap<ClaimName, (ClaimPhase, Timestamp)>);

/// A claim leaves each phase before its timeout, and the time for a repair and for the longest outage. A halt and an agent
/// without a report begin the time anew.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_claims_step(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (moment, pace): (&ClusterMoment, HistoryPace),
    seen: &mut PhasesSeen,
) -> Found {
    if decides_nothing(region, cluster) {
        seen.0.clear();
        return Ok(());
    }
    let before = std::mem::take(&mut seen.0);
    let outage = SignedDuration::from_secs(pace.longest_outage().cast_signed());
    for claim in &moment.claims {
        let Some((phase, timeout)) = TIMEOUTS.iter().find(|(phase, _)| *phase == claim.phase()) else {
            continue;
        };
        let known = before.get(&claim.name).filter(|(known, _)| known == phase);
        let since = known.map_or(moment.at, |(_, since)| *since);
        let within = timeout.saturating_add(pace.repaired_within()).saturating_add(outage);
        if moment.at.duration_since(since) > within {
            let text = format!("claim {} is {phase} since {since}", claim.name);
            return Err((Invariant::ClaimsStep, text));
        }
        seen.0.insert(claim.name.clone(), (*phase, since));
    }
    Ok(())
}
