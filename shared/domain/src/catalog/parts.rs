//! The parts of the catalogue, and their join into the options for a class.
//!
//! Decides a type's offerings: one for each zone that offers it and each of its capacity types, with the price, or
//! the reason why it is unavailable. It doesn't decide freshness: the caller passes only fresh parts.
//!
//! Invariants: options are sorted by name; a type is offered only in zones that EC2 names; an unknown price is
//! `None`, never a guess.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use crate::catalog::facts::{InstanceTypeFacts, UsageClass};
use crate::catalog::learned::LearnedOf;
use crate::catalog::offering::{Availability, CapacityType, Offering, Unavailability};
use crate::catalog::option::{InstanceTypeOption, Surroundings};
use crate::catalog::settings::NodeSettings;
use crate::class_status::ClassSubnet;
use crate::evidence::{CatalogPart, Ready};
use crate::id::{InstanceType, Region, Zone, ZoneId};
use crate::money::UsdPerHour;
use crate::unavailable::{Blocking, Marks, OfferingKey, RequestDigest, UnavailableKey, WantedOffering};

/// One part's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartData {
    /// The answers of DescribeInstanceTypes, by type.
    InstanceTypes(BTreeMap<InstanceType, Arc<InstanceTypeFacts>>),
    /// The zones that offer each type.
    Offerings(ZoneOfferings),
    /// Prices by type.
    OnDemandPrices(BTreeMap<InstanceType, UsdPerHour>),
    /// Prices by type and zone.
    SpotPrices(BTreeMap<InstanceType, BTreeMap<Zone, UsdPerHour>>),
}

/// Which zones offer which types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneOfferings {
    /// The region's zones, by name.
    pub zones: BTreeMap<Zone, ZoneId>,
    /// Zones by type.
    pub offered: BTreeMap<InstanceType, BTreeSet<Zone>>,
}

impl PartData {
    /// Which part it is.
    #[must_use]
    pub const fn part(&self) -> CatalogPart {
        match self {
            Self::InstanceTypes(_) => CatalogPart::InstanceTypes,
            Self::Offerings(_) => CatalogPart::Offerings,
            Self::OnDemandPrices(_) => CatalogPart::OnDemandPrices,
            Self::SpotPrices(_) => CatalogPart::SpotPrices,
        }
    }

    /// The number of types in it.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::InstanceTypes(types) => types.len(),
            Self::Offerings(offerings) => offerings.offered.len(),
            Self::OnDemandPrices(prices) => prices.len(),
            Self::SpotPrices(prices) => prices.len(),
        }
    }
}

/// Spot prices, by type and zone.
pub type SpotPrices = BTreeMap<InstanceType, BTreeMap<Zone, UsdPerHour>>;

/// Fresh parts of the catalogue. A price list may be missing if a plan can do without; its offerings are unavailable
/// then. An offering without a price in its list is available, and ranks last.
#[derive(Debug, Clone)]
pub struct Catalog<'a> {
    /// The region.
    pub region: &'a Region,
    /// The answers of DescribeInstanceTypes.
    pub types: Ready<&'a BTreeMap<InstanceType, Arc<InstanceTypeFacts>>>,
    /// The zones that offer each type.
    pub offerings: Ready<&'a ZoneOfferings>,
    /// On-demand prices.
    pub on_demand: Option<Ready<&'a BTreeMap<InstanceType, UsdPerHour>>>,
    /// Spot prices by zone.
    pub spot: Option<Ready<&'a SpotPrices>>,
    /// Learned memory; the estimate holds for all else.
    pub learned: LearnedOf<'a>,
}

/// Where nodes of a class can be.
#[derive(Debug, Clone, Copy)]
pub enum Places<'a> {
    /// In every zone of the region: the class's subnets aren't known.
    AllZones,
    /// In the zones of its subnets.
    Subnets(&'a [ClassSubnet]),
}

impl Places<'_> {
    /// Whether nodes can be in a zone, apart from marks and zonal shifts.
    fn with_subnet(self, zone: &Zone) -> Availability {
        match self {
            Self::Subnets(subnets) if subnets.iter().all(|subnet| subnet.zone != *zone) => {
                Availability::Unavailable(Unavailability::NoSubnet)
            }
            Self::AllZones | Self::Subnets(_) => Availability::Available,
        }
    }
}

