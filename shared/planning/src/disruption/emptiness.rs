//! Empty nodes: those on which no pod needs another place.
//!
//! Decides since when a node is empty, and when it goes: after its pool's `consolidateAfter` since the last pod left it, not
//! before the pool's least age, and never by one look alone. A pod that would move keeps its node, whatever its eviction costs: its new node would
//! be as empty, for ever.
//! A second look, at least [`LOOKED_TWICE`] after the first, sees pods that came in between. Each node goes by a command
//! of its own, which needs no replacement. Where budgets don't allow all, those that cost most go first. A node that
//! pending pods go to stays.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/disruption/emptiness.go`, `validation.go`.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::NodePool;
use tenon_domain::budget::DisruptionReason;
use tenon_domain::claim::{ClaimPhase, Consolidatable, RemovalReason};
use tenon_domain::id::ClaimName;
use tenon_domain::money::UsdPerHour;
use tenon_domain::savings::ConsolidationTerms;

use super::advance::look_again;
use super::blocked::{PodsWord, reschedulable};
use super::budget::BudgetLedger;
use super::consolidation::price;
use super::due::due as due_reason;
use super::input::{ClaimView, DisruptionInput, NodeView};
use super::moving::SpareCapacity;
use super::output::{DisruptionPlan, DisruptionReport, NewCommand, NotDisrupted};
use super::{RefusalReason, WantedMarks, awaited, command_id, held, refuse};
use crate::provision::ProvisionPlan;

/// The least time from the look that finds a node empty until it goes; the peer validates for as long.
pub(crate) const LOOKED_TWICE: SignedDuration = SignedDuration::from_secs(15);

/// Adds commands for empty nodes whose time has come. Returns the marks of all empty nodes. Those that are needed stay.
pub(crate) fn remove_empty<'a>(
    input: &'a DisruptionInput,
    (world, needed): (&mut SpareCapacity<'_>, &BTreeSet<String>),
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
        if is_awaited(input, world, view, node) || !reschedulable(node).is_empty() {
            continue;
        }
        let known = view.claim.consolidatable.as_ref().filter(|mark| mark.pods.is_none());
        let since = known.map_or(input.now, |mark| since_pods(mark.since, (node, input.now)));
        wanted.insert(view.claim.name.clone(), Consolidatable { since, pods: None });
        let goes_at = wait_ends(after, since);
        if let Some(young) = too_young(input, view, since) {
            // Drift or age replaces it whatever its pool's least age is.
            if view.claim.drift.is_none() && due_reason(input, view).is_none() {
                refuse(input, view, young, plan, report);
            }
        } else if input.now < goes_at {
            look_again(plan, goes_at);
        } else if known.is_some() && !drifts_now(plan, view) && !needed.contains(&node.name) {
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

/// The later of a mark's time and that at which a pod last left the node: one that came and went between two looks counts,
/// too.
pub(crate) fn since_pods(mark: Timestamp, (node, now): (&NodeView, Timestamp)) -> Timestamp {
    node.pod_left_at.map_or(mark, |left| mark.max(left.min(now)))
}

/// The end of `consolidateAfter`, and the earliest second look, of a node that has been empty since then.
fn wait_ends(after: SignedDuration, since: Timestamp) -> Timestamp {
    since.checked_add(after.max(LOOKED_TWICE)).unwrap_or(Timestamp::MAX)
}

/// Why its age alone keeps a node that has been empty since then. A least age that can't be read keeps none.
pub(crate) fn too_young(input: &DisruptionInput, view: &ClaimView, since: Timestamp) -> Option<NotDisrupted> {
    let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool)?;
    let lifetime = ConsolidationTerms::of(pool).ok()?.lifetime;
    let until = view.claim.created_at.checked_add(lifetime).unwrap_or(Timestamp::MAX);
    let waits = wait_ends(pool.disruption.consolidate_after?, since).max(input.now);
    (waits < until).then(|| NotDisrupted {
        reason: RefusalReason::TooYoung { pool: pool.name.clone(), lifetime, until },
        again: Some(until),
    })
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
    let no_name =
        || NotDisrupted { reason: RefusalReason::PoolNotFound { pool: pool.name.clone() }, again: None };
    Ok(NewCommand {
        id: command_id(input, view).ok_or_else(no_name)?,
        pool: pool.name.clone(),
        reason: RemovalReason::Empty,
        candidates: vec![view.claim.name.clone()],
        unplanned: 0,
        replacement: ProvisionPlan::default(),
        saves: None,
        budget,
    })
}
