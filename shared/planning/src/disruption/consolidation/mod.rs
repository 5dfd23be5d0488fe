//! Consolidation: used nodes go where their pods cost less elsewhere.
//!
//! Decides which nodes could go together (`search`), what that saves (`proposal`), since when (marks on the claims), and
//! the commands within the budgets. Two looks, [`LOOKED_TWICE`] apart at least, must find a node; other pods on it begin
//! the wait again. Nodes that pods came to within `consolidateAfter` take no pods of others.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption`; karpenter.sh/docs/concepts/disruption. Unlike the peer,
//! one look considers all sets and begins all commands.
//!
//! [`LOOKED_TWICE`]: super::emptiness::LOOKED_TWICE

mod balanced;
mod candidate;
mod proposal;
mod rest;
mod search;
mod size;
mod together;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Pod;
use tenon_domain::budget::DisruptionReason;
use tenon_domain::claim::RemovalReason;
use tenon_domain::digest::Digest;
use tenon_domain::id::CommandId;

use super::advance::look_again;
use super::blocked::PodsWord;
use super::budget::{Allowance, BudgetLedger};
use super::input::{ClaimView, DisruptionInput};
use super::moving::{SpareCapacity, node_name};
use super::output::{DisruptionPlan, DisruptionReport, NewCommand, NotDisrupted};
use super::{WantedMarks, emptiness, held, refuse};
use balanced::PoolTotals;
use candidate::UsedNode;
pub(crate) use candidate::price;
use proposal::{Judge, Move, Proposal};
use search::{Search, SearchEnd};

/// The most nodes of one look: each is tried alone, and several times with others.
const MOST_NODES: usize = 100;
/// So many of a larger cluster have their turn, the others of [`MOST_NODES`] are marked ones.
const A_TURN: usize = 60;
/// How long a turn lasts.
const TURN: SignedDuration = SignedDuration::from_mins(5);
/// So many nodes that something keeps are tried, to tell of them that they would go.
const KEPT_TRIED: usize = 50;
/// So many nodes that are too young are tried.
const YOUNG_TRIED: usize = 50;
/// So many nodes that no budget lets go are tried.
const CLOSED_TRIED: usize = 50;

/// Adds commands for used nodes whose time has come. Returns the marks of all that could go.
pub(crate) fn consolidate<'a>(
    input: &'a DisruptionInput,
    world: &mut SpareCapacity<'_>,
    budgets: &mut BudgetLedger<'a>,
    (empty, plan): (&WantedMarks, &mut DisruptionPlan),
    report: &mut DisruptionReport,
) -> WantedMarks {
    let taken = plan.commands.iter().flat_map(|command| &command.candidates).cloned().collect();
    let nodes = UsedNode::all(input, world, &taken);
    let opens = |view: &'a ClaimView| Some((&view.claim.name, opens_at(input, view)?));
    let opening: BTreeMap<_, Timestamp> = input.claims.iter().filter_map(opens).collect();
    let closed = |view: &&ClaimView| opening.contains_key(&view.claim.name) || goes_empty(input, view, empty);
    world.close(input.claims.iter().filter(closed).filter_map(node_name));
    // Nothing else tells when they take pods again.
    if let Some(at) = opening.into_values().max().filter(|_| !nodes.is_empty()) {
        look_again(plan, at);
    }
    let has_budget = |used: &UsedNode<'_>| budget_of(budgets, used).is_ok();
    let free = places(&nodes, |used| used.is_free(input.now) && has_budget(used));
    let closed = places(&nodes, |used| used.is_free(input.now) && !has_budget(used));
    let totals = PoolTotals::of(input);
    let allowed: BTreeMap<&str, usize> = input
        .pools
        .iter()
        .map(|pool| {
            let allowance = Allowance::of(input, pool, Some(DisruptionReason::Underutilized));
            (pool.name.as_str(), usize::try_from(allowance.allowed).unwrap_or(usize::MAX))
        })
        .collect();
    let judge = Judge { input, nodes: &nodes, totals: &totals, allowed: &allowed };
    let looked_at = looked_at(input, &nodes, &free);
    if looked_at.len() < free.len() {
        look_again(plan, next_turn(input.now));
    }
    let (found, alone, end) = search(&judge, world, &looked_at);
    let moves: Vec<Move> = found.moves.iter().filter_map(|one| judge.carried_out(one)).collect();
    // Of kept nodes it is told only where they would go.
    for (index, used) in nodes.iter().enumerate().filter(|(_, used)| used.kept.is_some()).take(KEPT_TRIED) {
        if let Some(kept) = &used.kept
            && tried(&judge, world, &[index]).is_some_and(|found| !found.moves.is_empty())
        {
            refuse(input, used.view, kept.clone(), plan, report);
        }
    }
    let going: BTreeSet<usize> = moves.iter().flat_map(|one| &one.nodes).copied().collect();
    // A node that could go alone stays marked while another set is better, so that its wait isn't begun again.
    let alone_too = looked_at.iter().zip(&alone).filter(|(_, proposal)| !proposal.moves.is_empty());
    let (young, young_untried) = young(&judge, world);
    let held_back = closed_by_budgets(&judge, (world, budgets), &closed, (plan, report));
    let could_go = alone_too.map(|(index, _)| *index).chain(going.iter().copied()).chain(young);
    let could_go = could_go.chain(held_back).collect();
    let refused = alone.into_iter().flat_map(|proposal| proposal.refused);
    let refused = refused.flat_map(|(of, reason)| of.into_iter().map(move |at| (at, reason.clone())));
    for (index, reason) in refused.filter(|(index, _)| !going.contains(index)) {
        if let Some(used) = nodes.get(index) {
            refuse(input, used.view, NotDisrupted { reason, again: None }, plan, report);
        }
    }
    tell_waits(input, &nodes, &could_go, (plan, report));
    let (begun, waits) = begin_all(&judge, moves, (world, budgets), (plan, report));
    if waits {
        // The best set may have a node to which pods come all the time: others don't wait for it for ever.
        let patient = |index: &&usize| {
            !begun.contains(*index) && nodes.get(**index).is_some_and(|used| used.is_patient(input.now))
        };
        let patient: Vec<usize> = looked_at.iter().filter(patient).copied().collect();
        let (found, _, _) = search(&judge, world, &patient);
        let moves = found.moves.iter().filter_map(|one| judge.carried_out(one)).collect();
        begin_all(&judge, moves, (world, budgets), (plan, report));
    }
    let untried = |index: &usize| end == SearchEnd::OutOfTrials || !looked_at.contains(index);
    let untried = free.iter().filter(|index| untried(index)).copied().chain(young_untried).chain(closed);
    marks(input, &nodes, &could_go, &untried.collect())
}

