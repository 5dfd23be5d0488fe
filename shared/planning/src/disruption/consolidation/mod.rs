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
use super::{WantedMarks, held, refuse};
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
    // An empty node is about to go.
    let goes = |view: &ClaimView| {
        let kept = view.node.as_ref().is_none_or(|node| held(input, node, PodsWord::Counts).is_err());
        empty.contains_key(&view.claim.name) && !kept
    };
    let opens = |view: &'a ClaimView| Some((&view.claim.name, opens_at(input, view)?));
    let opening: BTreeMap<_, Timestamp> = input.claims.iter().filter_map(opens).collect();
    let closed = |view: &&ClaimView| opening.contains_key(&view.claim.name) || goes(view);
    world.close(input.claims.iter().filter(closed).filter_map(node_name));
    // Nothing else tells when they take pods again.
    if let Some(at) = opening.into_values().max().filter(|_| !nodes.is_empty()) {
        look_again(plan, at);
    }
    let free = places(&nodes, |used| used.is_free(input.now));
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
    let (found, alone, end) = Search::new(looked_at.len(), |set: &[usize]| {
        let set: Vec<usize> = set.iter().filter_map(|index| looked_at.get(*index)).copied().collect();
        tried(&judge, world, &set)
    })
    .run();
    let mut moves: Vec<Move> = found.moves.iter().filter_map(|one| judge.carried_out(one)).collect();
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
    let could_go = alone_too.map(|(index, _)| *index).chain(going.iter().copied()).chain(young).collect();
    let refused = alone.into_iter().flat_map(|proposal| proposal.refused);
    let refused = refused.flat_map(|(of, reason)| of.into_iter().map(move |at| (at, reason.clone())));
    for (index, reason) in refused.filter(|(index, _)| !going.contains(index)) {
        if let Some(used) = nodes.get(index) {
            refuse(input, used.view, NotDisrupted { reason, again: None }, plan, report);
        }
    }
    tell_waits(input, &nodes, &could_go, (plan, report));
    // What saves most is begun first. Pods' rules about their neighbours may hold for all moves together only, so each is
    // planned again alone, and none with such pods is begun while others of them are on their way to new nodes.
    moves.sort_by(|a, b| (b.saves, &a.nodes).cmp(&(a.saves, &b.nodes)));
    for one in moves {
        let has_rules = one.nodes.iter().filter_map(|at| nodes.get(*at)).any(UsedNode::has_rules);
        let on_their_way = world.awaits_nodes()
            || plan.commands.iter().any(|command| !command.replacement.claims.is_empty());
        let alone = if has_rules {
            (!on_their_way).then(|| move_alone(&judge, world, &one.nodes)).flatten()
        } else {
            Some(one)
        };
        let Some(one) = alone else { continue };
        begin(input, &nodes, one, (world, budgets), (plan, report));
    }
    let untried = |index: &usize| end == SearchEnd::OutOfTrials || !looked_at.contains(index);
    let untried = free.iter().filter(|index| untried(index)).copied().chain(young_untried).collect();
    marks(input, &nodes, &could_go, &untried)
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
/// that was undone: without its mark it would be tried again at once.
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
    };
    let marked = nodes.iter().enumerate().filter(|(index, used)| is_marked(*index, used));
    marked.map(|(_, used)| (used.view.claim.name.clone(), used.mark(input.now))).collect()
}

/// Begins a move whose nodes' time has come.
fn begin<'a>(
    input: &'a DisruptionInput,
    nodes: &[UsedNode<'a>],
    one: Move,
    (world, budgets): (&mut SpareCapacity<'_>, &mut BudgetLedger<'a>),
    (plan, report): (&mut DisruptionPlan, &mut DisruptionReport),
) {
    let (of, going, pods) = parts(nodes, &one.nodes);
    let times = of.iter().map(|used| used.goes_at(used.mark(input.now).since));
    let goes_at = times.max().unwrap_or(input.now);
    let fresh = of.iter().any(|used| used.view.claim.consolidatable.as_ref() != Some(&used.mark(input.now)));
    if fresh || input.now < goes_at {
        look_again(plan, goes_at);
        return;
    }
    let budget = match budgets.check_all(of.iter().map(|used| (used.pool, used.view))) {
        Ok(budget) => budget,
        Err(refused) => {
            for used in &of {
                refuse(input, used.view, refused.clone(), plan, report);
            }
            return;
        }
    };
    let (Some(id), Some(first)) = (command_id(input, &of), of.first()) else { return };
    world.commit(&going, &one.plan, &pods);
    of.iter().for_each(|used| budgets.take(used.view));
    plan.commands.push(NewCommand {
        id,
        pool: first.pool.name.clone(),
        reason: RemovalReason::Underutilized,
        candidates: of.iter().map(|used| used.view.claim.name.clone()).collect(),
        replacement: one.plan,
        saves: Some(one.saves),
        budget,
    });
}

/// The command's id: of the claims and their revisions, so that one look makes the same command twice.
fn command_id(input: &DisruptionInput, of: &[&UsedNode<'_>]) -> Option<CommandId> {
    let claims = of.iter().map(|used| format!("{}#{}", used.view.claim.name, used.view.claim.revision));
    let claims: BTreeSet<String> = claims.collect();
    let cluster = [input.world.cluster.as_str(), "consolidation"];
    let digest = Digest::of_texts(cluster.into_iter().chain(claims.iter().map(String::as_str)));
    CommandId::parse(format!("command-{}", digest.base36(12))).ok()
}
