//! From actions and objects to the operations that bring Nodes nearer to their target states.
//!
//! Decides patches, deletions and evictions for one moment. A plan of the resulting objects has the remaining
//! operations, and in the end none. An action's kind includes the kinds before it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenon_domain::api::workload::PodDisruptionBudget;
use tenon_domain::id::ClaimName;
use tenon_domain::labels;
use tenon_domain::snapshot::{ActionProgress, ActionReport};
use tenon_domain::taint::{DISRUPTED, NOT_READY, OPENING, Taint, TaintEffect, UNREGISTERED, merge_taints};
use tenon_snapshot::object::{self, Kind, Object, text};
use tenon_snapshot::{ActionKind, NodeAction, PodRef};

use crate::awaited::Awaited;
use crate::drain::{Drain, DrainVolumes, PodOp, RefusedEvictions, is_waited_for, plan_drain};
use crate::hold::{HeldPods, holds};
use crate::volumes::{Attachments, Detaching};

/// The value of [`labels::EXCLUDE_FROM_LOAD_BALANCERS`] on a Node that is drained.
const EXCLUDED_BY: &str = "karpenter";
/// Annotation of a Node: the claim that it belongs to.
pub const CLAIM_ANNOTATION: &str = "tenon.dev/nodeclaim";

/// The objects.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// All Nodes.
    pub nodes: Vec<Object>,
    /// Tenon's NodeClaims by name: each owns its Node.
    pub claims: BTreeMap<String, Object>,
    /// Names of Nodes that leave because they, their NodeClaim or its NodePool are deleted.
    pub deleted: BTreeSet<String>,
    /// DaemonSets, where a Node may be registered.
    pub daemon_sets: Vec<Object>,
    /// Pods by the Node that they are bound to.
    pub pods: BTreeMap<String, Vec<PodRef>>,
    /// Pods whose eviction a PodDisruptionBudget refused.
    pub refused: RefusedEvictions,
    /// Which pods of interrupted Nodes stay for now.
    pub holds: HeldPods,
    /// The claims whose Nodes stay closed though they are Ready, and until when at the latest.
    pub kept_closed: BTreeMap<ClaimName, Timestamp>,
    /// PodDisruptionBudgets, if one is in the way.
    pub budgets: Vec<PodDisruptionBudget>,
    /// Attached volumes.
    pub attachments: Attachments,
    /// Since when Nodes wait for nothing but their volumes.
    pub detaching: Detaching,
}

impl View {
    fn pods_on(&self, node: &str) -> &[PodRef] {
        self.pods.get(node).map_or(&[][..], Vec::as_slice)
    }

    /// The drained Nodes that no pod is waited for on, and that have volumes.
    pub(crate) fn waits_for_volumes(&self, actions: &[NodeAction], now: Timestamp) -> BTreeSet<String> {
        let drained = actions.iter().filter(|action| action.kind == ActionKind::Drain);
        let names = drained.filter_map(|action| Some(object::name(find_node(self, action)?).to_owned()));
        names
            .filter(|node| {
                let pods = self.pods_on(node);
                !pods.iter().any(|pod| is_waited_for(pod, now))
                    && !self.attachments.of_drain(node, pods, now).is_empty()
            })
            .collect()
    }
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Merge-patches a Node, if it has this `resourceVersion`.
    Patch {
        /// The Node.
        node: String,
        /// The object's version at planning.
        version: String,
        /// The patch.
        patch: Value,
    },
    /// Deletes a Node, if it has this UID: its finalizers hold it.
    Delete {
        /// The Node.
        node: String,
        /// Its UID.
        uid: String,
    },
    /// Evicts or deletes a pod.
    Pod(PodOp),
}

impl Op {
    /// The Node that it changes.
    pub(crate) fn node(&self) -> Option<&str> {
        match self {
            Self::Patch { node, .. } | Self::Delete { node, .. } => Some(node),
            Self::Pod(_) => None,
        }
    }
}

