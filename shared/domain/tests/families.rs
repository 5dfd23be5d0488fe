//! Families of instance types that Karpenter's reference lacks, or lacks in this size: labels and resources by the
//! rules alone.
//!
//! The rows are computed from EC2's descriptions: pods are (interfaces of the default card) x (addresses - 1) + 2;
//! memory is the stated memory less 7.5 % overhead, rounded up to a MiB.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, LazyLock};

use proptest::option;
use proptest::prelude::*;
use tenon_domain::catalog::describe::{InstanceTypeInfo, Limits, facts};
use tenon_domain::catalog::node_labels::{labels_of_type, published_labels, requirements};
use tenon_domain::catalog::settings::{
    BlockDevice, EbsVolume, EvictionThreshold, InstanceStorePolicy, InterfaceType, KubeletConfiguration, MIB,
    NetworkInterface, PartsPerMillion, Reserved,
};
use tenon_domain::catalog::{
    AmiFamily, Availability, CapacityType, Incompatibility, InstanceTypeFacts, InstanceTypeOption,
    LearnedMemory, NodeSettings, Offering, Surroundings, compatibility, node_shape,
};
use tenon_domain::id::{Region, Zone, ZoneId};
use tenon_domain::labels;
use tenon_domain::quantity::{Format, Quantity};
use tenon_domain::requirement::Requirement;

static FACTS: LazyLock<BTreeMap<String, Arc<InstanceTypeFacts>>> = LazyLock::new(|| {
    let mut text = String::new();
    let described = include_bytes!("../../ec2/data/instance-types.json.gz").as_slice();
    flate2::read::GzDecoder::new(described).read_to_string(&mut text).unwrap();
    let described: Vec<InstanceTypeInfo> = serde_json::from_str(&text).unwrap();
    let limits = Limits::parse(
        include_str!("../../ec2/data/eni-limits.json"),
        include_str!("../../ec2/data/network-bandwidth-mbps.json"),
    );
    let limits = limits.unwrap();
    let known = |info: &InstanceTypeInfo| facts(info, &limits).unwrap();
    described.iter().map(known).map(|facts| (facts.name.to_string(), Arc::new(facts))).collect()
});

fn of(name: &str) -> &'static Arc<InstanceTypeFacts> {
    FACTS.get(name).unwrap()
}

/// `capacity` without storage, which depends on the class, as `name=quantity`, sorted by name.
fn capacity(name: &str, settings: &NodeSettings) -> String {
    let capacity = node_shape(of(name), settings, None).capacity.resources();
    let shown = capacity.iter().filter(|(name, _)| name.as_str() != "ephemeral-storage");
    shown.map(|(name, quantity)| format!("{name}={quantity}")).collect::<Vec<_>>().join(" ")
}

/// Of `karpenter.k8s.aws/`, or else whole.
fn label(name: &str, key: &str) -> String {
    let labels = published_labels(of(name), AmiFamily::Al2023);
    let found = labels.get(format!("karpenter.k8s.aws/{key}").as_str()).or_else(|| labels.get(key));
    found.map_or("-", String::as_str).to_owned()
}

