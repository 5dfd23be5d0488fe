//! The agent's roles as the chart installs them: what they grant, a role without one of its grants, and the wait until
//! the API server's authorizer knows.

use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use tenon_cluster_tests::Cluster;
use tenon_domain::manifest;
use tenon_snapshot::object::text;

use super::calls::SOON;

/// The agent's rights, as the chart installs them.
const RBAC: &str = include_str!("../../../../infra/chart/rbac.yaml");

pub(crate) fn roles() -> Vec<Value> {
    manifest::objects("rbac.yaml", RBAC)
}

/// Group, resource, verb and name of all that a role grants.
pub(crate) fn grants(role: &Value) -> Vec<(String, String, String, String)> {
    let texts = |rule: &Value, field: &str| -> Vec<String> {
        let list = rule.get(field).and_then(Value::as_array).cloned().unwrap_or_default();
        list.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut found = Vec::new();
    for rule in role.get("rules").and_then(Value::as_array).into_iter().flatten() {
        let name = texts(rule, "resourceNames").into_iter().next().unwrap_or_default();
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    found.push((group.clone(), resource.clone(), verb, name.clone()));
                }
            }
        }
    }
    found
}

/// The role without one verb on one resource: the rule is split by resources.
pub(crate) fn without(role: &Value, (group, resource, verb, name): (&str, &str, &str, &str)) -> Value {
    let mut rules = Vec::new();
    for grant in grants(role) {
        if (grant.0.as_str(), grant.1.as_str(), grant.2.as_str(), grant.3.as_str())
            == (group, resource, verb, name)
        {
            continue;
        }
        let names = if grant.3.is_empty() { Value::Null } else { json!([grant.3]) };
        rules.push(json!({"apiGroups": [grant.0], "resources": [grant.1], "verbs": [grant.2], "resourceNames": names}));
    }
    let mut role = role.clone();
    role.as_object_mut().expect("a role is a map").insert("rules".to_owned(), Value::Array(rules));
    role
}

/// Waits until the API server's authorizer knows.
pub(crate) async fn wait_for_right(
    agent: &Cluster,
    role: &Value,
    (group, resource, verb, name): (&str, &str, &str, &str),
    expected: bool,
) {
    let namespace = text(role, "/metadata/namespace").map(str::to_owned);
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let attributes = ResourceAttributes {
        group: some(group),
        resource: Some(resource.to_owned()),
        subresource: some(subresource),
        verb: Some(verb.to_owned()),
        name: some(name),
        namespace,
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(agent.client());
    let start = Instant::now();
    loop {
        let answer = api
            .create(&PostParams::default(), &review)
            .await
            .expect("everybody may ask for their own rights");
        if answer.status.is_some_and(|status| status.allowed == expected) {
            return;
        }
        assert!(start.elapsed() < SOON, "`{verb}` on `{resource}` should be {expected} by now");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
