//! The entries of properties, and the problems of each of them.

use std::collections::BTreeMap;

use serde_json::json;
use tenon_domain::budget::BudgetNodes;
use tenon_domain::id::{InstallationId, Region};
use tenon_domain::instance_family::FamilyPattern;
use tenon_domain::registry::{
    Allowances, ClusterSettings, FeatureGate, GateName, MinValuesPolicy, Permission, PreferencePolicy,
};

use super::*;

/// Properties that stacks send, with lists of several kinds.
fn properties() -> Map<String, Value> {
    let sent = include_str!("../../tests/properties.json");
    let mut properties: Map<String, Value> = serde_json::from_str(sent).unwrap();
    let roles = json!([
        {"Role": "nodes", "InstanceProfile": "arn:aws:iam::111122223333:instance-profile/tenon-nodes"},
        {"Role": "path/gpu", "InstanceProfile": "gpu"},
        {"Role": "", "InstanceProfile": ""},
    ]);
    properties.extend(
        [
            ("NodeRoles", roles),
            ("InstanceProfiles", json!([""])),
            ("SubnetTags", json!(["karpenter.sh/discovery=prod", "private=*"])),
            ("ImageOwners", json!(["self", "123456789012"])),
            ("MaxNodes", json!("20")),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    properties
}

fn installation() -> Installation {
    Installation {
        id: InstallationId::parse("tenon").unwrap(),
        region: Region::parse("us-east-1").unwrap(),
        account: "111122223333".to_owned(),
        table: "tenon".to_owned(),
    }
}

fn parsed(change: &[(&str, Option<Value>)]) -> Result<Registry, Vec<String>> {
    let mut properties = properties();
    for (name, value) in change {
        match value {
            Some(value) => drop(properties.insert((*name).to_owned(), value.clone())),
            None => drop(properties.remove(*name)),
        }
    }
    parse(&installation(), &properties)
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
    assert_eq!(read.settings.spot_request_tags, FeatureGate::Disabled);
    let read = parsed(&[("SpotRequestTags", Some(json!("Enabled")))]).unwrap();
    assert_eq!(read.settings.spot_request_tags, FeatureGate::Enabled);
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
fn what_a_stack_bounds_is_in_the_entry_and_what_it_leaves_out_is_not_bounded() {
    let allowed = |change: &[(&str, Option<Value>)]| parsed(change).unwrap().allowed;
    let least = allowed(&[]);
    assert_eq!((least.max_vcpus, least.families.len()), (None, 0));
    let permissions = |allowed: &Allowances| [allowed.public_addresses, allowed.imds_v1, allowed.user_data];
    assert_eq!(permissions(&least), [Permission::Allowed; 3]);
    assert_eq!(allowed(&[("AllowedFamilies", Some(json!([""])))]), least);
    let bounded = allowed(&[
        ("MaxVcpus", Some(json!("400"))),
        ("AllowedFamilies", Some(json!(["m7g", " c7*"]))),
        ("AllowPublicAddresses", Some(json!("false"))),
        ("AllowImdsV1", Some(json!("false"))),
        ("AllowUserData", Some(json!("false"))),
    ]);
    assert_eq!(bounded.max_vcpus, Some(400));
    assert_eq!(bounded.families.iter().map(FamilyPattern::as_str).collect::<Vec<_>>(), ["c7*", "m7g"]);
    assert_eq!(permissions(&bounded), [Permission::Denied; 3]);
}

#[test]
fn a_launch_role_is_of_this_account_under_the_installations_path() {
    let given = |arn: &str| parsed(&[("LaunchRole", Some(json!(arn)))]);
    let own = "arn:aws:iam::111122223333:role/tenon/tenon/us-east-1/tenon-prod-LaunchRole-1A2B";
    assert_eq!(given(own).unwrap().launch_role.as_deref(), Some(own));
    assert_eq!(parsed(&[]).unwrap().launch_role, None, "a stack of an earlier release makes none");
    for other in [
        own.replace("111122223333", "444455556666"),
        own.replace("arn:aws:", "arn:aws-cn:"),
        own.replace("us-east-1", "eu-west-1"),
        own.replace("/tenon/tenon/", "/tenon/other/"),
        own.replace("tenon/tenon/us-east-1/", ""),
        own.replace("us-east-1/", "us-east-1/deeper/"),
        own.replace("role/", "user/"),
        own.replace("tenon-prod-LaunchRole-1A2B", ""),
        own.replace("tenon-prod-LaunchRole-1A2B", "*"),
        String::new(),
    ] {
        let told = given(&other).unwrap_err();
        let expected = "expected a role's ARN, `arn:aws:iam::111122223333:role/tenon/tenon/us-east-1/…`";
        assert_eq!(told, [format!("`LaunchRole` is `{other}`: {expected}")]);
    }
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
    assert_eq!(wrong("MaxVcpus", json!("1.5")), 1);
    assert_eq!(wrong("AllowedFamilies", json!(["m7g.large"])), 1);
    for permission in ["AllowPublicAddresses", "AllowImdsV1", "AllowUserData"] {
        assert_eq!(wrong(permission, json!("no")), 1);
    }
    assert_eq!(wrong("DisruptionBudget", json!("a few")), 1);
    let settings =
        ["LearnedMemory", "ZonalShift", "DryRuns", "ConsoleOutput", "VoluntaryDisruption", "SpotRequestTags"];
    for gate in settings.into_iter().chain(GateName::ALL.map(GateName::as_str)) {
        assert_eq!(wrong(gate, json!("On")), 1);
    }
    assert_eq!(wrong("PreferencePolicy", json!("ignore")), 1);
    assert_eq!(wrong("MinValuesPolicy", json!("Some")), 1);
    assert_eq!(wrong("DefaultTopologySpread", json!(["zone=1"])), 1);
    assert_eq!(wrong("Endpoint", json!(["https://x"])), 1);
}
