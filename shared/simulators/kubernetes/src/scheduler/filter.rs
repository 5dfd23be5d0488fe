//! The filters on one node: NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit,
//! NodeVolumeLimits, VolumeBinding, VolumeZone. That on all nodes, VolumeRestrictions, is asked before them.

use std::fmt;

use tenon_domain::resources::ResourceList;
use tenon_domain::taint::{Taint, TaintEffect, UNSCHEDULABLE, tolerates_forbidding};

use super::super::selector::matches_node;
use super::attachments;
use super::info::NodeInfo;
use super::shape::SchedulingNeeds;
use super::volumes::VolumeNeeds;

/// Why a node isn't feasible, in kube-scheduler's words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Infeasible {
    Cordoned,
    Taint,
    NodeAffinity,
    Ports,
    TooManyPods,
    Insufficient(String),
    VolumeLimit,
    VolumeClaimInUse,
    VolumeNodeAffinity,
    VolumeBinding,
    VolumeZone,
    VolumeClaimMissing,
    VolumeClaimDeleted,
    VolumeUnbound,
    VolumeMissing,
    ResourceClaims,
    Spread,
    SpreadLabelMissing,
    PodAffinity,
    PodAntiAffinity,
    ExistingAntiAffinity,
}

impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordoned => f.write_str("node(s) were unschedulable"),
            Self::Taint => f.write_str("node(s) had untolerated taint(s)"),
            Self::NodeAffinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Ports => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::TooManyPods => f.write_str("Too many pods"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            Self::VolumeLimit => f.write_str("node(s) exceed max volume count"),
            Self::VolumeClaimInUse => f.write_str(
                "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode",
            ),
            Self::VolumeNodeAffinity => f.write_str("node(s) didn't match PersistentVolume's node affinity"),
            Self::VolumeBinding => f.write_str("node(s) didn't find available persistent volumes to bind"),
            Self::VolumeZone => f.write_str("node(s) had no available volume zone"),
            Self::VolumeClaimMissing => f.write_str("persistentvolumeclaim not found"),
            Self::VolumeClaimDeleted => f.write_str("persistentvolumeclaim is being deleted"),
            Self::VolumeUnbound => f.write_str("pod has unbound immediate PersistentVolumeClaims"),
            Self::VolumeMissing => {
                f.write_str("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
            }
            Self::ResourceClaims => f.write_str("resource claims aren't simulated"),
            Self::Spread => f.write_str("node(s) didn't match pod topology spread constraints"),
            Self::SpreadLabelMissing => {
                f.write_str("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::PodAffinity => f.write_str("node(s) didn't match pod affinity rules"),
            Self::PodAntiAffinity => f.write_str("node(s) didn't match pod anti-affinity rules"),
            Self::ExistingAntiAffinity => {
                f.write_str("node(s) didn't satisfy existing pods anti-affinity rules")
            }
        }
    }
}

/// Whether the node itself takes the pod beside others that are nominated for it. Only the first plugin's reasons are
/// told.
pub(super) fn check(
    shape: &SchedulingNeeds,
    node: &NodeInfo,
    volumes: &VolumeNeeds<'_>,
    beside: &[&SchedulingNeeds],
) -> Result<(), Vec<Infeasible>> {
    if shape.resource_claims > 0 {
        return Err(vec![Infeasible::ResourceClaims]);
    }
    takes(shape, node).map_err(|reason| vec![reason])?;
    let here = node.pods.values().map(|equal| &*equal.shape).chain(beside.iter().copied());
    if !shape.ports.is_empty()
        && here.flat_map(|one| &one.ports).any(|known| shape.ports.iter().any(|port| clash(port, known)))
    {
        return Err(vec![Infeasible::Ports]);
    }
    match beside {
        [] => room(shape, &node.free)?,
        [_, ..] => {
            let mut free = node.free.clone();
            beside.iter().for_each(|one| free.subtract(&one.requests));
            room(shape, &free)?;
        }
    }
    attachments::check(volumes.store, shape, node, beside).map_err(|reason| vec![reason])?;
    volumes.check(node)
}

/// Whether the node takes such a pod when it is empty and large: NodeUnschedulable, TaintToleration, NodeAffinity.
pub(super) fn takes(shape: &SchedulingNeeds, node: &NodeInfo) -> Result<(), Infeasible> {
    let cordon = Taint::new(UNSCHEDULABLE, TaintEffect::NoSchedule);
    if node.cordoned && !shape.tolerations.iter().any(|toleration| toleration.tolerates(&cordon)) {
        return Err(Infeasible::Cordoned);
    }
    if tolerates_forbidding(&node.taints, &shape.tolerations).is_err() {
        return Err(Infeasible::Taint);
    }
    if admits(shape, node) { Ok(()) } else { Err(Infeasible::NodeAffinity) }
}

/// Whether the node matches the pod's node selector and required node affinity.
pub(super) fn admits(shape: &SchedulingNeeds, node: &NodeInfo) -> bool {
    shape.node_selector.iter().all(|(key, value)| node.label(key) == Some(value))
        && shape.node_terms.as_ref().is_none_or(|terms| matches_node(terms, &node.labels, &node.name))
}

/// NodeResourcesFit. Only requested resources are checked: a node may be overdrawn in others.
pub(super) fn room(shape: &SchedulingNeeds, free: &ResourceList) -> Result<(), Vec<Infeasible>> {
    let short = shape.requests.iter().filter(|(name, asked)| !asked.is_zero() && *asked > free.get(name));
    let mut reasons: Vec<Infeasible> = short
        .map(|(name, _)| match name.as_str() {
            "pods" => Infeasible::TooManyPods,
            name => Infeasible::Insufficient(name.to_owned()),
        })
        .collect();
    reasons.sort();
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

fn clash(one: &(String, u64, String), other: &(String, u64, String)) -> bool {
    let any = "0.0.0.0";
    one.1 == other.1 && one.2 == other.2 && (one.0 == other.0 || one.0 == any || other.0 == any)
}
