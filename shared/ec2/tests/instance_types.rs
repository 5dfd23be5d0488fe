//! Instance types beyond Karpenter's reference: special families, and laws for every type under any settings of a
//! class.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::collections::BTreeMap;

use proptest::option::of as maybe;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use tenon_domain::catalog::describe::facts;
use tenon_domain::catalog::facts::Gpu;
use tenon_domain::catalog::node_labels::published_labels;
use tenon_domain::catalog::settings::{
    EvictionThreshold, InstanceStorePolicy, InterfaceType, KubeletConfiguration, MIB, NetworkInterface,
    PartsPerMillion, Reserved,
};
use tenon_domain::catalog::{AmiFamily, InstanceTypeFacts, NodeSettings, NodeShape, node_shape};
use tenon_domain::id::InstanceType;
use tenon_domain::quantity::Quantity;
use tenon_ec2::data::Ec2Data;

fn data() -> &'static Ec2Data {
    Ec2Data::get().unwrap()
}

fn of(name: &str) -> InstanceTypeFacts {
    facts(data().types.get(&InstanceType::parse(name).unwrap()).unwrap(), &data().limits).unwrap()
}

/// Labels and allocatable resources in one map, as `tenon types` prints them; nothing of those that aren't there.
fn printed(name: &str, settings: &NodeSettings) -> BTreeMap<String, String> {
    let facts = of(name);
    let labels = published_labels(&facts, settings.ami_family);
    let mut all: BTreeMap<_, _> = labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let resources = node_shape(&facts, settings, None).allocatable.resources();
    all.extend(resources.iter().map(|(name, quantity)| (name.to_string(), quantity.to_string())));
    all
}

/// `expected` are lines of `key value`, a value `-` for a key that isn't there; keys of EC2's labels without their
/// prefix.
fn check_with(name: &str, settings: &NodeSettings, expected: &[&str]) {
    let printed = printed(name, settings);
    for line in expected {
        let (key, value) = line.split_once(' ').unwrap();
        let labelled = format!("karpenter.k8s.aws/{key}");
        let found = printed.get(key).or_else(|| printed.get(&labelled)).map_or("-", String::as_str);
        assert_eq!(found, value, "{name} {key}");
    }
}

fn check(name: &str, expected: &[&str]) {
    check_with(name, &NodeSettings::default(), expected);
}

#[test]
fn gpus_are_counted_and_labelled_where_there_is_one_kind() {
    let whole = ["instance-gpu-name h200", "instance-gpu-manufacturer nvidia", "instance-gpu-count 8"];
    check("p5en.48xlarge", &whole);
    check(
        "p5en.48xlarge",
        &["nvidia.com/gpu 8", "instance-gpu-memory 144384", "vpc.amazonaws.com/efa 16", "pods 198"],
    );
    check("p6-b200.48xlarge", &["nvidia.com/gpu 8", "instance-generation 6", "instance-category p"]);
    check("g5g.metal", &["nvidia.com/gpu 2", "instance-gpu-name t4g", "kubernetes.io/arch arm64"]);
    // A share of a GPU is a label in EC2's terms, and no device for pods.
    let share = ["instance-gpu-count 0", "instance-gpu-name l4", "instance-gpu-memory 11444"];
    check("gr6f.4xlarge", &share);
    check("gr6f.4xlarge", &["nvidia.com/gpu -", "instance-category gr", "instance-generation 6"]);
}

/// No such type exists: its description is another type's with other GPUs.
#[test]
fn gpus_of_any_maker_are_counted_and_several_kinds_are_not_labelled() {
    let mut facts = of("p5en.48xlarge");
    let kind = facts.gpus[0].clone();
    let made_by =
        |manufacturer: &str, count| Gpu { manufacturer: manufacturer.to_owned(), count, ..kind.clone() };
    facts.gpus = vec![made_by("AMD", 4), made_by("Habana", 8), made_by("NVIDIA", 1), made_by("NVIDIA", 2)];
    let devices = node_shape(&facts, &NodeSettings::default(), None).capacity.devices;
    assert_eq!((devices.amd_gpu, devices.gaudi, devices.nvidia_gpu), (4, 8, 3));
    let labels = published_labels(&facts, AmiFamily::Al2023);
    assert_eq!(labels.keys().find(|key| key.contains("gpu")), None);
}

#[test]
fn accelerators_are_neuron_devices_or_what_ec2_lists_for_inference() {
    check(
        "inf2.48xlarge",
        &[
            "aws.amazon.com/neuron 12",
            "aws.amazon.com/neuroncore 24",
            "instance-accelerator-manufacturer aws",
        ],
    );
    check("inf2.48xlarge", &["instance-accelerator-name inferentia2", "instance-accelerator-count 12"]);
    check("trn1.32xlarge", &["aws.amazon.com/neuron 16", "aws.amazon.com/neuroncore 32", "pods 247"]);
    check("trn1n.32xlarge", &["vpc.amazonaws.com/efa 16", "instance-accelerator-name trainium"]);
    // EC2 doesn't describe its devices.
    check("trn2u.48xlarge", &["aws.amazon.com/neuron -", "instance-accelerator-name -", "pods 100"]);
    check("dl2q.24xlarge", &["instance-accelerator-name qualcomm-ai100", "aws.amazon.com/neuron -"]);
    check("dl2q.24xlarge", &["instance-accelerator-manufacturer qualcomm", "instance-accelerator-count 8"]);
    for other in ["vt1.3xlarge", "f2.6xlarge", "m5.large"] {
        check(other, &["instance-accelerator-name -", "instance-gpu-name -", "aws.amazon.com/neuron -"]);
    }
}

