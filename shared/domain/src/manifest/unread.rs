//! Fields of pods and containers that nobody reads.
//!
//! Decides which fields directly in a pod's `spec` or in a container can't affect placement: they are dropped. In files,
//! any other field that the type doesn't have is named, because it is a typo or a newer Kubernetes' field of placement
//! (`workloadRef`). It reads no value.
//!
//! Invariant: with the types' own fields, each list is the type of Kubernetes 1.35, less `workloadRef`.
//!
//! Source: Kubernetes 1.35, `core/v1` `PodSpec` and `Container`, read 2026-11.

/// The serde name of a pod's `spec`; no Kubernetes type has it.
pub(super) const POD_SPEC: &str = "tenon:pod spec";
/// The serde name of a container; no Kubernetes type has it.
pub(super) const CONTAINER: &str = "tenon:container";

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

/// The unread fields of a struct, by its serde name; `None` for all others.
pub(super) fn unread_fields(name: &str) -> Option<&'static [&'static str]> {
    match name {
        POD_SPEC => Some(&OF_POD_SPEC),
        CONTAINER => Some(&OF_CONTAINER),
        _ => None,
    }
}
