//! Taints and tolerations.
//!
//! Decides whether a toleration tolerates a taint, and which taints disappear by themselves while a node starts. It
//! doesn't decide where a pod goes.
//!
//! Source: Kubernetes' `Toleration.ToleratesTaint`; kubernetes-sigs/karpenter `pkg/scheduling/taints.go`,
//! `pkg/apis/v1/taints.go`.

use std::fmt;

use serde::Deserialize;

crate::words! {
    /// The effect of a taint on pods that don't tolerate it. Its words are Kubernetes'.
    #[derive(Deserialize)]
    #[serde(rename = "a taint effect")]
    pub enum TaintEffect {
        /// They aren't scheduled here.
        NoSchedule,
        /// They aren't scheduled here if there is another place.
        PreferNoSchedule,
        /// Pods aren't scheduled here, and running ones are evicted.
        NoExecute,
    }
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; empty if there is none.
    pub value: String,
    /// Its effect.
    pub effect: TaintEffect,
}

impl Taint {
    /// A taint without a value.
    #[must_use]
    pub fn new(key: impl Into<String>, effect: TaintEffect) -> Self {
        Self { key: key.into(), value: String::new(), effect }
    }

    /// Whether both are the same taint to Kubernetes: same key and effect, any value.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// Whether it disappears by itself while a node starts.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        self.key.starts_with(READINESS_PREFIX)
            || EPHEMERAL.iter().any(|(key, effect)| self.key == *key && self.effect == *effect)
    }

    /// [`UNREGISTERED`], present when a node boots.
    #[must_use]
    pub fn unregistered() -> Self {
        Self::new(UNREGISTERED, TaintEffect::NoExecute)
    }

    /// [`OPENING`], present until a registered node takes pods.
    #[must_use]
    pub fn opening() -> Self {
        Self::new(OPENING, TaintEffect::NoSchedule)
    }

    /// [`DISRUPTED`], put on a node that is about to go.
    #[must_use]
    pub fn disrupted() -> Self {
        Self::new(DISRUPTED, TaintEffect::NoSchedule)
    }
}

/// `key=value:Effect`, as kubectl writes it.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect.as_str())
    }
}

/// `:NoExecute` until the node is registered.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";
/// `:NoSchedule` on a registered node, until it is ready and the agent has nominated its pods for it.
pub const OPENING: &str = "tenon.dev/opening";
/// `:NoSchedule` on a node that is leaving.
pub const DISRUPTED: &str = "karpenter.sh/disrupted";
/// Kubernetes: the node isn't ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Kubernetes: the node can't be reached.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Kubernetes: cordoned.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Kubernetes: the cloud controller hasn't seen the node yet.
pub const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// Taints of node readiness gates, with any effect.
pub const READINESS_PREFIX: &str = "readiness.k8s.io/";

const EPHEMERAL: [(&str, TaintEffect); 6] = [
    (NOT_READY, TaintEffect::NoSchedule),
    (NOT_READY, TaintEffect::NoExecute),
    (UNREACHABLE, TaintEffect::NoSchedule),
    (UNINITIALIZED, TaintEffect::NoSchedule),
    (UNREGISTERED, TaintEffect::NoExecute),
    (OPENING, TaintEffect::NoSchedule),
];

crate::words! {
    /// How a toleration compares values. Its words are Kubernetes'.
    #[derive(Default, Deserialize)]
    #[serde(rename = "a toleration operator")]
    pub enum TolerationOperator {
        /// Equal values; also the default operator.
        #[default]
        Equal,
        /// Any value.
        Exists,
    }
}

/// A toleration of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Toleration {
    /// The key; empty with `Exists` means every taint.
    pub key: String,
    /// How values are compared.
    pub operator: TolerationOperator,
    /// The value; empty if there is none.
    pub value: String,
    /// The effect; absent means all of them.
    pub effect: Option<TaintEffect>,
    /// How long a NoExecute taint is tolerated; absent means for ever.
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Tolerates a key with any value and effect.
    #[must_use]
    pub fn exists(key: impl Into<String>) -> Self {
        Self { key: key.into(), operator: TolerationOperator::Exists, ..Self::default() }
    }

    /// Whether this toleration tolerates the taint, as Kubernetes decides it.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_none_or(|effect| effect == taint.effect);
        let key = self.key.is_empty() || self.key == taint.key;
        let value = match self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => self.value == taint.value,
        };
        effect && key && value
    }
}

/// Taints that no toleration tolerates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("untolerated taints {}", .taints.iter().map(|t| format!("`{t}`")).collect::<Vec<_>>().join(", "))]
pub struct Untolerated {
    /// Never empty; in the node's order.
    pub taints: Vec<Taint>,
}

