//! A request to IAM: an action on a resource, in circumstances.
//!
//! Decides the circumstances that our policies use, and when two requests are equal: ids of instances and names of
//! items don't matter, kinds of partitions, owners and sources do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The account of all stacks and calls.
pub const ACCOUNT: &str = "111122223333";
/// Their region.
pub const REGION: &str = "us-east-1";
/// The installation.
pub const INSTALLATION: &str = "tenon";

/// The keys that policies look at.
pub const LEADING_KEYS: &str = "dynamodb:LeadingKeys";
/// An event's source.
pub const SOURCE: &str = "events:source";
/// The owner of a new resource.
pub const REQUEST_TAG: &str = "aws:RequestTag/tenon.dev/installation";
/// The owner of an existing resource.
pub const RESOURCE_TAG: &str = "aws:ResourceTag/tenon.dev/installation";
/// The cluster of a new resource.
pub const REQUEST_CLUSTER: &str = "aws:RequestTag/tenon.dev/cluster";
/// The cluster of an existing resource.
pub const RESOURCE_CLUSTER: &str = "aws:ResourceTag/tenon.dev/cluster";
/// The tags of the clusters' subnets and security groups, as their stacks ask for them: one by its value, one by its key.
pub const RESOURCE_TEAM: &str = "aws:ResourceTag/team";
/// The second of them.
pub const RESOURCE_PRIVATE: &str = "aws:ResourceTag/private";
/// The call that creates the tagged resource.
pub const CREATE_ACTION: &str = "ec2:CreateAction";
/// Keys of the tags that are set.
pub const TAG_KEYS: &str = "aws:TagKeys";
/// The service that receives a role.
pub const PASSED_TO: &str = "iam:PassedToService";
/// The owner of a snapshot.
pub const OWNER: &str = "ec2:Owner";
/// The resource in a request to ARC.
pub const RESOURCE_IDENTIFIER: &str = "arc-zonal-shift:ResourceIdentifier";

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// The action, `service:Action`.
    pub action: String,
    /// The resource's ARN; `*` for actions that know none.
    pub resource: String,
    /// Context by key.
    pub context: BTreeMap<String, BTreeSet<String>>,
}

impl Request {
    /// A question without circumstances.
    #[must_use]
    pub fn new(action: &str, resource: impl Into<String>) -> Self {
        Self { action: action.to_owned(), resource: resource.into(), context: BTreeMap::new() }
    }

    /// The same with a key of the context.
    #[must_use]
    pub fn with<S: Into<String>>(mut self, key: &str, values: impl IntoIterator<Item = S>) -> Self {
        self.context.insert(key.to_owned(), values.into_iter().map(Into::into).collect());
        self
    }

    /// The same without a key.
    #[must_use]
    pub fn without(mut self, key: &str) -> Self {
        self.context.remove(key);
        self
    }

    /// The kind of the request, for a role that serves these partitions: requests of one kind have the same answer.
    #[must_use]
    pub fn kind(&self, serves: Serves) -> Self {
        let mut kind = self.clone();
        if let Some(keys) = kind.context.get_mut(LEADING_KEYS) {
            *keys = keys.iter().map(|key| partition(key, serves)).collect();
        }
        if serves == Serves::Region {
            // Every cluster's are served alike.
            kind.context.retain(|key, _| key != REQUEST_CLUSTER && key != RESOURCE_CLUSTER);
        }
        kind.resource = resource_kind(&kind.resource, serves);
        kind
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.action, self.resource)?;
        self.context.iter().try_for_each(|(key, values)| write!(f, ", {key}={values:?}"))
    }
}

/// The partitions that a role serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// All clusters' of its region.
    Region,
    /// One cluster's.
    Cluster,
}

/// The kind of a partition: its name without the part that tells equals apart.
fn partition(key: &str, serves: Serves) -> String {
    if serves == Serves::Cluster || key.starts_with("REGION#") {
        return key.to_owned();
    }
    let words: Vec<&str> = key.splitn(4, '#').collect();
    match words.as_slice() {
        ["JOURNAL", "REGION", region, _] => format!("JOURNAL#REGION#{region}#…"),
        [kind, ..] => format!("{kind}#…"),
        [] => String::new(),
    }
}

/// The kind of a resource: one of many of its type, in this account.
fn resource_kind(arn: &str, serves: Serves) -> String {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let [scheme, partition, service, region, account, name] = parts.as_slice() else { return arn.to_owned() };
    let kind = match (*service, name.split_once('/')) {
        ("ec2", Some((of, _))) | ("iam", Some((of @ "instance-profile", _))) | ("ssm", Some((of, _))) => {
            format!("{of}/…")
        }
        ("iam", _) if name.starts_with(&launch_roles()) => format!("{}…", launch_roles()),
        ("logs", _) => name.rsplit_once(':').map_or((*name).to_owned(), |(group, _)| format!("{group}:…")),
        ("sqs", _) if serves == Serves::Region => {
            let agents = format!("{INSTALLATION}-agent-");
            if name.starts_with(&agents) { format!("{agents}…") } else { (*name).to_owned() }
        }
        _ => (*name).to_owned(),
    };
    [scheme, partition, service, region, account, kind.as_str()].join(":")
}

/// The start of launch roles' names, with their path.
fn launch_roles() -> String {
    format!("role/tenon/{INSTALLATION}/{REGION}/")
}

/// An ARN of this account and region.
#[must_use]
pub fn arn(service: &str, name: &str) -> String {
    format!("arn:aws:{service}:{REGION}:{ACCOUNT}:{name}")
}

/// An ARN of EC2 that has no owner: images and snapshots.
#[must_use]
pub fn public_arn(name: &str) -> String {
    format!("arn:aws:ec2:{REGION}::{name}")
}
