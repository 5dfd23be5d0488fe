//! `types` and `simulate` as a user runs them: their output and status.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use std::process::Stdio;

/// A call with this standard input: its output, errors and status.
fn tenon(arguments: &[&str], stdin: &str) -> String {
    let (status, out, errors) = common::tenon(arguments, stdin);
    format!("$ tenon {}\n{out}--- stderr\n{errors}--- status {:?}\n", arguments.join(" "), status.unwrap())
}

macro_rules! golden {
    ($($name:ident: [$($argument:expr),*];)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(tenon(&[$($argument),*], ""));
        }
    )*};
}

golden! {
    types_of_one_type: ["types", "m5.large", "-o", "json"];
    types_as_table: ["types", "m5.large", "c7g.xlarge", "g5.xlarge"];
    types_as_yaml_of_another_region: ["types", "t3.micro", "--region", "eu-west-1", "-o", "yaml"];
    types_that_are_unknown: ["types", "m5.larg", "c77.nope"];
    types_that_are_unknown_as_json: ["types", "m5.larg", "-o", "json"];
    types_of_an_unknown_region: ["types", "--region", "eu-north-1", "m5.large"];
    simulate_as_json: ["simulate", "-f", "pool.yaml", "-f", "pods.yaml", "-o", "json"];
    simulate_as_table: ["simulate", "-f", "pool.yaml", "-f", "pods.yaml"];
    simulate_with_a_catalogue: ["simulate", "-f", "pool.yaml", "-f", "pods.yaml", "--catalog", "catalog.json", "-o", "json"];
    simulate_with_a_bad_catalogue: ["simulate", "-f", "pool.yaml", "--catalog", "catalog-bad.json"];
    simulate_without_a_pool: ["simulate", "-f", "pods.yaml"];
    simulate_with_bad_manifests: ["simulate", "-f", "bad.yaml", "-f", "absent.yaml"];
    simulate_with_bad_manifests_as_json: ["simulate", "-f", "bad.yaml", "-o", "json"];
    simulate_of_spot_without_prices: ["simulate", "-f", "spot.yaml"];
    simulate_explained: ["simulate", "-f", "pool.yaml", "pods.yaml", "--explain", "elsewhere"];
    simulate_explained_with_a_typo: ["simulate", "-f", "pool.yaml", "pods.yaml", "--explain", "wep-0"];
    simulate_with_preferences_ignored: ["simulate", "-f", "spot.yaml", "--preference-policy", "Ignore"];
    simulate_of_a_newer_cluster: ["simulate", "-f", "newer.yaml", "pool.yaml"];
    simulate_of_volumes: ["simulate", "-f", "storage.yaml", "pool.yaml"];
    simulate_of_volumes_with_a_default_spread: ["simulate", "-f", "storage.yaml", "pool.yaml", "--default-spread", "topology.kubernetes.io/zone=1:DoNotSchedule"];
    simulate_with_a_bad_default_spread: ["simulate", "-f", "pool.yaml", "--default-spread", "zone=1"];
    simulate_of_allowed_families: ["simulate", "-f", "pool.yaml", "pods.yaml", "--allowed-families", "m5,t3*", "--explain", "batch"];
    simulate_with_a_bad_family: ["simulate", "-f", "pool.yaml", "--allowed-families", "m7g.large"];
    simulate_of_too_many_pods: ["simulate", "-f", "too-many.yaml", "pool.yaml"];
    simulate_compared: ["simulate", "-f", "pool.yaml", "-f", "pods.yaml", "--compare", "pool.yaml"];
    a_wrong_flag: ["simulate", "--nope"];
    a_wrong_flag_as_json: ["simulate", "-f", "pods.yaml", "--nope", "-o", "json"];
}

#[test]
fn the_order_of_files_changes_nothing() {
    let one = tenon(&["simulate", "-f", "pool.yaml", "-f", "pods.yaml", "-o", "json"], "");
    let other = tenon(&["simulate", "-f", "pods.yaml", "-f", "pool.yaml", "-o", "json"], "");
    let body = |text: &str| text.split_once('\n').map(|(_, body)| body.to_owned()).unwrap();
    assert_eq!(body(&one), body(&other));
}

#[test]
fn standard_input_is_a_file() {
    let pods = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pods.yaml")).unwrap();
    let text = tenon(&["simulate", "-f", "pool.yaml", "-f", "-"], &pods);
    assert!(
        text.contains("jobs/batch") || text.contains("3 new nodes") || text.contains("status 1"),
        "{text}"
    );
}

#[test]
fn every_known_type_is_printed() {
    let text = tenon(&["types", "-o", "json"], "");
    assert_eq!(text.matches("\"node.kubernetes.io/instance-type\"").count(), 1395);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = common::command(&["types", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

/// The class, the NodePool and the Deployment of Karpenter's getting-started page, as its own commands make them.
#[test]
fn the_getting_started_page_is_simulated_unchanged() {
    let page = include_str!("../../tests/manifests/getting-started.yaml");
    let inflate = include_str!("../../tests/manifests/inflate.yaml").replace("replicas: 0", "replicas: 5");
    let page = page.replace("${CLUSTER_NAME}", "demo").replace("${ALIAS_VERSION}", "v20251112");
    insta::assert_snapshot!(tenon(&["simulate", "-f", "-"], &format!("{page}\n---\n{inflate}")));
}

#[test]
fn pods_of_other_schedulers_are_left_to_them() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: batch}\nspec: {schedulerName: volcano, containers: [{name: a}]}";
    let told = tenon(&["simulate", "-f", "-"], pod);
    assert!(told.contains("ignoring the pods of scheduler `volcano`, which places them: 1"), "{told}");
    assert!(told.ends_with("--- status 0\n"), "{told}");
}

#[test]
fn a_plan_for_too_many_kinds_of_pods_says_that_it_has_no_bound() {
    let pod = |n: usize| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}}}\nspec: {{containers: [{{name: a, resources: {{requests: {{cpu: {n}m}}}}}}]}}\n"
        )
    };
    let told = tenon(&["simulate", "-f", "pool.yaml", "-"], &(1..=2001).map(pod).collect::<String>());
    assert!(
        told.contains(" USD/h (no bound: too many kinds of pods, NodePools and instance types)"),
        "{told}"
    );
    assert!(told.ends_with("--- status 0\n"), "{told}");
}
