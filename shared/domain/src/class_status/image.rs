//! An image of a class, and the instance types that it is for.
//!
//! Decides which image a type launches with: the first of the status's order whose architecture and variant suit it.
//!
//! Invariant: a type without a suitable image launches with none.

use jiff::Timestamp;

use crate::catalog::facts::{Architecture, InstanceTypeFacts};
use crate::id::ImageId;
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
    /// Its creation time.
    pub created_at: Timestamp,
}

/// The first of a class's images, as its status has them, that suits the type.
#[must_use]
pub fn image_for<'a>(images: &'a [ResolvedImage], facts: &InstanceTypeFacts) -> Option<&'a ResolvedImage> {
    images
        .iter()
        .find(|image| facts.architectures.contains(&image.architecture) && image.variant.suits(facts))
}
