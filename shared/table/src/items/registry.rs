//! `CLUSTER#` of a region: the registry entry of a cluster. The cluster's stack writes it; functions only read it.
//!
//! Decides the defaults of optional values: settings and gates.

use std::collections::BTreeMap;

use tenon_domain::budget::BudgetNodes;
use tenon_domain::registry::{
    Allowances, ClusterSettings, FeatureGate, GateName, Gates, MinValuesPolicy, Permission, PlanPolicies,
    PreferencePolicy, Registry,
};

use super::form::{Attributes, FieldError, Fields, ItemForm};

impl ItemForm for Registry {
    fn write(&self, to: &mut Attributes) {
        to.text("installation", &self.installation);
        to.text("cluster", &self.cluster);
        to.text("endpoint", &self.endpoint);
        to.text("certificate_authority", &self.certificate_authority);
        to.text("kubernetes_version", &self.kubernetes_version);
        to.text("service_cidr", &self.service_cidr);
        to.map("settings", |to| {
            to.number("vm_memory_overhead_ppm", self.settings.vm_memory_overhead_ppm);
            to.number("reserved_enis", self.settings.reserved_enis);
            to.text(LEARNED_MEMORY, self.settings.learned_memory.as_str());
            to.text(ZONAL_SHIFT, self.settings.zonal_shift.as_str());
            to.text(DRY_RUNS, self.settings.dry_runs.as_str());
            to.text(CONSOLE_OUTPUT, self.settings.console_output.as_str());
            to.text(VOLUNTARY_DISRUPTION, self.settings.voluntary_disruption.as_str());
            // An entry without a word about it is of a stack whose role may not.
            let tagged = self.settings.spot_request_tags == FeatureGate::Enabled;
            to.text_if(SPOT_REQUEST_TAGS, tagged.then_some(FeatureGate::Enabled.as_str()));
            to.text_if(DISRUPTION_BUDGET, self.settings.disruption_budget.map(|nodes| nodes.to_string()));
            to.text(PREFERENCE_POLICY, self.settings.policies.preferences.as_str());
            to.text(MIN_VALUES_POLICY, self.settings.policies.min_values.as_str());
            if !self.settings.default_spread.is_empty() {
                to.texts(DEFAULT_SPREAD, self.settings.default_spread.iter().map(ToString::to_string));
            }
        });
        to.map("gates", |to| {
            for gate in GateName::ALL {
                to.text(gate.as_str(), self.gates.of(gate).as_str());
            }
        });
        to.text("agent_queue", &self.agent_queue);
        to.text("agent_role", &self.agent_role);
        to.text_if(LAUNCH_ROLE, self.launch_role.as_ref());
        to.map("allowed", |to| {
            write_node_roles(to, &self.allowed.node_roles);
            to.texts("instance_profiles", &self.allowed.instance_profiles);
            to.labels("subnet_tags", &self.allowed.subnet_tags);
            to.labels("security_group_tags", &self.allowed.security_group_tags);
            to.texts("image_owners", &self.allowed.image_owners);
            // Most clusters have none.
            if !self.allowed.snapshot_owners.is_empty() {
                to.texts(SNAPSHOT_OWNERS, &self.allowed.snapshot_owners);
            }
            if !self.allowed.snapshot_tags.is_empty() {
                to.labels(SNAPSHOT_TAGS, &self.allowed.snapshot_tags);
            }
            to.number_if("max_nodes", self.allowed.max_nodes);
            to.number_if(MAX_VCPUS, self.allowed.max_vcpus);
            if !self.allowed.families.is_empty() {
                to.texts(FAMILIES, &self.allowed.families);
            }
            for (name, permission) in [
                (PUBLIC_ADDRESSES, self.allowed.public_addresses),
                (IMDS_V1, self.allowed.imds_v1),
                (USER_DATA, self.allowed.user_data),
            ] {
                // An entry without a word about it allows it, as entries of earlier stacks do.
                to.truth_if(name, (permission == Permission::Denied).then_some(false));
            }
        });
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            installation: from.parsed("installation")?,
            cluster: from.parsed("cluster")?,
            endpoint: from.string("endpoint")?,
            certificate_authority: from.string("certificate_authority")?,
            kubernetes_version: from.string("kubernetes_version")?,
            service_cidr: from.string("service_cidr")?,
            settings: from.map_if("settings", read_settings)?.unwrap_or_default(),
            gates: from.map_if("gates", read_gates)?.unwrap_or_default(),
            agent_queue: from.string("agent_queue")?,
            agent_role: from.string("agent_role")?,
            launch_role: from.string_if(LAUNCH_ROLE)?,
            allowed: from.map("allowed", read_allowances)?,
        })
    }
}

