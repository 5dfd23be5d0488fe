//! Requirements of pods on a node: groups of equal pods, their node affinity as alternatives, host ports.
//!
//! Decides which pods are equal to the planner, and which are unsupported. Unsupported constraints are refused by name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::pod::{HostPort, NodeSelectorTerm};
use tenon_domain::api::{Pod, PodShape};
use tenon_domain::id::Uid;
use tenon_domain::labels;
use tenon_domain::launch::CountedPod;
use tenon_domain::quantity::Quantity;
use tenon_domain::registry::PreferencePolicy;
use tenon_domain::requirement::{Requirement, Requirements};
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::Toleration;

use super::attachments::{SharedVolume, VolumeNeed};
use super::dense::DenseAmounts;
use super::exclusive;
use super::input::ProvisionInput;
use super::report::{Reason, Unschedulable, UnschedulableCause};
use super::topology::census::{Resident, is_of_nodes};
use super::topology::neighbours::NodeRules;
use super::topology::rules::{Force, PodRule, RuleKind, Rules};
use super::topology::selectors::{SelectorId, Selectors};
use super::volumes::Volumes;
use super::ways::{Ways, WaysTable};
use super::{InputMeasures, Scope};

/// One way to satisfy a pod's node selector and required node affinity, whose terms are ORed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alternative {
    /// The requirements on labels.
    pub(crate) asked: Requirements,
    /// The requirements on fields; only `metadata.name` exists.
    pub(crate) fields: Vec<Requirement>,
}

impl Alternative {
    /// The requirements on a node without a name yet; `None` if only an existing node can satisfy them. A new node is
    /// none of the named ones.
    pub(crate) fn for_new_node(&self) -> Option<Requirements> {
        let mut asked = self.asked.clone();
        let host = asked.remove(labels::HOSTNAME);
        let open = host.iter().chain(&self.fields).all(Requirement::is_complement);
        open.then_some(asked)
    }

    /// Whether an existing node satisfies this.
    pub(crate) fn admits(&self, name: &str, offered: &Requirements) -> bool {
        use tenon_domain::requirement::UndefinedKeys;
        self.fields.iter().all(|field| field.has(name))
            && offered.is_compatible(&self.asked, UndefinedKeys::Absent)
    }
}

/// The alternatives of a shape; empty where its terms match no node.
pub(crate) fn alternatives(shape: &PodShape) -> Vec<Alternative> {
    let selected: Requirements =
        shape.node_selector.iter().map(|(key, value)| Requirement::one_of(key, [value.as_str()])).collect();
    if shape.required_node_affinity.is_empty() {
        return vec![Alternative { asked: selected, fields: Vec::new() }];
    }
    let with_term =
        |term: &NodeSelectorTerm| Alternative { asked: selected.clone(), fields: Vec::new() }.and(term);
    // An empty term matches nothing.
    let says_something =
        |term: &&NodeSelectorTerm| !term.match_expressions.is_empty() || !term.match_fields.is_empty();
    shape.required_node_affinity.iter().filter(says_something).filter_map(with_term).collect()
}

/// Pods that are equal to the planner.
#[derive(Debug, Clone)]
pub(crate) struct PodGroup<'a> {
    /// The pods, oldest first.
    pub(crate) pods: Vec<&'a Pod>,
    /// The requests of one of them.
    pub(crate) requests: &'a ResourceList,
    /// The same, dense.
    pub(crate) need: Arc<DenseAmounts>,
    /// Its volumes that other pods use, too; those of its own are part of its need.
    pub(crate) volumes: Arc<[SharedVolume]>,
    /// The number of its need: equal ones have the same.
    pub(crate) need_id: usize,
    /// Ways to satisfy its affinity, with the preferences that it still has.
    pub(crate) alternatives: Arc<Ways>,
    /// Its tolerations.
    pub(crate) tolerations: &'a [Toleration],
    /// Its host ports; where there are any, a node takes one pod.
    pub(crate) host_ports: &'a BTreeSet<HostPort>,
    /// Its rules about other pods, with the preferences that it still has.
    pub(crate) rules: Arc<[PodRule]>,
    /// Those about the pods of one node.
    pub(crate) node_rules: Arc<NodeRules>,
    /// The selectors that match its pods.
    pub(crate) is: Arc<[SelectorId]>,
    /// The number of preferences that it gave up.
    pub(crate) given_up: usize,
    /// `spec.priority`.
    pub(crate) priority: i32,
    /// Ways to satisfy what it requires.
    pub(crate) required: Arc<Ways>,
    /// The nodes that its spreads count: those of its required node affinity, whatever its volumes allow.
    pub(crate) counted: Arc<Ways>,
    own: Arc<Rules>,
}

