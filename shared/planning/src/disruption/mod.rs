//! Voluntary disruption: which drifted nodes leave, when, and which replacements come first.
//!
//! Decides drift marks, new commands within the pools' budgets, and the steps of active commands. It doesn't decide
//! how a node drains, and ignores nodes that EC2 or a user takes away.
//!
//! Invariants: a pool's budgets hold, with leaving nodes and nodes that aren't ready counted in; a candidate is taken
//! only if all its pods have another place; room is used once; a settled world gives an empty plan. While the cluster
//! is halted no node is disrupted.
//!
//! Source: karpenter.sh/docs/concepts/disruption; kubernetes-sigs/karpenter `pkg/controllers/disruption/drift.go`,
//! `helpers.go`. Unlike the peer, one pass begins as many commands as the budgets allow.

mod advance;
mod blocked;
mod drift;
pub mod input;
mod moving;
pub mod output;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::NodePool;
use tenon_domain::api::pod::{DoNotDisrupt, Readiness};
use tenon_domain::budget::{DisruptionReason, allowed_disruptions};
use tenon_domain::claim::{ClaimPhase, CommandRole, RemovalReason};
use tenon_domain::digest::Digest;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, CommandId, NodePoolName};

pub use input::{
    ClaimView, ClassReadiness, ClassView, DisruptionInput, DriftingReservations, HaltState, NodeView,
};
pub use output::{
    Advance, CommandStep, DisruptionPlan, DisruptionRefusal, DisruptionReport, DriftMark, InvalidAnnotation,
    NewCommand, RefusalReason,
};

use advance::{AdvanceContext, look_again};
use blocked::{PodsWord, blocked, reschedulable};
use moving::{SpareCapacity, is_going};

/// Plans for all drifted claims and active commands of a cluster.
pub fn plan(input: &DisruptionInput) -> (DisruptionPlan, DisruptionReport) {
    let mut plan = DisruptionPlan { marks: drift::marks(input), ..DisruptionPlan::default() };
    let mut report = DisruptionReport { invalid: invalid_annotations(input), ..DisruptionReport::default() };
    if input.halt == HaltState::Halted {
        report.waiting.push(Waiting::TableRestored);
        return (plan, report);
    }
    let mut world = SpareCapacity::new(input);
    advance::advances(input, &mut AdvanceContext { world: &mut world, plan: &mut plan, report: &mut report });
    let mut budgets: BTreeMap<NodePoolName, Allowance> =
        input.pools.iter().map(|pool| (pool.name.clone(), Allowance::of(input, pool))).collect();
    let fresh: BTreeSet<ClaimName> = plan.marks.iter().map(|mark| mark.claim.clone()).collect();
    for candidate in candidates(input, &fresh) {
        match consider(input, &candidate, &mut budgets, &mut world) {
            Ok(command) => plan.commands.push(command),
            Err(refused) => {
                if let Some(at) = refused.again.filter(|at| *at > input.now) {
                    look_again(&mut plan, at);
                }
                let claim = candidate.view.claim.name.clone();
                report.refusals.push(DisruptionRefusal { claim, reason: refused.reason });
            }
        }
    }
    // New marks are acted on by the next plan, from committed state.
    if plan.marks.iter().any(|mark| mark.drift.is_some()) {
        look_again(&mut plan, input.now);
    }
    report.refusals.sort_by(|a, b| a.claim.cmp(&b.claim));
    (plan, report)
}

/// The number of a pool's nodes that may be disrupted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// The number that the budgets allow.
    pub allowed: u32,
    /// Nodes under disruption or not ready.
    pub going: u32,
}

impl Allowance {
    /// A pool's allowance for drift, of its initialised nodes that aren't terminating.
    #[must_use]
    pub fn of(input: &DisruptionInput, pool: &NodePool) -> Self {
        let counts = |view: &&ClaimView| {
            let phase = view.claim.phase();
            view.claim.pool == pool.name && (phase == ClaimPhase::Initialized || is_going(phase))
        };
        let unready =
            |view: &ClaimView| view.node.as_ref().is_none_or(|node| node.readiness == Readiness::NotReady);
        let nodes: Vec<&ClaimView> = input.claims.iter().filter(counts).collect();
        let going = nodes.iter().filter(|view| is_going(view.claim.phase()) || unready(view)).count();
        let total = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let budgets = &pool.disruption.budgets;
        Self {
            allowed: allowed_disruptions(budgets, DisruptionReason::Drifted, total, input.now),
            going: u32::try_from(going).unwrap_or(u32::MAX),
        }
    }

    /// How many more may be disrupted.
    #[must_use]
    pub const fn left(self) -> u32 {
        self.allowed.saturating_sub(self.going)
    }
}

/// A claim that drifted.
struct Candidate<'a> {
    view: &'a ClaimView,
    node: &'a NodeView,
    pods: Vec<tenon_domain::api::Pod>,
}

/// The order of candidates: without pods first, then the earliest drift.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CandidateRank<'a> {
    has_pods: bool,
    since: Option<Timestamp>,
    name: &'a ClaimName,
}

