//! Checks of the cluster in EKS, and of what its nodes need.

use std::collections::BTreeMap;

use super::{Judged, of, unknown};
use crate::doctor::facts::{
    AutoMode, ClassFacts, ClusterAnswers, DoctorFacts, EksFacts, EntryFacts, TaggedFacts,
};
use crate::doctor::judge::installation;

/// The oldest version that Tenon is for: see docs/install.md.
const OLDEST: (u32, u32) = (1, 31);
/// Types of access entries that let a kubelet join. Source: EKS API Reference, `CreateAccessEntry`, read 2026-11.
const NODE_ENTRIES: [&str; 2] = ["EC2_LINUX", "EC2_WINDOWS"];

/// Judges a cluster that is named, by its name and its facts.
pub(super) fn named(facts: &DoctorFacts, judge: impl FnOnce(&str, &ClusterAnswers) -> Judged) -> Judged {
    match (&facts.scope.cluster, &facts.cluster) {
        (Some(name), Some(cluster)) => judge(name, cluster),
        (Some(_) | None, _) => {
            let known = facts.registered.as_ref().ok().and_then(Option::as_ref);
            let known = known.filter(|known| !known.is_empty()).map(|known| known.join("`, `"));
            let which = known.map_or(String::new(), |known| format!(": `{known}`"));
            Judged::not_applicable(format!("name a cluster with `--cluster`{which}"))
        }
    }
}

/// Judges a cluster that EKS knows.
fn known(facts: &DoctorFacts, judge: impl FnOnce(&str, &ClusterAnswers, &EksFacts) -> Judged) -> Judged {
    named(facts, |name, cluster| {
        of(&cluster.eks, |eks| match eks {
            Some(eks) => judge(name, cluster, eks),
            None => Judged::not_applicable("there is no cluster: see `cluster`"),
        })
    })
}

pub(super) fn version(facts: &DoctorFacts) -> Judged {
    let region = &facts.scope.region;
    named(facts, |name, cluster| {
        of(&cluster.eks, |eks| match eks {
            None => Judged::failed(
                format!("EKS has no cluster `{name}` in `{region}`"),
                format!("aws eks list-clusters --region {region}"),
            ),
            Some(eks) => match parsed(&eks.version) {
                Some(version) if version >= OLDEST => {
                    Judged::passed(format!("`{name}` has Kubernetes {}", eks.version))
                }
                Some(_) => Judged::failed(
                    format!("`{name}` has Kubernetes {}: Tenon needs {}.{}", eks.version, OLDEST.0, OLDEST.1),
                    "upgrade the cluster, one minor version after the other",
                ),
                None => Judged::unknown(
                    format!("EKS says `{}` instead of a version such as `1.35`", eks.version),
                    format!(
                        "aws eks describe-cluster --name {name} --query cluster.version --region {region}"
                    ),
                ),
            },
        })
    })
}

