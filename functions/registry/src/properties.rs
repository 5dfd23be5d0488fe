//! The properties of the resource: the stack's description of a cluster.
//!
//! Decides the valid values of each property, and reports all problems at once. Defaults are those of the registry's
//! form.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use tenon_domain::budget::BudgetNodes;
use tenon_domain::default_spread::DefaultConstraint;
use tenon_domain::id::{ClusterName, InstallationId};
use tenon_domain::registry::{
    Allowances, ClusterSettings, FeatureGate, GateName, Gates, MinValuesPolicy, PlanPolicies,
    PreferencePolicy, Registry,
};

/// The properties that CloudFormation adds to every custom resource.
const CLOUDFORMATIONS: [&str; 2] = ["ServiceToken", "ServiceTimeout"];

/// The longest name of a role. Source: IAM API Reference, `CreateRole`, read 2026-11.
const LONGEST_ROLE: usize = 64;
/// The longest name of an instance profile. Source: IAM API Reference, `CreateInstanceProfile`, read 2026-11.
const LONGEST_PROFILE: usize = 128;

/// The cluster's name alone, if it is one.
pub(crate) fn cluster(properties: &Map<String, Value>) -> Option<ClusterName> {
    properties.get("Cluster").and_then(Value::as_str).and_then(|name| ClusterName::parse(name).ok())
}

/// The entry of these properties.
///
/// # Errors The problem of each property, by its name.
pub(crate) fn parse(
    installation: &InstallationId,
    properties: &Map<String, Value>,
) -> Result<Registry, Vec<String>> {
    let mut read =
        PropertyReader { properties, asked: BTreeSet::from(CLOUDFORMATIONS), problems: Vec::new() };
    let cluster =
        read.parsed("Cluster", "1 to 100 letters, digits, `-` and `_`", |t| ClusterName::parse(t).ok());
    let endpoint = read.parsed("Endpoint", "the API server's URL, `https://…`", |text| {
        text.starts_with("https://").then(|| text.to_owned())
    });
    let certificate_authority = read.parsed("CertificateAuthority", "base64 of PEM", base64);
    let kubernetes_version = read.parsed("KubernetesVersion", "a version such as `1.35`", version);
    let service_cidr = read.parsed("ServiceCidr", "a CIDR such as `10.100.0.0/16`", cidr);
    let agent_queue = read
        .parsed("AgentQueue", "the queue's URL", |text| text.starts_with("http").then(|| text.to_owned()));
    let agent_role =
        read.parsed("AgentRole", "a role's ARN", |text| role_name(text).map(|_| text.to_owned()));
    let allowed = read.allowances();
    let gates = read.gates();
    let settings = read.settings();
    read.strangers();
    let PropertyReader { problems, .. } = read;
    if !problems.is_empty() {
        return Err(problems);
    }
    let entry = || {
        Some(Registry {
            installation: installation.clone(),
            cluster: cluster?,
            endpoint: endpoint?,
            certificate_authority: certificate_authority?,
            kubernetes_version: kubernetes_version?,
            service_cidr: service_cidr?,
            settings,
            gates,
            agent_queue: agent_queue?,
            agent_role: agent_role?,
            allowed,
        })
    };
    // Each missing value has its own problem.
    entry().ok_or_else(Vec::new)
}

struct PropertyReader<'a> {
    properties: &'a Map<String, Value>,
    asked: BTreeSet<&'static str>,
    problems: Vec<String>,
}

