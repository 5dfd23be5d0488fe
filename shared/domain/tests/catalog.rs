//! Labels and resources of instance types, with the values of aws/karpenter-provider-aws
//! `pkg/providers/instancetype/suite_test.go`.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]
#![expect(clippy::panic, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::catalog::node_labels::requirements;
use tenon_domain::catalog::settings::{
    BlockDevice, ConnectionTracking, EbsVolume, EvictionThreshold, InstanceStorePolicy, InterfaceType,
    KubeletConfiguration, MIB, NestedVirtualization, NetworkInterface, Reserved,
};
use tenon_domain::catalog::{
    AmiFamily, Availability, CapacityType, Incompatibility, InstanceTypeFacts, InstanceTypeOption,
    NodeSettings, NodeShape, Offering, Surroundings, Unavailability, compatibility, node_shape,
};
use tenon_domain::id::{Region, Zone, ZoneId};
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::placement::ResolvedPlacementGroup;
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::{Requirement, Requirements, UndefinedKeys};
use tenon_domain::resources::{ResourceList, ResourceName};

const DESCRIBED: &[u8] = include_bytes!("../../ec2/data/instance-types.json.gz");
const ENI_LIMITS: &str = include_str!("../../ec2/data/eni-limits.json");
const BANDWIDTH: &str = include_str!("../../ec2/data/network-bandwidth-mbps.json");

static FACTS: LazyLock<BTreeMap<String, Arc<InstanceTypeFacts>>> = LazyLock::new(|| {
    let described: Vec<InstanceTypeInfo> = serde_json::from_str(&unpacked(DESCRIBED)).unwrap();
    let limits = Limits::parse(ENI_LIMITS, BANDWIDTH).unwrap();
    let known = |info: &InstanceTypeInfo| facts(info, &limits).unwrap();
    described.iter().map(known).map(|facts| (facts.name.to_string(), Arc::new(facts))).collect()
});

fn unpacked(gzip: &[u8]) -> String {
    let mut text = String::new();
    flate2::read::GzDecoder::new(gzip).read_to_string(&mut text).unwrap();
    text
}

fn of(name: &str) -> &'static Arc<InstanceTypeFacts> {
    FACTS.get(name).unwrap_or_else(|| panic!("`{name}` isn't described"))
}

fn settings(ami_family: AmiFamily) -> NodeSettings {
    NodeSettings { ami_family, ..NodeSettings::default() }
}

fn with_kubelet(kubelet: KubeletConfiguration) -> NodeSettings {
    NodeSettings { kubelet, ..NodeSettings::default() }
}

fn shape(name: &str, settings: &NodeSettings) -> NodeShape {
    node_shape(of(name), settings, None)
}

fn quantity(text: &str) -> Quantity {
    Quantity::parse(text).unwrap()
}

fn nic(network_card_index: u32, device_index: u32, interface_type: InterfaceType) -> NetworkInterface {
    NetworkInterface { network_card_index, device_index, interface_type }
}

fn volume(device_name: &str, size: &str) -> BlockDevice {
    BlockDevice {
        device_name: Some(device_name.to_owned()),
        root_volume: false,
        ebs: Some(EbsVolume { size: Some(quantity(size)), ..EbsVolume::default() }),
    }
}

#[test]
fn every_described_type_has_facts_and_all_keys() {
    assert_eq!(FACTS.len(), 1395);
    let keys =
        |name: &str, family| requirements(of(name), family).keys().map(str::to_owned).collect::<Vec<_>>();
    let expected = keys("m5.large", AmiFamily::Al2023);
    for name in FACTS.keys() {
        assert_eq!(keys(name, AmiFamily::Windows2022), expected, "{name}");
    }
}

