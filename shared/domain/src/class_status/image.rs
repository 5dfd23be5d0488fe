//! An image of a class, and the instance types that it is for.
//!
//! Decides which image a type launches with: the first of the status's order whose architecture, variant and
//! boot mode suit it.
//!
//! Invariant: a type without a suitable image launches with none.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::refused_image::RefusedImage;
use crate::catalog::facts::{Architecture, InstanceTypeFacts};
use crate::id::ImageId;
use crate::image::BootMode;
use crate::labels;

crate::words! {
    /// The accelerators that an image has drivers for. The words are those of the EKS-optimised AMIs' parameters
    /// (docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html).
    #[derive(Default)]
    pub enum ImageVariant {
        /// Types without accelerators.
        Standard = "standard",
        /// Types with GPUs.
        Nvidia = "nvidia",
        /// Types with AWS Trainium or Inferentia.
        Neuron = "neuron",
        /// All types: somebody selected the image itself, not a variant of a family.
        #[default]
        Any = "any",
    }
}

impl ImageVariant {
    /// Whether the image is for a type. Source: aws/karpenter-provider-aws `pkg/providers/amifamily/types.go`.
    #[must_use]
    pub const fn suits(self, facts: &InstanceTypeFacts) -> bool {
        let gpus = !facts.gpus.is_empty();
        let accelerators = !(facts.inference_accelerators.is_empty() && facts.neuron_devices.is_empty());
        match self {
            Self::Standard => !gpus && !accelerators,
            Self::Nvidia => gpus,
            Self::Neuron => accelerators,
            Self::Any => true,
        }
    }

    /// Those types as requirements.
    #[must_use]
    pub const fn requirements(self) -> &'static [VariantRequirement] {
        const fn of(label: &'static str, operator: &'static str) -> VariantRequirement {
            VariantRequirement { label, operator }
        }
        const STANDARD: &[VariantRequirement] = &[
            of(labels::INSTANCE_ACCELERATOR_COUNT, "DoesNotExist"),
            of(labels::INSTANCE_GPU_COUNT, "DoesNotExist"),
        ];
        const NVIDIA: &[VariantRequirement] = &[of(labels::INSTANCE_GPU_COUNT, "Exists")];
        const NEURON: &[VariantRequirement] = &[of(labels::INSTANCE_ACCELERATOR_COUNT, "Exists")];
        match self {
            Self::Standard => STANDARD,
            Self::Nvidia => NVIDIA,
            Self::Neuron => NEURON,
            Self::Any => &[],
        }
    }
}

/// A requirement of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantRequirement {
    /// The label of instance types.
    pub label: &'static str,
    /// `Exists` or `DoesNotExist`.
    pub operator: &'static str,
}

/// An image of a class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedImage {
    /// The image.
    pub id: ImageId,
    /// Its name.
    pub name: String,
    /// Its architecture.
    pub architecture: Architecture,
    /// The types of that architecture that it is for.
    pub variant: ImageVariant,
    /// The boot mode that its types must have; `None` for one that prefers a mode, or has the type's default.
    pub boot_mode: Option<BootMode>,
    /// Its creation time.
    pub created_at: Timestamp,
    /// The snapshots that the class names and the image itself has for that device, by device: EC2 takes them without
    /// being asked, and without a right on them.
    pub own_snapshots: BTreeMap<String, String>,
}

impl ResolvedImage {
    /// Whether a type launches with it.
    #[must_use]
    pub fn suits(&self, facts: &InstanceTypeFacts) -> bool {
        facts.architectures.contains(&self.architecture)
            && self.variant.suits(facts)
            && facts.boot_modes.boots(self.boot_mode)
    }
}

crate::words! {
    /// Why a class rejects an image. A word of a later release counts as a refusal: the class doesn't launch the image, and
    /// no instance may show the opposite. The message beside the word says why.
    pub enum ImageFault else LaunchRefused {
        /// EC2 reports it in a state other than `available`.
        NotAvailable,
        /// Its owner deprecated it, and the class's policy rejects that.
        Deprecated,
        /// It is younger than the policy's `minimumAge`.
        TooYoung,
        /// Its owner is none of the policy's.
        OwnerNotAccepted,
        /// It hasn't the policy's tags.
        TagsMissing,
        /// It is for Windows, and the class's AMI family isn't.
        WrongPlatform,
        /// Its root volume is on the host's disks.
        InstanceStoreRoot,
        /// It has no drivers for enhanced networking.
        EnaMissing,
        /// One of its snapshots isn't whole yet.
        SnapshotPending,
        /// The making of one of its snapshots failed.
        SnapshotFailed,
        /// EC2 refused to launch it.
        LaunchRefused,
        /// No type of its architecture boots by its boot mode.
        BootModeUnsupported,
        /// The class maps a smaller volume than the snapshot that it is made from.
        VolumeTooSmall,
        /// EC2 ended its instance before a Node joined.
        LaunchFailed,
        /// No Node of its instance joined.
        NeverJoined,
    }
}