impl<'a> PropertyReader<'a> {
    fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.asked.insert(name);
        self.properties.get(name)
    }

    fn wrong(&mut self, name: &str, found: &str, expected: &str) {
        self.problems.push(format!("`{name}` is `{found}`: expected {expected}"));
    }

    /// A property that must be there.
    fn parsed<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        if self.value(name).is_none() {
            self.problems.push(format!("`{name}` is missing: expected {expected}"));
        }
        self.parsed_if(name, expected, parse)
    }

    /// A property that may be left out.
    fn parsed_if<T>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.value(name)?;
        let parsed = value.as_str().and_then(parse);
        if parsed.is_none() {
            self.wrong(name, &told(value), expected);
        }
        parsed
    }

    /// A list; a missing one is empty, and so is one with a single empty text, which is CloudFormation's empty list.
    fn list<T: Ord>(
        &mut self,
        name: &'static str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> BTreeSet<T> {
        let Some(value) = self.value(name) else { return BTreeSet::new() };
        let Some(items) = value.as_array() else {
            self.wrong(name, &told(value), "a list");
            return BTreeSet::new();
        };
        let mut found = BTreeSet::new();
        for item in items.iter().filter(|item| item.as_str() != Some("")) {
            match item.as_str().and_then(|text| parse(text.trim())) {
                Some(parsed) => drop(found.insert(parsed)),
                None => self.wrong(name, &told(item), expected),
            }
        }
        found
    }

    fn allowances(&mut self) -> Allowances {
        Allowances {
            node_roles: self.node_roles(),
            instance_profiles: self.list("InstanceProfiles", "names or ARNs", |text| Some(text.to_owned())),
            subnet_tags: self.tags("SubnetTags"),
            security_group_tags: self.tags("SecurityGroupTags"),
            image_owners: self.list("ImageOwners", "`self`, `amazon` or an account's twelve digits", owner),
            snapshot_owners: self.list("SnapshotOwners", "`amazon` or an account's twelve digits", |text| {
                // IAM compares owners as well, and knows no `self`.
                owner(text).filter(|owner| owner != "self")
            }),
            snapshot_tags: self.snapshot_tags(),
            max_nodes: self.parsed_if("MaxNodes", "a whole number", |text| text.parse().ok()),
        }
    }

    /// The nodes' roles, each with its instance profile. No node starts without one.
    fn node_roles(&mut self) -> BTreeMap<String, String> {
        let problems = self.problems.len();
        let value = self.value("NodeRoles");
        let items = value.and_then(Value::as_array);
        if let (Some(value), None) = (value, items) {
            self.wrong("NodeRoles", &told(value), "a list");
        }
        let mut roles = BTreeMap::new();
        for item in items.into_iter().flatten() {
            match node_role(item) {
                Ok(Some((role, profile))) => {
                    let first = roles.entry(role.clone()).or_insert_with(|| profile.clone());
                    if *first != profile {
                        self.problems.push(format!(
                            "`NodeRoles` gives role `{role}` two instance profiles, `{first}` and `{profile}`: keep one \
                             of them, because classes name the role without its path"
                        ));
                    }
                }
                Ok(None) => {}
                Err(problem) => self.problems.push(problem),
            }
        }
        if roles.is_empty() && self.problems.len() == problems {
            self.problems
                .push("`NodeRoles` is empty: expected a node role and its instance profile".to_owned());
        }
        roles
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

    /// A gate, if it is given.
    fn gate(&mut self, name: &'static str) -> Option<FeatureGate> {
        self.parsed_if(name, "`Enabled` or `Disabled`", FeatureGate::parse)
    }

    fn gates(&mut self) -> Gates {
        GateName::ALL.into_iter().fold(Gates::default(), |gates, gate| {
            gates.with(gate, self.gate(gate.as_str()).unwrap_or_default())
        })
    }

    fn settings(&mut self) -> ClusterSettings {
        let default = ClusterSettings::default();
        let [learned_memory, zonal_shift, dry_runs, console_output, voluntary_disruption] =
            ["LearnedMemory", "ZonalShift", "DryRuns", "ConsoleOutput", "VoluntaryDisruption"]
                .map(|name| self.gate(name));
        let budget = "a count such as `5`, or a percentage such as `10%`";
        let disruption_budget =
            self.parsed_if("DisruptionBudget", budget, |text| BudgetNodes::parse(text).ok());
        let preferences =
            self.parsed_if("PreferencePolicy", "`Respect` or `Ignore`", PreferencePolicy::parse);
        let min_values =
            self.parsed_if("MinValuesPolicy", "`Strict` or `BestEffort`", MinValuesPolicy::parse);
        let default_spread =
            self.list("DefaultTopologySpread", DefaultConstraint::FORM, DefaultConstraint::parse);
        ClusterSettings {
            default_spread: default_spread.into_iter().collect(),
            policies: PlanPolicies {
                preferences: preferences.unwrap_or(default.policies.preferences),
                min_values: min_values.unwrap_or(default.policies.min_values),
            },
            dry_runs: dry_runs.unwrap_or(default.dry_runs),
            console_output: console_output.unwrap_or(default.console_output),
            voluntary_disruption: voluntary_disruption.unwrap_or(default.voluntary_disruption),
            disruption_budget,
            learned_memory: learned_memory.unwrap_or(default.learned_memory),
            zonal_shift: zonal_shift.unwrap_or(default.zonal_shift),
            ..default
        }
    }

    /// An unknown property is a misspelt one.
    fn strangers(&mut self) {
        let unknown = self.properties.keys().filter(|name| !self.asked.contains(name.as_str()));
        self.problems.extend(unknown.map(|name| format!("`{name}` isn't a cluster property: remove it")));
    }
}

