//! The statuses of NodePools.
//!
//! Decides the number of nodes, their resources and the pool's conditions, from one observation. It doesn't decide
//! whether a pool is used: `provisioner` looks at the class itself.
//!
//! Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodepool_status.go`,
//! `pkg/controllers/nodeclaim/lifecycle/liveness.go`.

use tenon_domain::Timestamp;
use tenon_domain::api::NodePool;
use tenon_domain::boot::JOIN_CHECKS;
use tenon_domain::claim::joining::lacked;
use tenon_domain::claim::{Claim, LaunchOutcome, NextLaunch};
use tenon_domain::class_status::{ConditionStatus, ConditionType};
use tenon_domain::evidence::{CLASS_DELETED, NOT_RESOLVED, Waiting};
use tenon_domain::id::NodeClassName;
use tenon_domain::labels::PAUSE_DISRUPTION;
use tenon_domain::pool_annotations;
use tenon_domain::pool_status::{PoolCondition, PoolConditionType, PoolStatus};
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::savings::ConsolidationTerms;
use tenon_domain::snapshot::Snapshot;

use crate::input::{LifecycleInput, NodeSeen};

/// The number of a pool's latest launches that decide whether its nodes register.
const OUTCOMES: usize = 4;
/// The number of failures among them that makes the pool unhealthy.
const FAILURES: usize = 2;

/// Why a static pool isn't ready.
const STATIC: &str = "StaticNodePoolUnsupported";
/// The same in words.
const STATIC_WORDS: &str = "it is static (`spec.replicas`), which Tenon doesn't support yet, so that no node is launched for it: \
                            create a NodePool without `spec.replicas`";

/// Changed statuses; none while the snapshot is stale.
#[must_use]
pub fn changed(input: &LifecycleInput) -> Vec<PoolStatus> {
    let Ok(snapshot) = &input.snapshot else { return Vec::new() };
    let differing = snapshot.node_pools.iter().filter_map(|pool| {
        let before = input.pools.get(&pool.name);
        let conditions = conditions(pool, snapshot, before, input);
        let status = status(pool, before, conditions, input);
        match before {
            Some(before) if same(before, &status) => None,
            Some(_) | None => Some(status),
        }
    });
    differing.collect()
}

fn same(before: &PoolStatus, after: &PoolStatus) -> bool {
    PoolStatus { revision: before.revision, ..after.clone() } == *before
}

fn status(
    pool: &NodePool,
    before: Option<&PoolStatus>,
    conditions: Vec<PoolCondition>,
    input: &LifecycleInput,
) -> PoolStatus {
    let claims: Vec<&Claim> =
        input.claims.values().filter(|claim| claim.pool == pool.name && !claim.phase().is_final()).collect();
    let nodes = u64::try_from(claims.len()).unwrap_or(u64::MAX);
    let mut resources = ResourceList::new();
    for claim in &claims {
        resources.add(&capacity(claim, input));
    }
    let count = Quantity::from_integer(i64::try_from(nodes).unwrap_or(i64::MAX));
    resources.insert(ResourceName::NODES, count);
    PoolStatus {
        name: pool.name.clone(),
        revision: before.map_or(0, |before| before.revision).saturating_add(1),
        generation: pool.meta.generation,
        nodes,
        resources,
        conditions,
    }
}

/// The capacity of a claim: its Node's, or its type's, or its requests.
fn capacity(claim: &Claim, input: &LifecycleInput) -> ResourceList {
    let Some(instance) = claim.state.instance() else { return claim.requests.clone() };
    match input.node_of(instance, claim.created_at) {
        NodeSeen::Present(node) if !node.capacity.is_empty() => node.capacity.clone(),
        NodeSeen::Present(_) | NodeSeen::Unknown | NodeSeen::Absent | NodeSeen::Several => {
            let known = input.types.get(&instance.instance_type);
            known.map_or_else(|| claim.requests.clone(), |record| record.capacity.clone())
        }
    }
}

