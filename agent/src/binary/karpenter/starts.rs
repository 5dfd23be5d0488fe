//! How long pods take to be bound, and to be Ready.
//!
//! Decides which pods count: those that were Pending at the first look, and those that came since. Times are the
//! conditions' own, so a look that comes late changes no duration. A pod that comes and goes between two looks isn't
//! counted, nor is a pod that ends before it is Ready.
//!
//! Invariant: a pod counts once.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::pod::PodPhase;
use tenon_snapshot::pod::{PodRef, SeenPod};

use super::objects::seconds;

/// Pods on their way, by UID.
#[derive(Debug, Default)]
pub(super) struct PodStarts {
    unbound: BTreeSet<String>,
    unstarted: BTreeSet<String>,
}

/// How long pods took.
#[derive(Debug, Default, PartialEq)]
pub(super) struct StartedPods {
    /// From their creation until they were bound.
    pub(super) bound_seconds: Vec<f64>,
    /// From their creation until they were Ready.
    pub(super) ready_seconds: Vec<f64>,
}

impl PodStarts {
    /// UIDs of the pods that haven't been Ready yet.
    pub(super) const fn unstarted(&self) -> &BTreeSet<String> {
        &self.unstarted
    }

    /// The pods that were bound, or became Ready, since the look before. Both lists are by namespace and name.
    pub(super) fn observe(&mut self, before: Option<&[PodRef]>, after: &[PodRef]) -> StartedPods {
        let mut started = StartedPods::default();
        let mut old = before.unwrap_or_default().iter().peekable();
        for pod in after {
            if old.next_if(|one| Arc::ptr_eq(one, pod)).is_some() {
                continue;
            }
            while let Some(gone) = old.next_if(|one| one.key < pod.key) {
                self.forget(gone);
            }
            let known = old.next_if(|one| one.key == pod.key);
            if let Some(other) = known.filter(|one| one.uid != pod.uid) {
                self.forget(other);
            }
            let is_new = known.is_none_or(|one| one.uid != pod.uid);
            if is_new && (before.is_some() || pod.phase == PodPhase::Pending) {
                self.unbound.insert(pod.uid.clone());
                self.unstarted.insert(pod.uid.clone());
            }
            self.settle(pod, &mut started);
        }
        old.for_each(|gone| self.forget(gone));
        started
    }

    fn settle(&mut self, pod: &SeenPod, started: &mut StartedPods) {
        let took = |at: Option<Timestamp>| Some(seconds(pod.created_at?, at?));
        if pod.bound_at.is_some() && self.unbound.remove(&pod.uid) {
            started.bound_seconds.extend(took(pod.bound_at));
        }
        if pod.ready_at.is_some() && self.unstarted.remove(&pod.uid) {
            started.ready_seconds.extend(took(pod.ready_at));
        }
    }

    fn forget(&mut self, pod: &SeenPod) {
        self.unbound.remove(&pod.uid);
        self.unstarted.remove(&pod.uid);
    }
}
