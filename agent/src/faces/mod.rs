//! The functions' decisions in Kubernetes: statuses of NodePools, EC2NodeClasses and NodeClaims, and the NodeClaims
//! themselves.
//!
//! Decides which objects to create, which statuses to apply, which objects to delete, and the events about them, for
//! one moment. It decides nothing about claims. A second plan, of the resulting objects, is empty.
//!
//! Invariants: a NodeClaim that Tenon didn't create isn't changed; ours stay until their instance is terminated; an
//! unchanged status isn't written again.

mod class_end;
mod conditions;
pub mod news;
mod node_claim;
mod notes;
mod ops;
mod statuses;
mod told;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::journal::SubjectKind;
use tenon_domain::labels;
use tenon_snapshot::object::{self, Kind, Object, text};
use tenon_snapshot::{Kube, KubeError, NodeAction, Note};

use self::news::News;
use self::node_claim::NodeOfClaim;
use self::ops::{changed_hash, changed_pool_hash, changed_status, delete, released, with_status};
use self::statuses::{class_status, pool_status};
use crate::decided::Decided;

pub(crate) use node_claim::is_owned_by_pool;
pub use notes::note_of_failure;
pub use ops::{FaceOp, execute_face};

/// Annotation of a NodeClaim that Tenon made: the launch that it came from.
pub const LAUNCH_ANNOTATION: &str = "tenon.dev/launch";

/// The objects in Kubernetes.
#[derive(Debug, Clone, Default)]
pub struct ShownObjects {
    /// NodePools.
    pub pools: Vec<Object>,
    /// EC2NodeClasses.
    pub classes: Vec<Object>,
    /// NodeClaims.
    pub claims: Vec<Object>,
    /// Nodes.
    pub nodes: Vec<Object>,
    /// When a pod last came to each Node or left it, as far as that is known.
    pub pod_times: BTreeMap<String, Timestamp>,
}

/// The operations, and the events after them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faces {
    /// Operations, in order.
    pub ops: Vec<FaceOp>,
    /// The events.
    pub notes: Vec<Note>,
    /// Events of findings, sent or not.
    pub news: Vec<News>,
}

/// Reads the objects in Kubernetes; of pods nothing.
///
/// # Errors [`KubeError`]: try again at the next step.
pub async fn observe_shown<K: Kube>(kube: &K) -> Result<ShownObjects, KubeError> {
    Ok(ShownObjects {
        pools: list(kube, Kind::NodePool).await?,
        classes: list(kube, Kind::Ec2NodeClass).await?,
        claims: list(kube, Kind::NodeClaim).await?,
        nodes: list(kube, Kind::Node).await?,
        pod_times: BTreeMap::new(),
    })
}

/// The objects of a kind; empty if its CRD isn't installed.
pub(crate) async fn list<K: Kube>(kube: &K, kind: Kind) -> Result<Vec<Object>, KubeError> {
    match kube.list(kind).await {
        Err(KubeError::UnknownKind { .. }) => Ok(Vec::new()),
        other => other,
    }
}

