//! Reads actions, and executes the operations for them.
//!
//! Decides the meaning of each outcome: a conflict is planned again, a refusal waits, a missing object is done. It
//! keeps no state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use tenon_domain::id::{ClusterName, Uid};
use tenon_domain::snapshot::Unreadable;
use tenon_domain::taint::UNREGISTERED;
use tenon_snapshot::{
    ActionKind, Deletion, Eviction, Kind, Kube, KubeError, NodeAction, Note, NoteKind, Object, ObjectKey,
    PodRef, Precondition, action, object,
};
use tenon_table::{Consistency, Query, SkRange, Table, TableError, query_all};

use crate::deleted::{Owners, find_deleted};
use crate::drain::{PodOp, RefusedEvictions};
use crate::hold::{HeldPods, InterruptedNode, ReplacementStage, budgets, covers, holds, leave_at_once};
use crate::plan::{Op, View, find_node};
use crate::volumes::Attachments;

/// The actions of a cluster, by claim, and the unreadable ones.
///
/// # Errors
/// [`TableError`]: try again at the next step.
pub async fn read_actions<T: Table>(
    table: &T,
    cluster: &ClusterName,
) -> Result<(Vec<NodeAction>, Vec<Unreadable>), TableError> {
    let prefix = SkRange::Prefix(action::PREFIX.to_owned());
    // Rung for an action, the agent must see it.
    let query = Query::new(action::partition(cluster), prefix, Consistency::Strong);
    let mut actions = Vec::new();
    let mut unreadable = Vec::new();
    for (key, item) in query_all(table, &query).await? {
        match NodeAction::from_item(&item) {
            Ok(action) => actions.push(action),
            Err(error) => unreadable.push(Unreadable {
                kind: "Action".to_owned(),
                name: key.sk,
                errors: vec![error.to_string()],
            }),
        }
    }
    Ok((actions, unreadable))
}

/// The objects that the actions need; pods only for a drain.
///
/// # Errors [`KubeError`]: try again at the next step.
pub async fn observe_view<K: Kube>(
    kube: &K,
    actions: &[NodeAction],
    refused: &RefusedEvictions,
) -> Result<View, KubeError> {
    if actions.is_empty() {
        return Ok(View::default());
    }
    let nodes = kube.list(Kind::Node).await?;
    let owners = Owners::observe(kube).await?;
    let deleted = find_deleted(&nodes, &owners).nodes;
    let registers = |action: &NodeAction| match action.kind {
        ActionKind::Register | ActionKind::Initialize => true,
        ActionKind::Disrupt | ActionKind::Drain | ActionKind::Finalize => false,
    };
    let daemon_sets =
        if actions.iter().any(registers) { kube.list(Kind::DaemonSet).await? } else { Vec::new() };
    let mut pods: BTreeMap<String, Vec<PodRef>> = BTreeMap::new();
    let mut refused = refused.clone();
    let mut attachments = Attachments::default();
    if actions.iter().any(|action| action.kind == ActionKind::Drain) {
        let all = kube.pods().await?;
        let uids: BTreeSet<&str> = all.iter().map(|pod| pod.uid.as_str()).collect();
        refused.retain(|uid| uids.contains(uid));
        for pod in &all {
            if let Some(node) = &pod.node {
                pods.entry(node.clone()).or_default().push(Arc::clone(pod));
            }
        }
        attachments = Attachments::observe(kube).await?;
    }
    let budgets = if refused.is_stuck() { budgets(kube).await? } else { Vec::new() };
    // Only the pods of a stuck drain: each is read anew.
    let stuck = pods.values().flatten().filter(|pod| refused.stays_refused(&pod.uid));
    let guarded = stuck.filter(|pod| budgets.iter().any(|budget| covers(budget, pod)));
    let guarded: Vec<String> = guarded.map(|pod| pod.uid.clone()).collect();
    guarded.iter().for_each(|uid| refused.observe_guard(uid));
    let claims = owners.claims;
    let rest = View::default();
    Ok(View { nodes, claims, deleted, daemon_sets, pods, refused, budgets, attachments, ..rest })
}

