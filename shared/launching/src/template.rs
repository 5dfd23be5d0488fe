//! Launch templates: the common part of a launch's instances, named by its content.
//!
//! Decides the template of a class, an image and a node's setup, and the stored form of its request. The table keeps
//! the request until EC2 has the template: another invocation may send the launch, and the class may have changed by
//! then.
//!
//! Invariant: a name has one content, so an existing template needs no comparison. The name of a template that is being
//! deleted gets a number, which [`crate::build`] adds.
//!
//! Source: aws/karpenter-provider-aws `pkg/providers/launchtemplate/launchtemplate.go`;
//! karpenter.sh/docs/concepts/nodeclasses, `spec.tags`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tenon_domain::api::node_class;
use tenon_domain::catalog::settings::{self, GIB, NestedVirtualization};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::digest::Digest;
use tenon_domain::id::{ImageId, ParseIdError, PlacementGroupId, ReservationId, SecurityGroupId};
use tenon_domain::labels;
use tenon_domain::placement::LaunchPlacement;
use tenon_domain::registry::Allowances;
use tenon_domain::reservation::{LaunchedInto, ReservedCapacity};
use tenon_domain::tags;
use tenon_ec2::port::{
    BlockDeviceMapping, CreateLaunchTemplate, InstanceMetadataOptions, InstanceProfileSpec,
    LaunchTemplateData, MetadataTokens, Monitoring, ReservationPreference, Tags,
};

use crate::fleet::{Fleet, TemplateKey};
use crate::interfaces::{StoredInterface, interfaces, primary_alone, restored};
use crate::user_data::{NodeSetup, UserDataError, user_data};

/// Letters and digits of a name that come from the content.
const NAME_DIGITS: usize = 24;
/// The version of the stored form that is written.
const VERSION: u32 = 1;

/// What a launch decides of its instances, besides their image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchSite<'a> {
    /// The capacity reservation.
    pub reservation: Option<&'a LaunchedInto>,
    /// The placement group.
    pub placement: Option<&'a LaunchPlacement>,
    /// How many EFA interfaces each instance has, unless the class names its interfaces.
    pub efa_interfaces: u32,
}

impl<'a> LaunchSite<'a> {
    /// The site of a fleet's instances of one template.
    #[must_use]
    pub const fn of(fleet: &'a Fleet, key: &TemplateKey) -> Self {
        Self {
            reservation: fleet.reservation.as_ref(),
            placement: fleet.placement.as_ref(),
            efa_interfaces: key.efa_interfaces,
        }
    }
}

/// The template for a setup, a resolved class, one of its images, and the launch's site. With the gate
/// `ReservedCapacity` on, a launch without a reservation opts out of open reservations, which stay free for launches
/// that name them. With the gate off, the template leaves reservations to EC2's default.
///
/// # Errors [`UserDataError`] names what the class's owner can do.
pub fn template(
    setup: &NodeSetup<'_>,
    status: &ClassStatus,
    image: &ImageId,
    site: LaunchSite<'_>,
) -> Result<CreateLaunchTemplate, UserDataError> {
    let (registry, class) = (setup.registry, setup.class);
    let named = status.images.iter().find(|known| known.id == *image);
    let image_name = named.map_or("", |known| known.name.as_str());
    let metadata = &class.metadata_options;
    let tags = shared_tags(setup);
    let data = LaunchTemplateData {
        image: Some(image.clone()),
        security_groups: status.security_groups.iter().map(|group| group.id.clone()).collect(),
        instance_profile: status.instance_profile.as_ref().map(|profile| match profile {
            node_class::InstanceProfile::Name(name) => InstanceProfileSpec::Name(name.clone()),
            node_class::InstanceProfile::Arn(arn) => InstanceProfileSpec::Arn(arn.clone()),
        }),
        user_data: user_data(setup, image_name)?.map(|text| STANDARD.encode(text)),
        block_devices: block_devices(&class.settings, &registry.allowed),
        metadata_options: Some(InstanceMetadataOptions {
            http_endpoint: metadata.http_endpoint.clone(),
            http_protocol_ipv6: metadata.http_protocol_ipv6.clone(),
            http_put_response_hop_limit: u32::from(metadata.http_put_response_hop_limit),
            http_tokens: match metadata.http_tokens.as_str() {
                "optional" => MetadataTokens::Optional,
                _ => MetadataTokens::Required,
            },
        }),
        monitoring: class.detailed_monitoring.then_some(Monitoring::Detailed),
        network_interfaces: interfaces(class, site.efa_interfaces),
        nested_virtualization: class.settings.nested_virtualization,
        network_interface_tags: tags.clone(),
        reservations: ReservedCapacity::behind(registry.gates).map(|_| {
            let only = |into: &LaunchedInto| ReservationPreference::Only(into.id.clone());
            site.reservation.map_or(ReservationPreference::None, only)
        }),
        placement: site.placement.cloned(),
    };
    let nameless = CreateLaunchTemplate { name: String::new(), data, tags };
    let digest = Digest::of_texts([to_stored(&nameless).as_str()]).base36(NAME_DIGITS);
    Ok(CreateLaunchTemplate { name: format!("tenon-{}-{digest}", registry.installation), ..nameless })
}

