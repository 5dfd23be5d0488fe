//! Aliases of label keys.
//!
//! Decides which keys mean one label. Every requirement normalises its key, so no other code knows aliases.

use crate::labels;

/// Old and other keys with the label that each means. Source: `NormalizedLabels` of kubernetes-sigs/karpenter
/// `pkg/apis/v1/labels.go` and aws/karpenter-provider-aws `pkg/apis/v1/labels.go`.
pub const ALIASES: [(&str, &str); 6] = [
    ("failure-domain.beta.kubernetes.io/zone", labels::ZONE),
    ("failure-domain.beta.kubernetes.io/region", labels::REGION),
    ("beta.kubernetes.io/arch", labels::ARCH),
    ("beta.kubernetes.io/os", labels::OS),
    ("beta.kubernetes.io/instance-type", labels::INSTANCE_TYPE),
    ("topology.ebs.csi.aws.com/zone", labels::ZONE),
];

/// The label that a key means; the key itself if it has no other.
#[must_use]
pub fn normalize(key: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == key).map_or(key, |(_, label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c005_aliases_are_normalised() {
        for (alias, label) in ALIASES {
            assert_eq!(normalize(alias), label);
            assert!(labels::is_well_known(label));
        }
        assert_eq!(normalize("example.com/zone"), "example.com/zone");
    }
}
