//! Reports of the cluster: snapshots, heartbeats and rings.
//!
//! Decides when a change is written, when the table is checked, and for what the bell is rung. What a snapshot contains is
//! decided by the encoder.
//!
//! Invariants: a generation is remembered in the cluster before the table has it; a ring that failed is repeated.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::evidence::ahead;
use tenon_snapshot::snapshot::{
    self, ClusterObjects, Encoded, Heartbeat, Manifest, read_manifest, retire_orphans,
};
use tenon_snapshot::{Kube, KubeError, Precondition};
use tenon_table::{Consistency, Table};

use super::objects::observe_objects;
use super::{Agent, AgentError, HEARTBEAT_EVERY};
use crate::bell::{Bell, Ring, is_of_pods};
use crate::deleted::{Owners, find_deleted};
use crate::generation::{ClusterGenerations, Memory, lease_key};

/// How often the agent checks that the table still holds its snapshot. A heartbeat of a generation that a restore has
/// removed confirms nothing.
const TABLE_EVERY: SignedDuration = SignedDuration::from_secs(120);

/// The agent's last known state of the table.
#[derive(Debug, Clone)]
pub(super) struct LastWritten {
    manifest: Option<Manifest>,
    generations: ClusterGenerations,
    beat_at: Option<Timestamp>,
    looked_at: Timestamp,
}

/// The changes that a report is about.
#[derive(Debug, Clone, Copy)]
struct ReportedChanges {
    burst: Burst,
    /// The number of deleted NodeClaims that no action drains yet.
    deletions: u32,
    /// The number of Nodes that pods left.
    freed: u32,
}

/// Whether the changes that a report is about have come to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Burst {
    /// The burst has ended, or lasted long enough.
    Over,
    /// More pods may arrive in a moment. No node is planned for a part of a burst; other changes can't wait.
    GoesOn,
}

/// The result of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    /// A new generation was written. The ring lists the changes; the bell is rung for those that functions act on,
    /// except for pods of a current burst.
    Changed(Ring),
    /// A change waits for the next heartbeat, which is due then.
    Later(Timestamp),
    /// Nothing changed; a heartbeat was written if it was due.
    Unchanged,
}

impl<K: Kube, T: Table, B: Bell> Agent<K, T, B> {
    /// Observes the cluster, writes changes, and rings. While no pod is pending, changes of bound pods are written
    /// with the next heartbeat. An unchanged cluster costs a heartbeat every [`HEARTBEAT_EVERY`], and a check of the
    /// table. The first report after a burst rings for the burst's pods.
    ///
    /// # Errors [`AgentError`]; the next report starts over.
    pub async fn report(&mut self, now: Timestamp, burst: Burst) -> Result<Reported, AgentError> {
        let known = match self.written.take() {
            Some(written) if written.beat_at.is_some() && !is_over(written.looked_at, TABLE_EVERY, now) => {
                written
            }
            before => {
                self.kubernetes_version = Some(self.kube.version().await?);
                self.look_at_table(before, now).await?
            }
        };
        self.ring_again().await;
        let mut objects = observe_objects(&*self.kube).await?;
        objects.reports.clone_from(&self.reports);
        objects.kubernetes_version.clone_from(&self.kubernetes_version);
        let deletions = self.undrained(&objects);
        let freed = self.pods_left.observe(&objects, now);
        self.pod_times.observe(&objects, now);
        let left = self.pod_times.left().clone();
        let claims = std::mem::take(&mut objects.node_claims);
        objects.node_claims = self.claims.as_before(&claims);
        let pods_left = self.claims.is_news(&left);
        let mut encoded = self.encoder.encode(&objects, known.manifest.as_ref(), now);
        let restored = known.generations.judge(known.manifest.as_ref()) == Memory::Restored;
        // Functions don't trust a time that hasn't come. It is of a clock that has been set since.
        let misdated =
            known.manifest.as_ref().is_some_and(|manifest| ahead(manifest.taken_at, now).is_some());
        let must_write = restored || misdated;
        if encoded.changed.is_empty() && !pods_left && known.manifest.is_some() && !must_write {
            if let (Some(manifest), Burst::Over, false) = (&known.manifest, burst, self.held.is_empty()) {
                let (generation, pending_pods) = (manifest.generation, manifest.pending_pods);
                let changed = BTreeSet::new();
                self.ring(&Ring { generation, changed, pending_pods, deletions, freed }, burst).await;
            }
            return self.beat(known, now).await;
        }
        if let Some(beat_at) = known.beat_at
            && !is_over(beat_at, HEARTBEAT_EVERY, now)
            && !must_write
            && freed == 0
            && known.manifest.as_ref().is_some_and(|manifest| may_wait(&encoded, manifest, burst))
        {
            self.written = Some(known);
            return Ok(Reported::Later(beat_at.saturating_add(HEARTBEAT_EVERY).unwrap_or(now)));
        }
        if pods_left {
            // The time when a pod left wakes no function.
            let changed = encoded.changed;
            objects.node_claims = self.claims.with(&claims, &left);
            encoded = Encoded { changed, ..self.encoder.encode(&objects, known.manifest.as_ref(), now) };
        }
        let reported = self.write(encoded, known, ReportedChanges { burst, deletions, freed }, now).await?;
        self.claims.wrote(left);
        Ok(reported)
    }

