//! The resources of a class, from EC2's answers and the registry's allowances.
//!
//! Decides subnets, groups and identity of one class, and the order of its images. Subnets outside the allowance are
//! dropped, and refuse the class only if none is left. All of a class's security groups are on each of its nodes, so
//! one outside the allowance refuses the class. It doesn't choose images (`choose`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::{
    InstanceProfile, NodeIdentity, PlacementGroupSelector, ResolvedSecurityGroup,
};
use tenon_domain::class_status::{ClassSubnet, ConditionReason, Seen};
use tenon_domain::id::ImageId;
use tenon_domain::placement::ResolvedPlacementGroup;
use tenon_domain::registry::{Registry, tags_allow};
use tenon_domain::reservation::{ClassReservation, ReservationKind};
use tenon_ec2::port::{CapacityReservation, Image, PlacementGroup, SecurityGroup, Subnet, VolumeSnapshot};

use crate::spec;

/// The most things that a message names.
const NAMES: usize = 5;

/// A class, with all that it is judged by.
#[derive(Debug, Clone, Copy)]
pub struct JudgedClass<'a> {
    /// The class.
    pub class: &'a Ec2NodeClass,
    /// Its cluster's entry.
    pub registry: &'a Registry,
    /// The installation's account, which is the meaning of `self`.
    pub account: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// The order of images of one architecture (aws/karpenter-provider-aws `pkg/providers/amifamily/types.go`): the
/// highest is taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageRank<'a> {
    /// Current before deprecated.
    pub currency: ImageDeprecation,
    /// Newest first; one without a date is the oldest.
    pub created_at: Option<Timestamp>,
    /// The greater name first.
    pub name: &'a str,
    /// Makes the rank unique.
    pub id: &'a ImageId,
}

/// Whether an image's owner deprecated it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImageDeprecation {
    /// Deprecated: the last choice.
    Deprecated,
    /// Not deprecated, or not yet.
    Current,
}

/// The class's subnets.
#[must_use]
pub fn subnets(judged: JudgedClass<'_>, found: &[Subnet]) -> Seen<Vec<ClassSubnet>> {
    if found.is_empty() {
        let message = "no subnet matches `spec.subnetSelectorTerms`: tag subnets, or correct the terms";
        return refused(ConditionReason::SubnetsNotFound, message);
    }
    let asked = &judged.registry.allowed.subnet_tags;
    let (allowed, not): (Vec<&Subnet>, Vec<&Subnet>) = found.iter().partition(|s| tags_allow(asked, &s.tags));
    if allowed.is_empty() {
        let names = named(not.iter().map(|subnet| subnet.id.to_string()));
        return not_allowed(judged, &format!("subnets {names}"), &tags_text(asked));
    }
    let subnet = |subnet: &&Subnet| ClassSubnet {
        id: subnet.id.clone(),
        zone: subnet.zone.clone(),
        zone_id: subnet.zone_id.clone(),
        free_addresses: subnet.available_addresses,
        // Which zones are shifted isn't EC2's to say: the observation as a whole knows.
        shifted: None,
    };
    Seen::Holds(allowed.iter().map(subnet).collect())
}

/// The class's security groups.
#[must_use]
pub fn security_groups(judged: JudgedClass<'_>, found: &[SecurityGroup]) -> Seen<Vec<ResolvedSecurityGroup>> {
    if found.is_empty() {
        let message =
            "no security group matches `spec.securityGroupSelectorTerms`: tag one, or correct the terms";
        return refused(ConditionReason::SecurityGroupsNotFound, message);
    }
    let asked = &judged.registry.allowed.security_group_tags;
    let not: Vec<String> = found
        .iter()
        .filter(|group| !tags_allow(asked, &group.tags))
        .map(|group| group.id.to_string())
        .collect();
    if !not.is_empty() {
        let groups = format!("security groups {}", named(not.into_iter()));
        return not_allowed(judged, &groups, &tags_text(asked));
    }
    let group =
        |group: &SecurityGroup| ResolvedSecurityGroup { id: group.id.clone(), name: group.name.clone() };
    Seen::Holds(found.iter().map(group).collect())
}

