//! The rounds of a plan: pods are dealt to domains, placed on nodes and packed on claims; what is left is tried again.
//!
//! Decides when a plan ends, and when it begins again: a domain that had no room after all changes what a spread
//! allows in the others, so the plan begins again without that domain; and so does a domain that only the plan's own
//! claims open. Where a limit was in the way, it begins again with fewer pods. It doesn't decide what a round tries (`rest`).
//!
//! Invariant: a plan begins again a few times at most.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::Pod;
use tenon_domain::id::Zone;
use tenon_domain::labels;
use tenon_domain::resources::ResourceList;
use tenon_domain::taint::{tolerates_all, tolerates_forbidding};

use super::dense::times;
use super::draft::{Draft, Member, sum};
use super::existing::Rooms;
use super::input::{ProvisionInput, Purpose};
use super::limits::ClusterUse;
use super::needs::{PodGroup, counted};
use super::open::OpenOfferings;
use super::output::{Placement, PlannedClaim};
use super::pack;
use super::pool::Pool;
use super::probe;
use super::report::PlanCompletion;
use super::reserved::{Again, ReservedRoom};
use super::rest::{GroupSpread, Rest, Settled, Unplaced};
use super::steps::Steps;
use super::top_up::{OpenClaim, PackedDraft};
use super::topology::census::{Census, OpenedDomain};
use super::topology::deal::Pin;
use super::topology::neighbours::FirstOfItsKind;
use super::ways::WaysTable;
use super::{InputMeasures, Scope, compiled, count};

/// How often a plan begins again.
const RESTARTS: u32 = 8;

/// Whether a plan may begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restart {
    Yes,
    No,
}

/// Whether a plan stands, or must begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Yes,
    No,
}

/// Whether claims may come to larger types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Growth {
    /// Not while pods may find other places.
    No,
    /// For pods that have no other place.
    Yes,
}

/// A plan in the making.
pub(crate) struct PlanAttempt<'m, 's, 'a> {
    pub(crate) input: &'a ProvisionInput,
    pub(crate) scope: &'m Scope<'s>,
    pub(crate) measures: &'m InputMeasures<'a>,
    /// Compiled when a pod needs one.
    pub(crate) pools: &'m mut Vec<Pool<'a>>,
    pub(crate) placements: Vec<Placement>,
    pub(crate) state: PlanState<'s>,
    pub(crate) rest: Rest<'s>,
}

