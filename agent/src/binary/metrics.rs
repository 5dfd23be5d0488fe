//! The agent's metrics for Prometheus.
//!
//! Decides the names of the agent's own; docs/metrics.md lists them. Karpenter's are in [`super::karpenter`].

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::exposition::Scrapes;
use super::karpenter::KarpenterMetrics;

/// Seconds that steps take: from an unchanged world to a first list of a large one.
const STEP_SECONDS: [f64; 8] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0];

/// The result of a step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct StepLabels {
    /// `ended` or `failed`.
    pub(super) outcome: &'static str,
}

/// The agent's metrics.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    /// 1 where this replica leads.
    pub(super) leader: Gauge,
    /// Steps by outcome.
    pub(super) steps: Family<StepLabels, Counter>,
    /// How long they take.
    pub(super) step_seconds: Histogram,
    /// The last written generation.
    pub(super) generation: Gauge<i64, AtomicI64>,
    /// Pods that wait for a node, as of then.
    pub(super) pending_pods: Gauge<i64, AtomicI64>,
    /// Actions that aren't done.
    pub(super) actions: Gauge<i64, AtomicI64>,
    /// When a report ended last, in seconds since 1970.
    pub(super) reported_at: Gauge<f64, AtomicU64>,
    /// Rings heard.
    pub(super) rings: Counter,
    /// Karpenter's.
    pub(super) karpenter: KarpenterMetrics,
    /// Who may scrape.
    pub(super) scrapes: Scrapes,
    /// The time of the main loop's last turn in seconds since 1970, for `/healthz`.
    turned_at: AtomicI64,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("tenon_agent");
        let metrics = (Gauge::default(), Family::default(), Histogram::new(STEP_SECONDS), Gauge::default());
        let (leader, steps, step_seconds, generation) = metrics;
        let (pending_pods, actions, reported_at) = (Gauge::default(), Gauge::default(), Gauge::default());
        let rings = Counter::default();
        registry.register("leader", "Whether this replica leads", leader.clone());
        registry.register("steps", "Steps by outcome", steps.clone());
        registry.register("step_seconds", "Duration of steps", step_seconds.clone());
        registry.register("snapshot_generation", "Last written generation", generation.clone());
        registry.register("pending_pods", "Pending pods", pending_pods.clone());
        registry.register("actions", "Unfinished actions", actions.clone());
        registry.register("reported_timestamp_seconds", "Time of the last report", reported_at.clone());
        registry.register("rings", "Rings of the doorbell", rings.clone());
        let turned_at = AtomicI64::new(Timestamp::now().as_second());
        Self {
            registry,
            leader,
            steps,
            step_seconds,
            generation,
            pending_pods,
            actions,
            reported_at,
            rings,
            karpenter: KarpenterMetrics::default(),
            scrapes: Scrapes::default(),
            turned_at,
        }
    }
}

impl Metrics {
    /// The main loop turned.
    pub(super) fn turn(&self) {
        self.turned_at.store(Timestamp::now().as_second(), Ordering::Relaxed);
    }

    /// Sets the main loop's last turn to so many seconds ago.
    #[cfg(test)]
    pub(super) fn turn_ago(&self, seconds: i64) {
        self.turned_at.store(Timestamp::now().as_second() - seconds, Ordering::Relaxed);
    }

    /// Seconds since the main loop turned.
    pub(super) fn turned_ago(&self) -> i64 {
        Timestamp::now().as_second() - self.turned_at.load(Ordering::Relaxed)
    }

    /// Writes all of them in the exposition format. The writer may wait for a slow reader: meanwhile nothing is locked,
    /// or the main loop would wait too.
    ///
    /// # Errors Those of the writer.
    pub(super) fn write(&self, writer: &mut impl fmt::Write, now: Timestamp) -> fmt::Result {
        let mut counted = String::new();
        encode_registry(&mut counted, &self.registry)?;
        self.karpenter.write_counted(&mut counted, now)?;
        writer.write_str(&counted)?;
        self.karpenter.write_cluster(writer, now)?;
        encode_eof(writer)
    }
}
