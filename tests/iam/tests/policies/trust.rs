//! Who may assume a role, send messages to queues, and put events on the bus.

use serde_json::Value;
use tenon_iam_tests::judge::Policy;
use tenon_iam_tests::platform::delivered;
use tenon_iam_tests::request::{ACCOUNT, Request, SOURCE, arn};
use tenon_iam_tests::stack::{Stack, statements};

use crate::WORLD;

const NODE: &str = "arn:aws:iam::111122223333:role/one";

/// A trust has no resource: it is the role's.
fn trusts(role: &str, service: &str, request: &Request) -> bool {
    let mut trust = WORLD.account.roles[role].trust.clone();
    for statement in &mut trust {
        statement["Resource"] = Value::from(NODE);
    }
    Policy::new(&trust).unwrap().allows_service(service, request).unwrap()
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

#[test]
fn an_agents_role_is_its_pods_alone() {
    let pods = "pods.eks.amazonaws.com";
    let role = "agent of demo";
    let own = as_pod("demo", "tenon-system", "tenon-agent");
    assert!(trusts(role, pods, &own));
    assert!(trusts(role, pods, &Request { action: "sts:TagSession".to_owned(), ..own.clone() }));
    for forged in [
        as_pod("next", "tenon-system", "tenon-agent"),
        as_pod("demo", "default", "tenon-agent"),
        as_pod("demo", "tenon", "tenon-agent"),
        as_pod("demo", "tenon-system", "default"),
        own.clone().with("aws:SourceAccount", ["444455556666"]),
        own.clone().without("aws:RequestTag/eks-cluster-arn"),
        own.clone().without("aws:RequestTag/kubernetes-namespace"),
        own.clone().without("aws:RequestTag/kubernetes-service-account"),
        own.clone().without("aws:SourceAccount"),
    ] {
        assert!(!trusts(role, pods, &forged), "{forged}");
    }
    for service in ["ec2.amazonaws.com", "lambda.amazonaws.com"] {
        assert!(!trusts(role, service, &own), "{service}");
    }
}

#[test]
fn a_functions_role_is_lambdas_and_a_schedules_is_schedulers() {
    for role in WORLD.account.roles.keys().filter(|role| !role.starts_with("agent")) {
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
fn queues_take_what_this_accounts_rules_deliver() {
    let policy = WORLD.account.resource_policies.first().unwrap();
    let queues: Vec<&str> = policy["Queues"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let judged = Policy::new(&statements(policy.get("PolicyDocument"))).unwrap();
    let delivered = delivered(&WORLD.stacks[0]).unwrap();
    assert!(delivered.len() > 20, "{delivered:?}");
    for request in delivered {
        let queue = request.resource.rsplit(':').next().unwrap();
        assert!(queues.contains(&queue), "no policy for `{queue}`");
        let own = request.clone().with("aws:SourceAccount", [ACCOUNT]);
        assert!(judged.allows_service("events.amazonaws.com", &own).unwrap(), "{own}");
        assert!(!judged.allows_service("s3.amazonaws.com", &own).unwrap(), "{own}");
        let foreign = own.with("aws:SourceAccount", ["444455556666"]);
        assert!(!judged.allows_service("events.amazonaws.com", &foreign).unwrap(), "{foreign}");
        assert!(!judged.allows_service("events.amazonaws.com", &request).unwrap(), "{request}");
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
