//! Whether a class accepts an image, before the image replaces another.
//!
//! Decides the verdict on one image by its facts, the class's spec and the class's policy. Only certain obstacles
//! reject: an absent fact rejects nothing, and a boot mode only where no type of the architecture has it; other types are
//! left out (`tenon_domain::class_status::image_for`). It doesn't decide which accepted image the class takes (`choose`), nor which owners its cluster may use (`resolve`).
//!
//! Sources: DescribeImages returns only images that the account may launch
//! (docs.aws.amazon.com/AWSEC2/latest/APIReference `API_DescribeImages.html`); EC2 refuses a volume smaller than its
//! snapshot as `InvalidBlockDeviceMapping` (aws/karpenter-provider-aws issues 3302 and 7928); both read November 2026.
//!
//! Invariants: a verdict follows from its arguments alone; an image in another state than available is rejected for
//! that alone.

use jiff::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::AmiFamily;
use tenon_domain::catalog::settings::GIB;
use tenon_domain::class_status::{ImageFault, ImageRejection};
use tenon_domain::image::{BootMode, EnaSupport, ImagePlatform, RootDeviceType};
use tenon_domain::image_policy::{DeprecatedImages, ImagePolicy};
use tenon_ec2::port::{Image, ImageArchitecture, ImageState, SnapshotState};

use crate::choose::KnownImages;
use crate::image_snapshots::UnfinishedSnapshots;
use crate::resolve::{JudgedClass, is_deprecated, is_owned_by, named};

/// The verdict on an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageVerdict {
    /// The class may take it.
    Accepted,
    /// It may not; at least one reason.
    Rejected(Vec<ImageRejection>),
}

/// Judges an image of a class with this policy.
#[must_use]
pub fn judge(
    judged: JudgedClass<'_>,
    policy: &ImagePolicy,
    image: &Image,
    known: KnownImages<'_>,
) -> ImageVerdict {
    if image.state != ImageState::Available {
        let message = format!("is {}", image.state.as_str());
        return ImageVerdict::Rejected(vec![ImageRejection { fault: ImageFault::NotAvailable, message }]);
    }
    let mut reasons = policy_reasons(judged, policy, image);
    reasons.extend(launch_reasons(judged.class, image));
    reasons.extend(snapshot_reasons(known.unfinished, image));
    reasons.extend(known.refusal(image, judged.now).map(|refused| ImageRejection {
        fault: ImageFault::LaunchRefused,
        message: format!("isn't launched ({}), and is tried again at `{}`", refused.message, refused.until),
    }));
    if reasons.is_empty() { ImageVerdict::Accepted } else { ImageVerdict::Rejected(reasons) }
}

/// When an image is old enough for a policy; `None` if it always is, or if its age isn't known.
#[must_use]
pub fn old_enough_at(policy: &ImagePolicy, image: &Image) -> Option<Timestamp> {
    let created_at = image.created_at.filter(|_| !policy.minimum_age.is_zero())?;
    created_at.saturating_add(policy.minimum_age).ok()
}

/// What a person should know of an image that the class takes: the device that its nodes' storage is counted by is none
/// of the image's, so it becomes an empty volume. Who marks one as `rootVolume` mounts it.
#[must_use]
pub fn warning(class: &Ec2NodeClass, image: &Image) -> Option<String> {
    let root = image.facts.root_device_name.as_deref()?;
    let mapped = &class.settings.block_devices;
    if mapped.iter().any(|mapped| mapped.root_volume) {
        return None;
    }
    let mut names = mapped.iter().filter_map(|mapped| mapped.device_name.as_deref());
    let is_of_image = |device: &str| device == root || image.facts.volumes.contains_key(device);
    let device = match class.settings.ami_family.ephemeral_device() {
        Some((device, _)) => {
            Some(device).filter(|device| mapped.is_empty() || names.any(|name| name == *device))
        }
        None if names.clone().any(is_of_image) => None,
        None => names.next_back(),
    };
    let device = device.filter(|device| !is_of_image(device))?;
    Some(format!(
        "the root device of image `{}` is `{root}`, so `{device}` becomes another volume: map `{root}` in \
         `spec.blockDeviceMappings`",
        image.id
    ))
}

