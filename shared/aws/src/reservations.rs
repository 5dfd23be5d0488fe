//! Capacity reservations, and launch templates' preferences for them.

use aws_sdk_ec2::types as sdk;
use tenon_domain::reservation::{MatchCriteria, ReservationKind};
use tenon_ec2::port::{CapacityReservation, ReservationPreference};

use crate::reading::{Malformed, moment, number, parsed, required, tags};

pub(crate) fn reservation(from: &sdk::CapacityReservation) -> Result<CapacityReservation, Malformed> {
    let criteria = required(from.instance_match_criteria.as_ref(), "InstanceMatchCriteria")?.as_str();
    let unknown = || Malformed::new("InstanceMatchCriteria", format!("is `{criteria}`, which isn't known"));
    Ok(CapacityReservation {
        id: parsed(from.capacity_reservation_id.as_deref(), "CapacityReservationId")?,
        owner: required(from.owner_id.clone(), "OwnerId")?,
        instance_type: parsed(from.instance_type.as_deref(), "InstanceType")?,
        zone: parsed(from.availability_zone.as_deref(), "AvailabilityZone")?,
        match_criteria: MatchCriteria::parse(criteria).ok_or_else(unknown)?,
        kind: kind(from)?,
        ends_at: from.end_date.as_ref().map(|date| moment(Some(date), "EndDate")).transpose()?,
        available: number(from.available_instance_count, "AvailableInstanceCount")?,
        tags: tags(from.tags()),
    })
}

/// For an ordinary reservation EC2 returns neither of these.
fn kind(from: &sdk::CapacityReservation) -> Result<ReservationKind, Malformed> {
    match from.reservation_type.as_ref() {
        Some(sdk::CapacityReservationType::CapacityBlock) => Ok(ReservationKind::CapacityBlock),
        None | Some(sdk::CapacityReservationType::Default) if from.interruptible == Some(true) => {
            Ok(ReservationKind::Interruptible)
        }
        None | Some(sdk::CapacityReservationType::Default) => Ok(ReservationKind::Default),
        Some(other) => {
            Err(Malformed::new("ReservationType", format!("is `{}`, which isn't known", other.as_str())))
        }
    }
}

pub(crate) fn specification(
    of: &ReservationPreference,
) -> sdk::LaunchTemplateCapacityReservationSpecificationRequest {
    let builder = sdk::LaunchTemplateCapacityReservationSpecificationRequest::builder();
    match of {
        ReservationPreference::None => {
            builder.capacity_reservation_preference(sdk::CapacityReservationPreference::None)
        }
        ReservationPreference::Only(id) => {
            let target =
                sdk::CapacityReservationTarget::builder().capacity_reservation_id(id.as_str()).build();
            builder
                .capacity_reservation_preference(sdk::CapacityReservationPreference::CapacityReservationsOnly)
                .capacity_reservation_target(target)
        }
    }
    .build()
}
