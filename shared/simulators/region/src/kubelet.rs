//! The kubelets of instances: a booted instance's Node.
//!
//! Decides a Node at its join, from the instance's user data, type and image, like nodeadm, the kernel and the cloud
//! controller. The region's boot times decide when it joins.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::Value;
use tenon_domain::catalog::describe::facts;
use tenon_domain::catalog::learned::stated_bytes;
use tenon_domain::catalog::settings::{BlockDevice, EbsVolume, InstanceStorePolicy, PartsPerMillion};
use tenon_domain::catalog::{LearnedMemory, NodeSettings, node_shape};
use tenon_domain::digest::Digest;
use tenon_domain::id::{ImageId, InstanceType};
use tenon_domain::labels;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::ResourceList;
use tenon_ec2::data::Ec2Data;
use tenon_ec2::port::{BlockDeviceMapping, ImageArchitecture, Instance};
use tenon_simulated_cluster::NodeSpec;
use tenon_twin::{ImageDefect, InstanceRecord};

/// How long a node takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootTimes {
    /// From a running instance to its Node.
    pub joins_after: SignedDuration,
    /// From then to Ready.
    pub ready_after: SignedDuration,
}

impl Default for BootTimes {
    /// Of the order that AL2023 shows; the exact numbers are the simulation's own.
    fn default() -> Self {
        Self { joins_after: SignedDuration::from_secs(12), ready_after: SignedDuration::from_secs(6) }
    }
}

/// The least share of the stated memory that firmware, hypervisor and kernel take, and the range above it, by type
/// and image. It is less than the planners' estimate, as mostly in EC2; the exact numbers are the simulation's own.
const TAKEN_AT_LEAST: u32 = 60_000;
const TAKEN_BESIDE: u32 = 14_000;
/// `/proc/meminfo`, which kubelets report, is in KiB.
const KIB: u64 = 1024;

/// The memory that kubelets of a type with an image report: 92.6 to 94 % of EC2's stated memory.
#[must_use]
pub fn reported_memory(stated_bytes: u64, instance_type: &InstanceType, image: &ImageId) -> LearnedMemory {
    let [first, second, ..] = *Digest::of_texts([instance_type.as_str(), image.as_str()]).bytes();
    let beside = u32::from(u16::from_be_bytes([first, second])) % (TAKEN_BESIDE + 1);
    let taken = PartsPerMillion(TAKEN_AT_LEAST + beside).of_rounded_up(stated_bytes);
    LearnedMemory(stated_bytes.saturating_sub(taken) / KIB * KIB)
}

/// The NodeConfig that nodeadm reads from user data.
#[derive(Debug, Default)]
struct NodeConfig {
    labels: BTreeMap<String, String>,
    taints: Vec<Value>,
    max_pods: Option<u32>,
}

/// The Node of a running instance, with this memory if it is given; `None` for an unknown type, without an instance
/// profile, or for an image whose instances don't boot: they join no cluster.
#[must_use]
pub fn node_of(record: &InstanceRecord, boot: BootTimes, memory: Option<LearnedMemory>) -> Option<NodeSpec> {
    record.instance_profile.as_ref()?;
    if record.defect == Some(ImageDefect::Boot) {
        return None;
    }
    let instance = &record.instance;
    let data = Ec2Data::get().ok()?;
    let facts = facts(data.types.get(&instance.instance_type)?, &data.limits).ok()?;
    let user_data = record.user_data.as_deref().and_then(|text| STANDARD.decode(text).ok());
    let user_data = user_data.and_then(|bytes| String::from_utf8(bytes).ok());
    let config = user_data.as_deref().map(read_user_data).unwrap_or_default();
    let mut settings = NodeSettings::default();
    settings.kubelet.max_pods = config.max_pods;
    let text = user_data.as_deref().unwrap_or_default();
    settings.block_devices = kubelet_device(&record.block_devices, text).into_iter().collect();
    settings.instance_store_policy = mounts_disks(text).then_some(InstanceStorePolicy::Raid0);
    let usual = || reported_memory(stated_bytes(&facts), &instance.instance_type, &instance.image);
    let shape = node_shape(&facts, &settings, Some(memory.unwrap_or_else(usual)));
    let name = instance.node_name().ok()?.to_string();
    let mut node_labels = config.labels;
    node_labels.extend(cloud_labels(instance, &name));
    Some(NodeSpec {
        provider_id: instance.provider_id().to_string(),
        labels: node_labels,
        taints: config.taints,
        capacity: texts(shape.capacity.resources()),
        allocatable: texts(shape.allocatable.resources()),
        joins_after: boot.joins_after,
        ready_after: boot.ready_after,
        name,
    })
}

