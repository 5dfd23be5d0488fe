//! The stored status of a class: its last resolved resources and its conditions.
//!
//! Decides whether the class is ready for launches, and what blocks it. [`super::observation`] makes it.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::condition::{Condition, ConditionStatus, ConditionType};
use super::image::{RejectedImage, ResolvedImage};
use super::refused_image::RefusedImage;
use crate::api::meta::ObjectMeta;
use crate::api::node_class::{InstanceProfile, ResolvedSecurityGroup};
use crate::class_hash::ClassHash;
use crate::id::{NodeClassName, SubnetId, Uid, Zone, ZoneId};
use crate::placement::ResolvedPlacementGroup;
use crate::reservation::ClassReservations;
use crate::zonal_shift::{ShiftEnd, ShiftedZone};

/// A node class, as it resolved last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassStatus {
    /// Its name.
    pub name: NodeClassName,
    /// The count of changes; the next change is conditional on it.
    pub revision: u64,
    /// `metadata.generation` of the resolved spec.
    pub generation: u64,
    /// The class's UID; `None` in old statuses.
    pub uid: Option<Uid>,
    /// The digest of that spec. It changes without the generation if the class is deleted and created again.
    pub spec_digest: String,
    /// The hash of that spec in its cluster; `None` for an unregistered cluster, and in old statuses.
    pub hash: Option<ClassHash>,
    /// Its subnets: most free addresses first, then by id.
    pub subnets: Vec<ClassSubnet>,
    /// Its security groups, by id.
    pub security_groups: Vec<ResolvedSecurityGroup>,
    /// Its images, only available ones: newest first, then by id.
    pub images: Vec<ResolvedImage>,
    /// Better images that it rejects: first the best of each architecture and variant.
    pub rejected_images: Vec<RejectedImage>,
    /// Images that EC2 refused to launch, by id.
    pub refused_images: Vec<RefusedImage>,
    /// Its capacity reservations; none if the gate `ReservedCapacity` is off.
    pub reservations: ClassReservations,
    /// Its placement group, if it selects one.
    pub placement_group: Option<ResolvedPlacementGroup>,
    /// The instance profile of its nodes.
    pub instance_profile: Option<InstanceProfile>,
    /// That profile with its role, as IAM returned it last.
    pub profile_seen: Option<SeenProfile>,
    /// Its conditions, in the order of [`ConditionType::ALL`].
    pub conditions: Vec<Condition>,
    /// The time of the queries to EC2.
    pub resolved_at: Timestamp,
}

/// An instance profile with its role, as IAM returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenProfile {
    /// The profile's ARN; empty if it didn't exist.
    pub arn: String,
    /// The role's name.
    pub role: Option<String>,
    /// When IAM returned this pair first.
    pub first_seen_at: Timestamp,
}

/// A subnet of a class.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassSubnet {
    /// The subnet.
    pub id: SubnetId,
    /// Its zone's name.
    pub zone: Zone,
    /// Its zone's id.
    pub zone_id: ZoneId,
    /// Free addresses at the time of the query.
    pub free_addresses: u32,
    /// When the shift away from its zone ends, if there is one.
    pub shifted: Option<ShiftEnd>,
}

impl ClassSubnet {
    /// Whether the cluster is shifted away from its zone at a moment, as far as is known.
    #[must_use]
    pub fn is_shifted(&self, now: Timestamp) -> bool {
        self.shifted.is_some_and(|end| end.holds(now))
    }
}

impl ClassStatus {
    /// One of its conditions.
    #[must_use]
    pub fn condition(&self, condition: ConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|found| found.condition == condition)
    }

    /// Whether launches may be made from it: everything holds, or what doesn't is for a launch to decide.
    #[must_use]
    pub fn launchable(&self) -> bool {
        let decides = |condition: &Condition| {
            condition.status == ConditionStatus::True || condition.reason.is_decided_by_launch()
        };
        !self.conditions.is_empty()
            && DEPENDENTS.iter().filter_map(|condition| self.condition(*condition)).all(decides)
    }

    /// Whether `Ready` is True.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.condition(ConditionType::Ready).is_some_and(|ready| ready.status == ConditionStatus::True)
    }

    /// The first condition that keeps it from being ready.
    #[must_use]
    pub fn obstacle(&self) -> Option<&Condition> {
        DEPENDENTS
            .iter()
            .filter_map(|condition| self.condition(*condition))
            .find(|condition| condition.status != ConditionStatus::True)
    }

    /// The zones of its subnets that the cluster is shifted away from, by the last observation.
    #[must_use]
    pub fn shifts(&self) -> BTreeSet<ShiftedZone> {
        let shifted = |subnet: &ClassSubnet| {
            Some(ShiftedZone { zone_id: subnet.zone_id.clone(), end: subnet.shifted? })
        };
        self.subnets.iter().filter_map(shifted).collect()
    }

    /// Whether it is of a class with this metadata: one that is deleted and made anew begins at the same generation.
    #[must_use]
    pub fn is_of(&self, class: &ObjectMeta) -> bool {
        let is_same = match (&self.uid, &class.uid) {
            (Some(known), Some(uid)) => known == uid,
            (None, _) | (_, None) => true,
        };
        is_same && self.generation == class.generation
    }

    /// Whether both are equal except for revision and times of observation.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        let strip = |status: &Self| {
            let mut status = Self { revision: 0, resolved_at: Timestamp::UNIX_EPOCH, ..status.clone() };
            for condition in &mut status.conditions {
                condition.next_try = None;
            }
            status
        };
        strip(self) == strip(other)
    }

    /// The time of the next observation at the latest; `None` if all conditions are settled. Zonal shifts are
    /// observed every minute, independently.
    #[must_use]
    pub fn next_try(&self) -> Option<Timestamp> {
        let of_class = self.conditions.iter().filter(|told| told.condition != ConditionType::ZonesInService);
        of_class.filter_map(|condition| condition.next_try).min()
    }
}

/// The conditions behind `Ready`, in the order in which an obstacle is named.
pub(crate) const DEPENDENTS: [ConditionType; 7] = [
    ConditionType::SubnetsReady,
    ConditionType::SecurityGroupsReady,
    ConditionType::AmisReady,
    ConditionType::InstanceProfileReady,
    ConditionType::CapacityReservationsReady,
    ConditionType::PlacementGroupReady,
    ConditionType::ValidationSucceeded,
];