/// What the policy has against it.
fn policy_reasons(judged: JudgedClass<'_>, policy: &ImagePolicy, image: &Image) -> Vec<ImageRejection> {
    let mut reasons = Vec::new();
    let mut reject = |fault, message| reasons.push(ImageRejection { fault, message });
    if policy.deprecated == DeprecatedImages::Reject && is_deprecated(image, judged.now) {
        reject(ImageFault::Deprecated, "is deprecated".to_owned());
    }
    let age = policy.minimum_age_text();
    match old_enough_at(policy, image) {
        Some(at) if judged.now < at => {
            reject(ImageFault::TooYoung, format!("is younger than {age} until {at:.0}"));
        }
        None if !policy.minimum_age.is_zero() => {
            reject(ImageFault::TooYoung, format!("has no creation time, so its age may be less than {age}"));
        }
        Some(_) | None => {}
    }
    let owned = |owner: &String| is_owned_by(image, owner, judged.account);
    if !policy.owners.is_empty() && !policy.owners.iter().any(owned) {
        let message = format!("belongs to owner `{}`, whom the policy doesn't accept", image.owner);
        reject(ImageFault::OwnerNotAccepted, message);
    }
    let has = |key: &String, value: &String| {
        image.tags.get(key).is_some_and(|found| value == "*" || value == found)
    };
    let missing: Vec<String> = policy
        .required_tags
        .iter()
        .filter(|(key, value)| !has(key, value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    if !missing.is_empty() {
        reject(ImageFault::TagsMissing, format!("isn't tagged {}", named(missing.into_iter())));
    }
    reasons
}

/// What keeps every instance of it from its launch, or from its cluster.
fn launch_reasons(class: &Ec2NodeClass, image: &Image) -> Vec<ImageRejection> {
    let mut reasons = Vec::new();
    let mut reject = |fault, message| reasons.push(ImageRejection { fault, message });
    let facts = &image.facts;
    if facts.platform == Some(ImagePlatform::Windows) && is_linux(class.settings.ami_family) {
        let message = format!("is for Windows, and AMI family `{}` isn't", class.settings.ami_family);
        reject(ImageFault::WrongPlatform, message);
    }
    if facts.root_device_type == Some(RootDeviceType::InstanceStore) {
        let message = "has its root volume on the host's disks: make it with one on EBS".to_owned();
        reject(ImageFault::InstanceStoreRoot, message);
    }
    if facts.ena == Some(EnaSupport::Missing) {
        let message = "has no ENA support: make it with ENA drivers, and register it with `--ena-support`";
        reject(ImageFault::EnaMissing, message.to_owned());
    }
    if facts.boot_mode == Some(BootMode::LegacyBios) && image.architecture == Some(ImageArchitecture::Arm64) {
        let message =
            "boots by legacy BIOS, and all arm64 types by UEFI: register it with `--boot-mode uefi`";
        reject(ImageFault::BootModeUnsupported, message.to_owned());
    }
    for (device, volume) in &facts.volumes {
        let needed = volume.size_gib.filter(|_| volume.snapshot.is_some()).map(u64::from);
        if let (Some(needed), Some(given)) = (needed, mapped_gib(class, image, device))
            && given < needed
        {
            let message = format!(
                "has a snapshot of {needed} GiB for `{device}`, and the class's volume has {given} GiB: raise \
                 `volumeSize` in `spec.blockDeviceMappings`"
            );
            reject(ImageFault::VolumeTooSmall, message);
        }
    }
    reasons
}

/// What its snapshots have against it, where EC2 shows them.
fn snapshot_reasons(unfinished: &UnfinishedSnapshots, image: &Image) -> Vec<ImageRejection> {
    let mut reasons = Vec::new();
    for (device, volume) in &image.facts.volumes {
        let Some(id) = &volume.snapshot else { continue };
        let (fault, message) = match unfinished.get(id) {
            None | Some(SnapshotState::Completed) => continue,
            Some(SnapshotState::Pending | SnapshotState::Recovering) => (
                ImageFault::SnapshotPending,
                format!("waits for its snapshot `{id}` of `{device}`, which isn't complete yet"),
            ),
            Some(state @ (SnapshotState::Error | SnapshotState::Recoverable)) => (
                ImageFault::SnapshotFailed,
                format!(
                    "has the snapshot `{id}` for `{device}`, whose state is `{state}`: make the image again"
                ),
            ),
        };
        reasons.push(ImageRejection { fault, message });
    }
    reasons
}

/// Whether the family's nodes run Linux; user data of a custom family is the user's own.
const fn is_linux(family: AmiFamily) -> bool {
    match family {
        AmiFamily::Al2 | AmiFamily::Al2023 | AmiFamily::Bottlerocket => true,
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 | AmiFamily::Custom => false,
    }
}

/// The size in GiB that launches give the image's volume at a device, if they give any; rounded up, as launches do.
fn mapped_gib(class: &Ec2NodeClass, image: &Image, device: &str) -> Option<u64> {
    let settings = &class.settings;
    if settings.block_devices.is_empty() {
        let mut defaults = settings.ami_family.default_devices().iter();
        return defaults.find(|(name, _)| *name == device).map(|(_, bytes)| bytes.div_ceil(GIB));
    }
    let mapping =
        settings.block_devices.iter().find(|mapped| mapped.device_name.as_deref() == Some(device))?;
    let ebs = mapping.ebs.as_ref()?;
    // The size of another snapshot isn't known here.
    let own = ebs.snapshot_id.as_deref().is_none_or(|id| image.facts.snapshot(device) == Some(id));
    let size = ebs.size.filter(|_| own)?;
    u64::try_from(size.value_ceil()).ok().map(|bytes| bytes.div_ceil(GIB))
}