impl<'a> PodGroup<'a> {
    /// The rules about domains of a label.
    pub(crate) fn rules_of<'g>(&'g self, key: &'g str) -> impl Iterator<Item = &'g PodRule> {
        self.rules.iter().filter(move |rule| &*rule.key == key)
    }

    /// The labels of its required spreads.
    pub(crate) fn spread_keys(&self) -> impl Iterator<Item = &Arc<str>> {
        let required = self.rules.iter().filter(|rule| rule.force == Force::Required);
        required.filter(|rule| matches!(rule.kind, RuleKind::Spread(_))).map(|rule| &rule.key)
    }

    /// The labels of all its rules.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.own.keys()
    }

    /// Whether it needs other pods on its node.
    pub(crate) fn needs_neighbours(&self) -> bool {
        self.node_rules.keeps_together()
    }

    /// Whether it needs pods of others on its node, which need none themselves: these come first.
    pub(crate) fn follows(&self, others: &PodGroup<'_>) -> bool {
        let needed = |selector: &SelectorId| others.is.contains(selector);
        !others.needs_neighbours() && self.node_rules.with.iter().any(needed)
    }

    /// Its rules about domains of a label, in words.
    pub(crate) fn rules_text(&self, key: &str) -> Vec<String> {
        let text = |rule: &PodRule| match self.own.of_claims.contains(&rule.selector) {
            true => "its volume that other pods use".to_owned(),
            false => rule.kind.to_string(),
        };
        let texts: BTreeSet<String> = self.rules_of(key).map(text).collect();
        match texts.is_empty() {
            true => vec!["the anti-affinity of other pods".to_owned()],
            false => texts.into_iter().collect(),
        }
    }

    /// Whether a selector is of pods that share a claim with it.
    pub(crate) fn shares_claim(&self, selector: SelectorId) -> bool {
        self.own.of_claims.contains(&selector)
    }

    /// Whether a new node alone is no place for it: it needs pods of others there.
    pub(crate) fn needs_others(&self) -> bool {
        let of_nodes = self.rules.iter().filter(|rule| is_of_nodes(&rule.key));
        let mut with = of_nodes.filter(|rule| rule.kind == RuleKind::With && rule.force == Force::Required);
        with.any(|rule| !self.is.contains(&rule.selector))
    }

    /// Whether it has a preference left.
    pub(crate) fn has_wishes(&self) -> bool {
        self.given_up < self.own.soft.len()
    }

    /// Gives up the next preference.
    pub(crate) fn give_up(&mut self, ways: &WaysTable) {
        self.given_up += 1;
        self.prefer(ways);
    }

    /// Works out what counts with the preferences that are left.
    fn prefer(&mut self, ways: &WaysTable) {
        self.rules = self.own.without(self.given_up).into();
        let on_nodes = self.rules.iter().filter(|rule| is_of_nodes(&rule.key));
        self.node_rules = Arc::new(NodeRules::of(on_nodes, self.node_rules.is.clone()));
        self.alternatives = match self.own.preferred_node(self.given_up) {
            None => Arc::clone(&self.required),
            Some(term) => ways.of(self.required.iter().filter_map(|one| one.and(term)).collect()),
        };
    }

    /// Some of its pods, that ask for these nodes.
    pub(crate) fn part(&self, pods: Vec<&'a Pod>, alternatives: Arc<Ways>) -> Self {
        Self {
            pods,
            requests: self.requests,
            need: Arc::clone(&self.need),
            volumes: Arc::clone(&self.volumes),
            need_id: self.need_id,
            alternatives,
            tolerations: self.tolerations,
            host_ports: self.host_ports,
            rules: Arc::clone(&self.rules),
            node_rules: Arc::clone(&self.node_rules),
            is: Arc::clone(&self.is),
            given_up: self.given_up,
            priority: self.priority,
            required: Arc::clone(&self.required),
            counted: Arc::clone(&self.counted),
            own: Arc::clone(&self.own),
        }
    }
}

