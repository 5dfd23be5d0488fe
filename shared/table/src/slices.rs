//! Plans larger than one transaction, cut into slices that are committed in order.
//!
//! Decides the cuts. The planner decides the groups: each is valid alone, so committed ones stay valid after a lost
//! race. The caller stops at the first lost race, because later slices were planned from an outdated world.
//!
//! Invariants: a group is never cut; groups keep their order; each slice is conditional on the cluster's revision
//! after the slice before it; cutting the same groups again gives the same slices with the same tokens.

use crate::commit::{Commit, CommitError, CommitToken, CommitTokenError, Write, WriteCondition};
use crate::key::Key;
use crate::limits;
use std::collections::BTreeMap;
use tenon_domain::id::ClusterName;

/// Conditions and writes that must stay together and are valid without the groups after them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteGroup {
    /// The group's own conditions on items; the cluster's is added to each slice.
    pub conditions: Vec<WriteCondition>,
    /// The group's writes.
    pub writes: Vec<Write>,
}

/// Commits that go through in this order or stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slices {
    commits: Vec<Commit>,
    /// How many groups each commit holds.
    groups: Vec<usize>,
}

/// Groups that can't be cut into slices.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// A group that is larger than a transaction.
    #[error("group {index} doesn't fit into one transaction beside the cluster's revision: split it")]
    Group {
        /// Its place among the groups, from 0.
        index: usize,
        /// The problem.
        #[source]
        source: CommitError,
    },
    /// The plan's token leaves no room for the slices' numbers.
    #[error("the plan's token is too long for its slices: give at most 31 characters")]
    Token(#[source] CommitTokenError),
}

impl Slices {
    /// Cuts the groups into commits of at most 100 actions and 4 MB. Sizes are those of the requests: a `Set` counts
    /// its own attributes. Groups that touch the same item never share a slice, unless both only check the same
    /// condition on it. The slices' tokens are `<token>-0`, `<token>-1` and so on.
    ///
    /// # Errors [`SliceError`] for a group that no transaction holds, and for a token that is too long.
    pub fn cut(
        token: &CommitToken,
        cluster: &ClusterName,
        revision: u64,
        groups: Vec<WriteGroup>,
    ) -> Result<Self, SliceError> {
        let mut cutter = Cutter { token, cluster, first: revision, commits: Vec::new(), open: None };
        for (index, group) in groups.into_iter().enumerate() {
            cutter.add(index, group)?;
        }
        cutter.close();
        let (commits, groups) = cutter.commits.into_iter().unzip();
        Ok(Self { commits, groups })
    }

    /// The commits in their order, each with how many of the groups it holds.
    pub fn iter(&self) -> impl Iterator<Item = (&Commit, usize)> {
        self.commits.iter().zip(self.groups.iter().copied())
    }

    /// The commits, in their order.
    #[must_use]
    pub fn commits(&self) -> &[Commit] {
        &self.commits
    }
}

/// The current slice, with its sizes.
struct OpenSlice {
    commit: Commit,
    groups: usize,
    actions: usize,
    bytes: u64,
    touched: BTreeMap<Key, Touch>,
}

/// How a slice touches an item.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Touch {
    /// Only checks it.
    Checks(WriteCondition),
    /// Writes it.
    Writes,
}

struct Cutter<'a> {
    token: &'a CommitToken,
    cluster: &'a ClusterName,
    first: u64,
    commits: Vec<(Commit, usize)>,
    open: Option<OpenSlice>,
}

impl Cutter<'_> {
    fn add(&mut self, index: usize, group: WriteGroup) -> Result<(), SliceError> {
        let alone = self.begin(index, group)?;
        match self.open.take() {
            Some(open) if fits(&open, &alone) => self.open = Some(join(open, alone)),
            Some(open) => {
                self.commits.push((open.commit, open.groups));
                // Its index, and so its revision and token, are higher by one than at its beginning.
                self.open = Some(self.numbered(index, alone)?);
            }
            None => self.open = Some(alone),
        }
        Ok(())
    }

    /// The group as its own slice, after the closed ones.
    fn begin(&self, index: usize, group: WriteGroup) -> Result<OpenSlice, SliceError> {
        let wrong = |source| SliceError::Group { index, source };
        let mut conditions =
            vec![WriteCondition::Cluster { cluster: self.cluster.clone(), revision: self.first }];
        conditions.extend(group.conditions);
        let commit = Commit { token: self.token.clone(), conditions, writes: group.writes };
        let actions = commit.actions().map_err(wrong)?;
        let mut touched: BTreeMap<Key, Touch> =
            commit.conditions.iter().skip(1).map(|c| (c.key(), Touch::Checks(c.clone()))).collect();
        touched.extend(commit.writes.iter().map(|write| (write.key().clone(), Touch::Writes)));
        let bytes = actions.iter().map(crate::action::WriteAction::request_bytes).sum();
        let actions = actions.len();
        self.numbered(index, OpenSlice { commit, groups: 1, actions, bytes, touched })
    }

    fn numbered(&self, index: usize, mut open: OpenSlice) -> Result<OpenSlice, SliceError> {
        let place = self.commits.len();
        let overflow = || SliceError::Group {
            index,
            source: CommitError::Invalid { message: "the cluster's revision has no successor".to_owned() },
        };
        let revision = self.first.checked_add(place as u64).ok_or_else(overflow)?;
        if let Some(condition) = open.commit.conditions.first_mut() {
            *condition = WriteCondition::Cluster { cluster: self.cluster.clone(), revision };
        }
        open.commit.token = self.token.slice(place).map_err(SliceError::Token)?;
        Ok(open)
    }

    fn close(&mut self) {
        self.commits.extend(self.open.take().map(|open| (open.commit, open.groups)));
    }
}

