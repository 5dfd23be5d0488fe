//! `minValues` of a fleet: a launch names fewer types than its claim allows, and must still satisfy the NodePool.
//!
//! Decides which offerings a fleet must keep, and whether the rest of them suffices. The planner has checked the
//! claim's own types.
//!
//! Source: karpenter.sh/docs/concepts/nodepools, "Min Values"; aws/karpenter-provider-aws
//! `pkg/providers/instance/instance.go`.

use std::collections::{BTreeMap, BTreeSet};
use tenon_domain::catalog::find_option;

use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::labels;
use tenon_domain::requirement::Requirements;
use tenon_planning::provision::UsableOffering;

/// A fleet that doesn't satisfy `minValues`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error(
    "`minValues` of `{key}` is {least}, but the instance types of one launch have {kept} values: lower `minValues`"
)]
pub struct MinValuesLost {
    /// The label's key.
    pub key: String,
    /// The number of values that the NodePool requires.
    pub least: usize,
    /// The number of values in the fleet.
    pub kept: usize,
}

/// The values of the offerings for each key with `minValues`.
pub(crate) struct Flexibility<'a> {
    requirements: &'a Requirements,
    types: &'a [InstanceTypeOption],
    kept: BTreeMap<&'a str, BTreeSet<String>>,
}

impl<'a> Flexibility<'a> {
    /// Without any offering so far.
    pub(crate) fn new(requirements: &'a Requirements, types: &'a [InstanceTypeOption]) -> Self {
        // A fleet has one capacity type, whatever the pool allows.
        let keys = requirements
            .iter()
            .filter(|one| one.min_values().is_some() && one.key() != labels::CAPACITY_TYPE);
        let kept = keys.map(|requirement| (requirement.key(), BTreeSet::new())).collect();
        Self { requirements, types, kept }
    }

    /// Adds an offering. Returns whether it adds a value to a key that is still short.
    pub(crate) fn add(&mut self, offering: &UsableOffering) -> bool {
        let mut is_needed = false;
        for (key, kept) in &mut self.kept {
            let least = self.requirements.get(key).and_then(|one| one.min_values()).unwrap_or(0);
            let is_short = kept.len() < usize::try_from(least).unwrap_or(usize::MAX);
            // Any choice of offerings fills the fleet's types.
            let decides = is_short && *key != labels::INSTANCE_TYPE;
            for value in values(self.types, offering, key) {
                is_needed |= kept.insert(value) && decides;
            }
        }
        is_needed
    }

    /// The first key with fewer values than the NodePool requires, if all offerings together have more.
    pub(crate) fn lost(&self, of_all: &Self) -> Option<MinValuesLost> {
        self.kept.iter().find_map(|(key, kept)| {
            let asked = self.requirements.get(key).and_then(|one| one.min_values()).unwrap_or(0);
            let least = usize::try_from(asked).unwrap_or(usize::MAX);
            let all = of_all.kept.get(key).map_or(0, BTreeSet::len);
            (kept.len() < least.min(all)).then(|| MinValuesLost {
                key: (*key).to_owned(),
                least,
                kept: kept.len(),
            })
        })
    }
}

/// The values of an offering's label.
fn values(types: &[InstanceTypeOption], offering: &UsableOffering, key: &str) -> Vec<String> {
    match key {
        labels::ZONE => vec![offering.zone.to_string()],
        labels::ZONE_ID => vec![offering.zone_id.to_string()],
        _ => {
            let label = find_option(types, &offering.instance_type).and_then(|option| option.labels.get(key));
            let known = label.filter(|label| !label.is_complement());
            known.into_iter().flat_map(|label| label.values().iter().cloned()).collect()
        }
    }
}
