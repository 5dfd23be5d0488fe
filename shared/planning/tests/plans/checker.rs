//! Judges a plan by Kubernetes' rules about a pod's neighbours, once every pod has its place.
//!
//! It shares no code with the planner: it looks at the finished assignment only, pod by pod and domain by domain. A
//! claim that may come to several domains of a label has none of them for sure, and that is a fault where a rule asks.

use std::collections::{BTreeMap, BTreeSet};

use crate::order::stuck;
use tenon_domain::api::pod::{
    LabelSelector, NodeInclusionPolicy, PodAffinityTerm, PodShape, TopologySpreadConstraint,
    WhenUnsatisfiable,
};
use tenon_domain::labels;
use tenon_domain::requirement::{Operator, Requirement};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_planning::provision::{ProvisionInput, ProvisionPlan};

/// A node of the finished world.
pub(crate) struct Place<'a> {
    pub(crate) name: String,
    /// By label, the values that it may have.
    labels: BTreeMap<String, BTreeSet<String>>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) pods: Vec<&'a PodShape>,
    /// How many of them the plan has placed: the first.
    pub(crate) planned: usize,
}

impl Place<'_> {
    pub(crate) fn values(&self, key: &str) -> BTreeSet<String> {
        if key == labels::HOSTNAME {
            return BTreeSet::from([self.name.clone()]);
        }
        self.labels.get(key).cloned().unwrap_or_default()
    }
}

fn matches(selector: Option<&LabelSelector>, of: &BTreeMap<String, String>) -> bool {
    let Some(selector) = selector else { return false };
    selector.requirements.iter().all(|one| {
        let value = of.get(one.key());
        match one.operator() {
            Operator::In => value.is_some_and(|value| one.values().contains(value)),
            Operator::NotIn => value.is_none_or(|value| !one.values().contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            // No operators of label selectors.
            Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => false,
        }
    })
}

pub(crate) fn counts(
    input: &ProvisionInput,
    term: &PodAffinityTerm,
    owner: &PodShape,
    other: &PodShape,
) -> bool {
    let own = term.namespaces.is_empty() && term.namespace_selector.is_none();
    let named = term.namespaces.contains(&other.namespace);
    let nothing = BTreeMap::new();
    let of = input.namespaces.get(&other.namespace).unwrap_or(&nothing);
    let selected = term.namespace_selector.is_some() && matches(term.namespace_selector.as_ref(), of);
    let same = term
        .match_label_keys
        .iter()
        .all(|key| owner.labels.get(key).is_none_or(|value| other.labels.get(key) == Some(value)));
    let mismatch = term
        .mismatch_label_keys
        .iter()
        .all(|key| owner.labels.get(key).is_none_or(|value| other.labels.get(key) != Some(value)));
    ((own && owner.namespace == other.namespace) || named || selected)
        && matches(term.selector.as_ref(), &other.labels)
        && same
        && mismatch
}

/// Whether a place counts for a spread: with `nodeAffinityPolicy` Honor, one that the pod's node selector and required
/// node affinity match, and with `nodeTaintsPolicy` Honor, one whose taints it tolerates. It has the labels of all the
/// pod's required spreads.
fn eligible(pod: &PodShape, rule: &TopologySpreadConstraint, place: &Place<'_>) -> bool {
    !counted_domains(pod, rule, place).is_empty()
}

/// The domains of a spread that a place may be in and counts for.
pub(crate) fn counted_domains(
    pod: &PodShape,
    rule: &TopologySpreadConstraint,
    place: &Place<'_>,
) -> BTreeSet<String> {
    let keeps_out = |taint: &Taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !pod.tolerations.iter().any(|one| one.tolerates(taint))
    };
    let labelled = required_spreads(pod).all(|one| !place.values(&one.topology_key).is_empty());
    let tainted = place.taints.iter().any(keeps_out);
    let mut domains = place.values(&rule.topology_key);
    if !labelled || (rule.node_taints_policy == NodeInclusionPolicy::Honor && tainted) {
        domains.clear();
    }
    if rule.node_affinity_policy == NodeInclusionPolicy::Honor {
        domains.retain(|domain| admits(pod, place, (&rule.topology_key, domain)));
    }
    domains
}

/// Whether a pod's node selector and required node affinity match a place that is in a domain.
fn admits(pod: &PodShape, place: &Place<'_>, (key, domain): (&str, &str)) -> bool {
    let values = |label: &str| match label == key {
        true => BTreeSet::from([domain.to_owned()]),
        false => place.values(label),
    };
    let meets = |one: &Requirement| {
        let values = values(one.key());
        if values.is_empty() { one.accepts_absence() } else { values.iter().any(|value| one.has(value)) }
    };
    let terms = &pod.required_node_affinity;
    pod.node_selector.iter().all(|(label, value)| values(label).contains(value))
        && (terms.is_empty() || terms.iter().any(|term| term.match_expressions.iter().all(meets)))
}