/// Whether the class's volumes may use its snapshots, which every process on a node can read. A snapshot that all of
/// the class's images have for the device is allowed; the cluster's stack must allow others.
#[must_use]
pub fn snapshots(judged: JudgedClass<'_>, images: &[&Image], found: &[VolumeSnapshot]) -> Seen<()> {
    let of_images = |device: &str, id: &str| {
        !images.is_empty() && images.iter().all(|image| image.facts.snapshot(device) == Some(id))
    };
    let named_by_class = spec::named_snapshots(judged.class).into_iter();
    let others: BTreeSet<&str> =
        named_by_class.filter(|(device, id)| !of_images(device, id)).map(|(_, id)| id).collect();
    let allowed = &judged.registry.allowed;
    if allowed.has_snapshots() {
        let is_found = |id: &&str| found.iter().any(|snapshot| snapshot.id == *id);
        let gone: Vec<&str> = others.iter().filter(|id| !is_found(id)).copied().collect();
        if !gone.is_empty() {
            let message = format!(
                "snapshots of `spec.blockDeviceMappings` don't exist or aren't shared with this account: {}; name others, \
                 or remove `snapshotID`",
                named(gone.into_iter().map(str::to_owned).collect::<Vec<_>>().into_iter())
            );
            return refused(ConditionReason::SnapshotNotFound, &message);
        }
    }
    let is_allowed = |id: &&str| {
        allowed.has_snapshots()
            && found.iter().any(|snapshot| snapshot.id == *id && snapshot_allowed(judged, snapshot))
    };
    let not: Vec<String> = others.iter().filter(|id| !is_allowed(id)).map(|id| (*id).to_owned()).collect();
    if not.is_empty() {
        return Seen::Holds(());
    }
    let what = format!("snapshots {} of `spec.blockDeviceMappings`", named(not.into_iter()));
    not_allowed(judged, &what, &allowed_snapshots_text(judged))
}

fn snapshot_allowed(judged: JudgedClass<'_>, snapshot: &VolumeSnapshot) -> bool {
    let allowed = &judged.registry.allowed;
    let owners = &allowed.snapshot_owners;
    let owner = owners.contains(&snapshot.owner)
        || snapshot.owner_alias.as_ref().is_some_and(|alias| owners.contains(alias));
    owner && tags_allow(&allowed.snapshot_tags, &snapshot.tags)
}

fn allowed_snapshots_text(judged: JudgedClass<'_>) -> String {
    let allowed = &judged.registry.allowed;
    let of_images = "the snapshots that all images of the class have for this device";
    if !allowed.has_snapshots() {
        return of_images.to_owned();
    }
    let owners = named(allowed.snapshot_owners.iter().cloned());
    let tags = if allowed.snapshot_tags.is_empty() {
        String::new()
    } else {
        format!(
            " with tags {}",
            named(allowed.snapshot_tags.iter().map(|(key, value)| format!("{key}={value}")))
        )
    };
    format!("{of_images}, or snapshots of owners {owners}{tags}")
}

/// The class's capacity reservations of the ordinary kind. The class needs none.
#[must_use]
pub fn reservations(found: &[CapacityReservation]) -> Seen<Vec<ClassReservation>> {
    let of = |found: &CapacityReservation| ClassReservation {
        id: found.id.clone(),
        owner: found.owner.clone(),
        instance_type: found.instance_type.clone(),
        zone: found.zone.clone(),
        match_criteria: found.match_criteria,
        kind: found.kind,
        ends_at: found.ends_at,
        available: found.available,
    };
    Seen::Holds(found.iter().filter(|found| is_served(found)).map(of).collect())
}

/// Whether nodes are launched into such a reservation. Capacity blocks, and reservations that are taken back, need
/// fleets of their own.
#[must_use]
pub const fn is_served(found: &CapacityReservation) -> bool {
    match found.kind {
        ReservationKind::Default => true,
        ReservationKind::CapacityBlock | ReservationKind::Interruptible => false,
    }
}

/// The placement group that the selector names.
#[must_use]
pub fn placement_group(
    selector: &PlacementGroupSelector,
    found: &[PlacementGroup],
) -> Seen<ResolvedPlacementGroup> {
    let Some(group) = found.first() else {
        let message = format!(
            "no available placement group is `{}`: create it, or correct `spec.placementGroupSelector`",
            selector.as_str()
        );
        return refused(ConditionReason::PlacementGroupNotFound, &message);
    };
    Seen::Holds(ResolvedPlacementGroup {
        id: group.id.clone(),
        name: group.name.clone(),
        strategy: group.strategy,
        partitions: group.partition_count,
    })
}

pub(crate) fn rank(image: &Image, now: Timestamp) -> ImageRank<'_> {
    let deprecated = is_deprecated(image, now);
    ImageRank {
        currency: if deprecated { ImageDeprecation::Deprecated } else { ImageDeprecation::Current },
        created_at: image.created_at,
        name: &image.name,
        id: &image.id,
    }
}

