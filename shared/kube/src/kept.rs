//! An object as the store keeps it.
//!
//! Decides an object's name in the store, what of it is kept, and when two versions are alike. It doesn't decide which
//! version is kept.

use std::sync::Arc;

use serde_json::Value;
use tenon_snapshot::PodRef;
use tenon_snapshot::object::{self, Kind, Object, text};

/// Namespace and name.
pub(crate) type ObjectName = (String, String);

/// A stored object.
pub(crate) trait KeptObject: Clone + Send + 'static {
    /// `metadata.resourceVersion`.
    fn version(&self) -> &str;
    /// `metadata.uid`.
    fn uid(&self) -> &str;
    /// Whether both are equal apart from their version.
    fn is_like(&self, other: &Self) -> bool;
    /// Whether it is a pending pod.
    fn waits(&self) -> bool;
    /// Whether it has a deletion timestamp.
    fn is_deleted(&self) -> bool;
}

impl KeptObject for PodRef {
    fn version(&self) -> &str {
        &self.version
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn is_like(&self, other: &Self) -> bool {
        (**self).is_like(other) && self.deleted_at == other.deleted_at
    }

    fn waits(&self) -> bool {
        self.node.is_none()
    }

    fn is_deleted(&self) -> bool {
        self.deleted_at.is_some()
    }
}

impl KeptObject for Object {
    fn version(&self) -> &str {
        text(self, "/metadata/resourceVersion").unwrap_or_default()
    }

    fn uid(&self) -> &str {
        object::uid(self)
    }

    fn is_like(&self, other: &Self) -> bool {
        let without_version = |object: &Value| {
            let mut object = object.clone();
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
            object
        };
        without_version(self) == without_version(other)
    }

    fn waits(&self) -> bool {
        false
    }

    fn is_deleted(&self) -> bool {
        object::deleted_at(self).is_some()
    }
}

/// The name of an object in the store.
pub(crate) fn name_of(object: &Value) -> ObjectName {
    (object::namespace(object).to_owned(), object::name(object).to_owned())
}

/// The stored form of an object, with `apiVersion` and `kind`, which items of a list lack.
pub(crate) fn keep_object(kind: Kind, mut object: Value) -> Object {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".to_owned(), kind.api_version().into());
        fields.insert("kind".to_owned(), kind.as_str().into());
    }
    Arc::new(tenon_snapshot::snapshot::keep(kind, object))
}