impl Alternative {
    /// This and a term of a node selector; `None` if they contradict each other about a label that a node may lack.
    fn and(&self, term: &NodeSelectorTerm) -> Option<Self> {
        let mut both = self.clone();
        both.fields.extend(term.match_fields.iter().cloned());
        // Every new node has the well-known labels: there the refusal names what contradicts what.
        let possible = term
            .match_expressions
            .iter()
            .all(|asked| both.ask(asked.clone()) || labels::is_well_known(asked.key()));
        possible.then_some(both)
    }

    /// Asks for something besides. Returns whether a node can still have all of it: what has no value in common isn't the
    /// same as a label that mustn't be there.
    pub(crate) fn ask(&mut self, requirement: Requirement) -> bool {
        let key = requirement.key().to_owned();
        let before = self.asked.get(&key);
        let may_be_absent = requirement.accepts_absence() && before.is_none_or(Requirement::accepts_absence);
        self.asked.add(requirement);
        may_be_absent || self.asked.get(&key).is_some_and(|left| !left.is_empty())
    }
}

/// The properties that equal pods share.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct PodGroupKey<'a> {
    /// Numbers of its requests, its ways with volumes and without, its rules, the selectors that match it and what its
    /// volumes count.
    numbers: (usize, usize, usize, usize, usize, usize),
    tolerations: &'a [Toleration],
    host_ports: &'a BTreeSet<HostPort>,
    priority: i32,
}

/// Equal pods.
struct EqualPods<'a> {
    pods: Vec<&'a Pod>,
    required: Arc<Ways>,
    counted: Arc<Ways>,
    own: Arc<Rules>,
    is: Arc<[SelectorId]>,
    volumes: Arc<VolumeNeed>,
}

/// Values by number, each once.
struct Numbered<T>(BTreeMap<Arc<T>, usize>);

impl<T: Ord> Numbered<T> {
    /// The value that is known already, if it is, and its number.
    fn number(&mut self, value: T) -> (Arc<T>, usize) {
        if let Some((known, number)) = self.0.get_key_value(&value) {
            return (Arc::clone(known), *number);
        }
        let (value, number) = (Arc::new(value), self.0.len());
        self.0.insert(Arc::clone(&value), number);
        (value, number)
    }
}

/// The order in which groups are placed: the highest priority first, then most CPU, then most memory, then the oldest
/// pod.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GroupRank<'a> {
    priority: std::cmp::Reverse<i32>,
    cpu: std::cmp::Reverse<Quantity>,
    memory: std::cmp::Reverse<Quantity>,
    created_at: Option<Timestamp>,
    uid: Option<&'a Uid>,
}

