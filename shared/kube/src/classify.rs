//! The meaning of an API server's errors: the only place that knows its codes and reasons.
//!
//! Decides the [`KubeError`] of a failed call. It doesn't retry. An error that may not be final becomes
//! [`KubeError::Unavailable`]: the server may have executed the call.

use std::sync::Arc;

use kube::core::Status;
use kube::runtime::watcher;
use tenon_snapshot::object::{Kind, ObjectKey};
use tenon_snapshot::{Eviction, KubeError};

use crate::resource::{group_version, plural};

/// Where an API server tells its version: no resource, and so with a rule of its own.
pub const VERSION_PATH: &str = "/version";

/// A call that failed.
#[derive(Debug, Clone, Copy)]
pub struct KubeCall<'a> {
    /// The verb, as RBAC names it.
    pub verb: &'static str,
    /// The kind of the request.
    pub kind: Kind,
    /// The subresource, such as `/status`; empty for the object itself.
    pub part: &'static str,
    /// The object; `None` for a collection.
    pub key: Option<&'a ObjectKey>,
}

/// The API server forbids a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the API server doesn't allow `{verb}` on `{resource}`: grant it in the agent's ClusterRole ({message})"
)]
pub struct Denied {
    /// The verb.
    pub verb: &'static str,
    /// The resource, as RBAC names it, with its group: `nodeclaims.karpenter.sh/status`.
    pub resource: String,
    /// The API server's words.
    pub message: String,
}

impl KubeCall<'_> {
    /// The resource, as an RBAC rule names it.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.part == VERSION_PATH {
            return VERSION_PATH.to_owned();
        }
        let (group, _) = group_version(self.kind);
        let dot = if group.is_empty() { "" } else { "." };
        format!("{}{dot}{group}{}", plural(self.kind), self.part)
    }

    fn name(&self) -> String {
        self.key.map_or_else(|| self.kind.to_string(), ToString::to_string)
    }
}

/// The [`KubeError`] of a failed call.
#[must_use]
pub fn classify(call: KubeCall<'_>, error: kube::Error) -> KubeError {
    if let kube::Error::Api(status) = &error {
        return classify_status(call, status);
    }
    KubeError::Unavailable(Arc::new(error))
}

/// The [`KubeError`] of a refused call.
#[must_use]
pub fn classify_status(call: KubeCall<'_>, status: &Status) -> KubeError {
    let message = status.message.clone();
    match (status.code, call.key) {
        (401 | 403, _) => {
            let denied = Denied { verb: call.verb, resource: call.resource(), message };
            KubeError::Unavailable(Arc::new(denied))
        }
        (404, Some(key)) if names_object(status) => KubeError::NotFound { key: key.clone() },
        (404, _) => KubeError::UnknownKind { kind: call.kind },
        (409, Some(key)) => KubeError::Conflict { key: key.clone(), message },
        (400 | 405 | 413 | 415 | 422, _) => KubeError::Invalid { key: call.name(), message },
        // Server-side apply of a field with a wrong type. Source: structured-merge-diff in kube-apiserver 1.35.
        (500, _) if message.starts_with("failed to create typed patch object") => {
            KubeError::Invalid { key: call.name(), message }
        }
        (_, None | Some(_)) => KubeError::Unavailable(Arc::new(status.clone())),
    }
}

/// The [`KubeError`] of a failed watch.
#[must_use]
pub fn classify_watch(kind: Kind, error: watcher::Error) -> KubeError {
    let call = |verb| KubeCall { verb, kind, part: "", key: None };
    match error {
        watcher::Error::InitialListFailed(error) => classify(call("list"), error),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            classify(call("watch"), error)
        }
        watcher::Error::WatchError(status) => classify_status(call("watch"), &status),
        watcher::Error::NoResourceVersion => {
            KubeError::Unavailable(Arc::new(watcher::Error::NoResourceVersion))
        }
    }
}

