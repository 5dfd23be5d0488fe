//! EC2NodeClass, `karpenter.k8s.aws/v1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::api::meta::ObjectMeta;
use crate::catalog::NodeSettings;
use crate::class_hash::SpecHash;
use crate::id::{
    ImageId, NodeClassName, PlacementGroupId, ReservationId, SecurityGroupId, SubnetId, Zone, ZoneId,
};
use crate::labels;
use crate::manifest::fields::{integer, one_of};
use crate::reservation::MatchCriteria;
use crate::tags;

/// An EC2NodeClass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ec2NodeClass {
    /// Its metadata.
    pub meta: ObjectMeta,
    /// Its name.
    pub name: NodeClassName,
    /// `spec.subnetSelectorTerms`, ORed.
    pub subnet_selector: Vec<SubnetSelectorTerm>,
    /// `spec.securityGroupSelectorTerms`, ORed.
    pub security_group_selector: Vec<SecurityGroupSelectorTerm>,
    /// `spec.amiSelectorTerms`, ORed.
    pub ami_selector: Vec<AmiSelectorTerm>,
    /// `spec.capacityReservationSelectorTerms`, ORed.
    pub reservation_selector: Vec<ReservationSelectorTerm>,
    /// `spec.placementGroupSelector`.
    pub placement_group: Option<PlacementGroupSelector>,
    /// The settings behind labels, capacity and allocatable: AMI family, kubelet, block devices, interfaces,
    /// policies.
    pub settings: NodeSettings,
    /// `spec.userData`.
    pub user_data: Option<String>,
    /// The nodes' identity: `spec.role` or `spec.instanceProfile`.
    pub identity: NodeIdentity,
    /// `spec.tags`.
    pub tags: BTreeMap<String, String>,
    /// `spec.metadataOptions`, defaults filled in.
    pub metadata_options: MetadataOptions,
    /// `spec.associatePublicIPAddress`.
    pub associate_public_ip: Option<bool>,
    /// `spec.ipPrefixCount`: IPv4 prefixes of each interface.
    pub ip_prefix_count: Option<u32>,
    /// `spec.detailedMonitoring`.
    pub detailed_monitoring: bool,
    /// `spec.context`.
    pub context: Option<String>,
    /// The hash of `spec`, as Karpenter makes it.
    pub spec_hash: SpecHash,
    /// `status.subnets`, where the manifest has them.
    pub status_subnets: Vec<ResolvedSubnet>,
    /// Fields in use that Tenon doesn't act on, as dotted names. The condition `tenon.dev/Unsupported` names them.
    pub unsupported: Vec<String>,
    /// What an API server accepted and is probably a mistake: the place, what is wrong, the remedy.
    pub warnings: Vec<String>,
}

/// Tags that every launch sets itself. Source: karpenter.sh/docs/concepts/nodeclasses, `spec.tags`.
const RESTRICTED_TAGS: [&str; 4] = [tags::EKS_CLUSTER, labels::NODEPOOL, tags::CLAIM, labels::EC2NODECLASS];

/// Whether every launch sets this tag itself, so that `spec.tags` may not have it.
#[must_use]
pub fn is_restricted_tag(key: &str) -> bool {
    RESTRICTED_TAGS.contains(&key) || key.starts_with(tags::KUBERNETES_CLUSTER)
}

/// The identity of a class's nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeIdentity {
    /// `spec.role`: the name of a role, its path stripped.
    Role(String),
    /// `spec.instanceProfile`: a name or an ARN.
    InstanceProfile(InstanceProfile),
}

/// An instance profile, as EC2 can be given it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceProfile {
    /// By name (`IamInstanceProfile.Name`).
    Name(String),
    /// By ARN (`IamInstanceProfile.Arn`).
    Arn(String),
}

/// A term of `subnetSelectorTerms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubnetSelectorTerm {
    /// By id.
    Id(SubnetId),
    /// By tags, ANDed; the value `*` matches any value.
    Tags(BTreeMap<String, String>),
}

/// A term of `securityGroupSelectorTerms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecurityGroupSelectorTerm {
    /// By id.
    Id(SecurityGroupId),
    /// By group name; EC2's wildcards.
    Name(String),
    /// By tags, ANDed.
    Tags(BTreeMap<String, String>),
}

/// A term of `amiSelectorTerms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AmiSelectorTerm {
    /// By id.
    Id(ImageId),
    /// By name, tags and owner, ANDed.
    Match {
        /// Image name with EC2's wildcards.
        name: Option<String>,
        /// Tags; the value `*` matches any value.
        tags: BTreeMap<String, String>,
        /// An account, `self`, `amazon` or `aws-marketplace`.
        owner: Option<String>,
    },
    /// `alias: family@version`.
    Alias {
        /// Such as `al2023`.
        family: String,
        /// `latest` or a version.
        version: String,
    },
    /// `ssmParameter`: a name or an ARN.
    SsmParameter(String),
}

/// A term of `capacityReservationSelectorTerms`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationSelectorTerm {
    /// By id.
    Id(ReservationId),
    /// By tags, owner and match criteria, ANDed.
    Match {
        /// Tags; the value `*` matches any value.
        tags: BTreeMap<String, String>,
        /// `ownerID`: an account.
        owner: Option<String>,
        /// `instanceMatchCriteria`.
        match_criteria: Option<MatchCriteria>,
    },
}

/// `spec.placementGroupSelector`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementGroupSelector {
    /// By id.
    Id(PlacementGroupId),
    /// By name.
    Name(String),
}

impl PlacementGroupSelector {
    /// The id or the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Id(id) => id.as_str(),
            Self::Name(name) => name,
        }
    }
}

/// `spec.metadataOptions`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MetadataOptions {
    /// `httpEndpoint`: `enabled` or `disabled`.
    #[serde(deserialize_with = "endpoint")]
    pub http_endpoint: String,
    /// `httpProtocolIPv6`.
    #[serde(rename = "httpProtocolIPv6", deserialize_with = "endpoint")]
    pub http_protocol_ipv6: String,
    /// `httpPutResponseHopLimit`, 1 to 64.
    #[serde(deserialize_with = "integer::<1, 64, _, _>")]
    pub http_put_response_hop_limit: u8,
    /// `httpTokens`: `required` or `optional`.
    #[serde(deserialize_with = "tokens")]
    pub http_tokens: String,
}

impl Default for MetadataOptions {
    fn default() -> Self {
        Self {
            http_endpoint: "enabled".to_owned(),
            http_protocol_ipv6: "disabled".to_owned(),
            http_put_response_hop_limit: 1,
            http_tokens: "required".to_owned(),
        }
    }
}

fn endpoint<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    one_of(deserializer, "a metadata option", &["enabled", "disabled"])
}

fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    one_of(deserializer, "a metadata option", &["required", "optional"])
}

/// One of `status.subnets`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct ResolvedSubnet {
    /// The subnet.
    pub id: SubnetId,
    /// Its zone's name.
    pub zone: Zone,
    /// Its zone's id; absent in older statuses.
    #[serde(rename = "zoneID")]
    pub zone_id: Option<ZoneId>,
}

/// One of `status.securityGroups`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedSecurityGroup {
    /// The group.
    pub id: SecurityGroupId,
    /// Its name.
    pub name: String,
}
