//! Fields of pods, containers and controllers that nobody reads.
//!
//! Decides which fields directly in a pod's `spec`, in a container or in a controller's `spec` can't affect placement: they
//! are dropped. In files, any other field that the type doesn't have is a typo. In a pod it may be a newer Kubernetes'
//! field of placement, too (`workloadRef`), so it is named on the pod; in a controller's `spec` it gets a warning alone. It
//! reads no value.
//!
//! Invariant: with the types' own fields, each list is the type of Kubernetes 1.35, less `workloadRef`; that of controllers
//! is all their types together.
//!
//! Source: Kubernetes 1.35, `core/v1` `PodSpec` and `Container`, the specs of `apps/v1` and `batch/v1`, read 2026-11.

use super::place::UnknownFields;

/// The serde name of a pod's `spec`; no Kubernetes type has it.
pub(super) const POD_SPEC: &str = "tenon:pod spec";
/// The serde name of a container; no Kubernetes type has it.
pub(super) const CONTAINER: &str = "tenon:container";
/// The serde name of a controller's `spec`; no Kubernetes type has it.
pub(super) const CONTROLLER: &str = "tenon:controller spec";

/// The fields of a type that nobody reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnreadFields {
    /// Their names.
    pub(super) fields: &'static [&'static str],
    /// What happens in files to fields that the type doesn't have.
    pub(super) others: UnknownFields,
}

const OF_POD_SPEC: [&str; 24] = [
    "activeDeadlineSeconds",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostPID",
    "hostUsers",
    "hostname",
    "hostnameOverride",
    "imagePullSecrets",
    "os",
    "preemptionPolicy",
    "readinessGates",
    "restartPolicy",
    "runtimeClassName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
];
const OF_CONTAINER: [&str; 21] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "resizePolicy",
    "restartPolicyRules",
    "securityContext",
    "startupProbe",
    "stdin",
    "stdinOnce",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "volumeDevices",
    "volumeMounts",
    "workingDir",
];

const OF_CONTROLLER: [&str; 26] = [
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "completionMode",
    "concurrencyPolicy",
    "failedJobsHistoryLimit",
    "managedBy",
    "manualSelector",
    "maxFailedIndexes",
    "minReadySeconds",
    "paused",
    "persistentVolumeClaimRetentionPolicy",
    "podFailurePolicy",
    "podManagementPolicy",
    "podReplacementPolicy",
    "progressDeadlineSeconds",
    "revisionHistoryLimit",
    "schedule",
    "serviceName",
    "startingDeadlineSeconds",
    "strategy",
    "successPolicy",
    "successfulJobsHistoryLimit",
    "timeZone",
    "ttlSecondsAfterFinished",
    "updateStrategy",
];

/// The unread fields of a struct, by its serde name; `None` for all others.
pub(super) fn unread_fields(name: &str) -> Option<UnreadFields> {
    match name {
        POD_SPEC => Some(UnreadFields { fields: &OF_POD_SPEC, others: UnknownFields::Named }),
        CONTAINER => Some(UnreadFields { fields: &OF_CONTAINER, others: UnknownFields::Named }),
        CONTROLLER => Some(UnreadFields { fields: &OF_CONTROLLER, others: UnknownFields::Told }),
        _ => None,
    }
}