/// The input's pods as groups in the order in which they are placed, and the pods that can't be planned for.
/// `residents` are the pods that run.
pub(crate) fn groups<'a>(
    input: &ProvisionInput,
    scope: &Scope<'a>,
    measures: &InputMeasures<'_>,
    (selectors, residents): (&Selectors, &[Vec<Resident>]),
) -> (Vec<PodGroup<'a>>, Vec<Unschedulable>) {
    let scratch = WaysTable::default();
    let (equal, refused) = equal_pods(input, scope, measures, (&scratch, selectors));
    let of_groups = equal.iter().flat_map(|one| one.own.on_nodes());
    let of_residents = residents.iter().flatten().flat_map(Resident::on_nodes);
    let on_nodes: BTreeSet<SelectorId> = of_groups.chain(of_residents).collect();
    let mut groups: Vec<PodGroup<'a>> = Vec::with_capacity(equal.len());
    for EqualPods { mut pods, required, counted, own, is, volumes } in equal {
        pods.sort_by(|a, b| (a.created_at, &a.uid, &a.name).cmp(&(b.created_at, &b.uid, &b.name)));
        let Some(shape) = pods.first().map(|pod| &pod.shape) else { continue };
        let here = is.iter().filter(|id| on_nodes.contains(id)).copied().collect();
        let mut need = measures.dimensions.need(&shape.requests);
        need.extend(&volumes.own);
        groups.push(PodGroup {
            requests: &shape.requests,
            need: Arc::new(need),
            volumes: volumes.shared.as_slice().into(),
            need_id: 0,
            alternatives: Arc::clone(&required),
            tolerations: &shape.tolerations,
            host_ports: &shape.host_ports,
            rules: [].into(),
            node_rules: Arc::new(NodeRules { is: here, ..NodeRules::default() }),
            is,
            given_up: 0,
            priority: shape.priority,
            required,
            counted,
            own,
            pods,
        });
    }
    groups.sort_by_cached_key(rank);
    // Numbers follow the groups' order, not the input's.
    let mut needs = Numbered(BTreeMap::new());
    for group in &mut groups {
        (group.need, group.need_id) = needs.number(DenseAmounts::clone(&group.need));
        group.required = measures.ways.of(group.required.to_vec());
        group.counted = measures.ways.of(group.counted.to_vec());
        group.prefer(&measures.ways);
    }
    (groups, refused)
}

/// The pods by what equal ones share, and those that can't be planned for.
fn equal_pods<'a>(
    input: &ProvisionInput,
    scope: &Scope<'a>,
    measures: &InputMeasures<'_>,
    (ways, selectors): (&WaysTable, &Selectors),
) -> (Vec<EqualPods<'a>>, Vec<Unschedulable>) {
    let volumes = measures.limits.volumes();
    let mut counts = Numbered(BTreeMap::new());
    let mut refused = Vec::new();
    let mut left_over = exclusive::left_over(scope, volumes, |shape| {
        unsupported(shape).is_none() && volumes.alternatives(shape).is_ok()
    });
    // Equal pods share their shape, so what follows from a shape is worked out once.
    let mut by_shape: BTreeMap<*const PodShape, Vec<&'a Pod>> = BTreeMap::new();
    for pod in scope.pods {
        match left_over.remove(&pod.uid) {
            Some(reason) => refused.push(refusal(pod, reason)),
            None => by_shape.entry(Arc::as_ptr(&pod.shape)).or_default().push(pod),
        }
    }
    let mut requests: BTreeMap<&ResourceList, usize> = BTreeMap::new();
    let (mut owns, mut matching) = (Numbered(BTreeMap::new()), Numbered(BTreeMap::new()));
    let mut equal: BTreeMap<PodGroupKey<'a>, EqualPods<'a>> = BTreeMap::new();
    for pods in by_shape.into_values() {
        let Some(first) = pods.first() else { continue };
        let shape: &'a PodShape = &first.shape;
        let (own, counted, required) = match asked_by(shape, input, selectors, volumes) {
            Ok((own, counted, required)) => (owns.number(own), ways.of(counted), ways.of(required)),
            Err(reason) => {
                refused.extend(pods.iter().map(|pod| refusal(pod, reason.clone())));
                continue;
            }
        };
        let next = requests.len();
        let requested = *requests.entry(&shape.requests).or_insert(next);
        let is = matching.number(selectors.matching(shape));
        let attached = counts.number(measures.limits.need(shape));
        let key = PodGroupKey {
            numbers: (requested, required.id, counted.id, own.1, is.1, attached.1),
            tolerations: &shape.tolerations,
            host_ports: &shape.host_ports,
            priority: shape.priority,
        };
        let known = equal.entry(key).or_insert_with(|| EqualPods {
            pods: Vec::new(),
            required,
            counted,
            own: own.0,
            is: is.0.as_slice().into(),
            volumes: attached.0,
        });
        known.pods.extend(pods);
    }
    (equal.into_values().collect(), refused)
}

