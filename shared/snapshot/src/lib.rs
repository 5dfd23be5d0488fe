//! Clusters, seen from outside: the port to an API server, and the forms of a cluster's snapshot and actions in the
//! table.
//!
//! Objects are JSON in Kubernetes' own form ([`object::Object`]); pods are reduced on reading ([`pod::SeenPod`]). The
//! table holds a projection: the fields that scheduling and draining need ([`snapshot`]). Functions read it back into
//! the domain's types.

pub mod action;
pub mod kube;
pub mod note;
pub mod object;
pub mod pod;
pub mod snapshot;
pub mod versions;

pub use action::{ActionKind, NodeAction, ReplacementOrder};
pub use kube::{Deletion, Eviction, Kube, KubeError, Precondition};
pub use note::{Note, NoteKind};
pub use object::{Kind, Object, ObjectKey};
pub use pod::{PodRef, SeenPod};
pub use versions::{ObjectChange, Versions};