/// How soon a Node takes pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Once it is Ready and its startup taints are removed.
    Later,
    /// Now, or after these operations.
    Now,
}

/// The operations now, the progress of each action, and the time of the next look.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Convergence {
    /// Operations, by action, then in order.
    pub ops: Vec<Op>,
    /// Claims whose Nodes, given by name, take their first pods after these operations. They aren't initialised.
    pub opening: BTreeMap<ClaimName, String>,
    /// How far each action is, in the actions' order.
    pub reports: Vec<ActionReport>,
    /// The changes that matter.
    pub awaited: Awaited,
    /// The time of the next look without a ring; `None` if only changes matter.
    pub next: Option<Timestamp>,
}

/// Plans the operations that bring the Nodes nearer to their actions.
#[must_use]
pub fn plan_convergence(view: &View, actions: &[NodeAction], now: Timestamp) -> Convergence {
    let mut convergence =
        Convergence { next: view.kept_closed.values().min().copied(), ..Convergence::default() };
    for action in actions {
        convergence.opening.extend(opening(view, action));
        let (progress, next) = plan_action(view, action, now, &mut convergence.ops);
        convergence.next = [convergence.next, next].into_iter().flatten().min();
        convergence.awaited = convergence.awaited.max(Awaited::by(action.kind, &progress));
        let claim = action.claim.to_string();
        convergence.reports.push(ActionReport { claim, number: action.number, progress });
    }
    convergence
}

/// The claim and its Node, if that takes its first pods after these operations.
fn opening(view: &View, action: &NodeAction) -> Option<(ClaimName, String)> {
    match action.kind {
        ActionKind::Register | ActionKind::Initialize => {}
        ActionKind::Disrupt | ActionKind::Drain | ActionKind::Finalize => return None,
    }
    let node = find_node(view, action)?;
    let initialized = object::texts(node, "/metadata/labels").any(|(key, _)| key == labels::INITIALIZED);
    let held = view.kept_closed.contains_key(&action.claim);
    if initialized || held || view.deleted.contains(object::name(node)) {
        return None;
    }
    match opening_of(node, action) {
        Opening::Now => Some((action.claim.clone(), object::name(node).to_owned())),
        Opening::Later => None,
    }
}

/// How soon a Node takes pods, if only our own taints are in the way after that.
pub(crate) fn opening_of(node: &Value, action: &NodeAction) -> Opening {
    let mut keeps_out =
        action.startup_taints.iter().filter(|own| own.effect != TaintEffect::PreferNoSchedule);
    let starts = |taint: &Taint| {
        let ephemeral = taint.is_ephemeral() && ![UNREGISTERED, OPENING].contains(&taint.key.as_str());
        ephemeral || keeps_out.clone().any(|own| own.matches(taint))
    };
    let closed = object::taints(node).iter().any(starts)
        || (!is_registered(node) && keeps_out.next().is_some())
        || object::condition(node, "Ready") != Some("True");
    if closed { Opening::Later } else { Opening::Now }
}

/// Whether a Node may need a DaemonSet's pod to become Ready that [`OPENING`] would keep out.
pub(crate) fn needs_late_daemons(view: &View) -> bool {
    let not_ready = Taint::new(NOT_READY, TaintEffect::NoSchedule);
    view.daemon_sets.iter().any(|daemons| {
        let tolerations = daemons.pointer("/spec/template").map(object::tolerations).unwrap_or_default();
        let tolerates = |taint: &Taint| tolerations.iter().any(|one| one.tolerates(taint));
        tolerates(&not_ready) && !tolerates(&Taint::opening())
    })
}

