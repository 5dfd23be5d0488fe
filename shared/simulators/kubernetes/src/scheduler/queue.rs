//! The scheduling queue: which waiting pods are tried, and in which order.
//!
//! Decides by priority, then by the time of entering: a pod that failed enters again behind the others. Pods in
//! backoff come after all others, as kube-scheduler pops them only when nothing else is there. A pod that failed is
//! tried again when something changed that concerns one of the plugins that refused it; not for a node whose taints keep it
//! out, unless it is nominated: only its message would change. There is no flush of
//! unschedulable pods after 5 minutes: wherever a plugin's hint looks closer at a change than this does, the pod is
//! tried too early here, never too late.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::filter::{self, Infeasible};
use super::info::NodeInfo;
use super::shape::SchedulingNeeds;
use super::unbound::UnboundPod;
use tenon_snapshot::object;

/// The longest backoff, in seconds (`podMaxBackoffSeconds`).
const LONGEST_BACKOFF: i64 = 10;
/// Attempts after which the backoff doesn't grow: 1, 2, 4, 8, 10 seconds.
const GROWING_ATTEMPTS: u32 = 4;

/// What happened since the last pass.
#[derive(Debug, Default)]
pub(super) struct Happened {
    /// Nodes that appeared or changed, or that a pod left.
    pub(super) nodes: BTreeSet<String>,
    /// A pod came to a node, left it or changed.
    pub(super) neighbours: bool,
    /// A volume, a namespace or another object changed.
    pub(super) other: bool,
}

impl Happened {
    /// Whether nothing happened that lets a refused pod be tried again.
    pub(super) fn is_nothing(&self) -> bool {
        self.nodes.is_empty() && !self.neighbours && !self.other
    }
}

/// What a pass knows when it asks for turns.
pub(super) struct AttemptSeen<'a> {
    happened: &'a Happened,
    nodes: &'a BTreeMap<String, NodeInfo>,
    now: Timestamp,
    /// Whether equal pods that were refused together are tried again: by their shape, whether they are nominated,
    /// and the address of the reasons.
    woken: BTreeMap<(usize, bool, usize), bool>,
}

impl<'a> AttemptSeen<'a> {
    pub(super) fn new(happened: &'a Happened, nodes: &'a BTreeMap<String, NodeInfo>, now: Timestamp) -> Self {
        Self { happened, nodes, now, woken: BTreeMap::new() }
    }
}

/// A waiting pod.
#[derive(Debug, Default)]
struct WaitingPod {
    entered: u64,
    attempts: u32,
    failed_at: Option<Timestamp>,
    /// Why, at the last attempt.
    refused_by: Arc<BTreeSet<Infeasible>>,
}

/// The place of a pod in the queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueTurn {
    /// The end of its backoff; none if it is over.
    backoff: Option<Timestamp>,
    priority: Reverse<i64>,
    entered: u64,
}

/// The waiting pods by UID.
#[derive(Debug, Default)]
pub(super) struct SchedulingQueue {
    waiting: BTreeMap<String, WaitingPod>,
    entered: u64,
}

impl SchedulingQueue {
    /// A pod doesn't wait any longer.
    pub(super) fn leave(&mut self, uid: &str) {
        self.waiting.remove(uid);
    }

    /// Whether the pod waits already.
    pub(super) fn has(&self, uid: &str) -> bool {
        self.waiting.contains_key(uid)
    }

    /// A pod waits; new ones enter in the order of these calls.
    pub(super) fn enter(&mut self, uid: &str) {
        if !self.waiting.contains_key(uid) {
            self.entered += 1;
            self.waiting
                .insert(uid.to_owned(), WaitingPod { entered: self.entered, ..WaitingPod::default() });
        }
    }

    /// The pod's turn, if it is to be tried.
    pub(super) fn turn(&self, pod: &UnboundPod, seen: &mut AttemptSeen<'_>) -> Option<QueueTurn> {
        let UnboundPod { pod, shape, nominated } = pod;
        let one = self.waiting.get(object::uid(pod))?;
        let AttemptSeen { happened, nodes, woken, .. } = seen;
        let alike = (shape.id, nominated.is_some(), Arc::as_ptr(&one.refused_by).addr());
        let mut is_woken = || {
            *woken.entry(alike).or_insert_with(|| one.is_woken(shape, nominated.is_some(), happened, nodes))
        };
        if one.failed_at.is_some() && !is_woken() {
            return None;
        }
        let backoff = one.failed_at.and_then(|at| at.checked_add(backoff(one.attempts)).ok());
        Some(QueueTurn {
            backoff: backoff.filter(|until| *until > seen.now),
            priority: Reverse(shape.priority),
            entered: one.entered,
        })
    }

