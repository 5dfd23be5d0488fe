//! Drained Nodes and evicted pods.
//!
//! Decides when a drain counts: once the agent finds that its pods have left. Drains that were over at the first look
//! were counted by the leader before.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::snapshot::ActionReport;
use tenon_snapshot::ObjectKey;
use tenon_snapshot::object;

use super::look::ClusterLook;
use crate::plan::CLAIM_ANNOTATION;

/// The reason of an eviction whose claim isn't known to go.
const FORCEFUL: &str = "Forceful Termination";

/// The drains that are over.
#[derive(Debug, Default)]
pub(super) struct DrainLedger {
    /// By claim; `None` before the first look.
    over: Option<BTreeSet<String>>,
}

impl DrainLedger {
    /// The pools of the Nodes whose drain ended since the last look.
    pub(super) fn observe(
        &mut self,
        reports: &[ActionReport],
        claims: &BTreeMap<String, Claim>,
    ) -> Vec<String> {
        let drained = |report: &&ActionReport| {
            let claim = claims.get(&report.claim);
            let drains = claim
                .is_some_and(|claim| claim.phase() == ClaimPhase::Draining && claim.state.node().is_some());
            drains && report.progress.is_done()
        };
        let over: BTreeSet<String> =
            reports.iter().filter(drained).map(|report| report.claim.clone()).collect();
        let Some(before) = self.over.replace(over.clone()) else { return Vec::new() };
        let new = over.difference(&before).filter_map(|claim| claims.get(claim));
        new.map(|claim| claim.pool.to_string()).collect()
    }
}

/// Why a pod was evicted: why the claim of its Node goes.
pub(super) fn reason_of(pod: &ObjectKey, look: &ClusterLook, claims: &BTreeMap<String, Claim>) -> String {
    let found = || {
        let at = look.pods.binary_search_by(|one| one.key.cmp(pod)).ok()?;
        let node = look.pods.get(at)?.node.as_deref()?;
        let node = look.nodes.iter().find(|one| object::name(one) == node)?;
        let mut annotations = object::texts(node, "/metadata/annotations");
        let (_, claim) = annotations.find(|(key, _)| *key == CLAIM_ANNOTATION)?;
        claims.get(claim)?.state.removal()
    };
    found().map_or(FORCEFUL, |reason| reason.as_str()).to_owned()
}
