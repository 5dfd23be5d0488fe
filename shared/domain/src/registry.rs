//! A cluster's registry entry: its region and account, its settings, and its allowances.
//!
//! Decides which gates exist, and their defaults. It doesn't decide what a gate guards: guarded code takes the gate's
//! value as a parameter, and can't run without it. Functions only read the entry; the cluster's own stack writes it.

use std::collections::{BTreeMap, BTreeSet};

use crate::budget::BudgetNodes;
use crate::default_spread::DefaultConstraint;
use crate::id::{ClusterName, InstallationId, InstanceType};
use crate::instance_family::FamilyPattern;

/// A cluster's entry in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// The installation that serves it.
    pub installation: InstallationId,
    /// Its name, as EKS knows it.
    pub cluster: ClusterName,
    /// The API server's URL.
    pub endpoint: String,
    /// The API server's certificate authority, base64 of PEM.
    pub certificate_authority: String,
    /// The control plane's version, such as `1.33`.
    pub kubernetes_version: String,
    /// The services' CIDR, such as `10.100.0.0/16`.
    pub service_cidr: String,
    /// Its settings.
    pub settings: ClusterSettings,
    /// Gates.
    pub gates: Gates,
    /// The URL of the agent's queue.
    pub agent_queue: String,
    /// The ARN of the agent's role.
    pub agent_role: String,
    /// The ARN of the role by which its nodes are launched; `None` in an entry of an earlier stack, which makes none.
    pub launch_role: Option<String>,
    /// Its allowances.
    pub allowed: Allowances,
}

impl Registry {
    /// The addresses of its services, so of its pods.
    #[must_use]
    pub fn ip_family(&self) -> IpFamily {
        if self.service_cidr.contains(':') { IpFamily::Ipv6 } else { IpFamily::Ipv4 }
    }

    /// Whether spot requests of its launches are tagged: only a launch role has the right.
    #[must_use]
    pub const fn spot_request_tags(&self) -> FeatureGate {
        match self.launch_role {
            Some(_) => self.settings.spot_request_tags,
            None => FeatureGate::Disabled,
        }
    }
}

/// The addresses of a cluster's pods and services: EKS gives them one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IpFamily {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Settings of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The hypervisor's share of the stated memory, in millionths.
    pub vm_memory_overhead_ppm: u32,
    /// Interfaces of each instance that aren't for pods.
    pub reserved_enis: u32,
    /// Whether memory that kubelets really reported takes the place of the estimate.
    pub learned_memory: FeatureGate,
    /// Whether zones that the cluster is shifted away from in ARC are left alone.
    pub zonal_shift: FeatureGate,
    /// Whether EC2 is asked by dry runs if it allows launches from classes.
    pub dry_runs: FeatureGate,
    /// Whether the console output of an instance that never joins is read.
    pub console_output: FeatureGate,
    /// Whether nodes are disrupted voluntarily.
    pub voluntary_disruption: FeatureGate,
    /// Whether its launch role may tag spot requests. The role of an earlier stack may not.
    pub spot_request_tags: FeatureGate,
    /// How many nodes of all pools together may be disrupted at once; `None` for no bound beside the pools' own.
    pub disruption_budget: Option<BudgetNodes>,
    /// How pods' and pools' wishes count.
    pub policies: PlanPolicies,
    /// The default constraints of its kube-scheduler, if its configuration lists any (Karpenter's `SCHEDULER_CONFIG`).
    pub default_spread: Vec<DefaultConstraint>,
}

impl Default for ClusterSettings {
    /// Karpenter's defaults of `VM_MEMORY_OVERHEAD_PERCENT`, `RESERVED_ENIS`, `ENABLE_ZONAL_SHIFT`,
    /// `DISABLE_DRY_RUN`, `PREFERENCE_POLICY` and `MIN_VALUES_POLICY`. Source: karpenter.sh/docs/reference/settings.
    /// Karpenter always learns memory.
    fn default() -> Self {
        Self {
            vm_memory_overhead_ppm: 75_000,
            reserved_enis: 0,
            learned_memory: FeatureGate::Enabled,
            zonal_shift: FeatureGate::Disabled,
            dry_runs: FeatureGate::Enabled,
            console_output: FeatureGate::Disabled,
            voluntary_disruption: FeatureGate::Enabled,
            spot_request_tags: FeatureGate::Disabled,
            disruption_budget: None,
            policies: PlanPolicies::default(),
            default_spread: Vec::new(),
        }
    }
}

crate::words! {
    /// Whether something is open.
    #[derive(Default)]
    pub enum FeatureGate {
        /// It is.
        Enabled,
        /// It isn't, and the guarded behaviour doesn't exist.
        #[default]
        Disabled,
    }
}

/// How far plans follow wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanPolicies {
    /// Whether pods' preferences shape nodes.
    pub preferences: PreferencePolicy,
    /// Whether pods wait where a pool's `minValues` can't be met.
    pub min_values: MinValuesPolicy,
}

crate::words! {
    /// Whether pods wait where a pool's `minValues` can't be met (Karpenter's `MIN_VALUES_POLICY`).
    #[derive(Default)]
    pub enum MinValuesPolicy {
        /// They do.
        #[default]
        Strict,
        /// `minValues` are lowered to what there is.
        BestEffort,
    }
}