#[test]
fn resources_follow_from_the_description() {
    for (name, expected) in [
        // Neuron: devices and their cores; EC2 describes Inferentia twice, as an accelerator too.
        (
            "inf2.xlarge",
            "aws.amazon.com/neuron=1 aws.amazon.com/neuroncore=2 cpu=4 memory=15155Mi pods=58 vpc.amazonaws.com/pod-eni=18",
        ),
        (
            "trn1n.32xlarge",
            "aws.amazon.com/neuron=16 aws.amazon.com/neuroncore=32 cpu=128 memory=484966Mi pods=247 vpc.amazonaws.com/efa=16 vpc.amazonaws.com/pod-eni=120",
        ),
        (
            "trn2.3xlarge",
            "aws.amazon.com/neuron=1 aws.amazon.com/neuroncore=8 cpu=12 memory=121241Mi pods=30 vpc.amazonaws.com/efa=1",
        ),
        // EC2 doesn't describe its devices, so they are unknown.
        ("trn2u.48xlarge", "cpu=192 memory=1939865Mi pods=100 vpc.amazonaws.com/efa=16"),
        // Inference of another make, video and FPGAs are no extended resource.
        (
            "dl2q.24xlarge",
            "cpu=96 memory=727449Mi pods=737 vpc.amazonaws.com/efa=1 vpc.amazonaws.com/pod-eni=107",
        ),
        ("vt1.3xlarge", "cpu=12 memory=22732Mi pods=58 vpc.amazonaws.com/pod-eni=38"),
        ("f2.6xlarge", "cpu=24 memory=242483Mi pods=234 vpc.amazonaws.com/pod-eni=84"),
        // A part of a GPU is no device.
        ("g6f.large", "cpu=2 memory=7577Mi pods=20 vpc.amazonaws.com/pod-eni=10"),
        (
            "p4d.24xlarge",
            "cpu=96 memory=1091174Mi nvidia.com/gpu=8 pods=737 vpc.amazonaws.com/efa=4 vpc.amazonaws.com/pod-eni=62",
        ),
        (
            "p6-b200.48xlarge",
            "cpu=192 memory=1939865Mi nvidia.com/gpu=8 pods=198 vpc.amazonaws.com/efa=8 vpc.amazonaws.com/pod-eni=120",
        ),
        ("u-3tb1.56xlarge", "cpu=224 memory=2909798Mi pods=234 vpc.amazonaws.com/pod-eni=6"),
        (
            "u7in-32tb.224xlarge",
            "cpu=896 memory=31037849Mi pods=394 vpc.amazonaws.com/efa=2 vpc.amazonaws.com/pod-eni=106",
        ),
        ("hpc6id.32xlarge", "cpu=64 memory=969932Mi pods=51 vpc.amazonaws.com/efa=2"),
        ("c7i-flex.large", "cpu=2 memory=3788Mi pods=29 vpc.amazonaws.com/pod-eni=3"),
        ("c7i.metal-24xl", "cpu=96 memory=181862Mi pods=737 vpc.amazonaws.com/pod-eni=107"),
        ("t8i.nano", "cpu=2 memory=473Mi pods=4"),
    ] {
        assert_eq!(capacity(name, &NodeSettings::default()), expected, "{name}");
    }
}

#[test]
fn labels_follow_from_the_name_and_the_description() {
    for (name, key, expected) in [
        ("trn1n.32xlarge", "instance-accelerator-name", "trainium"),
        ("trn1n.32xlarge", "instance-accelerator-manufacturer", "aws"),
        ("trn1n.32xlarge", "instance-accelerator-count", "16"),
        ("trn1n.32xlarge", "instance-category", "trn"),
        ("inf2.xlarge", "instance-accelerator-name", "inferentia2"),
        ("inf2.xlarge", "instance-accelerator-count", "1"),
        ("dl2q.24xlarge", "instance-accelerator-name", "qualcomm-ai100"),
        ("dl2q.24xlarge", "instance-accelerator-manufacturer", "qualcomm"),
        ("dl2q.24xlarge", "instance-category", "dl"),
        ("dl2q.24xlarge", "instance-gpu-name", "-"),
        ("vt1.3xlarge", "instance-accelerator-name", "-"),
        ("vt1.3xlarge", "instance-gpu-count", "-"),
        ("f2.6xlarge", "instance-local-nvme", "940"),
        ("f2.6xlarge", "instance-generation", "2"),
        ("g6f.large", "instance-gpu-name", "l4"),
        ("g6f.large", "instance-gpu-count", "0"),
        ("g6f.large", "instance-gpu-memory", "2861"),
        ("u-3tb1.56xlarge", "instance-category", "u"),
        ("u-3tb1.56xlarge", "instance-generation", "1"),
        ("u-3tb1.56xlarge", "instance-family", "u-3tb1"),
        ("u7in-32tb.224xlarge", "instance-generation", "7"),
        ("c7i-flex.large", "instance-capability-flex", "true"),
        ("c7i-flex.large", "instance-family", "c7i-flex"),
        ("c7i.large", "instance-capability-flex", "false"),
        ("c7i.metal-24xl", "instance-hypervisor", "-"),
        ("c7i.metal-24xl", "instance-size", "metal-24xl"),
        ("c7i.large", "instance-hypervisor", "nitro"),
        ("mac2.metal", "kubernetes.io/arch", "[arm64_mac]"),
    ] {
        assert_eq!(label(name, key), expected, "{name} {key}");
    }
}

/// Pods select nodes by it, so nodes have it, unlike the reference of instance types.
#[test]
fn nodes_say_whether_enclaves_run_on_them() {
    for (name, expected) in [("m5.large", "false"), ("m5.xlarge", "true"), ("m6g.large", "true")] {
        let found = labels_of_type(of(name), AmiFamily::Al2023);
        assert_eq!(found[labels::NITRO_SANDBOX], expected, "{name}");
        assert!(requirements(of(name), AmiFamily::Al2023).allows(labels::NITRO_SANDBOX, expected), "{name}");
        let published = published_labels(of(name), AmiFamily::Al2023);
        assert_eq!(found.len(), published.len() + 1, "{name}");
    }
}

