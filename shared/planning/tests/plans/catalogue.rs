//! The whole catalogue of us-east-1, for worlds of real size. Spot prices are made up: a fixed share of the on-demand
//! price by zone.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::{Arc, OnceLock};

use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};
use tenon_domain::catalog::{
    Availability, CapacityType, InstanceTypeOption, NodeSettings, Offering, Surroundings,
};
use tenon_domain::id::{Region, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;

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

pub(crate) fn catalogue() -> Arc<Vec<InstanceTypeOption>> {
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