#[test]
fn pods_are_those_of_the_default_card() {
    check("hpc6id.32xlarge", &["pods 51", "vpc.amazonaws.com/efa 2", "vpc.amazonaws.com/pod-eni -"]);
    check("u7in-32tb.224xlarge", &["pods 394", "vpc.amazonaws.com/efa 2", "instance-generation 7"]);
    check("c8gn.metal-48xl", &["pods 590", "vpc.amazonaws.com/pod-eni 98", "instance-hypervisor -"]);
    check("i8ge.48xlarge", &["pods 590", "memory 1447995Mi"]);
    check("t8i.nano", &["pods 4", "memory 74Mi", "instance-network-bandwidth -"]);
}

#[test]
fn families_are_read_from_the_name() {
    check("u-3tb1.56xlarge", &["instance-category u", "instance-generation 1", "instance-family u-3tb1"]);
    check("u7i-8tb.112xlarge", &["instance-category u", "instance-generation 7"]);
    check("m7i-flex.8xlarge", &["instance-capability-flex true", "instance-family m7i-flex"]);
    check("x2iedn.metal", &["instance-capability-flex false", "instance-size metal"]);
    check("mac2-m1ultra.metal", &["instance-category mac", "instance-generation 2"]);
    check("mac-m4.metal", &["instance-category -", "instance-generation -", "instance-family mac-m4"]);
}

#[test]
fn old_types_have_what_ec2_says_of_them() {
    check("m1.small", &["instance-cpu-sustained-clock-speed-mhz 0", "instance-local-nvme -", "cpu 940m"]);
    check(
        "x1.16xlarge",
        &["instance-hypervisor xen", "vpc.amazonaws.com/pod-eni -", "instance-local-nvme -"],
    );
    check("t2.micro", &["instance-network-bandwidth -", "instance-ebs-bandwidth -"]);
    check("a1.metal", &["instance-hypervisor -", "kubernetes.io/arch arm64"]);
}

#[test]
fn what_is_published_of_a_familys_other_types_says_nothing_of_a_type() {
    check("c9gd.medium", &["instance-cpu-sustained-clock-speed-mhz 3300", "vpc.amazonaws.com/pod-eni 4"]);
    check(
        "m9gd.metal-48xl",
        &["instance-cpu-sustained-clock-speed-mhz 3300", "vpc.amazonaws.com/pod-eni 98"],
    );
    check("i7ie.metal-48xl", &["instance-cpu-sustained-clock-speed-mhz 3200", "pods 394"]);
    check("hpc7g.8xlarge", &["vpc.amazonaws.com/pod-eni 118"]);
}

#[test]
fn windows_counts_addresses_and_not_interfaces() {
    let windows = NodeSettings { ami_family: AmiFamily::Windows2022, ..NodeSettings::default() };
    check_with(
        "m5.large",
        &windows,
        &[
            "kubernetes.io/os windows",
            "node.kubernetes.io/windows-build 10.0.20348",
            "pods 110",
            "vpc.amazonaws.com/PrivateIPv4Address 9",
            "ephemeral-storage 44Gi",
        ],
    );
    check_with("m6g.large", &windows, &["kubernetes.io/os -", "vpc.amazonaws.com/PrivateIPv4Address 9"]);
}

#[test]
fn a_class_with_interfaces_of_its_own_has_the_efas_that_it_names() {
    let nic = |network_card_index, interface_type| NetworkInterface {
        network_card_index,
        device_index: u32::from(network_card_index > 0),
        interface_type,
    };
    let own = vec![
        nic(0, InterfaceType::Interface),
        nic(1, InterfaceType::EfaOnly),
        nic(2, InterfaceType::EfaOnly),
    ];
    let settings = NodeSettings { network_interfaces: own, ..NodeSettings::default() };
    check_with("p5en.48xlarge", &settings, &["vpc.amazonaws.com/efa 2", "pods 198"]);
    let plain = NodeSettings {
        network_interfaces: vec![nic(0, InterfaceType::Interface)],
        ..NodeSettings::default()
    };
    check_with("p5en.48xlarge", &plain, &["vpc.amazonaws.com/efa -", "pods 198"]);
}

fn quantities() -> impl Strategy<Value = Quantity> {
    (0_i64..600_000).prop_map(Quantity::from_mebi)
}

fn shares() -> impl Strategy<Value = PartsPerMillion> {
    (0_u32..=PartsPerMillion::ONE.0).prop_map(PartsPerMillion)
}

