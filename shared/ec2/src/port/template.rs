//! Launch templates in EC2's requests and answers.

use tenon_domain::Timestamp;
use tenon_domain::catalog::settings::{ConnectionTracking, NestedVirtualization};
use tenon_domain::id::{ImageId, SecurityGroupId};
use tenon_domain::placement::{LaunchPlacement, Tenancy};

use super::{ReservationPreference, TagFilter, Tags};

/// An instance profile, by name or by ARN; EC2 has a field for each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum InstanceProfileSpec {
    /// Its name.
    Name(String),
    /// Its ARN.
    Arn(String),
}

/// Whether metadata needs a session token (IMDSv2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetadataTokens {
    /// It does.
    Required,
    /// It doesn't.
    Optional,
}

/// Detailed monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Monitoring {
    /// Every minute.
    Detailed,
    /// Every five minutes.
    Basic,
}

/// Whether an instance can read its tags from the metadata service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum MetadataTags {
    /// It can't.
    Disabled,
    /// The account's default decides.
    #[default]
    AccountDefault,
}

/// The instance metadata service's options.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceMetadataOptions {
    /// `enabled` or `disabled`.
    pub http_endpoint: String,
    /// `enabled` or `disabled`.
    pub http_protocol_ipv6: String,
    /// How far an answer may travel, in hops.
    pub http_put_response_hop_limit: u32,
    /// Whether a session token is needed.
    pub http_tokens: MetadataTokens,
    /// Whether it tells tags.
    pub tags: MetadataTags,
}

/// A block device mapping with an EBS volume.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct BlockDeviceMapping {
    /// Such as `/dev/xvda`.
    pub device_name: String,
    /// GiB.
    pub volume_size_gib: Option<u32>,
    /// Such as `gp3`.
    pub volume_type: Option<String>,
    /// I/O operations a second.
    pub iops: Option<u32>,
    /// MiB a second.
    pub throughput_mib: Option<u32>,
    /// Whether it is encrypted; `None` is the account's default.
    pub encrypted: Option<bool>,
    /// The key, by id or ARN.
    pub kms_key_id: Option<String>,
    /// The snapshot that it is made from.
    pub snapshot_id: Option<String>,
    /// The volume's initialisation rate in MiB a second; `None` leaves the rate to EC2.
    pub initialization_rate_mib: Option<u32>,
    /// Whether it is deleted with its instance; `None` is EC2's default.
    pub delete_on_termination: Option<bool>,
}

tenon_domain::words! {
    /// The kind of a network interface: `InterfaceType`. Its words are EC2's.
    pub enum InterfaceKind {
        /// An ordinary one.
        Interface = "interface",
        /// An Elastic Fabric Adapter with addresses.
        Efa = "efa",
        /// An Elastic Fabric Adapter without addresses.
        EfaOnly = "efa-only",
    }
}

/// The IPv6 addresses of an interface: a primary one, and prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PrimaryIpv6 {
    /// How many IPv6 prefixes it gets.
    pub prefix_count: Option<u32>,
}

/// A network interface that instances are launched with. It has the template's security groups. The default is the
/// primary interface as EC2 makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct NetworkInterfaceSpec {
    /// The index of its network card; `None` is EC2's default, 0.
    pub card: Option<u32>,
    /// Its device index.
    pub device: u32,
    /// Its kind; `None` is EC2's default, `interface`.
    pub kind: Option<InterfaceKind>,
    /// Whether it gets a public address; `None` is the subnet's default.
    pub associate_public_ip: Option<bool>,
    /// How many IPv4 prefixes it gets.
    pub ipv4_prefix_count: Option<u32>,
    /// Its primary IPv6 address; `None` is the subnet's default.
    pub ipv6: Option<PrimaryIpv6>,
    /// The timeouts of its tracked connections; `None` is EC2's default.
    pub connection_tracking: Option<ConnectionTracking>,
    /// Whether it is deleted with its instance; `None` is EC2's default.
    pub delete_on_termination: Option<bool>,
}

/// The content of a launch template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LaunchTemplateData {
    /// The image; a fleet's override comes first.
    pub image: Option<ImageId>,
    /// Security groups of all its interfaces.
    pub security_groups: Vec<SecurityGroupId>,
    /// The instance profile.
    pub instance_profile: Option<InstanceProfileSpec>,
    /// User data, base64.
    pub user_data: Option<String>,
    /// Block devices, in order.
    pub block_devices: Vec<BlockDeviceMapping>,
    /// The metadata service.
    pub metadata_options: Option<InstanceMetadataOptions>,
    /// Detailed monitoring.
    pub monitoring: Option<Monitoring>,
    /// Its network interfaces; empty for the primary one as EC2 makes it.
    pub network_interfaces: Vec<NetworkInterfaceSpec>,
    /// Whether instances can run virtual machines; `None` is EC2's default.
    pub nested_virtualization: Option<NestedVirtualization>,
    /// Tags for network interfaces.
    pub network_interface_tags: Tags,
    /// Tags for spot requests. Only spot launches may use a template that has some.
    pub spot_request_tags: Tags,
    /// Its preference for capacity reservations.
    pub reservations: Option<ReservationPreference>,
    /// Its placement group.
    pub placement: Option<LaunchPlacement>,
    /// Its tenancy; the default one is its VPC's.
    pub tenancy: Tenancy,
}

/// A request for a launch template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CreateLaunchTemplate {
    /// Its name, 3 to 128 characters.
    pub name: String,
    /// Its content.
    pub data: LaunchTemplateData,
    /// Its own tags.
    pub tags: Tags,
}

/// A launch template that exists.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchTemplate {
    /// Its id, `lt-…`.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its default version's number.
    pub version: u64,
    /// Its creation time.
    pub created_at: Timestamp,
    /// Its own tags.
    pub tags: Tags,
}

/// Launch templates by name and tag. Criteria are ANDed; empty ones don't restrict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LaunchTemplateFilter {
    /// Any of these names; an unknown one is `NotFound`.
    pub names: Vec<String>,
    /// All of these.
    pub tags: Vec<TagFilter>,
}