fn parsed(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

pub(super) fn status(facts: &DoctorFacts) -> Judged {
    let region = &facts.scope.region;
    known(facts, |name, _, eks| match eks.status.as_str() {
        "ACTIVE" => Judged::passed(format!("`{name}` is ACTIVE")),
        "UPDATING" => Judged::warning(
            format!("`{name}` is UPDATING"),
            format!("aws eks wait cluster-active --name {name} --region {region}"),
        ),
        status @ ("CREATING" | "PENDING") => Judged::failed(
            format!("`{name}` is {status}"),
            format!("aws eks wait cluster-active --name {name} --region {region}"),
        ),
        status => Judged::failed(
            format!("`{name}` is {status}"),
            format!("aws eks describe-cluster --name {name} --query cluster.health --region {region}"),
        ),
    })
}

/// How the agent gets credentials.
pub(super) fn pod_identity(facts: &DoctorFacts) -> Judged {
    let region = &facts.scope.region;
    known(facts, |name, cluster, eks| {
        if eks.auto_mode == AutoMode::On {
            return Judged::passed("EKS Auto Mode has the Pod Identity Agent built in");
        }
        of(&cluster.addon, |addon| match addon.as_deref() {
            Some("ACTIVE") => Judged::passed("the add-on `eks-pod-identity-agent` is ACTIVE"),
            Some(status @ ("CREATING" | "UPDATING")) => Judged::warning(
                format!("the add-on `eks-pod-identity-agent` is {status}"),
                format!(
                    "aws eks wait addon-active --cluster-name {name} --addon-name eks-pod-identity-agent --region {region}"
                ),
            ),
            Some(status) => Judged::failed(
                format!("the add-on `eks-pod-identity-agent` is {status}"),
                format!(
                    "aws eks describe-addon --cluster-name {name} --addon-name eks-pod-identity-agent \
                     --query addon.health --region {region}"
                ),
            ),
            None => by_token(facts, name, cluster),
        })
    })
}

/// Without the add-on: by tokens, where the cluster's stack trusts them.
fn by_token(facts: &DoctorFacts, name: &str, cluster: &ClusterAnswers) -> Judged {
    let region = &facts.scope.region;
    let Some(issuer) = installation::issuer(facts, name) else {
        return Judged::failed(
            "the add-on `eks-pod-identity-agent` isn't there, and the cluster's stack names no `OidcProvider`",
            format!(
                "aws eks create-addon --cluster-name {name} --addon-name eks-pod-identity-agent --region {region}"
            ),
        );
    };
    of(&cluster.oidc_provider, |provider| match provider {
        Some(arn) => Judged::passed(format!("the agent's tokens are of `{arn}`")),
        None => Judged::failed(
            format!("the cluster's stack trusts `{issuer}`, and IAM has no such OIDC provider"),
            format!("eksctl utils associate-iam-oidc-provider --cluster {name} --region {region} --approve"),
        ),
    })
}

pub(super) fn subnets(facts: &DoctorFacts) -> Judged {
    named(facts, |_, cluster| {
        let bare = |class: &ClassFacts| class.subnets == 0;
        of(&cluster.subnets, |found| tagged("subnet", found, without(cluster, bare)))
    })
}

pub(super) fn security_groups(facts: &DoctorFacts) -> Judged {
    named(facts, |_, cluster| {
        let bare = |class: &ClassFacts| class.security_groups == 0;
        of(&cluster.security_groups, |found| tagged("security group", found, without(cluster, bare)))
    })
}

/// The first EC2NodeClass that resolved to nothing. Without an answer the tags alone are judged.
fn without(cluster: &ClusterAnswers, bare: impl Fn(&ClassFacts) -> bool) -> Option<&str> {
    let classes = cluster.classes.as_ref().ok()?;
    classes.iter().find(|class| bare(class)).map(|class| class.name.as_str())
}

fn tagged(what: &str, found: &TaggedFacts, without: Option<&str>) -> Judged {
    let tags = written(&found.tags);
    match (found.ids.len(), without) {
        (0, _) => {
            let resource = what.replace(' ', "-").to_uppercase();
            let given = |value: &str| if value == "*" { "VALUE".to_owned() } else { value.to_owned() };
            let pairs = found.tags.iter().map(|(key, value)| format!("Key={key},Value={}", given(value)));
            Judged::failed(
                format!("no {what} has {tags}"),
                format!(
                    "aws ec2 create-tags --resources {resource}-ID --tags {}",
                    pairs.collect::<Vec<_>>().join(" ")
                ),
            )
        }
        (_, Some(class)) => Judged::failed(
            format!("the selector of EC2NodeClass `{class}` finds no {what} with {tags}"),
            format!("kubectl get ec2nodeclass {class} --output yaml"),
        ),
        (1, None) => Judged::passed(format!("1 {what} with {tags}")),
        (count, None) => Judged::passed(format!("{count} {what}s with {tags}")),
    }
}

fn written(tags: &BTreeMap<String, String>) -> String {
    let tags: Vec<String> = tags.iter().map(|(key, value)| format!("`{key}={value}`")).collect();
    tags.join(" and ")
}

/// Whether the cluster lets nodes of the roles join.
pub(super) fn node_roles(facts: &DoctorFacts) -> Judged {
    known(facts, |name, cluster, eks| {
        of(&cluster.registration, |registration| {
            let Some(registration) = registration else {
                return Judged::not_applicable(
                    "the cluster's stack names the node roles, and isn't deployed",
                );
            };
            let named = cluster.report.as_ref().ok().and_then(Option::as_ref).map(|report| &report.roles);
            let roles = named.filter(|roles| !roles.is_empty()).unwrap_or(&registration.node_roles);
            if eks.authentication_mode.as_deref().is_none_or(|mode| mode == "CONFIG_MAP") {
                return Judged::unknown(
                    format!("`{name}` has its roles in the ConfigMap aws-auth, which isn't read"),
                    format!("eksctl get iamidentitymapping --cluster {name}"),
                );
            }
            of(&cluster.entries, |entries| {
                let mut found: Vec<Judged> =
                    roles.iter().filter_map(|role| missing(facts, role, entries)).collect();
                found.sort_by_key(|judged| !matches!(judged, Judged::Failed { .. }));
                let all_may = || Judged::passed(format!("`{}` may join", roles.join("`, `")));
                found.into_iter().next().unwrap_or_else(all_may)
            })
        })
    })
}

/// What keeps nodes of a role from joining, if anything does.
fn missing(facts: &DoctorFacts, role: &str, entries: &[EntryFacts]) -> Option<Judged> {
    let name = facts.scope.cluster.as_deref()?;
    let eks = facts.cluster.as_ref()?.eks.as_ref().ok()?.as_ref()?;
    let deploy = format!(
        "aws cloudformation deploy --template-file infra/access-entry.yaml --stack-name {}-{name}-entry-linux \
         --parameter-overrides Cluster={name} NodeRole={role} --region {}",
        facts.scope.installation, facts.scope.region
    );
    match entries.iter().find(|entry| entry.principal.rsplit('/').next() == Some(role)) {
        None if eks.authentication_mode.as_deref() == Some("API") => {
            Some(Judged::failed(format!("`{name}` has no access entry of role `{role}`"), deploy))
        }
        None => Some(Judged::unknown(
            format!(
                "`{name}` has no access entry of role `{role}`; the ConfigMap aws-auth, which isn't read, may have it"
            ),
            deploy,
        )),
        Some(EntryFacts { entry_type: Err(unanswered), .. }) => Some(unknown(unanswered)),
        Some(EntryFacts { entry_type: Ok(found), .. }) if NODE_ENTRIES.contains(&found.as_str()) => None,
        Some(EntryFacts { principal, entry_type: Ok(found) }) => Some(Judged::failed(
            format!(
                "the access entry of role `{role}` has the type {found} instead of EC2_LINUX or EC2_WINDOWS"
            ),
            format!(
                "aws eks delete-access-entry --cluster-name {name} --principal-arn {principal} && {deploy}"
            ),
        )),
    }
}
