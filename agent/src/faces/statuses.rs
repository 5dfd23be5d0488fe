//! The statuses of NodePools and EC2NodeClasses.
//!
//! Decides their form. What they say is decided by the functions; what is told of findings comes on top of it
//! ([`super::told`]).

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenon_domain::api::node_class::InstanceProfile;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::labels;
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::reservation::ClassReservation;
use tenon_domain::resources::ResourceList;

use super::conditions;

/// Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodepool_status.go`.
pub(super) fn pool_status(pool: &PoolStatus, class_generation: Option<u64>) -> Value {
    let conditions: Vec<Value> = pool
        .conditions
        .iter()
        .map(|condition| {
            conditions::form(conditions::ShownCondition {
                kind: condition.condition.as_str(),
                status: condition.status.as_str(),
                reason: &condition.reason,
                message: &condition.message,
                since: condition.since,
                generation: pool.generation,
            })
        })
        .collect();
    let mut status =
        json!({"nodes": pool.nodes, "resources": quantities(&pool.resources), "conditions": conditions});
    if let (Some(generation), Some(fields)) = (class_generation, status.as_object_mut()) {
        fields.insert("nodeClassObservedGeneration".to_owned(), json!(generation));
    }
    status
}

/// Source: aws/karpenter-provider-aws `pkg/apis/v1/ec2nodeclass_status.go`.
pub(super) fn class_status(class: &ClassStatus) -> Value {
    let conditions: Vec<Value> = class
        .conditions
        .iter()
        .map(|condition| {
            conditions::form(conditions::ShownCondition {
                kind: condition.condition.as_str(),
                status: condition.status.as_str(),
                reason: condition.reason_text(),
                message: &condition.message,
                since: condition.since,
                generation: condition.observed_generation,
            })
        })
        .collect();
    let subnets: Vec<Value> = class
        .subnets
        .iter()
        .map(|subnet| json!({"id": subnet.id.as_str(), "zone": subnet.zone.as_str(), "zoneID": subnet.zone_id.as_str()}))
        .collect();
    let groups: Vec<Value> = class
        .security_groups
        .iter()
        .map(|group| json!({"id": group.id.as_str(), "name": group.name}))
        .collect();
    let images: Vec<Value> =
        class
            .images
            .iter()
            .map(|image| {
                let architecture =
                    json!({"key": labels::ARCH, "operator": "In", "values": [label(&image.architecture)]});
                let mut requirements = vec![architecture];
                requirements.extend(
                    image.variant.requirements().iter().map(
                        |requirement| json!({"key": requirement.label, "operator": requirement.operator}),
                    ),
                );
                json!({"id": image.id.as_str(), "name": image.name, "requirements": requirements})
            })
            .collect();
    let reservations: Vec<Value> = class
        .reservations
        .shown()
        .iter()
        .map(|reservation| reservation_form(reservation, class.resolved_at))
        .collect();
    let mut status = Map::new();
    let lists = [
        ("subnets", subnets),
        ("securityGroups", groups),
        ("amis", images),
        ("capacityReservations", reservations),
    ];
    for (field, list) in lists {
        if !list.is_empty() {
            status.insert(field.to_owned(), Value::Array(list));
        }
    }
    if let Some(InstanceProfile::Name(profile) | InstanceProfile::Arn(profile)) = &class.instance_profile {
        status.insert("instanceProfile".to_owned(), json!(profile));
    }
    status.insert("conditions".to_owned(), Value::Array(conditions));
    Value::Object(status)
}

/// A reservation of `status.capacityReservations`.
fn reservation_form(reservation: &ClassReservation, now: Timestamp) -> Value {
    let mut form = json!({
        "availabilityZone": reservation.zone.as_str(),
        "id": reservation.id.as_str(),
        "instanceMatchCriteria": reservation.match_criteria.as_str(),
        "instanceType": reservation.instance_type.as_str(),
        "interruptible": reservation.kind.interruptible_label() == "true",
        "ownerID": reservation.owner,
        "reservationType": reservation.kind.type_label(),
        "state": reservation.state(now).as_str(),
    });
    if let (Some(ends_at), Some(fields)) = (reservation.ends_at, form.as_object_mut()) {
        fields.insert("endTime".to_owned(), json!(ends_at.to_string()));
    }
    form
}

fn label(architecture: &Architecture) -> &str {
    match architecture {
        Architecture::X86_64 => "amd64",
        Architecture::Arm64 => "arm64",
        Architecture::Other(other) => other,
    }
}

pub(super) fn quantities(list: &ResourceList) -> Map<String, Value> {
    list.iter().map(|(name, quantity)| (name.as_str().to_owned(), json!(quantity.to_string()))).collect()
}
