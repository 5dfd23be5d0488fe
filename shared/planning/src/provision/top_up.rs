//! Pods that join a claim which the plan has made already.
//!
//! Decides which claims still have room, and which come to a larger type: those that pods must join, as the pods that they
//! need beside them are there. It doesn't decide when (`rest`). Else a claim never gets dearer. Claims of a capacity
//! reservation stay as they are.
//!
//! Invariant: what a larger type charges beyond the smaller one is within the limits.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::api::pod::HostPort;
use tenon_domain::id::NodePoolName;
use tenon_domain::requirement::Requirements;
use tenon_domain::resources::ResourceList;

use super::attachments::SharedHere;
use super::dense::{DenseAmounts, add_times, take_times, times, within};
use super::draft::{Draft, Member};
use super::needs::{counted, ports_conflict};
use super::picky::most_pods;
use super::pool::Pool;
use super::round::{Growth, PlanInProgress, Preference, last_pods};
use super::topology::neighbours::{FirstOfItsKind, NodeNeighbours};

/// A claim that may get more pods.
#[derive(Debug, Clone)]
pub(crate) struct OpenClaim {
    /// Its place among the plan's claims.
    claim: usize,
    pool: NodePoolName,
    merged: Requirements,
    type_index: usize,
    need: DenseAmounts,
    requests: ResourceList,
    left: DenseAmounts,
    shared: SharedHere,
    host_ports: BTreeSet<HostPort>,
    neighbours: NodeNeighbours,
}

/// How pods join a claim.
struct JoiningPods {
    /// How many.
    count: u32,
    /// The claim's class with them.
    class: usize,
    /// Its type with them.
    type_index: usize,
}

/// A draft with what its pods need together.
#[derive(Clone, Copy)]
pub(crate) struct PackedDraft<'a> {
    pub(crate) draft: &'a Draft,
    pub(crate) members: &'a [Member<'a>],
    pub(crate) need: &'a [i64],
    pub(crate) requests: &'a ResourceList,
}

impl OpenClaim {
    /// The claim of a draft; none of a reservation's.
    pub(crate) fn of(pool: &Pool<'_>, packed: &PackedDraft<'_>, claim: usize) -> Option<Self> {
        let PackedDraft { draft, members, need, requests } = *packed;
        let class = pool.class(draft.class)?;
        let room = class.room(draft.type_index)?;
        if draft.reservation.is_some() {
            return None;
        }
        let (mut left, mut host_ports) = (room.amounts.clone(), BTreeSet::clone(&room.host_ports));
        let (mut neighbours, mut shared) = (NodeNeighbours::default(), SharedHere::default());
        take_times(&mut left, need, 1);
        for (index, count) in &draft.counts {
            let member = members.get(*index)?;
            neighbours.add(member.rules, *count);
            // What the pods need together has them already.
            shared.add(member.volumes, &mut left, 0);
            host_ports.extend(member.host_ports.iter().cloned());
        }
        Some(Self {
            claim,
            pool: pool.input.pool.name.clone(),
            merged: class.merged.clone(),
            type_index: draft.type_index,
            need: need.to_vec(),
            requests: requests.clone(),
            left,
            shared,
            host_ports,
            neighbours,
        })
    }

    /// How many pods of a group fit in some room.
    fn fit(&self, member: &Member<'_>, left: &[i64]) -> u32 {
        self.shared.times_fit(member.need, member.volumes, left)
    }

    /// How many pods of a group may join, whatever the room.
    fn wanted(&self, member: &Member<'_>) -> u32 {
        let most = match (member.host_ports.is_empty(), ports_conflict(member.host_ports, &self.host_ports)) {
            (true, _) => member.waiting,
            (false, true) => 0,
            (false, false) => member.waiting.min(1),
        };
        if most == 0 { 0 } else { most.min(self.neighbours.admits(member.rules, FirstOfItsKind::No)) }
    }

