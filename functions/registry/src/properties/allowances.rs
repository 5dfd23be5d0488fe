//! The properties that say what a cluster may use.
//!
//! Decides the valid values of each allowance, and which of them there must be.

use std::collections::BTreeMap;

use serde_json::Value;
use tenon_domain::instance_family::FamilyPattern;
use tenon_domain::registry::{Allowances, Permission};

use super::reader::PropertyReader;

impl PropertyReader<'_> {
    pub(super) fn allowances(&mut self) -> Allowances {
        Allowances {
            node_roles: self.node_roles(),
            instance_profiles: self.list("InstanceProfiles", "names or ARNs", |text| Some(text.to_owned())),
            subnet_tags: self.tags("SubnetTags"),
            security_group_tags: self.tags("SecurityGroupTags"),
            image_owners: self.list(
                "ImageOwners",
                "`self`, `amazon`, `aws-marketplace` or an account's twelve digits",
                owner,
            ),
            snapshot_owners: self.list("SnapshotOwners", "`amazon` or an account's twelve digits", |text| {
                // IAM compares owners as well, and knows no `self`.
                owner(text).filter(|owner| owner != "self")
            }),
            snapshot_tags: self.snapshot_tags(),
            max_nodes: self.parsed_if("MaxNodes", "a whole number", |text| text.parse().ok()),
            max_vcpus: self.parsed_if("MaxVcpus", "a whole number", |text| text.parse().ok()),
            families: self.list("AllowedFamilies", FamilyPattern::FORM, |text| text.parse().ok()),
            public_addresses: self.permission("AllowPublicAddresses"),
            imds_v1: self.permission("AllowImdsV1"),
            user_data: self.permission("AllowUserData"),
        }
    }

    /// What earlier stacks don't name is allowed.
    fn permission(&mut self, name: &'static str) -> Permission {
        self.parsed_if(name, "`true` or `false`", Permission::parse).unwrap_or_default()
    }

    /// Without a tag anything in the account could be used, so there must be one.
    fn tags(&mut self, name: &'static str) -> BTreeMap<String, String> {
        let problems = self.problems.len();
        let tags: BTreeMap<_, _> =
            self.list(name, "tags, each `key=value` or `key=*`", tag).into_iter().collect();
        if tags.is_empty() && self.problems.len() == problems {
            self.problems
                .push(format!("`{name}` is empty: expected at least one tag, `key=value` or `key=*`"));
        }
        tags
    }

    /// Tags narrow down the owners' allowance; alone they allow nothing.
    fn snapshot_tags(&mut self) -> BTreeMap<String, String> {
        let tags = self.list("SnapshotTags", "tags, each `key=value` or `key=*`", tag);
        let some = |name: &str| {
            let listed = self.properties.get(name).and_then(Value::as_array);
            listed.is_some_and(|listed| listed.iter().any(|item| item.as_str() != Some("")))
        };
        if !tags.is_empty() && !some("SnapshotOwners") {
            self.problems.push(
                "`SnapshotTags` without `SnapshotOwners`: expected the snapshots' owners too".to_owned(),
            );
        }
        tags.into_iter().collect()
    }
}

fn owner(text: &str) -> Option<String> {
    let account = text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    let alias = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (account || alias).then(|| text.to_owned())
}

fn tag(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
}
