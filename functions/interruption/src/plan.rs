//! The effect of an interruption on a claim.
//!
//! Decides from an [`InterruptionInput`] alone. A drain that began for another reason ends when EC2 ends the instance. A
//! second plan for the same warning is empty.

use jiff::Timestamp;
use tenon_domain::claim::{
    AnnouncementKind, Claim, ClaimPhase, ClaimState, InstanceAnnouncement, LaunchedInstance, RemovalReason,
    forced_at,
};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::labels::REBALANCE;
use tenon_domain::unavailable::{
    Mark, OfferingKey, RESERVATION_INTERRUPTION, Refusal, RefusalCause, SPOT_INTERRUPTION, UnavailableKey,
};
use tenon_domain::wake::{InterruptionKind, NOTICE};
use tenon_snapshot::NodeAction;
use tenon_state::action::{Registration, asked};

use crate::NAME;

/// The input of a plan.
#[derive(Debug)]
pub struct InterruptionInput {
    /// The time.
    pub now: Timestamp,
    /// The cluster.
    pub cluster: ClusterName,
    /// The instance.
    pub instance: InstanceId,
    /// How it is interrupted.
    pub kind: InterruptionKind,
    /// When EC2 ends it, if its event has the time.
    pub deadline: Option<Timestamp>,
    /// The claim that owns it.
    pub claim: Claim,
    /// Its offering, if it is known.
    pub offering: Option<OfferingKey>,
    /// The stored mark of its reservation, or else of its offering.
    pub mark: Option<Mark>,
}

/// The writes and announcements.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct InterruptionPlan {
    /// The claim after its step, where it takes one.
    pub claim: Option<Claim>,
    /// The target state of its Node.
    pub action: Option<NodeAction>,
    /// The mark of the offering, or of the reservation, that is avoided, after this.
    pub mark: Option<Mark>,
    /// The decision.
    pub journal: Option<JournalRecord>,
    /// The event's detail.
    pub event: Option<Event>,
}

/// An announcement of an interruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The claim.
    pub claim: String,
    /// The instance.
    pub instance: String,
    /// The Node, if it ever joined.
    pub node: Option<String>,
    /// Why.
    pub reason: &'static str,
    /// When EC2 takes the instance at the latest.
    pub deadline: Option<Timestamp>,
}

/// Plans; `None` if the claim has another instance, or the warning nothing new: EC2 may send an event twice.
#[must_use]
pub fn plan(input: &InterruptionInput) -> Option<InterruptionPlan> {
    let held = input.claim.state.instance().filter(|held| held.id == input.instance)?;
    match input.claim.phase() {
        ClaimPhase::Launched | ClaimPhase::Registered | ClaimPhase::Initialized | ClaimPhase::Disrupting => {
            match announcement(input) {
                Some(announced) => announce(input, held, announced),
                None => begin(input, held),
            }
        }
        ClaimPhase::Draining => hasten(input, held),
        ClaimPhase::Drained | ClaimPhase::Terminating | ClaimPhase::Terminated => avoid(input),
        ClaimPhase::Planned | ClaimPhase::LaunchFailed => None,
    }
}

/// Why the claim leaves, and when EC2 ends its instance, where that is known; `None` for a recommendation.
fn leaves(input: &InterruptionInput) -> Option<(RemovalReason, Option<Timestamp>)> {
    match input.kind {
        InterruptionKind::Spot => Some((RemovalReason::SpotInterrupted, deadline(input))),
        InterruptionKind::CapacityReservation => {
            Some((RemovalReason::CapacityReservationInterrupted, deadline(input)))
        }
        InterruptionKind::ScheduledChange => {
            Some((RemovalReason::ScheduledChange, input.deadline.filter(|at| input.now < *at)))
        }
        InterruptionKind::Rebalance => None,
    }
}

/// Begins the drain.
fn begin(input: &InterruptionInput, held: &LaunchedInstance) -> Option<InterruptionPlan> {
    let (reason, ends_at) = leaves(input)?;
    let node = input.claim.state.node().cloned();
    // Its own `terminationGracePeriod` bounds this drain, too.
    let drained_by = input.claim.terms.map_or(ends_at, |terms| terms.deadline(input.now, ends_at));
    let (instance, at) = (held.clone(), input.now);
    let to = ClaimState::Draining { instance, node, reason, at, deadline: drained_by };
    let claim = input.claim.stepped(to).ok()?;
    let message = drains(&claim, reason, &why(input, held, ends_at));
    Some(drained(input, held, (claim, ends_at), message))
}

/// Ends a drain earlier that began for another reason, maybe long ago. It becomes the interruption's, so that its pods, too,
/// stay until their replacements are ready. One that ends as early is left as it is.
fn hasten(input: &InterruptionInput, held: &LaunchedInstance) -> Option<InterruptionPlan> {
    if announcement(input).is_some() {
        return None;
    }
    let ClaimState::Draining { reason: before, deadline: until, node, .. } = &input.claim.state else {
        return None;
    };
    let (reason, ends_at) = leaves(input)?;
    let Some(end) = ends_at.filter(|end| until.is_none_or(|until| *end < until)) else { return avoid(input) };
    let (instance, node) = (held.clone(), node.clone());
    let state = ClaimState::Draining { instance, node, reason, at: input.now, deadline: Some(end) };
    let revision = input.claim.revision.saturating_add(1);
    let claim = Claim { state, revision, ..input.claim.clone() };
    let ends = why(input, held, ends_at);
    let why = format!("{ends}, so the drain that began before ({}) ends then", before.words());
    let message = drains(&claim, reason, &why);
    Some(drained(input, held, (claim, ends_at), message))
}