    /// How many pods of a group fit.
    fn admits(&self, pool: &mut Pool<'_>, member: &Member<'_>) -> Option<JoiningPods> {
        let fitting = self.fit(member, &self.left);
        let count = if fitting == 0 { 0 } else { fitting.min(self.wanted(member)) };
        if count == 0 {
            return None;
        }
        let own = pool.class_of_merged(&self.merged)?;
        let class = pool.join(own, member.class)?;
        let (before, after) = (pool.price(own, self.type_index)?, pool.price(class, self.type_index)?);
        if after > before {
            return None;
        }
        let joining = JoiningPods { count, class, type_index: self.type_index };
        let count = self.most_flexible(pool, member, own, &joining);
        (count > 0).then_some(JoiningPods { count, ..joining })
    }

    /// How many pods of a group fit on a larger type: the cheapest of those that hold the most.
    fn grown(&self, pool: &mut Pool<'_>, member: &Member<'_>) -> Option<JoiningPods> {
        let wanted = self.wanted(member);
        if wanted == 0 {
            return None;
        }
        let own = pool.class_of_merged(&self.merged)?;
        let class = pool.join(own, member.class)?;
        pool.price(own, self.type_index)?;
        let front = Arc::clone(&pool.class(class)?.front);
        let mut best: Option<JoiningPods> = None;
        for type_index in front.iter().copied() {
            let most = best.as_ref().map_or(0, |best| best.count);
            if most == wanted {
                break;
            }
            let Some(left) = self.left_on(pool, class, type_index) else { continue };
            let count = self.fit(member, &left).min(wanted);
            if count <= most || !pool.reserved(class, type_index).is_empty() {
                continue;
            }
            let joining = JoiningPods { count, class, type_index };
            let count = self.most_flexible(pool, member, own, &joining);
            if count > most {
                best = Some(JoiningPods { count, ..joining });
            }
        }
        best
    }

    /// The room that its pods leave on another type, where the limits allow that and it has all their host ports free.
    fn left_on(&self, pool: &Pool<'_>, class: usize, type_index: usize) -> Option<DenseAmounts> {
        let room = pool.class(class)?.room(type_index)?;
        let (from, to) = (pool.types.get(self.type_index)?, pool.types.get(type_index)?);
        let mut charges = pool.limits.iter().zip(to.charges.iter().zip(&from.charges));
        let allowed = charges.all(|((_, left), (to, from))| to.saturating_sub(*from) <= (*left).max(0));
        if !allowed || !within(&self.need, &room.amounts) || !room.host_ports.is_subset(&self.host_ports) {
            return None;
        }
        let mut left = room.amounts.clone();
        take_times(&mut left, &self.need, 1);
        Some(left)
    }

    /// The most of so many pods that leave the claim's types as many values of `minValues` as they have.
    fn most_flexible(&self, pool: &Pool<'_>, member: &Member<'_>, own: usize, joining: &JoiningPods) -> u32 {
        if !pool.has_min_values() {
            return joining.count;
        }
        let lacks = pool.lacking_values(own, self.type_index, &self.need);
        let enough = |pods: u32| {
            let mut need = self.need.clone();
            add_times(&mut need, member.need, pods);
            pool.lacking_values(joining.class, joining.type_index, &need) <= lacks
        };
        most_pods(joining.count, || true, enough)
    }
}

