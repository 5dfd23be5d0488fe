//! Pods that may go to several kinds of nodes: by ORed affinity terms, and by the places of their volumes.
//!
//! Decides which of its alternatives a group is packed with: the cheapest, or the one in which most other pods may be on
//! its nodes, whichever packs all pods better. Pods that limits leave out are packed with their other alternatives. It
//! doesn't decide which pods join a claim that is planned already (`top_up`). Pods with one alternative are packed once.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::draft::{Draft, Member};
use super::pack;
use super::pool::Pool;
use super::round::PlanInProgress;

/// At most so many groups choose by the others: each of them is compared with all.
const MOST_GROUPS: usize = 256;
/// At most so many alternatives are tried for pods that limits leave out: most pods have two or three.
const MOST_TRIED: usize = 8;

/// The worth of a pod, and its class.
type PricedClass = (f64, usize);

impl PlanInProgress<'_, '_> {
    /// Packs the members' pods, and charges the pool's limits. A pod without a place is in no draft.
    pub(crate) fn packed(&mut self, pool: &mut Pool<'_>, members: &[Member<'_>]) -> Vec<Draft> {
        if !members.iter().any(|member| self.may_choose(member)) {
            return pack::pack(pool, members, &mut self.state.steps);
        }
        let choices: Vec<Vec<PricedClass>> =
            members.iter().map(|member| self.choices(pool, member)).collect();
        let before = pool.limits.clone();
        let mut drafts = pack::pack(pool, members, &mut self.state.steps);
        let mut chosen = members.to_vec();
        if let Some(together) = in_company(pool, members, &choices) {
            let after = std::mem::replace(&mut pool.limits, before);
            let others = pack::pack(pool, &together, &mut self.state.steps);
            if rank(members, &others) < rank(members, &drafts) {
                (drafts, chosen) = (others, together);
            } else {
                pool.limits = after;
            }
        }
        self.pack_rest(pool, &chosen, &choices, &mut drafts);
        drafts
    }

    /// Whether a group has several alternatives.
    fn may_choose(&self, member: &Member<'_>) -> bool {
        self.groups.get(member.group).is_some_and(|group| group.alternatives.for_new_nodes.len() > 1)
    }

    /// The classes that a member's pods may be packed with, cheapest first: those that have as many values for `minValues`
    /// as its own.
    fn choices(&self, pool: &mut Pool<'_>, member: &Member<'_>) -> Vec<PricedClass> {
        let own = (member.worth, member.class);
        let Some(group) = self.groups.get(member.group).filter(|_| self.may_choose(member)) else {
            return vec![own];
        };
        let lacking = pool.least_lacking(member.class, member.need);
        let mut found = vec![own];
        for class in pool.classes_of(&group.alternatives) {
            let is_known = found.iter().any(|(_, known)| *known == class);
            let worth = pack::worth(pool, class, member.need);
            found.extend(
                worth
                    .filter(|_| !is_known && pool.least_lacking(class, member.need) == lacking)
                    .map(|worth| (worth, class)),
            );
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        found
    }

    /// Packs pods that have no place with the alternatives that they weren't packed with.
    fn pack_rest(
        &mut self,
        pool: &mut Pool<'_>,
        members: &[Member<'_>],
        choices: &[Vec<PricedClass>],
        drafts: &mut Vec<Draft>,
    ) {
        for turn in 0..MOST_TRIED {
            let left = left(members, drafts);
            let waiting =
                members.iter().zip(choices).zip(left).enumerate().filter(|(_, (_, left))| *left > 0);
            let (places, rest): (Vec<usize>, Vec<Member<'_>>) = waiting
                .filter_map(|(place, ((member, choices), waiting))| {
                    let (worth, class) = *choices.get(turn)?;
                    (class != member.class).then_some((place, Member { class, worth, waiting, ..*member }))
                })
                .unzip();
            if rest.is_empty() {
                continue;
            }
            let mut more = pack::pack(pool, &rest, &mut self.state.steps);
            for (place, _) in more.iter_mut().flat_map(|draft| &mut draft.counts) {
                *place = places.get(*place).copied().unwrap_or(usize::MAX);
            }
            drafts.extend(more);
        }
    }
}

/// The members with the classes in which most other pods may be on their nodes; `None` if these are their own.
fn in_company<'m>(
    pool: &Pool<'_>,
    members: &[Member<'m>],
    choices: &[Vec<PricedClass>],
) -> Option<Vec<Member<'m>>> {
    let mut pods_of: BTreeMap<usize, u64> = BTreeMap::new();
    for (member, choices) in members.iter().zip(choices) {
        for (_, class) in choices {
            *pods_of.entry(*class).or_default() += u64::from(member.waiting);
        }
    }
    let mut found = members.to_vec();
    let mut differs = false;
    let choosing = found.iter_mut().zip(choices).filter(|(_, choices)| choices.len() > 1);
    for (member, choices) in choosing.take(MOST_GROUPS) {
        let own = u64::from(member.waiting);
        for (_, class) in choices {
            pods_of.entry(*class).and_modify(|pods| *pods = pods.saturating_sub(own));
        }
        let company = |class: usize| {
            let goes = |other: usize| {
                let both = pool.class(class).zip(pool.class(other));
                both.is_some_and(|(a, b)| a.merged.intersects(&b.merged).is_ok())
            };
            let others = pods_of.iter().filter(|(other, pods)| **pods > 0 && goes(**other));
            others.map(|(_, pods)| *pods).fold(0, u64::saturating_add)
        };
        // Of equals the cheapest, which is the first.
        let Some((worth, class)) = choices.iter().copied().min_by_key(|(_, class)| Reverse(company(*class)))
        else {
            continue;
        };
        differs |= class != member.class;
        (member.worth, member.class) = (worth, class);
        *pods_of.entry(class).or_default() += own;
    }
    differs.then_some(found)
}

/// How many pods of each member have no place.
fn left(members: &[Member<'_>], drafts: &[Draft]) -> Vec<u32> {
    let mut left: Vec<u32> = members.iter().map(|member| member.waiting).collect();
    for draft in drafts {
        for (index, count) in &draft.counts {
            if let Some(left) = left.get_mut(*index) {
                *left = left.saturating_sub(count.saturating_mul(draft.times));
            }
        }
    }
    left
}

/// Most pods placed first, then the lowest price, then the fewest claims.
fn rank(members: &[Member<'_>], drafts: &[Draft]) -> (u64, u64, u64) {
    let unplaced = left(members, drafts).into_iter().map(u64::from).sum();
    let of = |f: fn(&Draft) -> u64| drafts.iter().map(f).fold(0, u64::saturating_add);
    (unplaced, of(|one| one.price.saturating_mul(u64::from(one.times))), of(|one| u64::from(one.times)))
}
