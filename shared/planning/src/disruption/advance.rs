//! The next step of an active command.
//!
//! Decides when candidates drain, the successors of failed replacements, and when a command is undone instead: a
//! consolidation at once, another one if its drift is over or its time is, and each if a pause begins.
//!
//! Invariants: no candidate drains before all replacements are planned and initialised, unless no pod is left that needs
//! one, nor in a pause; a command that waits for a replacement after one failed, or after one asked EC2 again, ends.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::DoNotDisrupt;
use tenon_domain::claim::{ClaimPhase, ClaimState, RemovalReason};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, Uid};
use tenon_domain::wait::doubled;

use super::blocked::{PodsWord, kept, reschedulable};
use super::input::{ClaimView, DisruptionInput, NodeView};
use super::moving::{PlannedMove, SpareCapacity, node_name};
use super::output::{
    Advance, CommandStep, DisruptionPlan, DisruptionReport, FIRST_BACK_OFF, LONGEST_BACK_OFF, RefusalReason,
    UndoCause,
};
use super::undone::{UNREPLACED_FOR, next_try};
use super::{drift, held as held_now, refusal, warned, without_room};

/// The state of one plan.
pub(crate) struct AdvanceContext<'a, 'w> {
    /// The room that is left.
    pub(crate) world: &'a mut SpareCapacity<'w>,
    /// The decisions.
    pub(crate) plan: &'a mut DisruptionPlan,
    /// The refusals.
    pub(crate) report: &'a mut DisruptionReport,
}

/// Adds the steps of all active commands, and their next looks.
pub(crate) fn advances(input: &DisruptionInput, look: &mut AdvanceContext<'_, '_>) {
    let mut commands: Vec<&Command> = input.commands.iter().filter(|command| command.is_active()).collect();
    commands.sort_by(|a, b| a.id.cmp(&b.id));
    for command in commands {
        let step = match &command.state {
            CommandState::Replacing { since, attempts, not_before, unplanned } => {
                let of = ReplacingCommand {
                    command,
                    since: *since,
                    attempts: *attempts,
                    not_before: *not_before,
                    unplanned: *unplanned,
                };
                replacing(input, of, look)
            }
            CommandState::Draining { .. } => {
                let gone = views(input, &command.candidates).all(has_left);
                gone.then_some(CommandStep::Finish)
            }
            CommandState::Done { .. } => None,
        };
        look.plan.advances.extend(step.map(|step| Advance { command: command.id.clone(), step }));
    }
}

fn views<'a>(input: &'a DisruptionInput, names: &'a [ClaimName]) -> impl Iterator<Item = &'a ClaimView> {
    input.claims.iter().filter(|view| names.contains(&view.claim.name))
}

/// Whether nothing is left to do for a candidate: its instance is terminated, or on its way there without a pod.
fn has_left(view: &ClaimView) -> bool {
    let is_empty = || view.node.as_ref().is_none_or(|node| reschedulable(node).is_empty());
    view.claim.phase().is_final() || view.claim.phase() == ClaimPhase::Terminating && is_empty()
}

/// A command that waits for its replacements.
#[derive(Clone, Copy)]
struct ReplacingCommand<'a> {
    command: &'a Command,
    since: Timestamp,
    attempts: u32,
    not_before: Timestamp,
    /// Pods without a planned replacement.
    unplanned: u32,
}

impl ReplacingCommand<'_> {
    /// When it is given up, unless a replacement starts.
    fn ends_at(self) -> Timestamp {
        self.since.saturating_add(UNREPLACED_FOR).unwrap_or(Timestamp::MAX)
    }
}