fn thresholds() -> impl Strategy<Value = Option<EvictionThreshold>> {
    maybe(prop_oneof![
        quantities().prop_map(EvictionThreshold::Quantity),
        shares().prop_map(EvictionThreshold::Share),
    ])
}

fn kubelets() -> impl Strategy<Value = KubeletConfiguration> {
    let reserved = || {
        (maybe(quantities()), maybe(quantities())).prop_map(|(memory, ephemeral_storage)| Reserved {
            memory,
            ephemeral_storage,
            ..Reserved::default()
        })
    };
    let pods = (maybe(0_u32..1_500), maybe(0_u32..20));
    (pods, reserved(), reserved(), thresholds(), thresholds()).prop_map(
        |((max_pods, pods_per_core), kube_reserved, system_reserved, eviction_memory, eviction_nodefs)| {
            KubeletConfiguration {
                max_pods,
                pods_per_core,
                kube_reserved,
                system_reserved,
                eviction_memory,
                eviction_nodefs,
                ..KubeletConfiguration::default()
            }
        },
    )
}

fn settings() -> impl Strategy<Value = NodeSettings> {
    let store = maybe(Just(InstanceStorePolicy::Raid0));
    (select(&AmiFamily::ALL[..]), kubelets(), store, 0_u32..20, shares()).prop_map(
        |(ami_family, kubelet, instance_store_policy, reserved_enis, vm_memory_overhead)| NodeSettings {
            ami_family,
            kubelet,
            instance_store_policy,
            reserved_enis,
            vm_memory_overhead,
            ..NodeSettings::default()
        },
    )
}

fn any_type() -> impl Strategy<Value = InstanceTypeFacts> {
    any::<Index>().prop_map(|index| {
        let names: Vec<_> = data().types.keys().collect();
        of(index.get(&names).as_str())
    })
}

fn shape(facts: &InstanceTypeFacts, settings: &NodeSettings) -> NodeShape {
    node_shape(facts, settings, None)
}

proptest! {
    /// Allocatable never exceeds the capacity, and the difference is exactly the reserves unless nothing is left.
    #[test]
    fn allocatable_is_capacity_without_what_is_set_aside(facts in any_type(), settings in settings()) {
        let NodeShape { capacity, kube_reserved, system_reserved, eviction, allocatable } = shape(&facts, &settings);
        prop_assert!(capacity.memory_bytes <= facts.memory_mib * MIB);
        prop_assert_eq!(capacity.cpu_millis, u64::from(facts.vcpus) * 1000);
        for (part, whole, left) in [
            ("cpu", capacity.cpu_millis, allocatable.cpu_millis),
            ("memory", capacity.memory_bytes, allocatable.memory_bytes),
            ("ephemeral-storage", capacity.ephemeral_storage_bytes, allocatable.ephemeral_storage_bytes),
        ] {
            let aside: u64 = [kube_reserved, system_reserved, eviction]
                .iter()
                .map(|overhead| match part {
                    "cpu" => overhead.cpu_millis,
                    "memory" => overhead.memory_bytes,
                    _ => overhead.ephemeral_storage_bytes,
                })
                .sum();
            prop_assert_eq!(left, whole.saturating_sub(aside), "{}", part);
        }
        prop_assert_eq!((allocatable.pods, allocatable.devices), (capacity.pods, capacity.devices));
    }

    /// A larger reserve never gives pods more.
    #[test]
    fn what_is_kept_for_others_never_adds(facts in any_type(), settings in settings(), more in 1_u32..50) {
        let before = shape(&facts, &settings);
        let interfaces = NodeSettings { reserved_enis: settings.reserved_enis + more, ..settings.clone() };
        prop_assert!(shape(&facts, &interfaces).capacity.pods <= before.capacity.pods);
        let overhead = PartsPerMillion(settings.vm_memory_overhead.0.saturating_add(more * 10_000).min(1_000_000));
        let hypervisor = NodeSettings { vm_memory_overhead: overhead, ..settings.clone() };
        prop_assert!(shape(&facts, &hypervisor).capacity.memory_bytes <= before.capacity.memory_bytes);
    }

    /// More pods of the class's own choice are more pods, and never more memory for them.
    #[test]
    fn max_pods_and_pods_per_core_are_bounds(facts in any_type(), settings in settings(), fewer in 0_u32..700, more in 0_u32..700) {
        let with = |max_pods, pods_per_core| {
            let kubelet = KubeletConfiguration { max_pods, pods_per_core, ..settings.kubelet.clone() };
            shape(&facts, &NodeSettings { kubelet, ..settings.clone() })
        };
        let (few, many) = (with(Some(fewer), None), with(Some(fewer + more), None));
        prop_assert_eq!((few.capacity.pods, many.capacity.pods), (u64::from(fewer), u64::from(fewer + more)));
        prop_assert!(many.allocatable.memory_bytes <= few.allocatable.memory_bytes);
        prop_assert!(with(Some(fewer), Some(3)).capacity.pods <= u64::from(fewer));
        prop_assert_eq!(with(Some(fewer), Some(0)), with(Some(fewer), None));
    }
}
