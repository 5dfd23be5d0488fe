//! How long plans take over the whole catalogue of us-east-1: `cargo bench -p tenon-planning`.
//!
//! Spot prices are made up: a fixed share of the on-demand price by zone.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark may fail loudly")]

#[expect(dead_code, reason = "a part of what the tests share")]
#[path = "../tests/plans/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use divan::Bencher;
use support::{input, pods, pool, shape};
use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};
use tenon_domain::catalog::{
    Availability, CapacityType, InstanceTypeOption, NodeSettings, Offering, Surroundings,
};
use tenon_domain::id::{Region, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;
use tenon_planning::provision::{ProvisionInput, plan};
use tenon_planning::solve as bound;

fn main() {
    for count in [1_000, 5_000] {
        let world = mixed(count);
        let (plan, report) = plan(&world);
        let bound = bound::linear(&world, &plan);
        let bound = bound.map_or_else(|| "unknown".to_owned(), |bound| bound.to_string());
        println!(
            "{count} pods: {} claims, {} USD/h, bound {bound}, {} unschedulable, {} steps",
            plan.claims.len(),
            plan.price(),
            report.unschedulable.len(),
            report.steps
        );
    }
    divan::main();
}

fn text(name: &str) -> String {
    let path = format!("{}/../ec2/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap();
    if !path.ends_with(".gz") {
        return String::from_utf8(bytes).unwrap();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
    text
}

fn catalogue() -> Arc<Vec<InstanceTypeOption>> {
    static TYPES: OnceLock<Arc<Vec<InstanceTypeOption>>> = OnceLock::new();
    Arc::clone(TYPES.get_or_init(|| {
        let limits = Limits::parse(&text("eni-limits.json"), &text("network-bandwidth-mbps.json")).unwrap();
        let infos: Vec<InstanceTypeInfo> = serde_json::from_str(&text("instance-types.json.gz")).unwrap();
        let regions: serde_json::Value = serde_json::from_str(&text("offerings.json.gz")).unwrap();
        let prices: BTreeMap<String, BTreeMap<String, serde_json::Number>> =
            serde_json::from_str(&text("on-demand-prices.json.gz")).unwrap();
        let region = Region::parse("us-east-1").unwrap();
        let offered = &regions["us-east-1"]["zones"];
        let settings = NodeSettings::default();
        let mut types = Vec::new();
        for facts in infos.iter().filter_map(|info| facts(info, &limits).ok()) {
            let price = prices["us-east-1"].get(facts.name.as_str()).map(ToString::to_string);
            let Some(price) = price.and_then(|price| UsdPerHour::parse(&price).ok()) else { continue };
            let zones = offered[facts.name.as_str()].as_array().cloned().unwrap_or_default();
            let offerings = zones.iter().enumerate().flat_map(|(index, zone)| {
                let zone = Zone::parse(zone.as_str().unwrap()).unwrap();
                let share = 30 + u64::try_from(index).unwrap();
                [(CapacityType::Spot, price.nanos() / 100 * share), (CapacityType::OnDemand, price.nanos())]
                    .map(|(capacity_type, nanos)| Offering {
                        zone_id: ZoneId::parse(format!("id-{zone}")).unwrap(),
                        zone: zone.clone(),
                        capacity_type,
                        reservation: None,
                        price: Some(UsdPerHour::from_nanos(nanos)),
                        availability: Availability::Available,
                    })
            });
            let offerings = offerings.collect();
            let surroundings = Surroundings { region: &region, learned: None };
            types.push(InstanceTypeOption::new(Arc::new(facts), &settings, surroundings, offerings));
        }
        Arc::new(types)
    }))
}

/// Pods of twenty sizes, some of which ask for a zone, an architecture or on-demand capacity.
fn mixed(count: usize) -> ProvisionInput {
    let mut all = Vec::new();
    for kind in 0..20_usize {
        let cpu = [100, 250, 500, 1000, 2000, 3500, 7000][kind % 7];
        let memory = [128, 512, 1024, 4096, 12_000][kind % 5];
        let mut one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
        let asked = match kind % 6 {
            0 => Some(("topology.kubernetes.io/zone", "us-east-1a")),
            1 => Some(("kubernetes.io/arch", "arm64")),
            2 => Some(("karpenter.sh/capacity-type", "on-demand")),
            _ => None,
        };
        one.node_selector.extend(asked.map(|(key, value)| (key.to_owned(), value.to_owned())));
        all.extend(pods(&format!("kind-{kind}"), count / 20, one));
    }
    let mut default = pool("default", Vec::new());
    default.types = catalogue();
    input(all, vec![default])
}

/// Pods that all differ.
fn distinct(count: usize) -> ProvisionInput {
    let mut all = Vec::new();
    for index in 0..count {
        let (cpu, memory) = (100 + index * 7919 % 4000, 128 + index * 104_729 % 16_000);
        let one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
        all.extend(pods(&format!("pod-{index}"), 1, one));
    }
    let mut default = pool("default", Vec::new());
    default.types = catalogue();
    input(all, vec![default])
}

#[divan::bench(args = [1_000, 5_000], sample_count = 10)]
fn mixed_pods(bencher: Bencher<'_, '_>, count: usize) {
    let world = mixed(count);
    bencher.bench(|| plan(&world));
}

#[divan::bench(args = [1_000], sample_count = 5)]
fn distinct_pods(bencher: Bencher<'_, '_>, count: usize) {
    let world = distinct(count);
    bencher.bench(|| plan(&world));
}