impl PlanAttempt<'_, '_, '_> {
    /// Plans for all pods. Where pods find no place, though others of lower priority do, a plan by priority may be
    /// better: kube-scheduler gives the first to come what the last were promised.
    pub(crate) fn run(&mut self) {
        let begin = self
            .rest
            .has_priorities()
            .then(|| (self.state.rooms.clone(), self.state.census.clone(), self.rest.clone().by_priority()));
        self.attempt();
        if let Some((rooms, census, rest)) = begin
            && is_out_of_order(&self.rest.unplaced(), &rest.unplaced())
        {
            let mut pools = Vec::new();
            let mut ordered = PlanAttempt {
                input: self.input,
                scope: self.scope,
                measures: self.measures,
                pools: &mut pools,
                placements: Vec::new(),
                state: PlanState {
                    steps: self.state.steps.clone(),
                    room: ReservedRoom::besides(&self.measures.spent),
                    claims: Vec::new(),
                    of_cluster: ClusterUse::default(),
                    open: Vec::new(),
                    growth: Growth::No,
                    rooms,
                    census,
                },
                rest,
            };
            ordered.attempt();
            if ordered.rest.unplaced() < self.rest.unplaced() {
                let PlanAttempt { placements, state, rest, .. } = ordered;
                (self.placements, self.state, self.rest) = (placements, state, rest);
                *self.pools = pools;
            }
        }
        self.last_resort();
    }

    /// One plan.
    fn attempt(&mut self) {
        // Without rules no plan begins again, and nothing needs to be kept for it.
        if !self.rest.has_rules() {
            self.rounds(Restart::No);
            return;
        }
        let rooms = self.state.rooms.clone();
        let (mut census, rest) = (self.state.census.clone(), self.rest.clone());
        for restart in 0..=RESTARTS {
            let may = if restart < RESTARTS { Restart::Yes } else { Restart::No };
            if self.rounds(may) == Stands::Yes {
                let opened = self.unforeseen();
                if opened.is_empty() || may == Restart::No {
                    break;
                }
                census.open(opened);
            }
            let closed = self.rest.closed();
            self.rest = rest.clone().without(closed);
            if !self.pools.iter_mut().all(|pool| pool.begin_again(&self.measures.spent)) {
                self.pools.clear();
            }
            self.placements.clear();
            self.state.claims.clear();
            self.state.of_cluster = ClusterUse::default();
            self.state.open.clear();
            self.state.growth = Growth::No;
            self.state.room = ReservedRoom::besides(&self.measures.spent);
            self.state.rooms = rooms.clone();
            self.state.census = census.clone();
        }
    }

    /// Domains that claims open and that a spread counts, though its pods can't go there or found no room: nobody has
    /// counted them, as no node was there before. kube-scheduler places no pod of the spread elsewhere once such a
    /// domain is too far behind.
    fn unforeseen(&mut self) -> BTreeSet<OpenedDomain> {
        let Self { pools, state, rest, .. } = self;
        let keys: BTreeSet<&Arc<str>> = rest.spreads().map(|one| &one.rule.key).collect();
        let domains_of = |key: &Arc<str>| state.claims.iter().flat_map(|claim| domains(claim, key)).collect();
        let by_key: BTreeMap<&Arc<str>, BTreeSet<&str>> =
            keys.into_iter().map(|key| (key, domains_of(key))).collect();
        let mut found = BTreeSet::new();
        for spread in rest.spreads() {
            let GroupSpread { group, rule, terms, .. } = spread;
            let mut new = by_key.get(&rule.key).cloned().unwrap_or_default();
            for pool in pools.iter_mut().filter(|pool| pool.is_ready()) {
                let offered = pool.domains(group, &rule.key);
                new.retain(|domain| !offered.contains_key(*domain) || rest.is_full(&spread, domain));
            }
            if new.is_empty() {
                continue;
            }
            // What other pods were dealt to may have come after these.
            let known = state.census.counts_before(rule, terms, group);
            new.retain(|domain| !known.contains_key(*domain));
            for claim in &state.claims {
                let opened = domains(claim, &rule.key).filter(|domain| new.contains(domain));
                let opened = opened.map(|domain| OpenedDomain {
                    key: Arc::clone(&rule.key),
                    domain: domain.into(),
                    offered: claim.requirements.clone(),
                    taints: claim.taints.clone(),
                });
                found.extend(opened.filter(|one| one.counts_for(rule, terms, group)));
            }
        }
        found
    }

    /// Rounds until nothing helps.
    fn rounds(&mut self, restart: Restart) -> Stands {
        loop {
            let Self { input, scope, measures, pools, placements, state, rest } = self;
            let dealt = rest.deal(state, pools, input, measures);
            let waiting: Vec<u32> = dealt.parts.iter().map(|part| count(part.pods.len())).collect();
            let mut round = PlanInProgress { groups: &dealt.parts, waiting, state };
            placements.extend(round.place());
            if !round.is_done() {
                if pools.is_empty() {
                    **pools = compiled(input, measures);
                }
                round.launch_all(input, scope.purpose, pools, measures);
            }
            let waiting = round.waiting;
            let ended = rest.ended(&dealt, waiting, state, pools);
            match rest.settle(state, dealt, &ended, &measures.ways) {
                Settled::Begin if restart == Restart::Yes => return Stands::No,
                Settled::Begin | Settled::More if state.steps.outcome() == PlanCompletion::Complete => {}
                Settled::Begin | Settled::More | Settled::Nothing => return Stands::Yes,
            }
        }
    }

    /// Asks for the capacity that was asked for longest ago.
    fn last_resort(&mut self) {
        let Self { input, scope, measures, pools, state, rest, .. } = self;
        let before = rest.clone();
        if !rest.reopen() {
            return;
        }
        let dealt = rest.deal(state, pools, input, measures);
        let waiting: Vec<u32> = dealt.parts.iter().map(|part| count(part.pods.len())).collect();
        let mut round = PlanInProgress { groups: &dealt.parts, waiting, state };
        probe::last(&mut round, scope.purpose, pools, input, measures);
        let waiting = round.waiting;
        let ended = rest.ended(&dealt, waiting, state, pools);
        rest.settle(state, dealt, &ended, &measures.ways);
        rest.keep_reasons(&before);
    }
}

/// What the rounds of a plan share.
pub(crate) struct PlanState<'a> {
    pub(crate) steps: Steps,
    /// The free capacity of reservations.
    pub(crate) room: ReservedRoom,
    pub(crate) claims: Vec<PlannedClaim>,
    /// What they take of the cluster's limits.
    pub(crate) of_cluster: ClusterUse,
    /// Those of the claims that later rounds may add pods to.
    pub(crate) open: Vec<OpenClaim>,
    /// Whether these may come to larger types by now.
    pub(crate) growth: Growth,
    /// The room on nodes.
    pub(crate) rooms: Rooms<'a>,
    /// The pods of domains.
    pub(crate) census: Census<'a>,
}