/// Nodes of a class: their settings and their zones.
#[derive(Debug, Clone, Copy)]
pub struct ClassNodes<'a> {
    /// Their settings.
    pub settings: &'a NodeSettings,
    /// Their places.
    pub places: Places<'a>,
}

/// Marks, as they apply to a class at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Exhaustion<'a> {
    /// The region's marks.
    pub marks: &'a Marks,
    /// Identities of the requests for the class's nodes.
    pub requests: &'a [RequestDigest],
    /// The moment.
    pub now: Timestamp,
}

impl Exhaustion<'_> {
    fn of_offering(&self, offering: &OfferingKey, vcpus: u32) -> Availability {
        let wanted = WantedOffering { requests: self.requests, ..WantedOffering::new(offering, vcpus) };
        self.marks
            .blocking(&wanted, self.now)
            .map_or(Availability::Available, |blocking| exhausted(&blocking))
    }
}

/// A mark holds until a launch gets its capacity; once it is due, only a probe may ask.
const fn exhausted(blocking: &Blocking) -> Availability {
    let Blocking { until, last_resort_at, .. } = *blocking;
    Availability::Unavailable(Unavailability::Exhausted { until, last_resort_at })
}

impl Catalog<'_> {
    /// The options for a class, by name, without types that no zone offers or no node can use.
    #[must_use]
    pub fn options(
        &self,
        settings: &NodeSettings,
        places: Places<'_>,
        exhaustion: Exhaustion<'_>,
    ) -> Vec<InstanceTypeOption> {
        let mut options = self.described(settings, places, exhaustion);
        options.retain(|option| option.facts.is_for_nodes());
        options
    }

    /// The same with types that no node can use: for people, never for a plan.
    #[must_use]
    pub fn described(
        &self,
        settings: &NodeSettings,
        places: Places<'_>,
        exhaustion: Exhaustion<'_>,
    ) -> Vec<InstanceTypeOption> {
        let nodes = ClassNodes { settings, places };
        let mut options = self.unmarked(nodes);
        self.mark(&mut options, nodes, exhaustion);
        options
    }

    /// The same as of a region without marks and zonal shifts. It depends on neither the time nor the subnets, except
    /// for their zones, so it can be kept.
    #[must_use]
    pub fn unmarked(&self, nodes: ClassNodes<'_>) -> Vec<InstanceTypeOption> {
        let ClassNodes { settings, places } = nodes;
        let zones: BTreeMap<&Zone, (&ZoneId, Availability)> =
            self.offerings.zones.iter().map(|(zone, id)| (zone, (id, places.with_subnet(zone)))).collect();
        self.types
            .values()
            .filter_map(|facts| {
                let offered = self.offerings.offered.get(&facts.name)?;
                let offerings = self.offerings_of(facts, offered, &zones);
                let surroundings = Surroundings { region: self.region, learned: self.learned.memory(facts) };
                Some(InstanceTypeOption::new(Arc::clone(facts), settings, surroundings, offerings))
            })
            .collect()
    }

    /// Applies marks and zonal shifts to options that have no reservations yet. Earlier marks on them leave no trace.
    pub fn mark(
        &self,
        options: &mut [InstanceTypeOption],
        nodes: ClassNodes<'_>,
        exhaustion: Exhaustion<'_>,
    ) {
        let zones = self.zones(nodes.places, exhaustion);
        for option in options {
            let facts = Arc::clone(&option.facts);
            option.judge(nodes.settings, |offering| {
                let Some((zone_id, place)) = zones.get(&offering.zone) else {
                    return Availability::Unavailable(Unavailability::NotOffered);
                };
                self.availability(offering.capacity_type, place, || {
                    let key = OfferingKey {
                        capacity_type: offering.capacity_type,
                        zone_id: (*zone_id).clone(),
                        instance_type: facts.name.clone(),
                    };
                    exhaustion.of_offering(&key, facts.vcpus)
                })
            });
        }
    }

    /// The region's zones, with the reason where a class can't be in one.
    pub(super) fn zones(
        &self,
        places: Places<'_>,
        exhaustion: Exhaustion<'_>,
    ) -> BTreeMap<&Zone, (&ZoneId, Availability)> {
        let availability = |zone: &Zone| match places {
            Places::AllZones => Availability::Available,
            Places::Subnets(subnets) => subnets_of(zone, subnets, exhaustion),
        };
        self.offerings.zones.iter().map(|(zone, id)| (zone, (id, availability(zone)))).collect()
    }

    fn offerings_of(
        &self,
        facts: &InstanceTypeFacts,
        offered: &BTreeSet<Zone>,
        zones: &BTreeMap<&Zone, (&ZoneId, Availability)>,
    ) -> Vec<Offering> {
        let capacity_types =
            [(CapacityType::Spot, UsageClass::Spot), (CapacityType::OnDemand, UsageClass::OnDemand)];
        let bought = capacity_types.into_iter().filter(|(_, class)| facts.usage_classes.contains(class));
        let mut offerings = Vec::new();
        for (capacity_type, _) in bought {
            for (zone, (zone_id, place)) in zones.iter().filter(|(zone, _)| offered.contains(**zone)) {
                offerings.push(Offering {
                    zone: (*zone).clone(),
                    zone_id: (*zone_id).clone(),
                    capacity_type,
                    reservation: None,
                    price: self.price(&facts.name, zone, capacity_type),
                    availability: self.availability(capacity_type, place, || Availability::Available),
                });
            }
        }
        offerings
    }

    /// Whether an offering of a place is available, and under the marks if nothing else is in the way.
    fn availability(
        &self,
        capacity_type: CapacityType,
        place: &Availability,
        marks: impl FnOnce() -> Availability,
    ) -> Availability {
        if place.is_lasting() {
            place.clone()
        } else if self.is_priced(capacity_type) {
            place.clone().and(marks())
        } else {
            Availability::Unavailable(Unavailability::PriceUnknown)
        }
    }

    pub(super) fn price(
        &self,
        name: &InstanceType,
        zone: &Zone,
        capacity_type: CapacityType,
    ) -> Option<UsdPerHour> {
        match capacity_type {
            CapacityType::OnDemand | CapacityType::Reserved => self.on_demand.as_ref()?.get(name).copied(),
            CapacityType::Spot => self.spot.as_ref()?.get(name)?.get(zone).copied(),
        }
    }

    /// Whether there are prices of that kind at all.
    const fn is_priced(&self, capacity_type: CapacityType) -> bool {
        match capacity_type {
            CapacityType::OnDemand | CapacityType::Reserved => self.on_demand.is_some(),
            CapacityType::Spot => self.spot.is_some(),
        }
    }
}

