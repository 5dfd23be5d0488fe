//! What files say in the status of Karpenter's objects.
//!
//! Decides whether a NodePool or an EC2NodeClass is ready by its conditions, which capacity reservations and images a class
//! has, and what a NodeClaim's Node will have.
//! Nothing in a running cluster depends on it: `node-classes` resolves classes itself. Users don't write statuses, so a part
//! that can't be read counts as absent.
//!
//! Invariant: of objects that are given twice, the last one counts.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::class_status::{ConditionReason, ConditionStatus, ConditionType, DEPENDENTS};
use crate::id::{ClaimName, InstanceType, NodeClassName, NodePoolName, ReservationId, Zone};
use crate::quantity::Quantity;
use crate::requirement::{NodeSelectorRequirement, Operator, Requirement, Requirements};
use crate::reservation::{ClassReservation, MatchCriteria, ReservationKind, ReservationState};
use crate::resources::{ResourceList, ResourceName};

/// The statuses of files, by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatedStatuses {
    node_pools: BTreeMap<String, StatedReadiness>,
    node_classes: BTreeMap<String, StatedClass>,
    node_claims: BTreeMap<String, ResourceList>,
}

/// The status of an EC2NodeClass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatedClass {
    /// Its conditions.
    pub readiness: StatedReadiness,
    /// `status.capacityReservations`.
    pub reservations: Vec<StatedReservation>,
    /// `status.amis`: what each image requires of the types that launch with it.
    pub images: Vec<Requirements>,
}

/// Whether an object is ready, by its condition `Ready` and those behind it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StatedReadiness {
    /// It has no such condition.
    #[default]
    Unstated,
    /// It is.
    Ready,
    /// It isn't, and only a launch can show whether EC2 allows launches.
    LeftToLaunch,
    /// It isn't.
    NotReady {
        /// The reason of the first condition that isn't True.
        reason: String,
        /// Its message, without the full stop.
        message: Option<String>,
    },
}

/// One of `status.capacityReservations`, which have no count of free instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedReservation {
    /// The reservation; it has no free instances.
    pub resolved: ClassReservation,
    /// `state`.
    pub state: ReservationState,
}

impl StatedStatuses {
    /// The readiness of a NodePool.
    #[must_use]
    pub fn node_pool(&self, name: &NodePoolName) -> &StatedReadiness {
        self.node_pools.get(name.as_str()).unwrap_or(&StatedReadiness::Unstated)
    }

    /// The status of an EC2NodeClass.
    #[must_use]
    pub fn node_class(&self, name: &NodeClassName) -> &StatedClass {
        const NOTHING: &StatedClass = &StatedClass {
            readiness: StatedReadiness::Unstated,
            reservations: Vec::new(),
            images: Vec::new(),
        };
        self.node_classes.get(name.as_str()).unwrap_or(NOTHING)
    }

    /// `status.allocatable` of a NodeClaim: what its Node has once all of it is registered.
    #[must_use]
    pub fn node_claim(&self, name: &ClaimName) -> Option<&ResourceList> {
        self.node_claims.get(name.as_str())
    }

    /// Adds the status of an object, if it is a NodePool, an EC2NodeClass or a NodeClaim of Karpenter's. `listed` is the kind that a
    /// list gives its items.
    pub(super) fn add(&mut self, object: &Value, listed: Option<&str>) {
        let Some(name) = object.pointer("/metadata/name").and_then(Value::as_str) else { return };
        let text = |key: &str| object.get(key).and_then(Value::as_str);
        let version = text("apiVersion");
        let is_of = |wanted: &str| {
            version.is_none_or(|version| version.split_once('/').is_some_and(|(group, _)| group == wanted))
        };
        match text("kind").or(listed) {
            Some("NodePool") if is_of("karpenter.sh") => {
                self.node_pools.insert(name.to_owned(), readiness(object));
            }
            Some("EC2NodeClass") if is_of("karpenter.k8s.aws") => {
                let listed =
                    |path: &str| object.pointer(path).and_then(Value::as_array).into_iter().flatten();
                let class = StatedClass {
                    readiness: readiness(object),
                    reservations: listed("/status/capacityReservations").filter_map(reservation).collect(),
                    images: listed("/status/amis").filter_map(image).collect(),
                };
                self.node_classes.insert(name.to_owned(), class);
            }
            Some("NodeClaim") if is_of("karpenter.sh") => {
                self.node_claims.insert(name.to_owned(), allocatable(object));
            }
            Some(_) | None => {}
        }
    }
}

/// A condition in the object's own words.
struct StatedCondition<'v> {
    condition: &'v str,
    status: &'v str,
    reason: &'v str,
    message: &'v str,
}

