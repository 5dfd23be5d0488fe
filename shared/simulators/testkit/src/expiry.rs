//! Pools whose nodes expire, and the invariant that expired nodes go.
//!
//! Decides from the NodePools and the claims when nothing keeps an expired node any longer.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, RemovalReason};
use tenon_domain::id::ClusterName;
use tenon_domain::labels::EXPIRE_WITHIN_BUDGETS;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{name, text, text_map};

use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};
use crate::random::Dice;
use crate::world::set;

/// How long an expired node waits for budgets, if its pool says nothing else.
const WAITS: SignedDuration = SignedDuration::from_hours(24);
/// How late a node may go that nothing keeps any longer: its agent may be silent for four minutes and more than once, and
/// the sweeps after that may be lost.
const GOES_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// Lets the nodes of these objects' pools expire within a history.
pub(crate) fn expire(objects: &mut [Value], dice: &mut Dice) {
    for pool in objects.iter_mut().filter(|object| object["kind"] == "NodePool") {
        let after = dice.pick(&["10m", "20m", "30m"]).copied().unwrap_or("20m");
        let wait = dice.pick(&["0s", "5m", "10m"]).copied().unwrap_or("5m");
        set(pool, &["spec", "template", "spec", "expireAfter"], json!(after));
        set(pool, &["metadata", "annotations", EXPIRE_WITHIN_BUDGETS], json!(wait));
    }
}

/// Ends expiry. The nodes so far drift by that, and their successors stay, so that a region can settle.
pub(crate) fn end_expiry(region: &SimulatedRegion, cluster: &ClusterName) {
    let Some(site) = region.site(cluster) else { return };
    for known in site.cluster().objects(Kind::NodePool) {
        let mut pool = Value::clone(&known);
        set(&mut pool, &["spec", "template", "spec", "expireAfter"], json!("Never"));
        let _ = site.cluster().apply(pool);
    }
}

/// How long after their making nodes go whatever budgets say, by pool: their age, and their wait. Pools whose nodes don't
/// expire are left out.
pub(crate) struct ExpiryWaits(BTreeMap<String, SignedDuration>);

impl ExpiryWaits {
    /// As the NodePools of a cluster say.
    pub(crate) fn of(region: &SimulatedRegion, cluster: &ClusterName) -> Self {
        let pools = region.site(cluster).map(|site| site.cluster().objects(Kind::NodePool));
        let last = |pool: &Value| {
            let age: SignedDuration = text(pool, "/spec/template/spec/expireAfter")?.parse().ok()?;
            let told = text_map(pool, "/metadata/annotations");
            let wait = told.get(EXPIRE_WITHIN_BUDGETS).and_then(|wait| wait.parse().ok());
            age.checked_add(wait.unwrap_or(WAITS))
        };
        let pools = pools.iter().flatten();
        Self(pools.filter_map(|pool| Some((name(pool).to_owned(), last(pool)?))).collect())
    }

    /// When nothing keeps the claim any longer; `None` if it doesn't expire, or its pool is gone.
    fn forced_at(&self, claim: &Claim) -> Option<Timestamp> {
        claim.created_at.checked_add(*self.0.get(claim.pool.as_str())?).ok()
    }

    /// Whether the claim goes for its age, within budgets.
    pub(crate) fn is_within_budgets(&self, claim: &Claim) -> bool {
        self.expired_at(claim).is_some_and(|(at, forced)| at < forced)
    }

    /// Whether the claim goes for its age, whatever budgets say.
    pub(crate) fn is_forced(&self, claim: &Claim) -> bool {
        matches!(claim.state, ClaimState::Draining { .. })
            && self.expired_at(claim).is_some_and(|(at, forced)| at >= forced)
    }

    /// When a claim that goes for its age began to drain, or was drained, and when nothing keeps it any longer.
    fn expired_at(&self, claim: &Claim) -> Option<(Timestamp, Timestamp)> {
        match claim.state {
            ClaimState::Draining { at, reason: RemovalReason::Expired, .. }
            | ClaimState::Drained { at, reason: RemovalReason::Expired, .. } => {
                Some((at, self.forced_at(claim)?))
            }
            ClaimState::Planned
            | ClaimState::LaunchFailed { .. }
            | ClaimState::Launched { .. }
            | ClaimState::Registered { .. }
            | ClaimState::Initialized { .. }
            | ClaimState::Disrupting { .. }
            | ClaimState::Draining { .. }
            | ClaimState::Drained { .. }
            | ClaimState::Terminating { .. }
            | ClaimState::Terminated { .. } => None,
        }
    }
}

/// An expired node goes at the latest once its wait for budgets is over.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_expired_nodes_go(moment: &ClusterMoment, waits: &ExpiryWaits) -> Found {
    use ClaimPhase::{Disrupting, Initialized, Registered};
    let stays = |claim: &Claim| matches!(claim.phase(), Registered | Initialized | Disrupting);
    for claim in moment.claims.iter().filter(|claim| stays(claim)) {
        if let Some(forced) = waits.forced_at(claim)
            && moment.at.duration_since(forced) > GOES_WITHIN
        {
            let (name, phase) = (&claim.name, claim.phase());
            let text =
                format!("claim {name} is {phase}, but nothing keeps it since {forced}: it has expired");
            return Err((Invariant::ExpiredNodesGo, text));
        }
    }
    Ok(())
}
