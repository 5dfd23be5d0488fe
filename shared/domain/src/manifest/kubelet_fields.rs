//! The kubelet's own fields, which Karpenter doesn't interpret.
//!
//! Decides their names and the JSON types of their values. It doesn't read what is inside of objects: the kubelet does.
//!
//! Source: `KubeletConfiguration` of kubernetes/kubernetes `staging/src/k8s.io/kubelet/config/v1beta1/types.go`, read
//! November 2026. `registerWithTaints` is left out: a NodePool has the taints.

use serde_json::Value;

use super::duration;

/// The JSON type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KubeletField {
    Truth,
    Integer,
    Number,
    Text,
    Duration,
    Texts,
    Integers,
    TextByKey,
    TruthByKey,
    Object,
    Objects,
}

use KubeletField::{
    Duration, Integer, Integers, Number, Object, Objects, Text, TextByKey, Texts, Truth, TruthByKey,
};

impl KubeletField {
    /// Whether the field takes the value.
    pub(super) fn takes(self, value: &Value) -> bool {
        let each = |fits: fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().all(fits));
        let of_keys = |fits: fn(&Value) -> bool| value.as_object().is_some_and(|map| map.values().all(fits));
        match self {
            Self::Truth => value.is_boolean(),
            Self::Integer => value.is_i64(),
            Self::Number => value.is_number(),
            Self::Text => value.is_string(),
            Self::Duration => value.as_str().is_some_and(|text| duration::parse_go(text).is_some()),
            Self::Texts => each(Value::is_string),
            Self::Integers => each(Value::is_i64),
            Self::TextByKey => of_keys(Value::is_string),
            Self::TruthByKey => of_keys(Value::is_boolean),
            Self::Object => value.is_object(),
            Self::Objects => each(Value::is_object),
        }
    }

    /// What the field takes, in the words of manifests.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Truth => "`true` or `false`",
            Self::Integer => "an integer",
            Self::Number => "a number",
            Self::Text => "a string",
            Self::Duration => "a duration such as `1m30s`",
            Self::Texts => "a list of strings",
            Self::Integers => "a list of integers",
            Self::TextByKey => "a map of strings",
            Self::TruthByKey => "a map of `true` or `false`",
            Self::Object => "a map",
            Self::Objects => "a list of maps",
        }
    }
}

