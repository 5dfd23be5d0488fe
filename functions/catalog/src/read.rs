//! The parts of the catalogue, from EC2's answers.
//!
//! Decides which entries are usable: all that can be read. An unreadable entry is left out by name. Macs stay,
//! because people look for them; planners skip them. An empty answer is refused: no region is without instance types.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::catalog::describe::{Limits, facts};
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{InstanceType, Zone, ZoneId};
use tenon_domain::money::UsdPerHour;
use tenon_ec2::port::{AvailabilityZone, InstanceTypeInfo, OnDemandPrice, SpotPrice, TypeOffering};

/// A whole answer of EC2 about one part: all its pages.
#[derive(Debug, Clone, PartialEq)]
pub enum CatalogAnswer {
    /// DescribeInstanceTypes.
    InstanceTypes(Vec<InstanceTypeInfo>),
    /// DescribeInstanceTypeOfferings by zone, and the zones with their ids.
    Offerings(Vec<TypeOffering>, Vec<AvailabilityZone>),
    /// The price list.
    OnDemandPrices(Vec<OnDemandPrice>),
    /// DescribeSpotPriceHistory.
    SpotPrices(Vec<SpotPrice>),
}

/// An unusable entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The instance type, as EC2 names it.
    pub instance_type: String,
    /// Why.
    pub reason: String,
}

/// An answer that isn't one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("keeping the last `{part}`: EC2's answer has no usable entry ({left_out} left out)")]
pub struct EmptyAnswer {
    /// The part.
    pub part: CatalogPart,
    /// Entries that couldn't be read.
    pub left_out: usize,
}

/// The part of an answer, and its unusable entries.
///
/// # Errors [`EmptyAnswer`] if no entry is usable.
pub fn read(answer: &CatalogAnswer, limits: &Limits) -> Result<(PartData, Vec<LeftOut>), EmptyAnswer> {
    let mut left_out = Vec::new();
    let data = match answer {
        CatalogAnswer::InstanceTypes(types) => instance_types(types, limits, &mut left_out),
        CatalogAnswer::Offerings(offerings, zones) => zone_offerings(offerings, zones, &mut left_out),
        CatalogAnswer::OnDemandPrices(prices) => {
            // The list has types at no price that can't be launched for it.
            let priced = prices.iter().filter(|price| price.price > UsdPerHour::ZERO);
            PartData::OnDemandPrices(priced.map(|price| (price.instance_type.clone(), price.price)).collect())
        }
        CatalogAnswer::SpotPrices(prices) => spot_prices(prices),
    };
    if data.count() == 0 {
        return Err(EmptyAnswer { part: data.part(), left_out: left_out.len() });
    }
    left_out.sort();
    Ok((data, left_out))
}

fn instance_types(types: &[InstanceTypeInfo], limits: &Limits, left_out: &mut Vec<LeftOut>) -> PartData {
    let mut read = BTreeMap::new();
    for info in types.iter().filter(|info| info.is_hvm()) {
        match facts(info, limits) {
            Ok(facts) => {
                read.insert(facts.name.clone(), Arc::new(facts));
            }
            Err(error) => left_out.push(LeftOut {
                instance_type: info.instance_type.clone().unwrap_or_default(),
                reason: error.to_string(),
            }),
        }
    }
    PartData::InstanceTypes(read)
}

fn zone_offerings(
    offerings: &[TypeOffering],
    zones: &[AvailabilityZone],
    left_out: &mut Vec<LeftOut>,
) -> PartData {
    let zones: BTreeMap<Zone, ZoneId> =
        zones.iter().map(|zone| (zone.name.clone(), zone.id.clone())).collect();
    let mut offered: BTreeMap<InstanceType, BTreeSet<Zone>> = BTreeMap::new();
    for offering in offerings {
        match Zone::parse(offering.location.as_str()) {
            Ok(zone) if zones.contains_key(&zone) => {
                offered.entry(offering.instance_type.clone()).or_default().insert(zone);
            }
            Ok(_) | Err(_) => left_out.push(LeftOut {
                instance_type: offering.instance_type.to_string(),
                reason: format!("this account can't use zone `{}`", offering.location),
            }),
        }
    }
    PartData::Offerings(ZoneOfferings { zones, offered })
}

