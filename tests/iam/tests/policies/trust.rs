//! Who may assume a role, send messages to queues, and put events on the bus.

use serde_json::Value;
use tenon_iam_tests::judge::Policy;
use tenon_iam_tests::mutation::{conditions, wider};
use tenon_iam_tests::platform::delivered;
use tenon_iam_tests::reference;
use tenon_iam_tests::request::{ACCOUNT, Request, SOURCE, arn};
use tenon_iam_tests::stack::{OIDC_PROVIDER_OF_NEXT, Stack, list, statements};

use crate::WORLD;

const NODE: &str = "arn:aws:iam::111122223333:role/one";

/// A trust has no resource: it is the role's.
fn trust(role: &str) -> Vec<Value> {
    let mut trust = WORLD.account.roles[role].trust.clone();
    for statement in &mut trust {
        statement["Resource"] = Value::from(NODE);
    }
    trust
}

fn trusts(role: &str, service: &str, request: &Request) -> bool {
    Policy::new(&trust(role)).unwrap().allows_service(service, request).unwrap()
}

fn trusts_token(trust: &[Value], issuer: &str, request: &Request) -> bool {
    let provider = format!("arn:aws:iam::{ACCOUNT}:oidc-provider/{issuer}");
    Policy::new(trust).unwrap().allows_federated(&provider, request).unwrap()
}

fn assume(action: &str) -> Request {
    Request::new(action, NODE).with("aws:SourceAccount", [ACCOUNT])
}

fn as_pod(cluster: &str, namespace: &str, account: &str) -> Request {
    Request::new("sts:AssumeRole", NODE)
        .with("aws:SourceAccount", [ACCOUNT])
        .with("aws:RequestTag/eks-cluster-arn", [arn("eks", &format!("cluster/{cluster}"))])
        .with("aws:RequestTag/kubernetes-namespace", [namespace])
        .with("aws:RequestTag/kubernetes-service-account", [account])
}

fn with_token(issuer: &str, subject: &str, audience: &str) -> Request {
    Request::new("sts:AssumeRoleWithWebIdentity", NODE)
        .with(&format!("{issuer}:sub"), [subject])
        .with(&format!("{issuer}:aud"), [audience])
}