    /// The number of deleted claims that no action drains yet.
    fn undrained(&self, objects: &ClusterObjects) -> u32 {
        let owners = Owners::of(objects.node_claims.clone(), Some(objects.node_pools.clone()));
        let deleted = find_deleted(&objects.nodes, &owners).claims;
        u32::try_from(deleted.difference(&self.drained).count()).unwrap_or(u32::MAX)
    }

    /// Rings for new changes and delayed ones; pods of a current burst are delayed.
    async fn ring(&mut self, new: &Ring, burst: Burst) {
        let mut ring = new.clone();
        match burst {
            Burst::Over => ring.changed.append(&mut self.held),
            Burst::GoesOn => {
                self.held.extend(ring.changed.iter().filter(|kind| is_of_pods(kind)));
                ring.changed.retain(|kind| !is_of_pods(kind));
                ring.pending_pods = 0;
            }
        }
        if ring.is_heard() && self.bell.ring(&ring).await.is_err() {
            self.unheard = Some(ring);
        }
    }

    /// Repeats a failed ring.
    async fn ring_again(&mut self) {
        if let Some(unheard) = self.unheard.take()
            && self.bell.ring(&unheard).await.is_err()
        {
            self.unheard = Some(unheard);
        }
    }

    /// Reads manifest and Lease, and lets chunks that a cut off agent left behind end.
    async fn look_at_table(
        &self,
        before: Option<LastWritten>,
        now: Timestamp,
    ) -> Result<LastWritten, AgentError> {
        let manifest = read_manifest(&self.table, &self.cluster, Consistency::Strong).await?;
        let lease = self.kube.get(&lease_key()).await?;
        let mut generations = lease.as_deref().map(ClusterGenerations::of).unwrap_or_default();
        if let Some(before) = &before {
            // The Lease was deleted; the agent still remembers its content.
            generations.written =
                generations.written.max(before.manifest.as_ref().map_or(0, |m| m.generation));
            generations.reserved = generations.reserved.max(before.generations.reserved);
        } else if let Some(manifest) = &manifest {
            retire_orphans(&self.table, &self.cluster, manifest, now).await?;
        }
        let beat_at = before.and_then(|before| before.beat_at);
        Ok(LastWritten { manifest, generations, beat_at, looked_at: now })
    }

    async fn beat(&mut self, known: LastWritten, now: Timestamp) -> Result<Reported, AgentError> {
        let due = known.beat_at.is_none_or(|at| is_over(at, HEARTBEAT_EVERY, now));
        if due && let Some(manifest) = &known.manifest {
            let heartbeat = Heartbeat { generation: manifest.generation, seen_at: now };
            snapshot::beat(&self.table, &self.cluster, heartbeat).await?;
        }
        let beat_at = if due { Some(now) } else { known.beat_at };
        self.written = Some(LastWritten { beat_at, ..known });
        Ok(Reported::Unchanged)
    }

    /// Remembers the generation in the cluster, writes it to the table, and rings.
    async fn write(
        &mut self,
        mut encoded: Encoded,
        known: LastWritten,
        changes: ReportedChanges,
        now: Timestamp,
    ) -> Result<Reported, AgentError> {
        let ReportedChanges { burst, deletions, freed } = changes;
        if known.generations.judge(known.manifest.as_ref()) == Memory::Restored {
            encoded.manifest.restored_at = Some(now);
        }
        let (generations, looked_at) = (known.generations.next(known.manifest.as_ref()), known.looked_at);
        self.remember(&generations).await?;
        let base = known.manifest.as_ref();
        let manifest =
            snapshot::write(&self.table, &self.cluster, &encoded, generations.reserved, base).await?;
        let ring = Ring {
            generation: manifest.generation,
            changed: encoded.changed.clone(),
            pending_pods: manifest.pending_pods,
            deletions,
            freed,
        };
        // The snapshot is written: the next step, or the sweep, repairs a later failure.
        self.written =
            Some(LastWritten { manifest: Some(manifest), generations, beat_at: Some(now), looked_at });
        // The manifest has the time, so it is a heartbeat too.
        self.ring(&ring, burst).await;
        let retired = encoded.retire_dropped(&self.table, &self.cluster, now).await;
        if retired.is_err() {
            // Checks the table again at once, and writes a heartbeat.
            if let Some(written) = &mut self.written {
                written.beat_at = None;
            }
        }
        Ok(Reported::Changed(ring))
    }

    async fn remember(&self, generations: &ClusterGenerations) -> Result<(), KubeError> {
        match self.kube.patch(&lease_key(), &generations.patch(), &Precondition::None).await {
            Ok(_) => Ok(()),
            Err(KubeError::NotFound { .. }) => self.kube.create(generations.lease()).await.map(|_| ()),
            Err(error) => Err(error),
        }
    }
}

/// Whether the period is over. If the clock was set back, it is: `since` may be far ahead.
fn is_over(since: Timestamp, period: SignedDuration, now: Timestamp) -> bool {
    since > now || now.duration_since(since) >= period
}

/// Whether changes may be reported later: pods with the end of their burst; changes of bound pods with the next
/// heartbeat, while no pod is pending. No function acts on those at once, and a cluster with constant changes would
/// be written all day. A pod that was pending and is bound now is reported at once: a claim may count it.
fn may_wait(encoded: &Encoded, before: &Manifest, burst: Burst) -> bool {
    let nobody_waits = before.pending_pods == 0 && encoded.manifest.pending_pods == 0;
    encoded.changed.iter().all(is_of_pods) && (nobody_waits || burst == Burst::GoesOn)
}