/// The device that the kubelet's directories are on: the operating system decides it, not the class.
fn kubelet_device(devices: &[BlockDeviceMapping], user_data: &str) -> Option<BlockDevice> {
    let usual = if user_data.contains("[settings") {
        Some("/dev/xvdb")
    } else if user_data.contains("node.eks.aws") || user_data.contains("/etc/eks/bootstrap.sh") {
        Some("/dev/xvda")
    } else {
        None
    };
    let device = match usual {
        Some(name) => devices.iter().find(|device| device.device_name == name),
        None => devices.last(),
    }?;
    let size = device.volume_size_gib.map(|gib| Quantity::from_mebi(i64::from(gib) * 1024));
    Some(BlockDevice {
        device_name: Some(device.device_name.clone()),
        root_volume: true,
        ebs: Some(EbsVolume { size, ..EbsVolume::default() }),
    })
}

/// Whether the user data makes the host's disks the kubelet's: of AL2023, AL2 or Bottlerocket.
fn mounts_disks(user_data: &str) -> bool {
    user_data.contains("\"RAID0\"")
        || user_data.contains("--local-disks raid0")
        || (user_data.contains("bootstrap-commands") && user_data.contains("\"init\""))
}

fn cloud_labels(instance: &Instance, name: &str) -> BTreeMap<String, String> {
    let zone = instance.zone.as_str();
    let region = region_of(zone);
    let arch = match instance.architecture {
        ImageArchitecture::X86_64 => "amd64",
        ImageArchitecture::Arm64 => "arm64",
    };
    [
        (labels::INSTANCE_TYPE, instance.instance_type.as_str()),
        (labels::ZONE, zone),
        (labels::REGION, region),
        (labels::ARCH, arch),
        (labels::OS, "linux"),
        (labels::HOSTNAME, name),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// The region of a zone's name: up to its first number, for local and Wavelength zones too.
fn region_of(zone: &str) -> &str {
    let number = zone.find(|c: char| c.is_ascii_digit()).unwrap_or(zone.len());
    let behind = zone.get(number..).unwrap_or_default();
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    zone.get(..number.saturating_add(digits)).unwrap_or(zone)
}

fn texts(resources: ResourceList) -> BTreeMap<String, String> {
    resources
        .without_zeroes()
        .iter()
        .map(|(name, quantity)| (name.to_string(), quantity.to_string()))
        .collect()
}

/// Reads the NodeConfig part of multipart user data; other parts are scripts, which nothing here runs.
fn read_user_data(user_data: &str) -> NodeConfig {
    let mut config = NodeConfig::default();
    for part in user_data.split("Content-Type: application/node.eks.aws").skip(1) {
        let document = part.find('{').and_then(|start| part.get(start..)).unwrap_or_default();
        let Some(Ok(document)) = serde_json::Deserializer::from_str(document).into_iter::<Value>().next()
        else {
            continue;
        };
        for flag in strings(&document, "/spec/kubelet/flags") {
            if let Some(labels) = flag.strip_prefix("--node-labels=") {
                let pairs = labels.trim_matches('"').split(',').filter_map(|pair| pair.split_once('='));
                config.labels.extend(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())));
            }
        }
        if let Some(taints) =
            document.pointer("/spec/kubelet/config/registerWithTaints").and_then(Value::as_array)
        {
            config.taints.extend(taints.iter().cloned());
        }
        let max_pods = document.pointer("/spec/kubelet/config/maxPods").and_then(Value::as_u64);
        config.max_pods = max_pods.and_then(|n| u32::try_from(n).ok()).or(config.max_pods);
    }
    config
}

