//! A claim as a NodeClaim: an object that is created once, and its status.
//!
//! Decides labels, requirements and conditions. A NodeClaim is created after the launch, because its spec can't
//! change: the spec has the claim's actual type, zone and capacity type.
//!
//! Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodeclaim.go`, `nodeclaim_status.go`.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use tenon_domain::claim::{AnnouncementKind, Claim, ClaimPhase, ClaimState, RemovalReason, Terms};
use tenon_domain::id::ProviderId;
use tenon_domain::labels;
use tenon_domain::placement::{LaunchPlacement, Tenancy};
use tenon_domain::reservation::LaunchedInto;
use tenon_snapshot::NodeAction;
use tenon_snapshot::object::{self, Kind, ObjectKey, text};

use super::conditions::{self, ShownCondition, holds, known, since};
use super::statuses::quantities;
use super::{FaceOp, LAUNCH_ANNOTATION};

/// Fields of the pool's template that claims have too.
const TEMPLATE_FIELDS: [&str; 4] = ["taints", "startupTaints", TERMINATION_GRACE_PERIOD, EXPIRE_AFTER];
const TERMINATION_GRACE_PERIOD: &str = "terminationGracePeriod";
const EXPIRE_AFTER: &str = "expireAfter";
const CONSOLIDATABLE: &str = "Consolidatable";
const VOLUMES_DETACHED: &str = "VolumesDetached";
const CONSISTENT: &str = "ConsistentStateFound";

/// How much later than the shown one a pod's coming or leaving is shown. Source: kubernetes-sigs/karpenter
/// `pkg/controllers/nodeclaim/podevents/controller.go`.
const POD_EVENTS_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// What is known of a claim's Node.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeOfClaim<'a> {
    pub(super) object: Option<&'a Value>,
    /// When a pod last came to it or left it.
    pub(super) pod_event: Option<Timestamp>,
}

/// `spec.providerID` of the claim's Node.
pub(super) fn provider_id(claim: &Claim) -> Option<String> {
    let instance = claim.state.instance()?;
    Some(ProviderId { zone: instance.zone.clone(), instance: instance.id.clone() }.to_string())
}

/// The NodeClaim.
pub(super) fn object(claim: &Claim, action: &NodeAction, pool: Option<&Value>) -> Value {
    let mut metadata = json!({
        "name": claim.name.as_str(),
        "labels": action.labels,
        "annotations": action.annotations,
        "finalizers": [labels::TERMINATION_FINALIZER],
    });
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.insert(LAUNCH_ANNOTATION.to_owned(), json!(claim.launch.as_str()));
    }
    if let (Some(pool), Some(fields)) = (pool, metadata.as_object_mut()) {
        fields.insert("ownerReferences".to_owned(), json!([owner(pool)]));
    }
    json!({
        "apiVersion": Kind::NodeClaim.api_version(),
        "kind": Kind::NodeClaim.as_str(),
        "metadata": metadata,
        "spec": spec(claim, pool.unwrap_or(&Value::Null)),
    })
}

fn spec(claim: &Claim, pool: &Value) -> Value {
    let template = object::at(pool, "/spec/template/spec").unwrap_or(&Value::Null);
    let mut spec = Map::new();
    let class = json!({"group": labels::PROVIDER_DOMAIN, "kind": Kind::Ec2NodeClass.as_str(), "name": claim.class.as_str()});
    spec.insert("nodeClassRef".to_owned(), class);
    spec.insert("requirements".to_owned(), requirements(claim, template));
    if !claim.requests.is_empty() {
        spec.insert("resources".to_owned(), json!({"requests": quantities(&claim.requests)}));
    }
    for field in TEMPLATE_FIELDS {
        if let Some(value) = template.get(field).filter(|value| !value.is_null()) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    // The pool's template may have changed since the claim was created.
    if let Some(terms) = &claim.terms {
        spec.remove(TERMINATION_GRACE_PERIOD);
        let grace = terms.termination_grace_period_text();
        spec.extend(grace.map(|grace| (TERMINATION_GRACE_PERIOD.to_owned(), json!(grace))));
        spec.insert(EXPIRE_AFTER.to_owned(), json!(terms.expire_after_text()));
    }
    Value::Object(spec)
}

/// The pool's requirements, with one value for each label that the launch decided.
fn requirements(claim: &Claim, template: &Value) -> Value {
    let mut settled = vec![(labels::NODEPOOL, claim.pool.to_string())];
    if let Some(instance) = claim.state.instance() {
        settled.push((labels::INSTANCE_TYPE, instance.instance_type.to_string()));
        settled.push((labels::ZONE, instance.zone.to_string()));
        settled.push((labels::CAPACITY_TYPE, instance.capacity_type.as_str().to_owned()));
        if claim.tenancy != Tenancy::Default {
            settled.push((labels::INSTANCE_TENANCY, claim.tenancy.as_str().to_owned()));
        }
        let reserved = instance.reservation.iter().flat_map(LaunchedInto::labels);
        settled.extend(reserved.map(|(key, value)| (key, value.to_owned())));
        settled.extend(instance.placement.iter().flat_map(LaunchPlacement::labels));
    }
    let open = object::list(template, "/requirements").iter().filter(|requirement| {
        let key = text(requirement, "/key").unwrap_or_default();
        settled.iter().all(|(known, _)| *known != key)
    });
    let mut found: Vec<Value> = open.cloned().collect();
    found.extend(settled.iter().map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]})));
    Value::Array(found)
}

