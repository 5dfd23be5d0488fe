//! Judges a plan by Kubernetes' rules about a pod's neighbours, once every pod has its place.
//!
//! It shares no code with the planner: it looks at the finished assignment only, pod by pod and domain by domain. A
//! claim that may come to several domains of a label has none of them for sure, and that is a fault where a rule asks.

use std::collections::{BTreeMap, BTreeSet};

use crate::drawn::Draw;
use tenon_domain::api::pod::{
    LabelSelector, NodeInclusionPolicy, PodAffinityTerm, PodShape, TopologySpreadConstraint,
    WhenUnsatisfiable,
};
use tenon_domain::labels;
use tenon_domain::requirement::{Operator, Requirement};
use tenon_domain::resources::ResourceName;
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_planning::provision::{ProvisionInput, ProvisionPlan};

/// A node of the finished world.
struct Place<'a> {
    name: String,
    /// By label, the values that it may have.
    labels: BTreeMap<String, BTreeSet<String>>,
    taints: Vec<Taint>,
    pods: Vec<&'a PodShape>,
    /// Which of them the plan has placed.
    planned: usize,
}

impl Place<'_> {
    fn values(&self, key: &str) -> BTreeSet<String> {
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

fn counts(input: &ProvisionInput, term: &PodAffinityTerm, owner: &PodShape, other: &PodShape) -> bool {
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
/// node affinity match, and with `nodeTaintsPolicy` Honor, one whose taints it tolerates.
fn eligible(pod: &PodShape, rule: &TopologySpreadConstraint, place: &Place<'_>) -> bool {
    let selected = || pod.node_selector.iter().all(|(key, value)| place.values(key).contains(value));
    let terms = &pod.required_node_affinity;
    let meets = |one: &Requirement| {
        let values = place.values(one.key());
        if values.is_empty() { one.accepts_absence() } else { values.iter().any(|value| one.has(value)) }
    };
    let admitted = || terms.is_empty() || terms.iter().any(|term| term.match_expressions.iter().all(meets));
    let keeps_out = |taint: &Taint| {
        taint.effect != TaintEffect::PreferNoSchedule
            && !pod.tolerations.iter().any(|one| one.tolerates(taint))
    };
    (rule.node_affinity_policy == NodeInclusionPolicy::Ignore || (selected() && admitted()))
        && (rule.node_taints_policy == NodeInclusionPolicy::Ignore || !place.taints.iter().any(keeps_out))
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
    faults.extend(stuck(&places(input, plan)));
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

/// The pods that no order of arrival brings to their places, because of their spreads: kube-scheduler looks at a
/// spread when it places the pod, and who comes later may break it. Pods with spreads come as soon as they may, the
/// others where fewest pods are.
fn stuck(places: &[Place<'_>]) -> Vec<String> {
    let mut draw = Draw::new(1);
    let mut left = stuck_in_order(places, FreePods::Late, |_| 0);
    // The obvious order isn't the only one.
    for _ in 0..60 {
        if left.is_empty() {
            break;
        }
        let salt = draw.below(u64::MAX);
        let of = |index: usize| Draw::new(salt ^ index as u64).below(u64::MAX);
        let free = if salt.is_multiple_of(2) { FreePods::Early } else { FreePods::Late };
        let other = stuck_in_order(places, free, of);
        if other.len() < left.len() {
            left = other;
        }
    }
    left
}

/// When pods without spreads come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FreePods {
    /// First.
    Early,
    /// Where no pod with a spread may come.
    Late,
}

fn stuck_in_order(places: &[Place<'_>], when: FreePods, order: impl Fn(usize) -> u64) -> Vec<String> {
    let mut placed: Vec<Vec<bool>> = places
        .iter()
        .map(|place| (0..place.pods.len()).map(|index| index >= place.planned).collect())
        .collect();
    let mut waiting: Vec<(usize, usize)> = places
        .iter()
        .enumerate()
        .flat_map(|(place, of)| (0..of.planned).map(move |pod| (place, pod)))
        .collect();
    let free = |(place, pod): &(usize, usize)| required_spreads(places[*place].pods[*pod]).next().is_none();
    while !waiting.is_empty() {
        let may = |one: &(usize, usize)| !free(one) && may_come(places, &placed, *one);
        // A pod that only counts its own zone may come at any time, one with a small skew only early.
        let kind = |(place, pod): &(usize, usize)| {
            let pod = places[*place].pods[*pod];
            let app: usize = pod.labels.get("app").map_or(0, |app| app.bytes().map(usize::from).sum());
            let rule = required_spreads(pod).map(|rule| rule.max_skew as usize).min().unwrap_or(0);
            let cpu = usize::try_from(pod.requests.get(&ResourceName::CPU).nanos() / 100_000_000).unwrap();
            app * 131 + rule * 17 + cpu + usize::from(pod.node_selector.is_empty()) * 1009
        };
        let urgency = |one: &(usize, usize)| {
            let pod = places[one.0].pods[one.1];
            let rule = required_spreads(pod).map(|rule| rule.max_skew).min();
            (order(kind(one)), !pod.node_selector.is_empty(), rule)
        };
        // A pod that only counts its own zone may come at any time, and so comes last.
        let bound = |one: &(usize, usize)| !places[one.0].pods[one.1].node_selector.is_empty();
        let next_of = |bound_ones: bool| {
            let some = waiting.iter().enumerate().filter(|(_, one)| bound(one) == bound_ones && may(one));
            some.min_by_key(|(_, one)| urgency(one)).map(|(index, _)| index)
        };
        let emptiest = || {
            let others = waiting.iter().enumerate().filter(|(_, one)| free(one));
            let load = |one: &(usize, usize)| (zone_load(places, &placed, one.0), order(kind(one)));
            others.min_by_key(|(_, one)| load(one)).map(|(index, _)| index)
        };
        let next = match when {
            FreePods::Late => next_of(false).or_else(emptiest),
            FreePods::Early => emptiest().or_else(|| next_of(false)),
        };
        let Some(next) = next.or_else(|| next_of(true)) else { break };
        let (place, pod) = waiting.swap_remove(next);
        placed[place][pod] = true;
    }
    let name =
        |(place, _): &(usize, usize)| format!("{}: a pod that its spread keeps away", places[*place].name);
    waiting.iter().map(name).collect()
}

fn zone_load(places: &[Place<'_>], placed: &[Vec<bool>], of: usize) -> usize {
    let zone = places[of].values(labels::ZONE);
    let same = places.iter().zip(placed).filter(|(place, _)| place.values(labels::ZONE) == zone);
    same.map(|(_, placed)| placed.iter().filter(|placed| **placed).count()).sum()
}

fn may_come(places: &[Place<'_>], placed: &[Vec<bool>], (place, pod): (usize, usize)) -> bool {
    let owner = places[place].pods[pod];
    required_spreads(owner).all(|rule| {
        let mut by_domain: BTreeMap<String, usize> = BTreeMap::new();
        for (other, placed) in places.iter().zip(placed).filter(|(other, _)| eligible(owner, rule, other)) {
            let there = other.pods.iter().zip(placed).filter(|(_, placed)| **placed);
            let counted = there.filter(|(other, _)| is_counted(rule, owner, other)).count();
            let selected = owner.node_selector.get(&rule.topology_key);
            let honours = rule.node_affinity_policy == NodeInclusionPolicy::Honor;
            let mut domains = other.values(&rule.topology_key);
            domains.retain(|domain| !honours || selected.is_none_or(|selected| selected == domain));
            for domain in domains {
                *by_domain.entry(domain).or_default() += counted;
            }
        }
        let enough = by_domain.len() >= rule.min_domains.unwrap_or(1) as usize;
        let least = if enough { by_domain.values().min().copied().unwrap_or(0) } else { 0 };
        let own = places[place].values(&rule.topology_key);
        let here = own.first().and_then(|domain| by_domain.get(domain)).copied().unwrap_or(0);
        here + usize::from(is_counted(rule, owner, owner)) <= least + rule.max_skew as usize
    })
}

fn required_spreads(pod: &PodShape) -> impl Iterator<Item = &TopologySpreadConstraint> {
    pod.topology_spread.iter().filter(|one| one.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule)
}

fn is_counted(rule: &TopologySpreadConstraint, owner: &PodShape, other: &PodShape) -> bool {
    other.namespace == owner.namespace
        && matches(rule.selector.as_ref(), &other.labels)
        && rule
            .match_label_keys
            .iter()
            .all(|key| owner.labels.get(key).is_none_or(|value| other.labels.get(key) == Some(value)))
}
