//! Voluntary disruption: which drifted, empty and underutilised nodes leave, when, and which replacements come first.
//!
//! Decides drift marks, marks of nodes that could go, new commands within the pools' budgets, and the steps of active
//! commands. It doesn't decide how a node drains, and ignores nodes that EC2 or a user takes away.
//!
//! Invariants: a pool's budgets hold, with leaving nodes and nodes that aren't ready counted in; a candidate is taken
//! only if all its pods have another place, but those that may stay until the drain's deadline; room is used once; a settled world gives an empty plan. While the cluster
//! is halted no node is disrupted.
//!
//! Source: karpenter.sh/docs/concepts/disruption; kubernetes-sigs/karpenter `pkg/controllers/disruption/drift.go`,
//! `helpers.go`. Unlike the peer, one pass begins as many commands as the budgets allow.

mod advance;
mod blocked;
mod budget;
mod consolidation;
mod cost;
mod drift;
mod due;
mod emptiness;
pub mod input;
mod moving;
pub mod output;
mod refusal_news;
mod refusal_words;
mod undone;
mod warned;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::pod::DoNotDisrupt;
use tenon_domain::budget::DisruptionReason;
use tenon_domain::claim::{ClaimPhase, CommandRole, Consolidatable, DriftReason, RemovalReason};
use tenon_domain::command::Command;
use tenon_domain::digest::Digest;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, CommandId, Uid};
use tenon_domain::pool_annotations;
use tenon_domain::savings::ConsolidationTerms;

pub use input::{
    ClaimView, ClassReadiness, ClassView, DisruptionInput, DisruptionPause, DriftingReservations, HaltState,
    MovingTime, NodeView, UndoneCommand,
};
pub use output::{
    Adoption, Advance, CommandStep, ConsolidatableMark, DisruptionPlan, DisruptionRefusal, DisruptionReport,
    DriftMark, InvalidAnnotation, NewCommand, RefusalReason, UndoCause,
};

use advance::{AdvanceContext, look_again, waits_for_capacity};
use blocked::{PodsWord, blocked, kept, reschedulable};
pub use budget::Allowance;
use budget::BudgetLedger;
use moving::{PlannedMove, SpareCapacity};
use output::NotDisrupted;

/// Plans for all drifted, due, empty and used nodes and active commands of a cluster.
pub fn plan(input: &DisruptionInput) -> (DisruptionPlan, DisruptionReport) {
    let mut plan = DisruptionPlan { marks: drift::marks(input), ..DisruptionPlan::default() };
    let unread =
        input.pools.iter().filter_map(|pool| Some((pool.name.clone(), ConsolidationTerms::of(pool).err()?)));
    let ignored = input.pools.iter().flat_map(|pool| {
        let errors = pool_annotations::ignored(pool);
        errors.into_iter().map(|error| (pool.name.clone(), error))
    });
    let mut report = DisruptionReport {
        invalid: invalid_annotations(input),
        unread: unread.collect(),
        ignored: ignored.collect(),
        ..DisruptionReport::default()
    };
    if input.halt == HaltState::Halted {
        report.waiting.push(Waiting::TableRestored);
        return (plan, report);
    }
    let mut world = SpareCapacity::new(input);
    advance::advances(input, &mut AdvanceContext { world: &mut world, plan: &mut plan, report: &mut report });
    let mut budgets = BudgetLedger::new(input);
    let drifting: BTreeSet<ClaimName> = plan.marks.iter().map(|mark| mark.claim.clone()).collect();
    let needed = needed_by_candidates(input, &drifting, &plan.advances);
    let mut wanted =
        emptiness::remove_empty(input, (&mut world, &needed), &mut budgets, &mut plan, &mut report);
    let taken = plan.commands.iter().flat_map(|command| &command.candidates).cloned();
    let fresh: BTreeSet<ClaimName> = drifting.into_iter().chain(taken).collect();
    for candidate in candidates(input, &fresh) {
        match consider(input, &candidate, &plan.advances, &mut budgets, &mut world) {
            Ok(command) => plan.commands.push(command),
            Err(refused) => refuse(input, candidate.view, refused, &mut plan, &mut report),
        }
    }
    let look = (&wanted, &mut plan);
    let used = consolidation::consolidate(input, &mut world, &mut budgets, look, &mut report);
    wanted.extend(used);
    plan.consolidatable = changed_marks(input, &wanted, &plan, &report);
    let written =
        plan.consolidatable.iter().map(|mark| &mark.claim).chain(plan.marks.iter().map(|mark| &mark.claim));
    let written: BTreeSet<ClaimName> =
        written.chain(plan.commands.iter().flat_map(|command| &command.candidates)).cloned().collect();
    plan.adopted = drift::adoptions(input);
    plan.adopted.retain(|adoption| !written.contains(&adoption.claim));
    // New marks are acted on by the next plan, from committed state.
    if plan.marks.iter().any(|mark| mark.drift.is_some()) {
        look_again(&mut plan, input.now);
    }
    plan.next_expiry = due::next(input);
    report.refusals.sort_by(|a, b| a.claim.cmp(&b.claim));
    (plan, report)
}