/// Which pods of interrupted Nodes stay for now.
///
/// # Errors [`KubeError`]: try again at the next step.
pub async fn observe_holds<K: Kube>(
    kube: &K,
    view: &View,
    (actions, replacements): (&[NodeAction], &Arc<BTreeMap<Uid, ReplacementStage>>),
    own_pod: Option<&ObjectKey>,
) -> Result<HeldPods, KubeError> {
    let interrupted = actions.iter().filter(|action| holds(action));
    let nodes: Vec<InterruptedNode<'_>> = interrupted
        .filter_map(|action| {
            let node = find_node(view, action)?;
            Some(InterruptedNode { node, pods: view.pods.get(object::name(node))? })
        })
        .collect();
    let at_once =
        if nodes.is_empty() { BTreeSet::new() } else { leave_at_once(kube, &nodes, own_pod).await? };
    Ok(HeldPods { replacements: Arc::clone(replacements), at_once, ..HeldPods::default() })
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationOutcome {
    /// Done: planning again may find more to do.
    Done,
    /// An object changed after planning: the next step plans again.
    Waits,
    /// It was an eviction, with this answer.
    Eviction(EvictionAnswer),
}

/// The API server's answer to an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionAnswer {
    /// The pod is terminating.
    Evicted,
    /// The pod didn't exist, or another one has its name.
    Gone(GonePod),
    /// A PodDisruptionBudget refused.
    Refused,
}

/// Why a pod to evict wasn't there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GonePod {
    /// There is no pod of that name.
    NotFound,
    /// There is one with another UID.
    Conflict,
}

/// An answered eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEviction {
    /// Which pod.
    pub pod: ObjectKey,
    /// The answer.
    pub answer: EvictionAnswer,
}

impl OperationOutcome {
    /// Whether planning again may find more to do.
    #[must_use]
    pub const fn progresses(self) -> bool {
        match self {
            Self::Done | Self::Eviction(EvictionAnswer::Evicted | EvictionAnswer::Gone(_)) => true,
            Self::Waits | Self::Eviction(EvictionAnswer::Refused) => false,
        }
    }
}

/// The eviction of an operation, if it was one that the API server answered.
#[must_use]
pub fn eviction_of_op(op: &Op, outcome: OperationOutcome) -> Option<PodEviction> {
    match (op, outcome) {
        (Op::Pod(PodOp::Evict { pod, .. }), OperationOutcome::Eviction(answer)) => {
            Some(PodEviction { pod: pod.clone(), answer })
        }
        (Op::Pod(_) | Op::Patch { .. } | Op::Delete { .. }, _) => None,
    }
}

/// Executes one operation. The next step plans again what isn't possible now.
///
/// # Errors [`KubeError`] if the API server gives no answer, or refuses permanently.
pub async fn execute_op<K: Kube>(
    kube: &K,
    op: &Op,
    refused: &mut RefusedEvictions,
    now: Timestamp,
) -> Result<OperationOutcome, KubeError> {
    let done = match op {
        Op::Patch { node, version, patch } => {
            let precondition = Precondition::ResourceVersion(version.clone());
            kube.patch(&ObjectKey::node(node.as_str()), patch, &precondition)
                .await
                .map(|_| OperationOutcome::Done)
        }
        Op::Delete { node, uid } => {
            kube.delete(&ObjectKey::node(node.as_str()), uid, None).await.map(deleted)
        }
        Op::Pod(PodOp::Delete { pod, uid, grace_seconds }) => {
            kube.delete(pod, uid, Some(*grace_seconds)).await.map(deleted)
        }
        Op::Pod(PodOp::Evict { pod, uid }) => kube.evict(pod, uid).await.map(|eviction| {
            let answer = answer_of(&eviction);
            match answer {
                EvictionAnswer::Evicted | EvictionAnswer::Gone(_) => refused.forget(uid),
                EvictionAnswer::Refused => refused.observe_refusal(uid, now),
            }
            OperationOutcome::Eviction(answer)
        }),
    };
    match done {
        // Another writer was faster, or the object doesn't exist: the next look shows it.
        Err(KubeError::Conflict { .. } | KubeError::NotFound { .. }) => Ok(OperationOutcome::Waits),
        other => other,
    }
}

const fn answer_of(eviction: &Eviction) -> EvictionAnswer {
    match eviction {
        Eviction::Evicted => EvictionAnswer::Evicted,
        Eviction::NotFound => EvictionAnswer::Gone(GonePod::NotFound),
        Eviction::Conflict => EvictionAnswer::Gone(GonePod::Conflict),
        Eviction::TooManyRequests { .. } => EvictionAnswer::Refused,
    }
}

