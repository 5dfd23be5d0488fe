//! Every real request is allowed, every forbidden one is denied.

use tenon_iam_tests::judge::Policy;
use tenon_iam_tests::mutation::{Mutant, conditions, name, wider};
use tenon_iam_tests::reference;
use tenon_iam_tests::request::{
    CREATE_ACTION, LEADING_KEYS, OWNER, PASSED_TO, REQUEST_CLUSTER, REQUEST_TAG, RESOURCE_CLUSTER,
    RESOURCE_PRIVATE, RESOURCE_TAG, RESOURCE_TEAM, Request, SOURCE, TAG_KEYS, arn, public_arn,
};
use tenon_iam_tests::stack::{Account, CLUSTERS, Stack, cluster_stack, list};

use crate::{Known, WORLD};

fn allows(role: &str, request: &Request) -> bool {
    let role = WORLD.account.roles.get(role).unwrap_or_else(|| panic!("no role `{role}`"));
    Policy::new(&role.statements).unwrap().allows(request).unwrap()
}

#[test]
fn every_call_of_the_code_is_allowed() {
    let mut denied = Vec::new();
    for (name, role) in &WORLD.account.roles {
        let policy = Policy::new(&role.statements).unwrap();
        let asked = WORLD.asked[name].iter().filter(|request| !policy.allows(request).unwrap());
        denied.extend(asked.map(|request| format!("{name}: {request}")));
    }
    assert!(denied.is_empty(), "the stacks deny what is asked: {denied:#?}");
}

#[test]
fn nothing_is_allowed_that_no_call_asks_for() {
    let mut allowed = Vec::new();
    for (name, role) in &WORLD.account.roles {
        let policy = Policy::new(&role.statements).unwrap();
        let known = Known::of(role, &WORLD.asked[name]);
        let strangers = WORLD.asked.values().flatten().chain(&WORLD.forged);
        let strangers = strangers.filter(|request| !known.covers(role, request));
        let strangers = strangers.filter(|request| policy.allows(request).unwrap());
        allowed.extend(strangers.map(|request| format!("{name}: {request}")));
    }
    assert!(
        allowed.is_empty(),
        "the stacks allow what nobody asks for: {} such as {:#?}",
        allowed.len(),
        &allowed[..allowed.len().min(40)]
    );
}

