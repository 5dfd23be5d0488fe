//! The invariants of classes' readiness: what is told of a class agrees, and a class is ready again once the world is
//! right.
//!
//! Decides from the stored conditions and the time of the repair alone.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::class_status::{Condition, ConditionReason, ConditionStatus, ConditionType};
use tenon_domain::id::{ClusterName, NodeClassName};
use tenon_domain::tags;
use tenon_region::engine::SimulatedRegion;
use tenon_twin::RequestOutcome;

use crate::invariants::Invariant;
use crate::simulate::waiting_pods;

/// The time between two checks, and some for the calls.
pub const LOOKS: SignedDuration = SignedDuration::from_secs(90);

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

/// Since when classes are seen as not ready.
#[derive(Debug, Default)]
pub struct UnreadySince(BTreeMap<NodeClassName, Timestamp>);

impl UnreadySince {
    /// Samples the stored conditions.
    pub fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        for class in region.classes(cluster) {
            let ready = class.condition(ConditionType::Ready);
            if ready.is_some_and(|ready| ready.status == ConditionStatus::True) {
                self.0.remove(&class.name);
            } else {
                self.0.entry(class.name).or_insert(region.now());
            }
        }
    }

    /// Whether every class was ready at the last look.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// No class is not ready for longer than `lag`, the time that a sweep or a stated next try takes, once the world is right for it: its
/// images, network, instance profile and rights are there, EC2 answers and refuses no launch, and nobody edited it.
///
/// # Errors The invariant, and the finding.
pub fn invariant_ready_again(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    unready: &UnreadySince,
    (right_since, lag): (Timestamp, SignedDuration),
) -> Result<(), (Invariant, String)> {
    let refused_at = last_refused(region, cluster).unwrap_or(Timestamp::MIN);
    for (name, since) in &unready.0 {
        let since = right_since.max(*since).max(refused_at);
        if region.now().duration_since(since) > lag {
            let classes = region.classes(cluster);
            let told = classes.iter().find(|class| class.name == *name).map(|class| &class.conditions);
            // After a refused launch the next one decides, and nothing is launched for nobody.
            let refused = |one: &Condition| one.reason == ConditionReason::LaunchRefused;
            if told.is_some_and(|told| told.iter().any(refused)) && waiting_pods(region, cluster).is_empty() {
                continue;
            }
            let text = format!("class {name} isn't ready since {since}, and the world is right: {told:?}");
            return Err((Invariant::ReadyAgain, text));
        }
    }
    Ok(())
}

/// When EC2 last refused a request of the cluster as a whole.
fn last_refused(region: &SimulatedRegion, cluster: &ClusterName) -> Option<Timestamp> {
    let requests = region.twin().requests();
    let of_cluster = requests
        .iter()
        .rev()
        .filter(|request| request.tags.get(tags::CLUSTER).is_some_and(|name| name == cluster.as_str()));
    of_cluster
        .filter(|request| matches!(request.outcome, RequestOutcome::Refused(_)))
        .map(|request| request.at)
        .next()
}