impl PlanInProgress<'_, '_> {
    /// Adds pods to claims that are planned already.
    pub(crate) fn top_up(&mut self, pools: &mut [Pool<'_>], preference: Preference) {
        if self.state.open.is_empty() || self.is_done() {
            return;
        }
        let mut open = std::mem::take(&mut self.state.open);
        for pool in pools.iter_mut().filter(|pool| pool.is_ready()) {
            let mut members = self.members(pool, preference);
            for claim in open.iter_mut().filter(|claim| claim.pool == pool.input.pool.name) {
                if !self.state.steps.take(members.len()) {
                    break;
                }
                for member in &mut members {
                    if let Some(joining) = self.joining(pool, claim, member) {
                        self.join(pool, claim, member, &joining);
                    }
                }
                members.retain(|member| member.waiting > 0);
            }
        }
        self.state.open = open;
    }

    /// How pods of a group join a claim: with the alternative that they would be packed with, or else with another.
    fn joining(&self, pool: &mut Pool<'_>, claim: &OpenClaim, member: &Member<'_>) -> Option<JoiningPods> {
        if let Some(joining) = claim.admits(pool, member) {
            return Some(joining);
        }
        let ways = &self.groups.get(member.group)?.alternatives;
        if ways.for_new_nodes.len() < 2 {
            return None;
        }
        let mut others = pool.classes_of(ways).into_iter().filter(|class| *class != member.class);
        others.find_map(|class| claim.admits(pool, &Member { class, ..*member }))
    }

    /// Adds pods that must be beside others, and have no preference left, to claims that come to larger types for it.
    pub(crate) fn grow(&mut self, pools: &mut [Pool<'_>]) {
        if self.state.growth == Growth::No || self.state.open.is_empty() || self.is_done() {
            return;
        }
        let mut open = std::mem::take(&mut self.state.open);
        for pool in pools.iter_mut().filter(|pool| pool.is_ready()) {
            pool.cap(self.state.of_cluster);
            let mut members = self.members(pool, Preference::Dropped);
            // All others would have nodes of their own.
            members.retain(|member| member.rules.keeps_together());
            for claim in open.iter_mut().filter(|claim| claim.pool == pool.input.pool.name) {
                if members.is_empty() || !self.state.steps.take(members.len()) {
                    break;
                }
                for member in &mut members {
                    if let Some(joining) = claim.grown(pool, member) {
                        self.join(pool, claim, member, &joining);
                    }
                }
                members.retain(|member| member.waiting > 0);
            }
        }
        self.state.open = open;
    }

    /// Charges the limits for a claim that comes to another type.
    fn move_up(&mut self, pool: &mut Pool<'_>, open: &mut OpenClaim, joining: &JoiningPods) {
        let (from, to) = (open.type_index, joining.type_index);
        let Some(left) = open.left_on(pool, joining.class, to).filter(|_| from != to) else { return };
        (open.left, open.type_index) = (left, to);
        if let (Some(from), Some(to)) = (pool.types.get(from), pool.types.get(to)) {
            self.state.of_cluster.grow(&from.option.capacity, &to.option.capacity);
            let more = to.charges.iter().zip(&from.charges).map(|(to, from)| to.saturating_sub(*from));
            for ((_, left), more) in pool.limits.iter_mut().zip(more) {
                *left = left.saturating_sub(more);
            }
        }
    }

    fn join(
        &mut self,
        pool: &mut Pool<'_>,
        open: &mut OpenClaim,
        member: &mut Member<'_>,
        joining: &JoiningPods,
    ) {
        let JoiningPods { count, class, type_index } = *joining;
        let Some(group) = self.groups.get(member.group) else { return };
        let (mut need, mut requests) = (open.need.clone(), open.requests.clone());
        add_times(&mut need, member.need, count);
        let mut shared = open.shared.clone();
        shared.add(member.volumes, &mut need, 1);
        requests.add(&times(group.requests, count));
        let draft = Draft { class, type_index, price: 0, counts: Vec::new(), times: 1, reservation: None };
        let Some(with) = pool.claim(&draft, &need, &requests) else { return };
        let Some(claim) = self.state.claims.get_mut(open.claim) else { return };
        let Some(left) = self.waiting.get_mut(member.group) else { return };
        let newcomers =
            last_pods(group, *left).take(usize::try_from(count).unwrap_or(usize::MAX)).map(counted);
        let mut pods = std::mem::take(&mut claim.pods);
        pods.extend(newcomers);
        pods.sort();
        *claim = with;
        claim.pods = pods;
        *left = left.saturating_sub(count);
        self.move_up(pool, open, joining);
        member.waiting = member.waiting.saturating_sub(count);
        take_times(&mut open.left, member.need, count);
        open.shared.add(member.volumes, &mut open.left, -1);
        open.host_ports.extend(member.host_ports.iter().cloned());
        open.neighbours.add(member.rules, count);
        open.merged = pool.class(class).map_or_else(|| open.merged.clone(), |class| class.merged.clone());
        (open.need, open.requests) = (need, requests);
        self.state.census.now_present(&group.is);
    }
}
