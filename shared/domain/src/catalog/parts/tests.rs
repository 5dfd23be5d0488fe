//! Options of one instance type in three zones: prices, subnets, marks and shifts.

use jiff::Timestamp;

use super::*;
use crate::catalog::describe::{InstanceTypeInfo, Limits, facts};
use crate::catalog::facts::Architecture;
use crate::class_status::ClassSubnet;
use crate::evidence::require;
use crate::id::{ClusterName, SubnetId};
use crate::unavailable::{Mark, Marks, RequestDigest, UnavailableKey};
use crate::zonal_shift::ShiftEnd;

struct PartsWorld {
    region: Region,
    types: BTreeMap<InstanceType, Arc<InstanceTypeFacts>>,
    offerings: ZoneOfferings,
    on_demand: BTreeMap<InstanceType, UsdPerHour>,
    spot: Option<SpotPrices>,
}

impl PartsWorld {
    fn catalog(&self) -> Catalog<'_> {
        Catalog {
            region: &self.region,
            types: ready(CatalogPart::InstanceTypes, &self.types),
            offerings: ready(CatalogPart::Offerings, &self.offerings),
            on_demand: Some(ready(CatalogPart::OnDemandPrices, &self.on_demand)),
            spot: self.spot.as_ref().map(|spot| ready(CatalogPart::SpotPrices, spot)),
            learned: LearnedOf::NOTHING,
        }
    }
}

fn ready<T>(part: CatalogPart, value: T) -> Ready<T> {
    require(part, Some((value, Timestamp::UNIX_EPOCH)), Timestamp::UNIX_EPOCH).unwrap()
}

fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