#[test]
fn c029_allocatable_is_at_most_what_kubelets_report() {
    for (name, memory, cpu) in [
        ("t4g.small", "1408312Ki", "1930m"),
        ("t4g.medium", "3377496Ki", "1930m"),
        ("t4g.xlarge", "15136012Ki", "3920m"),
        ("m5.large", "7220184Ki", "1930m"),
    ] {
        let allocatable = shape(name, &settings(AmiFamily::Al2)).allocatable.resources();
        assert!(allocatable.get(&ResourceName::MEMORY) <= quantity(memory), "{name}");
        assert!(allocatable.get(&ResourceName::CPU) <= quantity(cpu), "{name}");
    }
    let m5 = shape("m5.large", &NodeSettings::default()).allocatable;
    assert_eq!((m5.memory_bytes / MIB, m5.cpu_millis, m5.pods), (6903, 1930, 29));
    assert_eq!(shape("m6g.large", &NodeSettings::default()).allocatable.memory_bytes / MIB, 6844);
}

#[test]
fn c031_eviction_hard_is_set_aside_and_eviction_soft_is_not() {
    let memory = |family, eviction_memory| {
        let kubelet = KubeletConfiguration { eviction_memory, ..KubeletConfiguration::default() };
        shape("m5.xlarge", &NodeSettings { kubelet, ..settings(family) })
    };
    let set = |text| Some(EvictionThreshold::Quantity(quantity(text)));
    let share = EvictionThreshold::parse_percentage;
    for family in AmiFamily::ALL {
        let unset = memory(family, None);
        assert_eq!(unset.eviction.memory_bytes, 100 * MIB, "{family}");
        let capacity = unset.capacity.memory_bytes;
        for (given, expected) in [
            (set("500Mi"), 500 * MIB),
            (set("1Gi"), 1024 * MIB),
            (share("10%"), capacity.div_ceil(10)),
            (share("100%"), 0),
        ] {
            assert_eq!(memory(family, given).eviction.memory_bytes, expected, "{family} {given:?}");
        }
    }
    assert_eq!(shape("m5.xlarge", &NodeSettings::default()).eviction.ephemeral_storage_bytes, 2048 * MIB);
}

#[test]
fn c032_pods_are_bounded_by_interfaces_or_max_pods() {
    let plain = NodeSettings::default();
    assert_eq!(shape("t3.large", &plain).capacity.pods, 35);
    assert_eq!(shape("m6idn.32xlarge", &plain).capacity.pods, 394);
    for family in AmiFamily::ALL {
        let kubelet = KubeletConfiguration { max_pods: Some(10), ..KubeletConfiguration::default() };
        let settings = NodeSettings { kubelet, ..settings(family) };
        for name in ["t3.large", "m6idn.32xlarge", "t4g.small"] {
            assert_eq!(shape(name, &settings).capacity.pods, 10, "{family} {name}");
        }
    }
}

#[test]
fn c034_reserved_interfaces_take_pods_and_only_where_they_count_memory() {
    for (family, pods, memory_mib) in [
        (AmiFamily::Al2, 24, 640),
        (AmiFamily::Al2023, 24, 640),
        (AmiFamily::Custom, 24, 640),
        (AmiFamily::Bottlerocket, 24, 519),
        (AmiFamily::Windows2019, 110, 1465),
        (AmiFamily::Windows2022, 110, 1465),
        (AmiFamily::Windows2025, 110, 1465),
    ] {
        let shape = shape("t3.large", &NodeSettings { reserved_enis: 1, ..settings(family) });
        assert_eq!(
            (shape.capacity.pods, shape.kube_reserved.memory_bytes / MIB),
            (pods, memory_mib),
            "{family}"
        );
    }
    let all_reserved = NodeSettings { reserved_enis: 1_000_000, ..NodeSettings::default() };
    assert_eq!(shape("t3.large", &all_reserved).capacity.pods, 0);
}

#[test]
fn c035_pods_per_core_is_another_bound_but_on_bottlerocket() {
    let pods = |name, family, pods_per_core, max_pods| {
        let kubelet = KubeletConfiguration {
            pods_per_core: Some(pods_per_core),
            max_pods,
            ..KubeletConfiguration::default()
        };
        shape(name, &NodeSettings { kubelet, ..settings(family) }).capacity.pods
    };
    for (name, facts) in FACTS.iter() {
        let unbounded = pods(name, AmiFamily::Al2023, 0, None);
        let vcpus = u64::from(facts.vcpus);
        assert_eq!(unbounded, shape(name, &NodeSettings::default()).capacity.pods, "{name}");
        assert_eq!(pods(name, AmiFamily::Al2023, 1, None), vcpus.min(unbounded), "{name}");
        assert_eq!(pods(name, AmiFamily::Al2023, 4, Some(20)), (4 * vcpus).min(20), "{name}");
        assert_eq!(pods(name, AmiFamily::Bottlerocket, 1, None), unbounded, "{name}");
    }
}

