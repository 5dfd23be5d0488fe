//! Questions about a cluster, to EKS and to EC2.

use std::collections::BTreeMap;

use aws_sdk_ec2::types::Filter;

use super::{Answer, answered, found};
use crate::doctor::facts::{AutoMode, CallerFacts, DoctorFacts, EksFacts, EntryFacts, TaggedFacts};
use crate::doctor::judge::issuer;

/// EKS's code of what isn't there.
const ABSENT: [&str; 1] = ["ResourceNotFoundException"];

pub(super) async fn described(eks: &aws_sdk_eks::Client, name: &str) -> Answer<Option<EksFacts>> {
    let sent = eks.describe_cluster().name(name).send().await;
    let answer = found("eks:DescribeCluster", &ABSENT, sent)?;
    Ok(answer.and_then(|answer| answer.cluster).map(|cluster| EksFacts {
        version: cluster.version().unwrap_or_default().to_owned(),
        status: cluster.status().map(|status| status.as_str().to_owned()).unwrap_or_default(),
        endpoint: cluster.endpoint().unwrap_or_default().to_owned(),
        authentication_mode: cluster
            .access_config()
            .and_then(|access| access.authentication_mode())
            .map(|mode| mode.as_str().to_owned()),
        auto_mode: match cluster.compute_config().and_then(|compute| compute.enabled()) {
            Some(true) => AutoMode::On,
            Some(false) | None => AutoMode::Off,
        },
    }))
}

pub(super) async fn addon(eks: &aws_sdk_eks::Client, name: &str) -> Answer<Option<String>> {
    let sent = eks.describe_addon().cluster_name(name).addon_name("eks-pod-identity-agent").send().await;
    let answer = found("eks:DescribeAddon", &ABSENT, sent)?;
    let addon = answer.and_then(|answer| answer.addon);
    Ok(addon.map(|addon| addon.status().map(|status| status.as_str().to_owned()).unwrap_or_default()))
}

/// The ARN of the OIDC provider that the cluster's stack names, in the caller's account and partition.
pub(super) fn provider_arn(facts: &DoctorFacts, cluster: &str) -> Option<String> {
    let Ok(CallerFacts::Known { account, arn }) = &facts.caller else { return None };
    let partition = arn.split(':').nth(1)?;
    Some(format!("arn:{partition}:iam::{account}:oidc-provider/{}", issuer(facts, cluster)?))
}

/// The entries of roles with these names, whatever their paths.
pub(super) async fn entries(
    eks: &aws_sdk_eks::Client,
    cluster: &str,
    roles: &[String],
) -> Answer<Vec<EntryFacts>> {
    let pages = eks.list_access_entries().cluster_name(cluster).into_paginator().items().send();
    let listed = pages.try_collect().await;
    let listed = found("eks:ListAccessEntries", &ABSENT, listed)?.unwrap_or_default();
    let mut entries = Vec::new();
    for principal in listed {
        let name = principal.split_once(":role/").and_then(|(_, path)| path.rsplit('/').next());
        if name.is_some_and(|name| roles.iter().any(|role| role == name)) {
            let entry_type = entry_type(eks, cluster, &principal).await;
            entries.push(EntryFacts { principal, entry_type });
        }
    }
    Ok(entries)
}

async fn entry_type(eks: &aws_sdk_eks::Client, cluster: &str, principal: &str) -> Answer<String> {
    let sent = eks.describe_access_entry().cluster_name(cluster).principal_arn(principal).send().await;
    let answer = answered("eks:DescribeAccessEntry", sent)?;
    Ok(answer.access_entry().and_then(|entry| entry.r#type()).unwrap_or_default().to_owned())
}

pub(super) async fn subnets(
    ec2: &aws_sdk_ec2::Client,
    tags: BTreeMap<String, String>,
) -> Answer<TaggedFacts> {
    let pages = ec2.describe_subnets().set_filters(Some(filters(&tags))).into_paginator().items().send();
    let subnets = answered("ec2:DescribeSubnets", pages.try_collect().await)?;
    Ok(TaggedFacts { tags, ids: subnets.into_iter().filter_map(|subnet| subnet.subnet_id).collect() })
}

pub(super) async fn security_groups(
    ec2: &aws_sdk_ec2::Client,
    tags: BTreeMap<String, String>,
) -> Answer<TaggedFacts> {
    let asked = ec2.describe_security_groups().set_filters(Some(filters(&tags)));
    let groups = asked.into_paginator().items().send().try_collect().await;
    let groups = answered("ec2:DescribeSecurityGroups", groups)?;
    Ok(TaggedFacts { tags, ids: groups.into_iter().filter_map(|group| group.group_id).collect() })
}

fn filters(tags: &BTreeMap<String, String>) -> Vec<Filter> {
    let filter = |(key, value): (&String, &String)| match value.as_str() {
        "*" => Filter::builder().name("tag-key").values(key).build(),
        value => Filter::builder().name(format!("tag:{key}")).values(value).build(),
    };
    tags.iter().map(filter).collect()
}
