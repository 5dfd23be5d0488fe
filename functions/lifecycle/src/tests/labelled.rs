//! Labels that a Node gets at its registration, by its class.

use super::*;

/// The operating system that the Node of a launched claim is told, and its build.
fn check(family: &str, expected: (Option<&str>, Option<&str>)) {
    let class = serde_json::json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"role": "node", "amiFamily": family, "amiSelectorTerms": [{"id": "ami-1"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
    let class = tenon_domain::manifest::node_class_from_value(&class).unwrap();
    let seen = input(minutes(2), vec![claim(0, launched(0, minutes(1)))], vec![not_ready(0)]);
    let mut seen = with_snapshot(seen, |snapshot| snapshot.node_classes.push(class));
    for record in seen.types.values_mut() {
        record.labels.insert(labels::OS.to_owned(), "linux".to_owned());
    }
    // A Node that hasn't registered yet.
    let seen = with_snapshot(seen, |snapshot| snapshot.nodes[0].meta.labels.clear());
    let (plan, _) = planned(&seen);
    let [(_, action)] = plan.actions.as_slice() else { panic!("{:?}", plan.actions) };
    let label = |key| action.labels.get(key).map(String::as_str);
    assert_eq!((label(labels::OS), label(labels::WINDOWS_BUILD)), expected, "{family}");
}

#[test]
fn a_node_has_the_operating_system_of_its_classs_images() {
    check("AL2023", (Some("linux"), None));
    check("Windows2022", (Some("windows"), Some("10.0.20348")));
}

/// The kubelet of a Custom image isn't told them.
#[test]
fn a_node_has_the_labels_that_its_claims_plan_chose() {
    let labels = [("example.com/disk", "ssd"), ("team", "data")];
    let labels = BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let chosen = Claim { labels: labels.clone(), ..claim(0, launched(0, minutes(1))) };
    let (plan, _) = planned(&input(minutes(2), vec![chosen], vec![not_ready(1)]));
    let [(_, action)] = plan.actions.as_slice() else { panic!("{:?}", plan.actions) };
    for (key, value) in &labels {
        assert_eq!(action.labels.get(key), Some(value), "{key}");
    }
}
