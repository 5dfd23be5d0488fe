//! EC2NodeClass, `karpenter.k8s.aws/v1`.
//!
//! Decides what Karpenter 1.14's schema and rules reject (aws/karpenter-provider-aws
//! `pkg/apis/v1/ec2nodeclass.go`), and tells an instance profile's name from
//! its ARN. Parts of the API that nothing acts on yet are validated, accepted and named in `unsupported`.

use std::collections::BTreeMap;

use crate::api::node_class::{
    AmiSelectorTerm, Ec2NodeClass, InstanceProfile, MetadataOptions, NodeIdentity, ResolvedSubnet,
    is_restricted_tag,
};
use crate::catalog::NodeSettings;
use crate::catalog::settings::{AmiFamily, InstanceStorePolicy};
use crate::id::{NodeClassName, SubnetId, Zone, ZoneId};

use super::class_devices as devices;
use super::class_selectors as selectors;
use super::decode::{At, Fields};
use super::kubelet;
use super::meta::{META_FIELDS, Scope, read_meta};
use super::node_pool::OBJECT_FIELDS;

const SPEC_FIELDS: Fields<'static> = Fields::Only(&[
    "subnetSelectorTerms",
    "securityGroupSelectorTerms",
    "capacityReservationSelectorTerms",
    "placementGroupSelector",
    "associatePublicIPAddress",
    "ipPrefixCount",
    "amiSelectorTerms",
    "amiFamily",
    "userData",
    "role",
    "instanceProfile",
    "tags",
    "kubelet",
    "blockDeviceMappings",
    "instanceStorePolicy",
    "networkInterfaces",
    "detailedMonitoring",
    "metadataOptions",
    "connectionTracking",
    "cpuOptions",
    "context",
]);
/// Parts of the API that are read and that nothing acts on.
const UNSUPPORTED: [&str; 5] =
    ["placementGroupSelector", "ipPrefixCount", "networkInterfaces", "connectionTracking", "cpuOptions"];

pub(super) fn read_node_class(at: At<'_>) -> Option<Ec2NodeClass> {
    at.check_map(OBJECT_FIELDS);
    let meta = read_meta(at, Scope::Cluster, META_FIELDS);
    let spec = at.required_object("spec", SPEC_FIELDS)?;
    let mut unsupported: Vec<String> =
        UNSUPPORTED.iter().filter(|key| spec.says(key)).map(|key| format!("spec.{key}")).collect();
    let subnet_selector = selectors::read_subnet_terms(spec);
    let security_group_selector = selectors::read_security_group_terms(spec);
    let ami_selector = selectors::read_ami_terms(spec);
    let reservation_selector = selectors::read_reservation_terms(spec);
    selectors::check_placement_group(spec);
    let identity = read_identity(spec);
    let ami_family = read_family(spec, &ami_selector);
    let settings = read_settings(spec, ami_family.unwrap_or(AmiFamily::Al2023), &mut unsupported);
    name_unsupported(ami_family, &ami_selector, &mut unsupported);
    let _: Option<u32> = spec.integer_of("ipPrefixCount", 0..=i64::from(i32::MAX));
    let (tags, metadata_options) = (read_tags(spec), read_metadata_options(spec));
    let status_subnets = at.object("status", Fields::Any).map(read_subnets).unwrap_or_default();
    let (user_data, context) = (spec.text_of("userData"), spec.text_of("context"));
    let associate_public_ip = spec.boolean("associatePublicIPAddress");
    let detailed_monitoring = spec.boolean("detailedMonitoring").unwrap_or(false);
    let (meta, identity) = (meta?, identity?);
    let name = NodeClassName::parse(meta.name.clone()).ok()?;
    unsupported.sort();
    Some(Ec2NodeClass {
        meta,
        name,
        subnet_selector,
        security_group_selector,
        ami_selector,
        reservation_selector,
        settings,
        user_data,
        identity,
        tags,
        metadata_options,
        associate_public_ip,
        detailed_monitoring,
        context,
        status_subnets,
        unsupported,
    })
}

fn read_settings(spec: At<'_>, ami_family: AmiFamily, unsupported: &mut Vec<String>) -> NodeSettings {
    let instance_store_policy = spec
        .field("instanceStorePolicy")
        .and_then(|field| field.one_of("an instance store policy", &["RAID0"]))
        .map(|_| InstanceStorePolicy::Raid0);
    NodeSettings {
        ami_family,
        kubelet: kubelet::read_kubelet(spec, ami_family, unsupported),
        block_devices: devices::read_block_devices(spec),
        instance_store_policy,
        network_interfaces: devices::read_network_interfaces(spec),
        connection_tracking: devices::read_connection_tracking(spec),
        nested_virtualization: devices::read_nested_virtualization(spec),
        ..NodeSettings::default()
    }
}

