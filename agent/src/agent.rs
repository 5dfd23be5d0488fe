//! The agent's steps: report the cluster, apply the actions.
//!
//! Decides the order of writes. Its memory only saves work: a new agent finds the same in the table and in the
//! cluster.

mod account;
mod objects;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::evidence::ahead;
use tenon_domain::id::{ClusterName, Uid};
use tenon_domain::snapshot::{ActionReport, Unreadable};
use tenon_domain::wake::NOTICE;
use tenon_snapshot::note::ToldNotes;
use tenon_snapshot::snapshot::{
    self, ChunkKind, ClusterObjects, Encoded, Encoder, Heartbeat, Manifest, ReadError, WriteError,
    read_manifest, retire_orphans,
};
use tenon_snapshot::{ActionKind, Kube, KubeError, NodeAction, Note, ObjectKey, Precondition};
use tenon_table::{Consistency, Table, TableError};

use self::objects::observe_objects;
use crate::bell::{Bell, Ring, is_of_pods};
use crate::converge::{
    PodEviction, eviction_of_op, execute_op, note_of_op, note_of_owner, note_of_volumes, observe_holds,
    observe_view, read_actions,
};
use crate::decided::Decided;
use crate::deleted::{Owners, Tainted, find_deleted, taint_deleted};
use crate::drain::RefusedEvictions;
use crate::faces::news::{SentNews, with_pods_uids};
use crate::faces::{ShownObjects, execute_face, observe_shown, plan_faces};
use crate::freed::FreedNodes;
use crate::generation::{ClusterGenerations, Memory, lease_key};
use crate::hold::{CountingLaunches, ReplacementStage, holds};
use crate::nominate::{NominatedPods, OpeningNodes, PlannedPods, nominate, notes_of_nominations};
use crate::plan::plan_convergence;
use crate::pod_events::PodEvents;
use crate::volumes::Detaching;

/// How often a snapshot that doesn't change is confirmed: twice within the 90 s after which it is stale.
pub const HEARTBEAT_EVERY: SignedDuration = SignedDuration::from_secs(40);
/// How often the agent checks that the table still holds its snapshot. A heartbeat of a generation that a restore has
/// removed confirms nothing.
const TABLE_EVERY: SignedDuration = SignedDuration::from_secs(120);
/// How often actions are read without being rung: rings may be lost.
pub const ACTIONS_EVERY: SignedDuration = SignedDuration::from_secs(60);
/// Register, taint and delete follow each other in one step; more rounds than this wait for the next one.
const ROUNDS_OF_A_STEP: usize = 4;
/// The first look deletes an ended NodeClaim, the second removes its finalizer, the third finds nothing left to do.
const ROUNDS_OF_SHOWING: usize = 3;
/// How long until a failed write to Kubernetes is repeated.
const SHOWN_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// The agent of one cluster.
#[derive(Debug)]
pub struct Agent<K, T, B> {
    cluster: ClusterName,
    kube: Arc<K>,
    table: T,
    bell: B,
    encoder: Encoder,
    written: Option<LastWritten>,
    refused: RefusedEvictions,
    detaching: Detaching,
    reports: Vec<ActionReport>,
    unheard: Option<Ring>,
    held: BTreeSet<ChunkKind>,
    opening: OpeningNodes,
    counting: CountingLaunches,
    own_pod: Option<ObjectKey>,
    pods_left: FreedNodes,
    pod_times: PodEvents,
    drained: BTreeSet<String>,
    evictions: Vec<PodEviction>,
    decided: Decided,
    told: ToldNotes,
    sent: SentNews,
    /// The API server's version, asked as often as the table is looked at.
    kubernetes_version: Option<String>,
}

