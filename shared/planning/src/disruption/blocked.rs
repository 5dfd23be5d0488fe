//! What blocks a node's disruption: its annotation, its pods' annotations, PodDisruptionBudgets.
//!
//! Decides it for one node at one moment, and which of its pods need another node. Source: kubernetes-sigs/karpenter
//! `pkg/controllers/state/statenode.go`, `pkg/utils/pdb/pdb.go`.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::api::Pod;
use tenon_domain::api::meta::OwnerReference;
use tenon_domain::api::pod::{DoNotDisrupt, PodOrigin, Readiness};
use tenon_domain::api::workload::{IntOrPercent, PdbBound, PodDisruptionBudget, UnhealthyPodEviction};
use tenon_domain::id::Uid;
use tenon_domain::taint::Taint;

use super::input::NodeView;
use super::output::RefusalReason;

/// Whether pods may hold a disruption up: not where the claim has a `terminationGracePeriod`, which bounds the drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodsWord {
    Counts,
    Waived,
}

/// Why the node must stay for now.
pub(crate) fn blocked(
    node: &NodeView,
    pdbs: &[PodDisruptionBudget],
    word: PodsWord,
    now: Timestamp,
) -> Option<RefusalReason> {
    if node.do_not_disrupt == DoNotDisrupt::Always {
        return Some(RefusalReason::DoNotDisrupt { pod: None, until: None });
    }
    match word {
        PodsWord::Waived => None,
        PodsWord::Counts => {
            let mut pods: Vec<&Pod> = node.pods.iter().filter(|pod| is_active(pod)).collect();
            pods.sort_by(|a, b| a.name.cmp(&b.name));
            pods.iter().find_map(|pod| asks_to_stay(pod, now)).or_else(|| {
                pods.iter().find_map(|pod| guarded(pod, pdbs, |pdb| pdb.disruptions_allowed == 0))
            })
        }
    }
}

fn is_active(pod: &Pod) -> bool {
    !pod.is_finished() && pod.deleted_at.is_none()
}

fn asks_to_stay(pod: &Pod, now: Timestamp) -> Option<RefusalReason> {
    let asked = &pod.shape.do_not_disrupt;
    asked.keeps(pod.started_at, now).then(|| RefusalReason::DoNotDisrupt {
        pod: Some(pod.name.clone()),
        until: asked.until(pod.started_at),
    })
}

/// The PodDisruptionBudgets that keep the pod: a single one only if it is `closed`.
fn guarded(
    pod: &Pod,
    pdbs: &[PodDisruptionBudget],
    closed: impl Fn(&PodDisruptionBudget) -> bool,
) -> Option<RefusalReason> {
    let disrupted = Taint::disrupted();
    let tolerates = pod.shape.tolerations.iter().any(|toleration| toleration.tolerates(&disrupted));
    if pod.shape.origin == PodOrigin::Static || tolerates {
        return None;
    }
    let mut matching: Vec<&PodDisruptionBudget> = pdbs.iter().filter(|pdb| covers(pdb, pod)).collect();
    matching.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
    let may_go = |pdb: &PodDisruptionBudget| {
        let unhealthy = match (pdb.unhealthy_pods, pod.readiness) {
            (UnhealthyPodEviction::AlwaysAllow, Readiness::NotReady) => true,
            (UnhealthyPodEviction::AlwaysAllow, Readiness::Ready)
            | (UnhealthyPodEviction::IfHealthyBudget, _) => false,
        };
        unhealthy || !closed(pdb)
    };
    // The API server evicts no pod that two budgets guard.
    let free = match matching.as_slice() {
        [] => true,
        [one] => may_go(one),
        [_, _, ..] => false,
    };
    (!free).then(|| RefusalReason::BlockedByPdb {
        pod: pod.name.clone(),
        pdbs: matching.iter().map(|pdb| pdb.meta.name.clone()).collect(),
    })
}

fn covers(pdb: &PodDisruptionBudget, pod: &Pod) -> bool {
    pdb.meta.namespace == pod.name.namespace
        && pdb.selector.as_ref().is_some_and(|selector| selector.matches(&pod.shape.labels))
}

/// Whether a PodDisruptionBudget never allows an eviction, whatever its pods do.
const fn is_closed_for_ever(pdb: &PodDisruptionBudget) -> bool {
    match pdb.bound {
        PdbBound::MaxUnavailable(IntOrPercent::Int(most) | IntOrPercent::Percent(most)) => most == 0,
        PdbBound::MinAvailable(IntOrPercent::Percent(least)) => least >= 100,
        PdbBound::MinAvailable(IntOrPercent::Int(_)) => false,
    }
}

/// The node's pods that a drain from now on can't evict before it ends: `karpenter.sh/do-not-disrupt`, a
/// PodDisruptionBudget that never allows an eviction, or two of them keep the pod.
pub(crate) fn kept(
    node: &NodeView,
    pdbs: &[PodDisruptionBudget],
    (now, ends): (Timestamp, Timestamp),
) -> BTreeSet<Uid> {
    let active = node.pods.iter().filter(|pod| is_active(pod));
    let stays = |pod: &Pod| {
        let started = pod.started_at.or(Some(now));
        pod.shape.do_not_disrupt.keeps(started, now)
            && pod.shape.do_not_disrupt.until(started).is_none_or(|until| until >= ends)
    };
    let kept = active.filter(|pod| stays(pod) || guarded(pod, pdbs, is_closed_for_ever).is_some());
    kept.map(|pod| pod.uid.clone()).collect()
}

/// The node's pods that need another node, as if unbound, by name. Pods of DaemonSets and static pods don't move; a
/// terminating pod counts only if its StatefulSet creates it again.
pub(crate) fn reschedulable(node: &NodeView) -> Vec<Pod> {
    let owned_by = |pod: &Pod, kind: &str| {
        let is = |owner: &OwnerReference| owner.kind == kind;
        pod.shape.owner.as_ref().is_some_and(is)
    };
    let moves = |pod: &&Pod| {
        let comes_again = pod.deleted_at.is_some() && owned_by(pod, "StatefulSet");
        !pod.is_finished()
            && (is_active(pod) || comes_again)
            && !owned_by(pod, "DaemonSet")
            && pod.shape.origin == PodOrigin::Api
    };
    let unbound = |pod: &Pod| Pod { node: None, ..pod.clone() };
    let mut pods: Vec<Pod> = node.pods.iter().filter(moves).map(unbound).collect();
    pods.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
    pods
}
