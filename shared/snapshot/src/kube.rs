//! What an API server does for the agent: the port that kube-rs and the simulated cluster serve.
//!
//! Decides the calls and what each outcome asks of the caller. It doesn't retry.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use crate::note::Note;
use crate::object::{self, Kind, Object, ObjectKey, text};
use crate::pod::PodRef;

/// An API server, with the agent's rights.
pub trait Kube: Send + Sync {
    /// All objects of a kind, in the order of their namespaces and names.
    ///
    /// # Errors
    /// [`KubeError`] says what the caller does next.
    fn list(&self, kind: Kind) -> impl Future<Output = Result<Vec<Object>, KubeError>> + Send;

    /// All pods, in the order of their namespaces and names; finished ones may be missing. A pod that didn't change
    /// since it was asked for last is the same shared one.
    ///
    /// # Errors
    /// [`KubeError`] says what the caller does next.
    fn pods(&self) -> impl Future<Output = Result<Vec<PodRef>, KubeError>> + Send;

    /// One object, or nothing.
    ///
    /// # Errors
    /// [`KubeError`] says what the caller does next.
    fn get(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Object>, KubeError>> + Send;

    /// Creates an object that mustn't exist.
    ///
    /// # Errors
    /// [`KubeError::Conflict`] where it exists already.
    fn create(&self, object: Value) -> impl Future<Output = Result<Object, KubeError>> + Send;

    /// Applies a JSON merge patch (RFC 7396) to an object, its status left out.
    ///
    /// # Errors
    /// [`KubeError::NotFound`], or [`KubeError::Conflict`] where the precondition doesn't hold.
    fn patch(
        &self,
        key: &ObjectKey,
        patch: &Value,
        precondition: &Precondition,
    ) -> impl Future<Output = Result<Object, KubeError>> + Send;

    /// Applies the `status` of an object, given with `apiVersion`, `kind` and `metadata.name`, as the only one who
    /// decides it: server-side apply by [`FIELD_MANAGER`], conflicts forced.
    ///
    /// # Errors
    /// [`KubeError::NotFound`] where the object isn't there: it isn't made.
    fn apply_status(&self, object: &Value) -> impl Future<Output = Result<Object, KubeError>> + Send;

    /// Tells people about an object (`events.k8s.io/v1 Event`). Best effort: it may be lost, or told twice.
    ///
    /// # Errors
    /// [`KubeError`]; nobody has to do anything about it.
    fn note(&self, note: &Note) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Deletes an object, if it still has this UID (any, where that is empty); `grace_seconds` is a pod's, its own
    /// where absent. Finalizers hold it.
    ///
    /// # Errors
    /// [`KubeError::Conflict`] where the UID is another's.
    fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> impl Future<Output = Result<Deletion, KubeError>> + Send;

    /// Tells kube-scheduler that a Node was launched for these pods (`status.nominatedNodeName`), given with their
    /// UIDs: it tries that one first, and keeps its room for them. A pod that is gone, or is another by now, is left
    /// out.
    ///
    /// # Errors
    /// [`KubeError`], the first one: some pods aren't nominated, and go where kube-scheduler likes.
    fn nominate(
        &self,
        pods: &[(ObjectKey, String)],
        node: &str,
    ) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Asks for the eviction of a pod that has this UID (`policy/v1 Eviction`).
    ///
    /// # Errors
    /// [`KubeError`] says what the caller does next.
    fn evict(&self, pod: &ObjectKey, uid: &str) -> impl Future<Output = Result<Eviction, KubeError>> + Send;
}

/// Which object a manifest is of.
///
/// # Errors
/// [`KubeError::Invalid`], where it doesn't say so.
pub fn key_of(object: &Value) -> Result<ObjectKey, KubeError> {
    ObjectKey::of(object).ok_or_else(|| KubeError::Invalid {
        key: format!("{} {}", text(object, "/kind").unwrap_or("(no kind)"), object::name(object)),
        message: "give `kind`, one that is known, and `metadata.name`".to_owned(),
    })
}

/// Who owns the fields that the agent applies.
pub const FIELD_MANAGER: &str = "tenon-agent";

/// What must hold for a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: what the patch names is the caller's alone.
    None,
    /// `metadata.resourceVersion` is this: for lists, which a merge patch replaces as a whole.
    ResourceVersion(String),
}

/// What became of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It is gone, or will be.
    Accepted,
    /// It was gone.
    NotFound,
}

/// What became of an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is terminating.
    Evicted,
    /// There is no such pod.
    NotFound,
    /// A PodDisruptionBudget forbids it now (429), or more than one covers the pod (500). Ask again later.
    TooManyRequests {
        /// The API server's words.
        message: String,
    },
    /// There is a pod of that name with another UID.
    Conflict,
}

/// Why an API server gave no answer, or refused.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KubeError {
    /// There is no such object.
    #[error("`{key}` not found")]
    NotFound {
        /// Which.
        key: ObjectKey,
    },
    /// It isn't as the caller saw it: look again.
    #[error("`{key}` isn't as it was seen: {message}")]
    Conflict {
        /// Which.
        key: ObjectKey,
        /// The API server's words.
        message: String,
    },
    /// It can't be like this: the caller's error.
    #[error("`{key}` is invalid: {message}")]
    Invalid {
        /// Which.
        key: String,
        /// The API server's words.
        message: String,
    },
    /// The API server doesn't serve this kind: its CRD isn't installed.
    #[error("the API server doesn't know `{kind}`: install its CRD")]
    UnknownKind {
        /// Which.
        kind: Kind,
    },
    /// It didn't answer, or is throttled: try again at the next step.
    #[error("the API server is unavailable")]
    Unavailable(#[source] Arc<dyn Error + Send + Sync>),
}
