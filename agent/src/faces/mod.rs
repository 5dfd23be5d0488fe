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
mod told;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenon_domain::api::node_class::InstanceProfile;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::class_hash::PoolHash;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::journal::SubjectKind;
use tenon_domain::labels;
use tenon_domain::manifest::{self, ManifestObject};
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::reservation::ClassReservation;
use tenon_domain::resources::ResourceList;
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use tenon_snapshot::{Kube, KubeError, NodeAction, Note, Precondition};

use self::news::News;
use self::node_claim::NodeOfClaim;
use crate::decided::Decided;

pub use notes::note_of_failure;

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

/// One operation.
#[derive(Debug, Clone, PartialEq)]
pub enum FaceOp {
    /// Applies a status.
    Status(Value),
    /// Sets annotations, and leaves others alone.
    Annotate {
        /// Of which object.
        key: ObjectKey,
        /// The annotations.
        annotations: Map<String, Value>,
    },
    /// Makes a NodeClaim.
    Create(Value),
    /// Deletes a NodeClaim: our finalizer holds it.
    Delete(ObjectKey, String),
    /// Sets or removes our finalizer.
    Finalizers {
        /// Which.
        key: ObjectKey,
        /// The object's version at planning.
        version: String,
        /// All finalizers then.
        finalizers: Vec<Value>,
    },
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
                plan_claim(claim, object, (node.object, status.unwrap_or_default()), &mut faces);
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

fn plan_claim(claim: &Claim, object: &Object, (node, status): (Option<&Value>, Value), faces: &mut Faces) {
    if !is_ours(object) {
        return;
    }
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

/// The operation that adds a finalizer, where it is missing.
fn with_finalizer(object: &Value, ours: &str) -> Option<FaceOp> {
    let known = object::list(object, "/metadata/finalizers");
    let is_missing = known.iter().all(|finalizer| finalizer != ours);
    let all = || known.iter().cloned().chain([json!(ours)]).collect();
    is_missing.then(all).and_then(|finalizers| finalizers_op(object, finalizers))
}

/// The operation that removes a finalizer, where it is there.
fn released(object: &Value, ours: &str) -> Option<FaceOp> {
    let known = object::list(object, "/metadata/finalizers");
    let others: Vec<Value> = known.iter().filter(|finalizer| *finalizer != ours).cloned().collect();
    let is_there = others.len() < known.len();
    is_there.then_some(others).and_then(|finalizers| finalizers_op(object, finalizers))
}

fn finalizers_op(object: &Value, finalizers: Vec<Value>) -> Option<FaceOp> {
    let kind = Kind::parse(text(object, "/kind")?)?;
    Some(FaceOp::Finalizers {
        key: ObjectKey::new(kind, "", object::name(object)),
        version: text(object, "/metadata/resourceVersion").unwrap_or_default().to_owned(),
        finalizers,
    })
}

fn delete(object: &Value) -> FaceOp {
    let key = ObjectKey::new(Kind::NodeClaim, "", object::name(object));
    FaceOp::Delete(key, object::uid(object).to_owned())
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

/// The operation that shows a status, where it isn't shown.
fn changed_status(object: &Value, status: Value) -> Option<FaceOp> {
    let kind = Kind::parse(text(object, "/kind")?)?;
    let name = object::name(object);
    let known = object.get("status").cloned().unwrap_or(Value::Null);
    (in_order(known) != in_order(status.clone())).then(|| FaceOp::Status(with_status(kind, name, status)))
}

/// The class that a NodePool names, as the functions resolved it last.
fn class_of<'a>(pool: &Value, decided: &'a Decided) -> Option<&'a ClassStatus> {
    let name = text(pool, "/spec/template/spec/nodeClassRef/name")?;
    decided.classes.iter().find(|class| class.name.as_str() == name)
}

/// The operation that annotates a NodePool with the hash of its template, where it isn't.
fn changed_pool_hash(object: &Value) -> Option<FaceOp> {
    let Ok(ManifestObject::NodePool(pool)) = manifest::read_stored(object) else { return None };
    annotated(object, Kind::NodePool, PoolHash::of(&pool.template).annotations())
}

/// The operation that annotates a class with the hash of its spec, where it isn't. The hash of an older spec isn't shown.
fn changed_hash(object: &Value, class: &ClassStatus) -> Option<FaceOp> {
    let generation = object::at(object, "/metadata/generation").and_then(Value::as_u64);
    let annotations = class.hash.filter(|_| generation == Some(class.generation))?.annotations();
    annotated(object, Kind::Ec2NodeClass, annotations)
}

/// The operation that sets annotations, where they aren't set.
fn annotated(object: &Value, kind: Kind, annotations: [(&'static str, String); 2]) -> Option<FaceOp> {
    let shown: BTreeMap<&str, &str> = object::texts(object, "/metadata/annotations").collect();
    if annotations.iter().all(|(key, value)| shown.get(key) == Some(&value.as_str())) {
        return None;
    }
    let key = ObjectKey::new(kind, "", object::name(object));
    let annotations = annotations.into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    Some(FaceOp::Annotate { key, annotations })
}

/// A status with its conditions by type: the API server keeps them in an order of its own.
fn in_order(mut status: Value) -> Value {
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.sort_by_cached_key(|condition| text(condition, "/type").unwrap_or_default().to_owned());
    }
    status
}

fn with_status(kind: Kind, name: &str, status: Value) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": kind.as_str(), "metadata": {"name": name}, "status": status})
}

/// Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodepool_status.go`.
fn pool_status(pool: &PoolStatus, class_generation: Option<u64>) -> Value {
    let conditions: Vec<Value> = pool
        .conditions
        .iter()
        .map(|condition| {
            conditions::form(conditions::ShownCondition {
                kind: condition.condition.as_str(),
                status: condition.status.as_str(),
                reason: &condition.reason,
                message: &condition.message,
                since: condition.since,
                generation: pool.generation,
            })
        })
        .collect();
    let mut status =
        json!({"nodes": pool.nodes, "resources": quantities(&pool.resources), "conditions": conditions});
    if let (Some(generation), Some(fields)) = (class_generation, status.as_object_mut()) {
        fields.insert("nodeClassObservedGeneration".to_owned(), json!(generation));
    }
    status
}

/// Source: aws/karpenter-provider-aws `pkg/apis/v1/ec2nodeclass_status.go`.
fn class_status(class: &ClassStatus) -> Value {
    let conditions: Vec<Value> = class
        .conditions
        .iter()
        .map(|condition| {
            conditions::form(conditions::ShownCondition {
                kind: condition.condition.as_str(),
                status: condition.status.as_str(),
                reason: condition.reason_text(),
                message: &condition.message,
                since: condition.since,
                generation: condition.observed_generation,
            })
        })
        .collect();
    let subnets: Vec<Value> = class
        .subnets
        .iter()
        .map(|subnet| json!({"id": subnet.id.as_str(), "zone": subnet.zone.as_str(), "zoneID": subnet.zone_id.as_str()}))
        .collect();
    let groups: Vec<Value> = class
        .security_groups
        .iter()
        .map(|group| json!({"id": group.id.as_str(), "name": group.name}))
        .collect();
    let images: Vec<Value> =
        class
            .images
            .iter()
            .map(|image| {
                let architecture =
                    json!({"key": labels::ARCH, "operator": "In", "values": [label(&image.architecture)]});
                let mut requirements = vec![architecture];
                requirements.extend(
                    image.variant.requirements().iter().map(
                        |requirement| json!({"key": requirement.label, "operator": requirement.operator}),
                    ),
                );
                json!({"id": image.id.as_str(), "name": image.name, "requirements": requirements})
            })
            .collect();
    let reservations: Vec<Value> = class
        .reservations
        .shown()
        .iter()
        .map(|reservation| reservation_form(reservation, class.resolved_at))
        .collect();
    let mut status = Map::new();
    let lists = [
        ("subnets", subnets),
        ("securityGroups", groups),
        ("amis", images),
        ("capacityReservations", reservations),
    ];
    for (field, list) in lists {
        if !list.is_empty() {
            status.insert(field.to_owned(), Value::Array(list));
        }
    }
    if let Some(InstanceProfile::Name(profile) | InstanceProfile::Arn(profile)) = &class.instance_profile {
        status.insert("instanceProfile".to_owned(), json!(profile));
    }
    status.insert("conditions".to_owned(), Value::Array(conditions));
    Value::Object(status)
}

/// A reservation of `status.capacityReservations`.
fn reservation_form(reservation: &ClassReservation, now: Timestamp) -> Value {
    let mut form = json!({
        "availabilityZone": reservation.zone.as_str(),
        "id": reservation.id.as_str(),
        "instanceMatchCriteria": reservation.match_criteria.as_str(),
        "instanceType": reservation.instance_type.as_str(),
        "interruptible": reservation.kind.interruptible_label() == "true",
        "ownerID": reservation.owner,
        "reservationType": reservation.kind.type_label(),
        "state": reservation.state(now).as_str(),
    });
    if let (Some(ends_at), Some(fields)) = (reservation.ends_at, form.as_object_mut()) {
        fields.insert("endTime".to_owned(), json!(ends_at.to_string()));
    }
    form
}

fn label(architecture: &Architecture) -> &str {
    match architecture {
        Architecture::X86_64 => "amd64",
        Architecture::Arm64 => "arm64",
        Architecture::Other(other) => other,
    }
}

fn quantities(list: &ResourceList) -> Map<String, Value> {
    list.iter().map(|(name, quantity)| (name.as_str().to_owned(), json!(quantity.to_string()))).collect()
}

/// Executes one operation. The next step plans again for an object that changed.
///
/// # Errors [`KubeError`] if the API server gives no answer, or refuses permanently.
pub async fn execute_face<K: Kube>(kube: &K, op: &FaceOp) -> Result<(), KubeError> {
    let done = match op {
        FaceOp::Status(object) => kube.apply_status(object).await.map(|_| ()),
        FaceOp::Annotate { key, annotations } => {
            let patch = json!({"metadata": {"annotations": annotations}});
            kube.patch(key, &patch, &Precondition::None).await.map(|_| ())
        }
        FaceOp::Create(object) => kube.create(object.clone()).await.map(|_| ()),
        FaceOp::Delete(key, uid) => kube.delete(key, uid, None).await.map(|_| ()),
        FaceOp::Finalizers { key, version, finalizers } => {
            let patch = json!({"metadata": {"finalizers": finalizers}});
            let precondition = Precondition::ResourceVersion(version.clone());
            kube.patch(key, &patch, &precondition).await.map(|_| ())
        }
    };
    match done {
        Err(KubeError::Conflict { .. } | KubeError::NotFound { .. }) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