/// User data is written for AL2023 and Custom; images are looked up by id, name, tags and owner.
fn name_unsupported(family: Option<AmiFamily>, terms: &[AmiSelectorTerm], unsupported: &mut Vec<String>) {
    match family {
        Some(AmiFamily::Al2023 | AmiFamily::Custom) | None => {}
        Some(
            AmiFamily::Al2
            | AmiFamily::Bottlerocket
            | AmiFamily::Windows2019
            | AmiFamily::Windows2022
            | AmiFamily::Windows2025,
        ) => unsupported.push("spec.amiFamily".to_owned()),
    }
    for (index, term) in terms.iter().enumerate() {
        match term {
            AmiSelectorTerm::Id(_) | AmiSelectorTerm::Match { .. } => {}
            AmiSelectorTerm::Alias { .. } => {
                unsupported.push(format!("spec.amiSelectorTerms[{index}].alias"))
            }
            AmiSelectorTerm::SsmParameter(_) => {
                unsupported.push(format!("spec.amiSelectorTerms[{index}].ssmParameter"));
            }
        }
    }
}

/// `amiFamily`, or the alias's; with an alias it may only repeat that one or be `Custom`.
fn read_family(spec: At<'_>, terms: &[AmiSelectorTerm]) -> Option<AmiFamily> {
    let alias = terms.iter().find_map(|term| match term {
        AmiSelectorTerm::Alias { family, .. } => selectors::alias_family(family),
        AmiSelectorTerm::Id(_) | AmiSelectorTerm::Match { .. } | AmiSelectorTerm::SsmParameter(_) => None,
    });
    let Some(field) = spec.field("amiFamily") else {
        let has_alias = selectors::has_alias(spec);
        if !has_alias {
            spec.missing("amiFamily", "the family of the images, such as `AL2023`, or an alias term");
        }
        return alias;
    };
    let words = AmiFamily::ALL.map(AmiFamily::as_str);
    let family = AmiFamily::from_spec(field.one_of("an AMI family", &words)?)?;
    match alias {
        Some(alias) if family != alias && family != AmiFamily::Custom => {
            field.error(
                format!("`{family}` isn't the family of the alias, which is `{alias}`"),
                "leave `amiFamily` out, or write `Custom`",
            );
        }
        Some(_) | None => {}
    }
    Some(family)
}

fn read_identity(spec: At<'_>) -> Option<NodeIdentity> {
    match (spec.field("role"), spec.field("instanceProfile")) {
        (None, None) => {
            spec.error(
                "either `role` or `instanceProfile` is required, none is given",
                "add the nodes' role, or an instance profile that holds it",
            );
            None
        }
        (Some(_), Some(profile)) => {
            profile.error("`role` and `instanceProfile` exclude each other", "keep one of them");
            None
        }
        (Some(role), None) => read_role(role).map(NodeIdentity::Role),
        (None, Some(profile)) => read_profile(profile).map(NodeIdentity::InstanceProfile),
    }
}

/// The role's name: a path in front of it is stripped, and so is the rest of an ARN.
fn read_role(at: At<'_>) -> Option<String> {
    let text = at.text()?;
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

fn read_profile(at: At<'_>) -> Option<InstanceProfile> {
    let text = at.text()?;
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

/// The kind of resource of an IAM ARN whose account and name are well formed, such as `role`.
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

fn read_tags(spec: At<'_>) -> BTreeMap<String, String> {
    if let Some(field) = spec.field("tags") {
        for (key, value) in field.entries() {
            if key.is_empty() {
                value.error("a tag without a key", "name it, or leave it out");
            } else if is_restricted_tag(key) {
                value.error(format!("tag `{key}` is set on every instance"), "leave it out");
            }
        }
    }
    spec.text_map("tags")
}

fn read_metadata_options(spec: At<'_>) -> MetadataOptions {
    let mut options = MetadataOptions::default();
    let fields = Fields::Only(&["httpEndpoint", "httpProtocolIPv6", "httpPutResponseHopLimit", "httpTokens"]);
    let Some(at) = spec.object("metadataOptions", fields) else { return options };
    let word = |key: &'static str, words: &[&str], into: &mut String| {
        if let Some(text) = at.field(key).and_then(|field| field.one_of("a metadata option", words)) {
            text.clone_into(into);
        }
    };
    word("httpEndpoint", &["enabled", "disabled"], &mut options.http_endpoint);
    word("httpProtocolIPv6", &["enabled", "disabled"], &mut options.http_protocol_ipv6);
    word("httpTokens", &["required", "optional"], &mut options.http_tokens);
    if let Some(limit) = at.integer_of("httpPutResponseHopLimit", 1..=64) {
        options.http_put_response_hop_limit = limit;
    }
    options
}

fn read_subnets(status: At<'_>) -> Vec<ResolvedSubnet> {
    let Some(list) = status.list("subnets") else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            item.required_text("id", "the subnet's id")?;
            item.required_text("zone", "the subnet's zone")?;
            Some(ResolvedSubnet {
                id: item.field("id")?.id(SubnetId::parse)?,
                zone: item.field("zone")?.id(Zone::parse)?,
                zone_id: item.field("zoneID").and_then(|field| field.id(ZoneId::parse)),
            })
        })
        .collect()
}