#[test]
fn c037_raid0_makes_ephemeral_storage_of_the_hosts_disks() {
    let fits = |policy| {
        let settings = NodeSettings { instance_store_policy: policy, ..NodeSettings::default() };
        let asked = ResourceList::new().with(ResourceName::EPHEMERAL_STORAGE, quantity("5000Gi"));
        let capacity = shape("m6idn.32xlarge", &settings).capacity.resources();
        (asked.fits(&capacity), capacity.get(&ResourceName::EPHEMERAL_STORAGE).to_string())
    };
    assert_eq!(fits(None), (false, "20Gi".to_owned()));
    assert_eq!(fits(Some(InstanceStorePolicy::Raid0)), (true, "7600G".to_owned()));
}

#[test]
fn c038_types_that_cannot_do_what_the_class_asks_are_incompatible() {
    for family in AmiFamily::ALL {
        let expected = match family {
            AmiFamily::Al2023 => Err(Incompatibility::ImageNotBootable),
            AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
                Err(Incompatibility::NoWindowsImage)
            }
            AmiFamily::Al2 | AmiFamily::Bottlerocket | AmiFamily::Custom => Ok(()),
        };
        assert_eq!(compatibility(of("a1.large"), &settings(family)), expected, "{family}");
        assert_eq!(compatibility(of("m5.large"), &settings(family)), Ok(()), "{family}");
    }
    let nested = |value| NodeSettings { nested_virtualization: Some(value), ..NodeSettings::default() };
    for (name, facts) in FACTS.iter().filter(|(name, _)| !name.starts_with("a1.")) {
        let able = facts.processor.features.iter().any(|feature| feature == "nested-virtualization");
        let expected = if able { Ok(()) } else { Err(Incompatibility::NoNestedVirtualization) };
        assert_eq!(compatibility(facts, &nested(NestedVirtualization::Enabled)), expected, "{name}");
        assert_eq!(compatibility(facts, &nested(NestedVirtualization::Disabled)), Ok(()), "{name}");
    }
    let tracking =
        NodeSettings { connection_tracking: Some(ConnectionTracking::default()), ..NodeSettings::default() };
    assert_eq!(compatibility(of("m5.large"), &tracking), Ok(()));
    assert_eq!(compatibility(of("m4.large"), &tracking), Err(Incompatibility::NoConnectionTracking));
    let cluster = NodeSettings {
        placement: Some(ResolvedPlacementGroup {
            id: "pg-1".parse().unwrap(),
            name: "near".to_owned(),
            strategy: PlacementStrategy::Cluster,
            partitions: None,
        }),
        ..NodeSettings::default()
    };
    assert_eq!(compatibility(of("m5.large"), &cluster), Ok(()));
    assert_eq!(
        compatibility(of("t3.large"), &cluster),
        Err(Incompatibility::PlacementStrategy(PlacementStrategy::Cluster))
    );
}

#[test]
fn network_interfaces_have_to_fit_the_types_cards() {
    let check = |name: &str, extra: Vec<NetworkInterface>, expected| {
        let mut network_interfaces = vec![nic(0, 0, InterfaceType::Interface)];
        network_interfaces.extend(extra);
        let settings = NodeSettings { network_interfaces, ..NodeSettings::default() };
        assert_eq!(compatibility(of(name), &settings), expected, "{name}");
    };
    check("m5.large", vec![], Ok(()));
    check("m5.large", vec![nic(0, 2, InterfaceType::Interface)], Ok(()));
    check(
        "m5.large",
        vec![nic(0, 3, InterfaceType::Interface)],
        Err(Incompatibility::NoSuchDevice { card: 0, device: 3 }),
    );
    check(
        "m5.large",
        vec![nic(1, 0, InterfaceType::Interface)],
        Err(Incompatibility::NoSuchNetworkCard { card: 1 }),
    );
    check(
        "m5.large",
        vec![nic(0, 1, InterfaceType::EfaOnly)],
        Err(Incompatibility::TooManyEfaInterfaces { wanted: 1, supported: 0 }),
    );
    check("m6idn.32xlarge", vec![nic(1, 0, InterfaceType::EfaOnly)], Ok(()));
    check("m3.large", vec![], Err(Incompatibility::NoNetworkAdapter));
}