    /// A pod found no node.
    pub(super) fn failed(&mut self, uid: &str, refused_by: Arc<BTreeSet<Infeasible>>, now: Timestamp) {
        self.entered += 1;
        let entered = self.entered;
        if let Some(one) = self.waiting.get_mut(uid) {
            one.entered = entered;
            one.attempts = one.attempts.saturating_add(1);
            one.failed_at = Some(now);
            one.refused_by = refused_by;
        }
    }
}

impl WaitingPod {
    fn is_woken(
        &self,
        shape: &SchedulingNeeds,
        is_nominated: bool,
        happened: &Happened,
        nodes: &BTreeMap<String, NodeInfo>,
    ) -> bool {
        let on_nodes = || {
            happened.nodes.iter().any(|name| match nodes.get(name) {
                Some(_) if self.refused_by.is_empty() => true,
                // An attempt for a node that keeps the pod out ends a nomination, and changes nothing else.
                Some(node) => {
                    let kept_out =
                        matches!(filter::takes(shape, node), Err(Infeasible::Cordoned | Infeasible::Taint));
                    (is_nominated || !kept_out) && self.refused_by.iter().any(|one| one.eases(shape, node))
                }
                // A node that is gone may have held the emptiest domain.
                None => self.refused_by.iter().any(Infeasible::minds_neighbours),
            })
        };
        happened.other
            || (happened.neighbours && self.refused_by.iter().any(Infeasible::minds_neighbours))
            || on_nodes()
    }
}

impl Infeasible {
    /// Whether other pods cause it.
    pub(super) fn minds_neighbours(&self) -> bool {
        match self {
            Self::Spread
            | Self::PodAffinity
            | Self::PodAntiAffinity
            | Self::ExistingAntiAffinity
            | Self::VolumeClaimInUse => true,
            Self::Cordoned
            | Self::Taint
            | Self::NodeAffinity
            | Self::Ports
            | Self::TooManyPods
            | Self::Insufficient(_)
            | Self::VolumeLimit
            | Self::VolumeNodeAffinity
            | Self::VolumeBinding
            | Self::VolumeZone
            | Self::VolumeClaimMissing
            | Self::VolumeClaimDeleted
            | Self::VolumeUnbound
            | Self::VolumeMissing
            | Self::ResourceClaims
            | Self::SpreadLabelMissing => false,
        }
    }

    /// Whether its plugin lets the pod be tried again because a node is as it is now.
    fn eases(&self, shape: &SchedulingNeeds, node: &NodeInfo) -> bool {
        match self {
            Self::Cordoned => !node.cordoned,
            Self::Taint => !matches!(filter::takes(shape, node), Err(Self::Taint)),
            Self::NodeAffinity => filter::admits(shape, node),
            Self::TooManyPods | Self::Insufficient(_) => filter::room(shape, &node.free).is_ok(),
            Self::SpreadLabelMissing => shape.spread.iter().all(|rule| node.label(&rule.key).is_some()),
            Self::Ports
            | Self::VolumeLimit
            | Self::VolumeClaimInUse
            | Self::VolumeNodeAffinity
            | Self::VolumeBinding
            | Self::VolumeZone
            | Self::Spread
            | Self::PodAffinity
            | Self::PodAntiAffinity
            | Self::ExistingAntiAffinity => true,
            Self::VolumeClaimMissing
            | Self::VolumeClaimDeleted
            | Self::VolumeUnbound
            | Self::VolumeMissing
            | Self::ResourceClaims => false,
        }
    }
}

fn backoff(attempts: u32) -> SignedDuration {
    let doubled = 1_i64 << attempts.saturating_sub(1).min(GROWING_ATTEMPTS);
    SignedDuration::from_secs(doubled.min(LONGEST_BACKOFF))
}
