//! Pods that join a claim which an earlier round of the same plan made.
//!
//! Decides which claims still have room. A claim never gets dearer by it. Claims of a capacity reservation stay as
//! they are.

use std::collections::BTreeSet;

use tenon_domain::api::pod::HostPort;
use tenon_domain::id::NodePoolName;
use tenon_domain::requirement::Requirements;
use tenon_domain::resources::ResourceList;

use super::attachments::SharedHere;
use super::dense::{DenseAmounts, add_times, take_times, times};
use super::draft::{Draft, Member};
use super::needs::{counted, ports_conflict};
use super::pool::Pool;
use super::round::{PlanInProgress, Preference, last_pods};
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
        let one = pool.types.get(draft.type_index)?;
        if draft.reservation.is_some() {
            return None;
        }
        let (mut left, mut host_ports) = (one.room.clone(), BTreeSet::clone(&one.host_ports));
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
            merged: pool.class(draft.class)?.merged.clone(),
            type_index: draft.type_index,
            need: need.to_vec(),
            requests: requests.clone(),
            left,
            shared,
            host_ports,
            neighbours,
        })
    }

    /// How many pods of a group fit, and the class of the claim with them.
    fn admits(&self, pool: &mut Pool<'_>, member: &Member<'_>) -> Option<(u32, usize)> {
        let fitting = self.shared.times_fit(member.need, member.volumes, &self.left);
        let mut count = fitting.min(member.waiting);
        if !member.host_ports.is_empty() {
            count = if ports_conflict(member.host_ports, &self.host_ports) { 0 } else { count.min(1) };
        }
        count = count.min(self.neighbours.admits(member.rules, FirstOfItsKind::No));
        if count == 0 {
            return None;
        }
        let own = pool.class_of_merged(&self.merged)?;
        let class = pool.join(own, member.class)?;
        let (before, after) = (pool.price(own, self.type_index)?, pool.price(class, self.type_index)?);
        (after <= before).then_some((count, class))
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
                    self.join(pool, claim, member);
                }
                members.retain(|member| member.waiting > 0);
            }
        }
        self.state.open = open;
    }

    fn join(&mut self, pool: &mut Pool<'_>, open: &mut OpenClaim, member: &mut Member<'_>) {
        let Some((count, class)) = open.admits(pool, member) else { return };
        let Some(group) = self.groups.get(member.group) else { return };
        let (mut need, mut requests) = (open.need.clone(), open.requests.clone());
        add_times(&mut need, member.need, count);
        let mut shared = open.shared.clone();
        shared.add(member.volumes, &mut need, 1);
        requests.add(&times(group.requests, count));
        let draft = Draft {
            class,
            type_index: open.type_index,
            price: 0,
            counts: Vec::new(),
            times: 1,
            reservation: None,
        };
        let Some(with) = pool.claim(&draft, &need, &requests) else { return };
        let Some(claim) = self.state.claims.get_mut(open.claim) else { return };
        let Some(left) = self.waiting.get_mut(member.group) else { return };
        let joining = last_pods(group, *left).take(usize::try_from(count).unwrap_or(usize::MAX)).map(counted);
        let mut pods = std::mem::take(&mut claim.pods);
        pods.extend(joining);
        pods.sort();
        *claim = with;
        claim.pods = pods;
        *left = left.saturating_sub(count);
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