#[test]
fn c041_efa_only_interfaces_take_addresses_from_their_card_only() {
    let shape_with = |card, device| {
        let network_interfaces =
            vec![nic(0, 0, InterfaceType::Interface), nic(card, device, InterfaceType::EfaOnly)];
        shape("m6idn.32xlarge", &NodeSettings { network_interfaces, ..NodeSettings::default() })
    };
    assert_eq!(shape_with(1, 0).capacity.pods, 394);
    assert_eq!(shape_with(0, 1).capacity.pods, 345);
    assert_eq!(shape_with(1, 0).capacity.devices.efa, 1);
}

#[test]
fn ephemeral_storage_is_that_of_the_device_that_the_kubelet_uses() {
    let check = |family, block_devices: Vec<BlockDevice>, expected: &str| {
        let settings = NodeSettings { block_devices, ..settings(family) };
        let storage = shape("m5.large", &settings).capacity.resources().get(&ResourceName::EPHEMERAL_STORAGE);
        assert_eq!(storage.to_string(), expected, "{family}");
    };
    check(AmiFamily::Al2023, vec![], "20Gi");
    check(AmiFamily::Bottlerocket, vec![], "20Gi");
    check(AmiFamily::Windows2022, vec![], "50Gi");
    check(AmiFamily::Custom, vec![], "20Gi");
    check(AmiFamily::Al2023, vec![volume("/dev/xvda", "100Gi"), volume("/dev/xvdb", "200Gi")], "100Gi");
    check(AmiFamily::Bottlerocket, vec![volume("/dev/xvda", "100Gi"), volume("/dev/xvdb", "200Gi")], "200Gi");
    check(AmiFamily::Custom, vec![volume("/dev/xvda", "100Gi"), volume("/dev/xvdb", "200G")], "200G");
    check(AmiFamily::Al2, vec![volume("/dev/other", "100Gi")], "20Gi");
    let root = BlockDevice { root_volume: true, ..volume("/dev/other", "70Gi") };
    check(AmiFamily::Al2, vec![volume("/dev/xvda", "100Gi"), root], "70Gi");
}

#[test]
fn reserved_resources_replace_the_computed_ones_key_by_key() {
    let kube_reserved = Reserved { cpu: Some(quantity("200m")), ..Reserved::default() };
    let system_reserved = Reserved { memory: Some(quantity("1Gi")), ..Reserved::default() };
    let shape = shape(
        "m5.large",
        &with_kubelet(KubeletConfiguration {
            kube_reserved,
            system_reserved,
            ..KubeletConfiguration::default()
        }),
    );
    assert_eq!(shape.allocatable.cpu_millis, 1800);
    assert_eq!(shape.allocatable.memory_bytes / MIB, 6903 - 1024);
    let everything = Reserved { memory: Some(quantity("1Ti")), ..Reserved::default() };
    let none_left =
        with_kubelet(KubeletConfiguration { system_reserved: everything, ..KubeletConfiguration::default() });
    assert_eq!(self::shape("m5.large", &none_left).allocatable.memory_bytes, 0);
}

#[test]
fn learned_memory_replaces_the_estimate() {
    let learned = tenon_domain::catalog::LearnedMemory(7800 * MIB);
    let shape = node_shape(of("m5.large"), &NodeSettings::default(), Some(learned));
    assert_eq!(shape.capacity.memory_bytes / MIB, 7800);
    assert_eq!(shape.allocatable.memory_bytes / MIB, 7800 - 574 - 100);
}

