//! Nodes of ours that pods left: `disruption` is rung for them, because changes of bound pods alone wake nobody.
//!
//! Decides a hint only. The function judges by the snapshot, and its sweep finds what a lost ring or a restart missed. A
//! node that becomes empty is told at once, when its last pod's deletion begins: nothing has to fit there. Of others, whose
//! pods come and go all day, is told once in [`FREED_EVERY`], when a pod is gone: until then it fills its room, and a look
//! would find none. Of pools that keep such nodes, nothing is told.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::labels;
use tenon_snapshot::object;
use tenon_snapshot::pod::{PodLife, PodRef, PodRunner};
use tenon_snapshot::snapshot::ClusterObjects;

/// How often nodes with fewer pods are told at most.
const FREED_EVERY: SignedDuration = SignedDuration::from_mins(1);

/// How many pods that could move a node has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PodsOfNode {
    /// All that fill their room.
    present: usize,
    /// Those that aren't being deleted.
    staying: usize,
}

impl PodsOfNode {
    const fn is_empty(self) -> bool {
        self.staying == 0
    }
}

/// The pods of nodes at the last report.
#[derive(Debug, Clone, Default)]
pub(crate) struct FreedNodes {
    /// Which each node had; none before the first report.
    known: Option<BTreeMap<String, PodsOfNode>>,
    /// Nodes of which that isn't told yet.
    untold: BTreeSet<String>,
    told_at: Option<Timestamp>,
}

impl FreedNodes {
    /// How many nodes became empty or have more room than before, as far as it is time to tell.
    pub(crate) fn observe(&mut self, objects: &ClusterObjects, now: Timestamp) -> u32 {
        let counts_as_used = |pod: &&PodRef| pod.life == PodLife::Active && pod.runner == PodRunner::Other;
        let initialized = |node: &&object::Object| {
            object::texts(node, "/metadata/labels").any(|(key, _)| key == labels::INITIALIZED)
        };
        let ours = objects.nodes.iter().filter(initialized);
        let kept: BTreeMap<&str, Keeps> =
            ours.map(|node| (object::name(node), keeps(objects, node))).collect();
        let mut counts: BTreeMap<String, PodsOfNode> =
            kept.keys().map(|name| ((*name).to_owned(), PodsOfNode::default())).collect();
        for pod in objects.pods.iter().filter(counts_as_used) {
            if let Some(count) = pod.node.as_deref().and_then(|node| counts.get_mut(node)) {
                count.present += 1;
                count.staying += usize::from(pod.deleted_at.is_none());
            }
        }
        let mut emptied = false;
        for (name, count) in &counts {
            let before = self.known.as_ref().map(|known| known.get(name).copied());
            // A node that is new and empty is news as well.
            let is_news = before.is_some_and(|before| match (before, count.is_empty()) {
                (None, is_empty) => is_empty,
                (Some(before), true) => !before.is_empty(),
                (Some(before), false) => count.present < before.present,
            });
            let concerns = match kept.get(name.as_str()) {
                Some(Keeps::Neither) => true,
                Some(Keeps::Used) => count.is_empty(),
                Some(Keeps::All) | None => false,
            };
            if is_news && concerns {
                self.untold.insert(name.clone());
                emptied |= count.is_empty();
            }
        }
        self.untold.retain(|name| counts.contains_key(name));
        self.known = Some(counts);
        let is_over = |at: Timestamp| now.duration_since(at) >= FREED_EVERY;
        if self.untold.is_empty() || !(emptied || self.told_at.is_none_or(is_over)) {
            return 0;
        }
        self.told_at = Some(now);
        u32::try_from(std::mem::take(&mut self.untold).len()).unwrap_or(u32::MAX)
    }
}

/// The nodes that a pool keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// All.
    All,
    /// Used ones.
    Used,
    /// Only those that are worth it.
    Neither,
}

pub(crate) fn keeps(objects: &ClusterObjects, node: &object::Object) -> Keeps {
    let of = object::texts(node, "/metadata/labels").find(|(key, _)| *key == labels::NODEPOOL);
    let pool = objects.node_pools.iter().find(|pool| of.is_some_and(|(_, name)| object::name(pool) == name));
    let told = |field| pool.and_then(|pool| object::text(pool, field));
    match (told("/spec/disruption/consolidateAfter"), told("/spec/disruption/consolidationPolicy")) {
        (Some("Never"), _) => Keeps::All,
        (_, Some("WhenEmpty")) => Keeps::Used,
        (_, _) => Keeps::Neither,
    }
}