fn readiness(object: &Value) -> StatedReadiness {
    let listed = object.pointer("/status/conditions").and_then(Value::as_array);
    let conditions: Vec<StatedCondition<'_>> = listed.into_iter().flatten().filter_map(condition).collect();
    let of = |wanted: ConditionType| conditions.iter().find(|found| found.condition == wanted.as_str());
    let holds = |found: &StatedCondition<'_>| found.status == ConditionStatus::True.as_str();
    let Some(ready) = of(ConditionType::Ready) else { return StatedReadiness::Unstated };
    if holds(ready) {
        return StatedReadiness::Ready;
    }
    let behind: Vec<&StatedCondition<'_>> =
        DEPENDENTS.into_iter().filter_map(of).filter(|found| !holds(found)).collect();
    let judged = if behind.is_empty() { vec![ready] } else { behind };
    let left = |found: &StatedCondition<'_>| {
        ConditionReason::parse(found.reason).is_some_and(ConditionReason::is_decided_by_launch)
    };
    match judged.into_iter().find(|found| !left(found)) {
        None => StatedReadiness::LeftToLaunch,
        Some(obstacle) => {
            let StatedCondition { condition, status: _, reason, message } = *obstacle;
            let reason = if reason.is_empty() { condition } else { reason };
            let message = message.trim().trim_end_matches('.');
            StatedReadiness::NotReady {
                reason: reason.to_owned(),
                message: (!message.is_empty()).then(|| message.to_owned()),
            }
        }
    }
}

fn condition(value: &Value) -> Option<StatedCondition<'_>> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    Some(StatedCondition {
        condition: text("type")?,
        status: text("status").unwrap_or_default(),
        reason: text("reason").unwrap_or_default(),
        message: text("message").unwrap_or_default(),
    })
}

/// What an image requires; one that can't be read is none.
fn image(value: &Value) -> Option<Requirements> {
    let listed = value.get("requirements").and_then(Value::as_array);
    listed.into_iter().flatten().map(requirement).collect()
}

fn requirement(value: &Value) -> Option<Requirement> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let values = value.get("values").and_then(Value::as_array).into_iter().flatten();
    let written = NodeSelectorRequirement {
        key: text("key")?.to_owned(),
        operator: Operator::parse(text("operator")?)?,
        values: values.filter_map(Value::as_str).map(str::to_owned).collect(),
        min_values: None,
    };
    Requirement::parse(&written).ok()
}

fn allocatable(object: &Value) -> ResourceList {
    let listed = object.pointer("/status/allocatable").and_then(Value::as_object);
    let quantity = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let amount =
        |(name, value): (&String, &Value)| Some((ResourceName::parse(name.as_str()).ok()?, quantity(value)?));
    listed.into_iter().flatten().filter_map(amount).collect()
}

