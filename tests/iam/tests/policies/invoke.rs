//! Who may invoke functions: CloudFormation for people who deploy clusters, and the stack's own rules.

use serde_json::{Value, json};
use tenon_iam_tests::judge::Policy;
use tenon_iam_tests::mutation::wider;
use tenon_iam_tests::request::{Request, arn};

use crate::{WORLD, root};

const INVOKE: &str = "lambda:InvokeFunction";
const VIA: &str = "aws:CalledVia";

/// The statement that the deployment's page gives to people who deploy clusters.
fn registers_clusters() -> Value {
    let page = std::fs::read_to_string(root().join("docs/deploy.md")).unwrap();
    let blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
    let found = blocks.filter(|block| block.contains("\"RegisterClusters\"")).collect::<String>();
    serde_json::from_str(&found).unwrap()
}

#[test]
fn people_ask_the_registry_by_way_of_cloudformation_alone() {
    let statement = registers_clusters();
    let allows = |statement: &Value, request: &Request| {
        Policy::new(std::slice::from_ref(statement)).unwrap().allows(request).unwrap()
    };
    let direct = Request::new(INVOKE, arn("lambda", "function:tenon-registry"));
    let by_a_stack = direct.clone().with(VIA, ["cloudformation.amazonaws.com"]);
    assert!(allows(&statement, &by_a_stack));
    let refused = [
        direct.clone(),
        direct.clone().with(VIA, ["athena.amazonaws.com"]),
        Request::new(INVOKE, arn("lambda", "function:tenon-provisioner"))
            .with(VIA, ["cloudformation.amazonaws.com"]),
    ];
    for request in &refused {
        assert!(!allows(&statement, request), "{request}");
    }
    let mutants = wider(std::slice::from_ref(&statement));
    let lets = |request: &Request| {
        mutants.iter().any(|mutant| Policy::new(&mutant.statements).unwrap().allows(request).unwrap())
    };
    assert!(lets(&direct), "no mutation lets people invoke it directly");
}

/// The policies of functions as CloudFormation makes them of their permissions.
fn permissions() -> Vec<(String, Value)> {
    let found = WORLD.stacks.iter().flat_map(|stack| {
        let all = stack.of_kind("AWS::Lambda::Permission").unwrap();
        all.into_iter().map(|(name, of)| {
            let function = of["FunctionName"].as_str().unwrap_or_default();
            let function = if function.starts_with("arn:") {
                function.to_owned()
            } else {
                arn("lambda", &format!("function:{function}"))
            };
            let statement = json!({
                "Sid": name, "Effect": "Allow", "Action": of["Action"], "Resource": function,
                "Principal": {"Service": of["Principal"]},
                "Condition": {"ArnLike": {"aws:SourceArn": of["SourceArn"]}},
            });
            (of["SourceArn"].as_str().unwrap_or_default().to_owned(), statement)
        })
    });
    found.collect()
}

#[test]
fn rules_of_others_invoke_no_function() {
    let events = "events.amazonaws.com";
    let permissions = permissions();
    assert!(!permissions.is_empty());
    for (rule, statement) in permissions {
        let allows = |statements: &[Value], request: &Request| {
            Policy::new(statements).unwrap().allows_service(events, request).unwrap()
        };
        let function = statement["Resource"].as_str().unwrap().to_owned();
        let own = Request::new(INVOKE, function.clone()).with("aws:SourceArn", [rule.clone()]);
        let other = own.clone().with("aws:SourceArn", ["arn:aws:events:us-east-1:444455556666:rule/theirs"]);
        let whole = std::slice::from_ref(&statement);
        assert!(allows(whole, &own), "{rule}");
        assert!(!allows(whole, &other), "{rule}");
        let widened = wider(whole);
        assert!(widened.iter().any(|mutant| allows(&mutant.statements, &other)), "{rule}");
    }
}