/// The marks that claims should have, by claim.
pub(crate) type WantedMarks = BTreeMap<ClaimName, Consolidatable>;

/// The changes of marks, of claims that the plan doesn't write otherwise: a claim is written once.
fn changed_marks(
    input: &DisruptionInput,
    wanted: &WantedMarks,
    plan: &DisruptionPlan,
    report: &DisruptionReport,
) -> Vec<ConsolidatableMark> {
    let taken = plan.commands.iter().flat_map(|command| &command.candidates);
    let written: BTreeSet<&ClaimName> = plan.marks.iter().map(|mark| &mark.claim).chain(taken).collect();
    let free = input
        .claims
        .iter()
        .map(|view| &view.claim)
        .filter(|claim| claim.phase() == ClaimPhase::Initialized && !written.contains(&claim.name));
    let stays = |claim: &ClaimName| {
        let refused = report.refusals.iter().find(|refused| refused.claim == *claim);
        refused.map(|refused| refused.reason.clone())
    };
    free.map(|claim| (claim, wanted.get(&claim.name)))
        .filter(|(claim, mark)| claim.consolidatable.as_ref() != *mark)
        .map(|(claim, mark)| ConsolidatableMark {
            claim: claim.name.clone(),
            mark: mark.cloned(),
            stays: stays(&claim.name),
        })
        .collect()
}

/// A claim that drifted, or whose time is over.
struct Candidate<'a> {
    why: RemovalReason,
    view: &'a ClaimView,
    node: &'a NodeView,
    pods: Vec<tenon_domain::api::Pod>,
}

/// The order of candidates: without pods first, then those whose time is over, which are forced at last, then the
/// earliest drift.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CandidateRank<'a> {
    has_pods: bool,
    drifted: bool,
    since: Option<Timestamp>,
    name: &'a ClaimName,
}

/// The replacements that active commands wait for: they stay.
fn awaited(input: &DisruptionInput) -> impl Fn(&ClaimView) -> bool {
    let active: BTreeSet<&CommandId> =
        input.commands.iter().filter(|command| command.is_active()).map(|command| &command.id).collect();
    move |view: &ClaimView| match &view.claim.role {
        CommandRole::None => false,
        CommandRole::Replacement(command) => active.contains(command),
    }
}

