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
use tenon_domain::catalog::CapacityType;
use tenon_domain::catalog::settings::{self, GIB, NestedVirtualization};
use tenon_domain::class_status::{ClassStatus, ResolvedImage};
use tenon_domain::digest::Digest;
use tenon_domain::id::{ImageId, ParseIdError, PlacementGroupId, ReservationId, SecurityGroupId};
use tenon_domain::labels;
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_domain::registry::{Allowances, FeatureGate, Registry};
use tenon_domain::reservation::{LaunchedInto, ReservedCapacity};
use tenon_domain::tags;
use tenon_ec2::port::{
    BlockDeviceMapping, CreateLaunchTemplate, InstanceMetadataOptions, InstanceProfileSpec,
    LaunchTemplateData, MetadataTags, MetadataTokens, Monitoring, ReservationPreference, Tags,
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
    /// The tenancy.
    pub tenancy: Tenancy,
    /// How its instances are paid for; `None` where that makes no difference.
    pub capacity_type: Option<CapacityType>,
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
            tenancy: fleet.tenancy,
            capacity_type: Some(fleet.capacity_type),
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
        block_devices: block_devices(&class.settings, &registry.allowed, named),
        metadata_options: Some(InstanceMetadataOptions {
            http_endpoint: metadata.http_endpoint.clone(),
            http_protocol_ipv6: metadata.http_protocol_ipv6.clone(),
            http_put_response_hop_limit: u32::from(metadata.http_put_response_hop_limit),
            http_tokens: match metadata.http_tokens.as_str() {
                "optional" => MetadataTokens::Optional,
                _ => MetadataTokens::Required,
            },
            // An account's default may allow it; then EC2 refuses tags such as `kubernetes.io/cluster/prod`.
            tags: MetadataTags::Disabled,
        }),
        monitoring: class.detailed_monitoring.then_some(Monitoring::Detailed),
        network_interfaces: interfaces(
            class,
            registry.ip_family(),
            site.efa_interfaces,
            registry.allowed.public_addresses,
        ),
        nested_virtualization: class.settings.nested_virtualization,
        network_interface_tags: tags.clone(),
        spot_request_tags: spot_request_tags(registry, site.capacity_type, &tags),
        reservations: ReservedCapacity::behind(&registry.gates).map(|_| {
            let only = |into: &LaunchedInto| ReservationPreference::Only(into.id.clone());
            site.reservation.map_or(ReservationPreference::None, only)
        }),
        placement: site.placement.cloned(),
        tenancy: site.tenancy,
    };
    let nameless = CreateLaunchTemplate { name: String::new(), data, tags };
    let digest = Digest::of_texts([to_stored(&nameless).as_str()]).base36(NAME_DIGITS);
    Ok(CreateLaunchTemplate { name: format!("tenon-{}-{digest}", registry.installation), ..nameless })
}

/// The tags of spot requests. EC2 refuses such tags in a launch on demand.
fn spot_request_tags(registry: &Registry, capacity_type: Option<CapacityType>, tags: &Tags) -> Tags {
    match (capacity_type, registry.spot_request_tags()) {
        (Some(CapacityType::Spot), FeatureGate::Enabled) => tags.clone(),
        (
            Some(CapacityType::Spot | CapacityType::OnDemand | CapacityType::Reserved) | None,
            FeatureGate::Enabled | FeatureGate::Disabled,
        ) => Tags::new(),
    }
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
/// template names no snapshot, and EC2 takes the image's own. The template never names that one: its owner needs no
/// allowance, but IAM would ask for one.
fn block_devices(
    settings: &settings::NodeSettings,
    allowed: &Allowances,
    image: Option<&ResolvedImage>,
) -> Vec<BlockDeviceMapping> {
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
        let device_name = mapping.device_name.clone().unwrap_or_default();
        let own = image.and_then(|image| image.own_snapshots.get(&device_name));
        // EC2 takes whole GiB; less would be too small.
        let gib =
            ebs.size.and_then(|size| u64::try_from(size.value_ceil()).ok()).map(|bytes| bytes.div_ceil(GIB));
        BlockDeviceMapping {
            device_name,
            volume_size_gib: gib.and_then(|gib| u32::try_from(gib).ok()),
            volume_type: ebs.volume_type,
            iops: ebs.iops,
            throughput_mib: ebs.throughput,
            encrypted: ebs.encrypted,
            kms_key_id: ebs.kms_key_id,
            snapshot_id: ebs.snapshot_id.filter(|id| allowed.has_snapshots() && own != Some(id)),
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
    /// Absent without tags: old templates keep their name.
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    spot_request_tags: Tags,
    tags: Tags,
    /// Absent without a preference: old templates keep their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservations: Option<StoredPreference>,
    /// Absent without a placement group: old templates keep their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<StoredPlacement>,
    /// Absent for the default tenancy: old templates keep their name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenancy: Option<StoredTenancy>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredTenancy {
    Dedicated,
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
    /// Absent in templates of earlier releases, which leave it to the account's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tags: Option<StoredMetadataTags>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredMetadataTags {
    Disabled,
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
            tags: match options.tags {
                MetadataTags::Disabled => Some(StoredMetadataTags::Disabled),
                MetadataTags::AccountDefault => None,
            },
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
        spot_request_tags: data.spot_request_tags.clone(),
        tags: request.tags.clone(),
        reservations: data.reservations.as_ref().map(|preference| match preference {
            ReservationPreference::Only(id) => StoredPreference::Only(id.to_string()),
            ReservationPreference::None => StoredPreference::None,
        }),
        placement: data.placement.as_ref().map(|placement| StoredPlacement {
            group: placement.group.to_string(),
            partition: placement.partition,
        }),
        tenancy: match data.tenancy {
            Tenancy::Default => None,
            Tenancy::Dedicated => Some(StoredTenancy::Dedicated),
        },
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
            tags: options
                .tags
                .map_or(MetadataTags::AccountDefault, |StoredMetadataTags::Disabled| MetadataTags::Disabled),
        }),
        monitoring: stored
            .detailed_monitoring
            .map(|on| if on { Monitoring::Detailed } else { Monitoring::Basic }),
        network_interfaces: restored(stored.associate_public_ip, stored.network_interfaces),
        nested_virtualization: stored.nested_virtualization.map(|enabled| {
            if enabled { NestedVirtualization::Enabled } else { NestedVirtualization::Disabled }
        }),
        network_interface_tags: stored.network_interface_tags,
        spot_request_tags: stored.spot_request_tags,
        reservations: stored.reservations.map(preference).transpose().map_err(id)?,
        placement: stored.placement.map(placement).transpose().map_err(id)?,
        tenancy: stored.tenancy.map_or(Tenancy::Default, |StoredTenancy::Dedicated| Tenancy::Dedicated),
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
mod tests;
