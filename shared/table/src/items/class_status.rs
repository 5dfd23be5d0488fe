//! `NODECLASS#`: the status of a class.

use std::collections::BTreeMap;

use tenon_domain::api::node_class::{InstanceProfile, ResolvedSecurityGroup};
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{
    ClassStatus, ClassSubnet, Condition, ConditionReason, ConditionStatus, ConditionType, ImageFault,
    ImageRejection, ImageVariant, RefusedImage, RejectedImage, ResolvedImage, SeenProfile,
};
use tenon_domain::image::BootMode;
use tenon_domain::zonal_shift::ShiftEnd;

use super::form::{Attributes, FieldError, Fields, ItemForm};
use super::placement::{read_placement_group, write_placement_group};
use super::reservation::{read_reservations, write_reservations};
use crate::key::REVISION;

impl ItemForm for ClassStatus {
    fn write(&self, to: &mut Attributes) {
        to.text("name", &self.name);
        to.number(REVISION, self.revision);
        to.number("generation", self.generation);
        to.text_if("uid", self.uid.as_ref());
        to.text("spec_digest", &self.spec_digest);
        to.text_if("hash", self.hash.map(|hash| hash.to_string()));
        to.list("subnets", &self.subnets, |subnet, to| {
            to.text("id", &subnet.id);
            to.text("zone", &subnet.zone);
            to.text("zone_id", &subnet.zone_id);
            to.number("free_addresses", subnet.free_addresses);
            to.text_if("shifted", subnet.shifted.map(shift_end_text));
        });
        to.list("security_groups", &self.security_groups, |group, to| {
            to.text("id", &group.id);
            to.text("name", &group.name);
        });
        to.list("images", &self.images, |image, to| write_image(image, to));
        let rejected = (!self.rejected_images.is_empty()).then_some(&self.rejected_images);
        to.list_if("rejected_images", rejected, |image, to| {
            to.text("id", &image.id);
            to.text("name", &image.name);
            to.list("reasons", &image.reasons, |reason, to| {
                to.text("reason", reason.fault.as_str());
                to.text("message", &reason.message);
            });
        });
        let refused = (!self.refused_images.is_empty()).then_some(&self.refused_images);
        to.list_if("refused_images", refused, |image, to| {
            to.text("id", &image.id);
            to.text("message", &image.message);
            to.number("times", image.times);
            to.text_if("refresh", image.refresh.as_ref());
            to.time("until", image.until);
        });
        write_reservations(&self.reservations, to);
        write_placement_group(self.placement_group.as_ref(), to);
        let (name, arn) = match &self.instance_profile {
            Some(InstanceProfile::Name(name)) => (Some(name), None),
            Some(InstanceProfile::Arn(arn)) => (None, Some(arn)),
            None => (None, None),
        };
        to.text_if("instance_profile", name);
        to.text_if("instance_profile_arn", arn);
        to.map_if("profile_seen", self.profile_seen.as_ref(), |seen, to| {
            to.text("arn", &seen.arn);
            to.text_if("role", seen.role.as_ref());
            to.time("first_seen_at", seen.first_seen_at);
        });
        to.list("conditions", &self.conditions, |condition, to| {
            to.text("type", condition.condition.as_str());
            to.text("status", condition.status.as_str());
            let known = condition.reason.known_to_all();
            to.text("reason", known.as_str());
            to.text_if(EXACT_REASON, (known != condition.reason).then(|| condition.reason.as_str()));
            to.text("message", &condition.message);
            to.time("since", condition.since);
            to.number("observed_generation", condition.observed_generation);
            to.time_if("next_try", condition.next_try);
        });
        to.time("resolved_at", self.resolved_at);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let arn = from.string_if("instance_profile_arn")?.map(InstanceProfile::Arn);
        let name = from.string_if("instance_profile")?.map(InstanceProfile::Name);
        Ok(Self {
            name: from.parsed("name")?,
            revision: from.u64(REVISION)?,
            generation: from.u64("generation")?,
            uid: from.parsed_if("uid")?,
            spec_digest: from.string("spec_digest")?,
            hash: from.parsed_if("hash")?,
            subnets: from.list("subnets", |from| {
                Ok(ClassSubnet {
                    id: from.parsed("id")?,
                    zone: from.parsed("zone")?,
                    zone_id: from.parsed("zone_id")?,
                    free_addresses: from.u32("free_addresses")?,
                    shifted: from.formed_if("shifted", parse_shift_end)?,
                })
            })?,
            security_groups: from.list("security_groups", |from| {
                Ok(ResolvedSecurityGroup { id: from.parsed("id")?, name: from.string("name")? })
            })?,
            // No type suits an image of a variant that isn't known.
            images: from.known_list("images", read_image)?,
            rejected_images: from.list_if("rejected_images", read_rejected)?,
            refused_images: from.list_if("refused_images", |from| {
                Ok(RefusedImage {
                    id: from.parsed("id")?,
                    message: from.string("message")?,
                    times: from.u32("times")?,
                    refresh: from.string_if("refresh")?,
                    until: from.time("until")?,
                })
            })?,
            reservations: read_reservations(from)?,
            placement_group: read_placement_group(from)?,
            instance_profile: arn.or(name),
            profile_seen: from.map_if("profile_seen", |from| {
                Ok(SeenProfile {
                    arn: from.string("arn")?,
                    role: from.string_if("role")?,
                    first_seen_at: from.time("first_seen_at")?,
                })
            })?,
            conditions: from.known_list("conditions", read_condition)?,
            resolved_at: from.time("resolved_at")?,
        })
    }
}

