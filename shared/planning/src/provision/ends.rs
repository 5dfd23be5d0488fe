//! What ended where pods of a round found no place: room, or a limit.
//!
//! Decides whether a limit is in the way, and how a group's pods share what it lets in. A limit is no full domain: the
//! domain is still one that spreads compare. It doesn't decide which pods wait, nor when a plan begins again (`rest`).
//!
//! Invariant: [`lower`] leaves in all domains together as many pods as the limits let in.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::taint::tolerates_forbidding;

use super::needs::PodGroup;
use super::pool::Pool;
use super::topology::deal::{Pin, Share};

/// What a domain, or a group as a whole, has no more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DomainEnd {
    /// Room.
    Room,
    /// What limits let in.
    Limit,
}

/// A domain without a place for more pods of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClosedDomain {
    /// So many have one.
    pub(crate) most: u32,
    /// Why no more.
    pub(crate) by: DomainEnd,
}

/// How a round ended.
pub(crate) struct RoundEnd {
    /// By share, the pods without a place.
    pub(crate) waiting: Vec<u32>,
    /// The shares that only limits keep from another node.
    pub(crate) limited: BTreeSet<usize>,
    /// The groups that only limits keep from another node, wherever it would be.
    pub(crate) spent: BTreeSet<usize>,
}

impl RoundEnd {
    /// By group with pods that limits keep out: its shares in domains that they end in, with the pods without a place.
    pub(crate) fn of_groups<'s>(&self, shares: &'s [Share]) -> BTreeMap<usize, Vec<(&'s Share, u32)>> {
        let mut found: BTreeMap<usize, Vec<(&Share, u32)>> = BTreeMap::new();
        for (index, (share, waits)) in shares.iter().zip(&self.waiting).enumerate() {
            if self.limited.contains(&index) && !share.pins.is_empty() {
                found.entry(share.group).or_default().push((share, *waits));
            }
        }
        found.retain(|_, shares| shares.iter().any(|(_, waits)| *waits > 0));
        found
    }
}

/// A group with pods that got no place.
#[derive(Clone, Copy)]
pub(crate) struct RefusedGroup<'r, 'a> {
    pub(crate) group: &'r PodGroup<'a>,
    /// The label without a domain that is right for it, if one failed.
    pub(crate) key: Option<&'r Arc<str>>,
    /// The domains of other labels that its pods were dealt to before.
    pub(crate) pins: &'r [Pin],
    /// What ended for it.
    pub(crate) end: DomainEnd,
}

/// What keeps another pod of a group from a new node.
pub(crate) fn end_of(pools: &mut [Pool<'_>], group: &PodGroup<'_>) -> DomainEnd {
    let ready = pools.iter_mut().filter(|pool| pool.is_ready());
    match ready.map(|pool| pool.may_launch(group)).max() {
        Some(MayLaunch::OverLimit) => DomainEnd::Limit,
        Some(MayLaunch::NoType | MayLaunch::WithinLimits) | None => DomainEnd::Room,
    }
}

/// Whether a pool can have another node for a pod, the nearest to it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MayLaunch {
    /// No type fits.
    NoType,
    /// All that fit are more than the limits leave.
    OverLimit,
    /// One fits.
    WithinLimits,
}

impl Pool<'_> {
    fn may_launch(&mut self, group: &PodGroup<'_>) -> MayLaunch {
        if tolerates_forbidding(&self.input.pool.template.taints, group.tolerations).is_err() {
            return MayLaunch::NoType;
        }
        let mut found = MayLaunch::NoType;
        for class in self.classes_of(&group.alternatives) {
            let Some(class) = self.class(class) else { continue };
            let fits = |index: &&usize| class.holds(**index, &group.need);
            for one in class.front.iter().filter(fits).filter_map(|index| self.types.get(*index)) {
                let mut charged = one.charges.iter().zip(&self.limits);
                if charged.all(|(charge, (_, left))| charge <= left) {
                    return MayLaunch::WithinLimits;
                }
                found = MayLaunch::OverLimit;
            }
        }
        found
    }
}

/// Takes pods away from domains, until so many are left in all: of each that has some one after the other, the last
/// first, as those were dealt last.
pub(crate) fn lower(dealt: &mut [u32], left: u32) {
    let mut over = dealt.iter().copied().fold(0, u32::saturating_add).saturating_sub(left);
    while over > 0 {
        for pods in dealt.iter_mut().rev().filter(|pods| **pods > 0) {
            if over == 0 {
                break;
            }
            *pods -= 1;
            over -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_taken_away_evenly() {
        let check = |dealt: &[u32], left: u32, expected: &[u32]| {
            let mut dealt = dealt.to_vec();
            lower(&mut dealt, left);
            assert_eq!(dealt, expected);
        };
        check(&[2, 2, 2], 4, &[2, 1, 1]);
        check(&[2, 2], 2, &[1, 1]);
        // A domain that had pods before was dealt fewer.
        check(&[1, 3], 2, &[0, 2]);
        check(&[2, 2], 1, &[1, 0]);
        check(&[2, 1], 5, &[2, 1]);
        check(&[], 3, &[]);
        check(&[3, 3], 0, &[0, 0]);
    }
}