impl ImageFault {
    /// Whether an instance showed it, and another one may show the opposite.
    #[must_use]
    pub const fn is_of_instance(self) -> bool {
        match self {
            Self::LaunchFailed | Self::NeverJoined => true,
            Self::NotAvailable
            | Self::Deprecated
            | Self::TooYoung
            | Self::OwnerNotAccepted
            | Self::TagsMissing
            | Self::WrongPlatform
            | Self::InstanceStoreRoot
            | Self::EnaMissing
            | Self::SnapshotPending
            | Self::SnapshotFailed
            | Self::LaunchRefused
            | Self::BootModeUnsupported
            | Self::VolumeTooSmall => false,
        }
    }
}

/// One reason for which a class rejects an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageRejection {
    /// The reason.
    pub fault: ImageFault,
    /// The end of a sentence that begins with the image.
    pub message: String,
}

/// An image that a class would take if it accepted it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RejectedImage {
    /// The image.
    pub id: ImageId,
    /// Its name.
    pub name: String,
    /// Why; at least one.
    pub reasons: Vec<ImageRejection>,
}

impl RejectedImage {
    /// The reasons as one text.
    #[must_use]
    pub fn why(&self) -> String {
        let reasons: Vec<&str> = self.reasons.iter().map(|reason| reason.message.as_str()).collect();
        reasons.join(", ")
    }

    /// Whether the other is the same image, rejected for the same reasons.
    #[must_use]
    pub fn is_as(&self, other: &Self) -> bool {
        let faults = |image: &Self| image.reasons.iter().map(|reason| reason.fault).collect::<Vec<_>>();
        self.id == other.id && faults(self) == faults(other)
    }
}

/// What there is to know about a class's images besides those that it takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageNotices {
    /// Better images that it rejects.
    pub rejected: Vec<RejectedImage>,
    /// Images that EC2 refused to launch, by id.
    pub refused: Vec<RefusedImage>,
    /// The message of `AMIsReady` where it holds.
    pub message: String,
    /// Why the class's policy on images can't be read.
    pub unreadable: Option<String>,
    /// When another look may accept one of the rejected images.
    pub next_try: Option<Timestamp>,
}

/// The types that have no image among these; empty if all have one.
#[must_use]
pub(super) fn types_without_image(images: &[ResolvedImage]) -> Vec<String> {
    let mut without = Vec::new();
    if images.is_empty() {
        return without;
    }
    for architecture in [Architecture::X86_64, Architecture::Arm64] {
        let of: Vec<&ResolvedImage> =
            images.iter().filter(|image| image.architecture == architecture).collect();
        let name = architecture.as_str();
        if of.is_empty() {
            without.push(format!("{name} types"));
            continue;
        }
        // No type with Neuron devices has the architecture arm64.
        let neuron = (architecture == Architecture::X86_64).then_some(ImageVariant::Neuron);
        for variant in [ImageVariant::Standard, ImageVariant::Nvidia].into_iter().chain(neuron) {
            if of.iter().all(|image| image.variant != variant && image.variant != ImageVariant::Any) {
                without.push(format!("{name} types {}", types_of(variant)));
            }
        }
        without.extend(types_without_uefi(name, &of));
    }
    without
}

/// The types of an architecture that don't boot their image, because it needs UEFI. Each Arm type has UEFI.
fn types_without_uefi(architecture: &str, images: &[&ResolvedImage]) -> Vec<String> {
    let needs = |image: &&ResolvedImage| {
        image.architecture == Architecture::X86_64 && image.boot_mode == Some(BootMode::Uefi)
    };
    if images.iter().copied().all(|image| needs(&image)) {
        return vec![format!("{architecture} types without UEFI")];
    }
    let some = images.iter().copied().filter(needs);
    some.map(|image| format!("{architecture} types {} and without UEFI", types_of(image.variant))).collect()
}

const fn types_of(variant: ImageVariant) -> &'static str {
    match variant {
        ImageVariant::Nvidia => "with GPUs",
        ImageVariant::Neuron => "with Neuron devices",
        ImageVariant::Standard | ImageVariant::Any => "without accelerators",
    }
}

/// The first of a class's images, as its status has them, that suits the type.
#[must_use]
pub fn image_for<'a>(images: &'a [ResolvedImage], facts: &InstanceTypeFacts) -> Option<&'a ResolvedImage> {
    images.iter().find(|image| image.suits(facts))
}
