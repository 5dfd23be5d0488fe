//! Claims of a pool whose template has `minValues`.
//!
//! Decides which of the packed patterns becomes the claim: the best whose types have enough values, else one with so few
//! of its pods that they have. Where `minValues` may be lowered, all pods stay, and the claim charges the limits as much as
//! its most flexible types need. It doesn't decide how far `minValues` are lowered (`min_values`).
//!
//! Invariant: with pods that limits leave without a place, packing tries claims that charge least, too.

use std::collections::BTreeMap;

use tenon_domain::registry::MinValuesPolicy;

use super::draft::{Draft, sum};
use super::fill::{Fill, Filling, PackPattern};
use super::pack::{RankedPattern, as_float};
use super::pool::Pool;
use super::steps::Steps;

/// The claim of the best pattern; `ranked` has the best first.
pub(crate) fn picky_draft(
    pool: &mut Pool<'_>,
    fill: &Fill<'_>,
    limits: &[i128],
    ranked: Vec<RankedPattern>,
    steps: &mut Steps,
) -> Option<Draft> {
    let valid = |found: &RankedPattern| {
        let need = sum(fill.members, &found.pattern.counts);
        pool.lacking_values(found.pattern.class, found.rank.3, &need) == 0
    };
    if let Some(first) = ranked.iter().position(valid) {
        return ranked.into_iter().nth(first).map(RankedPattern::into_draft);
    }
    match pool.min_values {
        MinValuesPolicy::Strict => {
            let mut best: Option<RankedPattern> = None;
            for found in &ranked {
                let Some(fewer) = with_fewer_pods(pool, fill, found, steps) else { continue };
                if best.as_ref().is_none_or(|best| fewer.cmp(best).is_lt()) {
                    best = Some(fewer);
                }
            }
            best.map(RankedPattern::into_draft)
        }
        MinValuesPolicy::BestEffort => {
            let draft = ranked.into_iter().next()?.into_draft();
            Some(match fill.filling {
                // It is for pods that limits left over.
                Filling::ByWorth => draft,
                Filling::InOrder | Filling::LikeFirst | Filling::OrderOrWorth => {
                    most_flexible(pool, fill, limits, draft, steps)
                }
            })
        }
    }
}

/// The pattern with the most of its pods that leave its types enough values; `None` where one pod is too many.
fn with_fewer_pods(
    pool: &mut Pool<'_>,
    fill: &Fill<'_>,
    found: &RankedPattern,
    steps: &mut Steps,
) -> Option<RankedPattern> {
    let (left_behind, _, _, type_index) = found.rank;
    let mut kept = PackPattern { class: found.pattern.class, counts: Vec::new(), worth: 0.0 };
    for (index, count) in &found.pattern.counts {
        let member = fill.members.get(*index)?;
        // Such pods come with those that they need, or not at all.
        if member.rules.keeps_together() {
            return None;
        }
        let joined =
            if kept.counts.is_empty() { Some(member.class) } else { pool.join(kept.class, member.class) };
        let Some(class) = joined else { continue };
        let enough = |pods: u32| {
            let counts: Vec<(usize, u32)> = kept.counts.iter().copied().chain([(*index, pods)]).collect();
            pool.lacking_values(class, type_index, &sum(fill.members, &counts)) == 0
        };
        let most = most_pods(*count, || steps.take(pool.types.len()), enough);
        if most > 0 {
            kept.counts.push((*index, most));
            kept.worth += member.worth * f64::from(most);
            kept.class = class;
        } else if kept.counts.is_empty() {
            return None;
        }
    }
    let price = pool.price(kept.class, type_index)?;
    let ratio = as_float(price) / kept.worth;
    Some(RankedPattern { rank: (left_behind, ratio, price, type_index), pattern: kept })
}

/// The most pods of which there are enough values, 0 if one is too many or no steps are left for another look.
pub(crate) fn most_pods(most: u32, mut may_look: impl FnMut() -> bool, enough: impl Fn(u32) -> bool) -> u32 {
    if !may_look() || !enough(1) {
        return 0;
    }
    let (mut least, mut most) = (1, most.max(1));
    while least < most && may_look() {
        let middle = most - (most - least) / 2;
        if enough(middle) {
            least = middle;
        } else {
            most = middle - 1;
        }
    }
    least
}

/// The draft on the type with which its claims lack the fewest values: a claim is of no type that charges a limit more
/// than the one that it was packed on.
fn most_flexible(
    pool: &Pool<'_>,
    fill: &Fill<'_>,
    limits: &[i128],
    draft: Draft,
    steps: &mut Steps,
) -> Draft {
    let Some(class) = pool.class(draft.class).filter(|_| !pool.limits.is_empty()) else { return draft };
    let Some(own) = class.room(draft.type_index) else { return draft };
    if !pool.reserved(draft.class, draft.type_index).is_empty() {
        return draft;
    }
    let need = sum(fill.members, &draft.counts);
    let mut by_charges: BTreeMap<&[i128], usize> = BTreeMap::new();
    for (index, (one, room)) in pool.types.iter().zip(class.rooms.iter()).enumerate() {
        let within_limits = one.charges.iter().zip(limits).all(|(charge, left)| charge <= left);
        if within_limits
            && pool.price(draft.class, index).is_some()
            && class.holds(index, &need)
            && room.host_ports.is_subset(&own.host_ports)
            && pool.reserved(draft.class, index).is_empty()
        {
            by_charges.entry(&one.charges).or_insert(index);
        }
    }
    let mut best = (pool.lacking_values(draft.class, draft.type_index, &need), draft.type_index);
    for index in by_charges.into_values() {
        if !steps.take(pool.types.len()) {
            break;
        }
        let lacking = pool.lacking_values(draft.class, index, &need);
        if lacking < best.0 {
            best = (lacking, index);
        }
    }
    Draft { type_index: best.1, ..draft }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_pods_stay_as_leave_enough_values() {
        let check = |most: u32, enough: u32, looks: u32, expected: u32| {
            let mut left = looks;
            let may_look = || {
                let may = left > 0;
                left = left.saturating_sub(1);
                may
            };
            assert_eq!(most_pods(most, may_look, |pods| pods <= enough), expected);
        };
        for enough in 0..=9 {
            check(9, enough, 9, enough);
        }
        check(1, 1, 9, 1);
        // Without steps, fewer.
        check(9, 9, 0, 0);
        check(9, 9, 1, 1);
    }
}
