//! The filters on other pods: PodTopologySpread (`DoNotSchedule`) and required InterPodAffinity.
//!
//! Counts over other nodes are made once for a pod, not once for each node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tenon_domain::taint::tolerates_forbidding;

use super::super::selector::matches_labels;
use super::filter::{Infeasible, admits};
use super::info::NodeInfo;
use super::shape::SchedulingNeeds;
use tenon_snapshot::object::{self, Object, list, text};

/// A topology key and one of its values.
type Domain = (String, String);

/// The effect of existing pods on one pod.
pub(super) struct Neighbours {
    spread: Vec<Spread>,
    /// One set of domains for each required affinity term; `None` if the pod may be the first of its kind.
    affinity: Vec<(String, Option<BTreeSet<String>>)>,
    /// Domains that the pod keeps away from.
    avoided: BTreeSet<Domain>,
    /// Domains whose pods exclude it.
    forbidden: BTreeSet<Domain>,
}

/// A spread constraint, counted.
struct Spread {
    key: String,
    max_skew: i64,
    own: i64,
    least: i64,
    counts: BTreeMap<String, i64>,
}

impl Neighbours {
    pub(super) fn new<'a>(
        shape: &SchedulingNeeds,
        nodes: impl Iterator<Item = &'a NodeInfo> + Clone,
        namespaces: impl Iterator<Item = &'a Object> + Clone,
    ) -> Self {
        let spread =
            shape.spread.iter().map(|constraint| Spread::count(shape, constraint, nodes.clone())).collect();
        let affinity = shape.affinity.iter().map(|term| {
            let selected = Selected::new(term, &shape.namespace, &shape.labels, namespaces.clone());
            let key = text(term, "/topologyKey").unwrap_or_default().to_owned();
            let found: BTreeSet<String> = domains(&selected, &key, nodes.clone()).collect();
            let first = found.is_empty() && selected.matches(&shape.namespace, &shape.labels);
            (key, (!first).then_some(found))
        });
        let affinity = affinity.collect();
        let avoided = shape.anti_affinity.iter().flat_map(|term| {
            let selected = Selected::new(term, &shape.namespace, &shape.labels, namespaces.clone());
            let key = text(term, "/topologyKey").unwrap_or_default().to_owned();
            domains(&selected, &key, nodes.clone()).map(|value| (key.clone(), value)).collect::<Vec<_>>()
        });
        let avoided = avoided.collect();
        let mut forbidden = BTreeSet::new();
        for node in nodes {
            for (_, other) in &node.pods {
                for term in &other.anti_affinity {
                    let key = text(term, "/topologyKey").unwrap_or_default();
                    let Some(value) = node.label(key) else { continue };
                    let selected = Selected::new(term, &other.namespace, &other.labels, namespaces.clone());
                    if selected.matches(&shape.namespace, &shape.labels) {
                        forbidden.insert((key.to_owned(), value.to_owned()));
                    }
                }
            }
        }
        Self { spread, affinity, avoided, forbidden }
    }

    pub(super) fn check(&self, node: &NodeInfo) -> Result<(), Infeasible> {
        for spread in &self.spread {
            let Some(value) = node.label(&spread.key) else { return Err(Infeasible::SpreadLabelMissing) };
            let count = spread.counts.get(value).copied().unwrap_or(0);
            if count + spread.own - spread.least > spread.max_skew {
                return Err(Infeasible::Spread);
            }
        }
        for (key, domains) in &self.affinity {
            let near = match (node.label(key), domains) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(value), Some(domains)) => domains.contains(value),
            };
            if !near {
                return Err(Infeasible::PodAffinity);
            }
        }
        let inside = |(key, value): &Domain| node.label(key) == Some(value);
        if self.avoided.iter().any(inside) {
            return Err(Infeasible::PodAntiAffinity);
        }
        if self.forbidden.iter().any(inside) {
            return Err(Infeasible::ExistingAntiAffinity);
        }
        Ok(())
    }
}