/// Its status. Fields that the claim's current state doesn't have keep the object's value.
pub(super) fn status(
    claim: &Claim,
    object: &Value,
    node: NodeOfClaim<'_>,
    pool: Option<&Value>,
    now: Timestamp,
) -> Value {
    let mut status = Map::new();
    let mut set = |field: &str, value: Value| status.insert(field.to_owned(), value);
    if let Some(instance) = claim.state.instance() {
        set("imageID", json!(instance.image.as_str()));
    }
    if let Some(id) = provider_id(claim) {
        set("providerID", json!(id));
    }
    let name = claim.state.node().map(|node| node.as_str().to_owned());
    if let Some(name) = name.or_else(|| text(object, "/status/nodeName").map(str::to_owned)) {
        set("nodeName", json!(name));
    }
    for field in ["capacity", "allocatable"] {
        let pointer = format!("/status/{field}");
        let of = |object: &Value| object::at(object, &pointer).cloned();
        if let Some(list) = node.object.and_then(of).or_else(|| of(object)) {
            set(field, list);
        }
    }
    if let Some(at) = pod_event(object, node) {
        set("lastPodEventTime", json!(conditions::seconds(at)));
    }
    set("conditions", Value::Array(shown_conditions(claim, object, pool, now)));
    Value::Object(status)
}

/// When a pod last came to the Node or left it. A little later than what is shown isn't news: pods come and go in bursts.
fn pod_event(object: &Value, node: NodeOfClaim<'_>) -> Option<Timestamp> {
    let shown = object::time(object, "/status/lastPodEventTime");
    let is_news = |at: &Timestamp| shown.is_none_or(|shown| at.duration_since(shown) >= POD_EVENTS_EVERY);
    node.pod_event.filter(is_news).or(shown)
}

/// A condition's type, status, reason and message.
type ToldCondition = (&'static str, &'static str, String, String);

fn told(kind: &'static str, status: &'static str, reason: &str, message: &str) -> ToldCondition {
    (kind, status, reason.to_owned(), message.to_owned())
}

fn shown_conditions(claim: &Claim, object: &Value, pool: Option<&Value>, now: Timestamp) -> Vec<Value> {
    let generation = object::at(object, "/metadata/generation").and_then(Value::as_u64).unwrap_or(1);
    let otherwise = claim.state.since().unwrap_or(claim.created_at).min(now);
    let consolidatable = consolidatable_since(claim, pool, now);
    let quiet = consolidatable.map(|_| consolidatable_words(claim));
    let consistent = consistent(claim, object);
    let found = steps(claim, object).into_iter().chain(marks(claim, object)).chain(quiet).chain(consistent);
    found
        .map(|(kind, status, reason, message)| {
            let otherwise = consolidatable.filter(|_| kind == CONSOLIDATABLE).unwrap_or(otherwise);
            // A finding that is over leaves no time of its own.
            let is_over = kind == CONSISTENT && known(object, kind).is_some();
            let otherwise = if is_over { now } else { otherwise };
            let since = since(object, kind, status, otherwise);
            conditions::form(ShownCondition {
                kind,
                status,
                reason: &reason,
                message: &message,
                since,
                generation,
            })
        })
        .collect()
}