fn candidates<'a>(input: &'a DisruptionInput, fresh: &BTreeSet<ClaimName>) -> Vec<Candidate<'a>> {
    let awaited = awaited(input);
    let takes = |view: &&ClaimView| {
        view.claim.phase() == ClaimPhase::Initialized
            && (view.claim.drift.is_some() || due::due(input, view).is_some())
            && !fresh.contains(&view.claim.name)
            && !awaited(view)
    };
    let mut found: Vec<Candidate<'a>> = input
        .claims
        .iter()
        .filter(takes)
        .filter_map(|view| {
            let node = view.node.as_ref()?;
            let why = due::due(input, view).unwrap_or(RemovalReason::Drifted);
            Some(Candidate { why, view, node, pods: reschedulable(node) })
        })
        .collect();
    found.sort_by(|a, b| rank(a).cmp(&rank(b)));
    found
}

fn rank<'a>(candidate: &Candidate<'a>) -> CandidateRank<'a> {
    CandidateRank {
        has_pods: !candidate.pods.is_empty(),
        drifted: candidate.why == RemovalReason::Drifted,
        since: candidate.view.claim.drift.as_ref().map(|drift| drift.since),
        name: &candidate.view.claim.name,
    }
}

/// How long until an exhausted PodDisruptionBudget is tried again. No event tells when it allows an eviction again; a
/// moved pod is Ready after about this time.
const PDB_AGAIN: SignedDuration = SignedDuration::from_secs(60);

/// Reports why a candidate stays, and looks again when that may change by itself.
fn refuse(
    input: &DisruptionInput,
    view: &ClaimView,
    refused: NotDisrupted,
    plan: &mut DisruptionPlan,
    report: &mut DisruptionReport,
) {
    if let Some(at) = refused.again.filter(|at| *at > input.now) {
        look_again(plan, at);
    }
    report.refusals.push(refusal(input, view, refused.reason));
}

fn refusal(input: &DisruptionInput, view: &ClaimView, reason: RefusalReason) -> DisruptionRefusal {
    DisruptionRefusal { claim: view.claim.name.clone(), reason, waits_for: due::waits_for(input, view) }
}

/// The reason why annotations or PodDisruptionBudgets keep a node.
fn held(input: &DisruptionInput, node: &NodeView, word: PodsWord) -> Result<(), NotDisrupted> {
    let Some(reason) = blocked(node, &input.pdbs, word, input.now) else { return Ok(()) };
    let again = match &reason {
        RefusalReason::DoNotDisrupt { until, .. } => *until,
        RefusalReason::BlockedByPdb { .. } => input.now.checked_add(PDB_AGAIN).ok(),
        RefusalReason::BudgetExhausted { .. }
        | RefusalReason::ClusterBudgetExhausted { .. }
        | RefusalReason::DriftsAgain { .. }
        | RefusalReason::NotReplacedLately { .. }
        | RefusalReason::Unschedulable { .. }
        | RefusalReason::TooManyReplacements { .. }
        | RefusalReason::PoolNotFound { .. }
        | RefusalReason::Paused { .. }
        | RefusalReason::SavesTooLittle { .. }
        | RefusalReason::MovedLately { .. }
        | RefusalReason::TooYoung { .. }
        | RefusalReason::Undone { .. }
        | RefusalReason::SpotToSpotDisabled
        | RefusalReason::TooFewSpotTypes { .. }
        | RefusalReason::MinValuesUnmet { .. }
        | RefusalReason::Unbalanced { .. } => None,
    };
    Err(NotDisrupted { reason, again })
}

/// Whether its pods may keep the node of a claim that drifted, or whose time is over.
fn pods_word(input: &DisruptionInput, view: &ClaimView) -> PodsWord {
    match grace_of(input, view) {
        Some(_) => PodsWord::Waived,
        None => PodsWord::Counts,
    }
}

/// How long a drain of the claim lasts at most.
fn grace_of(input: &DisruptionInput, view: &ClaimView) -> Option<SignedDuration> {
    let pool = input.pools.iter().find(|pool| pool.name == view.claim.pool);
    view.claim.terms_or(pool).and_then(|terms| terms.termination_grace_period)
}

