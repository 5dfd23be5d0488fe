//! Node repair: Nodes that stay unhealthy are replaced.
//!
//! Decides when a condition of a Node has lasted too long, and whether so many Nodes are unhealthy that their common cause
//! is likelier than theirs. It exists only while the gate `NodeRepair` is open.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/node/health/controller.go`, aws/karpenter-provider-aws
//! `pkg/cloudprovider/cloudprovider.go` (`RepairPolicies`). There the share counts in a NodePool alone.

use tenon_domain::api::Node;
use tenon_domain::api::node::NodeCondition;
use tenon_domain::claim::Claim;
use tenon_domain::labels::NODEPOOL;
use tenon_domain::registry::FeatureGate;
use tenon_domain::report::Finding;
use tenon_domain::{SignedDuration, Timestamp};

use crate::input::LifecycleInput;
use crate::step::{ClaimNext, subject};

/// A condition that makes a Node unhealthy.
struct RepairPolicy {
    condition: &'static str,
    bad: &'static [&'static str],
    /// How long it may last.
    lasts: SignedDuration,
}

const fn policy(condition: &'static str, bad: &'static [&'static str], minutes: i64) -> RepairPolicy {
    RepairPolicy { condition, bad, lasts: SignedDuration::from_mins(minutes) }
}

/// The kubelet sets the first, the EKS node monitoring agent the others.
const POLICIES: [RepairPolicy; 6] = [
    policy("Ready", &["False", "Unknown"], 30),
    policy("AcceleratedHardwareReady", &["False"], 10),
    policy("StorageReady", &["False"], 30),
    policy("NetworkingReady", &["False"], 30),
    policy("KernelReady", &["False"], 30),
    policy("ContainerRuntimeReady", &["False"], 30),
];
/// The share of Nodes that may be unhealthy, in percent, rounded up.
const TOLERATED_PERCENT: usize = 20;
/// How long until the next look at a Node that isn't repaired because too many are unhealthy.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// The result of a look at a Node's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// It is healthy, or nobody asks.
    Healthy,
    /// It is replaced if its condition lasts until then.
    Unhealthy(Timestamp),
    /// It is replaced now.
    Replace(String),
    /// It would be replaced, but for how many are unhealthy.
    TooMany(String),
}

/// The health of a claim's Node.
pub(crate) fn health(node: &Node, input: &LifecycleInput) -> Health {
    if input.node_repair == FeatureGate::Disabled {
        return Health::Healthy;
    }
    let Some((condition, due)) = unhealthy(node) else { return Health::Healthy };
    if input.now < due {
        return Health::Unhealthy(due);
    }
    match too_many(node, input) {
        Some(why) => Health::TooMany(why),
        None => {
            let lasts = input.since(condition.since.unwrap_or(due)).as_mins();
            Health::Replace(format!(
                "condition {} of Node `{}` has been {} for {lasts} minutes",
                condition.kind, node.name, condition.status
            ))
        }
    }
}

/// Whether the gate is needed for a plan.
pub(crate) fn needs_gates(input: &LifecycleInput) -> bool {
    input
        .snapshot
        .as_deref()
        .is_ok_and(|snapshot| snapshot.nodes.iter().any(|node| unhealthy(node).is_some()))
}

/// What the claim does while its Node isn't repaired.
pub(crate) fn refuse(claim: &Claim, why: String, input: &LifecycleInput) -> ClaimNext {
    let finding = Finding::refused(subject(claim), "NodeRepairBlocked", "not repairing the Node of {}", why);
    ClaimNext::Tell { finding: Box::new(finding), again: input.now.saturating_add(LOOK_AGAIN).ok() }
}

/// The Node's bad condition that has to be acted on first, and when.
fn unhealthy(node: &Node) -> Option<(&NodeCondition, Timestamp)> {
    let due = |condition: &'_ NodeCondition| {
        let of = POLICIES.iter().find(|policy| policy.condition == condition.kind)?;
        let is_bad = of.bad.contains(&condition.status.as_str());
        condition.since.filter(|_| is_bad)?.checked_add(of.lasts).ok()
    };
    node.conditions
        .iter()
        .filter_map(|condition| Some((condition, due(condition)?)))
        .min_by_key(|(_, at)| *at)
}

/// Why no Node is repaired: too many of the pool's, or of the cluster's, are unhealthy.
fn too_many(node: &Node, input: &LifecycleInput) -> Option<String> {
    let nodes = &input.snapshot.as_deref().ok()?.nodes;
    let pool = node.meta.labels.get(NODEPOOL);
    let of_pool = nodes.iter().filter(|other| other.meta.labels.get(NODEPOOL) == pool);
    let pool_name = format!("NodePool `{}`", pool.map_or("", String::as_str));
    over_share(of_pool, &pool_name).or_else(|| over_share(nodes.iter(), "the cluster"))
}

fn over_share<'a>(nodes: impl Iterator<Item = &'a Node>, of: &str) -> Option<String> {
    let (mut all, mut bad) = (0_usize, 0_usize);
    for node in nodes {
        all += 1;
        bad += usize::from(unhealthy(node).is_some());
    }
    let tolerated = (all * TOLERATED_PERCENT).div_ceil(100);
    (bad > tolerated).then(|| {
        format!(
            "{bad} of {all} nodes of {of} are unhealthy, more than {TOLERATED_PERCENT} %: look for what they have in \
             common; repairs go on once {tolerated} or fewer are"
        )
    })
}
