//! Counters, histograms and summaries: what happened since this process leads.
//!
//! Decides their names and buckets. A process counts from zero, as Prometheus expects of a restart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::claims::ClaimEvent;
use super::labels::{
    BuildLabels, CodeLabels, CreatedLabels, DisruptedLabels, DrainLabels, PoolLabels, TerminatedLabels,
    ZoneLabels,
};
use super::objects::ObjectEnd;
use super::starts::StartedPods;
use super::summary::{DurationSummary, write_head};
use crate::converge::{EvictionAnswer, GonePod};

/// Seconds of the peer's histograms of durations. Source: kubernetes-sigs/karpenter `pkg/metrics/constants.go`.
const DURATION_SECONDS: [f64; 45] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];
const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
/// Of its histogram of Nodes' lifetimes. Source: the same, `pkg/controllers/node/termination/metrics.go`.
const LIFETIME_SECONDS: [f64; 21] = [
    15.0 * MINUTE,
    30.0 * MINUTE,
    45.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    4.0 * HOUR,
    6.0 * HOUR,
    8.0 * HOUR,
    10.0 * HOUR,
    12.0 * HOUR,
    16.0 * HOUR,
    20.0 * HOUR,
    DAY,
    2.0 * DAY,
    3.0 * DAY,
    5.0 * DAY,
    10.0 * DAY,
    15.0 * DAY,
    20.0 * DAY,
    25.0 * DAY,
    30.0 * DAY,
];
const NODES_TERMINATION: &str = "karpenter_nodes_termination_duration_seconds";
const PODS_STARTUP: &str = "karpenter_pods_startup_duration_seconds";

/// What was counted.
#[derive(Debug)]
pub(super) struct CountedMetrics {
    registry: Registry,
    claims_created: Family<CreatedLabels, Counter>,
    claims_disrupted: Family<DisruptedLabels, Counter>,
    claims_terminated: Family<TerminatedLabels, Counter>,
    claims_termination: Family<PoolLabels, Histogram>,
    nodes_created: Family<ZoneLabels, Counter>,
    nodes_terminated: Family<ZoneLabels, Counter>,
    nodes_lifetime: Family<PoolLabels, Histogram>,
    nodes_drained: Family<PoolLabels, Counter>,
    pods_bound: Histogram,
    pods_drained: Family<DrainLabels, Counter>,
    evictions: Family<CodeLabels, Counter>,
    nodes_termination: Mutex<BTreeMap<PoolLabels, DurationSummary>>,
    pods_startup: Mutex<DurationSummary>,
}

fn durations() -> Histogram {
    Histogram::new(DURATION_SECONDS)
}

fn lifetimes() -> Histogram {
    Histogram::new(LIFETIME_SECONDS)
}

impl Default for CountedMetrics {
    fn default() -> Self {
        let mut counted = Self {
            registry: Registry::with_prefix("karpenter"),
            claims_created: Family::default(),
            claims_disrupted: Family::default(),
            claims_terminated: Family::default(),
            claims_termination: Family::new_with_constructor(durations),
            nodes_created: Family::default(),
            nodes_terminated: Family::default(),
            nodes_lifetime: Family::new_with_constructor(lifetimes),
            nodes_drained: Family::default(),
            pods_bound: durations(),
            pods_drained: Family::default(),
            evictions: Family::default(),
            nodes_termination: Mutex::default(),
            pods_startup: Mutex::default(),
        };
        counted.register();
        counted
    }
}

impl CountedMetrics {
    fn register(&mut self) {
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION"), goarch: goarch() }).set(1);
        let all = &mut self.registry;
        all.register("build_info", "The build of Tenon's agent", build);
        all.register("nodeclaims_created", "NodeClaims that were made", self.claims_created.clone());
        all.register("nodeclaims_disrupted", "NodeClaims that go, by reason", self.claims_disrupted.clone());
        all.register("nodeclaims_terminated", "NodeClaims that are gone", self.claims_terminated.clone());
        let help = "Time from the deletion of NodeClaims to their end";
        all.register("nodeclaims_termination_duration_seconds", help, self.claims_termination.clone());
        all.register("nodes_created", "Nodes that joined", self.nodes_created.clone());
        all.register("nodes_terminated", "Nodes that are gone", self.nodes_terminated.clone());
        let help = "Time from the creation of Nodes to their end";
        all.register("nodes_lifetime_duration_seconds", help, self.nodes_lifetime.clone());
        all.register("nodes_drained", "Nodes that were drained", self.nodes_drained.clone());
        let help = "Time from the creation of pods until they were bound";
        all.register("pods_bound_duration_seconds", help, self.pods_bound.clone());
        all.register("pods_drained", "Pods that were evicted, by reason", self.pods_drained.clone());
        all.register("pods_eviction_requests", "Answered evictions, by code", self.evictions.clone());
    }