/// Whether the image's owner deprecated it by now.
pub(crate) fn is_deprecated(image: &Image, now: Timestamp) -> bool {
    image.deprecated_at.is_some_and(|at| at <= now)
}

/// Owners that IAM compares by their alias instead of their account: `ec2:Owner` in the Service Authorization Reference,
/// read November 2026.
const OWNERS_BY_ALIAS: [&str; 2] = ["amazon", "aws-marketplace"];

/// The image's owner as the cluster's stack has to name it, so that its launch role may launch the image.
pub(crate) fn owner_of(image: &Image) -> &str {
    let alias = image.owner_alias.as_deref().filter(|alias| OWNERS_BY_ALIAS.contains(alias));
    alias.unwrap_or(&image.owner)
}

/// Whether the cluster may use images of this one's owner. The launch role's policy has the same list: an account of AWS
/// doesn't stand for its alias.
pub(crate) fn owner_allowed(judged: JudgedClass<'_>, image: &Image) -> bool {
    let owners = &judged.registry.allowed.image_owners;
    let by_alias = owner_of(image) != image.owner;
    owners.iter().any(|owner| match by_alias {
        true => owner == owner_of(image),
        false => is_owned_by(image, owner, judged.account),
    })
}

/// Whether an owner is the image's: its account, its alias, or `self` for the installation's account.
pub(crate) fn is_owned_by(image: &Image, owner: &str, account: &str) -> bool {
    image.owner == owner
        || image.owner_alias.as_deref() == Some(owner)
        || (image.owner == account && owner == "self")
}

/// The identity of the class's nodes. A role is used through the instance profile that the cluster's stack makes or
/// names for it: no function may change IAM.
#[must_use]
pub fn instance_profile(judged: JudgedClass<'_>) -> Seen<InstanceProfile> {
    let allowed = &judged.registry.allowed;
    match &judged.class.identity {
        NodeIdentity::Role(role) => {
            if let Some(profile) = allowed.node_roles.get(role) {
                return Seen::Holds(InstanceProfile::Name(profile.clone()));
            }
            let roles = named(allowed.node_roles.keys().cloned());
            not_allowed(judged, &format!("`spec.role` `{role}`"), &format!("roles {roles}"))
        }
        NodeIdentity::InstanceProfile(profile) => {
            let given = match profile {
                InstanceProfile::Name(name) | InstanceProfile::Arn(name) => name,
            };
            let known = |allowed: &String| profile_name(allowed, judged) == profile_name(given, judged);
            if allowed.instance_profiles.iter().any(known) {
                return Seen::Holds(profile.clone());
            }
            let profiles = named(allowed.instance_profiles.iter().cloned());
            let what = format!("`spec.instanceProfile` `{given}`");
            not_allowed(judged, &what, &format!("instance profiles {profiles}"))
        }
    }
}

/// A profile's name, if it is one of this account: the last part of its ARN. One of another account stays an ARN.
fn profile_name<'a>(profile: &'a str, judged: JudgedClass<'_>) -> &'a str {
    let ours = profile.starts_with("arn:") && profile.split(':').nth(4) == Some(judged.account);
    if ours { profile.rsplit('/').next().unwrap_or(profile) } else { profile }
}

pub(crate) fn not_allowed<T>(judged: JudgedClass<'_>, what: &str, allowed: &str) -> Seen<T> {
    let cluster = &judged.registry.cluster;
    let message = format!(
        "{what} not allowed: the registry of cluster `{cluster}` allows only {allowed}; change the class, or the cluster's stack"
    );
    refused(ConditionReason::NotAllowed, &message)
}

pub(crate) fn refused<T>(reason: ConditionReason, message: &str) -> Seen<T> {
    Seen::Refused { reason, message: message.to_owned() }
}

fn tags_text(tags: &BTreeMap<String, String>) -> String {
    format!("those with tags {}", named(tags.iter().map(|(key, value)| format!("{key}={value}"))))
}

pub(crate) fn named(names: impl ExactSizeIterator<Item = String>) -> String {
    let all = names.len();
    if all == 0 {
        return "(none)".to_owned();
    }
    let some: Vec<String> = names.take(NAMES).map(|name| format!("`{name}`")).collect();
    let more = all.saturating_sub(NAMES);
    if more == 0 { some.join(", ") } else { format!("{} and {more} more", some.join(", ")) }
}