fn plan_action(
    view: &View,
    action: &NodeAction,
    now: Timestamp,
    ops: &mut Vec<Op>,
) -> (ActionProgress, Option<Timestamp>) {
    let working = ActionProgress::working;
    if action.kind == ActionKind::Initialize && view.kept_closed.contains_key(&action.claim) {
        let closed = NodeAction { kind: ActionKind::Register, ..action.clone() };
        let (_, next) = plan_action(view, &closed, now, ops);
        return (working(0), next);
    }
    let Some(node) = find_node(view, action) else { return (progress_without_node(action.kind), None) };
    let name = object::name(node).to_owned();
    let patch = plan_patch(node, action, view);
    let patched = patch.is_none();
    if let Some(patch) = patch {
        let version = text(node, "/metadata/resourceVersion").unwrap_or_default().to_owned();
        ops.push(Op::Patch { node: name.clone(), version, patch });
    }
    let deleted_at = object::deleted_at(node);
    match action.kind {
        ActionKind::Register | ActionKind::Initialize | ActionKind::Disrupt => {
            (if patched { ActionProgress::Done } else { working(0) }, None)
        }
        ActionKind::Drain | ActionKind::Finalize if deleted_at.is_none() => {
            // Only after the patch is visible: a Node that is deleted without our finalizer leaves undrained.
            if patched {
                ops.push(Op::Delete { node: name, uid: object::uid(node).to_owned() });
            }
            (working(0), Some(now))
        }
        // The Node disappears once no finalizer holds it.
        ActionKind::Finalize => (working(0), None),
        ActionKind::Drain => {
            let pods = view.pods_on(&name);
            let attached = view.attachments.of_drain(&name, pods, now);
            let begun = deleted_at.unwrap_or(now);
            let drain = Drain {
                pods,
                since: view.holds.warned.get(&action.claim).map_or(begun, |at| begun.max(*at)),
                deadline: action.deadline,
                holds: holds(action).then_some(&view.holds),
                budgets: &view.budgets,
                volumes: DrainVolumes { attached: &attached, since: view.detaching.since(&name) },
            };
            let plan = plan_drain(&drain, &view.refused, now);
            // Until the taint is on it, the scheduler may still send pods.
            if patched {
                ops.extend(plan.ops.into_iter().map(Op::Pod));
            }
            match plan.next {
                None if patched && attached.is_empty() => (ActionProgress::Done, None),
                None if patched => (ActionProgress::Left { volumes: attached }, None),
                next => {
                    let (pods_left, blocks) = (plan.pods_left, plan.blocks);
                    (ActionProgress::Working { pods_left, blocks }, next.or(Some(now)))
                }
            }
        }
    }
}

/// A missing Node can't be drained or held; it may still join and be registered.
const fn progress_without_node(kind: ActionKind) -> ActionProgress {
    match kind {
        ActionKind::Register | ActionKind::Initialize | ActionKind::Disrupt => ActionProgress::working(0),
        ActionKind::Drain | ActionKind::Finalize => ActionProgress::Done,
    }
}

/// The claim's Node: by its providerID, or by its name if the claim has none.
pub(crate) fn find_node<'a>(view: &'a View, action: &NodeAction) -> Option<&'a Object> {
    match (&action.provider_id, &action.node) {
        (Some(id), _) => view.nodes.iter().find(|node| text(node, "/spec/providerID") == Some(id)),
        (None, Some(name)) => view.nodes.iter().find(|node| object::name(node) == name),
        (None, None) => None,
    }
}

