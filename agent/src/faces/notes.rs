//! Events about claims, with Karpenter's reasons where it has one (kubernetes-sigs/karpenter `pkg/events/reason.go`).
//!
//! Decides the words. A step's event is sent when the step is shown; a new leader may send it again.

use jiff::Timestamp;
use serde_json::Value;
use tenon_domain::claim::{AnnouncementKind, Claim, ClaimState, RemovalReason};
use tenon_snapshot::note::TOLD_AGAIN_AFTER;
use tenon_snapshot::object::{self, Kind, ObjectKey};
use tenon_snapshot::{Note, NoteKind};

use super::conditions;
use super::news::News;
use super::node_claim::{came_true, drain_deadline};

fn note(claim: &Claim, uid: &str, kind: NoteKind, reason: &str, message: String) -> Note {
    let about = ObjectKey::new(Kind::NodeClaim, "", claim.name.as_str());
    Note { about, uid: uid.to_owned(), kind, reason: reason.to_owned(), message }
}

/// EC2 gave an instance.
pub(super) fn launched(claim: &Claim) -> Option<Note> {
    let instance = claim.state.instance()?;
    let message = format!(
        "launched instance `{}` ({}, {}, {})",
        instance.id,
        instance.instance_type,
        instance.zone,
        instance.capacity_type.as_str()
    );
    Some(note(claim, "", NoteKind::Normal, "Launched", message))
}

/// The launch gave no instance. Without a NodeClaim, the event is about its pool; it is sent once, while it is
/// recent.
#[must_use]
pub fn note_of_failure(claim: &Claim, now: Timestamp) -> Option<Note> {
    let ClaimState::LaunchFailed { at, failure } = &claim.state else { return None };
    (now.duration_since(*at) < TOLD_AGAIN_AFTER).then(|| Note {
        about: ObjectKey::new(Kind::NodePool, "", claim.pool.as_str()),
        uid: String::new(),
        kind: NoteKind::Warning,
        reason: failure.reason.clone(),
        message: format!("no instance for NodeClaim `{}`: {}", claim.name, failure.message),
    })
}

/// Steps that are about to be shown.
pub(super) fn transitions(claim: &Claim, object: &Value, status: &Value) -> Vec<Note> {
    let node = claim.state.node().map_or_else(String::new, ToString::to_string);
    let steps = [
        ("Registered", "Registered", format!("Node `{node}` registered")),
        ("Initialized", "Initialized", format!("Node `{node}` is initialised")),
        ("DisruptionReason", "DisruptionLaunching", "launching its replacement, before it goes".to_owned()),
        (
            "DisruptionReason",
            "DisruptionWaitingReadiness",
            "waiting for its replacement to be ready".to_owned(),
        ),
    ];
    let uid = object::uid(object);
    steps
        .into_iter()
        .filter(|(kind, ..)| came_true(object, status, kind))
        .filter(|(kind, ..)| *kind != "DisruptionReason" || claim.state.removal().is_none())
        .map(|(_, reason, message)| note(claim, uid, NoteKind::Normal, reason, message))
        .collect()
}

/// Events of a leaving claim, for the claim and its Node.
pub(super) fn removal(claim: &Claim, object: &Value, node: Option<&Value>) -> Vec<Note> {
    let Some(removal) = claim.state.removal() else { return Vec::new() };
    let (reason, kind) = match removal {
        RemovalReason::Drifted
        | RemovalReason::Empty
        | RemovalReason::Underutilized
        | RemovalReason::Deleted
        | RemovalReason::Expired => ("DisruptionTerminating", NoteKind::Normal),
        RemovalReason::SpotInterrupted => ("SpotInterrupted", NoteKind::Warning),
        RemovalReason::CapacityReservationInterrupted => {
            ("CapacityReservationInstanceInterrupted", NoteKind::Warning)
        }
        RemovalReason::RebalanceRecommended => ("SpotRebalanceRecommendation", NoteKind::Normal),
        RemovalReason::ScheduledChange => ("InstanceUnhealthy", NoteKind::Warning),
        RemovalReason::InstanceStopped => ("InstanceStopping", NoteKind::Warning),
        RemovalReason::InstanceTerminated => ("InstanceTerminating", NoteKind::Warning),
        RemovalReason::RegistrationTimeout => ("RegistrationTimeout", NoteKind::Warning),
        RemovalReason::Unhealthy => ("NodeUnhealthy", NoteKind::Warning),
        RemovalReason::InitializationTimeout => ("InitializationTimeout", NoteKind::Warning),
    };
    let told = |kind, reason: &str, message| note(claim, object::uid(object), kind, reason, message);
    let removed = told(kind, reason, format!("removing NodeClaim `{}` ({})", claim.name, removal.words()));
    let interrupted = is_taken(removal).then(|| {
        let message = format!("draining the node before EC2 ends its instance ({})", removal.words());
        told(NoteKind::Warning, "TerminatingOnInterruption", message)
    });
    let ends = drain_deadline(claim).map(|deadline| {
        let message = format!("all pods are deleted by `{}`", conditions::seconds(deadline));
        told(NoteKind::Warning, "TerminationGracePeriodExpiring", message)
    });
    let all = std::iter::once(removed).chain(interrupted).chain(ends);
    all.flat_map(|of_claim| with_node(of_claim, node)).collect()
}

/// Whether EC2 takes, stops or changes the instance.
const fn is_taken(removal: RemovalReason) -> bool {
    matches!(
        removal,
        RemovalReason::SpotInterrupted
            | RemovalReason::CapacityReservationInterrupted
            | RemovalReason::ScheduledChange
            | RemovalReason::InstanceStopped
            | RemovalReason::InstanceTerminated
    )
}

/// What EC2 announced about the instance of a claim that stays for now.
pub(super) fn announced(claim: &Claim, object: &Value, node: Option<&Value>) -> Vec<News> {
    let Some(announced) = claim.announced.filter(|_| claim.state.removal().is_none()) else {
        return Vec::new();
    };
    let (kind, reason, message) = match (announced.kind, announced.starts_at) {
        (AnnouncementKind::RebalanceRecommendation, _) => {
            let message = "EC2 recommends to move its pods: it may take the spot instance back".to_owned();
            (NoteKind::Normal, "SpotRebalanceRecommendation", message)
        }
        (AnnouncementKind::ScheduledChange, starts_at) => {
            let at = starts_at.map_or_else(String::new, |at| format!(" at `{}`", conditions::seconds(at)));
            (NoteKind::Warning, "InstanceUnhealthy", format!("EC2 announced a change of its instance{at}"))
        }
    };
    let of_claim = note(claim, object::uid(object), kind, reason, message);
    let news = |note| News { of: format!("{reason} {}", claim.name), at: announced.at, note };
    with_node(of_claim, node).map(news).collect()
}

/// The Event of a claim, and the same of its Node.
fn with_node(of_claim: Note, node: Option<&Value>) -> impl Iterator<Item = Note> {
    let of_node = node.map(|node| Note {
        about: ObjectKey::node(object::name(node)),
        uid: object::uid(node).to_owned(),
        ..of_claim.clone()
    });
    std::iter::once(of_claim).chain(of_node)
}
