//! The agent's port to an API server, implemented by kube-rs and by the simulated cluster.
//!
//! Decides the calls, and what each outcome means to the caller. It doesn't retry.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;

use serde_json::Value;

use crate::note::Note;
use crate::object::{self, Kind, Object, ObjectKey, text};
use crate::pod::PodRef;

/// An API server, with the agent's rights.
pub trait Kube: Send + Sync {
    /// The API server's version of Kubernetes, such as `1.35`.
    ///
    /// # Errors [`KubeError`] tells the caller what to do next.
    fn version(&self) -> impl Future<Output = Result<String, KubeError>> + Send;

    /// All objects of a kind, by namespace and name.
    ///
    /// # Errors [`KubeError`] tells the caller what to do next.
    fn list(&self, kind: Kind) -> impl Future<Output = Result<Vec<Object>, KubeError>> + Send;

    /// All pods, by namespace and name; finished ones may be missing. An unchanged pod is the same shared value as in
    /// the last call.
    ///
    /// # Errors [`KubeError`] tells the caller what to do next.
    fn pods(&self) -> impl Future<Output = Result<Vec<PodRef>, KubeError>> + Send;

    /// One object, or `None`.
    ///
    /// # Errors [`KubeError`] tells the caller what to do next.
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

    /// Applies the `status` of an object, given with `apiVersion`, `kind` and `metadata.name`: server-side apply by
    /// [`FIELD_MANAGER`], with conflicts forced, because no other writer decides it.
    ///
    /// # Errors [`KubeError::NotFound`] without the object: it isn't created.
    fn apply_status(&self, object: &Value) -> impl Future<Output = Result<Object, KubeError>> + Send;

    /// Sends an event about an object (`events.k8s.io/v1 Event`). Best effort: it may be lost or sent twice.
    ///
    /// # Errors [`KubeError`], which the caller may ignore.
    fn note(&self, note: &Note) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Deletes an object with this UID (any UID if it is empty). `grace_seconds` replaces a pod's own grace period.
    /// Finalizers delay the deletion.
    ///
    /// # Errors [`KubeError::Conflict`] for another UID.
    fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> impl Future<Output = Result<Deletion, KubeError>> + Send;

    /// Nominates a Node for these pods, given with their UIDs (`status.nominatedNodeName`): kube-scheduler tries it
    /// first and keeps its room for them. Deleted or recreated pods are skipped.
    ///
    /// # Errors The first [`KubeError`]: the remaining pods aren't nominated, and kube-scheduler places them freely.
    fn nominate(
        &self,
        pods: &[(ObjectKey, String)],
        node: &str,
    ) -> impl Future<Output = Result<(), KubeError>> + Send;

    /// Evicts a pod with this UID (`policy/v1 Eviction`).
    ///
    /// # Errors [`KubeError`] tells the caller what to do next.
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

/// The field manager of everything that the agent applies.
pub const FIELD_MANAGER: &str = "tenon-agent";

/// The condition of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Precondition {
    /// None: no one else writes the patched fields.
    None,
    /// `metadata.resourceVersion` is this: for lists, which a merge patch replaces as a whole.
    ResourceVersion(String),
}

/// The result of a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It is deleted, or will be.
    Accepted,
    /// It didn't exist.
    NotFound,
}

/// The result of an eviction.
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
    /// It isn't as the caller expects (409): read it again.
    #[error("conflict on `{key}`: {message}")]
    Conflict {
        /// Which.
        key: ObjectKey,
        /// The API server's words.
        message: String,
    },
    /// The API server rejects it: the caller's error.
    #[error("`{key}` is invalid: {message}")]
    Invalid {
        /// Which.
        key: String,
        /// The API server's words.
        message: String,
    },
    /// The API server doesn't serve this kind: its CRD isn't installed.
    #[error("the API server doesn't serve `{kind}`: install its CRD")]
    UnknownKind {
        /// Which.
        kind: Kind,
    },
    /// It didn't answer, or is throttled: try again at the next step.
    #[error("the API server is unavailable")]
    Unavailable(#[source] Arc<dyn Error + Send + Sync>),
}
