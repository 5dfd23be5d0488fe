//! Groups that are the same to a claim, as one: packing looks at each kind of pod once.
//!
//! Decides which groups are alike: equal priority, needs, shared volumes, class and rules about the pods of a node. It gives a draft's
//! pods back to their groups, in the groups' order.
//!
//! Invariant: what was packed for a lane is no more than its groups' pods that wait.

use std::collections::BTreeMap;

use super::attachments::SharedVolume;
use super::dense::{DenseAmounts, within};
use super::draft::{Draft, Member};
use super::topology::neighbours::NodeRules;

/// Groups by what a claim sees of them.
pub(crate) struct Lanes<'a> {
    /// One member for each lane; its pods are those of all its members.
    pub(crate) all: Vec<Member<'a>>,
    /// By lane: the members, in their order.
    members: Vec<Vec<usize>>,
}

/// What members of a lane share.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LaneKey<'a> {
    class: usize,
    priority: i32,
    need: &'a DenseAmounts,
    volumes: &'a [SharedVolume],
    rules: &'a NodeRules,
    /// Members that stay alone: those with host ports, and those that need others beside them.
    alone: Option<usize>,
}

impl<'a> Lanes<'a> {
    /// The lanes of members, in the order of their first members.
    pub(crate) fn of(members: &[Member<'a>]) -> Self {
        let mut lanes = Self { all: Vec::new(), members: Vec::new() };
        let mut known: BTreeMap<LaneKey<'a>, usize> = BTreeMap::new();
        for (index, member) in members.iter().enumerate() {
            let Member { class, priority, need, volumes, rules, .. } = *member;
            let alone = (!member.host_ports.is_empty() || rules.keeps_together()).then_some(index);
            let lane =
                *known.entry(LaneKey { class, priority, need, volumes, rules, alone }).or_insert_with(|| {
                    lanes.all.push(Member { waiting: 0, ..*member });
                    lanes.members.push(Vec::new());
                    lanes.all.len() - 1
                });
            if let (Some(all), Some(of_lane)) = (lanes.all.get_mut(lane), lanes.members.get_mut(lane)) {
                all.waiting = all.waiting.saturating_add(member.waiting);
                of_lane.push(index);
            }
        }
        lanes
    }

    /// The drafts of lanes as drafts of their members.
    pub(crate) fn members_of(&self, members: &[Member<'_>], drafts: Vec<Draft>) -> Vec<Draft> {
        if self.members.iter().all(|of_lane| of_lane.len() == 1) {
            return drafts
                .into_iter()
                .map(|mut draft| {
                    draft.counts.iter_mut().for_each(|(lane, _)| *lane = self.first(*lane));
                    draft
                })
                .collect();
        }
        let mut left: Vec<u32> = members.iter().map(|member| member.waiting).collect();
        let mut at: Vec<usize> = vec![0; self.members.len()];
        let mut found = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let mut times = draft.times;
            while times > 0 {
                let now = self.next(&draft, &mut left, &mut at, times);
                times -= now.times;
                found.push(now);
            }
        }
        found
    }

    fn first(&self, lane: usize) -> usize {
        self.members.get(lane).and_then(|of_lane| of_lane.first()).copied().unwrap_or(lane)
    }

    /// As many equal claims of a draft as one member of each lane has pods for, or one claim of several.
    fn next(&self, draft: &Draft, left: &mut [u32], at: &mut [usize], most: u32) -> Draft {
        let mut counts: Vec<(usize, u32)> = Vec::with_capacity(draft.counts.len());
        let mut times = most;
        for (lane, count) in &draft.counts {
            let (Some(of_lane), Some(at)) = (self.members.get(*lane), at.get_mut(*lane)) else { continue };
            let mut wanted = *count;
            while wanted > 0 {
                let Some(member) = of_lane.get(*at) else { break };
                let Some(here) = left.get_mut(*member) else { break };
                if *here == 0 {
                    *at += 1;
                    continue;
                }
                let taken = wanted.min(*here);
                times = if taken == *count { times.min(*here / taken) } else { 1 };
                *here -= taken;
                wanted -= taken;
                counts.push((*member, taken));
            }
        }
        let times = times.max(1);
        for (member, count) in &counts {
            if let Some(left) = left.get_mut(*member) {
                *left = left.saturating_sub(count.saturating_mul(times - 1));
            }
        }
        Draft { counts, times, ..draft.clone() }
    }
}

/// Lanes with equal needs, in the order of packing, by class: what doesn't fit is passed over at once.
pub(crate) struct Buckets<'a> {
    all: Vec<Bucket<'a>>,
    /// For each bucket the least that it or any later one needs of each resource: where even that doesn't fit, a claim
    /// is full.
    smallest: Vec<DenseAmounts>,
    /// By lane: which rules it has, as an index.
    pub(crate) rules: Vec<usize>,
    /// By lane: its bucket and the place of its class there.
    place: Vec<(usize, usize)>,
    /// Lanes before this one have no pods to pack.
    cursor: usize,
}

