//! What the neighbours' stacks have for their own nodes alone: subnets, security groups, roles, and the clusters' names
//! in tags.
//!
//! Decides from the instances as they really are, and from the neighbours' launches.

use std::collections::BTreeSet;

use tenon_domain::id::{ClusterName, SecurityGroupId, SubnetId};
use tenon_domain::tags;
use tenon_ec2::port::InstanceProfileSpec;
use tenon_region::engine::SimulatedRegion;
use tenon_twin::InstanceRecord;

use crate::invariants::{Found, Invariant};

/// The neighbours' names and network, of which they lend nothing.
#[derive(Default)]
pub(super) struct LentByNobody {
    clusters: Vec<ClusterName>,
    subnets: BTreeSet<SubnetId>,
    groups: BTreeSet<SecurityGroupId>,
}

impl LentByNobody {
    /// What the classes of these clusters resolved to.
    pub(super) fn of(region: &SimulatedRegion, clusters: &[ClusterName]) -> Self {
        let mut lent = Self { clusters: clusters.to_vec(), ..Self::default() };
        for class in clusters.iter().flat_map(|cluster| region.classes(cluster)) {
            lent.subnets.extend(class.subnets.into_iter().map(|subnet| subnet.id));
            lent.groups.extend(class.security_groups.into_iter().map(|group| group.id));
        }
        lent
    }

    /// What an instance of another cluster has of theirs.
    fn borrowed(&self, record: &InstanceRecord) -> Option<String> {
        let instance = &record.instance;
        if let Some(subnet) = instance.subnet.as_ref().filter(|subnet| self.subnets.contains(*subnet)) {
            return Some(format!("subnet {subnet}"));
        }
        if let Some(group) = instance.security_groups.iter().find(|group| self.groups.contains(*group)) {
            return Some(format!("security group {group}"));
        }
        let names = |text: &str| self.clusters.iter().any(|cluster| text.contains(cluster.as_str()));
        let profile = match &record.instance_profile {
            Some(InstanceProfileSpec::Name(text) | InstanceProfileSpec::Arn(text)) => text.as_str(),
            None => "",
        };
        if names(profile) {
            return Some(format!("instance profile {profile}"));
        }
        // Kubernetes' controllers and EKS take an instance by these tags.
        let belongs = |(key, value): &(&String, &String)| {
            (key.as_str() == tags::EKS_CLUSTER && names(value.as_str()))
                || (key.starts_with(tags::KUBERNETES_CLUSTER) && names(key.as_str()))
        };
        let tag = instance.tags.iter().find(belongs);
        tag.map(|(key, value)| format!("tag {key}={value}"))
    }
}

/// An instance with a neighbour's name is of a launch of that neighbour; no other instance has anything of theirs.
///
/// # Errors The invariant, and the finding.
pub(super) fn invariant_nothing_borrowed(region: &SimulatedRegion, lent: &LentByNobody) -> Found {
    for record in region.twin().instances() {
        let instance = &record.instance;
        let named = instance.tags.get(tags::CLUSTER);
        let owner = lent.clusters.iter().find(|cluster| named.is_some_and(|name| name == cluster.as_str()));
        let borrowed = match owner {
            Some(owner) => {
                let launches = region.launches(owner);
                let is_its =
                    launches.iter().any(|launch| instance.client_token.as_ref() == Some(&launch.token));
                (!is_its).then(|| format!("the name of {owner}, which didn't launch it"))
            }
            None => lent.borrowed(&record),
        };
        if let Some(borrowed) = borrowed {
            let text = format!("instance {} of {named:?} has {borrowed}", instance.id);
            return Err((Invariant::NothingBorrowed, text));
        }
    }
    Ok(())
}
