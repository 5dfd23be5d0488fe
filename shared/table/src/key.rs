//! Keys of the table: a partition key and a sort key.
//!
//! Decides which keys DynamoDB accepts. The items' forms decide the prefixes.

use crate::limits;
use std::fmt;
use tenon_domain::id::ClusterName;

/// The attribute that holds the partition key. It is no part of an [`Item`](crate::Item).
pub const PK: &str = "pk";
/// The attribute that holds the sort key. It is no part of an [`Item`](crate::Item).
pub const SK: &str = "sk";
/// The attribute that [`Expect::Revision`](crate::Expect::Revision) compares: a whole number that every writer of an
/// item under revision raises.
pub const REVISION: &str = "revision";
/// The attribute by which DynamoDB deletes, late: seconds since 1970. Readers compare it with `now` themselves.
pub const EXPIRES_AT: &str = "expires_at";
/// The attribute that holds the version of an item's form.
pub const VERSION: &str = "v";

/// A whole key. Ordered bytewise by partition, then place, as DynamoDB orders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Partition key, such as `CLUSTER#prod`: 1 to 2048 bytes.
    pub pk: String,
    /// Sort key, such as `NODECLAIM#default-3k9x2`: 1 to 1024 bytes.
    pub sk: String,
}

impl Key {
    /// A key of these two parts. Whether DynamoDB takes it is checked when it is used.
    pub fn new(pk: impl Into<String>, sk: impl Into<String>) -> Self {
        Self { pk: pk.into(), sk: sk.into() }
    }

    /// The item that set-level decisions about a cluster are conditional on.
    #[must_use]
    pub fn cluster_revision(cluster: &ClusterName) -> Self {
        Self::new(format!("CLUSTER#{cluster}"), "REVISION")
    }

    /// Checks the key against DynamoDB's limits.
    ///
    /// # Errors A sentence with the key, the limit and the remedy.
    pub fn check(&self) -> Result<(), String> {
        check_part(PK, &self.pk, limits::PK_BYTES)?;
        check_part(SK, &self.sk, limits::SK_BYTES)
    }

    /// The key's part of its item's size, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        (PK.len() + self.pk.len() + SK.len() + self.sk.len()) as u64
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pk, self.sk)
    }
}

/// Checks one part of a key against DynamoDB's limits.
pub(crate) fn check_part(name: &str, value: &str, most: usize) -> Result<(), String> {
    if value.is_empty() {
        return Err(format!("the key's `{name}` is empty: give it at least one character"));
    }
    if value.len() > most {
        let start: String = value.chars().take(40).collect();
        return Err(format!(
            "the key's `{name}`, `{start}…`, has {} bytes: shorten it to at most {most}",
            value.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pk: &str, sk: &str, expected: Result<(), &str>) {
        let found = Key::new(pk, sk).check();
        match (&found, expected) {
            (Ok(()), Ok(())) => {}
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            _ => panic!("{found:?} isn't {expected:?}"),
        }
    }

    #[test]
    fn keys_have_dynamodbs_sizes() {
        check("CLUSTER#a", "REVISION", Ok(()));
        check(&"p".repeat(2048), &"s".repeat(1024), Ok(()));
        check("", "a", Err("`pk` is empty"));
        check("a", "", Err("`sk` is empty"));
        check(&"p".repeat(2049), "a", Err("has 2049 bytes"));
        check("a", &"s".repeat(1025), Err("has 1025 bytes"));
    }

    #[test]
    fn keys_read_as_partition_and_place() {
        let cluster = ClusterName::parse("prod").unwrap();
        assert_eq!(Key::cluster_revision(&cluster).to_string(), "CLUSTER#prod/REVISION");
    }
}