/// The best moves of these nodes, those of each alone, and whether all was tried that should be.
fn search(
    judge: &Judge<'_, '_>,
    world: &mut SpareCapacity<'_>,
    of: &[usize],
) -> (Proposal, Vec<Proposal>, SearchEnd) {
    Search::new(of.len(), |set: &[usize]| {
        let set: Vec<usize> = set.iter().filter_map(|index| of.get(*index)).copied().collect();
        tried(judge, world, &set)
    })
    .run()
}

/// What lets the node go now, or why nothing does.
fn budget_of(budgets: &BudgetLedger<'_>, used: &UsedNode<'_>) -> Result<Allowance, NotDisrupted> {
    budgets.check_all(std::iter::once((used.pool, used.view)))
}

/// Begins the moves whose time has come. Returns the nodes of those, and whether others wait for a node.
fn begin_all<'a>(
    judge: &Judge<'_, 'a>,
    mut moves: Vec<Move>,
    (world, budgets): (&mut SpareCapacity<'_>, &mut BudgetLedger<'a>),
    (plan, report): (&mut DisruptionPlan, &mut DisruptionReport),
) -> (BTreeSet<usize>, bool) {
    let (mut begun, mut waits) = (BTreeSet::new(), false);
    // What saves most is begun first. Pods' rules about their neighbours may hold for all moves together only, so each is
    // planned again alone, and none with such pods is begun while others of them are on their way to new nodes.
    moves.sort_by(|a, b| (b.saves, &a.nodes).cmp(&(a.saves, &b.nodes)));
    for one in moves {
        let has_rules = one.nodes.iter().filter_map(|at| judge.nodes.get(*at)).any(UsedNode::has_rules);
        let on_their_way = world.awaits_nodes()
            || plan.commands.iter().any(|command| !command.replacement.claims.is_empty());
        let alone = if has_rules {
            (!on_their_way).then(|| move_alone(judge, world, &one.nodes)).flatten()
        } else {
            Some(one)
        };
        let Some(one) = alone else { continue };
        let of = one.nodes.clone();
        match begin(judge, one, (world, budgets), (plan, report)) {
            MoveBegin::Begun => begun.extend(of),
            MoveBegin::Waits => waits = true,
            MoveBegin::Refused => {}
        }
    }
    (begun, waits)
}

/// Tells of nodes that no budget of their pools lets go, and whose time has come, and returns all of them that could go
/// alone: their wait isn't begun again when a budget does.
fn closed_by_budgets(
    judge: &Judge<'_, '_>,
    (world, budgets): (&mut SpareCapacity<'_>, &BudgetLedger<'_>),
    closed: &[usize],
    (plan, report): (&mut DisruptionPlan, &mut DisruptionReport),
) -> Vec<usize> {
    let goes = |index: &usize| tried(judge, world, &[*index]).is_some_and(|found| !found.moves.is_empty());
    let goes: Vec<usize> = closed.iter().copied().take(CLOSED_TRIED).filter(goes).collect();
    for used in goes.iter().filter_map(|index| judge.nodes.get(*index)) {
        if let (Err(refused), true) = (budget_of(budgets, used), used.is_ripe(judge.input.now)) {
            refuse(judge.input, used.view, refused, plan, report);
        }
    }
    goes
}

