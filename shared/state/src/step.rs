//! Commit: how a claim's step becomes a transaction.
//!
//! Decides what goes together: a step is one transaction of its own, with its action, its instance's owner, its
//! records and the cluster's counter, so that a step that loses its race takes no other with it. Its token follows from
//! the content.
//!
//! Invariant: there is no step without a condition on the revision that it was planned from.

use jiff::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::id::ClusterName;
use tenon_domain::journal::JournalRecord;
use tenon_table::items::{JournalOf, add_step, journal_writes, keys, set, set_expiring};
use tenon_table::{Commit, Condition, Expect, Write};

use tenon_table::content_commit;

/// A claim's step, being put together.
#[derive(Debug, Clone)]
pub struct ClaimStep<'a> {
    cluster: &'a ClusterName,
    claim: &'a Claim,
    conditions: Vec<Condition>,
    writes: Vec<Write>,
    records: usize,
}

impl<'a> ClaimStep<'a> {
    /// The step to this claim from the revision that was observed.
    #[must_use]
    pub fn new(cluster: &'a ClusterName, from_revision: u64, claim: &'a Claim) -> Self {
        let key = keys::claim(cluster, &claim.name);
        let writes = vec![set(key.clone(), claim), add_step(cluster)];
        let conditions = vec![Condition::Item { key, expect: Expect::Revision(from_revision) }];
        Self { cluster, claim, conditions, writes, records: 0 }
    }

    /// The claim's item goes after a moment: the step was its last.
    #[must_use]
    pub fn expiring(mut self, at: Timestamp) -> Self {
        let key = keys::claim(self.cluster, &self.claim.name);
        self.writes.retain(|write| *write.key() != key);
        self.writes.push(set_expiring(key, self.claim, at));
        self
    }

    /// Another write of the step: its action, its instance's owner, a mark.
    #[must_use]
    pub fn write(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    /// Another condition of the step, on another item.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// A record that explains the step.
    #[must_use]
    pub fn record(mut self, record: &JournalRecord) -> Self {
        let of = JournalOf::Cluster(self.cluster);
        self.writes.extend(journal_writes(of, record, self.claim.revision, self.records));
        self.records += 1;
        self
    }

    /// The transaction.
    #[must_use]
    pub fn commit(self) -> Commit {
        content_commit(self.conditions, self.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tenon_domain::claim::{ClaimState, CommandRole, LaunchFailure};
    use tenon_domain::evidence::{CatalogPart, Waiting};
    use tenon_domain::journal::{Decision, Subject, SubjectKind};
    use tenon_domain::resources::ResourceList;
    use tenon_domain::wake::FunctionName;
    use tenon_memory_table::block_on;
    use tenon_table::items::{CatalogCache, Generations, Seen, put};
    use tenon_table::{Query, SkRange, Table, query_all};

    use crate::view::{ClusterView, Want, Wants, Watch, glance};
    use tenon_harness::{World, WorldConfig};
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
        Claim {
            name: "default-3k9x2".parse().unwrap(),
            revision: 1,
            pool: "default".parse().unwrap(),
            class: "linux".parse().unwrap(),
            launch: "launch-7".parse().unwrap(),
            created_at: at,
            state: ClaimState::Planned,
            drift: None,
            role: CommandRole::None,
            terms: None,
            requests: ResourceList::new(),
        }
    }

    /// A world with one planned claim.
    fn world() -> (World, Claim) {
        let world = World::new(&WorldConfig::default()).unwrap();
        let claim = claim(world.now());
        let write = put(keys::claim(&cluster(), &claim.name), &claim);
        block_on(world.table.commit(&content_commit(vec![], vec![write]))).unwrap();
        (world, claim)
    }

    fn observe(world: &World) -> ClusterView {
        block_on(ClusterView::observe(world, &cluster(), WANTS, &CatalogCache::new())).unwrap()
    }

    fn failed(claim: &Claim, at: Timestamp) -> Claim {
        let failure =
            LaunchFailure { reason: "InsufficientCapacityError".to_owned(), message: String::new() };
        claim.stepped(ClaimState::LaunchFailed { at, failure }).unwrap()
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
        let step = ClaimStep::new(&cluster, claim.revision, &after).record(&record(now)).commit();
        block_on(world.table.commit(&step)).unwrap();
        let view = observe(&world);
        assert_eq!(view.claims[&claim.name], after);
        assert_eq!(view.generations.steps, 1);
        let of = JournalOf::Cluster(&cluster).subject_pk(&record(now).subject);
        let journal = Query::new(of, SkRange::All, tenon_table::Consistency::Strong);
        assert_eq!(block_on(query_all(&world.table, &journal)).unwrap().len(), 1);
        // Another step from the same revision loses.
        let other = Claim { drift: None, ..failed(&claim, now) };
        let other = ClaimStep::new(&cluster, claim.revision, &other).expiring(now).commit();
        let lost = block_on(world.table.commit(&other)).unwrap_err();
        assert!(matches!(lost, tenon_table::CommitError::LostRace { .. }), "{lost}");
    }

    #[test]
    fn what_expired_is_not_in_a_view() {
        let (world, claim) = world();
        let (cluster, now) = (cluster(), world.now());
        let after = failed(&claim, now);
        let at = now + jiff::SignedDuration::from_secs(60);
        let step = ClaimStep::new(&cluster, claim.revision, &after).expiring(at).commit();
        block_on(world.table.commit(&step)).unwrap();
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
        let seen = Seen { function, generations, deadline: None, at: now, refusals: None, told_at: None };
        let write = set(keys::seen(&cluster, function), &seen);
        block_on(world.table.commit(&content_commit(vec![], vec![write]))).unwrap();
        world.table.reset_meter();
        assert!(look().unchanged(now));
        assert_eq!(world.table.meter().operations.len(), 1);
        let step = ClaimStep::new(&cluster, claim.revision, &failed(&claim, now)).commit();
        block_on(world.table.commit(&step)).unwrap();
        assert!(!look().unchanged(now));
    }

    #[test]
    fn sets_that_were_kept_are_read_again_once_something_counts() {
        let (world, claim) = world();
        let look = |kept: &ClusterView| {
            world.table.reset_meter();
            let (name, cache) = (cluster(), CatalogCache::new());
            let view = ClusterView::observe_since(&world, &name, WANTS, &cache, Some(kept.clone()));
            let view = block_on(view).unwrap();
            (world.table.meter().of(tenon_memory_table::Operation::Query).calls, view)
        };
        let first = observe(&world);
        let (queries, same) = look(&first);
        // The region's marks have no counter.
        assert_eq!((queries, &same.claims), (1, &first.claims));
        let step = ClaimStep::new(&cluster(), claim.revision, &failed(&claim, world.now())).commit();
        block_on(world.table.commit(&step)).unwrap();
        let (queries, changed) = look(&same);
        assert_eq!(queries, WANTS.sets.len() as u64);
        assert_eq!(changed.claims, observe(&world).claims);
        world.clock.advance(jiff::SignedDuration::from_mins(10));
        assert_eq!(look(&same).0, WANTS.sets.len() as u64, "nothing is kept for ever");
    }
}