/// Launched, Registered, Initialized, and Ready where all of them hold.
fn steps(claim: &Claim, object: &Value) -> Vec<ToldCondition> {
    let registered = claim.state.node().is_some() || holds(object, "Registered");
    let initialized = match claim.phase() {
        ClaimPhase::Initialized | ClaimPhase::Disrupting => true,
        ClaimPhase::Draining | ClaimPhase::Drained | ClaimPhase::Terminating => holds(object, "Initialized"),
        ClaimPhase::Planned
        | ClaimPhase::LaunchFailed
        | ClaimPhase::Launched
        | ClaimPhase::Registered
        | ClaimPhase::Terminated => false,
    };
    let step = |kind: &'static str, holds: bool, reason: &str, message: &str| {
        if holds { told(kind, "True", kind, "") } else { told(kind, "Unknown", reason, message) }
    };
    vec![
        told("Launched", "True", "Launched", ""),
        step("Registered", registered, "NodeNotFound", "Node not registered with cluster"),
        step("Initialized", initialized, "NodeNotInitialized", "Node not initialized"),
        step(
            "Ready",
            registered && initialized,
            "ReconcilingDependents",
            "not registered, or not initialized",
        ),
    ]
}

/// That its Node is as expected: it is once it joined, unless a finding says otherwise.
fn consistent(claim: &Claim, object: &Value) -> Option<ToldCondition> {
    let joined = claim.state.node().is_some() || known(object, CONSISTENT).is_some();
    joined.then(|| told(CONSISTENT, "True", CONSISTENT, ""))
}

/// Conditions that exist only while they hold.
fn marks(claim: &Claim, object: &Value) -> Vec<ToldCondition> {
    let mut marks = Vec::new();
    if let Some(drift) = &claim.drift {
        marks.push(told("Drifted", "True", drift.reason.as_str(), &drift.words(claim)));
    }
    match &claim.state {
        ClaimState::Disrupting { at, .. } => {
            marks.push(told("DisruptionReason", "True", disrupted_for(claim, *at).as_str(), ""));
        }
        ClaimState::Draining { reason, .. } => {
            marks.push(told("DisruptionReason", "True", reason.as_str(), ""));
            marks.push(told("Drained", "Unknown", "Draining", "pods are being evicted"));
        }
        ClaimState::Drained { reason, at, .. } => {
            marks.push(told("DisruptionReason", "True", reason.as_str(), ""));
            marks.push(told("Drained", "True", "Drained", ""));
            marks.push(volumes(object, *at));
        }
        ClaimState::Terminating { reason, at, .. } => {
            marks.push(told("DisruptionReason", "True", reason.as_str(), ""));
            marks.push(told("Drained", "True", "Drained", ""));
            marks.push(volumes(object, *at));
            marks.push(told("InstanceTerminating", "True", "InstanceTerminating", ""));
        }
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Terminated { .. } => {}
    }
    marks
}

/// Whether the wait for volumes of a drain that ended then was cut off by the drain's deadline, which the object's
/// annotation keeps. What the object shows already stays: a termination may come long after its drain.
fn volumes(object: &Value, ended: Timestamp) -> ToldCondition {
    let elapsed = match known(object, VOLUMES_DETACHED) {
        Some(_) => !holds(object, VOLUMES_DETACHED),
        None => shown_end(object).is_some_and(|deadline| deadline <= ended),
    };
    match elapsed {
        true => {
            let message = "the drain's deadline ended the wait for volumes";
            told(VOLUMES_DETACHED, "False", "TerminationGracePeriodElapsed", message)
        }
        false => told(VOLUMES_DETACHED, "True", VOLUMES_DETACHED, ""),
    }
}

/// The end of the drain that the object's annotation shows.
fn shown_end(object: &Value) -> Option<Timestamp> {
    let mut annotations = object::texts(object, "/metadata/annotations");
    let (_, end) = annotations.find(|(key, _)| *key == labels::TERMINATION_TIMESTAMP)?;
    end.parse().ok()
}

