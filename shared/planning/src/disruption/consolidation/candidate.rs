//! Nodes that a consolidation may take.
//!
//! Decides which these are, what each costs, and from when it may go. Invariant: what an annotation or a
//! PodDisruptionBudget keeps, what is new, and what awaits pods is no candidate.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption/types.go`, `consolidation.go`.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::api::node_pool::ConsolidationPolicy;
use tenon_domain::api::{NodePool, Pod};
use tenon_domain::catalog::{CapacityType, find_option};
use tenon_domain::claim::{ClaimPhase, ClaimState, Consolidatable};
use tenon_domain::digest::Digest;
use tenon_domain::id::{ClaimName, InstanceType};
use tenon_domain::money::UsdPerHour;
use tenon_domain::savings::ConsolidationTerms;

use super::rest;
use crate::disruption::blocked::{PodsWord, reschedulable};
use crate::disruption::due::due;
use crate::disruption::emptiness::since_pods;
use crate::disruption::input::{ClaimView, DisruptionInput, NodeView};
use crate::disruption::moving::SpareCapacity;
use crate::disruption::output::{NotDisrupted, RefusalReason};
use crate::disruption::{awaited, cost, emptiness, held};
use crate::provision::PoolInput;

/// Digits of a digest of pods.
const DIGITS: usize = 10;

/// A node that a consolidation may take.
pub(crate) struct UsedNode<'a> {
    pub(crate) view: &'a ClaimView,
    pub(crate) node: &'a NodeView,
    pub(crate) pool: &'a NodePool,
    pub(crate) terms: ConsolidationTerms,
    pub(crate) instance_type: &'a InstanceType,
    pub(crate) capacity_type: CapacityType,
    /// Its pods that would move.
    pub(crate) pods: Vec<Pod>,
    /// Zero where it isn't known: such a node may only go without a replacement.
    pub(crate) price: UsdPerHour,
    pub(crate) disruption: u64,
    /// What a move must save for pods that were moved lately.
    pub(crate) rests: UsdPerHour,
    /// What keeps it, though it may cost too much.
    pub(crate) kept: Option<NotDisrupted>,
}

/// Since when the last pod came, or the node itself.
pub(crate) fn settled_at(view: &ClaimView, node: &NodeView) -> Option<Timestamp> {
    let ClaimState::Initialized { at, .. } = view.claim.state else { return None };
    let own = node.pods.iter().filter(|pod| !pod.shape.is_of_daemon_set());
    own.filter_map(|pod| pod.bound_at).chain([at]).max()
}

/// The digest of the pods that would move.
pub(crate) fn digest(pods: &[Pod]) -> String {
    let names: BTreeSet<String> = pods.iter().map(|pod| pod.name.to_string()).collect();
    Digest::of_texts(names.iter().map(String::as_str)).base36(DIGITS)
}

impl<'a> UsedNode<'a> {
    /// The used nodes of the input, those that save most for their pods' disruption first.
    pub(crate) fn all(
        input: &'a DisruptionInput,
        world: &SpareCapacity<'_>,
        taken: &BTreeSet<ClaimName>,
    ) -> Vec<Self> {
        let awaited = awaited(input);
        let free = |view: &&ClaimView| {
            view.claim.phase() == ClaimPhase::Initialized
                && view.claim.drift.is_none()
                && due(input, view).is_none()
                && !taken.contains(&view.claim.name)
                && !awaited(view)
        };
        let found = input.claims.iter().filter(free).filter_map(|view| Self::of(input, world, view));
        let mut nodes: Vec<Self> = found.collect();
        nodes.sort_by(by_worth);
        nodes
    }