/// A pod that selects an empty hypervisor fits the type, so its node must have the label too.
#[test]
fn bare_metal_nodes_have_an_empty_hypervisor() {
    let facts = of("c7i.metal-24xl");
    assert_eq!(labels_of_type(facts, AmiFamily::Al2023)[labels::INSTANCE_HYPERVISOR], "");
    assert!(requirements(facts, AmiFamily::Al2023).allows(labels::INSTANCE_HYPERVISOR, ""));
    assert!(!published_labels(facts, AmiFamily::Al2023).contains_key(labels::INSTANCE_HYPERVISOR));
}

#[test]
fn windows_nodes_have_its_labels_pods_disks_and_addresses() {
    for (family, build) in [
        (AmiFamily::Windows2019, "10.0.17763"),
        (AmiFamily::Windows2022, "10.0.20348"),
        (AmiFamily::Windows2025, "10.0.26100"),
    ] {
        let settings = NodeSettings { ami_family: family, ..NodeSettings::default() };
        let labels = published_labels(of("m5.large"), family);
        assert_eq!((labels[labels::OS].as_str(), labels[labels::WINDOWS_BUILD].as_str()), ("windows", build));
        assert_eq!(
            capacity("m5.large", &settings),
            "cpu=2 memory=7577Mi pods=110 vpc.amazonaws.com/PrivateIPv4Address=9 vpc.amazonaws.com/pod-eni=9"
        );
        let storage = node_shape(of("m5.large"), &settings, None).capacity.ephemeral_storage_bytes;
        assert_eq!(storage, 50 * 1024 * MIB);
        // Its setup leaves the host's disks alone, so they hold no pods' files.
        let raid = NodeSettings { instance_store_policy: Some(InstanceStorePolicy::Raid0), ..settings };
        let storage = node_shape(of("m5d.large"), &raid, None).capacity.ephemeral_storage_bytes;
        assert_eq!(storage, 50 * 1024 * MIB);
        // Windows has no images for arm64, so no pod that requires an operating system suits such a node.
        let os = requirements(of("m6g.large"), family);
        assert!(!os.allows(labels::OS, "windows") && !os.allows(labels::OS, "linux"), "{os:?}");
    }
}

/// `efa-only` interfaces replace the type's own EFA interfaces, one resource each. They take pods' addresses only on
/// the default card.
#[test]
fn efa_interfaces_of_a_class_are_what_its_nodes_have() {
    let efa = |card| NetworkInterface {
        network_card_index: card,
        device_index: 1,
        interface_type: InterfaceType::EfaOnly,
    };
    let class = |cards: &[u32]| NodeSettings {
        network_interfaces: cards.iter().map(|card| efa(*card)).collect(),
        ..NodeSettings::default()
    };
    let shape = |cards: &[u32]| {
        let amounts = node_shape(of("p4d.24xlarge"), &class(cards), None).capacity;
        (amounts.devices.efa, amounts.pods)
    };
    assert_eq!(shape(&[]), (4, 737));
    assert_eq!(shape(&[1, 2, 3]), (3, 737));
    assert_eq!(shape(&[0, 1]), (2, 688), "one interface of the default card has no addresses");
    assert_eq!(compatibility(of("p4d.24xlarge"), &class(&[0, 1, 2, 3])), Ok(()));
    assert_eq!(
        compatibility(of("c7i.metal-24xl"), &class(&[0])),
        Err(Incompatibility::TooManyEfaInterfaces { wanted: 1, supported: 0 })
    );
}

#[test]
fn a_local_zone_is_a_label_like_any_other_zone() {
    let (zone, zone_id) = (Zone::parse("us-east-1-bos-1a").unwrap(), ZoneId::parse("use1-bos1-az1").unwrap());
    let offering = Offering {
        zone: zone.clone(),
        zone_id: zone_id.clone(),
        capacity_type: CapacityType::OnDemand,
        reservation: None,
        price: None,
        availability: Availability::Available,
    };
    let region = Region::parse("us-east-1").unwrap();
    let surroundings = Surroundings { region: &region, learned: None };
    let settings = NodeSettings::default();
    let option =
        InstanceTypeOption::new(Arc::clone(of("c5d.2xlarge")), &settings, surroundings, vec![offering]);
    for (key, value) in
        [(labels::ZONE, zone.as_str()), (labels::ZONE_ID, zone_id.as_str()), (labels::REGION, "us-east-1")]
    {
        let found = option.labels.get(key).and_then(Requirement::single_value).map(str::to_owned);
        assert_eq!(found.as_deref(), Some(value), "{key}");
    }
}

