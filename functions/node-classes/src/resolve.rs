//! The resources of a class, from EC2's answers and the registry's allowances.
//!
//! Decides subnets, groups, images and identity of one class. Subnets and images outside the allowance are dropped,
//! and refuse the class only if none is left. All of a class's security groups are on each of its nodes, so one
//! outside the allowance refuses the class.
//!
//! Invariants: at most one image for each architecture and variant, the best by [`ImageRank`]; only available ones.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::{
    InstanceProfile, NodeIdentity, PlacementGroupSelector, ResolvedSecurityGroup,
};
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{ClassSubnet, ConditionReason, ImageVariant, ResolvedImage, Seen};
use tenon_domain::id::ImageId;
use tenon_domain::placement::ResolvedPlacementGroup;
use tenon_domain::registry::{Registry, tags_allow};
use tenon_domain::reservation::{ClassReservation, ReservationKind};
use tenon_ec2::port::{
    CapacityReservation, Image, ImageState, PlacementGroup, SecurityGroup, Subnet, VolumeSnapshot,
};

use crate::plan::SelectedImages;
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

/// The class's images: of each architecture and variant the best that is available and allowed.
#[must_use]
pub fn images(
    judged: JudgedClass<'_>,
    selected: &SelectedImages,
    found: &[Image],
) -> Seen<Vec<ResolvedImage>> {
    let (available, not): (Vec<&Image>, Vec<&Image>) =
        found.iter().filter(|i| i.architecture.is_some()).partition(|i| i.state == ImageState::Available);
    if available.is_empty() {
        let states = not.iter().map(|image| format!("{} is {}", image.id, image.state.as_str()));
        let message = if let (0, Some(first)) = (states.len(), selected.nameless.first()) {
            format!(
                "no image for Kubernetes {}: SSM has no parameter `{first}` with an image's id{}; correct \
                 `spec.amiSelectorTerms`",
                judged.registry.kubernetes_version,
                match selected.nameless.len().saturating_sub(1) {
                    0 => String::new(),
                    more => format!(", nor {more} more"),
                }
            )
        } else if states.len() == 0 {
            "no image matches `spec.amiSelectorTerms`: correct the terms, or share the image".to_owned()
        } else {
            format!("no image that matches `spec.amiSelectorTerms` is available: {}", named(states))
        };
        return refused(ConditionReason::AmiNotFound, &message);
    }
    let (mut allowed, foreign): (Vec<&Image>, Vec<&Image>) =
        available.into_iter().partition(|i| owner_allowed(judged, i));
    if allowed.is_empty() {
        let names = named(foreign.iter().map(|image| format!("{} of owner {}", image.id, image.owner)));
        let owners = named(judged.registry.allowed.image_owners.iter().cloned());
        return not_allowed(judged, &format!("images {names}"), &format!("owners {owners}"));
    }
    // Of each architecture and variant the last one stays: the best.
    allowed.sort_by_key(|image| rank(image, judged.now));
    let any = BTreeSet::from([ImageVariant::Any]);
    let mut best: BTreeMap<(&'static str, ImageVariant), &Image> = BTreeMap::new();
    for image in allowed {
        let Some(architecture) = image.architecture else { continue };
        for variant in selected.variants.get(&image.id).unwrap_or(&any) {
            best.insert((architecture.as_str(), *variant), image);
        }
    }
    let resolved = |((architecture, variant), image): ((&'static str, ImageVariant), &Image)| ResolvedImage {
        id: image.id.clone(),
        name: image.name.clone(),
        architecture: Architecture::from_ec2(architecture),
        variant,
        created_at: image.created_at.unwrap_or(Timestamp::UNIX_EPOCH),
    };
    Seen::Holds(best.into_iter().map(resolved).collect())
}

/// Whether the class's volumes may use its snapshots, which every process on a node can read. A snapshot that all of
/// the class's images have for the device is allowed; the cluster's stack must allow others.
#[must_use]
pub fn snapshots(judged: JudgedClass<'_>, images: &[&Image], found: &[VolumeSnapshot]) -> Seen<()> {
    let of_images = |device: &str, id: &str| {
        !images.is_empty()
            && images.iter().all(|image| image.snapshots.get(device).is_some_and(|own| own == id))
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

fn rank(image: &Image, now: Timestamp) -> ImageRank<'_> {
    let deprecated = image.deprecated_at.is_some_and(|at| at <= now);
    ImageRank {
        currency: if deprecated { ImageDeprecation::Deprecated } else { ImageDeprecation::Current },
        created_at: image.created_at,
        name: &image.name,
        id: &image.id,
    }
}

fn owner_allowed(judged: JudgedClass<'_>, image: &Image) -> bool {
    let owners = &judged.registry.allowed.image_owners;
    owners.contains(&image.owner)
        || image.owner_alias.as_ref().is_some_and(|alias| owners.contains(alias))
        || (image.owner == judged.account && owners.contains("self"))
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

fn not_allowed<T>(judged: JudgedClass<'_>, what: &str, allowed: &str) -> Seen<T> {
    let cluster = &judged.registry.cluster;
    let message = format!(
        "{what} not allowed: the registry of cluster `{cluster}` allows only {allowed}; change the class, or the cluster's stack"
    );
    refused(ConditionReason::NotAllowed, &message)
}

fn refused<T>(reason: ConditionReason, message: &str) -> Seen<T> {
    Seen::Refused { reason, message: message.to_owned() }
}

fn tags_text(tags: &BTreeMap<String, String>) -> String {
    format!("those with tags {}", named(tags.iter().map(|(key, value)| format!("{key}={value}"))))
}

fn named(names: impl ExactSizeIterator<Item = String>) -> String {
    let all = names.len();
    if all == 0 {
        return "(none)".to_owned();
    }
    let some: Vec<String> = names.take(NAMES).map(|name| format!("`{name}`")).collect();
    let more = all.saturating_sub(NAMES);
    if more == 0 { some.join(", ") } else { format!("{} and {more} more", some.join(", ")) }
}
