//! The next generation, and whether the table was restored.
//!
//! Decides by two annotations of a Lease in the cluster, which a restore of the table doesn't change: the generation
//! about to be written, and the last one known to be written. No generation is used twice.

use serde_json::{Value, json};
use tenon_snapshot::object::{Kind, ObjectKey, text};
use tenon_snapshot::snapshot::Manifest;

/// The namespace of the Lease.
pub const LEASE_NAMESPACE: &str = "kube-system";
/// The name of the Lease.
pub const LEASE_NAME: &str = "tenon-agent-generation";
const WRITTEN: &str = "tenon.dev/generation-written";
const RESERVED: &str = "tenon.dev/generation-reserved";

/// The Lease's record of the generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClusterGenerations {
    /// The last generation known to be in the table, unless the table was restored.
    pub written: u64,
    /// May have been written.
    pub reserved: u64,
}

/// The table's state, compared with the Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The table holds the last written generation.
    Intact,
    /// The table holds an older one: it was restored.
    Restored,
}

/// The key of the Lease.
#[must_use]
pub fn lease_key() -> ObjectKey {
    ObjectKey::new(Kind::Lease, LEASE_NAMESPACE, LEASE_NAME)
}

impl ClusterGenerations {
    /// Reads the Lease's annotations; an absent one is 0.
    #[must_use]
    pub fn of(lease: &Value) -> Self {
        let read = |key: &str| {
            let pointer = format!("/metadata/annotations/{}", key.replace('/', "~1"));
            text(lease, &pointer).and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        Self { written: read(WRITTEN), reserved: read(RESERVED) }
    }

    /// The merge patch that makes the Lease say this.
    #[must_use]
    pub fn patch(&self) -> Value {
        json!({"metadata": {"annotations": {
            WRITTEN: self.written.to_string(), RESERVED: self.reserved.to_string()}}})
    }

    /// The Lease, for the first time.
    #[must_use]
    pub fn lease(&self) -> Value {
        let mut lease = self.patch();
        if let Some(fields) = lease.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(Kind::Lease.api_version()));
            fields.insert("kind".to_owned(), json!(Kind::Lease.as_str()));
        }
        if let Some(metadata) = lease.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), json!(LEASE_NAMESPACE));
            metadata.insert("name".to_owned(), json!(LEASE_NAME));
        }
        lease
    }

    /// Compares the table with the Lease.
    #[must_use]
    pub fn judge(&self, stored: Option<&Manifest>) -> Memory {
        if stored.map_or(0, |manifest| manifest.generation) < self.written {
            Memory::Restored
        } else {
            Memory::Intact
        }
    }

    /// The record for the Lease before the next generation, `reserved`, is written.
    #[must_use]
    pub fn next(&self, stored: Option<&Manifest>) -> Self {
        let written = self.written.max(stored.map_or(0, |manifest| manifest.generation));
        Self { written, reserved: written.max(self.reserved).saturating_add(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn manifest(generation: u64) -> Manifest {
        Manifest {
            revision: 1,
            generation,
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            restored_at: None,
            kubernetes_version: None,
            pending_pods: 0,
            buckets: BTreeMap::new(),
            chunks: vec![],
            index: None,
        }
    }

    #[test]
    fn a_generation_is_never_used_twice() {
        let check = |(written, reserved): (u64, u64), stored: Option<u64>, expected: (Memory, u64)| {
            let known = ClusterGenerations { written, reserved };
            let stored = stored.map(manifest);
            let next = known.next(stored.as_ref());
            assert_eq!((known.judge(stored.as_ref()), next.reserved), expected);
        };
        check((0, 0), None, (Memory::Intact, 1));
        check((4, 5), Some(5), (Memory::Intact, 6));
        // The agent was interrupted between the annotation and the manifest.
        check((4, 5), Some(4), (Memory::Intact, 6));
        check((4, 5), Some(2), (Memory::Restored, 6));
        check((4, 5), None, (Memory::Restored, 6));
        // The Lease was deleted.
        check((0, 0), Some(9), (Memory::Intact, 10));
    }

    #[test]
    fn the_lease_says_what_it_was_told() {
        let known = ClusterGenerations { written: 4, reserved: 5 };
        assert_eq!(ClusterGenerations::of(&known.lease()), known);
        assert_eq!(ClusterGenerations::of(&json!({})), ClusterGenerations::default());
    }
}
