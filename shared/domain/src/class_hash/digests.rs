//! Short digests of a spec's hashed fields, so that a drift can name those that changed.
//!
//! Decides the fields' names, their order and the length of a digest. It doesn't decide whether a spec changed: its hash
//! does.
//!
//! Invariants: a field keeps its place, and a new one comes last; a field that one side doesn't know isn't named.

use std::fmt;
use std::str::FromStr;

/// The hashed fields of a NodePool's template, below `spec.template`.
const POOL_FIELDS: [&str; 7] = [
    "metadata.labels",
    "metadata.annotations",
    "spec.taints",
    "spec.startupTaints",
    "spec.nodeClassRef",
    "spec.terminationGracePeriod",
    "spec.expireAfter",
];

/// The hashed fields of an EC2NodeClass, below `spec`.
pub(super) const CLASS_FIELDS: [&str; 17] = [
    AMI_FAMILY,
    KUBELET,
    "placementGroupSelector",
    "associatePublicIPAddress",
    "userData",
    "role",
    "instanceProfile",
    "tags",
    "blockDeviceMappings",
    "instanceStorePolicy",
    "networkInterfaces",
    "detailedMonitoring",
    "metadataOptions",
    "enclaveOptions",
    "connectionTracking",
    "context",
    "cpuOptions",
];
pub(super) const AMI_FAMILY: &str = "amiFamily";
pub(super) const KUBELET: &str = "kubelet";

/// Hexadecimal digits of a digest. A claim keeps 24 of them, and has 1 KB; of 65,535 edits of a field one goes unnamed.
const DIGITS: usize = 4;

/// Digests of the hashed fields of a spec, each at its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FieldDigests(Vec<u16>);

impl FieldDigests {
    pub(super) fn of(digests: impl IntoIterator<Item = u16>) -> Self {
        Self(digests.into_iter().collect())
    }

    /// The fields of a NodePool's template that differ, as dotted names below `spec.template`.
    #[must_use]
    pub fn changed_in_template(&self, has: &Self) -> Vec<String> {
        self.changed(has, &POOL_FIELDS)
    }

    /// The fields of an EC2NodeClass that differ, by their names below `spec`.
    #[must_use]
    pub fn changed_in_class(&self, has: &Self) -> Vec<String> {
        self.changed(has, &CLASS_FIELDS)
    }

    fn changed(&self, has: &Self, names: &[&str]) -> Vec<String> {
        let known = names.iter().zip(self.0.iter().zip(&has.0));
        known.filter(|(_, (had, has))| had != has).map(|(name, _)| (*name).to_owned()).collect()
    }
}

/// The digest of a field with this hash; 0 of a field that isn't set.
pub(super) fn short(hash: Option<u64>) -> u16 {
    let digest = hash.map(|hash| (hash % u64::from(u16::MAX)).saturating_add(1));
    digest.and_then(|digest| u16::try_from(digest).ok()).unwrap_or(0)
}

impl fmt::Display for FieldDigests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|digest| write!(f, "{digest:0DIGITS$x}"))
    }
}

/// A text that isn't digests of fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` isn't digests of fields: expected four hexadecimal digits for each")]
pub struct ParseFieldDigestsError(String);

impl FromStr for FieldDigests {
    type Err = ParseFieldDigestsError;

    fn from_str(text: &str) -> Result<Self, ParseFieldDigestsError> {
        let wrong = || ParseFieldDigestsError(text.to_owned());
        let digests = text.as_bytes().chunks_exact(DIGITS);
        if !digests.remainder().is_empty() {
            return Err(wrong());
        }
        let read = |digits: &[u8]| u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        digests.map(|digits| read(digits).ok_or_else(wrong)).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class_hash::fields;

    #[test]
    fn every_hashed_field_of_a_class_has_a_place() {
        let mut known: Vec<&str> = fields::keys().chain([AMI_FAMILY, KUBELET]).collect();
        let mut named = CLASS_FIELDS.to_vec();
        known.sort_unstable();
        named.sort_unstable();
        assert_eq!(named, known);
    }

    #[test]
    fn digests_are_read_as_they_are_written() {
        let digests = FieldDigests::of([0, 1, 0xffff]);
        assert_eq!(digests.to_string(), "00000001ffff");
        assert_eq!("00000001ffff".parse(), Ok(digests));
        assert!("0000000".parse::<FieldDigests>().is_err());
        assert!("00zz".parse::<FieldDigests>().is_err());
    }

    #[test]
    fn a_field_that_one_side_does_not_know_is_not_named() {
        let check = |had: &[u16], has: &[u16], expected: &[&str]| {
            let [had, has] = [had, has].map(|all| FieldDigests::of(all.iter().copied()));
            assert_eq!(had.changed_in_template(&has), expected);
        };
        check(&[1, 2, 3], &[1, 0, 3], &["metadata.annotations"]);
        check(&[1, 2], &[1, 2, 3], &[]);
        check(&[], &[1], &[]);
    }
}
