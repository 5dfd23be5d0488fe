//! What the claims of a plan share: thousands of claims have the same types, offerings and requirements.
//!
//! Decides nothing. A change copies first, so that nobody changes another claim.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::output::UsableOffering;

/// A value that several claims may share.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shared<T>(Arc<T>);

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

/// The offerings of a claim: those of each type are shared with other claims.
#[derive(Debug, Clone, Default)]
pub struct ClaimOfferings(Arc<Vec<Arc<[UsableOffering]>>>);

impl ClaimOfferings {
    /// Those of several types.
    pub(crate) fn of(types: Vec<Arc<[UsableOffering]>>) -> Self {
        Self(Arc::new(types))
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &UsableOffering> + Clone {
        self.0.iter().flat_map(|of_type| of_type.iter())
    }

    /// In their order, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut UsableOffering> {
        Arc::make_mut(&mut self.0).iter_mut().flat_map(|of_type| Arc::make_mut(of_type).iter_mut())
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|of_type| of_type.len()).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PartialEq for ClaimOfferings {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.len() == other.len() && self.iter().eq(other.iter()))
    }
}

impl Eq for ClaimOfferings {}

impl FromIterator<UsableOffering> for ClaimOfferings {
    fn from_iter<I: IntoIterator<Item = UsableOffering>>(offerings: I) -> Self {
        Self::of(vec![offerings.into_iter().collect()])
    }
}

impl Extend<UsableOffering> for ClaimOfferings {
    fn extend<I: IntoIterator<Item = UsableOffering>>(&mut self, offerings: I) {
        Arc::make_mut(&mut self.0).push(offerings.into_iter().collect());
    }
}

impl<'o> IntoIterator for &'o ClaimOfferings {
    type Item = &'o UsableOffering;
    type IntoIter = Box<dyn Iterator<Item = &'o UsableOffering> + 'o>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl IntoIterator for ClaimOfferings {
    type Item = UsableOffering;
    type IntoIter = std::vec::IntoIter<UsableOffering>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter().cloned().collect::<Vec<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::AskReason;
    use tenon_domain::catalog::CapacityType;

    fn offering(zone: &str) -> UsableOffering {
        UsableOffering {
            instance_type: "m5.large".parse().unwrap(),
            zone: zone.parse().unwrap(),
            zone_id: zone.parse().unwrap(),
            capacity_type: CapacityType::Spot,
            reservation: None,
            price: None,
            asked: AskReason::Available,
        }
    }

    #[test]
    fn a_change_of_what_is_shared_changes_one_claim() {
        let first: ClaimOfferings = ["a", "b"].map(offering).into_iter().collect();
        let mut second = first.clone();
        assert_eq!(first, second);
        second.iter_mut().for_each(|one| one.asked = AskReason::Probe);
        assert!(first.iter().all(|one| one.asked == AskReason::Available));
        assert_ne!(first, second);
        second.extend(first.clone());
        assert_eq!((first.len(), second.len()), (2, 4));
        let one = Shared::from(vec![1]);
        let mut other = one.clone();
        other.push(2);
        assert_eq!((one.as_slice(), other.as_slice()), (&[1][..], &[1, 2][..]));
    }

    #[test]
    fn equal_offerings_are_equal_however_they_were_put_together() {
        let mut parts: ClaimOfferings = [offering("a")].into_iter().collect();
        parts.extend([offering("b")]);
        assert_eq!(parts, ["a", "b"].map(offering).into_iter().collect());
    }
}