fn strings<'a>(document: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    document.pointer(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_zone_is_of_the_region_that_its_name_begins_with() {
        let check = |zone: &str, expected: &str| assert_eq!(region_of(zone), expected, "{zone}");
        check("us-east-1a", "us-east-1");
        check("us-gov-west-1b", "us-gov-west-1");
        check("us-west-2-lax-1a", "us-west-2");
        check("us-east-1-wl1-bos-wlz-1", "us-east-1");
        check("ap-southeast-12c", "ap-southeast-12");
    }

    #[test]
    fn kubelets_report_more_than_is_estimated_and_less_than_is_stated() {
        let data = Ec2Data::get().unwrap();
        let image = ImageId::parse("ami-1").unwrap();
        for (name, info) in &data.types {
            let facts = facts(info, &data.limits).unwrap();
            let stated = stated_bytes(&facts);
            let estimated = node_shape(&facts, &NodeSettings::default(), None).capacity.memory_bytes;
            let LearnedMemory(reported) = reported_memory(stated, name, &image);
            assert!((estimated..stated).contains(&reported), "{name}: {estimated} {reported} {stated}");
        }
        let name = InstanceType::parse("m5.large").unwrap();
        let of = |image: &str| reported_memory(8 << 30, &name, &ImageId::parse(image).unwrap());
        assert_ne!(of("ami-1"), of("ami-2"));
    }

    #[test]
    fn the_kubelet_has_the_device_of_its_operating_system_and_disks_that_user_data_mounts() {
        let device = |(name, gib): &(&str, u32)| BlockDeviceMapping {
            device_name: (*name).to_owned(),
            volume_size_gib: Some(*gib),
            volume_type: None,
            iops: None,
            throughput_mib: None,
            encrypted: None,
            kms_key_id: None,
            snapshot_id: None,
            initialization_rate_mib: None,
            delete_on_termination: None,
        };
        let check = |devices: &[(&str, u32)], user_data: &str, expected: Option<&str>| {
            let devices: Vec<_> = devices.iter().map(device).collect();
            let found = kubelet_device(&devices, user_data).and_then(|found| found.ebs?.size);
            assert_eq!(found.map(|size| size.to_string()).as_deref(), expected, "{user_data}");
        };
        let both = [("/dev/xvda", 4), ("/dev/xvdb", 100)];
        check(&both, "application/node.eks.aws", Some("4Gi"));
        check(&both, "[settings.kubernetes]", Some("100Gi"));
        check(&[("/dev/sda1", 100)], "application/node.eks.aws", None);
        check(&[("/dev/sda1", 100)], "#!/bin/sh", Some("100Gi"));
        assert!(mounts_disks(r#"{"localStorage":{"strategy":"RAID0"}}"#));
        assert!(!mounts_disks("#!/bin/sh"));
    }

    #[test]
    fn labels_taints_and_max_pods_are_read_from_the_node_config() {
        let node_config = json!({
            "apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig",
            "spec": {"kubelet": {
                "config": {"maxPods": 20, "registerWithTaints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
                "flags": ["--node-labels=karpenter.sh/nodepool=default,team=web"],
            }},
        });
        let user_data = format!(
            "MIME-Version: 1.0\n\n--//\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho {{}}\n--//\n\
             Content-Type: application/node.eks.aws\n\n{node_config}\n--//--\n"
        );
        let config = read_user_data(&user_data);
        assert_eq!(config.labels["karpenter.sh/nodepool"], "default");
        assert_eq!(config.labels["team"], "web");
        assert_eq!(config.taints[0]["key"], "karpenter.sh/unregistered");
        assert_eq!(config.max_pods, Some(20));
    }
}