/// A condition before it is known since when it holds.
struct FoundCondition {
    status: ConditionStatus,
    reason: String,
    message: String,
}

impl FoundCondition {
    fn holds(condition: PoolConditionType) -> Self {
        Self { status: ConditionStatus::True, reason: condition.as_str().to_owned(), message: String::new() }
    }

    fn not(status: ConditionStatus, reason: &str, message: String) -> Self {
        Self { status, reason: reason.to_owned(), message }
    }
}

fn conditions(
    pool: &NodePool,
    snapshot: &Snapshot,
    before: Option<&PoolStatus>,
    input: &LifecycleInput,
) -> Vec<PoolCondition> {
    let class = class_ready(pool, snapshot, input);
    let ready = if pool.is_static() {
        FoundCondition::not(ConditionStatus::False, STATIC, STATIC_WORDS.to_owned())
    } else {
        ready(&class)
    };
    let mut found = vec![
        // A pool that can be read passed all checks of its form.
        (
            PoolConditionType::ValidationSucceeded,
            FoundCondition::holds(PoolConditionType::ValidationSucceeded),
        ),
        (PoolConditionType::NodeClassReady, class),
        (PoolConditionType::Ready, ready),
        (PoolConditionType::NodeRegistrationHealthy, registration(pool, input)),
    ];
    found.extend(unsupported(pool).map(|unsupported| (PoolConditionType::Unsupported, unsupported)));
    found.extend(paused(pool).map(|paused| (PoolConditionType::DisruptionPaused, paused)));
    found.into_iter().map(|(condition, found)| dated(condition, found, before, input.now)).collect()
}

/// A pool that Tenon acts on is ready as its class is.
fn ready(class: &FoundCondition) -> FoundCondition {
    match class.status {
        ConditionStatus::True => FoundCondition::holds(PoolConditionType::Ready),
        ConditionStatus::False | ConditionStatus::Unknown => {
            FoundCondition::not(class.status, "UnhealthyDependents", "NodeClassReady".to_owned())
        }
    }
}

/// Names fields of the pool that Tenon doesn't act on, and what in it can't be understood. Of a static pool, `Ready` says
/// what follows.
fn unsupported(pool: &NodePool) -> Option<FoundCondition> {
    let fixed = pool.is_static().then(|| "unsupported: `spec.replicas`".to_owned());
    let fields = &pool.unknown;
    let fields = (!fields.is_empty()).then(|| format!("unsupported, so ignored: `{}`", fields.join("`, `")));
    let annotations = pool_annotations::ignored(pool).into_iter().chain(ConsolidationTerms::of(pool).err());
    let annotations = annotations.map(|error| error.to_string());
    let parts: Vec<String> =
        fixed.into_iter().chain(fields).chain(annotations).chain(pool.warnings.iter().cloned()).collect();
    (!parts.is_empty()).then(|| FoundCondition {
        status: ConditionStatus::True,
        reason: "UnsupportedFields".to_owned(),
        message: parts.join("; "),
    })
}

/// Says that an annotation pauses voluntary disruption of the pool's nodes.
fn paused(pool: &NodePool) -> Option<FoundCondition> {
    pool.is_paused().then(|| FoundCondition {
        status: ConditionStatus::True,
        reason: "Annotation".to_owned(),
        message: format!(
            "annotation `{PAUSE_DISRUPTION}` pauses voluntary disruption of its nodes: remove it to end that"
        ),
    })
}

/// The condition with the time since when it has its status.
fn dated(
    condition: PoolConditionType,
    found: FoundCondition,
    before: Option<&PoolStatus>,
    now: Timestamp,
) -> PoolCondition {
    let earlier = before.and_then(|before| before.conditions.iter().find(|c| c.condition == condition));
    let since = earlier.filter(|earlier| earlier.status == found.status).map_or(now, |earlier| earlier.since);
    PoolCondition { condition, status: found.status, reason: found.reason, message: found.message, since }
}