fn replacing(
    input: &DisruptionInput,
    of: ReplacingCommand<'_>,
    look: &mut AdvanceContext<'_, '_>,
) -> Option<CommandStep> {
    let command = of.command;
    let held = |view: &&ClaimView| matches!(&view.claim.state, ClaimState::Disrupting { command: by, .. } if *by == command.id);
    let mut candidates: Vec<&ClaimView> = views(input, &command.candidates).filter(held).collect();
    candidates.sort_by(|a, b| a.claim.name.cmp(&b.claim.name));
    if candidates.is_empty() {
        return Some(CommandStep::Finish);
    }
    let names: Vec<ClaimName> = candidates.iter().map(|view| view.claim.name.clone()).collect();
    // No pod was moved yet, so nothing is lost: its replacements are empty, or others' pods find room there.
    if command.reason == RemovalReason::Drifted && candidates.iter().all(|view| drift::is_over(input, view)) {
        return Some(CommandStep::Undo { candidates: names, cause: UndoCause::NoLongerDrifted });
    }
    // A consolidation may take nodes of several pools. A pause may last for days: meanwhile its nodes take pods.
    let paused =
        |view: &&ClaimView| input.paused.get_key_value(&view.claim.pool).filter(|(_, by)| by.ends_begun());
    if let Some((pool, by)) = candidates.iter().find_map(paused) {
        let cause = UndoCause::Paused { pool: pool.clone(), by: *by };
        return Some(CommandStep::Undo { candidates: names, cause });
    }
    let mut failed: Vec<ClaimName> = command
        .replacements
        .iter()
        .filter(|name| state(input, name) == Replacement::Failed)
        .cloned()
        .collect();
    failed.sort();
    let is_planned = failed.is_empty() && of.unplanned == 0;
    let pods: Vec<Pod> =
        candidates.iter().filter_map(|view| view.node.as_ref()).flat_map(reschedulable).collect();
    let ready = |name: &ClaimName| state(input, name) == Replacement::Initialized;
    if pods.is_empty() && seen(&candidates) {
        return Some(CommandStep::Drain { candidates: names });
    }
    let all_ready = is_planned && command.replacements.iter().all(ready);
    // Nothing forces a consolidation: it doesn't insist, and it doesn't drain pods that would have to wait.
    if command.reason == RemovalReason::Underutilized {
        if let Some(by) =
            candidates.iter().filter_map(|view| view.node.as_ref()).find_map(|node| stays(input, node))
        {
            let cause = UndoCause::Held { by: Box::new(by) };
            return Some(CommandStep::Undo { candidates: names, cause });
        }
        return match (all_ready, is_planned) {
            (true, _) if look.world.has_room_for(&pods) => Some(CommandStep::Drain { candidates: names }),
            (true, _) => Some(CommandStep::Undo { candidates: names, cause: UndoCause::NoRoom }),
            (false, false) => given_up(input, of, &candidates, look.plan),
            (false, true) => None,
        };
    }
    match (all_ready, is_planned) {
        (true, _) => Some(CommandStep::Drain { candidates: names }),
        (false, true) => None,
        (false, false) => unreplaced(input, of, &candidates, (failed, pods), look),
    }
}

/// What keeps the node for so long that a drain would wait for it. A PodDisruptionBudget that only allows none at this
/// moment doesn't: evictions wait until it does.
fn stays(input: &DisruptionInput, node: &NodeView) -> Option<RefusalReason> {
    let ends = input.now.checked_add(UNREPLACED_FOR).unwrap_or(Timestamp::MAX);
    let is_kept =
        node.do_not_disrupt == DoNotDisrupt::Always || !kept(node, &input.pdbs, (input.now, ends)).is_empty();
    is_kept.then(|| held_now(input, node, PodsWord::Counts).err()).flatten().map(|held| held.reason)
}

/// The end of a command of which a replacement failed, or isn't planned yet: a consolidation's at once, another one's once its time is over and
/// no replacement starts any more.
fn given_up(
    input: &DisruptionInput,
    of: ReplacingCommand<'_>,
    candidates: &[&ClaimView],
    plan: &mut DisruptionPlan,
) -> Option<CommandStep> {
    let (command, ends_at) = (of.command, of.ends_at());
    let cause = if command.reason == RemovalReason::Underutilized {
        UndoCause::ReplacementFailed
    } else if input.now < ends_at {
        look_again(plan, ends_at);
        return None;
    } else if has_coming(input, command) {
        return None;
    } else {
        let tried = candidates.iter().map(|view| next_try(input, &view.claim, command.reason));
        UndoCause::NotReplaced { again: tried.max().unwrap_or(input.now) }
    };
    let candidates = candidates.iter().map(|view| view.claim.name.clone()).collect();
    Some(CommandStep::Undo { candidates, cause })
}

/// Whether a replacement starts. Its next step wakes this planner.
fn has_coming(input: &DisruptionInput, command: &Command) -> bool {
    command.replacements.iter().any(|name| state(input, name) == Replacement::Coming)
}

/// Whether EC2 hasn't answered yet about a replacement.
fn has_unanswered(input: &DisruptionInput, command: &Command) -> bool {
    let names = &command.replacements;
    views(input, names).any(|view| view.claim.phase() == ClaimPhase::Planned)
}

/// The nodes of a command's replacements, by the names that they have in the world.
fn nodes_of<'a>(input: &'a DisruptionInput, command: &'a Command) -> BTreeSet<&'a str> {
    let nodes = views(input, &command.replacements);
    nodes.map(|view| node_name(view).unwrap_or(view.claim.name.as_str())).collect()
}