/// Whether a node is empty and about to go: nothing keeps it.
fn goes_empty(input: &DisruptionInput, view: &ClaimView, empty: &WantedMarks) -> bool {
    let (Some(mark), Some(node)) = (empty.get(&view.claim.name), &view.node) else { return false };
    held(input, node, PodsWord::Counts).is_ok() && emptiness::too_young(input, view, mark.since).is_none()
}

/// The places of such nodes.
fn places(nodes: &[UsedNode<'_>], such: impl Fn(&UsedNode<'_>) -> bool) -> Vec<usize> {
    nodes.iter().enumerate().filter(|(_, used)| such(used)).map(|(index, _)| index).collect()
}

/// The nodes of one look: all, or in a large cluster those whose turn it is, and those that are marked. Which these are
/// doesn't depend on what the look decides about the nodes whose turn it is, so a second look decides the same.
fn looked_at(input: &DisruptionInput, nodes: &[UsedNode<'_>], free: &[usize]) -> Vec<usize> {
    if free.len() <= MOST_NODES {
        return free.to_vec();
    }
    let turn = input.now.as_second().div_euclid(TURN.as_secs()).unsigned_abs();
    let turns = free.len().div_ceil(A_TURN);
    let turn = usize::try_from(turn).unwrap_or(0).checked_rem(turns).unwrap_or(0);
    let mut chosen: BTreeSet<usize> =
        free.iter().copied().skip(turn.saturating_mul(A_TURN)).take(A_TURN).collect();
    let is_marked =
        |index: &&usize| nodes.get(**index).is_some_and(|used| used.view.claim.consolidatable.is_some());
    chosen.extend(free.iter().filter(is_marked).take(MOST_NODES - A_TURN));
    chosen.into_iter().collect()
}

/// When the next nodes have their turn.
fn next_turn(now: Timestamp) -> Timestamp {
    let since = now.as_second().rem_euclid(TURN.as_secs());
    now.saturating_add(TURN).unwrap_or(now).saturating_sub(SignedDuration::from_secs(since)).unwrap_or(now)
}

/// When the node takes pods of others again, if pods came to it so lately that its pool's `consolidateAfter` isn't over.
fn opens_at(input: &DisruptionInput, view: &ClaimView) -> Option<Timestamp> {
    let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool);
    let after = pool?.disruption.consolidate_after?;
    let settled = candidate::settled_at(view, view.node.as_ref()?)?;
    let end = settled.checked_add(after).unwrap_or(Timestamp::MAX);
    (input.now < end).then_some(end)
}

/// What these nodes save; `None` if their pods have no place elsewhere.
fn tried(judge: &Judge<'_, '_>, world: &mut SpareCapacity<'_>, set: &[usize]) -> Option<Proposal> {
    let (of, going, pods) = parts(judge.nodes, set);
    let (mut plan, report) = world.plan(&command_id(judge.input, &of)?, &going, &pods);
    together::keep_together(&mut plan, of.iter().map(|used| used.pods.as_slice()));
    report.unschedulable.is_empty().then(|| judge.propose(set, &plan))
}

/// The nodes that their age alone keeps: those that could go alone, and those that weren't tried.
fn young(judge: &Judge<'_, '_>, world: &mut SpareCapacity<'_>) -> (Vec<usize>, Vec<usize>) {
    let now = judge.input.now;
    let young = places(judge.nodes, |used| {
        used.kept.is_none() && used.undone(now).is_none() && used.too_young(now).is_some()
    });
    let goes = |index: &usize| tried(judge, world, &[*index]).is_some_and(|found| !found.moves.is_empty());
    let untried = young.iter().copied().skip(YOUNG_TRIED).collect();
    (young.into_iter().take(YOUNG_TRIED).filter(goes).collect(), untried)
}

/// A move of these nodes alone, if it is one.
fn move_alone(judge: &Judge<'_, '_>, world: &mut SpareCapacity<'_>, set: &[usize]) -> Option<Move> {
    let (of, going, pods) = parts(judge.nodes, set);
    let (plan, report) = world.plan(&command_id(judge.input, &of)?, &going, &pods);
    let one = report.unschedulable.is_empty().then(|| judge.whole(set, plan)).flatten()?;
    judge.carried_out(&one)
}