    pub(super) fn count_claim(&self, event: &ClaimEvent) {
        let counter = match event {
            ClaimEvent::Created(labels) => self.claims_created.get_or_create(labels),
            ClaimEvent::Joined(labels) => self.nodes_created.get_or_create(labels),
            ClaimEvent::Disrupted(labels) => self.claims_disrupted.get_or_create(labels),
            ClaimEvent::Terminated(labels) => self.claims_terminated.get_or_create(labels),
        };
        counter.inc();
    }

    pub(super) fn count_end(&self, end: &ObjectEnd, now: Timestamp) {
        match end {
            ObjectEnd::Node { pool, zone, termination_seconds, lifetime_seconds } => {
                let zone = ZoneLabels { nodepool: pool.clone(), zone: zone.clone() };
                self.nodes_terminated.get_or_create(&zone).inc();
                let pool = PoolLabels { nodepool: pool.clone() };
                if let Some(seconds) = lifetime_seconds {
                    self.nodes_lifetime.get_or_create(&pool).observe(*seconds);
                }
                held(&self.nodes_termination).entry(pool).or_default().observe(*termination_seconds, now);
            }
            ObjectEnd::NodeClaim { pool, termination_seconds } => {
                let pool = PoolLabels { nodepool: pool.clone() };
                self.claims_termination.get_or_create(&pool).observe(*termination_seconds);
            }
        }
    }

    pub(super) fn count_starts(&self, started: &StartedPods, now: Timestamp) {
        for seconds in &started.bound_seconds {
            self.pods_bound.observe(*seconds);
        }
        let mut startup = held(&self.pods_startup);
        for seconds in &started.ready_seconds {
            startup.observe(*seconds, now);
        }
    }

    pub(super) fn count_drained_node(&self, nodepool: String) {
        self.nodes_drained.get_or_create(&PoolLabels { nodepool }).inc();
    }

    /// Counts an answered eviction; `why` is asked for pods that leave.
    pub(super) fn count_eviction(&self, answer: EvictionAnswer, why: impl FnOnce() -> String) {
        let code = match answer {
            EvictionAnswer::Evicted => "200",
            EvictionAnswer::Gone(GonePod::NotFound) => "404",
            EvictionAnswer::Gone(GonePod::Conflict) => "409",
            EvictionAnswer::Refused => "429",
        };
        self.evictions.get_or_create(&CodeLabels { code }).inc();
        if answer == EvictionAnswer::Evicted {
            self.pods_drained.get_or_create(&DrainLabels { reason: why() }).inc();
        }
    }

    /// Writes them.
    ///
    /// # Errors Those of the writer.
    pub(super) fn write(&self, writer: &mut impl fmt::Write, now: Timestamp) -> fmt::Result {
        encode_registry(writer, &self.registry)?;
        write_head(writer, NODES_TERMINATION, "Time from the deletion of Nodes to their end.")?;
        for (labels, summary) in held(&self.nodes_termination).iter_mut() {
            let label = Some(("nodepool", labels.nodepool.as_str()));
            summary.write(writer, NODES_TERMINATION, label, now)?;
        }
        write_head(writer, PODS_STARTUP, "Time from the creation of pods until they were Ready.")?;
        held(&self.pods_startup).write(writer, PODS_STARTUP, None, now)
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves at most a count out, so a poisoned lock is fine.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The architecture by Go's name.
const fn goarch() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "arm64"
    } else if cfg!(target_arch = "x86_64") {
        "amd64"
    } else {
        std::env::consts::ARCH
    }
}