/// Plans the objects in Kubernetes.
#[must_use]
pub fn plan_faces(decided: &Decided, shown: &ShownObjects, actions: &[NodeAction], now: Timestamp) -> Faces {
    let mut faces = Faces { news: told::news(decided), ..Faces::default() };
    for object in &shown.pools {
        let name = object::name(object);
        let pool = decided.pools.iter().find(|pool| pool.name.as_str() == name);
        let observed = class_of(object, decided).map(|class| class.generation);
        let status = pool.map(|pool| pool_status(pool, observed));
        let status = with_told(status, decided, SubjectKind::Pool, object);
        faces.ops.extend(status.and_then(|status| changed_status(object, status)));
        faces.ops.extend(changed_pool_hash(object));
    }
    for object in &shown.classes {
        let name = object::name(object);
        let class = decided.classes.iter().find(|class| class.name.as_str() == name);
        // The status of a class that was deleted says nothing of one that was made anew.
        let is_of = |class: &&ClassStatus| {
            class.uid.as_ref().is_none_or(|known| known.as_str() == object::uid(object))
        };
        let class = class.filter(is_of);
        let waiting = class_end::plan_class_end(object, decided, shown, now, &mut faces);
        let mut status = with_told(class.map(class_status), decided, SubjectKind::Class, object);
        let conditions = status.as_mut().and_then(|status| status.get_mut("conditions")?.as_array_mut());
        if let (Some(waiting), Some(conditions)) = (waiting, conditions) {
            conditions.push(waiting);
        }
        faces.ops.extend(status.and_then(|status| changed_status(object, status)));
        faces.ops.extend(class.and_then(|class| changed_hash(object, class)));
    }
    let actions: BTreeMap<&str, &NodeAction> =
        actions.iter().map(|action| (action.claim.as_str(), action)).collect();
    let objects: BTreeMap<&str, &Object> =
        shown.claims.iter().map(|claim| (object::name(claim), claim)).collect();
    let nodes = NodesByProvider::new(&shown.nodes);
    let seen = |claim: &Claim| {
        let node = nodes.of(claim);
        // EKS gives a Node's name to a later one with its address.
        let is_of = |node: &Value, at: &Timestamp| {
            object::time(node, "/metadata/creationTimestamp").is_none_or(|born| *at >= born)
        };
        let pod_event = node
            .and_then(|node| shown.pod_times.get(object::name(node)).copied().filter(|at| is_of(node, at)));
        NodeOfClaim { object: node, pod_event }
    };
    for claim in decided.claims.values() {
        let name = claim.name.as_str();
        let pool = shown.pools.iter().find(|pool| object::name(pool) == claim.pool.as_str());
        let pool = pool.map(|pool| &**pool);
        match (objects.get(name), actions.get(name)) {
            (Some(object), _) => {
                let node = seen(claim);
                let status = Some(node_claim::status(claim, object, node, pool, now));
                let status = with_told(status, decided, SubjectKind::Claim, object);
                plan_claim(claim, object, pool, (node.object, status.unwrap_or_default()), &mut faces);
            }
            // Its labels are the action's, which comes right after its launch.
            (None, Some(action)) if claim.phase().has_instance() => {
                let made = node_claim::object(claim, action, pool);
                let status = node_claim::status(claim, &made, seen(claim), pool, now);
                faces.notes.extend(notes::launched(claim));
                faces.ops.push(FaceOp::Create(made));
                faces.ops.push(FaceOp::Status(with_status(Kind::NodeClaim, name, status)));
            }
            (None, _) => faces.notes.extend(note_of_failure(claim, now)),
        }
    }
    for object in shown.claims.iter().filter(|object| is_ours(object)) {
        let claim = decided.claims.get(object::name(object));
        // A claim that the table doesn't have, or of whose instance a restored table doesn't know: its object is
        // released with the last Node, or when the user deletes it.
        let has_instance = claim.is_some_and(|claim| claim.phase() > ClaimPhase::LaunchFailed);
        if !has_instance && (object::deleted_at(object).is_some() || !nodes.has(object)) {
            plan_end(object, &mut faces);
        }
    }
    name_objects(&mut faces.news, shown);
    faces
}

/// Gives Events the UID of their object: `kubectl describe` finds them by it.
fn name_objects(news: &mut [News], shown: &ShownObjects) {
    let all = [
        (Kind::NodePool, &shown.pools),
        (Kind::Ec2NodeClass, &shown.classes),
        (Kind::NodeClaim, &shown.claims),
        (Kind::Node, &shown.nodes),
    ];
    let objects = all.iter().flat_map(|(kind, objects)| objects.iter().map(|object| (*kind, object)));
    let uids: BTreeMap<(Kind, &str), &str> =
        objects.map(|(kind, object)| ((kind, object::name(object)), object::uid(object))).collect();
    for note in news.iter_mut().map(|news| &mut news.note).filter(|note| note.uid.is_empty()) {
        let uid = uids.get(&(note.about.kind, note.about.name.as_str()));
        note.uid = uid.copied().unwrap_or_default().to_owned();
    }
}