/// A class that the cluster no longer has, or that can't be read any more, is as ready as none: what it resolved to stays
/// in the table for its nodes.
fn class_ready(pool: &NodePool, snapshot: &Snapshot, input: &LifecycleInput) -> FoundCondition {
    let name = &pool.template.node_class.name;
    let seen = match snapshot.class_of(pool) {
        Ok(seen) => seen,
        Err(absent) => {
            return FoundCondition::not(ConditionStatus::False, absent.reason(), absent.to_string());
        }
    };
    if seen.meta.deleted_at.is_some() {
        return FoundCondition::not(ConditionStatus::False, CLASS_DELETED, not_ready(name, CLASS_DELETED));
    }
    let Some(class) = input.classes.get(name) else {
        return FoundCondition::not(
            ConditionStatus::False,
            "NodeClassNotFound",
            not_ready(name, NOT_RESOLVED),
        );
    };
    let ready = class.conditions.iter().find(|condition| condition.condition == ConditionType::Ready);
    match ready {
        Some(ready) if ready.status == ConditionStatus::True => {
            FoundCondition::holds(PoolConditionType::NodeClassReady)
        }
        Some(ready) if ready.status == ConditionStatus::False => {
            FoundCondition::not(ready.status, ready.reason_text(), ready.message.clone())
        }
        unknown => {
            let message =
                unknown.map_or_else(|| not_ready(name, NOT_RESOLVED), |ready| ready.message.clone());
            FoundCondition::not(ConditionStatus::Unknown, "NodeClassReadinessUnknown", message)
        }
    }
}

fn not_ready(name: &NodeClassName, reason: &str) -> String {
    Waiting::NodeClassNotReady { class: name.to_string(), reason: reason.to_owned() }.to_string()
}

/// The health of the pool's latest launches with a known outcome: back to the first one of another form, because an edit
/// may have mended what was wrong, or broken what was right. A Node that joined says so until the template or the class
/// changes. A failure says so only of a launch that may come again.
fn registration(pool: &NodePool, input: &LifecycleInput) -> FoundCondition {
    let next = NextLaunch::of(pool, input.classes.get(&pool.template.node_class.name));
    let of_pool = input.claims.values().filter(|claim| claim.pool == pool.name);
    let mut outcomes: Vec<(&Claim, LaunchOutcome)> =
        of_pool.filter_map(|claim| Some((claim, claim.outcome()?))).collect();
    outcomes.sort_by(|(a, _), (b, _)| (b.created_at, &b.name).cmp(&(a.created_at, &a.name)));
    let tells = |(claim, outcome): &&(&Claim, LaunchOutcome)| match outcome {
        LaunchOutcome::Joined => next.has_form_of(claim),
        LaunchOutcome::Failed => next.repeats_or_rejects(claim),
    };
    let latest: Vec<(&Claim, LaunchOutcome)> =
        outcomes.iter().take_while(tells).take(OUTCOMES).copied().collect();
    let failures = latest.iter().filter(|(_, outcome)| *outcome == LaunchOutcome::Failed).count();
    let condition = PoolConditionType::NodeRegistrationHealthy;
    if failures >= FAILURES {
        let launches = latest.len();
        let message = match lacked(latest.iter().map(|(claim, _)| *claim)) {
            Some(lacked) => format!(
                "no Node was initialised in time for {failures} of the last {launches} launches: at last {lacked}"
            ),
            None => format!(
                "no Node joined in time for {failures} of the last {launches} launches: check an instance's boot (`aws ec2 \
                 get-console-output`), {JOIN_CHECKS}"
            ),
        };
        return FoundCondition::not(ConditionStatus::False, "RegistrationFailed", message);
    }
    if latest.iter().any(|(_, outcome)| *outcome == LaunchOutcome::Joined) {
        return FoundCondition::holds(condition);
    }
    let message = if latest.len() == outcomes.len() {
        "no Node of this NodePool has registered yet"
    } else {
        "no Node of this NodePool has registered since the NodePool or its EC2NodeClass changed"
    };
    FoundCondition::not(ConditionStatus::Unknown, "AwaitingLaunch", message.to_owned())
}