/// A condition on a key that AWS doesn't give never holds, or always: it looks like one and is none.
#[test]
fn every_condition_is_on_a_key_that_aws_gives() {
    let mut wrong = Vec::new();
    for (of, role) in &WORLD.account.roles {
        for statement in &role.statements {
            for action in list(statement.get("Action")) {
                let action = action.as_str().unwrap();
                if !reference::knows(action) {
                    wrong.push(format!("{of}, {}: `{action}` isn't in reference.json", name(statement)));
                }
                let resources = list(statement.get("Resource"));
                // A log group's ARN ends so; elsewhere a star is an account's or a name's.
                let whole = |arn: &str| {
                    arn.strip_suffix(":*")
                        .map_or_else(|| arn.to_owned(), |group| format!("{group}:log-stream:x"))
                };
                let resources = resources.iter().map(|r| whole(r.as_str().unwrap()).replace('*', "x"));
                let resources: Vec<String> =
                    resources.map(|r| if r == "x" { "*".to_owned() } else { r }).collect();
                let fitting: Vec<&String> = resources.iter().filter(|r| reference::fits(action, r)).collect();
                if fitting.is_empty() {
                    wrong.push(format!("{of}, {}: `{action}` isn't asked of {resources:?}", name(statement)));
                }
                for (_, key, _) in conditions(statement) {
                    let given = |resource: &&&String| {
                        !reference::is_of_services(&key) && reference::gives(action, resource, &key)
                    };
                    let missing = fitting.iter().filter(|resource| !given(resource));
                    wrong.extend(
                        missing
                            .map(|r| format!("{of}, {}: `{action}` on {r} has no `{key}`", name(statement))),
                    );
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn table(action: &str, partition: Option<&str>) -> Request {
    let asked = Request::new(&format!("dynamodb:{action}"), arn("dynamodb", "table/tenon"));
    match partition {
        Some(partition) => asked.with(LEADING_KEYS, [partition]),
        None => asked,
    }
}

#[test]
fn an_agent_reaches_its_own_partitions_alone() {
    for (own, other) in [("demo", "next"), ("next", "demo")] {
        let agent = format!("agent of {own}");
        let of = |kind: &str, cluster: &str| format!("{kind}#{cluster}");
        assert!(allows(&agent, &table("PutItem", Some(&of("AGENT", own)))));
        assert!(allows(&agent, &table("Query", Some(&of("CLUSTER", own)))));
        assert!(!allows(&agent, &table("PutItem", Some(&of("CLUSTER", own)))));
        for action in [
            "BatchGetItem",
            "BatchWriteItem",
            "ConditionCheckItem",
            "DeleteItem",
            "GetItem",
            "PutItem",
            "Query",
            "UpdateItem",
        ] {
            for kind in ["AGENT", "CLUSTER"] {
                assert!(!allows(&agent, &table(action, Some(&of(kind, other)))), "{action} {kind}");
            }
            assert!(!allows(&agent, &table(action, Some("REGION#us-east-1"))), "{action}");
            assert!(!allows(&agent, &table(action, None)), "{action}");
            let both = table(action, None).with(LEADING_KEYS, [of("AGENT", own), of("AGENT", other)]);
            assert!(!allows(&agent, &both), "{action}");
        }
        let around = [
            "Scan",
            "PartiQLSelect",
            "PartiQLInsert",
            "PartiQLUpdate",
            "PartiQLDelete",
            "ExportTableToPointInTime",
        ];
        for action in around {
            assert!(!allows(&agent, &table(action, None)), "{action}");
            assert!(!allows(&agent, &table(action, Some(&of("AGENT", own)))), "{action}");
        }
    }
}

#[test]
fn an_agent_speaks_in_its_own_name_alone() {
    let put = |sources: &[&str]| {
        Request::new("events:PutEvents", arn("events", "event-bus/tenon"))
            .with(SOURCE, sources.iter().copied())
    };
    assert!(allows("agent of demo", &put(&["tenon.agent.demo"])));
    for sources in [
        &["tenon.agent.next"][..],
        &["tenon"],
        &["tenon.schedule"],
        &["ami.pipeline"],
        &["tenon.agent.demo", "tenon.agent.next"],
    ] {
        assert!(!allows("agent of demo", &put(sources)), "{sources:?}");
    }
    assert!(!allows("agent of demo", &put(&["tenon.agent.demo"]).without(SOURCE)));
}

#[test]
fn an_agent_has_no_right_in_ec2() {
    let of_ec2 =
        |request: &&Request| request.action.starts_with("ec2:") || request.action.starts_with("iam:");
    for request in WORLD.asked.values().flatten().chain(&WORLD.forged).filter(of_ec2) {
        assert!(!allows("agent of demo", request), "{request}");
    }
}

#[test]
fn only_launch_roles_launch_and_only_lifecycle_terminates() {
    let ours = |action: &str, cluster: &str| {
        Request::new(action, arn("ec2", "instance/i-1"))
            .with(RESOURCE_TAG, ["tenon"])
            .with(RESOURCE_CLUSTER, [cluster])
            .with(REQUEST_TAG, ["tenon"])
            .with(REQUEST_CLUSTER, [cluster])
    };
    for (role, cluster) in WORLD.account.roles.keys().flat_map(|role| CLUSTERS.map(|cluster| (role, cluster)))
    {
        let launches = *role == format!("launch of {cluster}");
        for action in ["ec2:RunInstances", "ec2:CreateFleet"] {
            assert_eq!(allows(role, &ours(action, cluster)), launches, "{role} launches for {cluster}");
        }
        let terminates = ours("ec2:TerminateInstances", cluster);
        assert_eq!(allows(role, &terminates), role == "lifecycle", "{role} terminates");
    }
    let foreign = ours("ec2:TerminateInstances", "demo").with(RESOURCE_TAG, ["other"]);
    assert!(!allows("lifecycle", &foreign) && !allows("lifecycle", &foreign.without(RESOURCE_TAG)));
}

/// What a cluster's launch role must not do: the attack, and a condition, a resource or a statement that keeps it out.
fn attacks_on_next() -> Vec<(&'static str, Request, &'static str)> {
    let of = |cluster: &str, request: Request| {
        request.with(RESOURCE_TAG, ["tenon"]).with(RESOURCE_CLUSTER, [cluster])
    };
    let tagged = |cluster: &str, request: Request| {
        request.with(REQUEST_TAG, ["tenon"]).with(REQUEST_CLUSTER, [cluster])
    };
    let ec2 = |action: &str, on: &str| Request::new(&format!("ec2:{action}"), arn("ec2", on));
    let pass = Request::new("iam:PassRole", "arn:aws:iam::111122223333:role/next-node");
    let create = |on: &str| ec2("CreateTags", on).with(CREATE_ACTION, ["RunInstances"]);
    let name = ec2("CreateTags", "instance/i-1").with(TAG_KEYS, ["Name"]);
    let in_next = |request: Request| request.with(RESOURCE_TEAM, ["next"]).with(RESOURCE_PRIVATE, ["1"]);
    let image = Request::new("ec2:RunInstances", public_arn("image/ami-1")).with(OWNER, ["444455556666"]);
    let request = "StringEquals aws:RequestTag/tenon.dev/cluster";
    let resource = "StringEquals aws:ResourceTag/tenon.dev/cluster";
    vec![
        ("passes a node role", pass.with(PASSED_TO, ["ec2.amazonaws.com"]), "PassNodeRoles on everything"),
        ("launches", tagged("next", ec2("RunInstances", "instance/*")), request),
        ("asks for a fleet", tagged("next", ec2("CreateFleet", "fleet/*")), request),
        ("uses a template", of("next", ec2("RunInstances", "launch-template/lt-1")), resource),
        ("makes a template", tagged("next", ec2("CreateLaunchTemplate", "launch-template/*")), request),
        ("tags what it makes", tagged("next", create("instance/*")), request),
        ("names an instance", of("next", name), resource),
        ("uses a subnet", in_next(ec2("RunInstances", "subnet/subnet-1")), "StringLike aws:ResourceTag/team"),
        (
            "uses a group",
            in_next(ec2("RunInstances", "security-group/sg-1")),
            "StringLike aws:ResourceTag/team",
        ),
        ("launches a stranger's image", image, "StringEquals ec2:Owner"),
    ]
}

/// Each attack is denied, and a policy that is wider in one place lets it through.
#[test]
fn a_clusters_launch_role_does_nothing_for_another_cluster() {
    let of_demo = &WORLD.account.roles["launch of demo"].statements;
    let wider = wider(of_demo);
    for (attack, request, kept_out_by) in attacks_on_next() {
        assert!(!allows("launch of demo", &request), "launch of demo {attack} of next: {request}");
        assert!(!allows("provisioner", &request), "provisioner {attack} of next: {request}");
        let without = wider.iter().filter(|mutant| mutant.change.ends_with(kept_out_by));
        let let_through =
            |mutant: &Mutant| Policy::new(&mutant.statements).unwrap().allows(&request).unwrap();
        let noticed = without.filter(|mutant| let_through(mutant)).count();
        assert!(noticed > 0, "nothing lets through that launch of demo {attack}: {request}");
    }
}

/// The ARN of what another account shares has its owner's account. Source: terraform-aws-modules/terraform-aws-iam#227, a
/// denied launch into a shared subnet, read 2026-11.
#[test]
fn a_launch_role_uses_what_other_accounts_share_by_the_same_tags() {
    let shared =
        |name: &str| Request::new("ec2:RunInstances", format!("arn:aws:ec2:us-east-1:444455556666:{name}"));
    for name in ["subnet/subnet-1", "security-group/sg-1"] {
        let tagged = shared(name).with(RESOURCE_TEAM, ["demo"]).with(RESOURCE_PRIVATE, ["1"]);
        assert!(allows("launch of demo", &tagged), "{name}");
        assert!(!allows("launch of next", &tagged), "{name}");
        assert!(!allows("launch of demo", &shared(name)), "{name}");
    }
    for name in ["placement-group/apart", "capacity-reservation/cr-1"] {
        assert!(allows("launch of demo", &shared(name)), "{name}");
    }
    for name in ["instance/i-1", "launch-template/lt-1"] {
        let ours = shared(name).with(RESOURCE_TAG, ["tenon"]).with(RESOURCE_CLUSTER, ["demo"]);
        assert!(!allows("launch of demo", &ours), "{name}");
    }
}

/// An empty list of owners would make a condition that compares with an empty text.
#[test]
fn without_owners_a_launch_role_has_no_right_on_snapshots() {
    let snapshot =
        Request::new("ec2:RunInstances", public_arn("snapshot/snap-1")).with(OWNER, ["111122223333"]);
    let with = |owners: &str| {
        let mut account = Account::default();
        account
            .add_cluster("demo", &cluster_stack("demo").unwrap().with("SnapshotOwners", &[owners]))
            .unwrap();
        let statements = &account.roles["launch of demo"].statements;
        let named = statements.iter().filter(|statement| name(statement) == "LaunchFromSnapshots").count();
        (named, Policy::new(statements).unwrap().allows(&snapshot).unwrap())
    };
    assert_eq!([with(""), with("111122223333")], [(0, false), (1, true)]);
}

#[test]
fn only_the_provisioner_takes_launch_roles_and_no_others() {
    let take = |role: &str| Request::new("sts:AssumeRole", format!("arn:aws:iam::111122223333:role/{role}"));
    for role in WORLD.account.roles.keys() {
        let takes = allows(role, &take("tenon/tenon/us-east-1/tenon-prod-LaunchRole-1A2B"));
        assert_eq!(takes, role == "provisioner", "{role}");
    }
    for other in ["admin", "demo-node", "tenon/other/us-east-1/a", "tenon/tenon/eu-west-1/a", "tenon/tenon/a"]
    {
        assert!(!allows("provisioner", &take(other)), "{other}");
    }
}

/// Until its stack is updated, a cluster of an earlier release is launched for by the provisioner's own rights, if the
/// region's stack says so.
#[test]
fn the_provisioner_launches_itself_only_where_the_region_serves_earlier_clusters() {
    let launch = Request::new("ec2:RunInstances", arn("ec2", "instance/*")).with(REQUEST_TAG, ["tenon"]);
    let allowed = |given: &str| {
        let text = include_str!("../../../../template.yaml");
        let given = [("Installation", "tenon"), ("ClustersWithoutLaunchRole", given)];
        let mut account = Account::default();
        account.add_region(&Stack::read(text, &given).unwrap()).unwrap();
        Policy::new(&account.roles["provisioner"].statements).unwrap().allows(&launch).unwrap()
    };
    assert_eq!(["Allowed", "Refused"].map(allowed), [true, false]);
}

#[test]
fn roles_are_passed_as_registered_and_to_ec2_alone() {
    let pass = |role: &str, to: &str| {
        Request::new("iam:PassRole", format!("arn:aws:iam::111122223333:role/{role}")).with(PASSED_TO, [to])
    };
    for (role, cluster) in WORLD.account.roles.keys().flat_map(|role| CLUSTERS.map(|cluster| (role, cluster)))
    {
        let passes = allows(role, &pass(&format!("{cluster}-node"), "ec2.amazonaws.com"));
        assert_eq!(passes, *role == format!("launch of {cluster}"), "{role}, {cluster}");
    }
    assert!(!allows("launch of demo", &pass("admin", "ec2.amazonaws.com")));
    assert!(!allows("launch of demo", &pass("demo-node", "lambda.amazonaws.com")));
    assert!(!allows("launch of demo", &pass("demo-node", "ec2.amazonaws.com").without(PASSED_TO)));
}

/// Its name as a service has the end of the partition's host names; in China it may have that of the others. Source:
/// aws/karpenter-provider-aws#6843 and terraform-aws-modules/terraform-aws-eks#3057, launches in China, read 2026-11.
#[test]
fn roles_are_passed_to_the_ec2_of_their_partition() {
    let ends = [("aws", "amazonaws.com"), ("aws-cn", "amazonaws.com.cn"), ("aws-us-gov", "amazonaws.com")];
    for (partition, end) in ends {
        let mut account = Account::default();
        account.add_cluster("demo", &cluster_stack("demo").unwrap().in_partition(partition, end)).unwrap();
        let policy = Policy::new(&account.roles["launch of demo"].statements).unwrap();
        let role = format!("arn:{partition}:iam::111122223333:role/demo-node");
        for service in ["ec2.amazonaws.com", "ec2.amazonaws.com.cn", "lambda.amazonaws.com"] {
            let asked = Request::new("iam:PassRole", role.clone()).with(PASSED_TO, [service]);
            let expected = service == format!("ec2.{end}") || service == "ec2.amazonaws.com";
            assert_eq!(policy.allows(&asked).unwrap(), expected, "{partition}: {service}");
        }
    }
}

/// The sum of a role's inline policies, without spaces. Source: IAM User Guide, "IAM and AWS STS quotas", read 2026-11.
#[test]
fn the_inline_policies_of_each_role_fit() {
    for (name, role) in &WORLD.account.roles {
        let statements = serde_json::to_string(&role.statements).unwrap();
        // Up to five roles, with long names and paths.
        let left = if name.starts_with("launch of ") { 3000 } else { 0 };
        assert!(statements.len() + left < 10_240, "{name}: {} characters", statements.len());
    }
}

#[test]
fn nobody_takes_what_isnt_ours_by_a_tag() {
    let tag = |on: &str| {
        Request::new("ec2:CreateTags", arn("ec2", on)).with("aws:TagKeys", ["tenon.dev/installation"])
    };
    for role in WORLD.account.roles.keys() {
        let foreign = tag("instance/i-1").with(REQUEST_TAG, ["tenon"]);
        assert!(!allows(role, &foreign), "{role}");
        assert!(!allows(role, &foreign.clone().with(RESOURCE_TAG, ["tenon"])), "{role}");
        assert!(!allows(role, &foreign.with(CREATE_ACTION, ["StartInstances"])), "{role}");
    }
}
