//! PersistentVolumeClaims for one pod at a time (`ReadWriteOncePod`): VolumeRestrictions of kube-scheduler.
//!
//! Decides which pending pod gets such a claim: none while a pod on a node uses it, else the one that kube-scheduler tries
//! first, by priority and then by age. A pod that can't be planned for at all takes no claim. One that finds no node keeps
//! what it took: the next plan may have one. A terminating pod, or one whose node the plan empties, uses nothing any more.
//! Pods that a preemption would remove aren't known.
//!
//! Invariant: no two pods of a plan have such a claim, and no pod of a plan has one that a pod on a node uses.
//!
//! Source: kubernetes/kubernetes `pkg/scheduler/framework/plugins/volumerestrictions`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use tenon_domain::api::{Pod, PodShape};
use tenon_domain::id::{NamespacedName, Uid};

use super::Scope;
use super::report::Reason;
use super::volumes::Volumes;

/// The pods that must wait for another one's claim.
pub(crate) fn left_over<'a>(
    scope: &Scope<'a>,
    volumes: &Volumes<'_>,
    is_plannable: impl Fn(&PodShape) -> bool,
) -> BTreeMap<&'a Uid, Reason> {
    let wanting = scope.pods.iter().map(|pod| (pod, volumes.exclusive(&pod.shape)));
    let mut wanting: Vec<(&'a Pod, Vec<NamespacedName>)> =
        wanting.filter(|(pod, claims)| !claims.is_empty() && is_plannable(pod.shape.as_ref())).collect();
    wanting.sort_by_key(|(pod, _)| (Reverse(pod.shape.priority), pod.created_at, &pod.uid, &pod.name));
    let mut taken: BTreeMap<NamespacedName, &'a NamespacedName> = BTreeMap::new();
    let mut left_over = BTreeMap::new();
    for (pod, claims) in wanting {
        let user = |claim: &NamespacedName| {
            let running = scope.nodes.iter().find_map(|node| node.occupancy.user_of(claim));
            running.or_else(|| taken.get(claim).copied())
        };
        let in_use = claims.iter().find_map(|claim| Some((claim, user(claim)?)));
        if let Some((claim, user)) = in_use {
            let reason = Reason::VolumeClaimInUse { claim: claim.name.clone(), pod: user.clone() };
            left_over.insert(&pod.uid, reason);
        } else {
            taken.extend(claims.into_iter().map(|claim| (claim, &pod.name)));
        }
    }
    left_over
}
