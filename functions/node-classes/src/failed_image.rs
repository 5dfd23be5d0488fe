//! Images that failed: what no check of an image sees, and an instance of it showed.
//!
//! Decides which failures count for a class now, what they mean to it, and when it tries the image again. It doesn't
//! decide when an instance counts as failed (`lifecycle` writes the records), nor what the class takes instead
//! (`choose`).
//!
//! Invariants: a failure counts for an hour, and for the class's spec, policy and annotation as they were; an image
//! that failed is launched by none of the class's plans meanwhile, even without another one.
//!
//! Sources of the rights on keys: repost.aws/knowledge-center/kms-iam-ec2-permission; docs.aws.amazon.com/AWSEC2/latest/
//! UserGuide `ec2-fleet-prerequisites.html` (a fleet of type `instant` uses its caller's rights) and
//! `service-linked-roles-spot-instance-requests.html`; all read November 2026.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::boot::{BootFailure, BootFault, BootForm, BootRecord, JOIN_CHECKS};
use tenon_domain::class_status::{ClassStatus, ConditionReason, ImageFault, ImageRejection, RejectedImage};
use tenon_domain::id::ImageId;
use tenon_domain::launch_verdict::VALIDATION_REFRESH;
use tenon_ec2::port::{Image, ImageState};

use crate::judge_image::ImageVerdict;
use crate::spec_form;

/// The beginning of EC2's codes for a missing snapshot. The others are mostly a key's.
const SNAPSHOT_CODES: &str = "Client.InvalidSnapshot.";

/// The failures that count for a class, by image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FailedImages(BTreeMap<ImageId, BootFailure>);

impl FailedImages {
    /// Those of a class, from all of its cluster's records.
    #[must_use]
    pub fn of(records: &[BootRecord], class: &Ec2NodeClass, now: Timestamp) -> Self {
        let form = form(class);
        let counts = |record: &&BootRecord| record.class == class.name;
        let failed = records.iter().filter(counts).filter_map(|record| {
            let failure = record.failure.as_ref().filter(|failure| failure.counts(&form, now))?;
            Some((record.image.clone(), failure.clone()))
        });
        Self(failed.collect())
    }

    /// The failure of an image.
    #[must_use]
    pub fn get(&self, image: &ImageId) -> Option<&BootFailure> {
        self.0.get(image)
    }

    /// The verdict on an image, with its failure. One that EC2 doesn't launch is rejected for that alone.
    #[must_use]
    pub fn add_to(&self, verdict: ImageVerdict, image: &Image) -> ImageVerdict {
        let failure = self.get(&image.id).filter(|_| image.state == ImageState::Available);
        let Some(failure) = failure else { return verdict };
        let rejection = ImageRejection { fault: fault(failure.fault), message: message(failure) };
        match verdict {
            ImageVerdict::Accepted => ImageVerdict::Rejected(vec![rejection]),
            ImageVerdict::Rejected(mut reasons) => {
                reasons.push(rejection);
                ImageVerdict::Rejected(reasons)
            }
        }
    }
}

/// Whether a class must be looked at for its images' failures: one that it rejects an image for counts no longer, or
/// one counts for an image that it has.
#[must_use]
pub fn is_due(class: &Ec2NodeClass, status: &ClassStatus, records: &[BootRecord], now: Timestamp) -> bool {
    let failed = FailedImages::of(records, class, now);
    let of_instance =
        |image: &RejectedImage| image.reasons.iter().any(|reason| reason.fault.is_of_instance());
    let over = |image: &RejectedImage| of_instance(image) && failed.get(&image.id).is_none();
    status.rejected_images.iter().any(over)
        || status.images.iter().any(|image| failed.get(&image.id).is_some())
}

/// The reason of a class without an image: that of the best one, if an instance showed it.
#[must_use]
pub fn reason(rejected: &[RejectedImage]) -> Option<ConditionReason> {
    let faults = rejected.first()?.reasons.iter().map(|reason| reason.fault);
    faults.filter_map(of_condition).next()
}

/// The class's form now.
fn form(class: &Ec2NodeClass) -> BootForm {
    let refresh = class.meta.annotations.get(VALIDATION_REFRESH).cloned();
    BootForm { spec_digest: spec_form::digest(class), refresh }
}

const fn fault(fault: BootFault) -> ImageFault {
    match fault {
        BootFault::LaunchFailed => ImageFault::LaunchFailed,
        BootFault::NeverJoined => ImageFault::NeverJoined,
    }
}

const fn of_condition(fault: ImageFault) -> Option<ConditionReason> {
    match fault {
        ImageFault::LaunchFailed => Some(ConditionReason::LaunchFailed),
        ImageFault::NeverJoined => Some(ConditionReason::NeverJoined),
        ImageFault::NotAvailable
        | ImageFault::Deprecated
        | ImageFault::TooYoung
        | ImageFault::OwnerNotAccepted
        | ImageFault::TagsMissing
        | ImageFault::WrongPlatform
        | ImageFault::InstanceStoreRoot
        | ImageFault::EnaMissing
        | ImageFault::SnapshotPending
        | ImageFault::SnapshotFailed
        | ImageFault::LaunchRefused
        | ImageFault::BootModeUnsupported
        | ImageFault::VolumeTooSmall => None,
    }
}

/// The end of a sentence that begins with the image. It says the same as long as the failure counts.
fn message(failure: &BootFailure) -> String {
    let BootFailure { instance, message, .. } = failure;
    let what = match failure.fault {
        BootFault::LaunchFailed => {
            format!("failed to launch: EC2 terminated instance `{instance}` ({message})")
        }
        BootFault::NeverJoined => format!("never joined: instance `{instance}` ran, and {message}"),
    };
    format!(
        "{what}; {}; next try at {:.0}, or when the class or its annotation `{VALIDATION_REFRESH}` changes",
        remedy(failure),
        failure.until()
    )
}

/// The advice to an operator.
fn remedy(failure: &BootFailure) -> String {
    let snapshot = failure.code.as_deref().is_some_and(|code| code.starts_with(SNAPSHOT_CODES));
    match failure.fault {
        BootFault::LaunchFailed if snapshot => {
            "check the snapshots of the image and of `spec.blockDeviceMappings`".to_owned()
        }
        BootFault::LaunchFailed => {
            "if a volume is encrypted, check that its KMS key is enabled, and that the key's policy allows the cluster's \
             launch role (the output `LaunchRoleArn` of its stack), and for spot the role `AWSServiceRoleForEC2Spot`, \
             `kms:CreateGrant`, `kms:Decrypt`, `kms:DescribeKey`, `kms:GenerateDataKeyWithoutPlaintext` and \
             `kms:ReEncrypt*`"
                .to_owned()
        }
        BootFault::NeverJoined => format!(
            "check its boot (`aws ec2 get-console-output --instance-id {}`, while EC2 has it), {JOIN_CHECKS}",
            failure.instance
        ),
    }
}