/// The event of an operation, with the peer's reasons.
#[must_use]
pub fn note_of_op(op: &Op, outcome: OperationOutcome) -> Option<Note> {
    let note = |about: &ObjectKey, uid: &str, kind, reason: &str, message: &str| {
        let (about, uid) = (about.clone(), uid.to_owned());
        Some(Note { about, uid, kind, reason: reason.to_owned(), message: message.to_owned() })
    };
    match (op, outcome) {
        (Op::Pod(PodOp::Evict { pod, uid }), _) if outcome.progresses() => {
            note(pod, uid, NoteKind::Normal, "Evicted", "evicted the pod to drain its node")
        }
        (Op::Pod(PodOp::Evict { pod, uid }), _) => note(
            pod,
            uid,
            NoteKind::Warning,
            "FailedDraining",
            "not evicting the pod now: a PodDisruptionBudget doesn't allow it: make its other pods Ready, or add replicas",
        ),
        (Op::Pod(PodOp::Delete { pod, uid, .. }), OperationOutcome::Done) => {
            let message = "deleted the pod despite its PodDisruptionBudgets: the drain's deadline is near";
            note(pod, uid, NoteKind::Normal, "Disrupted", message)
        }
        (Op::Pod(PodOp::Delete { .. }) | Op::Patch { .. } | Op::Delete { .. }, _) => None,
    }
}

/// The event of a Node or a NodeClaim about an operation, with the peer's reasons: a refused eviction holds the Node's
/// drain, and a Node that joined without the taint that keeps pods off it may have pods already.
#[must_use]
pub fn note_of_owner(op: &Op, outcome: OperationOutcome, view: &View) -> Option<Note> {
    match (op, outcome) {
        (Op::Pod(PodOp::Evict { pod, uid }), OperationOutcome::Eviction(EvictionAnswer::Refused)) => {
            let (node, _) = view.pods.iter().find(|(_, pods)| pods.iter().any(|one| one.uid == *uid))?;
            let (namespace, name) = (&pod.namespace, &pod.name);
            let message = format!(
                "not evicting pod `{namespace}/{name}` now: a PodDisruptionBudget doesn't allow it: make its other pods \
                 Ready, or add replicas"
            );
            Some(note_of_node(view, node, (NoteKind::Warning, "FailedDraining"), message))
        }
        (Op::Patch { node, patch, .. }, OperationOutcome::Done) => {
            unregistered_taint_missing(view, node, patch)
        }
        (Op::Pod(_) | Op::Patch { .. } | Op::Delete { .. }, _) => None,
    }
}

/// The event of a drained Node whose volumes are still attached.
#[must_use]
pub fn note_of_volumes(view: &View, node: &str) -> Note {
    let message = "no pod is left to evict, and the volumes of its pods are still attached".to_owned();
    note_of_node(view, node, (NoteKind::Normal, "AwaitingVolumeDetachment"), message)
}

fn note_of_node(view: &View, node: &str, (kind, reason): (NoteKind, &str), message: String) -> Note {
    let uid = find_named(view, node).map_or("", |node| object::uid(node)).to_owned();
    Note { about: ObjectKey::node(node), uid, kind, reason: reason.to_owned(), message }
}

fn find_named<'a>(view: &'a View, node: &str) -> Option<&'a Object> {
    view.nodes.iter().find(|one| object::name(one) == node)
}

/// The event of a NodeClaim whose Node this patch registers, if the Node joined without `karpenter.sh/unregistered`.
fn unregistered_taint_missing(view: &View, node: &str, patch: &Value) -> Option<Note> {
    object::text(patch, "/metadata/labels/karpenter.sh~1registered")?;
    let claim = object::text(patch, "/metadata/annotations/tenon.dev~1nodeclaim")?;
    if object::taints(find_named(view, node)?).iter().any(|taint| taint.key == UNREGISTERED) {
        return None;
    }
    Some(Note {
        about: ObjectKey::new(Kind::NodeClaim, "", claim),
        uid: view.claims.get(claim).map_or("", |claim| object::uid(claim)).to_owned(),
        kind: NoteKind::Warning,
        reason: "UnregisteredTaintMissing".to_owned(),
        message: format!(
            "Node `{node}` joined without the taint `{UNREGISTERED}`, so pods may have come to it before its NodePool's \
             taints: let its user data set it"
        ),
    })
}

/// Deleted, or being deleted: both satisfy the operation.
const fn deleted(deletion: Deletion) -> OperationOutcome {
    match deletion {
        Deletion::Accepted | Deletion::NotFound => OperationOutcome::Done,
    }
}
