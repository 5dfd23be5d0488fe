//! The agent's steps: report the cluster, apply the actions.
//!
//! Decides the order of writes. Its memory only saves work: a new agent finds the same in the table and in the
//! cluster.

mod account;
mod objects;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{ClusterName, Uid};
use tenon_domain::snapshot::{ActionReport, Unreadable};
use tenon_domain::wake::NOTICE;
use tenon_snapshot::note::ToldNotes;
use tenon_snapshot::snapshot::{ChunkKind, Encoder, ReadError, WriteError};
use tenon_snapshot::{ActionKind, Kube, KubeError, NodeAction, Note, ObjectKey};
use tenon_table::{Table, TableError};

use self::report::LastWritten;
use crate::awaited::Awaited;
use crate::bell::{Bell, Ring};
use crate::converge::{
    PodEviction, eviction_of_op, execute_op, note_of_op, note_of_owner, note_of_volumes, observe_holds,
    observe_view, read_actions,
};
use crate::decided::Decided;
use crate::deleted::{Tainted, taint_deleted};
use crate::drain::RefusedEvictions;
use crate::faces::news::{SentNews, with_pods_uids};
use crate::faces::{ShownObjects, execute_face, observe_shown, plan_faces};
use crate::freed::FreedNodes;
use crate::hold::{CountingLaunches, ReplacementStage, holds, warned};
use crate::nominate::{NominatedPods, OpeningNodes, PlannedPods, nominate, notes_of_nominations};
use crate::plan::plan_convergence;
use crate::pod_events::{PodEvents, ReportedClaims};
use crate::volumes::Detaching;

pub use self::report::{Burst, Reported};

/// How often a snapshot that doesn't change is confirmed: twice within the 90 s after which it is stale.
pub const HEARTBEAT_EVERY: SignedDuration = SignedDuration::from_secs(40);
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
    claims: ReportedClaims,
    drained: BTreeSet<String>,
    evictions: Vec<PodEviction>,
    decided: Decided,
    told: ToldNotes,
    sent: SentNews,
    /// The API server's version, asked as often as the table is looked at.
    kubernetes_version: Option<String>,
}

/// The result of a convergence.
#[derive(Debug, Clone)]
pub struct Converged {
    /// How far each action is; the next report carries them.
    pub reports: Vec<ActionReport>,
    /// The changes of the cluster that actions wait for.
    pub awaited: Awaited,
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
            claims: ReportedClaims::default(),
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
        let (mut next, mut awaited) = (Some(latest), Awaited::Nothing);
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
            view.holds.warned = warned(&self.decided);
            let planned = PlannedPods { kube: &*self.kube, table: &self.table, cluster: &self.cluster };
            view.kept_closed = self.opening.kept_closed(&planned, &view, &actions, now).await;
            let convergence = plan_convergence(&view, &actions, now);
            self.reports = convergence.reports;
            (next, awaited) = (convergence.next, convergence.awaited);
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
        Ok(Converged { reports: self.reports.clone(), awaited, next, operations, unreadable, unwritten })
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
