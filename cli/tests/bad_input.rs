//! Wrong input: each error names the place, the problem and the remedy, has the right status, and loses nothing else.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use std::path::{Path, PathBuf};

use tenon_region::scenario::play_to_transcript;

fn written(name: &str, text: &str) -> PathBuf {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// Runs the command: its status and errors.
fn tenon(arguments: &[&str]) -> (Option<i32>, String) {
    let (status, _, errors) = common::tenon(arguments, "");
    (status, errors)
}

/// Status 2 and every part of the message, from both `simulate` and `local`.
fn check_manifest(name: &str, text: &str, expected: &[&str]) {
    let file = written(name, text);
    let file = file.to_str().unwrap();
    for arguments in
        [&["simulate", "-f", file][..], &["local", "--speed", "max", "--until", "1m", "-f", file]]
    {
        let (status, errors) = tenon(arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {errors}");
        for part in expected {
            assert!(errors.contains(part), "`{part}` of {arguments:?}: {errors}");
        }
    }
}

#[test]
fn a_typo_in_an_operator() {
    let text = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - key: karpenter.sh/capacity-type
          operator: Inn
          values: [spot]
";
    check_manifest("operator.yaml", text, &["operator.yaml:10:", "operator", "`Inn`", "`In`"]);
}

#[test]
fn a_quantity_that_is_none() {
    let text = "\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
    - name: web
      resources: {requests: {memory: 1.5.0Gi}}
";
    check_manifest("quantity.yaml", text, &["quantity.yaml:7:", "memory", "`1.5.0Gi`"]);
}

#[test]
fn a_broken_label_key() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {\"-bad-\": x}
spec:
  containers: [{name: web}]
";
    check_manifest("label.yaml", text, &["label.yaml:5:", "labels", "`-bad-`"]);
}

#[test]
fn all_errors_of_a_file_come_together() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {\"-bad-\": x}
spec:
  containers:
    - name: web
      resources: {requests: {memory: 1.5.0Gi, cpu: two}}
";
    check_manifest("several.yaml", text, &["`-bad-`", "`1.5.0Gi`", "`two`"]);
}

#[test]
fn an_unknown_type_in_a_catalogue() {
    let pods = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pods.yaml");
    let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pool.yaml");
    let catalogue = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/catalog-bad.json");
    let (status, errors) = tenon(&["simulate", "-f", pods, "-f", pool, "--catalog", catalogue]);
    assert_eq!(status, Some(2), "{errors}");
    for part in [
        "catalog-bad.json:6: onDemandPrices.m5.larg: unknown instance type `m5.larg`",
        "did you mean `m5.large`",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn a_catalogue_of_another_form() {
    let pool = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pool.yaml");
    let check = |text: &str, expected: &[&str]| {
        let file = written("catalog-form.json", text);
        let (status, errors) = tenon(&["simulate", "-f", pool, "--catalog", file.to_str().unwrap()]);
        assert_eq!(status, Some(2), "{text}: {errors}");
        for part in expected {
            assert!(errors.contains(part), "{text}: `{part}`: {errors}");
        }
    };
    check("[]", &["expected an object, found a list", "docs/catalog-file.md"]);
    check("{\"zones\": []}", &["catalog-form.json:1: zones: expected an object, found a list"]);
    check(
        "{\n\"onDemandPrices\": {\n\"m5.large\": null,\n\"m5.larg\": 1}}",
        &[
            "catalog-form.json:3: onDemandPrices.m5.large: expected a price, found null",
            "catalog-form.json:4: onDemandPrices.m5.larg: unknown instance type",
        ],
    );
    check(
        "{\"instanceTypes\": [\n{\"InstanceType\": \"m5.large\"},\n3]}",
        &[
            "catalog-form.json:2: instanceTypes.m5.large: instance type `m5.large` has no `ProcessorInfo`",
            "catalog-form.json:1: instanceTypes.[1]: expected an instance type, found the number `3`",
        ],
    );
}

#[test]
fn a_busy_port() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let (status, errors) = tenon(&["local", "--port", &port]);
    assert_eq!(status, Some(2), "{errors}");
    for part in [format!("port {port} of 127.0.0.1").as_str(), "--port"] {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn a_malformed_message_among_good_ones_dies_alone() {
    let world = include_str!("../../tests/scenarios/malformed-message.yaml");
    let transcript = play_to_transcript(world).unwrap().0;
    let dead: Vec<&str> = transcript.lines().filter(|line| line.contains("dead letter of")).collect();
    assert_eq!(dead, ["   dead letter of interruption: {\"source\": \"aws.ec2\", "], "{transcript}");
    // The interruption in the same batch was handled at once, and its pod has a node again.
    let drains =
        |line: &str| line.contains("+00:00 decision claim/") && line.contains(": draining NodeClaim `");
    assert!(transcript.lines().any(drains), "{transcript}");
    assert!(transcript.contains("pods: 1 running, 0 pending"), "{transcript}");
    assert!(transcript.ends_with("settled\n"), "{transcript}");
}