/// Whether a class has a subnet with addresses in the zone, and the zone is in service.
fn subnets_of(zone: &Zone, subnets: &[ClassSubnet], exhaustion: Exhaustion<'_>) -> Availability {
    let here = || subnets.iter().filter(|subnet| subnet.zone == *zone);
    // A shift is a zone's, so all subnets in it are shifted or none is.
    if here().any(|subnet| subnet.is_shifted(exhaustion.now)) {
        return Availability::Unavailable(Unavailability::ZoneShifted);
    }
    let blocking = |subnet: &ClassSubnet| {
        let key = UnavailableKey::Subnet(subnet.id.clone());
        exhaustion.marks.blocking_key(&key, exhaustion.now)
    };
    // The one that has addresses first is the zone's; one that isn't marked has some.
    let first = here().map(blocking).min_by_key(|blocking| blocking.as_ref().map(|blocking| blocking.until));
    match first {
        None => Availability::Unavailable(Unavailability::NoSubnet),
        Some(None) => Availability::Available,
        Some(Some(blocking)) => exhausted(&blocking),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::describe::{InstanceTypeInfo, Limits, facts};
    use crate::catalog::facts::Architecture;
    use crate::evidence::require;
    use crate::id::{ClusterName, SubnetId};
    use crate::unavailable::Mark;
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
            offerings: ZoneOfferings {
                zones: zones.into(),
                offered: BTreeMap::from([(name.clone(), offered)]),
            },
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
}
