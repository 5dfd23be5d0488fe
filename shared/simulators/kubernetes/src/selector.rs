//! Label selectors and node selectors over JSON, by Kubernetes' rules.
//!
//! They don't share code with the domain's requirements, so that they can judge the planner.

use serde_json::Value;

use tenon_snapshot::object::{list, text, texts};

/// Whether labels match a `LabelSelector`: an absent one matches nothing, an empty one everything.
pub(super) fn matches_labels(selector: Option<&Value>, labels: &Value) -> bool {
    let Some(selector) = selector else { return false };
    texts(selector, "/matchLabels").all(|(key, value)| labels.get(key).and_then(Value::as_str) == Some(value))
        && list(selector, "/matchExpressions").iter().all(|expression| holds(expression, labels))
}

/// Whether a Node matches a `NodeSelector`'s `nodeSelectorTerms`, which are ORed; a term without expressions matches
/// nothing.
pub(super) fn matches_node(terms: &[Value], labels: &Value, name: &str) -> bool {
    terms.iter().any(|term| {
        let expressions = list(term, "/matchExpressions");
        let fields = list(term, "/matchFields");
        let named = |field: &Value| {
            let names = || list(field, "/values").iter().any(|value| value.as_str() == Some(name));
            text(field, "/key") == Some("metadata.name")
                && match text(field, "/operator") {
                    Some("In") => names(),
                    Some("NotIn") => !names(),
                    _ => false,
                }
        };
        (!expressions.is_empty() || !fields.is_empty())
            && expressions.iter().all(|expression| holds(expression, labels))
            && fields.iter().all(named)
    })
}

fn holds(expression: &Value, labels: &Value) -> bool {
    let Some(key) = text(expression, "/key") else { return false };
    let found = labels.get(key).and_then(Value::as_str);
    let values = || list(expression, "/values").iter().filter_map(Value::as_str);
    let number = |value: Option<&str>| value.and_then(|value| value.parse::<i64>().ok());
    let bound = || number(values().next());
    match text(expression, "/operator") {
        Some("In") => found.is_some_and(|found| values().any(|value| value == found)),
        Some("NotIn") => found.is_none_or(|found| values().all(|value| value != found)),
        Some("Exists") => found.is_some(),
        Some("DoesNotExist") => found.is_none(),
        Some("Gt") => matches!((number(found), bound()), (Some(found), Some(bound)) if found > bound),
        Some("Lt") => matches!((number(found), bound()), (Some(found), Some(bound)) if found < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_follow_kubernetes() {
        let labels = json!({"app": "web", "n": "5"});
        let check = |selector: Value, expected: bool| {
            assert_eq!(matches_labels(Some(&selector), &labels), expected, "{selector}");
        };
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "db"}}), false);
        check(json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}), true);
        check(json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["db"]}]}), true);
        check(json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), false);
        check(json!({"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["4"]}]}), true);
        check(json!({"matchExpressions": [{"key": "n", "operator": "Lt", "values": ["4"]}]}), false);
        assert!(!matches_labels(None, &labels));
    }

    #[test]
    fn a_node_selector_term_without_expressions_matches_nothing() {
        assert!(!matches_node(&[json!({})], &json!({}), "a"));
        let named = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]});
        assert!(matches_node(&[json!({}), named.clone()], &json!({}), "a"));
        assert!(!matches_node(&[named], &json!({}), "b"));
    }
}