/// The pods that need no room before their node drains: it may drain although they stay until its deadline. The peer
/// never looks for their room; here they get it where there is some.
fn without_room(input: &DisruptionInput, view: &ClaimView) -> BTreeSet<Uid> {
    let Some((grace, node)) = grace_of(input, view).zip(view.node.as_ref()) else { return BTreeSet::new() };
    let ends = input.now.checked_add(grace).unwrap_or(Timestamp::MAX);
    kept(node, &input.pdbs, (input.now, ends))
}

fn consider<'a>(
    input: &'a DisruptionInput,
    candidate: &Candidate<'a>,
    advances: &[Advance],
    budgets: &mut BudgetLedger<'a>,
    world: &mut SpareCapacity<'_>,
) -> Result<NewCommand, NotDisrupted> {
    let name = &candidate.view.claim.pool;
    let no_pool = || NotDisrupted { reason: RefusalReason::PoolNotFound { pool: name.clone() }, again: None };
    let pool = input.pools.iter().find(|pool| pool.name == *name).ok_or_else(no_pool)?;
    held(input, candidate.node, pods_word(input, candidate.view))?;
    drifts_again(input, candidate)?;
    let reason = (candidate.why == RemovalReason::Drifted).then_some(DisruptionReason::Drifted);
    let budget = budgets.check(pool, reason)?;
    let id = command_id(input, candidate.view).ok_or_else(no_pool)?;
    let going = BTreeSet::from([candidate.node.name.as_str()]);
    let kept = without_room(input, candidate.view);
    let known = world.plan_move(&id, &going, candidate.pods.clone(), &kept);
    // Pods that have room elsewhere need no replacement.
    if !known.plan.claims.is_empty() || !known.refused.unschedulable.is_empty() {
        undone::rested(input, &candidate.view.claim, candidate.why)?;
    }
    let found = if known.refused.unschedulable.is_empty() {
        known
    } else {
        // One command of a pool at a time asks EC2 for what it refused: its node's taint keeps pods out meanwhile.
        let waits = |command: &Command| {
            command.pool == *name && waits_for_capacity(input, command) && !is_undone(command, advances)
        };
        let may_ask = !input.commands.iter().any(waits);
        let asking = may_ask.then(|| world.plan_asking(&id, &going, &known)).flatten();
        asking.ok_or_else(|| {
            let reason = RefusalReason::Unschedulable { pods: known.refused.unschedulable.clone() };
            NotDisrupted { reason, again: known.plan.wake_at }
        })?
    };
    let found = PlannedMove { plan: warned::avoid(input, candidate.why, found.plan), ..found };
    world.commit(&going, &found.plan, &found.pods);
    budgets.take(candidate.view);
    Ok(NewCommand {
        id,
        pool: name.clone(),
        reason: candidate.why,
        candidates: vec![candidate.view.claim.name.clone()],
        unplanned: found.unplanned(),
        replacement: found.plan,
        saves: None,
        budget,
    })
}

/// The Nodes of replacements that pods of candidates would go to now, although they are still empty: those of a command that
/// a pause ended. Other empty nodes go first, so their room doesn't count.
fn needed_by_candidates(
    input: &DisruptionInput,
    fresh: &BTreeSet<ClaimName>,
    advances: &[Advance],
) -> BTreeSet<String> {
    let is_empty =
        |view: &&ClaimView| view.claim.consolidatable.as_ref().is_some_and(|mark| mark.pods.is_none());
    let (replacements, others): (Vec<&ClaimView>, Vec<&ClaimView>) = input
        .claims
        .iter()
        .filter(is_empty)
        .partition(|view| matches!(view.claim.role, CommandRole::Replacement(_)));
    let mut candidates = candidates(input, fresh);
    candidates.retain(|candidate| !candidate.pods.is_empty());
    if replacements.is_empty() || candidates.is_empty() {
        return BTreeSet::new();
    }
    let (mut world, mut budgets) = (SpareCapacity::new(input), BudgetLedger::new(input));
    world.close(others.into_iter().filter_map(moving::node_name));
    let commands = candidates
        .iter()
        .filter_map(|candidate| consider(input, candidate, advances, &mut budgets, &mut world).ok());
    let nodes: BTreeSet<String> =
        commands.flat_map(|command| command.replacement.placements).map(|placement| placement.node).collect();
    replacements
        .into_iter()
        .filter_map(moving::node_name)
        .filter(|node| nodes.contains(*node))
        .map(str::to_owned)
        .collect()
}