/// A condition on a key that AWS doesn't give with the action never holds. The keys of services are for services alone.
#[test]
fn every_condition_of_a_trust_and_of_a_queue_is_on_a_key_that_aws_gives() {
    let trusts = WORLD.account.roles.keys().flat_map(|role| trust(role));
    let policies = WORLD.account.resource_policies.iter();
    let of_queues = policies.flat_map(|policy| statements(policy.get("PolicyDocument")));
    let mut seen = 0;
    for statement in trusts.chain(of_queues) {
        let serves = !statement["Principal"]["Service"].is_null();
        let resources = list(statement.get("Resource"));
        let resource = resources.first().and_then(Value::as_str).unwrap_or(NODE);
        for action in list(statement.get("Action")) {
            let action = action.as_str().unwrap();
            assert!(reference::knows(action), "`{action}` isn't in reference.json");
            for (_, key, _) in conditions(&statement) {
                let given = reference::gives(action, resource, &key);
                assert!(
                    given && (serves || !reference::is_of_services(&key)),
                    "`{action}` has no `{key}`: {statement}"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "no trust has a condition");
}

/// With a provider in the stack and without one.
#[test]
fn an_agents_role_is_its_pods_alone() {
    let pods = "pods.eks.amazonaws.com";
    for (cluster, other) in [("demo", "next"), ("next", "demo")] {
        let role = format!("agent of {cluster}");
        let own = as_pod(cluster, "tenon-system", "tenon-agent");
        assert!(trusts(&role, pods, &own));
        assert!(trusts(&role, pods, &Request { action: "sts:TagSession".to_owned(), ..own.clone() }));
        for forged in [
            as_pod(other, "tenon-system", "tenon-agent"),
            as_pod(cluster, "default", "tenon-agent"),
            as_pod(cluster, "tenon", "tenon-agent"),
            as_pod(cluster, "tenon-system", "default"),
            own.clone().with("aws:SourceAccount", ["444455556666"]),
            own.clone().without("aws:RequestTag/eks-cluster-arn"),
            own.clone().without("aws:RequestTag/kubernetes-namespace"),
            own.clone().without("aws:RequestTag/kubernetes-service-account"),
            own.clone().without("aws:SourceAccount"),
        ] {
            assert!(!trusts(&role, pods, &forged), "{role}, {forged}");
        }
        for service in ["ec2.amazonaws.com", "lambda.amazonaws.com"] {
            assert!(!trusts(&role, service, &own), "{role}, {service}");
        }
    }
}

#[test]
fn a_token_is_trusted_of_the_named_provider_for_the_agents_service_account() {
    let (issuer, agent, sts) =
        (OIDC_PROVIDER_OF_NEXT, "system:serviceaccount:tenon-system:tenon-agent", "sts.amazonaws.com");
    let trusted = trust("agent of next");
    let own = with_token(issuer, agent, sts);
    assert!(trusts_token(&trusted, issuer, &own));
    assert!(!trusts_token(&trust("agent of demo"), issuer, &own), "its stack names no provider");
    let other = "oidc.eks.us-east-1.amazonaws.com/id/OTHER";
    assert!(!trusts_token(&trusted, other, &with_token(other, agent, sts)), "another cluster's token");

    let forged = [
        with_token(issuer, "system:serviceaccount:default:tenon-agent", sts),
        with_token(issuer, "system:serviceaccount:tenon-system:default", sts),
        with_token(issuer, "system:serviceaccount:tenon-system:tenon-agent-2", sts),
        with_token(issuer, agent, "https://kubernetes.default.svc"),
        own.clone().without(&format!("{issuer}:sub")),
        own.clone().without(&format!("{issuer}:aud")),
        Request { action: "sts:AssumeRole".to_owned(), ..own },
    ];
    for request in &forged {
        assert!(!trusts_token(&trusted, issuer, request), "{request}");
    }
    // Without one of its conditions the trust lets a forged token in.
    let mutants = wider(&trusted);
    let without = mutants.iter().filter(|one| one.change.starts_with("TokensOfTheAgent without"));
    assert_eq!(without.clone().count(), 2, "{mutants:?}");
    for mutant in without {
        let noticed = forged.iter().any(|request| trusts_token(&mutant.statements, issuer, request));
        assert!(noticed, "{}", mutant.change);
    }
}

/// The name of the provisioner's role is what the region's stack exports.
#[test]
fn a_launch_role_is_the_provisioners_alone() {
    let own = format!("arn:aws:iam::{ACCOUNT}:role/tenon-provisioner-role");
    let others = ["LifecycleRole", "NodeClassesRole", "tenon-provisioner-role2", "demo-node"]
        .map(|name| format!("arn:aws:iam::{ACCOUNT}:role/{name}"))
        .into_iter()
        .chain([own.replace(ACCOUNT, "444455556666"), format!("arn:aws:iam::{ACCOUNT}:root")]);
    let others: Vec<String> = others.collect();
    for role in ["launch of demo", "launch of next"] {
        let trusted = trust(role);
        let takes = |trust: &[Value], by: &str| {
            Policy::new(trust).unwrap().allows_role(by, &Request::new("sts:AssumeRole", NODE)).unwrap()
        };
        assert!(takes(&trusted, &own), "{role}");
        for other in &others {
            assert!(!takes(&trusted, other), "{role}, {other}");
        }
        for service in ["lambda.amazonaws.com", "ec2.amazonaws.com"] {
            assert!(!trusts(role, service, &assume("sts:AssumeRole")), "{role}, {service}");
        }
        // A trust in everybody lets them in.
        let mut open = trusted.clone();
        open[0]["Principal"] = Value::from("*");
        assert!(others.iter().any(|other| takes(&open, other)), "{role}");
    }
}

#[test]
fn a_functions_role_is_lambdas_and_a_schedules_is_schedulers() {
    let of_service = |role: &&String| !role.starts_with("agent") && !role.starts_with("launch");
    for role in WORLD.account.roles.keys().filter(of_service) {
        let own =
            if role.starts_with("scheduler") { "scheduler.amazonaws.com" } else { "lambda.amazonaws.com" };
        assert!(trusts(role, own, &assume("sts:AssumeRole")), "{role}");
        for other in ["ec2.amazonaws.com", "pods.eks.amazonaws.com", "events.amazonaws.com"] {
            assert!(!trusts(role, other, &assume("sts:AssumeRole")), "{role}, {other}");
        }
    }
    let foreign = assume("sts:AssumeRole").with("aws:SourceAccount", ["444455556666"]);
    assert!(!trusts("scheduler", "scheduler.amazonaws.com", &foreign));
}

#[test]
fn queues_take_what_the_stacks_rules_deliver() {
    let policy = WORLD.account.resource_policies.first().unwrap();
    let queues: Vec<&str> = policy["Queues"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let document = statements(policy.get("PolicyDocument"));
    let judged = Policy::new(&document).unwrap();
    let delivered = delivered(&WORLD.stacks[0]).unwrap();
    assert!(delivered.len() > 20, "{delivered:?}");
    let allows =
        |judged: &Policy, request: &Request| judged.allows_service("events.amazonaws.com", request).unwrap();
    let mut forged: Vec<Request> = Vec::new();
    for request in delivered {
        let queue = request.resource.rsplit(':').next().unwrap();
        assert!(queues.contains(&queue), "no policy for `{queue}`");
        let own = request.clone().with("aws:SourceAccount", [ACCOUNT]);
        assert!(allows(&judged, &own), "{own}");
        assert!(!judged.allows_service("s3.amazonaws.com", &own).unwrap(), "{own}");
        forged.extend([
            request,
            own.clone().with("aws:SourceAccount", ["444455556666"]),
            own.clone().with("aws:SourceArn", [arn("events", "rule/somebody-elses")]),
            own.clone().with("aws:SourceArn", [arn("events", "rule/tenon/somebody-elses")]),
            own.without("aws:SourceArn"),
        ]);
    }
    for request in &forged {
        assert!(!allows(&judged, request), "{request}");
    }
    // Without one of its conditions the policy lets another rule, or another account, tell functions what it likes.
    let mutants = wider(&document);
    let without = mutants.iter().filter(|one| one.change.starts_with("DeliverEvents without"));
    assert_eq!(without.clone().count(), 2, "{mutants:?}");
    for mutant in without {
        let judged = Policy::new(&mutant.statements).unwrap();
        assert!(forged.iter().any(|request| allows(&judged, request)), "{}", mutant.change);
    }
}

#[test]
fn a_pipelines_account_says_that_it_has_news_and_nothing_else() {
    let text = include_str!("../../../../infra/pipeline.yaml");
    let stack = Stack::read(text, &[("PipelineAccount", "444455556666")]).unwrap();
    let (_, policy) = stack.of_kind("AWS::Events::EventBusPolicy").unwrap().remove(0);
    let judged = Policy::new(&[without_principal(&policy["Statement"])]).unwrap();
    assert_eq!(policy["Statement"]["Principal"]["AWS"], "arn:aws:iam::444455556666:root");
    let put = |source: &str| {
        Request::new("events:PutEvents", arn("events", "event-bus/tenon")).with(SOURCE, [source])
    };
    assert!(judged.allows(&put("ami.pipeline")).unwrap());
    for source in ["tenon", "tenon.agent.demo", "aws.ec2"] {
        assert!(!judged.allows(&put(source)).unwrap(), "{source}");
    }
    assert!(!judged.allows(&put("ami.pipeline").without(SOURCE)).unwrap());
    let both = put("tenon").with(SOURCE, ["ami.pipeline", "tenon"]);
    assert!(!judged.allows(&both).unwrap());
}

fn without_principal(statement: &Value) -> Value {
    let mut statement = statement.clone();
    if let Some(fields) = statement.as_object_mut() {
        fields.remove("Principal");
    }
    statement
}