fn quantity() -> impl Strategy<Value = Quantity> {
    (0_i128..4_000_000)
        .prop_map(|mebi| Quantity::from_nanos(mebi * 1_048_576 * 1_000_000_000, Format::BinarySi))
}

fn cores() -> impl Strategy<Value = Quantity> {
    (0_i128..300_000).prop_map(|millis| Quantity::from_nanos(millis * 1_000_000, Format::DecimalSi))
}

fn threshold() -> impl Strategy<Value = EvictionThreshold> {
    prop_oneof![
        quantity().prop_map(EvictionThreshold::Quantity),
        (0_u32..=1_000_000).prop_map(|parts| EvictionThreshold::Share(PartsPerMillion(parts))),
    ]
}

fn reserved() -> impl Strategy<Value = Reserved> {
    (option::of(cores()), option::of(quantity()), option::of(quantity()))
        .prop_map(|(cpu, memory, ephemeral_storage)| Reserved { cpu, memory, ephemeral_storage, pid: None })
}

fn kubelet() -> impl Strategy<Value = KubeletConfiguration> {
    let pods = (option::of(0_u32..1_000), option::of(0_u32..200));
    let evicted = (option::of(threshold()), option::of(threshold()));
    (pods, reserved(), reserved(), evicted).prop_map(|(pods, kube_reserved, system_reserved, evicted)| {
        KubeletConfiguration {
            max_pods: pods.0,
            pods_per_core: pods.1,
            kube_reserved,
            system_reserved,
            eviction_memory: evicted.0,
            eviction_nodefs: evicted.1,
            ..KubeletConfiguration::default()
        }
    })
}

fn interface() -> impl Strategy<Value = NetworkInterface> {
    let kind = prop_oneof![Just(InterfaceType::Interface), Just(InterfaceType::EfaOnly)];
    (0_u32..4, 0_u32..4, kind).prop_map(|(network_card_index, device_index, interface_type)| {
        NetworkInterface { network_card_index, device_index, interface_type }
    })
}

fn device() -> impl Strategy<Value = BlockDevice> {
    let names = proptest::sample::select(vec!["/dev/xvda", "/dev/xvdb", "/dev/sda1", "/dev/sdf"]);
    (names, any::<bool>(), option::of(quantity())).prop_map(|(name, root_volume, size)| BlockDevice {
        device_name: Some(name.to_owned()),
        root_volume,
        ebs: Some(EbsVolume { size, ..EbsVolume::default() }),
    })
}

fn settings() -> impl Strategy<Value = NodeSettings> {
    let family = proptest::sample::select(AmiFamily::ALL.to_vec());
    let store = option::of(Just(InstanceStorePolicy::Raid0));
    let devices = proptest::collection::vec(device(), 0..4);
    let interfaces = proptest::collection::vec(interface(), 0..5);
    let scalars = (0_u32..20, 0_u32..=1_000_000);
    (family, kubelet(), devices, store, interfaces, scalars).prop_map(
        |(ami_family, kubelet, block_devices, instance_store_policy, network_interfaces, scalars)| {
            NodeSettings {
                ami_family,
                kubelet,
                block_devices,
                instance_store_policy,
                network_interfaces,
                reserved_enis: scalars.0,
                vm_memory_overhead: PartsPerMillion(scalars.1),
                ..NodeSettings::default()
            }
        },
    )
}

proptest! {
    #[test]
    fn allocatable_is_never_more_than_capacity(
        settings in settings(),
        index in any::<proptest::sample::Index>(),
        learned in option::of(0_u64..1 << 45),
    ) {
        let facts = FACTS.values().nth(index.index(FACTS.len())).unwrap();
        let shape = node_shape(facts, &settings, learned.map(LearnedMemory));
        let (capacity, allocatable) = (shape.capacity.resources(), shape.allocatable.resources());
        for (name, quantity) in allocatable.iter() {
            prop_assert!(quantity <= capacity.get(name), "{}: {name}", facts.name);
        }
        prop_assert_eq!(capacity.iter().count(), allocatable.iter().count());
        // Reserves and allocatable sum to the capacity, unless the reserves exceed it.
        let aside = [shape.kube_reserved, shape.system_reserved, shape.eviction];
        let memory: u128 = aside.iter().map(|part| u128::from(part.memory_bytes)).sum();
        let left = u128::from(shape.capacity.memory_bytes).saturating_sub(memory);
        prop_assert_eq!(u128::from(shape.allocatable.memory_bytes), left);
    }
}
