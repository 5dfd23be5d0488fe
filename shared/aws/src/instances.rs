//! Instances, their status, and the results of TerminateInstances.

use std::collections::BTreeMap;

use aws_sdk_ec2::types as sdk;
use aws_smithy_types::base64;
use tenon_domain::id::{ClientToken, FleetId};
use tenon_ec2::port::{
    ImageArchitecture, Instance, InstanceState, InstanceStateChange, InstanceStatus, ScheduledEvent,
    ScheduledEventCode, StateReason, StatusCheck, TargetCapacityType,
};

use crate::reading::{Malformed, moment, optional, optional_moment, parsed, required, tags};

/// The tag that EC2 itself gives to the instances of a fleet.
const FLEET_TAG: &str = "aws:ec2:fleet-id";
/// How EC2 begins the description of an event that is over, for which it has no field of its own.
const OVER: [&str; 2] = ["[Completed]", "[Canceled]"];

pub(crate) fn instance(from: &sdk::Instance) -> Result<Instance, Malformed> {
    let tags = tags(from.tags());
    let placement = from.placement.as_ref();
    let group = |group: &sdk::GroupIdentifier| parsed(group.group_id.as_deref(), "GroupSet.GroupId");
    Ok(Instance {
        id: parsed(from.instance_id.as_deref(), "InstanceId")?,
        instance_type: parsed(from.instance_type.as_ref().map(AsRef::as_ref), "InstanceType")?,
        image: parsed(from.image_id.as_deref(), "ImageId")?,
        architecture: architecture(from.architecture.as_ref())?,
        capacity_type: capacity_type(from.instance_lifecycle.as_ref()),
        reservation: optional(from.capacity_reservation_id.as_deref(), "CapacityReservationId")?,
        zone: parsed(placement.and_then(|p| p.availability_zone.as_deref()), "Placement.AvailabilityZone")?,
        zone_id: optional(
            placement.and_then(|p| p.availability_zone_id.as_deref()),
            "Placement.AvailabilityZoneId",
        )?,
        partition: placement.and_then(|p| p.partition_number).and_then(|number| u32::try_from(number).ok()),
        subnet: optional(from.subnet_id.as_deref(), "SubnetId")?,
        security_groups: from.security_groups().iter().map(group).collect::<Result<_, _>>()?,
        state: state(from.state.as_ref(), "State")?,
        state_reason: from.state_reason.as_ref().and_then(state_reason),
        launched_at: moment(from.launch_time.as_ref(), "LaunchTime")?,
        private_ip: from.private_ip_address.clone().unwrap_or_default(),
        private_dns_name: from.private_dns_name.clone().unwrap_or_default(),
        client_token: from.client_token.as_deref().and_then(|token| ClientToken::parse(token).ok()),
        fleet: tags.get(FLEET_TAG).and_then(|id| FleetId::parse(id.as_str()).ok()),
        tags,
    })
}

fn architecture(from: Option<&sdk::ArchitectureValues>) -> Result<ImageArchitecture, Malformed> {
    let word = required(from, "Architecture")?.as_str();
    ImageArchitecture::parse(word)
        .ok_or_else(|| Malformed::new("Architecture", format!("is `{word}`, which isn't supported")))
}

/// EC2 names a lifecycle only where it isn't the ordinary one; capacity blocks and schedules are bought otherwise, but
/// never as spot.
fn capacity_type(from: Option<&sdk::InstanceLifecycleType>) -> TargetCapacityType {
    match from {
        Some(sdk::InstanceLifecycleType::Spot) => TargetCapacityType::Spot,
        _ => TargetCapacityType::OnDemand,
    }
}

fn state(from: Option<&sdk::InstanceState>, field: &'static str) -> Result<InstanceState, Malformed> {
    let word = required(from.and_then(|state| state.name.as_ref()), field)?.as_str();
    InstanceState::parse(word).ok_or_else(|| Malformed::new(field, format!("is `{word}`, which isn't known")))
}

fn state_reason(from: &sdk::StateReason) -> Option<StateReason> {
    let code = from.code.clone().filter(|code| !code.is_empty())?;
    Some(StateReason { code, message: from.message.clone().unwrap_or_default() })
}

pub(crate) fn state_change(from: &sdk::InstanceStateChange) -> Result<InstanceStateChange, Malformed> {
    Ok(InstanceStateChange {
        id: parsed(from.instance_id.as_deref(), "InstanceId")?,
        previous: state(from.previous_state.as_ref(), "PreviousState")?,
        current: state(from.current_state.as_ref(), "CurrentState")?,
    })
}

pub(crate) fn status(from: &sdk::InstanceStatus) -> Result<InstanceStatus, Malformed> {
    let checks = [
        (StatusCheck::Instance, from.instance_status.as_ref()),
        (StatusCheck::System, from.system_status.as_ref()),
    ];
    let mut impaired = BTreeMap::new();
    for (check, summary) in checks {
        let Some(summary) = summary.filter(|found| found.status == Some(sdk::SummaryStatus::Impaired)) else {
            continue;
        };
        let since = summary.details().iter().filter_map(|detail| detail.impaired_since.as_ref()).min();
        impaired.insert(check, optional_moment(since, "ImpairedSince")?);
    }
    let announced = from.events().iter().filter_map(|found| event(found).transpose());
    Ok(InstanceStatus {
        id: parsed(from.instance_id.as_deref(), "InstanceId")?,
        impaired,
        events: announced.collect::<Result<_, _>>()?,
    })
}

/// The text of a console, which EC2 gives as Base64 in lines.
pub(crate) fn console(encoded: &str) -> Result<String, Malformed> {
    let encoded: String = encoded.split_whitespace().collect();
    let bytes = base64::decode(encoded).map_err(|error| Malformed::new("Output", error.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An event that isn't over; `None` also for a kind that isn't known.
fn event(from: &sdk::InstanceStatusEvent) -> Result<Option<ScheduledEvent>, Malformed> {
    let description = from.description.as_deref().unwrap_or_default();
    let is_over = OVER.iter().any(|over| description.starts_with(over));
    let code = from.code.as_ref().and_then(|code| ScheduledEventCode::parse(code.as_str()));
    let Some(code) = code.filter(|_| !is_over) else { return Ok(None) };
    Ok(Some(ScheduledEvent { code, starts_at: optional_moment(from.not_before.as_ref(), "NotBefore")? }))
}