fn told(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn base64(text: &str) -> Option<String> {
    let body = text.trim_end_matches('=');
    let digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    (!body.is_empty() && text.len() - body.len() <= 2 && body.bytes().all(digit)).then(|| text.to_owned())
}

fn version(text: &str) -> Option<String> {
    let (major, minor) = text.split_once('.')?;
    let number = |text: &str| text.parse::<u32>().is_ok();
    (number(major) && number(minor)).then(|| text.to_owned())
}

fn cidr(text: &str) -> Option<String> {
    let (address, bits) = text.split_once('/')?;
    let address: std::net::IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits.parse::<u8>().ok()? <= most).then(|| text.to_owned())
}

/// The name in a role's ARN, after its path.
fn role_name(arn: &str) -> Option<&str> {
    let mut parts = arn.splitn(6, ':');
    let (scheme, _, service) = (parts.next()?, parts.next()?, parts.next()?);
    let name = parts.nth(2)?.strip_prefix("role/")?.rsplit('/').next()?;
    (scheme == "arn" && service == "iam" && !name.is_empty()).then_some(name)
}

/// The names of a node role and its instance profile, `Role` and `InstanceProfile`; nothing where both are empty, as for
/// a number without a role. A text is a role's ARN, and its profile has its name: CloudFormation repeats that form of
/// earlier templates where it rolls back from this one.
fn node_role(item: &Value) -> Result<Option<(String, String)>, String> {
    if item.as_str() == Some("") {
        return Ok(None);
    }
    if let Some(name) = item.as_str().and_then(|arn| role_name(arn.trim())) {
        return Ok(Some((name.to_owned(), name.to_owned())));
    }
    let text = |name: &str| item.get(name).and_then(Value::as_str).map(str::trim);
    let (Some(role), Some(profile)) = (text("Role"), text("InstanceProfile")) else {
        let found = told(item);
        return Err(format!(
            "`NodeRoles` is `{found}`: expected `Role` and `InstanceProfile`, or a role's ARN"
        ));
    };
    if role.is_empty() && profile.is_empty() {
        return Ok(None);
    }
    if role.is_empty() {
        return Err(format!("`NodeRoles` has instance profile `{profile}` without its role: add the role"));
    }
    let name = if role.starts_with("arn:") { role_name(role) } else { role.rsplit('/').next() };
    let Some(name) = name.filter(|name| is_iam_name(name, LONGEST_ROLE)) else {
        return Err(format!(
            "`NodeRoles` has role `{role}`: expected a role's name of 1 to {LONGEST_ROLE} letters, digits and \
             `_+=,.@-`, behind its path if it has one"
        ));
    };
    let of_arn = profile.starts_with("arn:").then(|| profile.rsplit('/').next()).flatten();
    let own = of_arn.unwrap_or(profile);
    if !is_iam_name(own, LONGEST_PROFILE) {
        return Err(format!(
            "`NodeRoles` gives role `{role}` instance profile `{profile}`: expected an instance profile's name of 1 to \
             {LONGEST_PROFILE} letters, digits and `_+=,.@-`, without a path"
        ));
    }
    Ok(Some((name.to_owned(), own.to_owned())))
}