fn candidates<'a>(input: &'a DisruptionInput, fresh: &BTreeSet<ClaimName>) -> Vec<Candidate<'a>> {
    // A replacement stays while its command waits for it.
    let active: BTreeSet<&CommandId> =
        input.commands.iter().filter(|command| command.is_active()).map(|command| &command.id).collect();
    let awaited = |view: &ClaimView| match &view.claim.role {
        CommandRole::None => false,
        CommandRole::Replacement(command) => active.contains(command),
    };
    let takes = |view: &&ClaimView| {
        view.claim.phase() == ClaimPhase::Initialized
            && view.claim.drift.is_some()
            && !fresh.contains(&view.claim.name)
            && !awaited(view)
    };
    let mut found: Vec<Candidate<'a>> = input
        .claims
        .iter()
        .filter(takes)
        .filter_map(|view| {
            let node = view.node.as_ref()?;
            Some(Candidate { view, node, pods: reschedulable(node) })
        })
        .collect();
    found.sort_by(|a, b| rank(a).cmp(&rank(b)));
    found
}

fn rank<'a>(candidate: &Candidate<'a>) -> CandidateRank<'a> {
    CandidateRank {
        has_pods: !candidate.pods.is_empty(),
        since: candidate.view.claim.drift.as_ref().map(|drift| drift.since),
        name: &candidate.view.claim.name,
    }
}

/// How long until an exhausted PodDisruptionBudget is tried again. No event tells when it allows an eviction again; a
/// moved pod is Ready after about this time.
const PDB_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// Why a candidate stays, and when that may change by itself.
struct NotDisrupted {
    reason: RefusalReason,
    again: Option<Timestamp>,
}

fn consider(
    input: &DisruptionInput,
    candidate: &Candidate<'_>,
    budgets: &mut BTreeMap<NodePoolName, Allowance>,
    world: &mut SpareCapacity<'_>,
) -> Result<NewCommand, NotDisrupted> {
    let name = &candidate.view.claim.pool;
    let pool = input.pools.iter().find(|pool| pool.name == *name);
    let (Some(pool), Some(allowance)) = (pool, budgets.get_mut(name)) else {
        return Err(NotDisrupted { reason: RefusalReason::PoolNotFound { pool: name.clone() }, again: None });
    };
    let terms = candidate.view.claim.terms_or(Some(pool));
    let word = match terms.and_then(|terms| terms.termination_grace_period) {
        Some(_) => PodsWord::Waived,
        None => PodsWord::Counts,
    };
    if let Some(reason) = blocked(candidate.node, &input.pdbs, word, input.now) {
        let again = match &reason {
            RefusalReason::DoNotDisrupt { until, .. } => *until,
            RefusalReason::BlockedByPdb { .. } => input.now.checked_add(PDB_AGAIN).ok(),
            RefusalReason::BudgetExhausted { .. }
            | RefusalReason::Unschedulable { .. }
            | RefusalReason::PoolNotFound { .. } => None,
        };
        return Err(NotDisrupted { reason, again });
    }
    if allowance.left() == 0 {
        let Allowance { allowed, going } = *allowance;
        let again = pool.disruption.budgets.iter().filter_map(|budget| budget.next_change(input.now)).min();
        return Err(NotDisrupted {
            reason: RefusalReason::BudgetExhausted { pool: name.clone(), allowed, going },
            again,
        });
    }
    let id = command_id(input, candidate).ok_or_else(|| NotDisrupted {
        reason: RefusalReason::PoolNotFound { pool: name.clone() },
        again: None,
    })?;
    let going = BTreeSet::from([candidate.node.name.as_str()]);
    let (replacement, refused) = world.plan(&id, &going, &candidate.pods);
    if !refused.unschedulable.is_empty() {
        let reason = RefusalReason::Unschedulable { pods: refused.unschedulable };
        return Err(NotDisrupted { reason, again: replacement.wake_at });
    }
    world.commit(&going, &replacement, &candidate.pods);
    // A node that isn't ready is counted already.
    if candidate.node.readiness == Readiness::Ready {
        allowance.going = allowance.going.saturating_add(1);
    }
    Ok(NewCommand {
        id,
        pool: name.clone(),
        reason: RemovalReason::Drifted,
        candidates: vec![candidate.view.claim.name.clone()],
        replacement,
    })
}

/// The command's id: of the claim and its revision, so that one look makes the same command twice.
fn command_id(input: &DisruptionInput, candidate: &Candidate<'_>) -> Option<CommandId> {
    let claim = &candidate.view.claim;
    let revision = claim.revision.to_string();
    let digest = Digest::of_texts([input.world.cluster.as_str(), claim.name.as_str(), &revision]);
    CommandId::parse(format!("command-{}", digest.base36(12))).ok()
}

fn invalid_annotations(input: &DisruptionInput) -> Vec<InvalidAnnotation> {
    let pods = input.claims.iter().filter_map(|view| view.node.as_ref()).flat_map(|node| &node.pods);
    let invalid = pods.filter_map(|pod| match &pod.shape.do_not_disrupt {
        DoNotDisrupt::Invalid(value) => {
            Some(InvalidAnnotation { pod: pod.name.clone(), value: value.clone() })
        }
        DoNotDisrupt::No | DoNotDisrupt::Always | DoNotDisrupt::For(_) => None,
    });
    let mut invalid: Vec<InvalidAnnotation> = invalid.collect();
    invalid.sort();
    invalid
}
