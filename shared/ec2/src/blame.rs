//! The part of an EC2NodeClass that a refused launch is about.
//!
//! Decides it from EC2's error text. Errors about anything else blame no part.
//!
//! Source: "Error codes for the Amazon EC2 API" (read November 2026).

use std::collections::BTreeSet;

use tenon_domain::id::ImageId;

/// A part of a class that EC2 refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassPart {
    /// The instance profile, or the right to pass its role.
    InstanceProfile,
    /// An image.
    Image,
    /// A key pair.
    KeyPair,
    /// A block device.
    BlockDevice,
    /// A security group.
    SecurityGroup,
    /// The placement group.
    PlacementGroup,
}

impl ClassPart {
    /// The advice to an operator.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::InstanceProfile => {
                "check `spec.role` or `spec.instanceProfile`: the instance profile must exist, hold its role, and be allowed \
                 in the cluster's stack"
            }
            Self::Image => {
                "check `spec.amiSelectorTerms`: the image must be available to this account and region"
            }
            Self::KeyPair => "check the key pair",
            Self::BlockDevice => "check `spec.blockDeviceMappings`",
            Self::SecurityGroup => {
                "check `spec.securityGroupSelectorTerms`: the groups must exist in the subnets' VPC"
            }
            Self::PlacementGroup => "check `spec.placementGroupSelector`: the placement group must exist",
        }
    }
}

/// The part that EC2's words, the code among them, are about.
#[must_use]
pub fn blame(words: &str) -> Option<ClassPart> {
    let words = words.to_ascii_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    if says(&["iam instance profile", "iaminstanceprofile", "iam:passrole"]) {
        Some(ClassPart::InstanceProfile)
    } else if says(&["invalidamiid", "authorized for images", "marketplace"]) {
        Some(ClassPart::Image)
    } else if says(&["invalidkeypair"]) {
        Some(ClassPart::KeyPair)
    } else if says(&["invalidblockdevicemapping", "invalidsnapshot", "invalidvolume", "blockdevicemapping"]) {
        Some(ClassPart::BlockDevice)
    } else if says(&["invalidgroup", "invalidsecuritygroup"]) {
        Some(ClassPart::SecurityGroup)
    } else if says(&["invalidplacementgroup"]) {
        Some(ClassPart::PlacementGroup)
    } else {
        None
    }
}

/// The image that EC2's words are about, among those that the request may name: the named one, or the only one if the
/// words name none.
#[must_use]
pub fn blamed_image<'a>(words: &str, images: &BTreeSet<&'a ImageId>) -> Option<&'a ImageId> {
    let named = images.iter().copied().find(|id| words.contains(id.as_str()));
    let only = images.first().copied().filter(|_| images.len() == 1 && !words.contains("ami-"));
    named.or(only).filter(|_| blame(words) == Some(ClassPart::Image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_about_another_image_blame_none() {
        let ids: [ImageId; 2] = ["ami-1", "ami-2"].map(|id| id.parse().unwrap());
        let check = |words: &str, images: &[ImageId], expected: Option<&str>| {
            let found = blamed_image(words, &images.iter().collect());
            assert_eq!(found.map(ImageId::as_str), expected, "{words}");
        };
        check("InvalidAMIID.NotFound: The image id '[ami-2]' does not exist", &ids, Some("ami-2"));
        check("InvalidAMIID.NotFound: The image id '[ami-7]' does not exist", &ids[..1], None);
        check("AuthFailure: Not authorized for images: [ami-1]", &ids, Some("ami-1"));
        check("OptInRequired: accept terms in the AWS Marketplace", &ids[..1], Some("ami-1"));
        check("OptInRequired: accept terms in the AWS Marketplace", &ids, None);
        check("InvalidSnapshot.NotFound: of ami-1", &ids, None);
    }

    #[test]
    fn what_a_class_names_is_its_own_to_mend() {
        let check = |words: &str, expected: Option<ClassPart>| assert_eq!(blame(words), expected, "{words}");
        let profile = "InvalidParameterValue: Value (nodes) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name";
        check(profile, Some(ClassPart::InstanceProfile));
        check("InvalidIamInstanceProfileArn.Malformed: no", Some(ClassPart::InstanceProfile));
        check("not authorized to perform: iam:PassRole on resource", Some(ClassPart::InstanceProfile));
        check("InvalidAMIID.NotFound: The image id '[ami-1]' does not exist", Some(ClassPart::Image));
        check("AuthFailure: Not authorized for images: [ami-1]", Some(ClassPart::Image));
        check("InvalidKeyPair.NotFound: gone", Some(ClassPart::KeyPair));
        check("InvalidBlockDeviceMapping: the snapshot is larger", Some(ClassPart::BlockDevice));
        check("InvalidSnapshot.NotFound: gone", Some(ClassPart::BlockDevice));
        check("InvalidGroup.NotFound: gone", Some(ClassPart::SecurityGroup));
        check("InvalidPlacementGroup.Unknown: unknown", Some(ClassPart::PlacementGroup));
        check("UnauthorizedOperation: You are not authorized", None);
        check("VcpuLimitExceeded: too many", None);
    }
}