fn is_iam_name(text: &str, longest: usize) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_+=,.@-".contains(&byte);
    (1..=longest).contains(&text.len()) && text.bytes().all(allowed)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn properties() -> Value {
        json!({
            "ServiceToken": "arn:aws:lambda:us-east-1:111122223333:function:tenon-registry",
            "Cluster": "prod",
            "Endpoint": "https://example.eks.amazonaws.com",
            "CertificateAuthority": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t",
            "KubernetesVersion": "1.35",
            "ServiceCidr": "10.100.0.0/16",
            "AgentQueue": "https://sqs.us-east-1.amazonaws.com/111122223333/tenon-agent-prod",
            "AgentRole": "arn:aws:iam::111122223333:role/agent",
            "NodeRoles": [
                {"Role": "nodes", "InstanceProfile": "arn:aws:iam::111122223333:instance-profile/tenon-nodes"},
                {"Role": "path/gpu", "InstanceProfile": "gpu"},
                {"Role": "", "InstanceProfile": ""},
            ],
            "InstanceProfiles": [""],
            "SubnetTags": ["karpenter.sh/discovery=prod", "private=*"],
            "SecurityGroupTags": ["karpenter.sh/discovery=prod"],
            "ImageOwners": ["self", "123456789012"],
            "MaxNodes": "20",
            "ReservedCapacity": "Disabled",
        })
    }

    fn parsed(change: &[(&str, Option<Value>)]) -> Result<Registry, Vec<String>> {
        let mut properties = properties().as_object().unwrap().clone();
        for (name, value) in change {
            match value {
                Some(value) => drop(properties.insert((*name).to_owned(), value.clone())),
                None => drop(properties.remove(*name)),
            }
        }
        parse(&InstallationId::parse("tenon").unwrap(), &properties)
    }

    fn check(change: &[(&str, Option<Value>)], expected: &[&str]) {
        assert_eq!(parsed(change).unwrap_err(), expected);
    }

    #[test]
    fn an_entry_is_what_the_stack_says() {
        let entry = parsed(&[]).unwrap();
        assert_eq!(entry.allowed.node_roles, roles(&[("nodes", "tenon-nodes"), ("gpu", "gpu")]));
        assert!(entry.allowed.instance_profiles.is_empty());
        assert_eq!(entry.allowed.subnet_tags["private"], "*");
        assert_eq!(entry.allowed.max_nodes, Some(20));
        assert!(!entry.allowed.has_snapshots());
        let data = [
            ("SnapshotOwners", Some(json!(["amazon", "123456789012"]))),
            ("SnapshotTags", Some(json!(["team=data"]))),
        ];
        let allowed = parsed(&data).unwrap().allowed;
        assert!(allowed.has_snapshots() && allowed.snapshot_owners.contains("123456789012"));
        assert_eq!(allowed.snapshot_tags["team"], "data");
        let least = parsed(&[("MaxNodes", None)]).unwrap();
        assert_eq!(least.allowed.max_nodes, None);
        assert_eq!(least.settings, ClusterSettings::default());
        let estimated = parsed(&[("LearnedMemory", Some(json!("Disabled")))]).unwrap();
        assert_eq!(estimated.settings.learned_memory, FeatureGate::Disabled);
        assert_eq!(estimated.settings.zonal_shift, FeatureGate::Disabled);
        let shifting = parsed(&[("ZonalShift", Some(json!("Enabled")))]).unwrap();
        assert_eq!(shifting.settings.zonal_shift, FeatureGate::Enabled);
        assert_eq!(shifting.settings.dry_runs, FeatureGate::Enabled);
        let undried = parsed(&[("DryRuns", Some(json!("Disabled")))]).unwrap();
        assert_eq!(undried.settings.dry_runs, FeatureGate::Disabled);
        assert_eq!(undried.settings.console_output, FeatureGate::Disabled);
        let read = parsed(&[("ConsoleOutput", Some(json!("Enabled")))]).unwrap();
        assert_eq!(read.settings.console_output, FeatureGate::Enabled);
        let paused = parsed(&[("VoluntaryDisruption", Some(json!("Disabled")))]).unwrap();
        assert_eq!(paused.settings.voluntary_disruption, FeatureGate::Disabled);
        let bounded = parsed(&[("DisruptionBudget", Some(json!("10%")))]).unwrap();
        assert_eq!(bounded.settings.disruption_budget, Some(BudgetNodes::Percent(10)));
        let open = parsed(&[("SpotToSpotConsolidation", Some(json!("Enabled")))]).unwrap();
        assert_eq!(
            [undried, open].map(|one| one.gates.of(GateName::SpotToSpotConsolidation)),
            [FeatureGate::Disabled, FeatureGate::Enabled]
        );
        let ignoring = parsed(&[("PreferencePolicy", Some(json!("Ignore")))]).unwrap();
        assert_eq!(ignoring.settings.policies.preferences, PreferencePolicy::Ignore);
        let lowering = parsed(&[("MinValuesPolicy", Some(json!("BestEffort")))]).unwrap();
        assert_eq!(lowering.settings.policies.min_values, MinValuesPolicy::BestEffort);
        let spread = "topology.kubernetes.io/zone=1:DoNotSchedule";
        let spreading = parsed(&[("DefaultTopologySpread", Some(json!([spread])))]).unwrap();
        assert_eq!(spreading.settings.default_spread[0].to_string(), spread);
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        check(
            &[
                ("Cluster", Some(json!("a b"))),
                ("Endpoint", None),
                ("ServiceCidr", Some(json!("10.0.0.0/33"))),
                ("NodeRoles", Some(json!(["nodes"]))),
                ("SubnetTags", Some(json!([""]))),
                ("MaxNode", Some(json!("1"))),
            ],
            &[
                "`Cluster` is `a b`: expected 1 to 100 letters, digits, `-` and `_`",
                "`Endpoint` is missing: expected the API server's URL, `https://…`",
                "`ServiceCidr` is `10.0.0.0/33`: expected a CIDR such as `10.100.0.0/16`",
                "`NodeRoles` is `nodes`: expected `Role` and `InstanceProfile`, or a role's ARN",
                "`SubnetTags` is empty: expected at least one tag, `key=value` or `key=*`",
                "`MaxNode` isn't a cluster property: remove it",
            ],
        );
    }

    fn roles(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(role, profile)| ((*role).to_owned(), (*profile).to_owned())).collect()
    }

    #[test]
    fn a_role_has_one_instance_profile() {
        let given = |list: Value| parsed(&[("NodeRoles", Some(list))]);
        let role = |role: &str, profile: &str| json!({"Role": role, "InstanceProfile": profile});
        let check = |list: Value, expected: &[(&str, &str)]| {
            assert_eq!(given(list).unwrap().allowed.node_roles, roles(expected));
        };
        check(json!([role("a", "a"), role("team/a", "a")]), &[("a", "a")]);
        check(json!([role("arn:aws:iam::111122223333:role/team/a", "b")]), &[("a", "b")]);
        check(json!(["arn:aws:iam::111122223333:role/team/a", ""]), &[("a", "a")]);
        let refused = |list: Value, expected: &str| assert_eq!(given(list).unwrap_err(), [expected]);
        refused(
            json!([role("a", "one"), role("team/a", "two")]),
            "`NodeRoles` gives role `a` two instance profiles, `one` and `two`: keep one of them, because classes name \
             the role without its path",
        );
        refused(
            json!([role("", "one")]),
            "`NodeRoles` has instance profile `one` without its role: add the role",
        );
        refused(
            json!([role("team/*", "one")]),
            "`NodeRoles` has role `team/*`: expected a role's name of 1 to 64 letters, digits and `_+=,.@-`, behind its \
             path if it has one",
        );
        refused(
            json!([role("a", "team/one")]),
            "`NodeRoles` gives role `a` instance profile `team/one`: expected an instance profile's name of 1 to 128 \
             letters, digits and `_+=,.@-`, without a path",
        );
        refused(json!([role("", "")]), "`NodeRoles` is empty: expected a node role and its instance profile");
        assert_eq!(given(json!([role("a", &"p".repeat(129)), role("b", "")])).unwrap_err().len(), 2);
    }

    #[test]
    fn every_property_has_its_form() {
        let wrong = |name: &'static str, value: Value| parsed(&[(name, Some(value))]).unwrap_err().len();
        assert_eq!(wrong("CertificateAuthority", json!("-----BEGIN")), 1);
        assert_eq!(wrong("KubernetesVersion", json!("v1.35")), 1);
        assert_eq!(wrong("AgentRole", json!("agent")), 1);
        assert_eq!(wrong("AgentQueue", json!("tenon-agent-prod")), 1);
        assert_eq!(wrong("NodeRoles", json!([])), 1);
        assert_eq!(wrong("NodeRoles", json!("nodes")), 1);
        assert_eq!(wrong("NodeRoles", json!([5])), 1);
        assert_eq!(wrong("NodeRoles", json!([{"Role": "nodes"}])), 1);
        assert_eq!(wrong("SubnetTags", json!(["a"])), 1);
        assert_eq!(wrong("ImageOwners", json!(["1234"])), 1);
        assert_eq!(wrong("SnapshotOwners", json!(["1234"])), 1);
        assert_eq!(wrong("SnapshotOwners", json!(["self"])), 1);
        assert_eq!(wrong("SnapshotTags", json!(["team=data"])), 1);
        assert_eq!(wrong("SnapshotTags", json!(["a"])), 1);
        assert_eq!(wrong("MaxNodes", json!("many")), 1);
        assert_eq!(wrong("DisruptionBudget", json!("a few")), 1);
        let settings = ["LearnedMemory", "ZonalShift", "DryRuns", "ConsoleOutput", "VoluntaryDisruption"];
        for gate in settings.into_iter().chain(GateName::ALL.map(GateName::as_str)) {
            assert_eq!(wrong(gate, json!("On")), 1);
        }
        assert_eq!(wrong("PreferencePolicy", json!("ignore")), 1);
        assert_eq!(wrong("MinValuesPolicy", json!("Some")), 1);
        assert_eq!(wrong("DefaultTopologySpread", json!(["zone=1"])), 1);
        assert_eq!(wrong("Endpoint", json!(["https://x"])), 1);
    }
}