#[test]
fn windows_needs_amd64() {
    let os = |name, family| {
        requirements(of(name), family).get(labels::OS).unwrap().single_value().map(str::to_owned)
    };
    assert_eq!(os("m5.large", AmiFamily::Windows2025).as_deref(), Some("windows"));
    assert_eq!(os("m6g.large", AmiFamily::Windows2025), None);
    assert_eq!(os("m6g.large", AmiFamily::Bottlerocket).as_deref(), Some("linux"));
}

fn offering(zone: &str, capacity_type: CapacityType, price: &str, availability: Availability) -> Offering {
    Offering {
        zone: Zone::parse(format!("us-east-1{zone}")).unwrap(),
        zone_id: ZoneId::parse(format!("use1-az-{zone}")).unwrap(),
        capacity_type,
        reservation: None,
        price: Some(UsdPerHour::parse(price).unwrap()),
        availability,
    }
}

fn option(name: &str, settings: &NodeSettings, offerings: Vec<Offering>) -> InstanceTypeOption {
    let region = Region::parse("us-east-1").unwrap();
    InstanceTypeOption::new(
        Arc::clone(of(name)),
        settings,
        Surroundings { region: &region, learned: None },
        offerings,
    )
}

#[test]
fn nodes_of_a_placement_group_have_its_id_and_one_of_its_partitions() {
    let labels = |strategy: Option<PlacementStrategy>| {
        let placement = strategy.map(|strategy| ResolvedPlacementGroup {
            id: "pg-1".parse().unwrap(),
            name: "apart".to_owned(),
            strategy,
            partitions: (strategy == PlacementStrategy::Partition).then_some(3),
        });
        let settings = NodeSettings { placement, ..NodeSettings::default() };
        let labels = option("m5.large", &settings, Vec::new()).labels;
        let allows = |key: &str, values: &[&str]| -> Vec<bool> {
            values.iter().map(|value| labels.allows(key, value)).collect()
        };
        (
            allows(labels::PLACEMENT_GROUP_ID, &["pg-1", "pg-2"]),
            allows(labels::PLACEMENT_GROUP_PARTITION, &["1", "3", "4"]),
        )
    };
    assert_eq!(labels(None), (vec![false, false], vec![false; 3]));
    assert_eq!(labels(Some(PlacementStrategy::Spread)), (vec![true, false], vec![false; 3]));
    assert_eq!(labels(Some(PlacementStrategy::Partition)), (vec![true, false], vec![true, true, false]));
}

fn four_offerings() -> Vec<Offering> {
    let (available, gone) = (Availability::Available, |why| Availability::Unavailable(why));
    let until = tenon_domain::Timestamp::UNIX_EPOCH;
    let exhausted = Unavailability::Exhausted { until, last_resort_at: until };
    vec![
        offering("c", CapacityType::Spot, "0.01", gone(exhausted)),
        offering("b", CapacityType::OnDemand, "0.096", available.clone()),
        offering("a", CapacityType::Spot, "0.04", available.clone()),
        offering("b", CapacityType::Spot, "0.03", available),
        offering("d", CapacityType::Spot, "0.001", gone(Unavailability::NoSubnet)),
    ]
}

#[test]
fn the_cheapest_offering_is_one_that_can_be_had_and_is_asked_for() {
    let option = option("m5.large", &NodeSettings::default(), four_offerings());
    let check = |asked: Vec<Requirement>, expected: Option<(&str, CapacityType)>| {
        let asked: Requirements = asked.into_iter().collect();
        let found = option.cheapest(&asked).map(|(_, found)| (found.zone.as_str(), found.capacity_type));
        assert_eq!(found, expected, "{asked}");
    };
    check(vec![], Some(("us-east-1b", CapacityType::Spot)));
    check(vec![Requirement::one_of(labels::ZONE, ["us-east-1a"])], Some(("us-east-1a", CapacityType::Spot)));
    check(
        vec![Requirement::none_of(labels::CAPACITY_TYPE, ["spot"])],
        Some(("us-east-1b", CapacityType::OnDemand)),
    );
    check(vec![Requirement::one_of(labels::ZONE, ["us-east-1c"])], None);
    check(vec![Requirement::one_of(labels::CAPACITY_RESERVATION_ID, ["cr-1"])], None);
    check(
        vec![Requirement::does_not_exist(labels::CAPACITY_RESERVATION_ID)],
        Some(("us-east-1b", CapacityType::Spot)),
    );
}