/// A reservation; what older statuses lack has Karpenter's default.
fn reservation(value: &Value) -> Option<StatedReservation> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let kind = text("reservationType").unwrap_or(ReservationKind::Default.as_str());
    let kind = match value.get("interruptible").and_then(Value::as_bool) {
        Some(true) => ReservationKind::Interruptible,
        Some(false) | None => ReservationKind::parse(kind)?,
    };
    let criteria = text("instanceMatchCriteria").unwrap_or(MatchCriteria::Targeted.as_str());
    let state = text("state").unwrap_or(ReservationState::Active.as_str());
    Some(StatedReservation {
        resolved: ClassReservation {
            id: ReservationId::parse(text("id")?).ok()?,
            owner: text("ownerID").unwrap_or_default().to_owned(),
            instance_type: InstanceType::parse(text("instanceType")?).ok()?,
            zone: Zone::parse(text("availabilityZone")?).ok()?,
            match_criteria: MatchCriteria::parse(criteria)?,
            kind,
            ends_at: None,
            available: 0,
        },
        state: ReservationState::parse(state)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(conditions: Value, expected: StatedReadiness) {
        let mut statuses = StatedStatuses::default();
        let status = json!({"conditions": conditions});
        for kind in ["NodePool", "EC2NodeClass"] {
            statuses.add(&json!({"kind": kind, "metadata": {"name": "a"}, "status": status.clone()}), None);
        }
        assert_eq!(*statuses.node_pool(&NodePoolName::parse("a").unwrap()), expected, "{status}");
        let class = statuses.node_class(&NodeClassName::parse("a").unwrap());
        assert_eq!(class.readiness, expected, "{status}");
    }

    #[test]
    fn the_first_condition_that_no_launch_can_mend_is_the_reason() {
        let not = |reason: &str| StatedReadiness::NotReady { reason: reason.to_owned(), message: None };
        let of = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason});
        check(Value::Null, StatedReadiness::Unstated);
        check(json!([]), StatedReadiness::Unstated);
        check(json!([of("SubnetsReady", "False", "SubnetsNotFound")]), StatedReadiness::Unstated);
        check(json!([of("Ready", "True", "Ready")]), StatedReadiness::Ready);
        check(json!([of("Ready", "False", "SubnetsNotReady")]), not("SubnetsNotReady"));
        check(json!([{"type": "Ready", "status": "Unknown"}]), not("Ready"));
        let ready = || of("Ready", "False", "UnhealthyDependents");
        let validation = || of("ValidationSucceeded", "False", "DependenciesNotReady");
        check(json!([validation(), of("AMIsReady", "False", "AMINotFound"), ready()]), not("AMINotFound"));
        let mut told = of("Ready", "False", "NoClass");
        told["message"] = json!("no such class. ");
        let message = Some("no such class".to_owned());
        check(json!([told]), StatedReadiness::NotReady { reason: "NoClass".to_owned(), message });
        check(
            json!([of("ValidationSucceeded", "Unknown", "AwaitingValidation"), ready()]),
            StatedReadiness::LeftToLaunch,
        );
    }

    #[test]
    fn a_list_gives_its_kind_and_another_groups_objects_have_no_say() {
        let ready =
            |status: &str| json!({"conditions": [{"type": "Ready", "status": status, "reason": "No"}]});
        let object = |head: Value, status: &str| {
            let mut object = json!({"metadata": {"name": "a"}, "status": ready(status)});
            for (key, value) in head.as_object().unwrap() {
                object[key] = value.clone();
            }
            object
        };
        let mut statuses = StatedStatuses::default();
        let name = NodePoolName::parse("a").unwrap();
        statuses.add(&object(json!({}), "True"), Some("NodePool"));
        assert_eq!(*statuses.node_pool(&name), StatedReadiness::Ready);
        for version in ["eks.amazonaws.com/v1", "v1"] {
            statuses.add(&object(json!({"apiVersion": version, "kind": "NodePool"}), "False"), None);
            assert_eq!(*statuses.node_pool(&name), StatedReadiness::Ready, "{version}");
        }
        statuses.add(&object(json!({"apiVersion": "karpenter.sh/v1"}), "False"), Some("NodePool"));
        assert_eq!(
            *statuses.node_pool(&name),
            StatedReadiness::NotReady { reason: "No".to_owned(), message: None }
        );
    }

    #[test]
    fn reservations_are_read_and_malformed_ones_are_none() {
        let mut statuses = StatedStatuses::default();
        let object = json!({"kind": "EC2NodeClass", "metadata": {"name": "a"}, "status": {"capacityReservations": [
            {"id": "cr-1", "availabilityZone": "us-east-1a", "instanceType": "m5.large", "ownerID": "123456789012",
                "instanceMatchCriteria": "targeted", "reservationType": "default", "state": "active"},
            {"id": "cr-2", "availabilityZone": "us-east-1b", "instanceType": "p5.48xlarge",
                "reservationType": "capacity-block", "state": "expiring"},
            {"id": "x", "availabilityZone": "us-east-1b", "instanceType": "m5.large"}, 7]}});
        statuses.add(&object, None);
        let class = statuses.node_class(&NodeClassName::parse("a").unwrap());
        let told: Vec<(&str, &str, &str)> = class
            .reservations
            .iter()
            .map(|one| (one.resolved.id.as_str(), one.resolved.kind.as_str(), one.state.as_str()))
            .collect();
        assert_eq!(told, [("cr-1", "default", "active"), ("cr-2", "capacity-block", "expiring")]);
    }

    #[test]
    fn images_and_nodes_of_statuses_are_read_and_malformed_ones_are_none() {
        let mut statuses = StatedStatuses::default();
        let arch =
            |operator: &str| json!({"key": "kubernetes.io/arch", "operator": operator, "values": ["arm64"]});
        let amis = json!([{"id": "ami-1", "requirements": [arch("In")]}, {"id": "ami-2", "requirements": [arch("Is")]}]);
        statuses
            .add(&json!({"kind": "EC2NodeClass", "metadata": {"name": "a"}, "status": {"amis": amis}}), None);
        let class = statuses.node_class(&NodeClassName::parse("a").unwrap());
        let arm: Requirements = [Requirement::one_of("kubernetes.io/arch", ["arm64"])].into_iter().collect();
        assert_eq!(class.images, [arm]);
        let allocatable = json!({"cpu": 3, "nvidia.com/gpu": "1", "memory": []});
        statuses.add(
            &json!({"kind": "NodeClaim", "metadata": {"name": "b"}, "status": {"allocatable": allocatable}}),
            None,
        );
        let told = statuses.node_claim(&ClaimName::parse("b").unwrap()).unwrap();
        let told: Vec<String> = told.iter().map(|(name, amount)| format!("{name}: {amount}")).collect();
        assert_eq!(told, ["cpu: 3", "nvidia.com/gpu: 1"]);
    }
}
