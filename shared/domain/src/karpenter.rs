//! Karpenter's own controller in the cluster, which launches nodes for the same pods and removes nodes of the same NodePools.
//!
//! Decides which pods are its, whether one of them works, and the words for that. It doesn't decide what waits for its end.
//!
//! Invariants: a pod that doesn't work counts for nothing, so no cluster waits for a Karpenter that launches nothing; nobody
//! who may make ordinary pods only, outside of `kube-system`, makes one that counts.
//!
//! Source: aws/karpenter-provider-aws `charts/karpenter`: templates/_helpers.tpl (`karpenter.selectorLabels`, version 1.14),
//! templates/deployment.yaml and values.yaml (`priorityClassName`, version 0.35).

use crate::api::Pod;
use crate::api::pod::{PodPhase, Readiness};
use crate::evidence::Waiting;
use crate::id::NamespacedName;

/// The label of its pods, and of its Deployment.
pub const KARPENTER_LABEL: (&str, &str) = ("app.kubernetes.io/name", "karpenter");
/// The namespace of its installation page; whoever may make pods there administers the cluster.
const SYSTEM_NAMESPACE: &str = "kube-system";
/// The chart's priority class, and the one above. Pods of these preempt all others, so who may make them can stop the
/// cluster's work anyway.
const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// Whether a pod has Karpenter's label and isn't being deleted. Anybody can give a pod this label: a person judges it.
#[must_use]
pub fn is_labelled(pod: &Pod) -> bool {
    let (key, value) = KARPENTER_LABEL;
    pod.deleted_at.is_none() && pod.shape.labels.get(key).is_some_and(|name| name == value)
}

/// The wait for the end of a Karpenter controller, if one works: the first of its pods in the list's order.
#[must_use]
pub fn waiting(pods: &[Pod]) -> Option<Waiting> {
    let pod = pods.iter().find(|pod| is_labelled(pod) && works(pod) && is_trusted(pod))?;
    Some(Waiting::KarpenterRuns { pod: pod.name.clone() })
}

/// The command that stops the controllers of a namespace, whatever the Deployment's name.
#[must_use]
pub fn stop_command(namespace: &str) -> String {
    let (key, value) = KARPENTER_LABEL;
    format!("kubectl scale deployment -l {key}={value} --namespace {namespace} --replicas 0")
}

/// What is told of a controller that works.
pub(crate) fn runs(pod: &NamespacedName) -> String {
    let stop = stop_command(&pod.namespace);
    format!("Karpenter runs (pod `{pod}`), which has the same NodePools: stop it with `{stop}`")
}

/// Whether it runs and is Ready. A pod that crashes, waits for a node, or whose node is lost, launches nothing.
fn works(pod: &Pod) -> bool {
    pod.phase == PodPhase::Running && pod.readiness == Readiness::Ready
}

/// Whether an administrator made it: a Deployment's pod, of the system's namespace or priority.
fn is_trusted(pod: &Pod) -> bool {
    let shape = &pod.shape;
    shape.owner.as_ref().is_some_and(|owner| owner.kind == "ReplicaSet")
        && (shape.namespace == SYSTEM_NAMESPACE || CRITICAL.contains(&shape.priority_class.as_str()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::api::meta::{OwnerReference, OwnerRole};
    use crate::api::pod::{PodShape, SchedulingVerdict};
    use crate::id::{NodeName, Uid};

    fn owner(kind: &str) -> Option<OwnerReference> {
        Some(OwnerReference {
            kind: kind.to_owned(),
            name: "karpenter-7d9f".to_owned(),
            uid: "rs".to_owned(),
            role: OwnerRole::Controller,
        })
    }

    /// A pod of Karpenter's chart that works.
    fn controller(name: &str) -> Pod {
        let namespace = SYSTEM_NAMESPACE.to_owned();
        let (key, value) = KARPENTER_LABEL;
        Pod {
            name: NamespacedName { namespace: namespace.clone(), name: name.to_owned() },
            uid: Uid::parse(name).unwrap(),
            created_at: None,
            started_at: None,
            node: Some(NodeName::parse("system-1").unwrap()),
            bound_at: None,
            phase: PodPhase::Running,
            readiness: Readiness::Ready,
            scheduling: SchedulingVerdict::None,
            deleted_at: None,
            shape: Arc::new(PodShape {
                namespace,
                labels: [(key.to_owned(), value.to_owned())].into(),
                priority_class: "system-cluster-critical".to_owned(),
                owner: owner("ReplicaSet"),
                ..PodShape::default()
            }),
        }
    }

    fn changed(change: impl FnOnce(&mut Pod, &mut PodShape)) -> Pod {
        let mut pod = controller("karpenter-7d9f-a");
        let mut shape = PodShape::clone(&pod.shape);
        change(&mut pod, &mut shape);
        Pod { shape: Arc::new(shape), ..pod }
    }

    fn check(change: impl FnOnce(&mut Pod, &mut PodShape), expected: bool) {
        let pod = changed(change);
        assert_eq!(waiting(std::slice::from_ref(&pod)).is_some(), expected, "{pod:?}");
    }

    #[test]
    fn a_controller_that_works_is_waited_for() {
        check(|_, _| {}, true);
        // The chart's values may name another priority class or another namespace.
        check(|_, shape| shape.priority_class = String::new(), true);
        check(|_, shape| shape.namespace = "karpenter".to_owned(), true);
        check(|_, shape| shape.priority_class = "system-node-critical".to_owned(), true);
    }

    #[test]
    fn a_controller_that_launches_nothing_is_not_waited_for() {
        check(
            |pod, _| {
                pod.node = None;
                pod.phase = PodPhase::Pending;
                pod.readiness = Readiness::NotReady;
            },
            false,
        );
        check(|pod, _| pod.readiness = Readiness::NotReady, false);
        check(|pod, _| pod.phase = PodPhase::Failed, false);
        check(|pod, _| pod.deleted_at = Some(jiff::Timestamp::UNIX_EPOCH), false);
    }

    #[test]
    fn a_pod_that_only_has_the_label_stops_nothing() {
        check(|_, shape| shape.labels.clear(), false);
        check(
            |_, shape| {
                shape.namespace = "shop".to_owned();
                shape.priority_class = "high".to_owned();
            },
            false,
        );
        check(|_, shape| shape.owner = owner("Job"), false);
        check(|_, shape| shape.owner = None, false);
        let foreign = changed(|_, shape| {
            shape.namespace = "shop".to_owned();
            shape.priority_class = String::new();
        });
        assert!(is_labelled(&foreign), "`tenon doctor` names it");
    }

    #[test]
    fn the_words_name_a_pod_and_what_to_do() {
        let pods = [changed(|pod, _| pod.readiness = Readiness::NotReady), controller("karpenter-7d9f-b")];
        let waiting = waiting(&pods).unwrap();
        assert_eq!(
            (waiting.into_str(), waiting.condition(), waiting.ends_at()),
            ("KarpenterRuns", None, None)
        );
        assert_eq!(
            waiting.to_string(),
            "Karpenter runs (pod `kube-system/karpenter-7d9f-b`), which has the same NodePools: stop it with `kubectl scale \
             deployment -l app.kubernetes.io/name=karpenter --namespace kube-system --replicas 0`"
        );
    }
}