/// A status with the conditions of findings about the object; `None` without a status and without findings.
fn with_told(status: Option<Value>, decided: &Decided, kind: SubjectKind, object: &Value) -> Option<Value> {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_u64).unwrap_or_default();
    let decides = status.is_some();
    let mut status = status.unwrap_or_else(|| json!({}));
    let conditions = object::list(&status, "/conditions").to_vec();
    let about = told::FindingSubject { kind, name: object::name(object), generation };
    let conditions = told::with_told(conditions, &decided.told, about);
    if conditions.is_empty() && !decides {
        return None;
    }
    status.as_object_mut()?.insert("conditions".to_owned(), Value::Array(conditions));
    Some(status)
}

fn plan_claim(
    claim: &Claim,
    object: &Object,
    pool: Option<&Value>,
    (node, status): (Option<&Value>, Value),
    faces: &mut Faces,
) {
    if !is_ours(object) {
        return;
    }
    faces.ops.extend(node_claim::owned(object, pool));
    match claim.phase() {
        ClaimPhase::Planned | ClaimPhase::LaunchFailed => {}
        ClaimPhase::Terminated => plan_end(object, faces),
        ClaimPhase::Launched
        | ClaimPhase::Registered
        | ClaimPhase::Initialized
        | ClaimPhase::Disrupting
        | ClaimPhase::Draining
        | ClaimPhase::Drained
        | ClaimPhase::Terminating => {
            faces.notes.extend(notes::transitions(claim, object, &status));
            faces.news.extend(notes::announced(claim, object, node));
            faces.ops.extend(changed_status(object, status));
            faces.ops.extend(node_claim::shown_deadline(claim, object));
            if claim.state.removal().is_some() && object::deleted_at(object).is_none() {
                faces.notes.extend(notes::removal(claim, object, node));
                faces.ops.push(delete(object));
            }
        }
    }
}

/// Deletes a NodeClaim; a later look removes its finalizer.
fn plan_end(object: &Object, faces: &mut Faces) {
    if object::deleted_at(object).is_none() {
        faces.ops.push(delete(object));
    } else {
        faces.ops.extend(released(object, labels::TERMINATION_FINALIZER));
    }
}

/// Whether Tenon made a NodeClaim.
pub(crate) fn is_ours(object: &Value) -> bool {
    object::texts(object, "/metadata/annotations").any(|(key, _)| key == LAUNCH_ANNOTATION)
}

/// Nodes by their providerID.
struct NodesByProvider<'a>(BTreeMap<&'a str, &'a Object>);

impl<'a> NodesByProvider<'a> {
    fn new(nodes: &'a [Object]) -> Self {
        Self(nodes.iter().filter_map(|node| Some((text(node, "/spec/providerID")?, node))).collect())
    }

    fn of(&self, claim: &Claim) -> Option<&'a Value> {
        let id = node_claim::provider_id(claim)?;
        self.0.get(id.as_str()).map(|node| &***node)
    }

    fn has(&self, object: &Value) -> bool {
        text(object, "/status/providerID").is_some_and(|id| self.0.contains_key(id))
    }
}

/// The class that a NodePool names, as the functions resolved it last.
fn class_of<'a>(pool: &Value, decided: &'a Decided) -> Option<&'a ClassStatus> {
    let name = meant_class(pool, "/spec/template/spec")?;
    decided.classes.iter().find(|class| class.name.as_str() == name)
}

/// The EC2NodeClass that the `nodeClassRef` of a spec means. A class of another API, such as EKS Auto Mode's, may have the
/// same name.
fn meant_class<'a>(object: &'a Value, spec: &str) -> Option<&'a str> {
    let meant = object::at(object, spec)?.get("nodeClassRef")?;
    let is_ours = text(meant, "/group") == Some(labels::PROVIDER_DOMAIN)
        && text(meant, "/kind") == Some(Kind::Ec2NodeClass.as_str());
    text(meant, "/name").filter(|_| is_ours)
}

#[cfg(test)]
mod tests;
