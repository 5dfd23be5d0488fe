//! The invariants of classes' validation: what is told of a class agrees, and a repaired right is found again.
//!
//! Decides from the stored conditions and the time of the repair alone.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::class_status::{ConditionReason, ConditionStatus, ConditionType};
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;

use crate::invariants::Invariant;

/// How long a class may be told as denied after its right is back: the longest time between two dry runs.
pub const READY_AGAIN_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// The time between two checks, and some for the calls.
const CHECKED_EVERY: SignedDuration = SignedDuration::from_secs(90);

/// The conditions behind `Ready`.
const DEPENDENTS: [ConditionType; 7] = [
    ConditionType::AmisReady,
    ConditionType::SubnetsReady,
    ConditionType::SecurityGroupsReady,
    ConditionType::InstanceProfileReady,
    ConditionType::CapacityReservationsReady,
    ConditionType::PlacementGroupReady,
    ConditionType::ValidationSucceeded,
];

/// A class is ready exactly if all that it depends on holds, and nothing is both awaited and told as known.
///
/// # Errors The invariant, and the finding.
pub fn invariant_conditions_agree(
    region: &SimulatedRegion,
    cluster: &ClusterName,
) -> Result<(), (Invariant, String)> {
    for class in region.classes(cluster) {
        let told = class.conditions.iter().filter(|told| DEPENDENTS.contains(&told.condition));
        let holds = told.clone().all(|told| told.status == ConditionStatus::True);
        let ready = class.condition(ConditionType::Ready).map(|ready| ready.status);
        let awaited = |told: &&tenon_domain::class_status::Condition| {
            told.reason == ConditionReason::AwaitingValidation && told.status != ConditionStatus::Unknown
        };
        if (ready == Some(ConditionStatus::True)) != holds || told.clone().any(|told| awaited(&told)) {
            let text = format!(
                "the conditions of class {} contradict each other: {:?}",
                class.name, class.conditions
            );
            return Err((Invariant::ConditionsAgree, text));
        }
    }
    Ok(())
}

/// No class is told as denied for longer than a dry run takes to be repeated, once the right is back.
///
/// # Errors The invariant, and the finding.
pub fn invariant_validated_again(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (allowed_since, now): (Timestamp, Timestamp),
) -> Result<(), (Invariant, String)> {
    if now.duration_since(allowed_since) <= READY_AGAIN_WITHIN + CHECKED_EVERY {
        return Ok(());
    }
    for class in region.classes(cluster) {
        let told = class.condition(ConditionType::ValidationSucceeded);
        if told.is_some_and(|told| told.reason == ConditionReason::RunInstancesAuthCheckFailed) {
            let text = format!(
                "class {} is told as denied at {now}, and is allowed since {allowed_since}",
                class.name
            );
            return Err((Invariant::ValidatedAgain, text));
        }
    }
    Ok(())
}