/// The fields by name.
pub(super) const KUBELETS_OWN: [(&str, KubeletField); 115] = [
    ("address", Text),
    ("allowedUnsafeSysctls", Texts),
    ("apiVersion", Text),
    ("authentication", Object),
    ("authorization", Object),
    ("cgroupDriver", Text),
    ("cgroupRoot", Text),
    ("cgroupsPerQOS", Truth),
    ("clusterDomain", Text),
    ("configMapAndSecretChangeDetectionStrategy", Text),
    ("containerLogMaxFiles", Integer),
    ("containerLogMaxSize", Text),
    ("containerLogMaxWorkers", Integer),
    ("containerLogMonitorInterval", Duration),
    ("containerRuntimeEndpoint", Text),
    ("contentType", Text),
    ("cpuCFSQuotaPeriod", Duration),
    ("cpuManagerPolicy", Text),
    ("cpuManagerPolicyOptions", TextByKey),
    ("cpuManagerReconcilePeriod", Duration),
    ("crashLoopBackOff", Object),
    ("enableContentionProfiling", Truth),
    ("enableControllerAttachDetach", Truth),
    ("enableDebugFlagsHandler", Truth),
    ("enableDebuggingHandlers", Truth),
    ("enableProfilingHandler", Truth),
    ("enableServer", Truth),
    ("enableSystemLogHandler", Truth),
    ("enableSystemLogQuery", Truth),
    ("enforceNodeAllocatable", Texts),
    ("eventBurst", Integer),
    ("eventRecordQPS", Integer),
    ("evictionMinimumReclaim", TextByKey),
    ("evictionPressureTransitionPeriod", Duration),
    ("failCgroupV1", Truth),
    ("failSwapOn", Truth),
    ("featureGates", TruthByKey),
    ("fileCheckFrequency", Duration),
    ("hairpinMode", Text),
    ("healthzBindAddress", Text),
    ("healthzPort", Integer),
    ("httpCheckFrequency", Duration),
    ("imageMaximumGCAge", Duration),
    ("imageMinimumGCAge", Duration),
    ("imagePullCredentialsVerificationPolicy", Text),
    ("imageServiceEndpoint", Text),
    ("iptablesDropBit", Integer),
    ("iptablesMasqueradeBit", Integer),
    ("kernelMemcgNotification", Truth),
    ("kind", Text),
    ("kubeAPIBurst", Integer),
    ("kubeAPIQPS", Integer),
    ("kubeReservedCgroup", Text),
    ("kubeletCgroups", Text),
    ("localStorageCapacityIsolation", Truth),
    ("logging", Object),
    ("makeIPTablesUtilChains", Truth),
    ("maxOpenFiles", Integer),
    ("maxParallelImagePulls", Integer),
    ("memoryManagerPolicy", Text),
    ("memoryReservationPolicy", Text),
    ("memorySwap", Object),
    ("memoryThrottlingFactor", Number),
    ("mergeDefaultEvictionSettings", Truth),
    ("nodeLeaseDurationSeconds", Integer),
    ("nodeStatusMaxImages", Integer),
    ("nodeStatusReportFrequency", Duration),
    ("nodeStatusUpdateFrequency", Duration),
    ("oomScoreAdj", Integer),
    ("podCIDR", Text),
    ("podLogsDir", Text),
    ("podPidsLimit", Integer),
    ("port", Integer),
    ("preloadedImagesVerificationAllowlist", Texts),
    ("protectKernelDefaults", Truth),
    ("providerID", Text),
    ("qosReserved", TextByKey),
    ("readOnlyPort", Integer),
    ("registerNode", Truth),
    ("registryBurst", Integer),
    ("registryPullQPS", Integer),
    ("reservedMemory", Objects),
    ("reservedSystemCPUs", Text),
    ("resolvConf", Text),
    ("rotateCertificates", Truth),
    ("runOnce", Truth),
    ("runtimeRequestTimeout", Duration),
    ("seccompDefault", Truth),
    ("serializeImagePulls", Truth),
    ("serverTLSBootstrap", Truth),
    ("showHiddenMetricsForVersion", Text),
    ("shutdownGracePeriod", Duration),
    ("shutdownGracePeriodByPodPriority", Objects),
    ("shutdownGracePeriodCriticalPods", Duration),
    ("singleProcessOOMKill", Truth),
    ("staticPodPath", Text),
    ("staticPodURL", Text),
    ("staticPodURLHeader", Object),
    ("streamingConnectionIdleTimeout", Duration),
    ("syncFrequency", Duration),
    ("systemCgroups", Text),
    ("systemPartition", Object),
    ("systemReservedCgroup", Text),
    ("tlsCertFile", Text),
    ("tlsCipherSuites", Texts),
    ("tlsCurvePreferences", Integers),
    ("tlsMinVersion", Text),
    ("tlsPrivateKeyFile", Text),
    ("topologyManagerPolicy", Text),
    ("topologyManagerPolicyOptions", TextByKey),
    ("topologyManagerScope", Text),
    ("tracing", Object),
    ("userNamespaces", Object),
    ("volumePluginDir", Text),
    ("volumeStatsAggPeriod", Duration),
];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_field_takes_its_type_and_no_other() {
        let check = |name: &str, value: Value, expected: bool| {
            let (_, form) = KUBELETS_OWN.iter().find(|(known, _)| *known == name).unwrap();
            assert_eq!(form.takes(&value), expected, "{name}: {value}");
        };
        check("serializeImagePulls", json!(false), true);
        check("serializeImagePulls", json!("false"), false);
        check("registryPullQPS", json!(5), true);
        check("registryPullQPS", json!(5.5), false);
        check("memoryThrottlingFactor", json!(0.9), true);
        check("cpuManagerPolicy", json!("static"), true);
        check("shutdownGracePeriod", json!("30s"), true);
        check("shutdownGracePeriod", json!(30), false);
        check("allowedUnsafeSysctls", json!(["kernel.msg*"]), true);
        check("allowedUnsafeSysctls", json!("kernel.msg*"), false);
        check("featureGates", json!({"A": true}), true);
        check("featureGates", json!({"A": "true"}), false);
        check("logging", json!({"verbosity": 2}), true);
        check("reservedMemory", json!([{"numaNode": 0}]), true);
    }
}