/// Whether this plan undoes the command.
fn is_undone(command: &Command, advances: &[Advance]) -> bool {
    let undone = |advance: &Advance| matches!(advance.step, CommandStep::Undo { .. });
    advances.iter().any(|advance| advance.command == command.id && undone(advance))
}

/// How long a replacement stays that has the same drift as the node that it replaced.
const SAME_DRIFT_STAYS: SignedDuration = SignedDuration::from_hours(24);
/// How soon after its making such a drift is found. Later, what the pool and the class ask for has changed meanwhile.
const FOUND_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// Whether a drift is about what the node got. The others compare what was asked for at the launch with what is asked for
/// now: they can't come back by themselves.
const fn is_of_node(reason: DriftReason) -> bool {
    match reason {
        DriftReason::RequirementsDrifted
        | DriftReason::SubnetDrift
        | DriftReason::CapacityReservationDrift
        | DriftReason::PlacementGroupDrift => true,
        DriftReason::NodePoolDrifted
        | DriftReason::NodeClassDrift
        | DriftReason::SecurityGroupDrift
        | DriftReason::InstanceTypeNotFound
        | DriftReason::AmiDrift => false,
    }
}

/// Whether the node replaced one for the very drift that it has itself: its own replacement would drift again.
fn drifts_again(input: &DisruptionInput, candidate: &Candidate<'_>) -> Result<(), NotDisrupted> {
    let claim = &candidate.view.claim;
    let CommandRole::Replacement(command) = &claim.role else { return Ok(()) };
    let (Some(had), Some(has)) = (input.replaced_drift.get(command), &claim.drift) else { return Ok(()) };
    let until = claim.created_at.saturating_add(SAME_DRIFT_STAYS).unwrap_or(Timestamp::MAX);
    let born_with = has.since.duration_since(claim.created_at) < FOUND_WITHIN;
    let same = is_of_node(has.reason) && (had.reason, &had.from, &had.to) == (has.reason, &has.from, &has.to);
    if candidate.why != RemovalReason::Drifted || !born_with || !same || until <= input.now {
        return Ok(());
    }
    let reason = RefusalReason::DriftsAgain { drift: has.reason, until };
    Err(NotDisrupted { reason, again: Some(until) })
}

/// The command's id: of the claim and its revision, so that one look makes the same command twice.
fn command_id(input: &DisruptionInput, view: &ClaimView) -> Option<CommandId> {
    let claim = &view.claim;
    let revision = claim.revision.to_string();
    let digest = Digest::of_texts([input.world.cluster.as_str(), claim.name.as_str(), &revision]);
    CommandId::parse(format!("command-{}", digest.base36(12))).ok()
}

fn invalid_annotations(input: &DisruptionInput) -> Vec<InvalidAnnotation> {
    let pods = input.claims.iter().filter_map(|view| view.node.as_ref()).flat_map(|node| &node.pods);
    let invalid = pods.filter_map(|pod| match &pod.shape.do_not_disrupt {
        DoNotDisrupt::Invalid(value) => {
            let owner = pod.shape.owner.as_ref().map(|owner| format!("{}/{}", owner.kind, owner.name));
            Some(InvalidAnnotation { pod: pod.name.clone(), owner, value: value.clone() })
        }
        DoNotDisrupt::No | DoNotDisrupt::Always | DoNotDisrupt::For(_) => None,
    });
    let mut invalid: Vec<InvalidAnnotation> = invalid.collect();
    invalid.sort();
    invalid
}