/// Whether the second slice can be joined to the first. Shared checks and the revision's bytes count twice, so a
/// slice may be a little smaller than possible, never larger.
fn fits(open: &OpenSlice, next: &OpenSlice) -> bool {
    let compatible = |(key, touch): (&Key, &Touch)| match (open.touched.get(key), touch) {
        (None, _) => true,
        (Some(Touch::Checks(one)), Touch::Checks(other)) => one == other,
        (Some(Touch::Checks(_) | Touch::Writes), Touch::Checks(_) | Touch::Writes) => false,
    };
    open.actions + next.actions - 1 <= limits::TRANSACTION_ACTIONS
        && open.bytes + next.bytes <= limits::TRANSACTION_BYTES
        && next.touched.iter().all(compatible)
}

fn join(mut open: OpenSlice, next: OpenSlice) -> OpenSlice {
    let known =
        |condition: &WriteCondition| matches!(open.touched.get(&condition.key()), Some(Touch::Checks(_)));
    let new: Vec<WriteCondition> = next.commit.conditions.into_iter().skip(1).filter(|c| !known(c)).collect();
    let shared = next.touched.keys().filter(|key| open.touched.contains_key(*key)).count();
    open.commit.conditions.extend(new);
    open.commit.writes.extend(next.commit.writes);
    open.groups += next.groups;
    open.actions += next.actions - 1 - shared;
    open.bytes += next.bytes;
    open.touched.extend(next.touched);
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Expect;
    use crate::value::{Item, Value};

    fn put(name: &str, bytes: usize) -> Write {
        let item = Item::from([("data".to_owned(), Value::B(vec![0; bytes]))]);
        Write::Put { key: Key::new("CLUSTER#a", name), item }
    }

    fn group(names: &[String]) -> WriteGroup {
        WriteGroup { conditions: vec![], writes: names.iter().map(|name| put(name, 10)).collect() }
    }

    fn cut(groups: Vec<WriteGroup>) -> Result<Slices, SliceError> {
        let token = CommitToken::parse("plan").unwrap();
        Slices::cut(&token, &ClusterName::parse("a").unwrap(), 7, groups)
    }

    fn check(groups: Vec<WriteGroup>, expected: &[usize]) {
        let count = groups.len();
        let slices = cut(groups).unwrap();
        let writes: Vec<usize> = slices.commits().iter().map(|commit| commit.writes.len()).collect();
        assert_eq!(writes, expected);
        assert_eq!(slices.iter().map(|(_, groups)| groups).sum::<usize>(), count);
        for (place, commit) in slices.commits().iter().enumerate() {
            commit.actions().unwrap();
            assert_eq!(commit.token.as_str(), format!("plan-{place}"));
            let cluster = ClusterName::parse("a").unwrap();
            assert_eq!(commit.conditions[0], WriteCondition::Cluster { cluster, revision: 7 + place as u64 });
        }
    }

    #[test]
    fn groups_fill_slices_and_are_never_cut() {
        let threes = |count: usize| {
            (0..count)
                .map(|n| group(&[format!("a{n}"), format!("b{n}"), format!("c{n}")]))
                .collect::<Vec<_>>()
        };
        check(vec![], &[]);
        check(threes(1), &[3]);
        // 99 writes and the revision are 100 actions.
        check(threes(33), &[99]);
        check(threes(34), &[99, 3]);
        check(threes(70), &[99, 99, 12]);
    }

    #[test]
    fn slices_stay_under_four_megabytes() {
        let large =
            |n: usize| WriteGroup { conditions: vec![], writes: vec![put(&format!("l{n}"), 400_000)] };
        check((0..21).map(large).collect(), &[10, 10, 1]);
    }

    #[test]
    fn groups_that_touch_one_item_dont_share_a_slice() {
        check(vec![group(&["a".to_owned()]), group(&["a".to_owned()]), group(&["b".to_owned()])], &[1, 2]);
    }

    #[test]
    fn what_two_groups_check_alike_is_checked_once() {
        let class =
            WriteCondition::Item { key: Key::new("CLUSTER#a", "NODECLASS#x"), expect: Expect::Revision(3) };
        let checked = |name: &str| WriteGroup { conditions: vec![class.clone()], writes: vec![put(name, 1)] };
        let slices = cut(vec![checked("a"), checked("b")]).unwrap();
        assert_eq!(slices.commits().len(), 1);
        assert_eq!(slices.commits()[0].conditions.len(), 2);
        assert_eq!(slices.commits()[0].actions().unwrap().len(), 4);
    }

    #[test]
    fn a_group_that_no_transaction_holds_is_refused() {
        let names: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let error = cut(vec![group(&["x".to_owned()]), group(&names)]).unwrap_err();
        assert!(
            error.to_string().starts_with("group 1 doesn't fit into one transaction"),
            "{error}: 100 writes and the revision are 101 actions"
        );
    }
}