/// The agent's last known state of the table.
#[derive(Debug, Clone)]
struct LastWritten {
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

/// The result of a convergence.
#[derive(Debug, Clone)]
pub struct Converged {
    /// How far each action is; the next report carries them.
    pub reports: Vec<ActionReport>,
    /// When to run again, without being rung.
    pub next: Timestamp,
    /// The number of executed operations.
    pub operations: usize,
    /// Actions that can't be read: left alone, for a newer agent.
    pub unreadable: Vec<Unreadable>,
    /// Errors of failed writes to Kubernetes, which the next step repeats.
    pub unwritten: Vec<KubeError>,
}

/// Why a step failed. The next step starts over; nothing is lost.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The API server.
    #[error("a call to the API server failed")]
    Kube(#[from] KubeError),
    /// The snapshot wasn't written.
    #[error("can't report to the table")]
    Write(#[from] WriteError),
    /// The manifest wasn't read.
    #[error("can't read the manifest")]
    Read(#[from] ReadError),
    /// The actions weren't read.
    #[error("can't read the actions")]
    Actions(#[from] TableError),
}

impl<K: Kube, T: Table, B: Bell> Agent<K, T, B> {
    /// An agent that knows nothing yet: its first step finds out.
    pub fn new(cluster: ClusterName, kube: K, table: T, bell: B) -> Self {
        Self {
            cluster,
            kube: Arc::new(kube),
            table,
            bell,
            encoder: Encoder::default(),
            written: None,
            refused: RefusedEvictions::default(),
            detaching: Detaching::default(),
            reports: Vec::new(),
            unheard: None,
            held: BTreeSet::new(),
            opening: OpeningNodes::default(),
            counting: CountingLaunches::default(),
            own_pod: None,
            pods_left: FreedNodes::default(),
            pod_times: PodEvents::default(),
            drained: BTreeSet::new(),
            evictions: Vec::new(),
            decided: Decided::default(),
            told: ToldNotes::default(),
            sent: SentNews::default(),
            kubernetes_version: None,
        }
    }

    /// The agent that runs as this pod, which leaves an interrupted Node at once.
    #[must_use]
    pub fn running_as(mut self, pod: ObjectKey) -> Self {
        self.own_pod = Some(pod);
        self
    }

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
        let encoded = self.encoder.encode(&objects, known.manifest.as_ref(), now);
        let restored = known.generations.judge(known.manifest.as_ref()) == Memory::Restored;
        // Functions don't trust a time that hasn't come. It is of a clock that has been set since.
        let misdated =
            known.manifest.as_ref().is_some_and(|manifest| ahead(manifest.taken_at, now).is_some());
        let must_write = restored || misdated;
        if encoded.changed.is_empty() && known.manifest.is_some() && !must_write {
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
        self.write(encoded, known, ReportedChanges { burst, deletions, freed }, now).await
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

    /// Taints Nodes that are deleted, or whose owners are, without any service of AWS.
    ///
    /// # Errors [`AgentError::Kube`]; try again in a moment.
    pub async fn taint_deleted(&self) -> Result<Tainted, AgentError> {
        Ok(taint_deleted(&*self.kube).await?)
    }

    /// Reads all actions and applies them to the Nodes; then shows the functions' decisions in Kubernetes.
    ///
    /// # Errors [`AgentError`]; the next convergence starts over.
    pub async fn converge(&mut self, now: Timestamp) -> Result<Converged, AgentError> {
        let (actions, unreadable) = read_actions(&self.table, &self.cluster).await?;
        self.decided = std::mem::take(&mut self.decided).read(&self.table, &self.cluster).await?;
        let replacements = Arc::new(self.replacements(&actions, now).await?);
        self.drained = actions.iter().filter(|action| drains(action)).map(|a| a.claim.to_string()).collect();
        self.evictions.clear();
        let mut operations = 0;
        let latest = now.saturating_add(ACTIONS_EVERY).unwrap_or(Timestamp::MAX);
        let mut next = Some(latest);
        let mut unwritten = Vec::new();
        let (mut nominated, mut opened) = (NominatedPods::new(), BTreeMap::new());
        for _ in 0..ROUNDS_OF_A_STEP {
            let mut view = observe_view(&*self.kube, &actions, &self.refused).await?;
            self.refused.clone_from(&view.refused);
            let detaching = view.waits_for_volumes(&actions, now);
            for node in &detaching {
                self.tell(Some(note_of_volumes(&view, node)), now).await;
            }
            self.detaching.observe(detaching, now);
            view.detaching.clone_from(&self.detaching);
            let known = (actions.as_slice(), &replacements);
            view.holds = observe_holds(&*self.kube, &view, known, self.own_pod.as_ref()).await?;
            let planned = PlannedPods { kube: &*self.kube, table: &self.table, cluster: &self.cluster };
            view.kept_closed = self.opening.kept_closed(&planned, &view, &actions, now).await;
            let convergence = plan_convergence(&view, &actions, now);
            self.reports = convergence.reports;
            next = convergence.next;
            opened.extend(convergence.opening.iter().map(|(claim, node)| (node.clone(), claim.clone())));
            let mut waiting = self.opening.nominations(&planned, convergence.opening, &mut unwritten).await;
            let mut progressed = false;
            for op in &convergence.ops {
                if let Some((node, pods)) = op.node().and_then(|node| waiting.remove_entry(node)) {
                    nominate(&*self.kube, (node, pods), &mut nominated, &mut unwritten).await;
                }
                let outcome = execute_op(&*self.kube, op, &mut self.refused, now).await?;
                operations += 1;
                progressed |= outcome.progresses();
                self.evictions.extend(eviction_of_op(op, outcome));
                self.tell(note_of_op(op, outcome), now).await;
                self.tell(note_of_owner(op, outcome, &view), now).await;
            }
            for (node, pods) in waiting {
                nominate(&*self.kube, (node, pods), &mut nominated, &mut unwritten).await;
            }
            if !progressed {
                break;
            }
        }
        // Nodes that open come before words about them.
        for note in notes_of_nominations(&nominated, &opened) {
            self.tell(Some(note), now).await;
        }
        unwritten.extend(self.show(&actions, now).await?);
        if !unwritten.is_empty() {
            next = next.into_iter().chain(now.saturating_add(SHOWN_AGAIN).ok()).min();
        }
        // A lower bound: operations that wait for pods or budgets are planned again then.
        let floor = now.saturating_add(SignedDuration::from_millis(100)).unwrap_or(Timestamp::MAX);
        let next = next.unwrap_or(latest).clamp(floor, latest);
        Ok(Converged { reports: self.reports.clone(), next, operations, unreadable, unwritten })
    }

    /// How far the replacements of interrupted Nodes' pods are.
    async fn replacements(
        &mut self,
        actions: &[NodeAction],
        now: Timestamp,
    ) -> Result<BTreeMap<Uid, ReplacementStage>, AgentError> {
        let ends = actions.iter().filter(|action| holds(action)).filter_map(|action| action.deadline);
        let Some(first) = ends.filter(|end| now < *end).min() else { return Ok(BTreeMap::new()) };
        // A warning is at most [`NOTICE`] old, and a claim that was ready before it counts no pod of the Node.
        let since = first.saturating_sub(NOTICE).unwrap_or(now);
        Ok(self.counting.stages(&self.table, &self.cluster, &self.decided, since).await?)
    }

    /// Shows the functions' decisions in Kubernetes. A failed write doesn't stop the others.
    async fn show(&mut self, actions: &[NodeAction], now: Timestamp) -> Result<Vec<KubeError>, AgentError> {
        let mut unwritten = Vec::new();
        for _ in 0..ROUNDS_OF_SHOWING {
            let pod_times = self.pod_times.latest().clone();
            let shown = ShownObjects { pod_times, ..observe_shown(&*self.kube).await? };
            let faces = plan_faces(&self.decided, &shown, actions, now);
            for op in &faces.ops {
                if let Err(error) = execute_face(&*self.kube, op).await {
                    unwritten.push(error);
                }
            }
            for note in faces.notes {
                self.tell(Some(note), now).await;
            }
            for news in with_pods_uids(&*self.kube, self.sent.unsent(faces.news, now)).await {
                // Without an answer, the next look sends it again. A refused one would be refused again.
                if !matches!(self.kube.note(&news.note).await, Err(KubeError::Unavailable(_))) {
                    self.sent.sent(&news);
                }
            }
            if faces.ops.is_empty() || !unwritten.is_empty() {
                break;
            }
        }
        Ok(unwritten)
    }

    /// Sends an event, unless an equal one was sent recently. It is best effort.
    async fn tell(&mut self, note: Option<Note>, now: Timestamp) {
        if let Some(note) = note.filter(|note| self.told.tells(note, now)) {
            let _lost = self.kube.note(&note).await;
        }
    }
}

/// Whether the action drains the claim's Node.
const fn drains(action: &NodeAction) -> bool {
    match action.kind {
        ActionKind::Register | ActionKind::Initialize | ActionKind::Disrupt => false,
        ActionKind::Drain | ActionKind::Finalize => true,
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