impl Spread {
    fn count<'a>(
        shape: &SchedulingNeeds,
        constraint: &Value,
        nodes: impl Iterator<Item = &'a NodeInfo>,
    ) -> Self {
        let key = text(constraint, "/topologyKey").unwrap_or_default().to_owned();
        let selector = with_label_keys(
            constraint.get("labelSelector"),
            list(constraint, "/matchLabelKeys"),
            &shape.labels,
        );
        let honors_affinity = text(constraint, "/nodeAffinityPolicy") != Some("Ignore");
        let honors_taints = text(constraint, "/nodeTaintsPolicy") == Some("Honor");
        let mut counts: BTreeMap<String, i64> = BTreeMap::new();
        for node in nodes {
            let Some(value) = node.label(&key) else { continue };
            let counted = (!honors_affinity || admits(shape, node))
                && (!honors_taints || tolerates_forbidding(&node.taints, &shape.tolerations).is_ok());
            if !counted {
                continue;
            }
            let matching = node.pods.iter().filter(|(pod, other)| {
                other.namespace == shape.namespace
                    && object::deleted_at(pod).is_none()
                    && matches_labels(selector.as_ref(), &other.labels)
            });
            let matching = i64::try_from(matching.count()).unwrap_or(i64::MAX);
            *counts.entry(value.to_owned()).or_default() += matching;
        }
        let number = |field: &str| constraint.get(field).and_then(Value::as_i64);
        let domains = i64::try_from(counts.len()).unwrap_or(i64::MAX);
        let least = if domains < number("minDomains").unwrap_or(1) {
            0
        } else {
            counts.values().copied().min().unwrap_or(0)
        };
        let own = i64::from(matches_labels(selector.as_ref(), &shape.labels));
        Self { key, max_skew: number("maxSkew").unwrap_or(1), own, least, counts }
    }
}

/// Which pods an affinity term selects.
struct Selected {
    selector: Option<Value>,
    namespaces: BTreeSet<String>,
}

impl Selected {
    fn new<'a>(term: &Value, own: &str, labels: &Value, all: impl Iterator<Item = &'a Object>) -> Self {
        let mut namespaces: BTreeSet<String> =
            list(term, "/namespaces").iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if let Some(selector) = term.get("namespaceSelector") {
            let empty = json!({});
            let matching = all.filter(|namespace| {
                matches_labels(Some(selector), namespace.pointer("/metadata/labels").unwrap_or(&empty))
            });
            namespaces.extend(matching.map(|namespace| object::name(namespace).to_owned()));
        } else if namespaces.is_empty() {
            namespaces.insert(own.to_owned());
        }
        let selector = with_label_keys(term.get("labelSelector"), list(term, "/matchLabelKeys"), labels);
        Self { selector, namespaces }
    }

    fn matches(&self, namespace: &str, labels: &Value) -> bool {
        self.namespaces.contains(namespace) && matches_labels(self.selector.as_ref(), labels)
    }
}

/// The domains in which a selected pod is.
fn domains<'a>(
    selected: &Selected,
    key: &str,
    nodes: impl Iterator<Item = &'a NodeInfo>,
) -> impl Iterator<Item = String> {
    nodes.filter_map(move |node| {
        let value = node.label(key)?;
        node.pods
            .iter()
            .any(|(_, other)| selected.matches(&other.namespace, &other.labels))
            .then(|| value.to_owned())
    })
}

/// The selector with `matchLabelKeys`: it also requires the pod's own values of these labels.
fn with_label_keys(selector: Option<&Value>, keys: &[Value], labels: &Value) -> Option<Value> {
    let mut selector = selector?.clone();
    for key in keys.iter().filter_map(Value::as_str) {
        if let (Some(value), Some(fields)) = (labels.get(key), selector.as_object_mut()) {
            let own = fields.entry("matchLabels").or_insert_with(|| json!({}));
            if let Some(own) = own.as_object_mut() {
                own.insert(key.to_owned(), value.clone());
            }
        }
    }
    Some(selector)
}
