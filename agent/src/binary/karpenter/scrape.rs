//! The gauges of one scrape.
//!
//! Decides what a scrape shows where the cluster can't be seen: that it can't be seen, and since when.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder};
use prometheus_client::metrics::MetricType;

use super::look::ClusterLook;
use super::nodes::NodePicture;
use super::objects::seconds;
use super::pods::PodPicture;
use super::table::TablePicture;
use super::usage::PodUse;
use super::{conditions, pools};

/// What this replica sees of the cluster.
#[derive(Debug, Clone, Default)]
pub(super) enum ClusterSight {
    /// It doesn't look.
    #[default]
    Standby,
    /// It sees all of it.
    Clear(Arc<ClusterLook>),
    /// It doesn't see some kind of objects.
    Lost {
        /// Since when.
        since: Timestamp,
        /// What it saw before.
        before: Option<Arc<ClusterLook>>,
    },
}

impl ClusterSight {
    /// The last look.
    pub(super) const fn last(&self) -> Option<&Arc<ClusterLook>> {
        match self {
            Self::Standby => None,
            Self::Clear(look) => Some(look),
            Self::Lost { before, .. } => before.as_ref(),
        }
    }

    /// This after a look that failed.
    pub(super) fn lost(self, now: Timestamp) -> Self {
        match self {
            Self::Clear(look) => Self::Lost { since: now, before: Some(look) },
            Self::Standby | Self::Lost { .. } => self,
        }
    }
}

/// A scrape of the cluster.
#[derive(Debug)]
pub(super) struct ScrapedCluster {
    /// For how long it isn't seen; `None` on a standby.
    unsynced_seconds: Option<f64>,
    /// What is seen.
    seen: Option<(NodePicture, PodPicture)>,
    /// What the table told last.
    table: TablePicture,
}

impl ScrapedCluster {
    /// The scrape now. `uses` tells what the pods of a look use.
    pub(super) fn new(
        sight: ClusterSight,
        uses: impl FnOnce(&ClusterLook) -> Vec<Arc<PodUse>>,
        unstarted: BTreeSet<String>,
        now: Timestamp,
        table: TablePicture,
    ) -> Self {
        match sight {
            ClusterSight::Standby => Self { unsynced_seconds: None, seen: None, table },
            ClusterSight::Lost { since, .. } => {
                Self { unsynced_seconds: Some(seconds(since, now)), seen: None, table }
            }
            ClusterSight::Clear(look) => {
                let uses = uses(&look);
                let nodes = NodePicture::new(&look, &uses, now);
                let pods = PodPicture { look, uses, unstarted, now };
                Self { unsynced_seconds: Some(0.0), seen: Some((nodes, pods)), table }
            }
        }
    }
}

impl Collector for ScrapedCluster {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if let Some(unsynced) = self.unsynced_seconds {
            let help = "Whether the agent sees all kinds of objects.";
            let synced = if self.seen.is_some() { 1.0 } else { 0.0 };
            GaugeFamily::new(&mut encoder, "karpenter_cluster_state_synced", help)?.alone(synced)?;
            let name = "karpenter_cluster_state_unsynced_time_seconds";
            GaugeFamily::new(&mut encoder, name, "For how long it doesn't.")?.alone(unsynced)?;
        }
        let Some((nodes, pods)) = &self.seen else { return Ok(()) };
        nodes.encode(&mut encoder)?;
        pools::encode(&pods.look.pools, &mut encoder)?;
        self.table.encode(&pods.look, pods.now, &mut encoder)?;
        conditions::encode(&pods.look, pods.now, &mut encoder)?;
        pods.encode(&mut encoder)
    }
}

/// A gauge whose samples are written one by one.
#[derive(Debug)]
pub(super) struct GaugeFamily<'a>(MetricEncoder<'a>);

impl<'a> GaugeFamily<'a> {
    /// Writes its head.
    ///
    /// # Errors Those of the writer.
    pub(super) fn new(
        encoder: &'a mut DescriptorEncoder<'_>,
        name: &'a str,
        help: &str,
    ) -> Result<Self, fmt::Error> {
        encoder.encode_descriptor(name, help, None, MetricType::Gauge).map(Self)
    }

    /// Writes a sample.
    ///
    /// # Errors Those of the writer.
    pub(super) fn sample(&mut self, labels: &impl EncodeLabelSet, value: f64) -> fmt::Result {
        self.0.encode_family(labels)?.encode_gauge(&value)
    }

    /// Writes the only sample.
    ///
    /// # Errors Those of the writer.
    pub(super) fn alone(&mut self, value: f64) -> fmt::Result {
        self.0.encode_gauge(&value)
    }
}