crate::words! {
    /// Whether pods' preferences shape nodes (Karpenter's `PREFERENCE_POLICY`).
    #[derive(Default)]
    pub enum PreferencePolicy {
        /// They do, as far as they can be met.
        #[default]
        Respect,
        /// Only kube-scheduler applies them.
        Ignore,
    }
}

crate::words! {
    /// The gates, by Karpenter's names. The table and the properties of a cluster's stack have their words.
    pub enum GateName {
        /// Capacity reservations are offerings.
        ReservedCapacity,
        /// A cheaper spot node may replace a spot node.
        SpotToSpotConsolidation,
        /// Nodes that stay unhealthy are replaced.
        NodeRepair,
    }
}

/// The gates that are open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gates(BTreeSet<GateName>);

impl Gates {
    /// The same, with this gate so.
    #[must_use]
    pub fn with(mut self, gate: GateName, is: FeatureGate) -> Self {
        match is {
            FeatureGate::Enabled => self.0.insert(gate),
            FeatureGate::Disabled => self.0.remove(&gate),
        };
        self
    }

    /// Whether the gate is open.
    #[must_use]
    pub fn of(&self, gate: GateName) -> FeatureGate {
        if self.0.contains(&gate) { FeatureGate::Enabled } else { FeatureGate::Disabled }
    }
}

crate::words! {
    /// Whether a cluster's stack allows its classes something. Its words are the values of the stack's parameters.
    #[derive(Default)]
    pub enum Permission {
        /// It does.
        #[default]
        Allowed = "true",
        /// It doesn't.
        Denied = "false",
    }
}

/// The resources that a cluster may use, whatever its classes say. The cluster's stack sets them, not its users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allowances {
    /// Roles that its nodes may have, each with the instance profile that they start with: name by name.
    pub node_roles: BTreeMap<String, String>,
    /// Names or ARNs of instance profiles that its nodes may have.
    pub instance_profiles: BTreeSet<String>,
    /// Tags that a subnet must have, ANDed; the value `*` matches any value.
    pub subnet_tags: BTreeMap<String, String>,
    /// Tags that a security group must have, ANDed; the value `*` matches any value.
    pub security_group_tags: BTreeMap<String, String>,
    /// Owners of allowed images: `self`, `amazon`, an account.
    pub image_owners: BTreeSet<String>,
    /// Owners of allowed snapshots for volumes, besides those of the nodes' images: an account, `amazon`.
    pub snapshot_owners: BTreeSet<String>,
    /// Tags that such a snapshot must also have, ANDed; the value `*` matches any value.
    pub snapshot_tags: BTreeMap<String, String>,
    /// The most nodes at a time.
    pub max_nodes: Option<u32>,
    /// The most vCPUs of its nodes together, at a time.
    pub max_vcpus: Option<u32>,
    /// The families of instance types that it may launch; every family where empty.
    pub families: BTreeSet<FamilyPattern>,
    /// Whether its classes may ask for public IPv4 addresses, by a word of their own or by the subnet's default.
    pub public_addresses: Permission,
    /// Whether its classes may leave version 1 of the instance metadata service on.
    pub imds_v1: Permission,
    /// Whether its classes may have user data of their own.
    pub user_data: Permission,
}

impl Allowances {
    /// Whether volumes may use snapshots other than those of the nodes' images at all.
    #[must_use]
    pub fn has_snapshots(&self) -> bool {
        !self.snapshot_owners.is_empty()
    }

    /// Whether instances of a type may be launched, by its family.
    #[must_use]
    pub fn allows_type(&self, name: &InstanceType) -> bool {
        self.families.is_empty() || self.families.iter().any(|pattern| pattern.matches(name.family()))
    }
}

/// Whether a subnet or group has all tags of an allowance.
#[must_use]
pub fn tags_allow(asked: &BTreeMap<String, String>, found: &BTreeMap<String, String>) -> bool {
    asked.iter().all(|(key, value)| found.get(key).is_some_and(|tag| value == "*" || value == tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn check(asked: &[(&str, &str)], found: &[(&str, &str)], expected: bool) {
        assert_eq!(tags_allow(&tags(asked), &tags(found)), expected, "{asked:?} of {found:?}");
    }

    #[test]
    fn every_tag_that_is_asked_for_must_be_there() {
        check(&[], &[("a", "1")], true);
        check(&[("a", "1")], &[("a", "1"), ("b", "2")], true);
        check(&[("a", "*")], &[("a", "")], true);
        check(&[("a", "1")], &[("a", "2")], false);
        check(&[("a", "1"), ("b", "*")], &[("a", "1")], false);
    }

    #[test]
    fn a_type_needs_one_pattern_of_its_family_where_there_are_any() {
        let check = |patterns: &[&str], name: &str, expected: bool| {
            let families = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
            let allowed = Allowances { families, ..Allowances::default() };
            assert_eq!(
                allowed.allows_type(&InstanceType::parse(name).unwrap()),
                expected,
                "{name} of {patterns:?}"
            );
        };
        check(&[], "p5.48xlarge", true);
        check(&["m7g", "c7*"], "m7g.large", true);
        check(&["m7g", "c7*"], "c7gn.large", true);
        check(&["m7g", "c7*"], "p5.48xlarge", false);
    }
}