/// The step of a command of which replacements failed or aren't planned yet: others, as long as its time isn't over.
fn unreplaced(
    input: &DisruptionInput,
    of: ReplacingCommand<'_>,
    candidates: &[&ClaimView],
    (failed, pods): (Vec<ClaimName>, Vec<Pod>),
    look: &mut AdvanceContext<'_, '_>,
) -> Option<CommandStep> {
    let ReplacingCommand { command, since: _, attempts, not_before, unplanned } = of;
    let ends = given_up(input, of, candidates, look.plan);
    // Once EC2 has something again, the others' replacements needn't wait until the first is ready.
    let awaits = if unplanned > 0 && input.now < of.ends_at() { has_unanswered } else { has_coming };
    if ends.is_some() || awaits(input, command) {
        return ends;
    }
    if input.now < not_before {
        look_again(look.plan, not_before);
        return None;
    }
    let ours = nodes_of(input, command);
    let is_homeless =
        |pod: &Pod| !input.counted.contains_key(&pod.uid) && !look.world.is_promised(pod, &ours);
    let homeless: Vec<Pod> = pods.into_iter().filter(is_homeless).collect();
    let nodes: BTreeSet<&str> = candidates.iter().filter_map(|view| node_name(view)).collect();
    let kept: BTreeSet<Uid> = candidates.iter().flat_map(|view| without_room(input, view)).collect();
    let known = look.world.plan_move(&command.id, &nodes, homeless, &kept);
    let not_before =
        input.now.checked_add(doubled(FIRST_BACK_OFF, attempts, LONGEST_BACK_OFF)).unwrap_or(Timestamp::MAX);
    let (found, (attempts, not_before)) = if known.refused.unschedulable.is_empty() {
        (known, (attempts.saturating_add(1), not_before))
    } else if let Some(asking) = look.world.plan_asking(&command.id, &nodes, &known) {
        // The marks say how soon EC2 is asked again.
        (asking, (attempts, input.now))
    } else {
        look_again(look.plan, known.plan.wake_at.filter(|at| *at > input.now).unwrap_or(not_before));
        let reason = RefusalReason::Unschedulable { pods: known.refused.unschedulable };
        look.report.refusals.extend(candidates.iter().map(|view| refusal(input, view, reason.clone())));
        return None;
    };
    let found = PlannedMove { plan: warned::avoid(input, command.reason, found.plan), ..found };
    look.world.commit(&nodes, &found.plan, &found.pods);
    let unplanned = found.unplanned();
    Some(CommandStep::Replace { failed, plan: found.plan, attempts, not_before, unplanned })
}

/// Whether a command waits for a replacement that EC2 may refuse, or has refused.
pub(crate) fn waits_for_capacity(input: &DisruptionInput, command: &Command) -> bool {
    let waits = |name: &ClaimName| {
        let view = input.claims.iter().find(|view| view.claim.name == *name);
        view.is_some_and(|view| view.claim.phase() == ClaimPhase::Planned)
            || state(input, name) == Replacement::Failed
    };
    match command.state {
        CommandState::Replacing { unplanned, .. } => unplanned > 0 || command.replacements.iter().any(waits),
        CommandState::Draining { .. } | CommandState::Done { .. } => false,
    }
}

/// Whether the snapshot shows all of their nodes, so that no pods means none.
fn seen(candidates: &[&ClaimView]) -> bool {
    candidates.iter().all(|view| view.node.is_some())
}

pub(crate) fn look_again(plan: &mut DisruptionPlan, at: Timestamp) {
    plan.wake_at = Some(plan.wake_at.map_or(at, |before| before.min(at)));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replacement {
    Coming,
    Initialized,
    Failed,
}

fn state(input: &DisruptionInput, name: &ClaimName) -> Replacement {
    let Some(view) = input.claims.iter().find(|view| view.claim.name == *name) else {
        return Replacement::Failed;
    };
    match view.claim.phase() {
        ClaimPhase::Planned | ClaimPhase::Launched | ClaimPhase::Registered => Replacement::Coming,
        ClaimPhase::Initialized => Replacement::Initialized,
        // A replacement that leaves by itself, for any reason, will never be ready.
        ClaimPhase::LaunchFailed
        | ClaimPhase::Disrupting
        | ClaimPhase::Draining
        | ClaimPhase::Drained
        | ClaimPhase::Terminating
        | ClaimPhase::Terminated => Replacement::Failed,
    }
}
