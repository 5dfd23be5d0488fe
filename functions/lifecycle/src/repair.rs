//! Node repair: Nodes that stay unhealthy are replaced.
//!
//! Decides when a condition of a Node, or a failing status check of its instance, has lasted too long, and whether so many
//! Nodes are unhealthy that their common cause is likelier than theirs. Conditions count only while the gate `NodeRepair`
//! is open.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/node/health/controller.go`, aws/karpenter-provider-aws
//! `pkg/cloudprovider/cloudprovider.go` (`RepairPolicies`) and
//! `pkg/controllers/interruption/instancestatus_controller.go`. There the share counts in a NodePool alone, and failing
//! checks have none.

use tenon_domain::api::Node;
use tenon_domain::api::node::NodeCondition;
use tenon_domain::api::pod::Readiness;
use tenon_domain::claim::Claim;
use tenon_domain::labels::NODEPOOL;
use tenon_domain::registry::FeatureGate;
use tenon_domain::report::Finding;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_ec2::port::StatusCheck;

use crate::input::LifecycleInput;
use crate::statuses::failed_check;
use crate::step::{ClaimNext, STOPPED_GRACE, subject};

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
/// How long a status check may fail: as long as the peer's.
pub(crate) const CHECK_FAILS: SignedDuration = SignedDuration::from_secs(120);
/// The share of Nodes that may be unhealthy, in percent, rounded up.
const TOLERATED_PERCENT: usize = 20;
/// How long until the next look at a Node that isn't repaired because too many are unhealthy.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// The result of a look at a Node's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// It is healthy, or nobody asks.
    Healthy,
    /// It is replaced if it is unhealthy until then.
    Unhealthy(Timestamp),
    /// It is replaced now.
    Replace {
        /// Why.
        why: String,
        /// The time for its pods to stop.
        grace: SignedDuration,
    },
    /// It would be replaced, but for how many are unhealthy.
    TooMany(String),
}

/// Something that makes a Node unhealthy.
#[derive(Clone, Copy)]
struct Illness<'a> {
    kind: IllnessKind<'a>,
    since: Timestamp,
    /// When it has lasted too long.
    due: Timestamp,
}

#[derive(Clone, Copy)]
enum IllnessKind<'a> {
    Condition(&'a NodeCondition),
    /// The instance fails this check.
    Check(StatusCheck),
}

/// The health of a claim's Node.
pub(crate) fn health(node: &Node, input: &LifecycleInput) -> Health {
    let Some(first) = illnesses(node, input).min_by_key(|illness| illness.due) else {
        return Health::Healthy;
    };
    if input.now < first.due {
        return Health::Unhealthy(first.due);
    }
    match too_many(node, input) {
        Some(why) => Health::TooMany(why),
        None => Health::Replace { why: first.words(node, input), grace: grace(node, input) },
    }
}

/// Why nothing stops the pods of a Node that would be replaced now, if nothing does.
pub(crate) fn dead(node: &Node, input: &LifecycleInput) -> Option<String> {
    match health(node, input) {
        Health::Replace { why, grace } => grace.is_zero().then_some(why),
        Health::Healthy | Health::Unhealthy(_) | Health::TooMany(_) => None,
    }
}

/// Whether the gate is needed for a plan.
pub(crate) fn needs_gates(input: &LifecycleInput) -> bool {
    input
        .snapshot
        .as_deref()
        .is_ok_and(|snapshot| snapshot.nodes.iter().any(|node| conditions(node).next().is_some()))
}

/// What the claim does while its Node isn't repaired.
pub(crate) fn refuse(claim: &Claim, why: String, input: &LifecycleInput) -> ClaimNext {
    let finding = Finding::refused(subject(claim), "NodeRepairBlocked", "not repairing the Node of {}", why);
    ClaimNext::Tell { finding: Box::new(finding), again: input.now.saturating_add(LOOK_AGAIN).ok() }
}

impl Illness<'_> {
    fn words(&self, node: &Node, input: &LifecycleInput) -> String {
        let lasts = input.since(self.since).as_mins();
        match self.kind {
            IllnessKind::Condition(condition) => format!(
                "condition {} of Node `{}` has been {} for {lasts} minutes",
                condition.kind, node.name, condition.status
            ),
            IllnessKind::Check(check) => {
                let instance = node.provider_id.as_ref().map_or("", |id| id.instance.as_str());
                format!("instance `{instance}` has failed its {check} status check for {lasts} minutes")
            }
        }
    }
}

/// Everything that makes the Node unhealthy.
fn illnesses<'a>(node: &'a Node, input: &LifecycleInput) -> impl Iterator<Item = Illness<'a>> {
    let conditions = match input.node_repair {
        FeatureGate::Enabled => Some(conditions(node)),
        FeatureGate::Disabled => None,
    };
    conditions.into_iter().flatten().chain(impairment(node, input))
}

/// The Node's bad conditions.
fn conditions(node: &Node) -> impl Iterator<Item = Illness<'_>> {
    node.conditions.iter().filter_map(|condition| {
        let of = POLICIES.iter().find(|policy| policy.condition == condition.kind)?;
        let is_bad = of.bad.contains(&condition.status.as_str());
        let since = condition.since.filter(|_| is_bad)?;
        Some(Illness {
            kind: IllnessKind::Condition(condition),
            since,
            due: since.checked_add(of.lasts).ok()?,
        })
    })
}

/// The failing status check of the Node's instance.
fn impairment<'a>(node: &Node, input: &LifecycleInput) -> Option<Illness<'a>> {
    let (check, since) = failed_check(&node.provider_id.as_ref()?.instance, input)?;
    Some(Illness { kind: IllnessKind::Check(check), since, due: since.checked_add(CHECK_FAILS).ok()? })
}

/// The time for the pods of a Node that is replaced now. A kubelet that doesn't report, on an instance that fails its check,
/// stops none: the peer gives none any time.
fn grace(node: &Node, input: &LifecycleInput) -> SignedDuration {
    let is_impaired = impairment(node, input).is_some_and(|illness| illness.due <= input.now);
    if is_impaired && node.readiness != Readiness::Ready { SignedDuration::ZERO } else { STOPPED_GRACE }
}

/// Why no Node is repaired: too many of the pool's, or of the cluster's, are unhealthy.
fn too_many(node: &Node, input: &LifecycleInput) -> Option<String> {
    let nodes = &input.snapshot.as_deref().ok()?.nodes;
    let pool = node.meta.labels.get(NODEPOOL);
    let of_pool = nodes.iter().filter(|other| other.meta.labels.get(NODEPOOL) == pool);
    let pool_name = format!("NodePool `{}`", pool.map_or("", String::as_str));
    over_share(of_pool, &pool_name, input).or_else(|| over_share(nodes.iter(), "the cluster", input))
}

fn over_share<'a>(nodes: impl Iterator<Item = &'a Node>, of: &str, input: &LifecycleInput) -> Option<String> {
    let (mut all, mut bad) = (0_usize, 0_usize);
    for node in nodes {
        all += 1;
        bad += usize::from(illnesses(node, input).next().is_some());
    }
    let tolerated = (all * TOLERATED_PERCENT).div_ceil(100);
    (bad > tolerated).then(|| {
        format!(
            "{bad} of {all} nodes of {of} are unhealthy, more than {TOLERATED_PERCENT} %: look for what they have in \
             common; repairs go on once {tolerated} or fewer are"
        )
    })
}