fn places<'a>(input: &'a ProvisionInput, plan: &ProvisionPlan) -> Vec<Place<'a>> {
    let shapes: BTreeMap<&str, &PodShape> =
        input.pods.iter().map(|pod| (pod.uid.as_str(), &*pod.shape)).collect();
    let mut all: Vec<Place<'a>> = Vec::new();
    for node in &input.nodes {
        let placed = plan.placements.iter().filter(|one| one.node == node.name);
        let placed: Vec<&PodShape> = placed.map(|one| shapes[one.pod.uid.as_str()]).collect();
        let running = node.occupancy.shapes().iter().map(|shape| &**shape);
        all.push(Place {
            name: node.name.clone(),
            labels: node.labels.iter().map(|(k, v)| (k.clone(), BTreeSet::from([v.clone()]))).collect(),
            taints: node.taints.clone(),
            planned: placed.len(),
            pods: placed.into_iter().chain(running).collect(),
        });
    }
    for claim in &plan.claims {
        let pods: Vec<&PodShape> = claim.pods.iter().map(|pod| shapes[pod.uid.as_str()]).collect();
        let mut known: BTreeMap<String, BTreeSet<String>> = claim
            .requirements
            .iter()
            .filter(|one| !one.is_complement())
            .map(|one| (one.key().to_owned(), one.values().clone()))
            .collect();
        known.insert(labels::ZONE.to_owned(), claim.zones.iter().map(ToString::to_string).collect());
        let capacity = claim.capacity_types.iter().map(|one| one.as_str().to_owned());
        known.insert(labels::CAPACITY_TYPE.to_owned(), capacity.collect());
        all.push(Place {
            name: claim.name.to_string(),
            labels: known,
            taints: claim.taints.clone(),
            planned: pods.len(),
            pods,
        });
    }
    all
}

/// What is wrong with the plan.
pub(crate) fn faults(input: &ProvisionInput, plan: &ProvisionPlan) -> Vec<String> {
    let mut faults = lasting_faults(input, plan);
    faults.extend(stuck(input, &places(input, plan)));
    faults
}

/// What is wrong with the plan, whatever the order in which its pods come: also for large worlds.
pub(crate) fn lasting_faults(input: &ProvisionInput, plan: &ProvisionPlan) -> Vec<String> {
    let places = places(input, plan);
    let mut faults = Vec::new();
    for place in &places {
        for (index, pod) in place.pods.iter().enumerate() {
            let planned = index < place.planned;
            for term in &pod.required_pod_anti_affinity {
                let near = |other: &&Place<'_>| {
                    !other.values(&term.topology_key).is_disjoint(&place.values(&term.topology_key))
                };
                for other in places.iter().filter(near) {
                    for (position, neighbour) in other.pods.iter().enumerate() {
                        let itself = other.name == place.name && position == index;
                        let newcomer = planned || position < other.planned;
                        if !itself && newcomer && counts(input, term, pod, neighbour) {
                            faults.push(format!(
                                "{}: a pod beside one that it is apart from by {}",
                                place.name, term.topology_key
                            ));
                        }
                    }
                }
            }
            if !planned {
                continue;
            }
            for term in &pod.required_pod_affinity {
                let here = place.values(&term.topology_key);
                let matching = |other: &Place<'_>| {
                    other.pods.iter().filter(|other| counts(input, term, pod, other)).count()
                };
                let own = usize::from(counts(input, term, pod, pod));
                // Its like may come first where none runs: who comes later counts for nobody before.
                let runs = |other: &Place<'_>| {
                    let running = other.pods.iter().skip(other.planned);
                    running.filter(|other| counts(input, term, pod, other)).count()
                };
                let running: usize = places.iter().map(runs).sum();
                let near: usize = places
                    .iter()
                    .filter(|other| other.values(&term.topology_key) == here)
                    .map(matching)
                    .sum();
                if here.len() != 1 {
                    faults
                        .push(format!("{}: {} isn't certain for an affinity", place.name, term.topology_key));
                } else if near == 0 || (near <= own && running > 0) {
                    faults.push(format!(
                        "{}: a pod without the one that it needs by {}",
                        place.name, term.topology_key
                    ));
                }
            }
            for rule in required_spreads(pod) {
                let unsure = |other: &&Place<'_>| other.values(&rule.topology_key).len() > 1;
                let counted = |other: &Place<'_>| other.pods.iter().any(|other| is_counted(rule, pod, other));
                let mut doubtful = places.iter().filter(unsure).filter(|other| eligible(pod, rule, other));
                if place.values(&rule.topology_key).len() != 1 || doubtful.any(counted) {
                    faults.push(format!("{}: {} isn't certain for a spread", place.name, rule.topology_key));
                }
            }
        }
    }
    faults
}

pub(crate) fn required_spreads(pod: &PodShape) -> impl Iterator<Item = &TopologySpreadConstraint> {
    pod.topology_spread.iter().filter(|one| one.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule)
}

pub(crate) fn is_counted(rule: &TopologySpreadConstraint, owner: &PodShape, other: &PodShape) -> bool {
    other.namespace == owner.namespace
        && matches(rule.selector.as_ref(), &other.labels)
        && rule
            .match_label_keys
            .iter()
            .all(|key| owner.labels.get(key).is_none_or(|value| other.labels.get(key) == Some(value)))
}