    fn of(input: &'a DisruptionInput, world: &SpareCapacity<'_>, view: &'a ClaimView) -> Option<Self> {
        let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool)?;
        match pool.disruption.consolidation_policy {
            ConsolidationPolicy::WhenEmpty => return None,
            ConsolidationPolicy::WhenEmptyOrUnderutilized | ConsolidationPolicy::Balanced => {}
        }
        pool.disruption.consolidate_after?;
        let terms = ConsolidationTerms::of(pool).ok()?;
        let node = view.node.as_ref()?;
        if emptiness::is_awaited(input, world, view, node) {
            return None;
        }
        let pods = reschedulable(node);
        if pods.is_empty() {
            return None;
        }
        let instance = view.claim.state.instance()?;
        let of_pool = input.world.pools.iter().find(|one| one.pool.name == pool.name)?;
        let price = price(view, of_pool).unwrap_or_default();
        Some(Self {
            view,
            node,
            pool,
            terms,
            instance_type: &instance.instance_type,
            capacity_type: instance.capacity_type,
            rests: rest::worth(price, &pods, &input.moved, (terms.rest, input.now)),
            price,
            disruption: cost::disruption(&pods),
            kept: held(input, node, PodsWord::Counts).err(),
            pods,
        })
    }

    /// Whether one of its pods has a rule about where other pods are.
    pub(crate) fn has_rules(&self) -> bool {
        self.pods.iter().any(|pod| {
            let shape = &pod.shape;
            !shape.topology_spread.is_empty()
                || !shape.required_pod_affinity.is_empty()
                || !shape.required_pod_anti_affinity.is_empty()
        })
    }

    /// The claim's mark, if it were set for its present pods now.
    pub(crate) fn mark(&self, now: Timestamp) -> Consolidatable {
        let pods = Some(digest(&self.pods));
        match &self.view.claim.consolidatable {
            Some(known) if known.pods == pods => {
                Consolidatable { since: since_pods(known.since, (self.node, now)), pods }
            }
            Some(_) | None => Consolidatable { since: now, pods },
        }
    }

    /// Why it rests with its present pods, if its last consolidation was undone: its mark begins later.
    pub(crate) fn undone(&self, now: Timestamp) -> Option<NotDisrupted> {
        let until = self.mark(now).since;
        (until > now).then_some(NotDisrupted { reason: RefusalReason::Undone { until }, again: Some(until) })
    }

    /// Whether it may go once its pool's `consolidateAfter` is over. No set of nodes waits for one that may not.
    pub(crate) fn is_free(&self, now: Timestamp) -> bool {
        self.kept.is_none() && self.undone(now).is_none() && self.too_young(now).is_none()
    }

    /// Why its age alone keeps it, if it could go.
    pub(crate) fn too_young(&self, now: Timestamp) -> Option<NotDisrupted> {
        let until = self.old_at();
        let waits = self.wait_ends(self.mark(now).since).max(now);
        (waits < until).then(|| {
            let (pool, lifetime) = (self.pool.name.clone(), self.terms.lifetime);
            NotDisrupted { reason: RefusalReason::TooYoung { pool, lifetime, until }, again: Some(until) }
        })
    }

    /// Whether its time has come, by its mark for its present pods.
    pub(crate) fn is_ripe(&self, now: Timestamp) -> bool {
        self.ripe_since(now).is_some_and(|since| since <= now)
    }

    /// Whether its time came so long ago that it waits for no other node any longer: its pool's `consolidateAfter`, once
    /// more.
    pub(crate) fn is_patient(&self, now: Timestamp) -> bool {
        let after = self.pool.disruption.consolidate_after.unwrap_or_default().max(emptiness::LOOKED_TWICE);
        let until = self.ripe_since(now).and_then(|since| since.checked_add(after).ok());
        until.is_some_and(|until| until <= now)
    }

    /// When its time comes, or came; `None` if it has no mark for its present pods.
    fn ripe_since(&self, now: Timestamp) -> Option<Timestamp> {
        let mark = self.mark(now);
        (self.view.claim.consolidatable.as_ref() == Some(&mark)).then(|| self.goes_at(mark.since))
    }

    /// When it may go, if it could go since then.
    pub(crate) fn goes_at(&self, since: Timestamp) -> Timestamp {
        self.wait_ends(since).max(self.old_at())
    }

    /// When it has the least age that its pool asks for.
    fn old_at(&self) -> Timestamp {
        self.view.claim.created_at.checked_add(self.terms.lifetime).unwrap_or(Timestamp::MAX)
    }

    /// The end of its pool's `consolidateAfter`, and the earliest second look, if it could go since then.
    fn wait_ends(&self, since: Timestamp) -> Timestamp {
        let after = self.pool.disruption.consolidate_after.unwrap_or_default();
        let quiet = settled_at(self.view, self.node).map_or(since, |at| at.max(since));
        let quiet = quiet.checked_add(after).unwrap_or(Timestamp::MAX);
        let looked_twice = since.checked_add(emptiness::LOOKED_TWICE).unwrap_or(Timestamp::MAX);
        quiet.max(looked_twice)
    }
}

/// The price of the offering that a claim's instance is of, available or not.
pub(crate) fn price(view: &ClaimView, pool: &PoolInput) -> Option<UsdPerHour> {
    let instance = view.claim.state.instance()?;
    let option = find_option(&pool.types, &instance.instance_type)?;
    let reservation = instance.reservation.as_ref().map(|into| &into.id);
    let own = option.offerings.iter().find(|offering| {
        offering.zone == instance.zone
            && offering.capacity_type == instance.capacity_type
            && offering.reservation.as_ref().map(|one| &one.id) == reservation
    })?;
    own.price
}

/// More money for less disruption first, then by name. Marks don't count: they are what a look decides, and a second look
/// must decide the same.
fn by_worth(a: &UsedNode<'_>, b: &UsedNode<'_>) -> Ordering {
    let worth = |one: &UsedNode<'_>, other: &UsedNode<'_>| {
        u128::from(one.price.nanos()).saturating_mul(other.disruption.into())
    };
    worth(b, a).cmp(&worth(a, b)).then_with(|| a.view.claim.name.cmp(&b.view.claim.name))
}
