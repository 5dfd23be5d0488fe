//! How large a move may be: its command is committed in one transaction, and so is each of its steps.
//!
//! Decides by an upper bound for the writes, before its launches are built. A move that doesn't fit is none, so that the
//! search goes on with parts of it.

use crate::provision::ProvisionPlan;

/// DynamoDB's 100 actions of a transaction, without the command, the cluster's revision and the count of steps.
const WRITES: usize = 97;
/// For a node: its claim, its action, and a record in two places.
const WRITES_OF_A_NODE: usize = 4;
/// For a replacement at most: its claim and a record in two places; if no other is equal also its launch, the names of its
/// pods, two launch templates and a probe's lease.
const WRITES_OF_A_REPLACEMENT: usize = 8;

/// Whether a command for so many nodes fits into a transaction.
pub(super) fn fits(nodes: usize, replacement: &ProvisionPlan) -> bool {
    let of_nodes = nodes.saturating_mul(WRITES_OF_A_NODE);
    let of_replacements = replacement.claims.len().saturating_mul(WRITES_OF_A_REPLACEMENT);
    of_nodes.saturating_add(of_replacements) <= WRITES
}
