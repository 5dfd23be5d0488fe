//! What consolidation saves: one history with it and without it.
//!
//! Decides which of the two a world is, and reads from EC2's instances and prices what they cost.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::Scenario;
use tenon_twin::InstanceRecord;

use crate::invariants::Violation;
use crate::simulate::{self, SimulationOptions};
use crate::world::{scenario, set};

/// What the instances of a history cost, in USD.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistoryCosts {
    /// With consolidation of empty and underutilised nodes in all pools.
    pub consolidating: f64,
    /// With none.
    pub keeping: f64,
}

/// Plays the history of a seed twice. Its deeds are the same; what follows from them isn't.
///
/// # Errors
/// The first [`Violation`].
pub fn spent(options: SimulationOptions) -> Result<HistoryCosts, Box<Violation>> {
    let with = |fields: &[(&str, Value)]| simulate::spent(options, &disrupted(options.seed, fields));
    Ok(HistoryCosts {
        consolidating: with(&[
            ("consolidationPolicy", json!("WhenEmptyOrUnderutilized")),
            ("consolidateAfter", json!("30s")),
        ])?,
        keeping: with(&[("consolidateAfter", json!("Never"))])?,
    })
}

/// The world of a seed, with these fields in the `disruption` of all NodePools. Their nodes don't expire: some worlds' do
/// within minutes, and new nodes are what a consolidation gives.
fn disrupted(seed: u64, fields: &[(&str, Value)]) -> Scenario {
    let mut world = scenario(seed);
    let objects = world.clusters.iter_mut().flat_map(|cluster| &mut cluster.objects);
    for pool in objects.filter(|object| object["kind"] == "NodePool") {
        for (name, value) in fields {
            set(pool, &["spec", "disruption", name], value.clone());
        }
        set(pool, &["spec", "template", "spec", "expireAfter"], json!("Never"));
    }
    world
}

/// Adds up what instances cost.
#[derive(Debug, Default)]
pub(crate) struct CostMeter {
    read_at: Option<Timestamp>,
    usd: f64,
}

impl CostMeter {
    /// Adds what the instances cost since the last time, by the prices of now.
    pub(crate) fn read(&mut self, region: &SimulatedRegion) {
        let now = region.now();
        let since = self.read_at.replace(now).unwrap_or(now);
        for record in region.twin().instances() {
            self.usd += hours(&record, since, now) * price(region, &record);
        }
    }

    pub(crate) const fn spent(&self) -> f64 {
        self.usd
    }
}

/// How long an instance ran between two times.
fn hours(record: &InstanceRecord, since: Timestamp, until: Timestamp) -> f64 {
    let begun = record.instance.launched_at.max(since);
    let ended = record.terminated_at.map_or(until, |at| at.min(until));
    ended.duration_since(begun).as_secs_f64().max(0.0) / 3600.0
}

/// USD an hour.
fn price(region: &SimulatedRegion, record: &InstanceRecord) -> f64 {
    let one = &record.instance;
    let price = region.twin().price(one.capacity_type, &one.instance_type, &one.zone);
    #[expect(clippy::cast_precision_loss, reason = "prices are far below 2^52 nanodollars")]
    price.map_or(0.0, |price| price.nanos() as f64 / 1e9)
}