impl PlanState<'_> {
    /// Takes pods that found no place out of the census. Returns whether a spread counts what they were dealt to.
    pub(crate) fn take_back(
        &mut self,
        group: &PodGroup<'_>,
        pins: &[Pin],
        pods: u32,
        ways: &WaysTable,
    ) -> bool {
        for last in 1..=pins.len() {
            let pins = pins.get(..last).unwrap_or_default();
            self.census.take_back(group, pins, &ways.pinned(&group.alternatives, pins), pods);
        }
        pins.iter().any(|pin| !pin.values.is_empty() && self.census.counts_for_a_spread(&pin.key, group))
    }
}

/// A round of a plan.
pub(crate) struct PlanInProgress<'f, 'a> {
    pub(crate) groups: &'f [PodGroup<'a>],
    /// Pods of each group that have no place yet and want one from this plan.
    pub(crate) waiting: Vec<u32>,
    pub(crate) state: &'f mut PlanState<'a>,
}

impl<'f, 'a> PlanInProgress<'f, 'a> {
    pub(crate) fn is_done(&self) -> bool {
        self.waiting.iter().all(|left| *left == 0)
    }

    /// Places on nodes.
    fn place(&mut self) -> Vec<Placement> {
        let PlanState { rooms, census, steps, .. } = &mut *self.state;
        rooms.place(self.groups, &mut self.waiting, census, steps)
    }

    /// Claims of all pools.
    fn launch_all<'p>(
        &mut self,
        input: &'p ProvisionInput,
        purpose: &Purpose,
        pools: &mut [Pool<'p>],
        measures: &InputMeasures<'p>,
    ) {
        let mut due = probe::views(purpose, pools, measures, OpenOfferings::Due(input.now));
        for preference in [Preference::Kept, Preference::Dropped] {
            self.top_up(pools, preference);
            for (pool, due) in pools.iter_mut().zip(&mut due).filter(|(pool, _)| pool.is_ready()) {
                pool.cap(self.state.of_cluster);
                if let Some(due) = due {
                    probe::first(self, pool, due, preference);
                    pool.riders_at = Some(input.now);
                }
                self.fill(pool, preference);
            }
        }
        self.grow(pools);
    }

    /// Claims of a pool for all that still waits and that it accepts.
    fn fill(&mut self, pool: &mut Pool<'_>, preference: Preference) {
        self.state.room.close(pool);
        loop {
            pool.cap(self.state.of_cluster);
            let members = self.members(pool, preference);
            let drafts = self.packed(pool, &members);
            let (drafts, again) = self.state.room.admit(pool, drafts);
            for draft in &drafts {
                self.launch(pool, &members, draft);
            }
            match again {
                Again::Yes => self.state.room.close(pool),
                Again::No => break,
            }
        }
    }