/// Lanes with equal needs.
pub(crate) struct Bucket<'a> {
    /// Their need.
    pub(crate) need: &'a DenseAmounts,
    /// The lanes with pods by class.
    pub(crate) by_class: Vec<(usize, Vec<usize>)>,
}

impl<'a> Buckets<'a> {
    /// The buckets of lanes.
    pub(crate) fn of(lanes: &[Member<'a>]) -> Self {
        let mut all: Vec<Bucket<'a>> = Vec::new();
        let mut known: BTreeMap<(i32, &DenseAmounts), usize> = BTreeMap::new();
        let mut rules: BTreeMap<&NodeRules, usize> = BTreeMap::new();
        let (mut rules_of, mut place) = (Vec::new(), Vec::new());
        for (index, lane) in lanes.iter().enumerate() {
            let bucket = *known.entry((lane.priority, lane.need)).or_insert_with(|| {
                all.push(Bucket { need: lane.need, by_class: Vec::new() });
                all.len() - 1
            });
            let next = rules.len();
            rules_of.push(*rules.entry(lane.rules).or_insert(next));
            let Some(of) = all.get_mut(bucket) else { continue };
            let at = of.by_class.iter().position(|(class, _)| *class == lane.class).unwrap_or_else(|| {
                of.by_class.push((lane.class, Vec::new()));
                of.by_class.len() - 1
            });
            of.by_class.iter_mut().skip(at).take(1).for_each(|(_, lanes)| lanes.push(index));
            place.push((bucket, at));
        }
        let smallest = smallest_from(&all);
        Self { all, smallest, rules: rules_of, place, cursor: 0 }
    }

    /// The first lane with pods.
    pub(crate) fn first(&mut self, waiting: &[u32], refused: &[bool]) -> Option<usize> {
        let open = |(left, refused): (&u32, &bool)| *left > 0 && !refused;
        self.cursor += waiting.iter().zip(refused).skip(self.cursor).position(open)?;
        Some(self.cursor)
    }

    /// How many buckets.
    pub(crate) const fn len(&self) -> usize {
        self.all.len()
    }

    /// The buckets whose pods may fit into the room that is left by then.
    pub(crate) fn fitting(&self) -> impl Iterator<Item = (&Bucket<'a>, &DenseAmounts)> {
        self.all.iter().zip(&self.smallest).filter(|(bucket, _)| !bucket.by_class.is_empty())
    }

    /// Passes over lanes whose last pod has a place.
    pub(crate) fn forget(&mut self, counts: &[(usize, u32)], waiting: &[u32]) {
        for (lane, _) in counts.iter().filter(|(lane, _)| waiting.get(*lane) == Some(&0)) {
            let Some((bucket, class)) = self.place.get(*lane) else { continue };
            let lanes = self.all.get_mut(*bucket).and_then(|bucket| bucket.by_class.get_mut(*class));
            if let Some((_, lanes)) = lanes {
                lanes.retain(|one| one != lane);
            }
        }
    }
}

fn smallest_from(buckets: &[Bucket<'_>]) -> Vec<DenseAmounts> {
    let mut smallest: Vec<DenseAmounts> = Vec::with_capacity(buckets.len());
    for bucket in buckets.iter().rev() {
        let least = match smallest.last() {
            Some(later) => bucket.need.iter().zip(later).map(|(a, b)| *a.min(b)).collect(),
            None => bucket.need.clone(),
        };
        smallest.push(least);
    }
    smallest.reverse();
    smallest
}

/// Whether anything of a bucket or of later ones fits.
pub(crate) fn is_full(smallest: &[i64], left: &[i64]) -> bool {
    !within(smallest, left)
}