/// EC2 may return several prices of one type and zone, in any order; the newest counts.
fn spot_prices(prices: &[SpotPrice]) -> PartData {
    let mut newest: BTreeMap<&InstanceType, BTreeMap<&Zone, (Timestamp, UsdPerHour)>> = BTreeMap::new();
    // A price of zero counts as missing.
    for price in prices.iter().filter(|price| price.price > UsdPerHour::ZERO) {
        let found = (price.since, price.price);
        let known = newest.entry(&price.instance_type).or_default().entry(&price.zone).or_insert(found);
        *known = (*known).max(found);
    }
    let zones = |zones: BTreeMap<&Zone, (Timestamp, UsdPerHour)>| {
        zones.into_iter().map(|(zone, (_, price))| (zone.clone(), price)).collect()
    };
    PartData::SpotPrices(newest.into_iter().map(|(name, found)| (name.clone(), zones(found))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str) -> InstanceTypeInfo {
        serde_json::from_value(serde_json::json!({
            "InstanceType": name,
            "SupportedVirtualizationTypes": ["hvm"],
            "VCpuInfo": {"DefaultVCpus": 2},
            "MemoryInfo": {"SizeInMiB": 8192},
            "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
            "NetworkInfo": {
                "NetworkCards": [{"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 3}],
                "Ipv4AddressesPerInterface": 10
            }
        }))
        .unwrap()
    }

    fn name(text: &str) -> InstanceType {
        InstanceType::parse(text).unwrap()
    }

    #[test]
    fn a_type_that_cannot_be_read_is_left_out_by_name() {
        let broken = InstanceTypeInfo { memory_info: None, ..info("m9.large") };
        let (data, left_out) =
            read(&CatalogAnswer::InstanceTypes(vec![info("m5.large"), broken]), &Limits::default()).unwrap();
        assert_eq!(data.count(), 1);
        assert_eq!(left_out.len(), 1);
        assert_eq!(left_out[0].instance_type, "m9.large");
        assert!(left_out[0].reason.contains("MemoryInfo.SizeInMiB"), "{}", left_out[0].reason);
    }

    #[test]
    fn a_type_without_hvm_images_is_not_of_the_catalogue_and_a_mac_is() {
        let old = InstanceTypeInfo {
            supported_virtualization_types: Some(vec!["paravirtual".to_owned()]),
            ..info("m1.small")
        };
        let mut mac = info("mac2.metal");
        mac.processor_info.as_mut().unwrap().supported_architectures = Some(vec!["arm64_mac".to_owned()]);
        let (data, left_out) =
            read(&CatalogAnswer::InstanceTypes(vec![info("m5.large"), old, mac]), &Limits::default())
                .unwrap();
        assert_eq!(left_out, []);
        let PartData::InstanceTypes(types) = data else { panic!("{data:?}") };
        let found: Vec<_> = types.values().map(|facts| (facts.name.as_str(), facts.is_for_nodes())).collect();
        assert_eq!(found, [("m5.large", true), ("mac2.metal", false)]);
    }

    #[test]
    fn an_empty_answer_is_refused() {
        for answer in [
            CatalogAnswer::InstanceTypes(vec![]),
            CatalogAnswer::Offerings(vec![], vec![]),
            CatalogAnswer::OnDemandPrices(vec![]),
            CatalogAnswer::SpotPrices(vec![]),
        ] {
            assert!(read(&answer, &Limits::default()).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn the_newest_of_several_spot_prices_holds_in_any_order() {
        let price = |second: i64, price: &str| SpotPrice {
            instance_type: name("m5.large"),
            zone: Zone::parse("us-east-1a").unwrap(),
            price: UsdPerHour::parse(price).unwrap(),
            since: Timestamp::from_second(second).unwrap(),
        };
        for prices in [vec![price(1, "0.05"), price(2, "0.04")], vec![price(2, "0.04"), price(1, "0.05")]] {
            let (data, _) = read(&CatalogAnswer::SpotPrices(prices), &Limits::default()).unwrap();
            let PartData::SpotPrices(prices) = data else { panic!("{data:?}") };
            assert_eq!(prices[&name("m5.large")].values().next().unwrap().to_string(), "0.04");
        }
    }

    #[test]
    fn an_offering_in_a_zone_that_is_not_ours_is_left_out() {
        let offering =
            |location: &str| TypeOffering { instance_type: name("m5.large"), location: location.to_owned() };
        let zone = AvailabilityZone {
            name: Zone::parse("us-east-1a").unwrap(),
            id: ZoneId::parse("use1-az2").unwrap(),
        };
        let answer =
            CatalogAnswer::Offerings(vec![offering("us-east-1a"), offering("us-east-1-bos-1a")], vec![zone]);
        let (data, left_out) = read(&answer, &Limits::default()).unwrap();
        assert_eq!((data.count(), left_out.len()), (1, 1));
    }
}
