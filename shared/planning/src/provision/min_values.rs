//! `minValues` of a pool's template: the least number of values of a key that a claim's types must have.
//!
//! Decides whether types have enough values, and what a claim keeps of `minValues` that can't be met. Which policy holds
//! is the cluster's setting.

use std::collections::BTreeSet;

use tenon_domain::labels;
use tenon_domain::registry::MinValuesPolicy;
use tenon_domain::requirement::{Requirement, Requirements};

use super::draft::Draft;
use super::pool::{EquivalenceClass, Pool, Type};
use super::report::Reason;

/// A key with fewer values than it must have.
struct UnmetMinValues<'r> {
    requirement: &'r Requirement,
    least: u32,
    values: usize,
}

impl Pool<'_> {
    /// Whether the template has `minValues`.
    pub(crate) fn has_min_values(&self) -> bool {
        self.offered.iter().any(|requirement| requirement.min_values().is_some())
    }

    /// How many values a claim of a type with such pods lacks of `minValues`, over all keys.
    pub(crate) fn lacking_values(&self, class: usize, chosen: usize, need: &[i64]) -> usize {
        let Some(class) = self.class(class) else { return usize::MAX };
        self.lacking(class, &self.holding(class, self.open, chosen, need))
    }

    /// How many values all types of a class lack for a pod, whatever limits leave of them; none where no pod waits for
    /// values.
    pub(crate) fn least_lacking(&self, class: usize, need: &[i64]) -> usize {
        let waits = match self.min_values {
            MinValuesPolicy::Strict => self.has_min_values(),
            MinValuesPolicy::BestEffort => false,
        };
        let Some(class) = self.class(class).filter(|_| waits) else { return 0 };
        let types = self.types.iter().enumerate();
        let types = types.filter(|(index, _)| class.prices.get(*index).is_some_and(Option::is_some));
        let types: Vec<&Type<'_>> =
            types.filter(|(index, _)| class.holds(*index, need)).map(|(_, one)| one).collect();
        self.lacking(class, &types)
    }

    fn lacking(&self, class: &EquivalenceClass, types: &[&Type<'_>]) -> usize {
        let lacking = |unmet: UnmetMinValues<'_>| {
            usize::try_from(unmet.least).unwrap_or(usize::MAX).saturating_sub(unmet.values)
        };
        self.unmet_min_values(&class.merged, types).map(lacking).fold(0, usize::saturating_add)
    }

    /// The keys for which the types don't satisfy `minValues`.
    fn unmet_min_values<'s>(
        &'s self,
        merged: &'s Requirements,
        types: &'s [&Type<'_>],
    ) -> impl Iterator<Item = UnmetMinValues<'s>> {
        self.offered.iter().filter_map(move |requirement| {
            let least = requirement.min_values()?;
            let values = self.values(requirement.key(), merged, types);
            let enough = usize::try_from(least).is_ok_and(|least| values >= least);
            (!enough).then_some(UnmetMinValues { requirement, least, values })
        })
    }

    /// Why pods wait for more values.
    pub(crate) fn min_values_refusal(&self, merged: &Requirements, types: &[&Type<'_>]) -> Option<Reason> {
        match self.min_values {
            MinValuesPolicy::Strict => self.unmet_min_values(merged, types).next().map(|unmet| {
                let key = unmet.requirement.key().to_owned();
                Reason::MinValuesNotSatisfied { key, min_values: unmet.least, values: unmet.values }
            }),
            MinValuesPolicy::BestEffort => None,
        }
    }

    /// Why pods wait for more values of these types, which all are within the limits: a claim is of those that charge
    /// every limit at most as much as one of them.
    pub(crate) fn refusal_within_limits(&self, merged: &Requirements, types: &[&Type<'_>]) -> Option<Reason> {
        let charges: BTreeSet<&[i128]> = types.iter().map(|one| one.charges.as_slice()).collect();
        let mut nearest = None;
        for most in charges {
            let charges_less =
                |one: &&&Type<'_>| one.charges.iter().zip(most).all(|(charge, most)| charge <= most);
            let together: Vec<&Type<'_>> = types.iter().filter(charges_less).copied().collect();
            nearest = nearest.max(Some(self.min_values_refusal(merged, &together)?));
        }
        nearest
    }

    /// How many values of a key the types have.
    fn values(&self, key: &str, merged: &Requirements, types: &[&Type<'_>]) -> usize {
        let mut values: BTreeSet<&str> = BTreeSet::new();
        for one in types {
            let offerings = || self.offerings(one, merged, self.open);
            match key {
                labels::ZONE => values.extend(offerings().map(|o| o.zone.as_str())),
                labels::ZONE_ID => values.extend(offerings().map(|o| o.zone_id.as_str())),
                labels::CAPACITY_TYPE => values.extend(offerings().map(|o| o.capacity_type.as_str())),
                _ => {
                    let known = one.option.labels.get(key).filter(|label| !label.is_complement());
                    let allowed = |value: &&String| merged.allows(key, value);
                    values.extend(known.iter().flat_map(|l| l.values()).filter(allowed).map(String::as_str));
                }
            }
        }
        values.len()
    }

    /// The requirements with `minValues` lowered to what the draft's types have; `None` where they have enough.
    pub(crate) fn lowered_min_values(
        &self,
        draft: &Draft,
        need: &[i64],
        requirements: &Requirements,
    ) -> Option<Requirements> {
        match self.min_values {
            MinValuesPolicy::BestEffort if self.has_min_values() => {}
            MinValuesPolicy::BestEffort | MinValuesPolicy::Strict => return None,
        }
        let class = self.class(draft.class)?;
        let types = self.holding(class, self.open, draft.type_index, need);
        let mut lowered = None;
        for unmet in self.unmet_min_values(&class.merged, &types) {
            let key = unmet.requirement.key();
            let Some(asked) = requirements.get(key) else { continue };
            let least = u32::try_from(unmet.values).ok().filter(|values| *values > 0);
            let requirement = asked.clone().with_min_values(least);
            lowered.get_or_insert_with(|| requirements.clone()).replace(requirement);
        }
        lowered
    }
}