fn refusal(pod: &Pod, reason: Reason) -> Unschedulable {
    Unschedulable { pod: counted(pod), causes: vec![UnschedulableCause { pool: None, reason }] }
}

/// The rules of a shape, and its ways to a node, without its volumes and with them.
fn asked_by(
    shape: &PodShape,
    input: &ProvisionInput,
    selectors: &Selectors,
    volumes: &Volumes<'_>,
) -> Result<(Rules, Vec<Alternative>, Vec<Alternative>), Reason> {
    if let Some(reason) = unsupported(shape) {
        return Err(reason);
    }
    let placed = volumes.alternatives(shape)?;
    let mut rules = Rules::of(shape, input, &selectors.shared, |selector| selectors.id(&selector));
    match input.policies.preferences {
        PreferencePolicy::Respect => {}
        PreferencePolicy::Ignore => rules.soft.clear(),
    }
    let counted = alternatives(shape);
    let required = with_volumes(counted.clone(), &placed);
    Ok((rules, counted, required))
}

/// Each way to satisfy the affinity, with each place of the volumes.
fn with_volumes(alternatives: Vec<Alternative>, places: &[Requirements]) -> Vec<Alternative> {
    if places.is_empty() {
        return alternatives;
    }
    let both = |one: &Alternative, place: &Requirements| Alternative {
        asked: one.asked.clone().and(place),
        fields: one.fields.clone(),
    };
    alternatives.iter().flat_map(|one| places.iter().map(|place| both(one, place))).collect()
}

fn rank<'a>(group: &PodGroup<'a>) -> GroupRank<'a> {
    GroupRank {
        priority: std::cmp::Reverse(group.priority),
        cpu: std::cmp::Reverse(group.requests.get(&ResourceName::CPU)),
        memory: std::cmp::Reverse(group.requests.get(&ResourceName::MEMORY)),
        created_at: group.pods.first().and_then(|pod| pod.created_at),
        uid: group.pods.first().map(|pod| &pod.uid),
    }
}

/// A pod as plans record it.
pub(crate) fn counted(pod: &Pod) -> CountedPod {
    CountedPod { name: pod.name.clone(), uid: pod.uid.clone() }
}

fn unsupported(shape: &PodShape) -> Option<Reason> {
    if !shape.scheduling_gates.is_empty() {
        return Some(Reason::SchedulingGated { gates: shape.scheduling_gates.clone() });
    }
    let (field, meant) = match (shape.unknown.first(), shape.resource_claims.first()) {
        (Some(unknown), _) => (unknown.clone(), shape.meant),
        (None, Some(_)) => ("spec.resourceClaims".to_owned(), None),
        (None, None) => return None,
    };
    Some(Reason::UnsupportedConstraint { field, meant })
}

/// Whether two sets of host ports can't be on one node: the same port and protocol, on one address or on all of them.
pub(crate) fn ports_conflict(a: &BTreeSet<HostPort>, b: &BTreeSet<HostPort>) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
    let clash = |a: &HostPort, b: &HostPort| {
        a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || any(&a.ip) || any(&b.ip))
    };
    a.iter().any(|port| b.iter().any(|other| clash(port, other)))
}
