//! Karpenter's metrics, of what the agent sees: objects of the API server, and the claims in the table.
//!
//! Decides which of Karpenter's metrics there are: those whose value the agent knows. Names, labels, units and types are
//! Karpenter 1.14's; docs/metrics.md lists them, and says why others are missing. An empty label is left out, which
//! Prometheus takes for the same.
//!
//! Gauges of objects are made for each scrape, of the last look. Counters and durations are counted from look to look.
//!
//! Invariants: a standby has no gauge of the cluster, nor has a leader that can't see all of it; a leader counts what
//! happens from its first look on, once.
//!
//! Source: kubernetes-sigs/karpenter `pkg/metrics`, `pkg/controllers/metrics` (1.14, read 2026-11).

mod claims;
mod conditions;
mod counted;
mod drains;
mod labels;
mod look;
mod nodes;
mod objects;
mod pods;
mod pools;
mod scrape;
mod starts;
mod summary;
mod table;
#[cfg(test)]
mod tests;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use tenon_domain::claim::{Claim, RemovalReason};
use tenon_domain::id::CommandId;
use tenon_domain::snapshot::ActionReport;
use tenon_table::items::SeenRecord;

use self::claims::ClaimLedger;
use self::counted::CountedMetrics;
use self::drains::DrainLedger;
use self::look::ClusterLook;
use self::objects::ended_objects;
use self::scrape::{ClusterSight, ScrapedCluster};
use self::starts::PodStarts;
use self::table::TablePicture;
use self::usage::PodUses;
use crate::converge::PodEviction;

pub(super) use self::look::follow;

/// Karpenter's metrics of this process.
#[derive(Debug, Default)]
pub(super) struct KarpenterMetrics {
    counted: CountedMetrics,
    seen: Mutex<SeenCluster>,
    uses: Mutex<PodUses>,
}

/// What a leader remembers from look to look.
#[derive(Debug, Default)]
struct SeenCluster {
    sight: ClusterSight,
    claims: ClaimLedger,
    drains: DrainLedger,
    starts: PodStarts,
    table: TablePicture,
}

/// What a step of the agent found.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConvergedClaims<'a> {
    /// The claims in the table.
    pub(super) claims: &'a BTreeMap<String, Claim>,
    /// Reasons of the commands that [`KarpenterMetrics::unknown_commands`] named.
    pub(super) reasons: &'a BTreeMap<CommandId, RemovalReason>,
    /// How far the claims' actions are.
    pub(super) reports: &'a [ActionReport],
}

impl KarpenterMetrics {
    /// This replica leads from now on.
    pub(super) fn begin(&self, now: Timestamp) {
        *self.seen() =
            SeenCluster { sight: ClusterSight::Lost { since: now, before: None }, ..Default::default() };
    }

    /// It doesn't lead any longer: another replica sees and counts.
    pub(super) fn end(&self) {
        *self.seen() = SeenCluster::default();
        *self.uses.lock().unwrap_or_else(PoisonError::into_inner) = PodUses::default();
    }

    /// The cluster, seen now.
    pub(super) fn observe_look(&self, look: ClusterLook, now: Timestamp) {
        let look = Arc::new(look);
        let mut seen = self.seen();
        let sight = std::mem::replace(&mut seen.sight, ClusterSight::Clear(Arc::clone(&look)));
        let before = sight.last();
        self.counted.count_starts(&seen.starts.observe(before.map(|look| &*look.pods), &look.pods), now);
        for end in before.map(|before| ended_objects(before, &look, now)).unwrap_or_default() {
            self.counted.count_end(&end, now);
        }
    }

    /// The API server doesn't tell all kinds of objects at the moment.
    pub(super) fn observe_blindness(&self, now: Timestamp) {
        let mut seen = self.seen();
        seen.sight = std::mem::take(&mut seen.sight).lost(now);
    }

    /// The commands of replacements that aren't counted yet: their reasons are needed.
    pub(super) fn unknown_commands(&self, claims: &BTreeMap<String, Claim>) -> BTreeSet<CommandId> {
        self.seen().claims.unknown_commands(claims)
    }

    /// The claims after a step that converged.
    pub(super) fn observe_claims(&self, step: ConvergedClaims<'_>) {
        let mut seen = self.seen();
        seen.table.observe_claims(step.claims);
        let look = seen.sight.last().cloned().unwrap_or_default();
        for event in seen.claims.observe(step.claims, step.reasons, &look.pools) {
            self.counted.count_claim(&event);
        }
        for pool in seen.drains.observe(step.reports, step.claims) {
            self.counted.count_drained_node(pool);
        }
    }

    /// Whether `disruption`'s record is to be read, for the offerings of Nodes.
    pub(super) fn wants_offerings(&self, now: Timestamp) -> bool {
        self.seen().table.wants_offerings(now)
    }

    /// The record of `disruption`'s last pass.
    pub(super) fn observe_offerings(&self, record: Option<SeenRecord>, now: Timestamp) {
        self.seen().table.observe_offerings(record, now);
    }

    /// Answered evictions; the claims tell why.
    pub(super) fn observe_evictions(&self, evictions: &[PodEviction], claims: &BTreeMap<String, Claim>) {
        let look = self.seen().sight.last().cloned().unwrap_or_default();
        for eviction in evictions {
            let why = || drains::reason_of(&eviction.pod, &look, claims);
            self.counted.count_eviction(eviction.answer, why);
        }
    }

    /// Writes what was counted, in the exposition format without its end. A writer mustn't wait: counters are locked.
    ///
    /// # Errors Those of the writer.
    pub(super) fn write_counted(&self, writer: &mut impl fmt::Write, now: Timestamp) -> fmt::Result {
        self.counted.write(writer, now)
    }

    /// Writes the gauges of the cluster, in the exposition format without its end. Nothing is locked, so a writer may
    /// wait for a slow reader.
    ///
    /// # Errors Those of the writer.
    pub(super) fn write_cluster(&self, writer: &mut impl fmt::Write, now: Timestamp) -> fmt::Result {
        let (sight, unstarted, table) = {
            let seen = self.seen();
            (seen.sight.clone(), seen.starts.unstarted().clone(), seen.table.clone())
        };
        let uses =
            |look: &ClusterLook| self.uses.lock().unwrap_or_else(PoisonError::into_inner).read(&look.pods);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ScrapedCluster::new(sight, uses, unstarted, now, table)));
        encode_registry(writer, &registry)
    }

    fn seen(&self) -> MutexGuard<'_, SeenCluster> {
        // A panic leaves at most a count out, so a poisoned lock is fine.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