fn write_image(image: &ResolvedImage, to: &mut Attributes) {
    to.text("id", &image.id);
    to.text("name", &image.name);
    to.text("architecture", image.architecture.as_str());
    to.text_if("variant", (image.variant != ImageVariant::Any).then(|| image.variant.as_str()));
    to.text_if("boot_mode", image.boot_mode.map(BootMode::as_str));
    to.time("created_at", image.created_at);
    if !image.own_snapshots.is_empty() {
        to.labels("own_snapshots", &image.own_snapshots);
    }
}

fn read_image(from: Fields<'_>) -> Result<ResolvedImage, FieldError> {
    Ok(ResolvedImage {
        id: from.parsed("id")?,
        name: from.string("name")?,
        architecture: Architecture::from_ec2(from.text("architecture")?),
        variant: from.word_if("variant", ImageVariant::parse)?.unwrap_or_default(),
        boot_mode: from.known_word_if("boot_mode", BootMode::parse)?,
        created_at: from.time("created_at")?,
        own_snapshots: match from.value_if("own_snapshots") {
            Some(_) => from.labels("own_snapshots")?,
            None => BTreeMap::new(),
        },
    })
}

fn read_rejected(from: Fields<'_>) -> Result<RejectedImage, FieldError> {
    let reasons = from.list("reasons", |from| {
        let fault = ImageFault::of_any_release(from.text("reason")?);
        Ok(ImageRejection { fault, message: from.string("message")? })
    })?;
    Ok(RejectedImage { id: from.parsed("id")?, name: from.string("name")?, reasons })
}

/// An autoshift's end isn't known.
const OPEN_SHIFT: &str = "open";

fn shift_end_text(end: ShiftEnd) -> String {
    match end {
        ShiftEnd::At(end) => end.to_string(),
        ShiftEnd::Open => OPEN_SHIFT.to_owned(),
    }
}

fn parse_shift_end(text: &str) -> Option<ShiftEnd> {
    if text == OPEN_SHIFT { Some(ShiftEnd::Open) } else { text.parse().ok().map(ShiftEnd::At) }
}

/// The reason of a condition, where `reason` is a word for it that earlier releases know.
const EXACT_REASON: &str = "exact_reason";

/// A reason of a later release is no error: the whole cluster would stand still for a word. Nor is a type: `Ready` says
/// what it comes to, and it stays in the item until `node-classes` judges the class anew, which nobody else here does.
fn read_condition(from: Fields<'_>) -> Result<Condition, FieldError> {
    let status = ConditionStatus::of_any_release(from.text("status")?);
    let known = ConditionReason::parse(from.text("reason")?);
    let reason = from.text_if(EXACT_REASON)?.and_then(ConditionReason::parse).or(known);
    Ok(Condition {
        condition: from.word("type", ConditionType::parse)?,
        status,
        reason: reason.unwrap_or(ConditionReason::of_later_release(status)),
        message: from.string("message")?,
        since: from.time("since")?,
        observed_generation: from.u64("observed_generation")?,
        next_try: from.time_if("next_try")?,
    })
}
