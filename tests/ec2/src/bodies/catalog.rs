//! Types, offerings, zones, spot prices.

use std::collections::BTreeSet;

use tenon_domain::catalog::describe::{Limits, facts};
use tenon_domain::money::UsdPerHour;
use tenon_ec2::Ec2;
use tenon_ec2::port::LocationType;

use super::pages;
use crate::difference::Difference;
use crate::server::Server;

/// Every type once, on pages of 100, each with the fields that a catalogue needs.
pub async fn types_are_described_whole<S: Server>(server: &S) {
    let pages = pages(|page| server.ec2().describe_instance_types(page)).await;
    if server.differs(Difference::OnePage) {
        assert_eq!(pages.len(), 1);
    } else {
        assert!(pages.iter().all(|page| page.len() <= 100));
    }
    let types: Vec<_> = pages.into_iter().flatten().collect();
    let names: BTreeSet<_> = types.iter().map(|info| info.instance_type.clone().unwrap()).collect();
    assert_eq!(names.len(), types.len());
    assert!(types.len() > 1000, "{} types", types.len());
    for info in types.iter().filter(|info| info.is_hvm()) {
        facts(info, &Limits::default()).unwrap();
    }
    let m5 = types.iter().find(|info| info.instance_type.as_deref() == Some("m5.large")).unwrap();
    let m5 = facts(m5, &Limits::default()).unwrap();
    assert_eq!((m5.vcpus, m5.memory_mib, m5.network.default_card_interfaces), (2, 8192, 3));
    assert_eq!((m5.ebs.max_bandwidth_mbps, m5.network.ipv4_per_interface), (Some(4750), 10));
}

/// Offerings name zones, by name or by id, that the account's zones have.
pub async fn offerings_are_in_zones_that_the_account_may_use<S: Server>(server: &S) {
    let zones = server.ec2().describe_availability_zones().await.unwrap();
    assert!(zones.iter().any(|zone| zone.name == server.world().subnets[0].1));
    for location in [LocationType::AvailabilityZone, LocationType::AvailabilityZoneId] {
        let known: BTreeSet<String> = zones
            .iter()
            .map(|zone| match location {
                LocationType::AvailabilityZone => zone.name.to_string(),
                LocationType::AvailabilityZoneId => zone.id.to_string(),
            })
            .collect();
        let offered = pages(|page| server.ec2().describe_instance_type_offerings(location, page)).await;
        let offered: Vec<_> = offered.into_iter().flatten().collect();
        assert!(offered.iter().all(|offering| known.contains(&offering.location)));
        assert!(offered.iter().any(|offering| offering.instance_type.as_str() == "m5.large"));
    }
}

/// Spot prices are more than nothing, of zones that there are.
pub async fn spot_prices_are_of_known_types_and_zones<S: Server>(server: &S) {
    let zones = server.ec2().describe_availability_zones().await.unwrap();
    let prices = pages(|page| server.ec2().describe_spot_price_history(page)).await;
    let prices: Vec<_> = prices.into_iter().flatten().collect();
    assert!(prices.iter().any(|price| price.instance_type.as_str() == "m5.large"));
    for price in prices {
        assert!(price.price > UsdPerHour::ZERO, "{price:?}");
        assert!(zones.iter().any(|zone| zone.name == price.zone), "{price:?}");
    }
}
