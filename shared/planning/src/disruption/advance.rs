//! The next step of an active command.
//!
//! Decides when candidates drain, the successors of failed replacements, and when a command is undone instead: a
//! consolidation at once, another one if its drift is over or its time is.
//!
//! Invariants: no candidate drains before all replacements are initialised, unless no pod is left that needs one; a command
//! that waits for a replacement after one failed ends, also in a pause.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Pod;
use tenon_domain::claim::{ClaimPhase, ClaimState, RemovalReason};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, Uid};

use super::blocked::reschedulable;
use super::input::{ClaimView, DisruptionInput};
use super::moving::{SpareCapacity, node_name};
use super::output::{
    Advance, CommandStep, DisruptionPlan, DisruptionRefusal, DisruptionReport, FIRST_BACK_OFF,
    LONGEST_BACK_OFF, RefusalReason, UndoCause,
};
use super::undone::{UNREPLACED_FOR, next_try};
use super::{drift, without_room};

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
            CommandState::Replacing { since, attempts, not_before } => {
                let of =
                    ReplacingCommand { command, since: *since, attempts: *attempts, not_before: *not_before };
                replacing(input, of, look)
            }
            CommandState::Draining { .. } => {
                let gone = views(input, &command.candidates).all(|view| view.claim.phase().is_final());
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

/// A command that waits for its replacements.
#[derive(Clone, Copy)]
struct ReplacingCommand<'a> {
    command: &'a Command,
    since: Timestamp,
    attempts: u32,
    not_before: Timestamp,
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
    // A consolidation may take nodes of several pools.
    let pause = candidates.iter().find_map(|view| input.paused.get_key_value(&view.claim.pool));
    let mut failed: Vec<ClaimName> = command
        .replacements
        .iter()
        .filter(|name| state(input, name) == Replacement::Failed)
        .cloned()
        .collect();
    failed.sort();
    if let Some((pool, by)) = pause {
        let step = if failed.is_empty() { None } else { given_up(input, of, &candidates, look.plan) };
        if step.is_none() {
            refuse_all(&candidates, &RefusalReason::Paused { pool: pool.clone(), by: *by }, look);
        }
        return step;
    }
    let pods: Vec<Pod> =
        candidates.iter().filter_map(|view| view.node.as_ref()).flat_map(reschedulable).collect();
    let ready = |name: &ClaimName| state(input, name) == Replacement::Initialized;
    if pods.is_empty() && seen(&candidates) {
        return Some(CommandStep::Drain { candidates: names });
    }
    let all_ready = failed.is_empty() && command.replacements.iter().all(ready);
    // Nothing forces a consolidation: it doesn't insist, and it doesn't drain pods that would have to wait.
    if command.reason == RemovalReason::Underutilized {
        return match (all_ready, failed.is_empty()) {
            (true, _) if look.world.has_room_for(&pods) => Some(CommandStep::Drain { candidates: names }),
            (true, _) => Some(CommandStep::Undo { candidates: names, cause: UndoCause::NoRoom }),
            (false, false) => given_up(input, of, &candidates, look.plan),
            (false, true) => None,
        };
    }
    match (all_ready, failed.is_empty()) {
        (true, _) => Some(CommandStep::Drain { candidates: names }),
        (false, true) => None,
        (false, false) => unreplaced(input, of, &candidates, (failed, pods), look),
    }
}

/// The end of a command of which a replacement failed: a consolidation's at once, another one's once its time is over and
/// no replacement starts any more.
fn given_up(
    input: &DisruptionInput,
    of: ReplacingCommand<'_>,
    candidates: &[&ClaimView],
    plan: &mut DisruptionPlan,
) -> Option<CommandStep> {
    let ReplacingCommand { command, since, .. } = of;
    let ends_at = since.saturating_add(UNREPLACED_FOR).unwrap_or(Timestamp::MAX);
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

/// The step of a command of which replacements failed: others, as long as its time isn't over.
fn unreplaced(
    input: &DisruptionInput,
    of: ReplacingCommand<'_>,
    candidates: &[&ClaimView],
    (failed, pods): (Vec<ClaimName>, Vec<Pod>),
    look: &mut AdvanceContext<'_, '_>,
) -> Option<CommandStep> {
    let ReplacingCommand { command, since: _, attempts, not_before } = of;
    let ends = given_up(input, of, candidates, look.plan);
    // The room of those that start counts once they are ready.
    if ends.is_some() || has_coming(input, command) {
        return ends;
    }
    if input.now < not_before {
        look_again(look.plan, not_before);
        return None;
    }
    let homeless: Vec<Pod> = pods.into_iter().filter(|pod| !input.counted.contains_key(&pod.uid)).collect();
    let nodes: BTreeSet<&str> = candidates.iter().filter_map(|view| node_name(view)).collect();
    let kept: BTreeSet<Uid> = candidates.iter().flat_map(|view| without_room(input, view)).collect();
    let known = look.world.plan_move(&command.id, &nodes, homeless, &kept);
    let not_before = input.now.checked_add(back_off(attempts)).unwrap_or(Timestamp::MAX);
    let (found, has_all, (attempts, not_before)) = if known.refused.unschedulable.is_empty() {
        (known, true, (attempts.saturating_add(1), not_before))
    } else if let Some(asking) = look.world.plan_asking(&command.id, &nodes, &known) {
        let has_all = asking.is_whole();
        // The marks say how soon EC2 is asked again.
        (asking, has_all, (attempts, input.now))
    } else {
        look_again(look.plan, known.plan.wake_at.filter(|at| *at > input.now).unwrap_or(not_before));
        refuse_all(candidates, &RefusalReason::Unschedulable { pods: known.refused.unschedulable }, look);
        return None;
    };
    look.world.commit(&nodes, &found.plan, &found.pods);
    // While pods wait for the answer to others' probe, one that failed stays with the command: it doesn't drain without
    // another one.
    let failed = failed.into_iter().skip(usize::from(!has_all)).collect();
    Some(CommandStep::Replace { failed, plan: found.plan, attempts, not_before })
}

fn refuse_all(candidates: &[&ClaimView], reason: &RefusalReason, look: &mut AdvanceContext<'_, '_>) {
    let refused = candidates.iter().map(|view| &view.claim.name);
    let refused = refused.map(|claim| DisruptionRefusal { claim: claim.clone(), reason: reason.clone() });
    look.report.refusals.extend(refused);
}

/// Whether a command waits for a replacement that EC2 may refuse, or has refused.
pub(crate) fn waits_for_capacity(input: &DisruptionInput, command: &Command) -> bool {
    let waits = |name: &ClaimName| {
        let view = input.claims.iter().find(|view| view.claim.name == *name);
        view.is_some_and(|view| view.claim.phase() == ClaimPhase::Planned)
            || state(input, name) == Replacement::Failed
    };
    matches!(command.state, CommandState::Replacing { .. }) && command.replacements.iter().any(waits)
}

/// Whether the snapshot shows all of their nodes, so that no pods means none.
fn seen(candidates: &[&ClaimView]) -> bool {
    candidates.iter().all(|view| view.node.is_some())
}

pub(crate) fn look_again(plan: &mut DisruptionPlan, at: Timestamp) {
    plan.wake_at = Some(plan.wake_at.map_or(at, |before| before.min(at)));
}

fn back_off(attempts: u32) -> SignedDuration {
    let factor = 1_i32.checked_shl(attempts.min(16)).unwrap_or(i32::MAX);
    FIRST_BACK_OFF.checked_mul(factor).unwrap_or(LONGEST_BACK_OFF).min(LONGEST_BACK_OFF)
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
