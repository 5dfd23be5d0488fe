//! Strays: Nodes with our finalizer that no claim owns and whose instance doesn't exist. An uninstalled Karpenter leaves
//! such Nodes.
//!
//! Decides which Nodes those are, which of them lose the finalizer, and what a person is told. It terminates nothing, and
//! deletes no Node: that is the cloud controller's, or a person's.
//!
//! Invariants: an instance is gone only if EC2, asked by its id, terminated it or doesn't know it; a Node that is Ready, or
//! younger than EC2's consistency delay, keeps the finalizer; during a halt all do.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/node/termination/controller.go`, which removes the finalizer of such
//! a Node at once.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Node;
use tenon_domain::api::pod::Readiness;
use tenon_domain::id::{ClaimName, InstanceId};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::labels;
use tenon_domain::launch::EC2_CONSISTENCY;
use tenon_domain::report::{Finding, Report};
use tenon_ec2::port::{InstanceFilter, InstanceState};
use tenon_ec2::{Ec2, Ec2Error};
use tenon_runtime::Ports;
use tenon_snapshot::{ActionKind, NodeAction, ReplacementOrder};

use crate::input::{LifecycleInput, has_instance};

/// The most Nodes that EC2 is asked about in a pass. It names unknown ids, if need be one in each answer.
const SUSPECTS_MOST: usize = 20;
/// The beginning of the name of a stray's action, which no claim has. The instance's id follows.
const STRAY: &str = "stray-";

/// The changes of strays' actions.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct StrayPlan {
    /// Actions for deleted strays: their finalizer is removed.
    pub released: Vec<NodeAction>,
    /// Actions whose Node has disappeared.
    pub done: Vec<ClaimName>,
}

/// Asks EC2 which instances of possible strays are gone. Without an answer a later pass asks again.
pub async fn observe_strays<P: Ports>(ports: &P, input: &LifecycleInput) -> BTreeSet<InstanceId> {
    let mut asked: BTreeSet<InstanceId> = suspects(input).into_iter().map(|(_, id)| id.clone()).collect();
    let mut gone = BTreeSet::new();
    while !asked.is_empty() {
        let filter = InstanceFilter { ids: asked.iter().cloned().collect(), ..InstanceFilter::default() };
        match ports.ec2().describe_instances(&filter, None).await {
            Ok(found) => {
                let ended = found.items.into_iter().filter(|one| one.state == InstanceState::Terminated);
                gone.extend(ended.map(|one| one.id));
                break;
            }
            Err(Ec2Error::NotFound { ids, .. }) => {
                let is_unknown = |id: &&InstanceId| ids.iter().any(|named| named == id.as_str());
                let unknown: BTreeSet<InstanceId> = asked.iter().filter(is_unknown).cloned().collect();
                if unknown.is_empty() {
                    break;
                }
                asked.retain(|id| !unknown.contains(id));
                gone.extend(unknown);
            }
            Err(_) => break,
        }
    }
    gone
}

/// Plans.
pub(crate) fn plan_strays(input: &LifecycleInput, report: &mut Report) -> StrayPlan {
    let mut plan = StrayPlan { released: Vec::new(), done: done(input) };
    for (node, id) in suspects(input).into_iter().filter(|(_, id)| input.gone.contains(*id)) {
        let subject = Subject { kind: SubjectKind::Object, name: format!("Node/{}", node.name) };
        let why = format!("no NodeClaim owns it, and its instance `{id}` doesn't exist");
        if node.meta.deleted_at.is_none() {
            let why =
                format!("{why}: `kubectl delete node {}`, unless the cloud controller deletes it", node.name);
            report.tell(Finding::refused(subject, "InstanceGone", "not removing {}", why));
            continue;
        }
        let released = "removing the finalizer of {}";
        report.tell(Finding::refused(subject, "InstanceGone", released, why).condition("deleted"));
        let action = release(node, id).filter(|action| input.actions.get(&action.claim) != Some(action));
        plan.released.extend(action);
    }
    plan
}

/// Nodes that may be strays, with their instances.
fn suspects(input: &LifecycleInput) -> Vec<(&Node, &InstanceId)> {
    let (Ok(snapshot), None) = (&input.snapshot, &input.halt) else { return Vec::new() };
    let held: BTreeSet<&InstanceId> =
        input.claims.values().filter_map(|claim| Some(&claim.state.instance()?.id)).collect();
    let is_old = |node: &Node| node.meta.created_at.is_none_or(|at| input.since(at) >= EC2_CONSISTENCY);
    let is_managed = |node: &Node| {
        node.meta.labels.contains_key(labels::NODEPOOL)
            && node.meta.finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER)
    };
    let found = snapshot.nodes.iter().filter_map(|node| Some((node, &node.provider_id.as_ref()?.instance)));
    found
        .filter(|(node, id)| {
            node.readiness != Readiness::Ready && is_managed(node) && is_old(node) && !held.contains(id)
        })
        .take(SUSPECTS_MOST)
        .collect()
}

/// The action that removes a stray's finalizer.
fn release(node: &Node, id: &InstanceId) -> Option<NodeAction> {
    Some(NodeAction {
        claim: ClaimName::parse(format!("{STRAY}{id}")).ok()?,
        number: 1,
        kind: ActionKind::Finalize,
        provider_id: Some(node.provider_id.as_ref()?.to_string()),
        node: Some(node.name.to_string()),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: Vec::new(),
        startup_taints: Vec::new(),
        deadline: None,
        replacement: ReplacementOrder::Anytime,
    })
}

/// The strays' actions whose Nodes a fresh snapshot doesn't have.
fn done(input: &LifecycleInput) -> Vec<ClaimName> {
    let Ok(snapshot) = &input.snapshot else { return Vec::new() };
    let is_done = |claim: &&ClaimName| {
        let id = claim.as_str().strip_prefix(STRAY).and_then(|id| InstanceId::parse(id).ok());
        let is_stray = id.filter(|_| !input.claims.contains_key(*claim));
        is_stray.is_some_and(|id| !snapshot.nodes.iter().any(|node| has_instance(node, &id)))
    };
    input.actions.keys().filter(is_done).cloned().collect()
}
