//! A change of a cluster's items: a claim's step and its other writes in one transaction.
//!
//! Decides what the transaction holds: the claim's item under the observed revision, its action, and numbered journal
//! records. The caller decides whether a change is its own commit, with a token of its content, or a group of a plan
//! under the cluster's revision.
//!
//! Invariant: every write of a claim is conditional on the observed item.

use jiff::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::id::ClusterName;
use tenon_domain::journal::JournalRecord;
use tenon_runtime::HandlerError;
use tenon_snapshot::action::{NodeAction, action_key};
use tenon_table::items::{DecisionCounter, Journal, JournalOf, add_step, keys, set, set_expiring};
use tenon_table::{Commit, Expect, Write, WriteCondition, WriteGroup, content_commit};

/// A change under construction.
#[derive(Debug, Clone)]
pub struct Change<'a> {
    cluster: &'a ClusterName,
    group: WriteGroup,
    journal: Journal<'a>,
}

impl<'a> Change<'a> {
    /// An empty change.
    #[must_use]
    pub fn of(cluster: &'a ClusterName) -> Self {
        Self { cluster, group: WriteGroup::default(), journal: Journal::of(JournalOf::Cluster(cluster)) }
    }

    /// A claim's step from the observed revision to `claim`; `STEPS` counts it.
    #[must_use]
    pub fn step(cluster: &'a ClusterName, from_revision: u64, claim: &Claim) -> Self {
        let mut change = Self::of(cluster);
        change.claim(Expect::Revision(from_revision), claim);
        change.count();
        change
    }

    /// Writes a claim.
    pub fn claim(&mut self, before: Expect, claim: &Claim) {
        self.replace(before, set(keys::claim(self.cluster, &claim.name), claim));
    }

    /// Writes a claim's last step; its item expires at `until`.
    pub fn last_of_claim(&mut self, before: Expect, claim: &Claim, until: Timestamp) {
        self.replace(before, set_expiring(keys::claim(self.cluster, &claim.name), claim, until));
    }

    /// Writes an item on the condition that it is as observed.
    pub fn replace(&mut self, before: Expect, write: Write) {
        self.condition(WriteCondition::Item { key: write.key().clone(), expect: before });
        self.write(write);
    }

    /// Adds a write without its own condition.
    pub fn write(&mut self, write: Write) {
        self.group.writes.push(write);
    }

    /// Adds a condition without a write.
    pub fn condition(&mut self, condition: WriteCondition) {
        self.group.conditions.push(condition);
    }

    /// Counts the change in `STEPS`, so that planners look again.
    pub fn count(&mut self) {
        self.write(add_step(self.cluster));
    }

    /// Writes the agent's action for a claim.
    ///
    /// # Errors
    /// [`HandlerError::Internal`] if the action has no item form.
    pub fn action(&mut self, action: &NodeAction) -> Result<(), HandlerError> {
        let item = action.to_item().map_err(|error| HandlerError::Internal(error.to_string()))?;
        self.write(Write::Put { key: action_key(self.cluster, &action.claim), item });
        Ok(())
    }

    /// Adds a journal record of a decision that `counter` counts.
    pub fn record(&mut self, record: &JournalRecord, counter: DecisionCounter<'_>) {
        self.group.writes.extend(self.journal.writes(record, counter));
    }

    /// The change as a group of a plan.
    #[must_use]
    pub fn group(self) -> WriteGroup {
        self.group
    }

