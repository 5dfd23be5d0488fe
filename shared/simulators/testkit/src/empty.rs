//! The invariant of empty nodes.
//!
//! Decides from the cluster's pods and Nodes alone; the table says only which Node is whose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::id::{ClaimName, ClusterName, NodePoolName};
use tenon_region::engine::SimulatedRegion;

use crate::invariants::Invariant;

/// How long an empty node may stay beside `consolidateAfter` in a region without faults while no node of its pool leaves and
/// no command waits: that time begins when a look finds the node empty, which after a lost ring the next sweep does; and a
/// node is looked at twice.
const FOUND_WITHIN: SignedDuration = SignedDuration::from_mins(6);

/// Since when nodes are empty, no node of their pools leaves and no command waits, by name.
#[derive(Debug, Default)]
pub(crate) struct EmptyLong(BTreeMap<String, Timestamp>);

/// No node is empty for longer than its pool says. One that drifted may wait for its drift's budget.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_empty_nodes_go(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    seen: &mut EmptyLong,
) -> Result<(), (Invariant, String)> {
    let (Some(site), Some(reported)) = (region.site(cluster), region.reported(cluster)) else {
        return Ok(());
    };
    let (by_node, claims, now) = (site.cluster().pods_by_node(), region.claims(cluster), region.now());
    let leaves = |claim: &Arc<Claim>| claim.phase() > ClaimPhase::Initialized && !claim.phase().is_final();
    let leaving: BTreeSet<&NodePoolName> =
        claims.iter().filter(|claim| leaves(claim)).map(|claim| &claim.pool).collect();
    // A command that waits for its replacements holds room for its pods on nodes of every pool.
    let waits = claims.iter().any(|claim| claim.phase() == ClaimPhase::Disrupting);
    // So does one whose candidates still leave, of whatever pool, on its replacements.
    let commands = region.commands(cluster);
    let active = commands.iter().filter(|command| command.is_active());
    let expecting: BTreeSet<&ClaimName> = active.flat_map(|command| &command.replacements).collect();
    let mut empty = BTreeMap::new();
    for claim in &claims {
        let (ClaimPhase::Initialized, Some(node), None) = (claim.phase(), claim.state.node(), &claim.drift)
        else {
            continue;
        };
        let pool = reported.node_pools.iter().find(|pool| pool.name == claim.pool);
        let Some(after) = pool.and_then(|pool| pool.disruption.consolidate_after) else { continue };
        let is_held = waits || leaving.contains(&claim.pool) || expecting.contains(&claim.name);
        if is_held || !by_node.get(node.as_str()).is_some_and(Vec::is_empty) {
            continue;
        }
        let since = seen.0.get(node.as_str()).copied().unwrap_or(now);
        if now.duration_since(since) > after.saturating_add(FOUND_WITHIN) {
            let text = format!("node {node} of pool {} is empty since {since} and stays", claim.pool);
            return Err((Invariant::EmptyNodesGo, text));
        }
        empty.insert(node.to_string(), since);
    }
    seen.0 = empty;
    Ok(())
}
