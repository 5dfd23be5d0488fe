//! Clusters, seen from outside: the port to an API server, and the forms in which a cluster's state and its actions lie
//! in the table.
//!
//! Objects are JSON in Kubernetes' own form ([`object::Object`]), pods what is left of theirs ([`pod::SeenPod`]). What
//! crosses to the table is a projection: the fields that scheduling and draining need ([`snapshot`]). Functions read it
//! back into the domain's types.

pub mod action;
pub mod kube;
pub mod note;
pub mod object;
pub mod pod;
pub mod snapshot;
pub mod versions;

pub use action::{ActionKind, NodeAction};
pub use kube::{Deletion, Eviction, Kube, KubeError, Precondition};
pub use note::{Note, NoteKind};
pub use object::{Kind, Object, ObjectKey};
pub use pod::{PodRef, SeenPod};
pub use versions::{ObjectChange, Versions};