    /// The change as its own transaction.
    #[must_use]
    pub fn commit(self) -> Commit {
        content_commit(self.group.conditions, self.group.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tenon_domain::claim::{ClaimState, LaunchFailure};
    use tenon_domain::evidence::{CatalogPart, Waiting};
    use tenon_domain::journal::{Decision, Subject, SubjectKind};
    use tenon_domain::wake::FunctionName;
    use tenon_memory_table::block_on;
    use tenon_table::items::{CatalogCache, Generations, SeenRecord, put};
    use tenon_table::{Query, SkRange, Table, query_all};

    use crate::heads::{Watch, glance};
    use crate::view::{ClusterView, ReadAlready, Want, Wants};
    use tenon_harness::{FunctionWorld, WorldConfig};
    use tenon_runtime::ports::Ports;

    const WANTS: Wants<'_> = Wants {
        function: FunctionName::Lifecycle,
        parts: &[CatalogPart::InstanceTypes],
        sets: &[
            Want::Claims,
            Want::Launches,
            Want::Commands,
            Want::Classes,
            Want::Pools,
            Want::Templates,
            Want::Marks,
        ],
        watch: Watch::Everything,
    };

    fn cluster() -> ClusterName {
        ClusterName::parse("prod").unwrap()
    }

    fn claim(at: Timestamp) -> Claim {
        Claim::planned(
            "default-3k9x2".parse().unwrap(),
            ("default".parse().unwrap(), "linux".parse().unwrap()),
            "launch-7".parse().unwrap(),
            at,
        )
    }

    /// A world with one planned claim.
    fn world() -> (FunctionWorld, Claim) {
        let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
        let claim = claim(world.now());
        let write = put(keys::claim(&cluster(), &claim.name), &claim);
        block_on(world.table.commit(&content_commit(vec![], vec![write]))).unwrap();
        (world, claim)
    }

    fn observe(world: &FunctionWorld) -> ClusterView {
        block_on(ClusterView::observe(world, &cluster(), WANTS, &CatalogCache::new())).unwrap()
    }

    fn failed(claim: &Claim, at: Timestamp) -> Claim {
        let failure =
            LaunchFailure { reason: "InsufficientCapacityError".to_owned(), message: String::new() };
        claim.stepped(ClaimState::LaunchFailed { at, failure }).unwrap()
    }

    fn last(cluster: &ClusterName, before: &Claim, after: &Claim, until: Timestamp) -> Commit {
        let mut change = Change::of(cluster);
        change.last_of_claim(Expect::Revision(before.revision), after, until);
        change.count();
        change.commit()
    }

    fn record(at: Timestamp) -> JournalRecord {
        let subject = Subject { kind: SubjectKind::Claim, name: "default-3k9x2".to_owned() };
        JournalRecord::new(subject, at, "provisioner", Decision::LaunchFailed, "EC2 has no room")
    }

    #[test]
    fn a_step_is_seen_counted_and_explained_and_isnt_taken_twice() {
        let (world, claim) = world();
        let before = observe(&world);
        assert_eq!((before.claims.len(), before.generations.steps), (1, 0));
        assert_eq!(before.registry, Err(Waiting::ClusterNotRegistered));
        let (cluster, now) = (cluster(), world.now());
        let after = failed(&claim, now);
        let mut step = Change::step(&cluster, claim.revision, &after);
        step.record(&record(now), DecisionCounter::Subject(after.revision));
        block_on(world.table.commit(&step.commit())).unwrap();
        let view = observe(&world);
        assert_eq!(view.claims[&claim.name], after);
        assert_eq!(view.generations.steps, 1);
        let of = JournalOf::Cluster(&cluster).subject_pk(&record(now).subject);
        let journal = Query::new(of, SkRange::All, tenon_table::Consistency::Strong);
        assert_eq!(block_on(query_all(&world.table, &journal)).unwrap().len(), 1);
        // Another step from the same revision loses.
        let other = Claim { drift: None, ..failed(&claim, now) };
        let lost = block_on(world.table.commit(&last(&cluster, &claim, &other, now))).unwrap_err();
        assert!(matches!(lost, tenon_table::CommitError::LostRace { .. }), "{lost}");
    }

    #[test]
    fn what_expired_is_not_in_a_view() {
        let (world, claim) = world();
        let (cluster, now) = (cluster(), world.now());
        let after = failed(&claim, now);
        let at = now + jiff::SignedDuration::from_secs(60);
        block_on(world.table.commit(&last(&cluster, &claim, &after, at))).unwrap();
        let view = observe(&world);
        assert!(view.claims.contains_key(&claim.name) && view.expiring.contains(&claim.name));
        world.clock.advance(jiff::SignedDuration::from_secs(60));
        assert_eq!(observe(&world).claims, BTreeMap::new());
    }

    #[test]
    fn a_glance_tells_whether_anything_changed_since() {
        let (world, claim) = world();
        let (cluster, now) = (cluster(), world.now());
        let look = || block_on(glance(&world, &cluster, WANTS, tenon_table::Consistency::Eventual)).unwrap();
        assert!(!look().unchanged(now));
        let generations = look().generations;
        assert_eq!(
            generations,
            Generations { catalog: generations.catalog.clone(), ..Generations::default() }
        );
        let function = FunctionName::Lifecycle;
        let seen = SeenRecord {
            function,
            generations,
            deadline: None,
            wake_at: None,
            at: now,
            refusals: None,
            told_at: None,
            offerings: Vec::new(),
            offerings_at: None,
        };
        let write = set(keys::seen(&cluster, function), &seen);
        block_on(world.table.commit(&content_commit(vec![], vec![write]))).unwrap();
        world.table.reset_meter();
        assert!(look().unchanged(now));
        assert_eq!(world.table.meter().operations.len(), 1);
        let step = Change::step(&cluster, claim.revision, &failed(&claim, now)).commit();
        block_on(world.table.commit(&step)).unwrap();
        assert!(!look().unchanged(now));
    }

    #[test]
    fn sets_that_were_kept_are_read_again_once_something_counts() {
        let (world, claim) = world();
        let look = |kept: &ClusterView| {
            world.table.reset_meter();
            let (name, cache) = (cluster(), CatalogCache::new());
            let view = {
                let known = ReadAlready { heads: None, kept: Some(kept.clone()) };
                ClusterView::observe_since(&world, &name, WANTS, &cache, known)
            };
            let view = block_on(view).unwrap();
            (world.table.meter().of(tenon_memory_table::Operation::Query).calls, view)
        };
        let first = observe(&world);
        let (queries, same) = look(&first);
        // The region's marks have no counter.
        assert_eq!((queries, &same.claims), (1, &first.claims));
        let step = Change::step(&cluster(), claim.revision, &failed(&claim, world.now())).commit();
        block_on(world.table.commit(&step)).unwrap();
        let (queries, changed) = look(&same);
        // Claims, classes and pools are one.
        let all = WANTS.sets.len() as u64 - 2;
        assert_eq!(queries, all);
        assert_eq!(changed.claims, observe(&world).claims);
        world.clock.advance(jiff::SignedDuration::from_mins(10));
        assert_eq!(look(&same).0, all, "nothing is kept for ever");
    }
}
