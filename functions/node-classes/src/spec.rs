//! A class's queries to EC2, and the checks of its spec without EC2.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::{
    ReservationSelectorTerm, SecurityGroupSelectorTerm, SubnetSelectorTerm, is_restricted_tag,
};
use tenon_domain::catalog::AmiFamily;
use tenon_domain::class_allowance::forbidden;
use tenon_domain::class_status::{ConditionReason, Seen};
use tenon_domain::registry::Registry;
use tenon_domain::tags;
use tenon_ec2::port::{CapacityReservationFilter, ResourceFilter, TagFilter};
use tenon_state::image_query::tag_filter;

/// EC2 takes so many bytes of user data, before base64 ("Run commands when you launch an EC2 instance", read November
/// 2026).
pub const USER_DATA_BYTES: usize = 16 * 1024;

/// The queries for a class's subnets: one for all ids, one for each other term.
#[must_use]
pub fn subnet_queries(class: &Ec2NodeClass) -> BTreeSet<ResourceFilter> {
    let mut queries = Queries::default();
    for term in &class.subnet_selector {
        match term {
            SubnetSelectorTerm::Id(id) => queries.id(id.as_str()),
            SubnetSelectorTerm::Tags(tags) => queries.tags(tags),
        }
    }
    queries.done()
}

/// The queries for a class's security groups.
#[must_use]
pub fn group_queries(class: &Ec2NodeClass) -> BTreeSet<ResourceFilter> {
    let mut queries = Queries::default();
    for term in &class.security_group_selector {
        match term {
            SecurityGroupSelectorTerm::Id(id) => queries.id(id.as_str()),
            SecurityGroupSelectorTerm::Name(name) => {
                let names = vec![name.clone()];
                queries.others.insert(ResourceFilter { names, ..ResourceFilter::default() });
            }
            SecurityGroupSelectorTerm::Tags(tags) => queries.tags(tags),
        }
    }
    queries.done()
}

/// The snapshots of a class's volumes, with their devices.
#[must_use]
pub fn named_snapshots(class: &Ec2NodeClass) -> BTreeSet<(&str, &str)> {
    class
        .settings
        .block_devices
        .iter()
        .filter_map(|device| {
            let snapshot = device.ebs.as_ref()?.snapshot_id.as_deref()?;
            Some((device.device_name.as_deref().unwrap_or_default(), snapshot))
        })
        .collect()
}

/// The query for those snapshots; `None` if the cluster may use only its images' snapshots, which the images name.
#[must_use]
pub fn snapshot_query(class: &Ec2NodeClass, registry: &Registry) -> Option<ResourceFilter> {
    let ids: BTreeSet<&str> = named_snapshots(class).into_iter().map(|(_, snapshot)| snapshot).collect();
    let asks = registry.allowed.has_snapshots() && !ids.is_empty();
    let ids = ids.into_iter().map(str::to_owned).collect();
    asks.then(|| ResourceFilter { ids, ..ResourceFilter::default() })
}

/// The queries for a class's capacity reservations.
#[must_use]
pub fn reservation_queries(class: &Ec2NodeClass) -> BTreeSet<CapacityReservationFilter> {
    let (mut queries, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for term in &class.reservation_selector {
        match term {
            ReservationSelectorTerm::Id(id) => {
                ids.insert(id.to_string());
            }
            ReservationSelectorTerm::Match { tags, owner, match_criteria } => {
                queries.insert(CapacityReservationFilter {
                    ids: Vec::new(),
                    owner: owner.clone(),
                    match_criteria: *match_criteria,
                    tags: tags.iter().map(|(key, value)| tag_filter(key, value)).collect(),
                });
            }
        }
    }
    if !ids.is_empty() {
        let ids = ids.into_iter().collect();
        queries.insert(CapacityReservationFilter { ids, ..CapacityReservationFilter::default() });
    }
    queries
}

#[derive(Default)]
struct Queries {
    ids: BTreeSet<String>,
    others: BTreeSet<ResourceFilter>,
}

impl Queries {
    fn id(&mut self, id: &str) {
        self.ids.insert(id.to_owned());
    }

    fn tags(&mut self, tags: &BTreeMap<String, String>) {
        let tags: Vec<TagFilter> = tags.iter().map(|(key, value)| tag_filter(key, value)).collect();
        self.others.insert(ResourceFilter { tags, ..ResourceFilter::default() });
    }

    fn done(mut self) -> BTreeSet<ResourceFilter> {
        if !self.ids.is_empty() {
            let ids = self.ids.into_iter().collect();
            self.others.insert(ResourceFilter { ids, ..ResourceFilter::default() });
        }
        self.others
    }
}

/// Problems of the spec itself: what EC2 or the nodes would refuse, and what the cluster's stack doesn't allow.
#[must_use]
pub fn validate(class: &Ec2NodeClass, registry: &Registry) -> Seen<()> {
    // The peer's are refused when a manifest is read; ours it accepts, so they are a condition of the class.
    let reserved = |tag: &&String| is_restricted_tag(tag) || tag.starts_with(tags::OWN);
    if let Some(tag) = class.tags.keys().find(reserved) {
        let message = format!("`spec.tags` has `{tag}`, a tag that Tenon sets itself: remove it");
        return Seen::Refused { reason: ConditionReason::TagValidationFailed, message };
    }
    let forbidden = forbidden(&registry.allowed, class);
    if !forbidden.is_empty() {
        let told: Vec<String> = forbidden.iter().map(ToString::to_string).collect();
        return Seen::Refused { reason: ConditionReason::NotAllowed, message: told.join("; ") };
    }
    if let Some(problem) = &class.settings.kubelet.problem {
        return Seen::Refused { reason: problem.reason(), message: problem.message().to_owned() };
    }
    let bytes = class.user_data.as_ref().map_or(0, String::len);
    if bytes > USER_DATA_BYTES {
        let message =
            format!("`spec.userData` has {bytes} bytes, EC2 takes at most {USER_DATA_BYTES}: shorten it");
        return Seen::Refused { reason: ConditionReason::UserDataSizeLimitExceeded, message };
    }
    if class.settings.ami_family == AmiFamily::Al2023 && registry.service_cidr.is_empty() {
        let message =
            "AL2023 nodes need the cluster's service CIDR: set `ServiceCidr` in the cluster's stack";
        let reason = ConditionReason::ClusterCidrResolutionFailed;
        return Seen::Refused { reason, message: message.to_owned() };
    }
    Seen::Holds(())
}
