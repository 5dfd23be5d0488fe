//! Two claims of a pool as one, where that is cheaper.
//!
//! Decides which drafts share a node after packing. Pods with host ports, and pods that need others beside them, stay
//! where they are.

use super::dense::within;
use super::draft::{Draft, Member, sum};
use super::pool::Pool;
use super::steps::Steps;
use super::topology::neighbours::{FirstOfItsKind, NodeNeighbours};

/// Claims with different contents that are tried in pairs.
const MERGED_DRAFTS: usize = 96;

/// Makes one of two claims wherever one type holds the pods of both and costs less than both, or no more.
pub(crate) fn merge(
    pool: &mut Pool<'_>,
    members: &[Member<'_>],
    mut drafts: Vec<Draft>,
    steps: &mut Steps,
) -> Vec<Draft> {
    let mut merged = drafts.len() <= MERGED_DRAFTS;
    while merged {
        merged = false;
        let mut best: Option<(u64, usize, usize, Draft)> = None;
        for (i, a) in drafts.iter().enumerate() {
            for (j, b) in drafts.iter().enumerate().skip(i) {
                if (i == j && a.times < 2) || !steps.take(members.len()) {
                    continue;
                }
                let Some(union) = union(pool, members, a, b) else { continue };
                let saved = a.price.saturating_add(b.price).checked_sub(union.price);
                if let Some(saved) = saved.filter(|saved| *saved > 0)
                    && best.as_ref().is_none_or(|(most, ..)| saved > *most)
                {
                    best = Some((saved, i, j, union));
                }
            }
        }
        if let Some((_, i, j, union)) = best {
            for index in [i, j] {
                drafts.iter_mut().skip(index).take(1).for_each(|draft| draft.times -= 1);
            }
            drafts.push(union);
            drafts.retain(|draft| draft.times > 0);
            merged = drafts.len() <= MERGED_DRAFTS;
        }
    }
    drafts
}

/// Whether the pods' rules allow them on one node. Pods that need others beside them have them already.
fn fit_together(members: &[Member<'_>], counts: &[(usize, u32)]) -> bool {
    let mut neighbours = NodeNeighbours::default();
    counts.iter().filter_map(|(index, count)| Some((members.get(*index)?, *count))).all(|(member, count)| {
        let fits =
            !member.rules.keeps_together() && neighbours.admits(member.rules, FirstOfItsKind::No) >= count;
        neighbours.add(member.rules, count);
        fits
    })
}

/// The claim that holds the pods of both, on its cheapest type.
fn union(pool: &mut Pool<'_>, members: &[Member<'_>], a: &Draft, b: &Draft) -> Option<Draft> {
    let has_ports = |draft: &Draft| {
        draft.counts.iter().any(|(i, _)| members.get(*i).is_some_and(|m| !m.host_ports.is_empty()))
    };
    if has_ports(a) || has_ports(b) {
        return None;
    }
    let class = pool.join(a.class, b.class)?;
    let mut counts = a.counts.clone();
    for (index, count) in &b.counts {
        match counts.iter_mut().find(|(i, _)| i == index) {
            Some((_, sum)) => *sum += count,
            None => counts.push((*index, *count)),
        }
    }
    if !fit_together(members, &counts) {
        return None;
    }
    let need = sum(members, &counts);
    let joined = pool.class(class)?;
    // The front is sorted by price.
    let holds = |index: &&usize| pool.types.get(**index).is_some_and(|one| within(&need, &one.room));
    let type_index = *joined.front.iter().find(holds)?;
    let price = pool.price(class, type_index)?;
    Some(Draft { class, type_index, price, counts, times: 1, reservation: None })
}