/// Why a command has held the claim since then: its own announcement and age come before its drift, as for the command.
fn disrupted_for(claim: &Claim, at: Timestamp) -> RemovalReason {
    let certain = claim.announced.filter(|announced| announced.kind == AnnouncementKind::ScheduledChange);
    let ends = claim.terms.and_then(|terms| terms.expires_at(claim.created_at));
    match (certain, claim.announced) {
        (Some(announced), _) => announced.removal(),
        (None, _) if ends.is_some_and(|end| end <= at) => RemovalReason::Expired,
        (None, _) if claim.drift.is_some() => RemovalReason::Drifted,
        (None, Some(announced)) if claim.consolidatable.is_none() => announced.removal(),
        (None, Some(_) | None) => RemovalReason::Underutilized,
    }
}

/// Since when its Node may go for its pods, or for want of them: its pool's `consolidateAfter` has passed since it was found
/// so. `None` while it hasn't, and with `Never`.
fn consolidatable_since(claim: &Claim, pool: Option<&Value>, now: Timestamp) -> Option<Timestamp> {
    match claim.phase() {
        ClaimPhase::Initialized | ClaimPhase::Disrupting => {}
        ClaimPhase::Planned
        | ClaimPhase::LaunchFailed
        | ClaimPhase::Launched
        | ClaimPhase::Registered
        | ClaimPhase::Draining
        | ClaimPhase::Drained
        | ClaimPhase::Terminating
        | ClaimPhase::Terminated => return None,
    }
    let mark = claim.consolidatable.as_ref()?;
    let after = text(pool?, "/spec/disruption/consolidateAfter").unwrap_or("0s");
    let at = mark.since.checked_add(Terms::parse_expire_after(after)??).ok()?;
    (at <= now).then_some(at)
}

fn consolidatable_words(claim: &Claim) -> ToldCondition {
    let message = match claim.consolidatable.as_ref().and_then(|mark| mark.pods.as_ref()) {
        Some(_) => "its pods cost less elsewhere",
        None => "no pod on it needs another node",
    };
    told(CONSOLIDATABLE, "True", CONSOLIDATABLE, message)
}

/// When the claim's drain has to be over, if it has to be.
pub(super) const fn drain_deadline(claim: &Claim) -> Option<Timestamp> {
    match claim.state {
        ClaimState::Draining { deadline, .. } => deadline,
        ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => None,
    }
}

/// The reference to a NodePool. Deleting the pool deletes its claims. Nothing is blocked: that takes a right on the pool's
/// finalizers.
fn owner(pool: &Value) -> Value {
    json!({"apiVersion": Kind::NodePool.api_version(), "kind": Kind::NodePool.as_str(), "name": object::name(pool),
        "uid": object::uid(pool)})
}

/// Whether a NodePool owns the NodeClaim, as far as it says.
pub(crate) fn is_owned_by_pool(object: &Value) -> bool {
    let owners = object::list(object, "/metadata/ownerReferences");
    owners.iter().any(|owner| text(owner, "/kind") == Some(Kind::NodePool.as_str()))
}

/// The operation that gives a NodeClaim its owner, which it lacks if it was made, or lost its pool, while there was none.
pub(super) fn owned(object: &Value, pool: Option<&Value>) -> Option<FaceOp> {
    let pool = pool.filter(|pool| object::deleted_at(pool).is_none())?;
    if is_owned_by_pool(object) || object::deleted_at(object).is_some() {
        return None;
    }
    let owners = object::list(object, "/metadata/ownerReferences").iter().cloned().chain([owner(pool)]);
    Some(FaceOp::Own {
        key: ObjectKey::new(Kind::NodeClaim, "", object::name(object)),
        version: text(object, "/metadata/resourceVersion").unwrap_or_default().to_owned(),
        owners: owners.collect(),
    })
}

/// The operation that annotates the claim with the end of its drain. An earlier end stays, as with the peer.
pub(super) fn shown_deadline(claim: &Claim, object: &Value) -> Option<FaceOp> {
    let deadline = drain_deadline(claim)?;
    if shown_end(object).is_some_and(|at| at <= deadline) {
        return None;
    }
    let key = ObjectKey::new(Kind::NodeClaim, "", claim.name.as_str());
    let end = (labels::TERMINATION_TIMESTAMP.to_owned(), json!(conditions::seconds(deadline)));
    Some(FaceOp::Annotate { key, annotations: Map::from_iter([end]) })
}

/// Whether a condition became true.
pub(super) fn came_true(object: &Value, status: &Value, kind: &str) -> bool {
    let after = json!({"status": status});
    holds(&after, kind) && !holds(object, kind) && known(&after, kind).is_some()
}
