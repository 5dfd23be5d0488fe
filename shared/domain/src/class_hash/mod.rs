//! The hash of an EC2NodeClass: equal to Karpenter's, so that nodes keep their hash when a cluster changes over.
//!
//! Decides what is hashed: the spec (`fields`), the resolved AMI family, the cluster's certificate authority and
//! `spec.kubelet`. It reads the manifest rather than the parsed class, because Go tells an empty field from an absent
//! one, and hashes the role with its path. It doesn't decide what a different hash means.
//!
//! Invariant: the order of keys and of list items doesn't matter.
//!
//! Source: aws/karpenter-provider-aws `pkg/apis/v1/ec2nodeclass.go`, `kubeletconfiguration.go` (v1.15.1).

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use serde_json::Value;

use crate::catalog::settings::AmiFamily;
use crate::labels;

mod digests;
mod fields;
mod fold;
mod pool;

pub use digests::{FieldDigests, ParseFieldDigestsError};
pub use pool::PoolHash;

/// What Karpenter calls this way of hashing; hashes of another version can't be compared with it.
pub const CLASS_HASH_VERSION: &str = "v6";

/// What Karpenter calls its way of hashing a NodePool's template.
pub const POOL_HASH_VERSION: &str = "v3";

/// The hash of a class in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassHash(u64);

/// The hash of a class's manifest, without its cluster's part, and digests of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SpecHash {
    hash: u64,
    fields: [u16; digests::CLASS_FIELDS.len()],
}

impl SpecHash {
    /// Hashes `spec` and its resolved AMI family.
    #[must_use]
    pub(crate) fn of(spec: &Value, family: AmiFamily) -> Self {
        let kubelet = kubelet_text(spec.get("kubelet"));
        let parts = [fields::spec(spec), fold::text(family.as_str()), fold::text(&kubelet)];
        let hash_of = |name: &str| match name {
            digests::AMI_FAMILY => Some(fold::text(family.as_str())),
            digests::KUBELET => Some(fold::text(&kubelet)),
            name => fields::one(spec, name),
        };
        let fields = digests::CLASS_FIELDS.map(|name| digests::short(hash_of(name)));
        Self { hash: fold::list(parts.into_iter()), fields }
    }

    /// Digests of the fields.
    #[must_use]
    pub fn fields(self) -> FieldDigests {
        FieldDigests::of(self.fields)
    }

    /// The class's hash in a cluster with this certificate authority (base64 of PEM).
    #[must_use]
    pub fn in_cluster(self, certificate_authority: &str) -> ClassHash {
        ClassHash(fold::list([self.hash, fold::text(certificate_authority)].into_iter()))
    }
}

impl ClassHash {
    /// The annotations of an EC2NodeClass with this hash, of its NodeClaims and of their Nodes.
    #[must_use]
    pub fn annotations(self) -> [(&'static str, String); 2] {
        [
            (labels::EC2NODECLASS_HASH, self.to_string()),
            (labels::EC2NODECLASS_HASH_VERSION, CLASS_HASH_VERSION.to_owned()),
        ]
    }
}

/// As in the annotation.
impl fmt::Display for ClassHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ClassHash {
    type Err = ParseIntError;
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// Characters that Go's `encoding/json` escapes and `serde_json` doesn't. In JSON they are only found in strings.
const ESCAPED: [(char, &str); 5] =
    [('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\u{2028}', "\\u2028"), ('\u{2029}', "\\u2029")];

/// `spec.kubelet` as Go writes it: compact, with sorted keys; `null` if it is empty.
fn kubelet_text(kubelet: Option<&Value>) -> String {
    let given = kubelet.filter(|kubelet| kubelet.as_object().is_some_and(|fields| !fields.is_empty()));
    let text = given.unwrap_or(&Value::Null).to_string();
    ESCAPED.iter().fold(text, |text, (character, escaped)| text.replace(*character, escaped))
}

#[cfg(test)]
mod tests;