/// Tags of everything that is made for a class of a cluster.
#[must_use]
pub fn shared_tags(setup: &NodeSetup<'_>) -> Tags {
    let cluster = setup.registry.cluster.as_str();
    let mut found = setup.class.tags.clone();
    found.extend(
        [
            (tags::INSTALLATION, setup.registry.installation.as_str()),
            (tags::CLUSTER, cluster),
            (labels::EC2NODECLASS, setup.class.name.as_str()),
            (tags::EKS_CLUSTER, cluster),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    found.insert(tags::kubernetes_cluster(cluster), "owned".to_owned());
    found
}

/// The class's devices, or the family's own: encrypted gp3, as with the peer. Without the stack's allowance the
/// template names no snapshot, and EC2 takes the image's own.
fn block_devices(settings: &settings::NodeSettings, allowed: &Allowances) -> Vec<BlockDeviceMapping> {
    if settings.block_devices.is_empty() {
        let device = |(name, bytes): &(&str, u64)| BlockDeviceMapping {
            device_name: (*name).to_owned(),
            volume_size_gib: u32::try_from(bytes.div_ceil(GIB)).ok(),
            volume_type: Some("gp3".to_owned()),
            encrypted: Some(true),
            ..BlockDeviceMapping::default()
        };
        return settings.ami_family.default_devices().iter().map(device).collect();
    }
    let device = |mapping: &settings::BlockDevice| {
        let ebs = mapping.ebs.clone().unwrap_or_default();
        // EC2 takes whole GiB; less would be too small.
        let gib =
            ebs.size.and_then(|size| u64::try_from(size.value_ceil()).ok()).map(|bytes| bytes.div_ceil(GIB));
        BlockDeviceMapping {
            device_name: mapping.device_name.clone().unwrap_or_default(),
            volume_size_gib: gib.and_then(|gib| u32::try_from(gib).ok()),
            volume_type: ebs.volume_type,
            iops: ebs.iops,
            throughput_mib: ebs.throughput,
            encrypted: ebs.encrypted,
            kms_key_id: ebs.kms_key_id,
            snapshot_id: ebs.snapshot_id.filter(|_| allowed.has_snapshots()),
            // With no snapshot named it is the rate of the image's own.
            initialization_rate_mib: ebs.volume_initialization_rate,
            delete_on_termination: ebs.delete_on_termination,
        }
    };
    settings.block_devices.iter().map(device).collect()
}

/// A stored template that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredTemplateError {
    /// It isn't the form that is expected.
    #[error("can't read the stored launch template")]
    Form(#[source] serde_json::Error),
    /// It is of a version that this release doesn't read.
    #[error("the stored launch template has version `{0}`, this release reads `{VERSION}`")]
    Version(u32),
    /// An id in it is malformed.
    #[error("malformed id in the stored launch template")]
    Id(#[source] ParseIdError),
}

#[derive(Serialize, Deserialize)]
struct StoredTemplate {
    v: u32,
    name: String,
    image: Option<String>,
    security_groups: Vec<String>,
    instance_profile: Option<String>,
    instance_profile_arn: Option<String>,
    user_data: Option<String>,
    block_devices: Vec<StoredDevice>,
    metadata_options: Option<StoredMetadata>,
    detailed_monitoring: Option<bool>,
    /// A public address of the primary interface, if nothing else is said about interfaces.
    associate_public_ip: Option<bool>,
    /// Absent if `associate_public_ip` says all: old templates keep their name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    network_interfaces: Vec<StoredInterface>,
    /// Absent if unset: old templates keep their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nested_virtualization: Option<bool>,
    network_interface_tags: Tags,
    tags: Tags,
    /// Absent without a preference: old templates keep their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservations: Option<StoredPreference>,
    /// Absent without a placement group: old templates keep their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<StoredPlacement>,
}

#[derive(Serialize, Deserialize)]
struct StoredPlacement {
    group: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredPreference {
    Only(String),
    None,
}

#[derive(Serialize, Deserialize)]
struct StoredDevice {
    device_name: String,
    volume_size_gib: Option<u32>,
    volume_type: Option<String>,
    iops: Option<u32>,
    throughput_mib: Option<u32>,
    encrypted: Option<bool>,
    kms_key_id: Option<String>,
    snapshot_id: Option<String>,
    /// Absent without a rate: old templates keep their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initialization_rate_mib: Option<u32>,
    delete_on_termination: Option<bool>,
}

#[derive(Serialize, Deserialize)]
struct StoredMetadata {
    http_endpoint: String,
    http_protocol_ipv6: String,
    http_put_response_hop_limit: u32,
    tokens_required: bool,
}

/// The request's stored form: versioned JSON, the same bytes for the same request.
#[must_use]
pub fn to_stored(request: &CreateLaunchTemplate) -> String {
    let data = &request.data;
    let (instance_profile, instance_profile_arn) = match &data.instance_profile {
        Some(InstanceProfileSpec::Name(name)) => (Some(name.clone()), None),
        Some(InstanceProfileSpec::Arn(arn)) => (None, Some(arn.clone())),
        None => (None, None),
    };
    let primary = primary_alone(&data.network_interfaces);
    let stored = StoredTemplate {
        v: VERSION,
        name: request.name.clone(),
        image: data.image.as_ref().map(ToString::to_string),
        security_groups: data.security_groups.iter().map(ToString::to_string).collect(),
        instance_profile,
        instance_profile_arn,
        user_data: data.user_data.clone(),
        block_devices: data.block_devices.iter().cloned().map(StoredDevice::from).collect(),
        metadata_options: data.metadata_options.as_ref().map(|options| StoredMetadata {
            http_endpoint: options.http_endpoint.clone(),
            http_protocol_ipv6: options.http_protocol_ipv6.clone(),
            http_put_response_hop_limit: options.http_put_response_hop_limit,
            tokens_required: options.http_tokens == MetadataTokens::Required,
        }),
        detailed_monitoring: data.monitoring.map(|monitoring| monitoring == Monitoring::Detailed),
        associate_public_ip: primary.and_then(|primary| primary.associate_public_ip),
        network_interfaces: match primary {
            Some(_) => Vec::new(),
            None => data.network_interfaces.iter().copied().map(StoredInterface::from).collect(),
        },
        nested_virtualization: data.nested_virtualization.map(|nested| match nested {
            NestedVirtualization::Enabled => true,
            NestedVirtualization::Disabled => false,
        }),
        network_interface_tags: data.network_interface_tags.clone(),
        tags: request.tags.clone(),
        reservations: data.reservations.as_ref().map(|preference| match preference {
            ReservationPreference::Only(id) => StoredPreference::Only(id.to_string()),
            ReservationPreference::None => StoredPreference::None,
        }),
        placement: data.placement.as_ref().map(|placement| StoredPlacement {
            group: placement.group.to_string(),
            partition: placement.partition,
        }),
    };
    // Strings, numbers and lists with text keys: there is nothing that JSON can't hold.
    serde_json::to_string(&stored).unwrap_or_default()
}

/// Reads a stored request.
///
/// # Errors
/// [`StoredTemplateError`] for another version, form, or a malformed id.
pub fn from_stored(text: &str) -> Result<CreateLaunchTemplate, StoredTemplateError> {
    let stored: StoredTemplate = serde_json::from_str(text).map_err(StoredTemplateError::Form)?;
    if stored.v != VERSION {
        return Err(StoredTemplateError::Version(stored.v));
    }
    let id = StoredTemplateError::Id;
    let arn = stored.instance_profile_arn.map(InstanceProfileSpec::Arn);
    let data = LaunchTemplateData {
        image: stored.image.map(ImageId::parse).transpose().map_err(id)?,
        security_groups: stored
            .security_groups
            .into_iter()
            .map(SecurityGroupId::parse)
            .collect::<Result<_, _>>()
            .map_err(id)?,
        instance_profile: stored.instance_profile.map(InstanceProfileSpec::Name).or(arn),
        user_data: stored.user_data,
        block_devices: stored.block_devices.into_iter().map(BlockDeviceMapping::from).collect(),
        metadata_options: stored.metadata_options.map(|options| InstanceMetadataOptions {
            http_endpoint: options.http_endpoint,
            http_protocol_ipv6: options.http_protocol_ipv6,
            http_put_response_hop_limit: options.http_put_response_hop_limit,
            http_tokens: if options.tokens_required {
                MetadataTokens::Required
            } else {
                MetadataTokens::Optional
            },
        }),
        monitoring: stored
            .detailed_monitoring
            .map(|on| if on { Monitoring::Detailed } else { Monitoring::Basic }),
        network_interfaces: restored(stored.associate_public_ip, stored.network_interfaces),
        nested_virtualization: stored.nested_virtualization.map(|enabled| {
            if enabled { NestedVirtualization::Enabled } else { NestedVirtualization::Disabled }
        }),
        network_interface_tags: stored.network_interface_tags,
        reservations: stored.reservations.map(preference).transpose().map_err(id)?,
        placement: stored.placement.map(placement).transpose().map_err(id)?,
    };
    Ok(CreateLaunchTemplate { name: stored.name, data, tags: stored.tags })
}

fn placement(stored: StoredPlacement) -> Result<LaunchPlacement, ParseIdError> {
    Ok(LaunchPlacement { group: PlacementGroupId::parse(stored.group)?, partition: stored.partition })
}

fn preference(stored: StoredPreference) -> Result<ReservationPreference, ParseIdError> {
    Ok(match stored {
        StoredPreference::Only(id) => ReservationPreference::Only(ReservationId::parse(id)?),
        StoredPreference::None => ReservationPreference::None,
    })
}

macro_rules! device_forms {
    ($($field:ident),*) => {
        impl From<BlockDeviceMapping> for StoredDevice {
            fn from(device: BlockDeviceMapping) -> Self {
                Self { $($field: device.$field),* }
            }
        }

        impl From<StoredDevice> for BlockDeviceMapping {
            fn from(device: StoredDevice) -> Self {
                Self { $($field: device.$field),* }
            }
        }
    };
}

device_forms!(
    device_name,
    volume_size_gib,
    volume_type,
    iops,
    throughput_mib,
    encrypted,
    kms_key_id,
    snapshot_id,
    initialization_rate_mib,
    delete_on_termination
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{class, registry, status};
    use std::collections::{BTreeMap, BTreeSet};
    use tenon_domain::api::Ec2NodeClass;
    use tenon_domain::catalog::settings::ConnectionTracking;
    use tenon_domain::registry::FeatureGate;
    use tenon_domain::reservation::ReservationKind;

    fn made(labels: &[(&str, &str)]) -> CreateLaunchTemplate {
        made_for(labels, FeatureGate::Disabled, None)
    }

    fn made_for(
        labels: &[(&str, &str)],
        gate: FeatureGate,
        reservation: Option<&str>,
    ) -> CreateLaunchTemplate {
        let (mut registry, class, status) = (registry("prod"), class("default"), status("default"));
        registry.gates.reserved_capacity = gate;
        let id = |id: &str| ReservationId::parse(id).unwrap();
        let into = reservation.map(|text| LaunchedInto { id: id(text), kind: ReservationKind::Default });
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let setup = NodeSetup {
            registry: &registry,
            class: &class,
            labels: &labels,
            taints: &[],
            max_pods: Some(29),
        };
        let site = LaunchSite { reservation: into.as_ref(), ..LaunchSite::default() };
        template(&setup, &status, &status.images[0].id, site).unwrap()
    }

    /// The template of a class whose manifest asks for such a volume, in a cluster that may use these owners'
    /// snapshots.
    fn made_with_volume(ebs: &serde_json::Value, owners: &[&str]) -> CreateLaunchTemplate {
        let (mut registry, mut class, status) = (registry("prod"), class("default"), status("default"));
        registry.allowed.snapshot_owners = owners.iter().map(|owner| (*owner).to_owned()).collect();
        let manifest = serde_json::json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {
                "amiFamily": "AL2023",
                "role": "nodes",
                "amiSelectorTerms": [{"name": "nodes-*", "owner": "self"}],
                "subnetSelectorTerms": [{"tags": {"team": "web"}}],
                "securityGroupSelectorTerms": [{"tags": {"team": "web"}}],
                "blockDeviceMappings": [{"deviceName": "/dev/xvdb", "ebs": ebs}]
            }
        });
        class.settings.block_devices =
            tenon_domain::manifest::node_class_from_value(&manifest).unwrap().settings.block_devices;
        let labels = BTreeMap::new();
        let setup = NodeSetup {
            registry: &registry,
            class: &class,
            labels: &labels,
            taints: &[],
            max_pods: Some(29),
        };
        template(&setup, &status, &status.images[0].id, LaunchSite::default()).unwrap()
    }

    /// The cluster's entry may have lost the allowance since the class was validated.
    #[test]
    fn a_template_names_a_snapshot_only_by_the_stacks_allowance() {
        let named = |owners: &[&str]| {
            let made = made_with_volume(&serde_json::json!({"snapshotID": "snap-0secret"}), owners);
            made.data.block_devices[0].snapshot_id.clone()
        };
        assert_eq!(named(&[]), None);
        assert_eq!(named(&["111122223333"]).as_deref(), Some("snap-0secret"));
    }

    /// Without an allowance too: the image's own snapshot, which EC2 takes then, may be read as fast.
    #[test]
    fn a_manifests_volume_is_asked_for_field_by_field() {
        let ebs = serde_json::json!({
            "volumeSize": "100Gi", "volumeType": "gp3", "iops": 4000, "throughput": 250, "encrypted": true,
            "kmsKeyID": "alias/nodes", "snapshotID": "snap-0web", "volumeInitializationRate": 200,
            "deleteOnTermination": false
        });
        let cases: [(&[&str], Option<&str>); 2] = [(&["111122223333"], Some("snap-0web")), (&[], None)];
        for (owners, snapshot) in cases {
            let made = made_with_volume(&ebs, owners);
            let expected = BlockDeviceMapping {
                device_name: "/dev/xvdb".to_owned(),
                volume_size_gib: Some(100),
                volume_type: Some("gp3".to_owned()),
                iops: Some(4000),
                throughput_mib: Some(250),
                encrypted: Some(true),
                kms_key_id: Some("alias/nodes".to_owned()),
                snapshot_id: snapshot.map(str::to_owned),
                initialization_rate_mib: Some(200),
                delete_on_termination: Some(false),
            };
            assert_eq!(made.data.block_devices, [expected]);
            assert_eq!(from_stored(&to_stored(&made)).unwrap(), made);
        }
    }

    #[test]
    fn another_rate_of_initialization_is_another_template_and_none_is_stored_as_before() {
        let made = |rate: Option<u32>| {
            let mut ebs = serde_json::json!({"snapshotID": "snap-0web"});
            ebs["volumeInitializationRate"] = serde_json::json!(rate);
            made_with_volume(&ebs, &["111122223333"])
        };
        let none = made(None);
        assert_ne!(made(Some(100)).name, none.name);
        assert_ne!(made(Some(100)).name, made(Some(300)).name);
        assert!(!to_stored(&none).contains("initialization_rate"), "{}", to_stored(&none));
        assert_eq!(from_stored(&to_stored(&none)).unwrap(), none);
    }

    fn made_of(change: impl FnOnce(&mut Ec2NodeClass)) -> CreateLaunchTemplate {
        let (registry, mut class, status) = (registry("prod"), class("default"), status("default"));
        change(&mut class);
        let labels = BTreeMap::new();
        let setup = NodeSetup {
            registry: &registry,
            class: &class,
            labels: &labels,
            taints: &[],
            max_pods: Some(29),
        };
        template(&setup, &status, &status.images[0].id, LaunchSite::default()).unwrap()
    }

    #[test]
    fn each_word_about_interfaces_or_the_processor_makes_another_template() {
        let plain = made_of(|_| ());
        assert!(plain.data.network_interfaces.is_empty());
        let stored = to_stored(&plain);
        assert!(stored.contains(r#""associate_public_ip":null"#), "{stored}");
        for added in ["network_interfaces", "nested_virtualization"] {
            assert!(!stored.contains(added), "{stored}");
        }
        let public = made_of(|class| class.associate_public_ip = Some(false));
        let stored = to_stored(&public);
        assert!(stored.contains(r#""associate_public_ip":false"#), "{stored}");
        assert!(!stored.contains("network_interfaces"), "{stored}");
        let others = [
            public,
            made_of(|class| class.ip_prefix_count = Some(1)),
            made_of(|class| class.ip_prefix_count = Some(2)),
            made_of(|class| class.settings.connection_tracking = Some(ConnectionTracking::default())),
            made_of(|class| class.settings.nested_virtualization = Some(NestedVirtualization::Enabled)),
            made_of(|class| class.settings.nested_virtualization = Some(NestedVirtualization::Disabled)),
        ];
        let names: BTreeSet<&str> = others.iter().chain([&plain]).map(|made| made.name.as_str()).collect();
        assert_eq!(names.len(), 1 + others.len());
        for made in &others {
            assert_eq!(from_stored(&to_stored(made)).unwrap(), *made);
        }
    }

    #[test]
    fn monitoring_metadata_and_the_public_address_reach_the_template() {
        let made = made_of(|class| {
            class.detailed_monitoring = true;
            class.associate_public_ip = Some(true);
            class.metadata_options.http_tokens = "optional".to_owned();
            class.metadata_options.http_put_response_hop_limit = 2;
        });
        assert_eq!(made.data.monitoring, Some(Monitoring::Detailed));
        assert_eq!(made.data.network_interfaces[0].associate_public_ip, Some(true));
        let options = made.data.metadata_options.unwrap();
        assert_eq!((options.http_tokens, options.http_put_response_hop_limit), (MetadataTokens::Optional, 2));
    }

    #[test]
    fn a_template_is_named_by_its_content() {
        let one = made(&[("team", "a")]);
        assert_eq!(one, made(&[("team", "a")]));
        assert_ne!(one.name, made(&[("team", "b")]).name);
        assert!(one.name.starts_with("tenon-tenon-"), "{}", one.name);
        assert_eq!(one.data.block_devices[0].volume_size_gib, Some(20));
        assert_eq!(one.tags["kubernetes.io/cluster/prod"], "owned");
    }

    #[test]
    fn with_the_gate_off_a_template_says_nothing_of_reservations_whatever_was_planned() {
        let plain = made(&[]);
        assert_eq!(plain.data.reservations, None);
        assert_eq!(made_for(&[], FeatureGate::Disabled, Some("cr-1")), plain);
        assert!(!to_stored(&plain).contains("reservation"), "{}", to_stored(&plain));
        let none = made_for(&[], FeatureGate::Enabled, None);
        assert_eq!(none.data.reservations, Some(ReservationPreference::None));
        let one = made_for(&[], FeatureGate::Enabled, Some("cr-1"));
        assert_eq!(one.data.reservations, Some(ReservationPreference::Only("cr-1".parse().unwrap())));
        for template in [none, one] {
            assert_ne!(template.name, plain.name);
            assert_eq!(from_stored(&to_stored(&template)).unwrap(), template);
        }
    }

    #[test]
    fn a_template_names_its_placement_group_and_is_stored_as_before_without_one() {
        let made = |placement: Option<LaunchPlacement>| {
            let (registry, class, status) = (registry("prod"), class("default"), status("default"));
            let labels = BTreeMap::new();
            let setup = NodeSetup {
                registry: &registry,
                class: &class,
                labels: &labels,
                taints: &[],
                max_pods: Some(29),
            };
            let site = LaunchSite { placement: placement.as_ref(), ..LaunchSite::default() };
            template(&setup, &status, &status.images[0].id, site).unwrap()
        };
        let placed = |partition| LaunchPlacement { group: "pg-1".parse().unwrap(), partition };
        let plain = made(None);
        assert!(!to_stored(&plain).contains("placement"), "{}", to_stored(&plain));
        let (anywhere, second) = (made(Some(placed(None))), made(Some(placed(Some(2)))));
        assert_eq!(second.data.placement, Some(placed(Some(2))));
        let names = BTreeSet::from([&plain.name, &anywhere.name, &second.name]);
        assert_eq!(names.len(), 3);
        for made in [&plain, &anywhere, &second] {
            assert_eq!(from_stored(&to_stored(made)).unwrap(), *made);
        }
    }

    #[test]
    fn a_stored_template_reads_back() {
        let one = made(&[("team", "a")]);
        assert_eq!(from_stored(&to_stored(&one)).unwrap(), one);
        assert!(matches!(from_stored("{}"), Err(StoredTemplateError::Form(_))));
    }
}