/// The nodes of a set, their names, and their pods.
fn parts<'n, 'a>(
    nodes: &'n [UsedNode<'a>],
    set: &[usize],
) -> (Vec<&'n UsedNode<'a>>, BTreeSet<&'a str>, Vec<Pod>) {
    let of: Vec<&UsedNode<'a>> = set.iter().filter_map(|index| nodes.get(*index)).collect();
    let going = of.iter().map(|used| used.node.name.as_str()).collect();
    let pods = of.iter().flat_map(|used| used.pods.iter().cloned()).collect();
    (of, going, pods)
}

/// Tells of nodes that wait for more than `consolidateAfter`: of each whose last consolidation was undone, and of those that
/// could go and are too young.
fn tell_waits(
    input: &DisruptionInput,
    nodes: &[UsedNode<'_>],
    could_go: &BTreeSet<usize>,
    (plan, report): (&mut DisruptionPlan, &mut DisruptionReport),
) {
    for (index, used) in nodes.iter().enumerate().filter(|(_, used)| used.kept.is_none()) {
        let young = || used.too_young(input.now).filter(|_| could_go.contains(&index));
        if let Some(refused) = used.undone(input.now).or_else(young) {
            refuse(input, used.view, refused, plan, report);
        } else if let Some(at) = used.too_young(input.now).and_then(|young| young.again) {
            // It may go with others then.
            look_again(plan, at);
        }
    }
}

/// The marks of nodes that could go. A node that wasn't tried keeps its own, and so does one that rests after a consolidation
/// that was undone: without its mark it would be tried again at once. A node that something keeps wasn't tried with others:
/// it keeps its own for the same pods, so that its wait isn't begun again when a PodDisruptionBudget allows an eviction.
/// The peer's condition `Consolidatable` stays, too.
fn marks(
    input: &DisruptionInput,
    nodes: &[UsedNode<'_>],
    could_go: &BTreeSet<usize>,
    untried: &BTreeSet<usize>,
) -> WantedMarks {
    let is_marked = |index: usize, used: &UsedNode<'_>| {
        could_go.contains(&index)
            || (untried.contains(&index) && used.view.claim.consolidatable.is_some())
            || used.undone(input.now).is_some()
            || (used.kept.is_some() && used.view.claim.consolidatable.as_ref() == Some(&used.mark(input.now)))
    };
    let marked = nodes.iter().enumerate().filter(|(index, used)| is_marked(*index, used));
    marked.map(|(_, used)| (used.view.claim.name.clone(), used.mark(input.now))).collect()
}

/// Whether a move is begun.
enum MoveBegin {
    Begun,
    /// The time of one of its nodes hasn't come.
    Waits,
    Refused,
}

/// Begins a move whose nodes' time has come.
fn begin<'a>(
    judge: &Judge<'_, 'a>,
    one: Move,
    (world, budgets): (&mut SpareCapacity<'_>, &mut BudgetLedger<'a>),
    (plan, report): (&mut DisruptionPlan, &mut DisruptionReport),
) -> MoveBegin {
    let (input, nodes) = (judge.input, judge.nodes);
    let (of, going, pods) = parts(nodes, &one.nodes);
    if !of.iter().all(|used| used.is_ripe(input.now)) {
        let times = of.iter().map(|used| used.goes_at(used.mark(input.now).since));
        look_again(plan, times.max().unwrap_or(input.now));
        return MoveBegin::Waits;
    }
    let budget = match budgets.check_all(of.iter().map(|used| (used.pool, used.view))) {
        Ok(budget) => budget,
        Err(refused) => {
            for used in &of {
                refuse(input, used.view, refused.clone(), plan, report);
            }
            return MoveBegin::Refused;
        }
    };
    let (Some(id), Some(first)) = (command_id(input, &of), of.first()) else { return MoveBegin::Refused };
    world.commit(&going, &one.plan, &pods);
    of.iter().for_each(|used| budgets.take(used.view));
    plan.commands.push(NewCommand {
        id,
        pool: first.pool.name.clone(),
        reason: RemovalReason::Underutilized,
        candidates: of.iter().map(|used| used.view.claim.name.clone()).collect(),
        unplanned: 0,
        replacement: one.plan,
        saves: Some(one.saves),
        budget,
    });
    MoveBegin::Begun
}

/// The command's id: of the claims and their revisions, so that one look makes the same command twice.
fn command_id(input: &DisruptionInput, of: &[&UsedNode<'_>]) -> Option<CommandId> {
    let claims = of.iter().map(|used| format!("{}#{}", used.view.claim.name, used.view.claim.revision));
    let claims: BTreeSet<String> = claims.collect();
    let cluster = [input.world.cluster.as_str(), "consolidation"];
    let digest = Digest::of_texts(cluster.into_iter().chain(claims.iter().map(String::as_str)));
    CommandId::parse(format!("command-{}", digest.base36(12))).ok()
}
