//! The filters on one node: NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit,
//! VolumeBinding's node affinity.

use std::fmt;

use serde_json::Value;
use tenon_domain::taint::{Taint, TaintEffect, UNSCHEDULABLE, tolerates_forbidding};

use super::super::selector::matches_node;
use super::info::NodeInfo;
use super::shape::SchedulingNeeds;

/// Why a node isn't feasible, in kube-scheduler's words.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Infeasible {
    Cordoned,
    Taint(String),
    NodeAffinity,
    Ports,
    Insufficient(String),
    VolumeNodeAffinity,
    VolumeClaimMissing,
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
            Self::Taint(taint) => write!(f, "node(s) had untolerated taint {{{taint}}}"),
            Self::NodeAffinity => f.write_str("node(s) didn't match Pod's node affinity/selector"),
            Self::Ports => f.write_str("node(s) didn't have free ports for the requested pod ports"),
            Self::Insufficient(resource) => write!(f, "Insufficient {resource}"),
            Self::VolumeNodeAffinity => f.write_str("node(s) had volume node affinity conflict"),
            Self::VolumeClaimMissing => f.write_str("persistentvolumeclaim not found"),
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

/// Whether the node itself takes the pod.
pub(super) fn check(
    shape: &SchedulingNeeds,
    node: &NodeInfo,
    volumes: &[Vec<Value>],
) -> Result<(), Infeasible> {
    if shape.resource_claims > 0 {
        return Err(Infeasible::ResourceClaims);
    }
    let cordon = Taint::new(UNSCHEDULABLE, TaintEffect::NoSchedule);
    if node.cordoned && !shape.tolerations.iter().any(|toleration| toleration.tolerates(&cordon)) {
        return Err(Infeasible::Cordoned);
    }
    if let Err(untolerated) = tolerates_forbidding(&node.taints, &shape.tolerations) {
        let first = untolerated.taints.first().map(|taint| format!("{}: {}", taint.key, taint.value));
        return Err(Infeasible::Taint(first.unwrap_or_default()));
    }
    if !admits(shape, node) {
        return Err(Infeasible::NodeAffinity);
    }
    if !volumes.iter().all(|terms| matches_node(terms, &node.labels, &node.name)) {
        return Err(Infeasible::VolumeNodeAffinity);
    }
    if shape
        .ports
        .iter()
        .any(|port| node.pods.iter().any(|(_, other)| other.ports.iter().any(|known| clash(port, known))))
    {
        return Err(Infeasible::Ports);
    }
    // Only requested resources are checked: a node may be overdrawn in others.
    let short = shape.requests.iter().find(|(name, asked)| !asked.is_zero() && *asked > node.free.get(name));
    match short {
        Some((name, _)) if name.as_str() == "pods" => Err(Infeasible::Insufficient("pods".to_owned())),
        Some((name, _)) => Err(Infeasible::Insufficient(name.to_string())),
        None => Ok(()),
    }
}

/// Whether the node matches the pod's node selector and required node affinity.
pub(super) fn admits(shape: &SchedulingNeeds, node: &NodeInfo) -> bool {
    shape.node_selector.iter().all(|(key, value)| node.label(key) == Some(value))
        && shape.node_terms.as_ref().is_none_or(|terms| matches_node(terms, &node.labels, &node.name))
}

fn clash(one: &(String, u64, String), other: &(String, u64, String)) -> bool {
    let any = "0.0.0.0";
    one.1 == other.1 && one.2 == other.2 && (one.0 == other.0 || one.0 == any || other.0 == any)
}
