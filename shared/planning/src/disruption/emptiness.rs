//! Empty nodes: those on which no pod needs another place.
//!
//! Decides since when a node is empty, and when it goes: after its pool's `consolidateAfter`, and never by one look alone.
//! Pods whose eviction costs nothing don't count, as with the peer.
//! A second look, at least [`LOOKED_TWICE`] after the first, sees pods that came in between. Each node goes by a command
//! of its own, which needs no replacement. Where budgets don't allow all, those that cost most go first. A node that
//! pending pods go to stays.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption/emptiness.go`, `validation.go`.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::NodePool;
use tenon_domain::budget::DisruptionReason;
use tenon_domain::claim::{ClaimPhase, Consolidatable, RemovalReason};
use tenon_domain::id::ClaimName;
use tenon_domain::money::UsdPerHour;

use super::advance::look_again;
use super::blocked::{PodsWord, reschedulable};
use super::budget::BudgetLedger;
use super::consolidation::price;
use super::input::{ClaimView, DisruptionInput, NodeView};
use super::moving::SpareCapacity;
use super::output::{DisruptionPlan, DisruptionReport, NewCommand, NotDisrupted};
use super::{WantedMarks, awaited, command_id, cost, held, refuse};
use crate::provision::ProvisionPlan;

/// The least time from the look that finds a node empty until it goes; the peer validates for as long.
pub(crate) const LOOKED_TWICE: SignedDuration = SignedDuration::from_secs(15);

/// Adds commands for empty nodes whose time has come. Returns the marks of all empty nodes.
pub(crate) fn remove_empty<'a>(
    input: &'a DisruptionInput,
    world: &mut SpareCapacity<'_>,
    budgets: &mut BudgetLedger<'a>,
    plan: &mut DisruptionPlan,
    report: &mut DisruptionReport,
) -> WantedMarks {
    let mut wanted = WantedMarks::new();
    let awaited = awaited(input);
    let mut due: Vec<DueNode<'_>> = Vec::new();
    for view in &input.claims {
        let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool);
        let found = pool.and_then(|pool| Some((pool, pool.disruption.consolidate_after?)));
        let stays = view.claim.phase() != ClaimPhase::Initialized || awaited(view);
        let (Some((pool, after)), Some(node), false) = (found, &view.node, stays) else { continue };
        if is_awaited(input, world, view, node) || !cost::nothing(&reschedulable(node)) {
            continue;
        }
        let known = view.claim.consolidatable.as_ref().filter(|mark| mark.pods.is_none());
        let since = known.map_or(input.now, |mark| mark.since);
        wanted.insert(view.claim.name.clone(), Consolidatable { since, pods: None });
        let goes_at = since.checked_add(after.max(LOOKED_TWICE)).unwrap_or(Timestamp::MAX);
        if input.now < goes_at {
            look_again(plan, goes_at);
        } else if known.is_some() && !drifts_now(plan, view) {
            let rank = EmptyRank { price: Reverse(price_of(input, view)), since, name: &view.claim.name };
            due.push(DueNode { rank, view, node, pool });
        }
    }
    due.sort_by(|a, b| a.rank.cmp(&b.rank));
    for DueNode { view, node, pool, .. } in due {
        match removal(input, view, node, pool, budgets) {
            Ok(command) => {
                budgets.take(view);
                world.commit(&[node.name.as_str()].into(), &command.replacement, &[]);
                plan.commands.push(command);
            }
            Err(refused) => refuse(input, view, refused, plan, report),
        }
    }
    wanted
}

/// An empty node whose time has come.
struct DueNode<'a> {
    rank: EmptyRank<'a>,
    view: &'a ClaimView,
    node: &'a NodeView,
    pool: &'a NodePool,
}

/// The order of empty nodes: what saves most goes first, as with the peer, then what has been empty for longest.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct EmptyRank<'a> {
    price: Reverse<UsdPerHour>,
    since: Timestamp,
    name: &'a ClaimName,
}

/// What the claim's instance costs; nothing where that isn't known.
fn price_of(input: &DisruptionInput, view: &ClaimView) -> UsdPerHour {
    let pool = input.world.pools.iter().find(|one| one.pool.name == view.claim.pool);
    pool.and_then(|pool| price(view, pool)).unwrap_or_default()
}

/// Whether this plan changes the claim's drift.
fn drifts_now(plan: &DisruptionPlan, view: &ClaimView) -> bool {
    plan.marks.iter().any(|mark| mark.claim == view.claim.name)
}

/// Whether pods are on their way to the node.
pub(crate) fn is_awaited(
    input: &DisruptionInput,
    world: &SpareCapacity<'_>,
    view: &ClaimView,
    node: &NodeView,
) -> bool {
    world.expects_pods(&node.name) || input.counted.values().any(|claim| *claim == view.claim.name)
}

fn removal(
    input: &DisruptionInput,
    view: &ClaimView,
    node: &NodeView,
    pool: &NodePool,
    budgets: &BudgetLedger<'_>,
) -> Result<NewCommand, NotDisrupted> {
    held(input, node, PodsWord::Counts)?;
    let budget = budgets.check(pool, Some(DisruptionReason::Empty))?;
    let no_name = || NotDisrupted {
        reason: super::RefusalReason::PoolNotFound { pool: pool.name.clone() },
        again: None,
    };
    Ok(NewCommand {
        id: command_id(input, view).ok_or_else(no_name)?,
        pool: pool.name.clone(),
        reason: RemovalReason::Empty,
        candidates: vec![view.claim.name.clone()],
        replacement: ProvisionPlan::default(),
        saves: None,
        budget,
    })
}