/// m5.large in two of three zones; its spot price is known in the first.
fn world() -> PartsWorld {
    let info: InstanceTypeInfo = serde_json::from_value(serde_json::json!({
        "InstanceType": "m5.large",
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"Manufacturer": "Intel", "SupportedArchitectures": ["x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        "SupportedVirtualizationTypes": ["hvm"],
        "NetworkInfo": {
            "NetworkCards": [{"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 3}],
            "Ipv4AddressesPerInterface": 10
        }
    }))
    .unwrap();
    let facts = Arc::new(facts(&info, &Limits::default()).unwrap());
    let name = facts.name.clone();
    let price = |text| UsdPerHour::parse(text).unwrap();
    let zones = ["a", "b", "c"]
        .map(|z| (zone(&format!("us-east-1{z}")), ZoneId::parse(format!("use1-az-{z}")).unwrap()));
    let offered = BTreeSet::from([zone("us-east-1a"), zone("us-east-1b")]);
    PartsWorld {
        region: Region::parse("us-east-1").unwrap(),
        types: BTreeMap::from([(name.clone(), facts)]),
        offerings: ZoneOfferings { zones: zones.into(), offered: BTreeMap::from([(name.clone(), offered)]) },
        on_demand: BTreeMap::from([(name.clone(), price("0.096"))]),
        spot: Some(BTreeMap::from([(name, BTreeMap::from([(zone("us-east-1a"), price("0.03"))]))])),
    }
}

fn subnet(id: &str, name: &str) -> ClassSubnet {
    ClassSubnet {
        id: SubnetId::parse(id).unwrap(),
        zone: zone(name),
        zone_id: ZoneId::parse("any").unwrap(),
        free_addresses: 10,
        shifted: None,
    }
}

fn mark(key: &str) -> Mark {
    Mark {
        key: UnavailableKey::parse(key).unwrap(),
        revision: 1,
        code: "InsufficientInstanceCapacity".to_owned(),
        message: None,
        count: 1,
        since: Timestamp::UNIX_EPOCH,
        asked_at: Timestamp::UNIX_EPOCH,
        until: Timestamp::from_second(60).unwrap(),
        from_vcpus: None,
        probe: None,
        seen_by: ClusterName::parse("prod").unwrap(),
    }
}

fn check(places: Places<'_>, marks: &[&str], now: i64, expected: &[&str]) {
    check_in(&world(), places, (marks, now), expected);
}

fn check_in(world: &PartsWorld, places: Places<'_>, (marks, now): (&[&str], i64), expected: &[&str]) {
    let catalog = world.catalog();
    let marks: Marks = marks.iter().map(|key| mark(key)).collect();
    let requests = [RequestDigest::parse("12ab").unwrap()];
    let now = Timestamp::from_second(now).unwrap();
    let exhaustion = Exhaustion { marks: &marks, requests: &requests, now };
    let options = catalog.options(&NodeSettings::default(), places, exhaustion);
    let lines: Vec<String> = options
        .iter()
        .flat_map(|option| &option.offerings)
        .map(|offering| {
            let availability = match &offering.availability {
                Availability::Available => "Available",
                Availability::Unavailable(why) => why.into_str(),
            };
            let price = offering.price.map_or("-".to_owned(), |price| price.to_string());
            format!("{} {} {price} {availability}", offering.zone, offering.capacity_type)
        })
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn offerings_join_zones_prices_subnets_and_marks() {
    check(
        Places::AllZones,
        &[],
        0,
        &[
            "us-east-1a spot 0.03 Available",
            "us-east-1a on-demand 0.096 Available",
            "us-east-1b spot - Available",
            "us-east-1b on-demand 0.096 Available",
        ],
    );
    let subnets = [subnet("subnet-1", "us-east-1a"), subnet("subnet-2", "us-east-1c")];
    let in_a = [
        "us-east-1a spot 0.03 Available",
        "us-east-1a on-demand 0.096 Available",
        "us-east-1b spot - NoSubnet",
        "us-east-1b on-demand 0.096 NoSubnet",
    ];
    check(Places::Subnets(&subnets), &[], 0, &in_a);
    check(
        Places::Subnets(&subnets),
        &["offering#spot#use1-az-a#m5.large"],
        59,
        &["us-east-1a spot 0.03 Exhausted", in_a[1], in_a[2], in_a[3]],
    );
    // Once the mark is due, a probe asks first; two hours later it is forgotten.
    check(
        Places::Subnets(&subnets),
        &["offering#spot#use1-az-a#m5.large"],
        7259,
        &["us-east-1a spot 0.03 Exhausted", in_a[1], in_a[2], in_a[3]],
    );
    check(Places::Subnets(&subnets), &["offering#spot#use1-az-a#m5.large"], 7260, &in_a);
    check(
        Places::Subnets(&subnets),
        &["request#12ab#spot#use1-az-a#m5.large"],
        0,
        &["us-east-1a spot 0.03 Exhausted", in_a[1], in_a[2], in_a[3]],
    );
    // An offering refused to another class's requests is available to this class.
    check(Places::Subnets(&subnets), &["request#34cd#spot#use1-az-a#m5.large"], 0, &in_a);
    check(
        Places::Subnets(&subnets),
        &["subnet#subnet-1"],
        0,
        &["us-east-1a spot 0.03 Exhausted", "us-east-1a on-demand 0.096 Exhausted", in_a[2], in_a[3]],
    );
}

#[test]
fn marks_are_applied_anew_to_options_that_are_kept() {
    let (world, settings) = (world(), NodeSettings::default());
    let catalog = world.catalog();
    let shifted = ClassSubnet { shifted: Some(ShiftEnd::Open), ..subnet("subnet-1", "us-east-1a") };
    let calm = subnet("subnet-1", "us-east-1a");
    let marks = |keys: &[&str]| keys.iter().map(|key| mark(key)).collect::<Marks>();
    let now = Timestamp::UNIX_EPOCH;
    let nodes = |subnet| ClassNodes { settings: &settings, places: Places::Subnets(subnet) };
    let mut kept = catalog.unmarked(nodes(std::slice::from_ref(&calm)));
    let changes: [(&ClassSubnet, &[&str]); 6] = [
        (&calm, &[]),
        (&calm, &["offering#spot#use1-az-a#m5.large"]),
        (&calm, &["subnet#subnet-1"]),
        (&shifted, &["subnet#subnet-1"]),
        (&calm, &["offering#on-demand#use1-az-a#m5.large"]),
        (&calm, &[]),
    ];
    for (subnet, keys) in changes {
        let marks = marks(keys);
        let exhaustion = Exhaustion { marks: &marks, requests: &[], now };
        let nodes = nodes(std::slice::from_ref(subnet));
        catalog.mark(&mut kept, nodes, exhaustion);
        assert_eq!(kept, catalog.described(&settings, nodes.places, exhaustion), "{keys:?}");
    }
    assert_eq!(kept, catalog.unmarked(nodes(std::slice::from_ref(&calm))));
}

/// A shift is no mark: nothing is probed, and offerings return when it ends.
#[test]
fn a_zone_that_is_shifted_away_from_offers_nothing_until_the_shift_ends() {
    let end = ShiftEnd::At(Timestamp::from_second(60).unwrap());
    let subnets = [ClassSubnet { shifted: Some(end), ..subnet("subnet-1", "us-east-1a") }];
    let (marked, elsewhere) =
        (["subnet#subnet-1"], ["us-east-1b spot - NoSubnet", "us-east-1b on-demand 0.096 NoSubnet"]);
    let shifted = ["us-east-1a spot 0.03 ZoneShifted", "us-east-1a on-demand 0.096 ZoneShifted"];
    check(Places::Subnets(&subnets), &marked, 59, &[shifted, elsewhere].concat());
    let back = ["us-east-1a spot 0.03 Available", "us-east-1a on-demand 0.096 Available"];
    check(Places::Subnets(&subnets), &[], 60, &[back, elsewhere].concat());
}

/// An offering waits for its own mark and for its subnets' marks, whichever is later.
#[test]
fn an_offering_waits_for_its_own_mark_and_for_its_subnets() {
    let world = world();
    let until = |keys: &[(&str, i64)]| {
        let marks: Marks = keys
            .iter()
            .map(|(key, held)| Mark { until: Timestamp::from_second(*held).unwrap(), ..mark(key) })
            .collect();
        let exhaustion =
            Exhaustion { marks: &marks, requests: &[], now: Timestamp::from_second(100).unwrap() };
        let subnets = [subnet("subnet-1", "us-east-1a")];
        let options =
            world.catalog().options(&NodeSettings::default(), Places::Subnets(&subnets), exhaustion);
        let spot = &options[0].offerings[0].availability;
        let Availability::Unavailable(Unavailability::Exhausted { until, .. }) = spot else {
            panic!("{spot:?}")
        };
        until.as_second()
    };
    let offering = "offering#spot#use1-az-a#m5.large";
    assert_eq!(until(&[("subnet#subnet-1", 60), (offering, 3600)]), 3600);
    assert_eq!(until(&[("subnet#subnet-1", 3600), (offering, 60)]), 3600);
}

#[test]
fn without_prices_of_a_kind_nothing_can_be_had_for_them() {
    check_in(
        &PartsWorld { spot: None, ..world() },
        Places::AllZones,
        (&[], 0),
        &[
            "us-east-1a spot - PriceUnknown",
            "us-east-1a on-demand 0.096 Available",
            "us-east-1b spot - PriceUnknown",
            "us-east-1b on-demand 0.096 Available",
        ],
    );
}

#[test]
fn a_mac_is_described_and_is_no_choice() {
    let mut world = world();
    let (name, facts) = world.types.pop_first().unwrap();
    let architectures = vec![Architecture::Other("arm64_mac".to_owned())];
    world.types.insert(name, Arc::new(InstanceTypeFacts { architectures, ..facts.as_ref().clone() }));
    let (settings, marks) = (NodeSettings::default(), Marks::default());
    let exhaustion = Exhaustion { marks: &marks, requests: &[], now: Timestamp::UNIX_EPOCH };
    let catalog = world.catalog();
    assert_eq!(catalog.options(&settings, Places::AllZones, exhaustion), []);
    assert_eq!(catalog.described(&settings, Places::AllZones, exhaustion).len(), 1);
}
