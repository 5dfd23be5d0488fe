//! Claims that count pods without their launch: somebody or something took the launch out of the table.
//!
//! Nobody knows the pods of such a claim, so a plan would make nodes for them once more at each look. Decides what
//! bounds that: a claim without an instance fails at once, and its pods are planned anew after a hold; otherwise no node
//! is planned until the claim's node has had time to take its pods, or ended. It terminates nothing: `lifecycle` stops
//! at an instance of an unknown launch.
//!
//! Invariant: a claim fails under the cluster's revision, which a launch's commit raises. So a launch that was committed
//! while the view was read is never taken for a lost one.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Pod;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchFailure, PodsCounted};
use tenon_domain::id::ClusterName;
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::report::{Finding, Report};
use tenon_domain::unavailable::FIRST_HOLD;
use tenon_domain::wake::FunctionName;
use tenon_state::step::Change;
use tenon_state::view::ClusterView;
use tenon_table::items::DecisionCounter;
use tenon_table::{Expect, WriteGroup};

use crate::execute::CLAIM_KEPT;

/// The reason of a failed claim and of the wait.
const LAUNCH_LOST: &str = "LaunchLost";
/// When planning is tried again while a claim without its launch is on its way.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// Doublings of the hold after lost launches, from [`FIRST_HOLD`]: to 16 minutes.
const DOUBLINGS: u32 = 4;
/// How long planning waits for such a claim: by then its node joined, or `lifecycle` ends the claim. Otherwise a node
/// that never becomes ready would hold every plan back.
const WAITED_FOR: SignedDuration = SignedDuration::from_mins(15);
/// A launch that was committed while the view was read seems to be lost: an invocation takes a minute at most.
const TOLD_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// What becomes of claims without their launch.
#[derive(Debug)]
pub(crate) struct LostLaunches {
    /// Claims that fail.
    pub(crate) failed: Vec<Claim>,
    /// Their writes, a group a claim.
    pub(crate) groups: Vec<WriteGroup>,
    /// When to look again.
    pub(crate) wake_at: Timestamp,
}

/// What becomes of claims that count pods and have no launch in the table; `None` if no claim fails and no pod of these
/// waits.
pub(crate) fn lost_launches(
    cluster: &ClusterName,
    view: &ClusterView,
    pods: &[Pod],
    told: &mut Report,
) -> Option<LostLaunches> {
    let counts = |claim: &&Claim| claim.counts_pods(view.now) != PodsCounted::No;
    let is_lost = |claim: &&Claim| !view.launches.contains_key(&claim.launch);
    let is_awaited = |claim: &&Claim| {
        claim.phase() == ClaimPhase::Planned || view.now.duration_since(claim.created_at) < WAITED_FOR
    };
    let lost: Vec<&Claim> = view.claims.values().filter(counts).filter(is_lost).filter(is_awaited).collect();
    let (planned, waiting): (Vec<&Claim>, Vec<&Claim>) =
        lost.into_iter().partition(|claim| claim.phase() == ClaimPhase::Planned);
    let held = held_until(view).filter(|until| view.now < *until);
    if planned.is_empty() && (pods.is_empty() || waiting.is_empty() && held.is_none()) {
        return None;
    }
    if let Some(until) = held {
        view.claims
            .values()
            .filter(|claim| lost_at(claim).is_some())
            .for_each(|claim| told.tell(holds(claim, until)));
    }
    for claim in waiting {
        if view.now.duration_since(claim.created_at) >= TOLD_AFTER {
            told.tell(waits(claim));
        }
    }
    let failed: Vec<(&Claim, Claim)> =
        planned.into_iter().filter_map(|claim| Some((claim, failed(claim, view.now)?))).collect();
    let group = |(before, after): &(&Claim, Claim)| {
        let mut change = Change::of(cluster);
        let until = view.now.saturating_add(CLAIM_KEPT).unwrap_or(view.now);
        change.last_of_claim(Expect::Revision(before.revision), after, until);
        change.record(&record(after, view.now), DecisionCounter::Subject(after.revision));
        change.group()
    };
    Some(LostLaunches {
        groups: failed.iter().map(group).collect(),
        failed: failed.into_iter().map(|(_, after)| after).collect(),
        wake_at: held.unwrap_or_else(|| view.now.saturating_add(AGAIN).unwrap_or(view.now)),
    })
}

/// When the claim failed for its lost launch.
fn lost_at(claim: &Claim) -> Option<Timestamp> {
    let ClaimState::LaunchFailed { at, failure } = &claim.state else { return None };
    (failure.reason == LAUNCH_LOST).then_some(*at)
}

/// Until when nothing is planned after launches were lost. The hold doubles with each time that this happened on the
/// last day, so a table that loses every launch isn't asked to keep one twice a second.
fn held_until(view: &ClusterView) -> Option<Timestamp> {
    let lost: BTreeSet<Timestamp> = view.claims.values().filter_map(lost_at).collect();
    let doublings = u32::try_from(lost.len().saturating_sub(1)).map_or(DOUBLINGS, |n| n.min(DOUBLINGS));
    lost.last()?.saturating_add(FIRST_HOLD.saturating_mul(1 << doublings)).ok()
}

fn failed(claim: &Claim, now: Timestamp) -> Option<Claim> {
    let message = format!(
        "the table has lost its launch `{}`: its pods are planned again in a minute at the earliest",
        claim.launch
    );
    let failure = LaunchFailure { reason: LAUNCH_LOST.to_owned(), message };
    claim.stepped(ClaimState::LaunchFailed { at: now, failure }).ok()
}

fn record(claim: &Claim, now: Timestamp) -> JournalRecord {
    let Claim { name, launch, .. } = claim;
    let message = format!(
        "NodeClaim `{name}` gets no instance: its launch `{launch}` isn't in the table any more; if EC2 launched one \
         all the same, `lifecycle` halts the cluster and says what to do"
    );
    let subject = Subject { kind: SubjectKind::Claim, name: name.to_string() };
    JournalRecord::new(subject, now, FunctionName::Provisioner.as_str(), Decision::LaunchFailed, message)
        .detail("launch", launch)
        .detail("reason", LAUNCH_LOST)
}

fn holds(claim: &Claim, until: Timestamp) -> Finding {
    Finding::waiting(
        Subject { kind: SubjectKind::Pool, name: claim.pool.to_string() },
        LAUNCH_LOST,
        "planning no nodes for {}",
        format!("launches were lost from the table: planning goes on at {until:.0}"),
    )
}

fn waits(claim: &Claim) -> Finding {
    let why = "its launch isn't in the table any more, so its pods aren't known, and a plan would launch another node for \
               them; planning goes on 30 s after its node is ready, or 15 minutes after the claim was made; delete the \
               NodeClaim to plan at once";
    Finding::waiting(
        Subject { kind: SubjectKind::Claim, name: claim.name.to_string() },
        LAUNCH_LOST,
        "planning no nodes because of {}",
        why,
    )
    .detail("launch", &claim.launch)
}