/// The meaning of a refused eviction.
///
/// # Errors
/// [`KubeError`] if the answer isn't about the pod.
pub fn classify_eviction(call: KubeCall<'_>, error: kube::Error) -> Result<Eviction, KubeError> {
    if let kube::Error::Api(status) = &error {
        match status.code {
            429 => return Ok(Eviction::TooManyRequests { message: status.message.clone() }),
            // Source: kubernetes/pkg/registry/core/pod/storage/eviction.go, `EvictionREST.Create`.
            500 if status.message.contains("more than one PodDisruptionBudget") => {
                return Ok(Eviction::TooManyRequests { message: status.message.clone() });
            }
            _ => {}
        }
    }
    match classify(call, error) {
        KubeError::NotFound { .. } => Ok(Eviction::NotFound),
        KubeError::Conflict { .. } => Ok(Eviction::Conflict),
        other @ (KubeError::Invalid { .. } | KubeError::UnknownKind { .. } | KubeError::Unavailable(_)) => {
            Err(other)
        }
    }
}

/// Whether a 404 is about an object: the answer names none if the server doesn't serve the kind.
fn names_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;

    fn status(code: u16, message: &str, name: &str) -> kube::Error {
        let details: StatusDetails = serde_json::from_value(serde_json::json!({"name": name})).unwrap();
        kube::Error::Api(Box::new(Status::failure(message, "").with_code(code).with_details(details)))
    }

    fn key() -> ObjectKey {
        ObjectKey::new(Kind::NodeClaim, "", "a")
    }

    #[test]
    fn each_code_says_what_to_do() {
        let check = |error, expected: &str| {
            let key = key();
            let call = KubeCall { verb: "patch", kind: Kind::NodeClaim, part: "/status", key: Some(&key) };
            let found = classify(call, error);
            let cause =
                std::error::Error::source(&found).map(|cause| format!(" <- {cause}")).unwrap_or_default();
            assert_eq!(format!("{found}{cause}"), expected);
        };
        check(status(404, "nodeclaims.karpenter.sh \"a\" not found", "a"), "`NodeClaim a` not found");
        check(
            status(404, "404 page not found", ""),
            "the API server doesn't serve `NodeClaim`: install its CRD",
        );
        check(status(409, "modified", "a"), "conflict on `NodeClaim a`: modified");
        check(status(422, "spec is immutable", "a"), "`NodeClaim a` is invalid: spec is immutable");
        check(
            status(403, "no", "a"),
            "the API server is unavailable <- the API server doesn't allow `patch` on \
             `nodeclaims.karpenter.sh/status`: grant it in the agent's ClusterRole (no)",
        );
        let typed = "failed to create typed patch object (/a): .status.nodeName: expected string";
        check(status(500, typed, ""), &format!("`NodeClaim a` is invalid: {typed}"));
        check(status(503, "busy", ""), "the API server is unavailable <- busy: ");
    }

    #[test]
    fn a_collection_without_its_crd_is_an_unknown_kind() {
        let error = watcher::Error::InitialListFailed(status(404, "404 page not found", ""));
        assert!(matches!(
            classify_watch(Kind::NodePool, error),
            KubeError::UnknownKind { kind: Kind::NodePool }
        ));
    }

    #[test]
    fn budgets_refuse_in_two_ways() {
        let check = |error, expected: &str| {
            let key = ObjectKey::new(Kind::Pod, "shop", "a");
            let call = KubeCall { verb: "create", kind: Kind::Pod, part: "/eviction", key: Some(&key) };
            assert_eq!(format!("{:?}", classify_eviction(call, error).map_err(|e| e.to_string())), expected);
        };
        check(status(429, "budget", ""), "Ok(TooManyRequests { message: \"budget\" })");
        let two = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        check(status(500, two, ""), &format!("Ok(TooManyRequests {{ message: \"{two}\" }})"));
        check(status(404, "gone", "a"), "Ok(NotFound)");
        check(status(409, "another", "a"), "Ok(Conflict)");
        check(status(500, "etcd", ""), "Err(\"the API server is unavailable\")");
    }
}
