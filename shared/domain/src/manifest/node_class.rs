//! EC2NodeClass, `karpenter.k8s.aws/v1`.
//!
//! Rejects what Karpenter 1.14's schema and rules reject (aws/karpenter-provider-aws
//! `pkg/apis/v1/ec2nodeclass.go`), and distinguishes an instance profile's name from its ARN. Fields that Tenon doesn't
//! support are validated, accepted and named in `unsupported`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::class_devices as devices;
use super::class_selectors::{
    self as selectors, AmiTerm, GroupTerm, PlacementGroupTerm, ReservationTerm, SubnetTerm, TermList,
};
use super::decode::{At, KeepUnknown, NameUnknown, Place, Whole};
use super::fields::{MOST, texts, within};
use super::kubelet::read_kubelet;
use super::meta::{KindScope, ObjectFields};
use crate::api::node_class::{
    AmiSelectorTerm, Ec2NodeClass, InstanceProfile, MetadataOptions, NodeIdentity, ResolvedSubnet,
    is_restricted_tag,
};
use crate::catalog::NodeSettings;
use crate::catalog::settings::{
    AmiFamily, BlockDevice, ConnectionTracking, InstanceStorePolicy, KubeletConfiguration,
    NestedVirtualization, NetworkInterface,
};
use crate::class_hash::SpecHash;
use crate::id::NodeClassName;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClassSpec {
    subnet_selector_terms: Option<Vec<SubnetTerm>>,
    security_group_selector_terms: Option<Vec<GroupTerm>>,
    capacity_reservation_selector_terms: Vec<ReservationTerm>,
    placement_group_selector: Option<PlacementGroupTerm>,
    #[serde(rename = "associatePublicIPAddress")]
    associate_public_ip_address: Option<bool>,
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    ip_prefix_count: Option<u32>,
    ami_selector_terms: Option<Vec<AmiTerm>>,
    ami_family: Option<AmiFamily>,
    user_data: Option<String>,
    role: Option<String>,
    instance_profile: Option<String>,
    #[serde(deserialize_with = "texts")]
    tags: BTreeMap<String, String>,
    #[serde(rename = "kubelet")]
    _kubelet: Whole,
    block_device_mappings: Vec<BlockDevice>,
    instance_store_policy: Option<InstanceStorePolicy>,
    network_interfaces: Vec<NetworkInterface>,
    detailed_monitoring: bool,
    metadata_options: MetadataOptions,
    connection_tracking: Option<ConnectionTracking>,
    cpu_options: CpuOptions,
    context: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct CpuOptions {
    nested_virtualization: Option<NestedVirtualization>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeClassStatusFields {
    subnets: Vec<ResolvedSubnet>,
}

pub(super) fn read_node_class(at: At<'_, '_>) -> Option<Ec2NodeClass> {
    let mut form: ObjectFields<NameUnknown<ClassSpec>, KeepUnknown<NodeClassStatusFields>> = at.read()?;
    let NameUnknown(spec) = form.spec(&at.place)?;
    let place = at.place.key("spec");
    let identity = spec.identity(&place);
    spec.check(&place);
    let raw = at.value.get("spec").unwrap_or(&Value::Null);
    let amis = place.key("amiSelectorTerms");
    let (subnets, groups) = (place.key("subnetSelectorTerms"), place.key("securityGroupSelectorTerms"));
    let reservations = place.key("capacityReservationSelectorTerms");
    let list = |place, key| TermList { place, given: raw.get(key) };
    let ami_selector = selectors::amis(list(&amis, "amiSelectorTerms"), spec.ami_selector_terms);
    let ami_family = family(spec.ami_family, &ami_selector, &place);
    let mut unsupported = Vec::new();
    let family = ami_family.unwrap_or(AmiFamily::Al2023);
    let kubelet = match raw.get("kubelet").filter(|kubelet| !kubelet.is_null()) {
        Some(kubelet) => read_kubelet(at.key("spec", raw).key("kubelet", kubelet), family, &mut unsupported),
        None => KubeletConfiguration::default(),
    };
    unsupported.sort();
    let meta = form.metadata.of_object(&at.place, KindScope::Cluster)?;
    Some(Ec2NodeClass {
        name: NodeClassName::parse(meta.name.clone()).ok()?,
        meta,
        subnet_selector: selectors::subnets(
            list(&subnets, "subnetSelectorTerms"),
            spec.subnet_selector_terms,
        ),
        security_group_selector: selectors::security_groups(
            list(&groups, "securityGroupSelectorTerms"),
            spec.security_group_selector_terms,
        ),
        ami_selector,
        reservation_selector: selectors::reservations(
            list(&reservations, "capacityReservationSelectorTerms"),
            spec.capacity_reservation_selector_terms,
        ),
        placement_group: selectors::placement_group(
            spec.placement_group_selector,
            &place.key("placementGroupSelector"),
        ),
        settings: NodeSettings {
            ami_family: family,
            kubelet,
            block_devices: spec.block_device_mappings,
            instance_store_policy: spec.instance_store_policy,
            network_interfaces: spec.network_interfaces,
            connection_tracking: spec.connection_tracking,
            nested_virtualization: spec.cpu_options.nested_virtualization,
            ..NodeSettings::default()
        },
        user_data: spec.user_data,
        identity: identity?,
        tags: spec.tags,
        metadata_options: spec.metadata_options,
        associate_public_ip: spec.associate_public_ip_address,
        ip_prefix_count: spec.ip_prefix_count,
        detailed_monitoring: spec.detailed_monitoring,
        context: spec.context,
        spec_hash: SpecHash::of(raw, family),
        status_subnets: form.status.map(|KeepUnknown(status)| status.subnets).unwrap_or_default(),
        unsupported,
        warnings: Vec::new(),
    })
}

impl ClassSpec {
    fn check(&self, place: &Place<'_>) {
        devices::check_block_devices(&self.block_device_mappings, &place.key("blockDeviceMappings"));
        devices::check_interfaces(&self.network_interfaces, &place.key("networkInterfaces"));
        devices::check_tracking(self.connection_tracking.as_ref(), &place.key("connectionTracking"));
        let tags = place.key("tags");
        for key in self.tags.keys() {
            if key.is_empty() {
                tags.key(key).error("a tag without a key", "name it, or leave it out");
            } else if is_restricted_tag(key) {
                tags.key(key).error(format!("Tenon sets tag `{key}` on every instance"), "leave it out");
            }
        }
    }

    fn identity(&self, place: &Place<'_>) -> Option<NodeIdentity> {
        match (&self.role, &self.instance_profile) {
            (None, None) => {
                place.error(
                    "either `role` or `instanceProfile` is required, none is given",
                    "add the nodes' role, or an instance profile that holds it",
                );
                None
            }
            (Some(_), Some(_)) => {
                let message = "`role` and `instanceProfile` exclude each other";
                place.key("instanceProfile").error(message, "keep one of them");
                None
            }
            (Some(role), None) => read_role(role, &place.key("role")).map(NodeIdentity::Role),
            (None, Some(profile)) => {
                read_profile(profile, &place.key("instanceProfile")).map(NodeIdentity::InstanceProfile)
            }
        }
    }
}

/// `amiFamily`, or the alias's family. With an alias, `amiFamily` must be the same family or `Custom`.
fn family(given: Option<AmiFamily>, terms: &[AmiSelectorTerm], spec: &Place<'_>) -> Option<AmiFamily> {
    let alias = terms.iter().find_map(|term| match term {
        AmiSelectorTerm::Alias { family, .. } => selectors::alias_family(family),
        AmiSelectorTerm::Id(_) | AmiSelectorTerm::Match { .. } | AmiSelectorTerm::SsmParameter(_) => None,
    });
    let place = spec.key("amiFamily");
    match (given, alias) {
        // If no term is valid, one of the invalid terms may be an alias.
        (None, None) if !terms.is_empty() => {
            spec.missing("amiFamily", "the family of the images, such as `AL2023`, or an alias term");
        }
        (Some(family), Some(alias)) if family != alias && family != AmiFamily::Custom => place.error(
            format!("`{family}` isn't the family of the alias, which is `{alias}`"),
            "leave `amiFamily` out, or write `Custom`",
        ),
        (Some(_) | None, Some(_) | None) => {}
    }
    given.or(alias)
}

/// The role's name, without a path or the rest of an ARN.
fn read_role(text: &str, at: &Place<'_>) -> Option<String> {
    if iam_resource(text) == Some("instance-profile") {
        at.error(
            format!("`{text}` is the ARN of an instance profile, not of a role"),
            "give it as `instanceProfile`, and leave `role` out",
        );
        return None;
    }
    let name = text.rsplit('/').next().unwrap_or(text);
    if name.is_empty() {
        at.error("must not be empty", "write the name of the nodes' role");
        return None;
    }
    Some(name.to_owned())
}

fn read_profile(text: &str, at: &Place<'_>) -> Option<InstanceProfile> {
    if !text.starts_with("arn:") {
        if is_iam_name(text) {
            return Some(InstanceProfile::Name(text.to_owned()));
        }
        at.error(
            format!("`{text}` is neither the name nor the ARN of an instance profile"),
            "write a name of 1 to 128 letters, digits and `_+=,.@-`, or `arn:<partition>:iam::<account>:instance-profile/<name>`",
        );
        return None;
    }
    match iam_resource(text) {
        Some("instance-profile") => return Some(InstanceProfile::Arn(text.to_owned())),
        Some("role") => at.error(
            format!("`{text}` is the ARN of a role, not of an instance profile"),
            "give the role's name as `role` instead, or the name or ARN of an instance profile that holds the role",
        ),
        Some(_) | None => at.error(
            format!("`{text}` is not the ARN of an instance profile"),
            "write `arn:<partition>:iam::<account>:instance-profile/<name>`, or only the name",
        ),
    }
    None
}

/// The resource type of a well-formed IAM ARN, such as `role`.
fn iam_resource(arn: &str) -> Option<&str> {
    let mut parts = arn.splitn(6, ':');
    let (scheme, partition, service) = (parts.next()?, parts.next()?, parts.next()?);
    let (region, account, resource) = (parts.next()?, parts.next()?, parts.next()?);
    let (kind, path) = resource.split_once('/')?;
    let name = path.rsplit('/').next()?;
    let partition_ok = partition == "aws" || partition.starts_with("aws-");
    let account_ok = account.len() == 12 && account.bytes().all(|b| b.is_ascii_digit());
    let well_formed = scheme == "arn" && service == "iam" && region.is_empty() && partition_ok && account_ok;
    (well_formed && is_iam_name(name)).then_some(kind)
}

fn is_iam_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c))
}
