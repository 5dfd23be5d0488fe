//! What sending a launch writes: its postponement, or its settlement.
//!
//! Invariant: a settlement that loses its race changes nothing, since the winner has settled the same launch.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClusterName;
use tenon_domain::launch::{Launch, LaunchState};
use tenon_ec2::port::CreateFleetRequest;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::step::Change;
use tenon_table::items::{DecisionCounter, InstanceOwner, keys, put, set, set_expiring};
use tenon_table::{CommitError, Expect, Write, commit_through_conflicts};

use crate::settle::{SettleFailure, Settlement};

/// How long a failed claim is kept.
pub(crate) const CLAIM_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// How long a launch without instances is kept.
const LAUNCH_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Writes when a launch is sent again.
pub(crate) async fn put_off<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    launch: &Launch,
    at: Timestamp,
) -> Result<(), HandlerError> {
    let attempts = match launch.state {
        LaunchState::Requested { attempts, .. } => attempts.saturating_add(1),
        LaunchState::Settled { .. } => return Ok(()),
    };
    let state = LaunchState::Requested { attempts, not_before: at };
    let next = Launch { revision: launch.revision.saturating_add(1), state, ..launch.clone() };
    let mut change = Change::of(cluster);
    change.replace(Expect::Revision(launch.revision), set(keys::launch(cluster, &launch.id), &next));
    change.count();
    unless_lost(commit_through_conflicts(ports.table(), &change.commit()).await)
}

/// Writes a settlement in one transaction. Its marks are written before, each in its own transaction.
pub(crate) async fn record<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    before: &Launch,
    settlement: &Settlement,
) -> Result<(), HandlerError> {
    let launch = &settlement.launch;
    let launch_key = keys::launch(cluster, &launch.id);
    let all_failed = settlement.claims.iter().all(|claim| claim.phase().is_final());
    let now = settlement.claims.first().and_then(|claim| claim.state.since()).unwrap_or_else(|| ports.now());
    let after = |kept: SignedDuration| now.saturating_add(kept).unwrap_or(now);
    let settled = if all_failed {
        set_expiring(launch_key, launch, after(LAUNCH_KEPT))
    } else {
        set(launch_key, launch)
    };
    let mut change = Change::of(cluster);
    change.replace(Expect::Revision(before.revision), settled);
    change.count();
    for claim in &settlement.claims {
        let before = Expect::Revision(claim.revision.saturating_sub(1));
        let Some(instance) = claim.state.instance() else {
            change.last_of_claim(before, claim, after(CLAIM_KEPT));
            continue;
        };
        change.claim(before, claim);
        let owner = InstanceOwner {
            instance: instance.id.clone(),
            cluster: cluster.clone(),
            claim: claim.name.clone(),
            offering: settlement.offerings.get(&instance.id).cloned(),
        };
        change.write(put(keys::instance(&instance.id), &owner));
    }
    if settlement.failed == Some(SettleFailure::TemplateMissing) {
        let request = CreateFleetRequest::from_stored(&before.request);
        let names = request.iter().flat_map(|request| &request.launch_templates).map(|t| t.name.clone());
        for name in names {
            change.write(Write::Delete { key: keys::template(cluster, &name) });
        }
    }
    let counted = keys::launch(cluster, &launch.id);
    for record in &settlement.records {
        change.record(record, DecisionCounter::Item(&counted, launch.revision));
    }
    unless_lost(commit_through_conflicts(ports.table(), &change.commit()).await)
}

/// Ignores a lost race: another run settled or postponed the launch.
fn unless_lost(outcome: Result<(), CommitError>) -> Result<(), HandlerError> {
    match outcome {
        Ok(()) | Err(CommitError::LostRace { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