#[test]
fn zones_without_a_subnet_are_not_among_the_labels_and_exhausted_ones_are() {
    let option = option("m5.large", &NodeSettings::default(), four_offerings());
    let zones = option.labels.get(labels::ZONE).unwrap();
    assert_eq!(
        zones.values().iter().map(String::as_str).collect::<Vec<_>>(),
        ["us-east-1a", "us-east-1b", "us-east-1c"]
    );
    let gpu: Requirements = [Requirement::exists(labels::INSTANCE_GPU_NAME)].into_iter().collect();
    assert!(!option.labels.is_compatible(&gpu, UndefinedKeys::WellKnownAreOpen));
    let spot: Requirements = [Requirement::one_of(labels::CAPACITY_TYPE, ["spot"])].into_iter().collect();
    assert!(option.labels.is_compatible(&spot, UndefinedKeys::Absent));
}

#[test]
fn an_incompatible_type_keeps_its_offerings_with_the_reason() {
    let option = option("a1.large", &NodeSettings::default(), four_offerings());
    assert_eq!(option.offerings.len(), 5);
    assert!(option.cheapest(&Requirements::new()).is_none());
    let reasons = option.offerings.iter().map(|offering| match &offering.availability {
        Availability::Available => "Available",
        Availability::Unavailable(why) => why.into_str(),
    });
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        ["Incompatible", "Incompatible", "Incompatible", "Exhausted", "NoSubnet"]
    );
}

#[test]
fn a_type_of_another_family_keeps_its_offerings_and_what_rules_them_out_for_good() {
    let mut option = option("m5.large", &NodeSettings::default(), four_offerings());
    let prices = |option: &InstanceTypeOption| {
        option.offerings.iter().map(|offering| offering.price).collect::<Vec<_>>()
    };
    let before = prices(&option);
    for _ in 0..2 {
        option.disallow_family();
        assert_eq!(prices(&option), before);
        assert!(option.cheapest(&Requirements::new()).is_none());
        let reasons = option.offerings.iter().map(|offering| match &offering.availability {
            Availability::Available => "Available",
            Availability::Unavailable(why) => why.into_str(),
        });
        let not = "FamilyNotAllowed";
        assert_eq!(reasons.collect::<Vec<_>>(), [not, not, not, not, "NoSubnet"]);
    }
}

/// The bound is loose enough for a busy machine and any profile: it catches work that grows with the square.
#[test]
#[expect(clippy::disallowed_methods, reason = "the subject of this test is time")]
fn all_options_are_computed_quickly() {
    let settings = NodeSettings::default();
    let offerings: Vec<_> = FACTS.keys().map(|_| four_offerings()).collect();
    let started = Instant::now();
    let options: Vec<_> =
        FACTS.keys().zip(offerings).map(|(name, offerings)| option(name, &settings, offerings)).collect();
    let elapsed = started.elapsed();
    println!("{} options in {elapsed:?}", options.len());
    assert!(elapsed.as_millis() < 1000, "{elapsed:?}");
}

#[test]
fn the_volumes_that_pods_may_attach_are_those_that_the_csi_driver_will_report() {
    let check = |name: &str, settings: &NodeSettings, expected: u32| {
        assert_eq!(option(name, settings, Vec::new()).ebs_volumes, Some(expected), "{name}");
    };
    let default = NodeSettings::default();
    // 27 besides the first interface, of which the second one and the root volume take one each.
    check("m5.large", &default, 25);
    // A limit of their own: only the root volume is taken off.
    check("m7i.large", &default, 31);
    check("m7i.48xlarge", &default, 127);
    check("m4.large", &default, 38);
    check("m5.large", &settings(AmiFamily::Bottlerocket), 24);
    let three = vec![BlockDevice::default(), BlockDevice::default(), BlockDevice::default()];
    check("m5.large", &NodeSettings { block_devices: three, ..NodeSettings::default() }, 23);
}