const LAUNCH_ROLE: &str = "launch_role";
const NODE_ROLES: &str = "node_roles";
const NODE_PROFILES: &str = "node_profiles";
const SNAPSHOT_OWNERS: &str = "snapshot_owners";
const SNAPSHOT_TAGS: &str = "snapshot_tags";
const MAX_VCPUS: &str = "max_vcpus";
const FAMILIES: &str = "families";
const PUBLIC_ADDRESSES: &str = "public_addresses";
const IMDS_V1: &str = "imds_v1";
const USER_DATA: &str = "user_data";
const LEARNED_MEMORY: &str = "learned_memory";
const ZONAL_SHIFT: &str = "zonal_shift";
const DRY_RUNS: &str = "dry_runs";
const CONSOLE_OUTPUT: &str = "console_output";
const VOLUNTARY_DISRUPTION: &str = "voluntary_disruption";
const SPOT_REQUEST_TAGS: &str = "spot_request_tags";
const DISRUPTION_BUDGET: &str = "disruption_budget";
const PREFERENCE_POLICY: &str = "preference_policy";
const MIN_VALUES_POLICY: &str = "min_values_policy";
const DEFAULT_SPREAD: &str = "default_spread";

/// The roles are a list, and the instance profiles that don't have their role's name are a map beside it: a reader that
/// doesn't know profiles still finds all roles.
fn write_node_roles(to: &mut Attributes, roles: &BTreeMap<String, String>) {
    to.texts(NODE_ROLES, roles.keys());
    let profiles = roles.iter().filter(|(role, profile)| role != profile);
    let profiles: BTreeMap<_, _> = profiles.map(|(role, profile)| (role.clone(), profile.clone())).collect();
    if !profiles.is_empty() {
        to.labels(NODE_PROFILES, &profiles);
    }
}

fn read_node_roles(from: Fields<'_>) -> Result<BTreeMap<String, String>, FieldError> {
    let roles: Vec<String> = from.texts(NODE_ROLES)?;
    let profiles = from.labels(NODE_PROFILES)?;
    let with_profile = |role: String| {
        let profile = profiles.get(&role).unwrap_or(&role).clone();
        (role, profile)
    };
    Ok(roles.into_iter().map(with_profile).collect())
}

/// What an entry of an earlier stack doesn't name isn't bounded.
fn read_allowances(from: Fields<'_>) -> Result<Allowances, FieldError> {
    let permission = |name| {
        let allowed = from.truth_if(name)?.unwrap_or(true);
        Ok(if allowed { Permission::Allowed } else { Permission::Denied })
    };
    Ok(Allowances {
        node_roles: read_node_roles(from)?,
        instance_profiles: from.texts("instance_profiles")?,
        subnet_tags: from.labels("subnet_tags")?,
        security_group_tags: from.labels("security_group_tags")?,
        image_owners: from.texts("image_owners")?,
        snapshot_owners: from.texts_if(SNAPSHOT_OWNERS)?.unwrap_or_default(),
        snapshot_tags: match from.value_if(SNAPSHOT_TAGS) {
            Some(_) => from.labels(SNAPSHOT_TAGS)?,
            None => BTreeMap::new(),
        },
        max_nodes: from.u32_if("max_nodes")?,
        max_vcpus: from.u32_if(MAX_VCPUS)?,
        families: from.texts_if(FAMILIES)?.unwrap_or_default(),
        public_addresses: permission(PUBLIC_ADDRESSES)?,
        imds_v1: permission(IMDS_V1)?,
        user_data: permission(USER_DATA)?,
    })
}

fn read_settings(from: Fields<'_>) -> Result<ClusterSettings, FieldError> {
    let default = ClusterSettings::default();
    let gate = |name, default| {
        if from.value_if(name).is_some() { from.word(name, FeatureGate::parse) } else { Ok(default) }
    };
    Ok(ClusterSettings {
        vm_memory_overhead_ppm: from
            .u32_if("vm_memory_overhead_ppm")?
            .unwrap_or(default.vm_memory_overhead_ppm),
        reserved_enis: from.u32_if("reserved_enis")?.unwrap_or(default.reserved_enis),
        learned_memory: gate(LEARNED_MEMORY, default.learned_memory)?,
        zonal_shift: gate(ZONAL_SHIFT, default.zonal_shift)?,
        dry_runs: gate(DRY_RUNS, default.dry_runs)?,
        console_output: gate(CONSOLE_OUTPUT, default.console_output)?,
        voluntary_disruption: gate(VOLUNTARY_DISRUPTION, default.voluntary_disruption)?,
        spot_request_tags: gate(SPOT_REQUEST_TAGS, default.spot_request_tags)?,
        disruption_budget: from.formed_if(DISRUPTION_BUDGET, |text| BudgetNodes::parse(text).ok())?,
        policies: PlanPolicies {
            preferences: match from.value_if(PREFERENCE_POLICY) {
                Some(_) => from.word(PREFERENCE_POLICY, PreferencePolicy::parse)?,
                None => default.policies.preferences,
            },
            min_values: match from.value_if(MIN_VALUES_POLICY) {
                Some(_) => from.word(MIN_VALUES_POLICY, MinValuesPolicy::parse)?,
                None => default.policies.min_values,
            },
        },
        default_spread: match from.value_if(DEFAULT_SPREAD) {
            Some(_) => from.texts(DEFAULT_SPREAD)?,
            None => Vec::new(),
        },
    })
}

fn read_gates(from: Fields<'_>) -> Result<Gates, FieldError> {
    GateName::ALL.into_iter().try_fold(Gates::default(), |gates, gate| {
        // An older stack doesn't have each gate.
        Ok(gates.with(gate, from.word_if(gate.as_str(), FeatureGate::parse)?.unwrap_or_default()))
    })
}
