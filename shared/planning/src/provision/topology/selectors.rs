//! The label selectors of pods' constraints, each once.
//!
//! Decides which pods a selector matches, by Kubernetes' rules: a constraint without a selector matches no pod, an
//! empty selector matches every pod of its namespaces.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::PodShape;
use tenon_domain::api::pod::{LabelSelector, PodVolume};

/// A selector's index.
pub(crate) type SelectorId = usize;

/// A controller of pods in their namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodController {
    /// Its kind.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
}

/// Which pods a constraint counts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodSelector {
    /// The namespaces; `None` for all.
    pub(crate) namespaces: Option<BTreeSet<String>>,
    /// The labels; `None` matches nothing.
    pub(crate) labels: Option<LabelSelector>,
    /// Only the pods of this controller, if there is one.
    pub(crate) controller: Option<PodController>,
    /// Only the pods with this PersistentVolumeClaim, if there is one.
    pub(crate) claim: Option<String>,
}

impl PodSelector {
    fn matches(&self, shape: &PodShape) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.contains(&shape.namespace))
            && self.labels.as_ref().is_some_and(|labels| labels.matches(&shape.labels))
            && self.controller.as_ref().is_none_or(|own| controller_of(shape).as_ref() == Some(own))
            && self.claim.as_ref().is_none_or(|own| claims_of(shape).any(|claim| claim == own))
    }

    /// A label that every matching pod has, if the selector asks for one value of a key.
    fn label(&self) -> Option<(String, String)> {
        let of = |labels: &LabelSelector| {
            labels
                .requirements
                .iter()
                .find_map(|one| Some((one.key().to_owned(), one.single_value()?.to_owned())))
        };
        self.labels.as_ref().and_then(of)
    }
}

fn controller_of(shape: &PodShape) -> Option<PodController> {
    shape.owner.as_ref().map(|owner| PodController { kind: owner.kind.clone(), name: owner.name.clone() })
}

fn claims_of(shape: &PodShape) -> impl Iterator<Item = &str> {
    shape.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Claim(name) => Some(name.as_str()),
        PodVolume::Ephemeral { .. } => None,
    })
}

/// PersistentVolumeClaims by namespace and name.
pub(crate) type ClaimNames = BTreeSet<(String, String)>;

/// All selectors in their own order, found by the labels, the controllers and the claims of pods.
#[derive(Debug, Default)]
pub(crate) struct Selectors {
    all: Vec<PodSelector>,
    by_label: BTreeMap<(String, String), Vec<SelectorId>>,
    by_controller: BTreeMap<PodController, Vec<SelectorId>>,
    by_claim: BTreeMap<String, Vec<SelectorId>>,
    /// The claims that keep their pods together.
    pub(crate) shared: ClaimNames,
    without_label: Vec<SelectorId>,
}

impl Selectors {
    /// These.
    pub(crate) fn of(all: BTreeSet<PodSelector>, shared: ClaimNames) -> Self {
        let mut selectors = Self { shared, ..Self::default() };
        for (id, selector) in all.into_iter().enumerate() {
            if let Some(claim) = &selector.claim {
                selectors.by_claim.entry(claim.clone()).or_default().push(id);
                selectors.all.push(selector);
                continue;
            }
            match (&selector.controller, selector.label()) {
                (Some(controller), _) => {
                    selectors.by_controller.entry(controller.clone()).or_default().push(id);
                }
                (None, Some(label)) => selectors.by_label.entry(label).or_default().push(id),
                (None, None) => selectors.without_label.push(id),
            }
            selectors.all.push(selector);
        }
        selectors
    }

    /// The index of one of them.
    pub(crate) fn id(&self, selector: &PodSelector) -> SelectorId {
        self.all.binary_search(selector).unwrap_or(SelectorId::MAX)
    }

    /// Whether there is none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The selectors that match a pod, in ascending order.
    pub(crate) fn matching(&self, shape: &PodShape) -> Vec<SelectorId> {
        if self.is_empty() {
            return Vec::new();
        }
        let labels = shape.labels.iter().map(|(key, value)| (key.clone(), value.clone()));
        let by_label = labels.filter_map(|label| self.by_label.get(&label)).flatten();
        let controller = if self.by_controller.is_empty() { None } else { controller_of(shape) };
        let by_controller = controller.and_then(|of| self.by_controller.get(&of)).into_iter().flatten();
        let claims = claims_of(shape).filter(|_| !self.by_claim.is_empty());
        let by_claim = claims.filter_map(|claim| self.by_claim.get(claim)).flatten();
        let matches = |id: &&SelectorId| self.all.get(**id).is_some_and(|selector| selector.matches(shape));
        let all = by_label.chain(by_controller).chain(by_claim).chain(&self.without_label);
        let mut found: Vec<SelectorId> = all.filter(matches).copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}