/// The changes of the Node; `None` if there are none.
fn plan_patch(node: &Value, action: &NodeAction, view: &View) -> Option<Value> {
    let claim = view.claims.get(action.claim.as_str());
    let mut patch = Map::new();
    let mut metadata = Map::new();
    let (wanted_labels, wanted_annotations) = wanted_metadata(action, is_registered(node));
    for (field, wanted) in [("labels", wanted_labels), ("annotations", wanted_annotations)] {
        let known = node.pointer(&format!("/metadata/{field}")).unwrap_or(&Value::Null);
        let missing: Map<String, Value> = wanted
            .into_iter()
            .filter(|(key, value)| known.get(key).and_then(Value::as_str) != Some(value))
            .map(|(key, value)| (key, json!(value)))
            .collect();
        if !missing.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(missing));
        }
    }
    if let Some(finalizers) = plan_finalizers(node, action.kind) {
        metadata.insert("finalizers".to_owned(), finalizers);
    }
    if let Some(owners) = claim.and_then(|claim| plan_owners(node, action.kind, claim)) {
        metadata.insert("ownerReferences".to_owned(), owners);
    }
    if !metadata.is_empty() {
        patch.insert("metadata".to_owned(), Value::Object(metadata));
    }
    let fate = if view.deleted.contains(object::name(node)) { NodeFate::Deleted } else { NodeFate::Stays };
    if let Some(taints) = plan_taints(node, action, fate, view) {
        patch.insert("spec".to_owned(), json!({"taints": taints}));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

type Texts = BTreeMap<String, String>;

fn is_registered(node: &Value) -> bool {
    object::texts(node, "/metadata/labels").any(|(key, value)| key == labels::REGISTERED && value == "true")
}

/// The Node's wanted labels and annotations. A claim's are set once, at registration: a user may change them later.
fn wanted_metadata(action: &NodeAction, registered: bool) -> (Texts, Texts) {
    let mut wanted = Texts::new();
    let mut annotations = Texts::new();
    let set = |map: &mut Texts, key: &str, value: &str| map.insert(key.to_owned(), value.to_owned());
    match action.kind {
        ActionKind::Register | ActionKind::Initialize | ActionKind::Disrupt => {
            if !registered {
                wanted.clone_from(&action.labels);
                annotations.clone_from(&action.annotations);
                set(&mut annotations, CLAIM_ANNOTATION, action.claim.as_str());
                set(&mut wanted, labels::REGISTERED, "true");
            }
        }
        ActionKind::Drain => {
            set(&mut wanted, labels::EXCLUDE_FROM_LOAD_BALANCERS, EXCLUDED_BY);
        }
        ActionKind::Finalize => {}
    }
    match action.kind {
        ActionKind::Initialize | ActionKind::Disrupt => {
            set(&mut wanted, labels::INITIALIZED, "true");
        }
        ActionKind::Register | ActionKind::Drain | ActionKind::Finalize => {}
    }
    (wanted, annotations)
}

/// The finalizers that the Node should have, where they aren't those.
fn plan_finalizers(node: &Value, kind: ActionKind) -> Option<Value> {
    let known = object::list(node, "/metadata/finalizers");
    let ours = json!(labels::TERMINATION_FINALIZER);
    let held = known.contains(&ours);
    match kind {
        // The API server accepts no new finalizers on an object that is being deleted.
        ActionKind::Register | ActionKind::Initialize | ActionKind::Disrupt | ActionKind::Drain
            if !held && object::deleted_at(node).is_none() =>
        {
            Some(known.iter().cloned().chain([ours]).collect())
        }
        ActionKind::Finalize if held => {
            Some(known.iter().filter(|finalizer| **finalizer != ours).cloned().collect())
        }
        ActionKind::Register
        | ActionKind::Initialize
        | ActionKind::Disrupt
        | ActionKind::Drain
        | ActionKind::Finalize => None,
    }
}

/// The Node's owners, if they must change: its NodeClaim is one of them, as with the peer. A NodeClaim that is
/// created after the registration becomes an owner then.
fn plan_owners(node: &Value, kind: ActionKind, claim: &Value) -> Option<Value> {
    match kind {
        ActionKind::Register | ActionKind::Initialize | ActionKind::Disrupt => {}
        ActionKind::Drain | ActionKind::Finalize => return None,
    }
    let known = object::list(node, "/metadata/ownerReferences");
    let uid = object::uid(claim);
    if known.iter().any(|owner| text(owner, "/uid") == Some(uid)) {
        return None;
    }
    let claims = Kind::NodeClaim;
    let owner = json!({"apiVersion": claims.api_version(), "kind": claims.as_str(),
        "name": object::name(claim), "uid": uid, "blockOwnerDeletion": true});
    // An earlier NodeClaim is deleted, and Kubernetes deletes its Node: a new NodeClaim of the same claim doesn't
    // undo that.
    if known.iter().any(|owner| text(owner, "/kind") == Some(claims.as_str())) {
        return None;
    }
    Some(known.iter().cloned().chain([owner]).collect())
}

/// Whether a Node or its owner is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeFate {
    /// It isn't.
    Stays,
    /// It is: the Node is tainted, whatever its action is.
    Deleted,
}

