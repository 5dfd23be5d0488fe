//! Terms about other pods: which pods an affinity term or a spread constraint selects.
//!
//! Decides matches, each once: equal pods share a shape, and shapes never change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::selector::matches_labels;
use super::shape::SchedulingNeeds;
use tenon_snapshot::object::{self, list, text};

/// A term about other pods.
#[derive(Debug)]
pub(super) struct PodTerm {
    pub(super) key: String,
    /// The pods' labels; absent, it matches nothing.
    selector: Option<Value>,
    namespaces: BTreeSet<String>,
    namespace_selector: Option<Value>,
}

/// A spread constraint.
#[derive(Debug)]
pub(super) struct SpreadRule {
    pub(super) key: String,
    /// The index of its term, which selects the pods.
    pub(super) term: usize,
    pub(super) max_skew: i64,
    pub(super) min_domains: i64,
    pub(super) node_affinity: Inclusion,
    pub(super) node_taints: Inclusion,
    /// With an empty selector kube-scheduler counts no pod that runs, though the pod matches itself.
    pub(super) counts_nobody: bool,
}

/// Whether nodes that a pod can't use count for a spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inclusion {
    Honor,
    Ignore,
}

impl PodTerm {
    pub(super) fn of_affinity(pod: &Value, term: &Value) -> Self {
        let named = list(term, "/namespaces").iter().filter_map(Value::as_str).map(str::to_owned);
        let mut namespaces: BTreeSet<String> = named.collect();
        let namespace_selector = term.get("namespaceSelector").filter(|one| !one.is_null()).cloned();
        if namespaces.is_empty() && namespace_selector.is_none() {
            namespaces.insert(object::namespace(pod).to_owned());
        }
        Self {
            key: text(term, "/topologyKey").unwrap_or_default().to_owned(),
            selector: with_label_keys(pod, term),
            namespaces,
            namespace_selector,
        }
    }

    pub(super) fn of_spread(pod: &Value, constraint: &Value) -> Self {
        Self { namespaces: own(pod), namespace_selector: None, ..Self::of_affinity(pod, constraint) }
    }

    /// The pods of the pod's workload.
    pub(super) fn of_workload(pod: &Value, key: &str, selector: &Value) -> Self {
        Self {
            key: key.to_owned(),
            selector: Some(selector.clone()),
            namespaces: own(pod),
            namespace_selector: None,
        }
    }

    fn matches(&self, other: &SchedulingNeeds, namespaces: &NamespaceLabels) -> bool {
        let selected = |selector: &Value| {
            let empty = json!({});
            matches_labels(Some(selector), namespaces.get(&other.namespace).unwrap_or(&empty))
        };
        (self.namespaces.contains(&other.namespace) || self.namespace_selector.as_ref().is_some_and(selected))
            && matches_labels(self.selector.as_ref(), &other.labels)
    }
}

impl SpreadRule {
    pub(super) fn of(constraint: &Value, term: usize) -> Self {
        let number = |field: &str| constraint.get(field).and_then(Value::as_i64).unwrap_or(1);
        let inclusion = |field: &str, default: Inclusion| match text(constraint, field) {
            Some("Honor") => Inclusion::Honor,
            Some("Ignore") => Inclusion::Ignore,
            Some(_) | None => default,
        };
        let selector = constraint.get("labelSelector");
        let is_empty = |selector: &Value| {
            object::texts(selector, "/matchLabels").next().is_none()
                && list(selector, "/matchExpressions").is_empty()
        };
        Self {
            key: text(constraint, "/topologyKey").unwrap_or_default().to_owned(),
            term,
            max_skew: number("maxSkew"),
            min_domains: number("minDomains"),
            node_affinity: inclusion("/nodeAffinityPolicy", Inclusion::Honor),
            node_taints: inclusion("/nodeTaintsPolicy", Inclusion::Ignore),
            counts_nobody: selector.is_some_and(is_empty) && list(constraint, "/matchLabelKeys").is_empty(),
        }
    }

    /// One of the cluster's default constraints.
    pub(super) fn default_of(key: &str, max_skew: i64, term: usize) -> Self {
        Self {
            key: key.to_owned(),
            term,
            max_skew,
            min_domains: 1,
            node_affinity: Inclusion::Honor,
            node_taints: Inclusion::Ignore,
            counts_nobody: false,
        }
    }
}

fn own(pod: &Value) -> BTreeSet<String> {
    BTreeSet::from([object::namespace(pod).to_owned()])
}

/// The selector with `matchLabelKeys` and `mismatchLabelKeys`: it also requires the pod's own values of these labels,
/// or others.
fn with_label_keys(pod: &Value, term: &Value) -> Option<Value> {
    let mut selector = term.get("labelSelector").filter(|one| !one.is_null())?.clone();
    let of = |field: &str, operator: &'static str| -> Vec<Value> {
        let keys = list(term, field).iter().filter_map(Value::as_str);
        let labels = object::at(pod, "/metadata/labels");
        let value = |key: &str| labels.and_then(|labels| labels.get(key)).cloned();
        keys.filter_map(|key| Some(json!({"key": key, "operator": operator, "values": [value(key)?]})))
            .collect()
    };
    let more: Vec<Value> =
        of("/matchLabelKeys", "In").into_iter().chain(of("/mismatchLabelKeys", "NotIn")).collect();
    if let (false, Some(fields)) = (more.is_empty(), selector.as_object_mut())
        && let Some(all) = fields.entry("matchExpressions").or_insert_with(|| json!([])).as_array_mut()
    {
        all.extend(more);
    }
    Some(selector)
}

/// Labels of namespaces, by name.
pub(super) type NamespaceLabels = BTreeMap<String, Value>;

/// Which shapes the terms of shapes match.
#[derive(Debug, Default)]
pub(super) struct Matches {
    namespaces: NamespaceLabels,
    /// By the shape with the term, the term and the other shape.
    known: RefCell<BTreeMap<(usize, usize, usize), bool>>,
}

impl Matches {
    /// Reads the namespaces again.
    pub(super) fn read<'a>(&mut self, namespaces: impl Iterator<Item = &'a object::Object>) {
        let labels = |one: &Value| one.pointer("/metadata/labels").cloned().unwrap_or(Value::Null);
        self.namespaces = namespaces.map(|one| (object::name(one).to_owned(), labels(one))).collect();
        self.known.borrow_mut().clear();
    }

    /// Whether a term of a shape selects pods of another.
    pub(super) fn of(&self, shape: &SchedulingNeeds, term: usize, other: &SchedulingNeeds) -> bool {
        let found = || shape.terms.get(term).is_some_and(|one| one.matches(other, &self.namespaces));
        *self.known.borrow_mut().entry((shape.id, term, other.id)).or_insert_with(found)
    }
}