/// Marks the capacity of an instance that goes already. An event that comes again later tells of a time that is over.
fn avoid(input: &InterruptionInput) -> Option<InterruptionPlan> {
    deadline(input).filter(|end| input.now < *end)?;
    Some(InterruptionPlan { mark: Some(mark(input)?), ..InterruptionPlan::default() })
}

/// The plan for a claim that drains now, and whose instance EC2 ends then.
fn drained(
    input: &InterruptionInput,
    held: &LaunchedInstance,
    (claim, ends_at): (Claim, Option<Timestamp>),
    message: String,
) -> InterruptionPlan {
    let reason = claim.state.removal().map_or("", RemovalReason::as_str);
    InterruptionPlan {
        // The previous action isn't read, which would cost another call: no action removes labels, annotations or
        // taints.
        action: asked(&claim, None, |_| Registration::default()),
        mark: mark(input),
        journal: Some(record(input, held, Decision::Draining, message).detail("reason", reason)),
        event: Some(event(input, held, reason, ends_at)),
        claim: Some(claim),
    }
}

fn drains(claim: &Claim, reason: RemovalReason, why: &str) -> String {
    format!("draining NodeClaim `{}` ({}): {why}", claim.name, reason.words())
}

fn why(input: &InterruptionInput, held: &LaunchedInstance, ends_at: Option<Timestamp>) -> String {
    let instance = &held.id;
    match (input.kind, ends_at) {
        (InterruptionKind::ScheduledChange, Some(at)) => {
            format!("AWS Health announced a change of instance `{instance}` at `{at:.0}`")
        }
        (_, Some(at)) => format!("EC2 takes instance `{instance}` back at `{at:.0}`"),
        (_, None) => format!("AWS Health announced a change of instance `{instance}`"),
    }
}

/// EC2's deadline; without one in the warning, the usual notice from now on.
fn deadline(input: &InterruptionInput) -> Option<Timestamp> {
    input.deadline.or_else(|| input.now.checked_add(NOTICE).ok())
}

/// What the claim may stay with for now: a change that isn't near, or a recommendation. Its instance may live on for days.
fn announcement(input: &InterruptionInput) -> Option<InstanceAnnouncement> {
    let (kind, starts_at) = match input.kind {
        InterruptionKind::ScheduledChange => {
            let starts_at = input.deadline.filter(|at| forced_at(*at).is_some_and(|at| input.now < at))?;
            (AnnouncementKind::ScheduledChange, Some(starts_at))
        }
        InterruptionKind::Rebalance => (AnnouncementKind::RebalanceRecommendation, None),
        InterruptionKind::Spot | InterruptionKind::CapacityReservation => return None,
    };
    Some(InstanceAnnouncement { kind, at: input.now, starts_at })
}

/// Records an announcement on the claim: its pool decides what becomes of the node. One that the claim knows is told once.
fn announce(
    input: &InterruptionInput,
    held: &LaunchedInstance,
    announced: InstanceAnnouncement,
) -> Option<InterruptionPlan> {
    let claim = input.claim.announced(announced)?;
    let (name, instance) = (&claim.name, &held.id);
    let message = match announced.starts_at {
        Some(at) => format!(
            "NodeClaim `{name}` is replaced within its NodePool's budgets, or drained a day before: AWS Health announced a \
             change of instance `{instance}` at `{at:.0}`"
        ),
        // Nothing is read here but the claim: the pool decides.
        None => format!(
            "EC2 recommends to move the pods of NodeClaim `{name}` from instance `{instance}`, which it may take back: \
             NodePool `{}` decides by annotation `{REBALANCE}`; `ReplaceFirst` and `Drain` move them, without it they stay",
            claim.pool
        ),
    };
    Some(InterruptionPlan {
        journal: Some(record(input, held, Decision::Announced, message)),
        event: Some(event(input, held, announced.kind.as_str(), announced.starts_at)),
        claim: Some(claim),
        ..InterruptionPlan::default()
    })
}

/// EC2 gives the capacity to someone else. A mark that says so is left unchanged.
fn mark(input: &InterruptionInput) -> Option<Mark> {
    let held = input.claim.state.instance()?;
    let (key, code) = match input.kind {
        InterruptionKind::Spot => (UnavailableKey::Offering(input.offering.clone()?), SPOT_INTERRUPTION),
        // An open reservation takes any matching instance; only a reservation that the launch named is marked.
        InterruptionKind::CapacityReservation => {
            (UnavailableKey::Reservation(held.reservation.as_ref()?.id.clone()), RESERVATION_INTERRUPTION)
        }
        InterruptionKind::Rebalance | InterruptionKind::ScheduledChange => return None,
    };
    let cause = RefusalCause::Interruption;
    let refusal = Refusal { key: &key, code, cluster: &input.cluster, cause, vcpus: None, now: input.now };
    Mark::refused(input.mark.as_ref().filter(|mark| mark.key == key), &refusal)
}

fn record(
    input: &InterruptionInput,
    held: &LaunchedInstance,
    decision: Decision,
    message: String,
) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Claim, name: input.claim.name.to_string() };
    let record = JournalRecord::new(subject, input.now, NAME, decision, message)
        .detail("instance", &held.id)
        .detail("instanceType", &held.instance_type)
        .detail("zone", &held.zone)
        .detail("capacityType", held.capacity_type.as_str());
    match input.claim.state.node() {
        Some(node) => record.detail("node", node),
        None => record,
    }
}

fn event(
    input: &InterruptionInput,
    held: &LaunchedInstance,
    reason: &'static str,
    deadline: Option<Timestamp>,
) -> Event {
    Event {
        claim: input.claim.name.to_string(),
        instance: held.id.to_string(),
        node: input.claim.state.node().map(ToString::to_string),
        reason,
        deadline,
    }
}
