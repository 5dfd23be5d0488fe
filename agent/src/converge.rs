//! Reads actions, and executes the operations for them.
//!
//! Decides the meaning of each outcome: a conflict is planned again, a refusal waits, a missing object is done. It
//! keeps no state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::id::ClusterName;
use tenon_domain::snapshot::Unreadable;
use tenon_snapshot::{
    Action, ActionKind, Deletion, Eviction, Kind, Kube, KubeError, Note, NoteKind, ObjectKey, PodRef,
    Precondition, action,
};
use tenon_table::{Consistency, Query, SkRange, Table, TableError, query_all};

use crate::deleted::{Owners, find_deleted};
use crate::drain::{PodOp, Refused};
use crate::plan::{Op, View};

/// The actions of a cluster, by claim, and the unreadable ones.
///
/// # Errors
/// [`TableError`]: try again at the next step.
pub async fn read_actions<T: Table>(
    table: &T,
    cluster: &ClusterName,
) -> Result<(Vec<Action>, Vec<Unreadable>), TableError> {
    let prefix = SkRange::Prefix(action::PREFIX.to_owned());
    // Rung for an action, the agent must see it.
    let query = Query::new(action::partition(cluster), prefix, Consistency::Strong);
    let mut actions = Vec::new();
    let mut unreadable = Vec::new();
    for (key, item) in query_all(table, &query).await? {
        match Action::from_item(&item) {
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
    actions: &[Action],
    refused: &Refused,
) -> Result<View, KubeError> {
    if actions.is_empty() {
        return Ok(View::default());
    }
    let nodes = kube.list(Kind::Node).await?;
    let owners = Owners::observe(kube).await?;
    let deleted = find_deleted(&nodes, &owners).nodes;
    let mut pods: BTreeMap<String, Vec<PodRef>> = BTreeMap::new();
    let mut refused = refused.clone();
    if actions.iter().any(|action| action.kind == ActionKind::Drain) {
        let all = kube.pods().await?;
        let uids: BTreeSet<&str> = all.iter().map(|pod| pod.uid.as_str()).collect();
        refused.retain(|uid| uids.contains(uid));
        for pod in &all {
            if let Some(node) = &pod.node {
                pods.entry(node.clone()).or_default().push(Arc::clone(pod));
            }
        }
    }
    Ok(View { nodes, claims: owners.claims, deleted, pods, refused })
}

/// The result of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done: planning again may find more to do.
    Done,
    /// An object changed after planning, or a budget refused: the next step plans again.
    Waits,
}

/// Executes one operation. The next step plans again what isn't possible now.
///
/// # Errors [`KubeError`] if the API server gives no answer, or refuses permanently.
pub async fn execute_op<K: Kube>(
    kube: &K,
    op: &Op,
    refused: &mut Refused,
    now: Timestamp,
) -> Result<Outcome, KubeError> {
    let done = match op {
        Op::Patch { node, version, patch } => {
            let precondition = Precondition::ResourceVersion(version.clone());
            kube.patch(&ObjectKey::node(node.as_str()), patch, &precondition).await.map(|_| Outcome::Done)
        }
        Op::Delete { node, uid } => {
            kube.delete(&ObjectKey::node(node.as_str()), uid, None).await.map(deleted)
        }
        Op::Pod(PodOp::Delete { pod, uid, grace_seconds }) => {
            kube.delete(pod, uid, Some(*grace_seconds)).await.map(deleted)
        }
        Op::Pod(PodOp::Evict { pod, uid }) => match kube.evict(pod, uid).await {
            Ok(Eviction::Evicted | Eviction::NotFound | Eviction::Conflict) => {
                refused.forget(uid);
                Ok(Outcome::Done)
            }
            Ok(Eviction::TooManyRequests { .. }) => {
                refused.observe_refusal(uid, now);
                Ok(Outcome::Waits)
            }
            Err(error) => Err(error),
        },
    };
    match done {
        // Another writer was faster, or the object doesn't exist: the next look shows it.
        Err(KubeError::Conflict { .. } | KubeError::NotFound { .. }) => Ok(Outcome::Waits),
        other => other,
    }
}

/// The event of an operation, with the peer's reasons.
#[must_use]
pub fn note_of_op(op: &Op, outcome: Outcome) -> Option<Note> {
    let note = |about: &ObjectKey, uid: &str, kind, reason: &str, message: &str| {
        let (about, uid) = (about.clone(), uid.to_owned());
        Some(Note { about, uid, kind, reason: reason.to_owned(), message: message.to_owned() })
    };
    match (op, outcome) {
        (Op::Pod(PodOp::Evict { pod, uid }), Outcome::Done) => {
            note(pod, uid, NoteKind::Normal, "Evicted", "evicted to drain its node")
        }
        (Op::Pod(PodOp::Evict { pod, uid }), Outcome::Waits) => note(
            pod,
            uid,
            NoteKind::Warning,
            "FailedDraining",
            "a PodDisruptionBudget forbids its eviction now",
        ),
        (Op::Pod(PodOp::Delete { pod, uid, .. }), Outcome::Done) => {
            let message =
                "deleted without asking its PodDisruptionBudgets: the drain's deadline leaves no more time";
            note(pod, uid, NoteKind::Normal, "Disrupted", message)
        }
        (Op::Pod(PodOp::Delete { .. }) | Op::Patch { .. } | Op::Delete { .. }, _) => None,
    }
}

/// Deleted, or being deleted: both satisfy the operation.
const fn deleted(deletion: Deletion) -> Outcome {
    match deletion {
        Deletion::Accepted | Deletion::NotFound => Outcome::Done,
    }
}