/// Whether every taint is tolerated, PreferNoSchedule among them: how a NodePool is chosen before relaxation.
///
/// # Errors
/// [`Untolerated`] with all taints that aren't tolerated.
pub fn tolerates_all<'a>(
    taints: impl IntoIterator<Item = &'a Taint>,
    tolerations: &[Toleration],
) -> Result<(), Untolerated> {
    let taints: Vec<Taint> =
        taints.into_iter().filter(|t| !tolerations.iter().any(|tol| tol.tolerates(t))).cloned().collect();
    if taints.is_empty() { Ok(()) } else { Err(Untolerated { taints }) }
}

/// Whether every taint that forbids scheduling is tolerated: kube-scheduler's filter, where PreferNoSchedule isn't.
///
/// # Errors
/// [`Untolerated`] with all taints that aren't tolerated.
pub fn tolerates_forbidding<'a>(
    taints: impl IntoIterator<Item = &'a Taint>,
    tolerations: &[Toleration],
) -> Result<(), Untolerated> {
    let forbids = |taint: &&Taint| match taint.effect {
        TaintEffect::NoSchedule | TaintEffect::NoExecute => true,
        TaintEffect::PreferNoSchedule => false,
    };
    tolerates_all(taints.into_iter().filter(forbids), tolerations)
}

/// The first list, and those of the second that match none of it by key and effect.
#[must_use]
pub fn merge_taints(taints: &[Taint], more: &[Taint]) -> Vec<Taint> {
    let mut merged = taints.to_vec();
    for taint in more {
        if !merged.iter().any(|known| known.matches(taint)) {
            merged.push(taint.clone());
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use TaintEffect::{NoExecute, NoSchedule, PreferNoSchedule};

    #[test]
    fn c007_ephemeral_taints() {
        for (key, effect, expected) in [
            ("node.kubernetes.io/not-ready", NoSchedule, true),
            ("node.kubernetes.io/not-ready", NoExecute, true),
            ("node.kubernetes.io/not-ready", PreferNoSchedule, false),
            ("node.kubernetes.io/unreachable", NoSchedule, true),
            ("node.kubernetes.io/unreachable", NoExecute, false),
            ("node.cloudprovider.kubernetes.io/uninitialized", NoSchedule, true),
            ("karpenter.sh/unregistered", NoExecute, true),
            ("karpenter.sh/unregistered", NoSchedule, false),
            ("readiness.k8s.io/network", NoSchedule, true),
            ("readiness.k8s.io/network", NoExecute, true),
            ("readiness.k8s.io/", PreferNoSchedule, true),
            ("example.com/readiness.k8s.io/network", NoSchedule, false),
            ("readiness.k8s.io", NoSchedule, false),
            ("", NoSchedule, false),
        ] {
            assert_eq!(Taint::new(key, effect).is_ephemeral(), expected, "{key}:{effect:?}");
        }
        let valued = Taint { value: "true".into(), ..Taint::new(UNINITIALIZED, NoSchedule) };
        assert!(valued.is_ephemeral());
    }

    #[test]
    fn tolerations_follow_kubernetes() {
        let taint = Taint { key: "team".into(), value: "a".into(), effect: NoSchedule };
        let toleration = |key: &str, operator, value: &str, effect| Toleration {
            key: key.into(),
            operator,
            value: value.into(),
            effect,
            toleration_seconds: None,
        };
        use TolerationOperator::{Equal, Exists};
        for (toleration, expected) in [
            (toleration("team", Equal, "a", None), true),
            (toleration("team", Equal, "b", None), false),
            (toleration("team", Exists, "", None), true),
            (toleration("", Exists, "", None), true),
            (toleration("", Equal, "a", None), true),
            (toleration("", Equal, "", None), false),
            (toleration("other", Exists, "", None), false),
            (toleration("team", Exists, "", Some(NoSchedule)), true),
            (toleration("team", Exists, "", Some(NoExecute)), false),
        ] {
            assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
        }
    }

    #[test]
    fn all_untolerated_taints_are_named() {
        let taints = [
            Taint { key: "team".into(), value: "a".into(), effect: NoSchedule },
            Taint::new("soft", PreferNoSchedule),
            Taint::new("gpu", NoExecute),
        ];
        let error = tolerates_all(&taints, &[Toleration::exists("gpu")]).unwrap_err();
        assert_eq!(error.to_string(), "untolerated taints `team=a:NoSchedule`, `soft:PreferNoSchedule`");
        let tolerations = [Toleration::exists("gpu"), Toleration::exists("team")];
        assert!(tolerates_forbidding(&taints, &tolerations).is_ok());
    }

    #[test]
    fn merging_keeps_the_first_of_a_key_and_effect() {
        let first = [Taint { key: "a".into(), value: "1".into(), effect: NoSchedule }];
        let more = [Taint::new("a", NoSchedule), Taint::new("a", NoExecute)];
        let merged: Vec<_> = merge_taints(&first, &more).iter().map(ToString::to_string).collect();
        assert_eq!(merged, ["a=1:NoSchedule", "a:NoExecute"]);
    }
}