    /// Groups with pending pods that the pool accepts. Of ORed affinity terms, the cheapest counts.
    pub(crate) fn members(&self, pool: &mut Pool<'_>, preference: Preference) -> Vec<Member<'f>> {
        let taints = &pool.input.pool.template.taints;
        let mut members = Vec::new();
        let waiting = self.groups.iter().zip(&self.waiting).enumerate();
        for (index, (group, left)) in waiting.filter(|(_, (_, left))| **left > 0) {
            let tolerated = match preference {
                Preference::Kept => tolerates_all(taints, group.tolerations).is_ok(),
                // The last preference that pods give up.
                Preference::Dropped => {
                    !group.has_wishes() && tolerates_forbidding(taints, group.tolerations).is_ok()
                }
            };
            if let Some((worth, class)) = tolerated.then(|| cheapest_alternative(pool, group)).flatten() {
                members.push(Member {
                    group: index,
                    priority: group.priority,
                    class,
                    need: &group.need,
                    volumes: &group.volumes,
                    host_ports: group.host_ports,
                    rules: &group.node_rules,
                    first: self.first_of(group),
                    worth,
                    waiting: *left,
                });
            }
        }
        members
    }

    /// Whether pods that need others on their node may come without these: not while others wait that may come first, as
    /// kube-scheduler doesn't wait for the followers.
    fn first_of(&self, group: &PodGroup<'_>) -> FirstOfItsKind {
        let mut waiting = self.groups.iter().zip(&self.waiting).filter(|(_, left)| **left > 0);
        match group.needs_neighbours() && waiting.any(|(others, _)| group.follows(others)) {
            true => FirstOfItsKind::No,
            false => self.state.census.first_of(group),
        }
    }

    /// Makes the claims of a draft, and places their pods. Returns the number of claims.
    pub(crate) fn launch(&mut self, pool: &mut Pool<'_>, members: &[Member<'_>], draft: &Draft) -> u32 {
        let of = |index: usize| {
            let member = members.get(index)?;
            Some((member, self.groups.get(member.group)?))
        };
        let need = sum(members, &draft.counts);
        let mut requests = ResourceList::new();
        for (index, count) in &draft.counts {
            if let Some((_, group)) = of(*index) {
                requests.add(&times(group.requests, *count));
            }
        }
        let Some(claim) = pool.claim(draft, &need, &requests) else { return 0 };
        let packed = PackedDraft { draft, members, need: &need, requests: &requests };
        for _ in 0..draft.times {
            let mut one = claim.clone();
            for (index, count) in &draft.counts {
                let Some((member, group)) = of(*index) else { continue };
                let Some(left) = self.waiting.get_mut(member.group) else { continue };
                let taken = last_pods(group, *left).take(usize::try_from(*count).unwrap_or(usize::MAX));
                one.pods.extend(taken.map(counted));
                *left = left.saturating_sub(*count);
            }
            one.pods.sort();
            self.state.open.extend(OpenClaim::of(pool, &packed, self.state.claims.len()));
            self.state.claims.push(one);
            if let Some(largest) = pool.types.get(draft.type_index) {
                self.state.of_cluster.add(&largest.option.capacity);
            }
        }
        for group in draft.counts.iter().filter_map(|(index, _)| Some(of(*index)?.1)) {
            self.state.census.now_present(&group.is);
        }
        draft.times
    }
}

/// The domains of a label that a claim may come to.
fn domains<'c>(claim: &'c PlannedClaim, key: &str) -> impl Iterator<Item = &'c str> + use<'c> {
    let (is_zone, is_capacity_type) = (key == labels::ZONE, key == labels::CAPACITY_TYPE);
    let zones = claim.zones.iter().filter(move |_| is_zone).map(Zone::as_str);
    let capacity_types = claim.capacity_types.iter().filter(move |_| is_capacity_type);
    zones.chain(capacity_types.map(|one| one.as_str())).chain(claim.labels.get(key).map(String::as_str))
}

/// Whether pods wait while others of lower priority have a place: `of` are all pods.
fn is_out_of_order(waiting: &Unplaced, of: &Unplaced) -> bool {
    let highest = waiting.iter().find(|(_, pods)| **pods > 0).map(|(Reverse(priority), _)| *priority);
    let lowest = of.iter().filter(|(priority, pods)| waiting.get(priority).is_none_or(|left| left < pods));
    let lowest = lowest.map(|(Reverse(priority), _)| *priority).min();
    highest.zip(lowest).is_some_and(|(highest, lowest)| highest > lowest)
}

/// The pods of a group that wait, where so many do: the first have places.
pub(crate) fn last_pods<'g>(group: &'g PodGroup<'_>, left: u32) -> impl Iterator<Item = &'g Pod> {
    let skipped = group.pods.len().saturating_sub(usize::try_from(left).unwrap_or(usize::MAX));
    group.pods.iter().skip(skipped).copied()
}

/// Whether taints `PreferNoSchedule` keep pods out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preference {
    Kept,
    Dropped,
}

pub(crate) fn cheapest_alternative(pool: &mut Pool<'_>, group: &PodGroup<'_>) -> Option<(f64, usize)> {
    let key = (group.alternatives.id, group.need_id);
    if let Some(known) = pool.answers.cheapest.get(&key) {
        return *known;
    }
    let classes = pool.classes_of(&group.alternatives);
    let mut best = cheapest(pool, classes, &group.need);
    if best.is_none() {
        let classes = pool.classes_beside_daemons(&group.alternatives);
        best = cheapest(pool, classes, &group.need);
    }
    pool.answers.cheapest.insert(key, best);
    best
}

/// The class that holds a pod at the least price, of those that have the most values for `minValues`.
fn cheapest(pool: &Pool<'_>, classes: Vec<usize>, need: &[i64]) -> Option<(f64, usize)> {
    let priced = classes.into_iter().filter_map(|class| {
        let worth = pack::worth(pool, class, need)?;
        Some((pool.least_lacking(class, need), worth, class))
    });
    let best = priced.min_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.total_cmp(&b.1)))?;
    Some((best.1, best.2))
}