/// The taints of a Node with `karpenter.sh/disrupted`, if it is missing. A taint with the same key and another effect
/// is replaced.
pub(crate) fn with_disrupted(node: &Value) -> Option<Vec<Value>> {
    let disrupted = Taint::disrupted();
    if object::taints(node).contains(&disrupted) {
        return None;
    }
    let others = object::list(node, "/spec/taints").iter();
    let others = others.filter(|taint| text(taint, "/key") != Some(DISRUPTED));
    Some(others.cloned().chain([form(&disrupted)]).collect())
}

/// The Node's taints, if they must change. Taints keep their unknown fields.
fn plan_taints(node: &Value, action: &NodeAction, fate: NodeFate, view: &View) -> Option<Vec<Value>> {
    let known = object::list(node, "/spec/taints");
    let mut taints = known.to_vec();
    let held = view.kept_closed.contains_key(&action.claim);
    let opens = if held { Opening::Later } else { opening_of(node, action) };
    match action.kind {
        ActionKind::Register | ActionKind::Initialize | ActionKind::Disrupt => {
            let own = object::texts(node, "/metadata/labels").chain(pairs(&action.labels));
            let synced =
                own.into_iter().any(|(key, value)| key == labels::DO_NOT_SYNC_TAINTS && value == "true");
            if !is_registered(node) && !synced {
                let present = object::taints(node);
                let claimed = merge_taints(&action.taints, &action.startup_taints);
                taints.extend(
                    claimed
                        .iter()
                        .filter(|taint| !present.iter().any(|known| known.matches(taint)))
                        .map(form),
                );
            }
            // Not one of the claim's taints: it comes wherever the kubelet registered those.
            let opens_later = !is_registered(node) && opens == Opening::Later;
            if opens_later && !needs_late_daemons(view) {
                taints.push(form(&Taint::opening()));
            }
            taints.retain(|taint| text(taint, "/key") != Some(UNREGISTERED));
        }
        ActionKind::Drain | ActionKind::Finalize => {}
    }
    // In the same round the agent nominates the pods, before it removes the taint.
    let opens_now = match action.kind {
        ActionKind::Register => opens == Opening::Now,
        ActionKind::Initialize | ActionKind::Disrupt => true,
        ActionKind::Drain | ActionKind::Finalize => false,
    };
    if opens_now {
        taints.retain(|taint| text(taint, "/key") != Some(OPENING));
    }
    match (action.kind, fate) {
        (ActionKind::Disrupt | ActionKind::Drain, NodeFate::Stays | NodeFate::Deleted)
        | (ActionKind::Register | ActionKind::Initialize, NodeFate::Deleted) => {
            if with_disrupted(node).is_some() {
                taints.retain(|taint| text(taint, "/key") != Some(DISRUPTED));
                taints.push(form(&Taint::disrupted()));
            }
        }
        // A cancelled disruption or deletion leaves no taint.
        (ActionKind::Register | ActionKind::Initialize, NodeFate::Stays) => {
            taints.retain(|taint| text(taint, "/key") != Some(DISRUPTED));
        }
        (ActionKind::Finalize, NodeFate::Stays | NodeFate::Deleted) => {}
    }
    (taints.as_slice() != known).then_some(taints)
}

fn pairs(map: &Texts) -> impl Iterator<Item = (&str, &str)> {
    map.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

fn form(taint: &Taint) -> Value {
    let mut form = json!({"key": taint.key, "effect": taint.effect.as_str()});
    if let (Some(fields), false) = (form.as_object_mut(), taint.value.is_empty()) {
        fields.insert("value".to_owned(), json!(taint.value));
    }
    form
}
