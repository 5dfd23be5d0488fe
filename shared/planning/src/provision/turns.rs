//! Which pods of a group go to which of its shares.
//!
//! Decides single pods, not how many: that was dealt. Those that nobody takes are the youngest.

use std::cmp::Reverse;

use tenon_domain::api::Pod;

use super::needs::PodGroup;
use super::topology::deal::Share;

/// The pods of shares, and those that are left of each group.
pub(crate) struct DealtPods<'a> {
    pub(crate) of_shares: Vec<Vec<&'a Pod>>,
    rest: Vec<std::vec::IntoIter<&'a Pod>>,
}

impl<'a> DealtPods<'a> {
    /// The next pods of a group.
    pub(crate) fn take(&mut self, group: usize, pods: u32) -> Vec<&'a Pod> {
        let some = usize::try_from(pods).unwrap_or(usize::MAX);
        self.rest.get_mut(group).map(|rest| rest.take(some).collect()).unwrap_or_default()
    }

    /// By group, the pods that nobody took.
    pub(crate) fn left(self) -> Vec<Vec<&'a Pod>> {
        self.rest.into_iter().map(Iterator::collect).collect()
    }

    fn give(&mut self, group: usize, share: usize, pods: u32) {
        let taken = self.take(group, pods);
        self.of_shares.iter_mut().skip(share).take(1).for_each(|of| of.extend(&taken));
    }
}

/// The pods of shares: a group's pods go to its shares in turns, by age, and the largest share begins. kube-scheduler
/// tries pods in that order, so that a spread allows each when its turn comes.
pub(crate) fn in_turns<'a>(groups: &[PodGroup<'a>], shares: &[Share]) -> DealtPods<'a> {
    let rest = groups.iter().map(|group| group.pods.clone().into_iter()).collect();
    let mut dealt = DealtPods { of_shares: vec![Vec::new(); shares.len()], rest };
    let mut of_group: Vec<Vec<usize>> = vec![Vec::new(); groups.len()];
    for (index, share) in shares.iter().enumerate() {
        of_group.iter_mut().skip(share.group).take(1).for_each(|of| of.push(index));
    }
    let pods_of = |index: &usize| shares.get(*index).map_or(0, |share| share.pods);
    for (group, mut of) in of_group.into_iter().enumerate() {
        of.sort_by_key(|index| Reverse(pods_of(index)));
        if let [only] = of[..] {
            dealt.give(group, only, pods_of(&only));
            continue;
        }
        for level in (1..=of.first().map_or(0, pods_of)).rev() {
            for index in of.iter().take_while(|index| pods_of(index) >= level) {
                dealt.give(group, *index, 1);
            }
        }
    }
    dealt
}
