//! The plan: every claim's steps, the audit, the pools' statuses, old items and launch templates, and the time of the
//! next look.
//!
//! Decides from a [`LifecycleInput`] alone. A second plan, of the world after the first, is empty.
//!
//! Invariants: a claim's steps follow the table of transitions; no claim becomes `Terminating` during a halt, or
//! without an answer of EC2 in the same pass.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::catalog::node_shape::reported_storage;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, InstanceId, LaunchId};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::Launch;
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::report::{Finding, Report};
use tenon_domain::snapshot::{Snapshot, Unreadable};
use tenon_domain::wait::later;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_ec2::port::InstanceState;
use tenon_snapshot::NodeAction;

use crate::audit::{AuditPlan, audit};
use crate::boots::BootLesson;
use crate::draining::UnhealthyDrain;
use crate::input::{InstanceSeen, LifecycleInput, NodeSeen};
use crate::learn::Lesson;
use crate::step::{ClaimNext, Halted, next, subject};
use crate::strays::{StrayPlan, plan_strays};
use crate::templates::{self, TemplatePlan};
use crate::{NAME, TERMINATION_POLL, boots, consistency, draining, learn, node, pools, statuses};

/// How long an ended claim is kept for people.
pub const CLAIM_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// How long a launch is kept after the end of its last claim: an instance of it may still appear.
pub const LAUNCH_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How long until the next look at a wait or a refusal.
pub(crate) const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(1);
/// The most steps of a claim in one pass: registered, initialised, draining, drained, terminating.
const STEPS_MOST: usize = 5;

/// The writes and effects.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LifecyclePlan {
    /// Claims with a step, by name.
    pub steps: Vec<ClaimStep>,
    /// Actions of claims that stay as they are.
    pub actions: Vec<(Claim, NodeAction)>,
    /// Ended claims without a Node.
    pub forgotten: Vec<Forgotten>,
    /// Launches without claims, with their last revision.
    pub launches: Vec<Launch>,
    /// The audit's actions, if EC2 answered.
    pub audit: AuditPlan,
    /// Launch templates that nothing needs, if a look at them was due.
    pub templates: TemplatePlan,
    /// What becomes of Nodes without a claim and an instance.
    pub strays: StrayPlan,
    /// Pools' statuses that changed.
    pub pools: Vec<PoolStatus>,
    /// New memory reports of Nodes that registered.
    pub learned: Vec<Lesson>,
    /// What images showed.
    pub boots: Vec<BootLesson>,
    /// Claims' instances to terminate after the commit, by claim, so that a lost race keeps the instance.
    pub terminate: BTreeMap<ClaimName, InstanceId>,
    /// Whether the next decision needs an answer of EC2.
    pub asks_ec2: bool,
    /// When to look again, whether or not anything changes.
    pub wake_at: Timestamp,
    /// The same without the audit, for which the first sweep after it is soon enough.
    pub due_at: Option<Timestamp>,
}

impl LifecyclePlan {
    fn look_at(&mut self, at: Timestamp) {
        self.wake_at = self.wake_at.min(at);
        self.due_at = self.due_at.into_iter().chain([at]).min();
    }
}

/// A claim with new steps.
#[derive(Debug, PartialEq, Eq)]
pub struct ClaimStep {
    /// The observed claim.
    pub before: Claim,
    /// The claim after its steps.
    pub after: Claim,
    /// The new target state of its Node, if it changes.
    pub action: Option<NodeAction>,
    /// Each step, in order.
    pub journal: Vec<JournalRecord>,
}

impl ClaimStep {
    /// Whether its counted pods must be planned again.
    #[must_use]
    pub const fn loses_room(&self) -> bool {
        self.before.state.phase().offers_room() && !self.after.state.phase().offers_room()
    }

    /// Whether the claim has just given up its instance: no budget counts its Node now, and a command that waits for it
    /// as a replacement waits in vain.
    #[must_use]
    pub fn gives_up(&self) -> bool {
        let is_up = |claim: &Claim| claim.phase() < ClaimPhase::Terminating;
        is_up(&self.before) && !is_up(&self.after)
    }

    /// The steps' decisions, in order.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> {
        self.journal.iter().map(|record| record.decision)
    }
}

/// An ended claim without a Node.
#[derive(Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// The claim.
    pub claim: Claim,
    /// Its instance, whose item is deleted.
    pub instance: Option<InstanceId>,
}

/// Plans.
pub fn plan(input: &LifecycleInput) -> (LifecyclePlan, Report) {
    let mut plan = LifecyclePlan::default();
    if let Some(view) = &input.ec2 {
        plan.audit = audit(input, view);
    }
    plan_templates(input, &mut plan);
    plan.wake_at = next_audit(input, &plan.audit);
    statuses::remember(input, &mut plan);
    let mut report = Report::default();
    let halted = if input.halt.is_some() || plan.audit.halt.is_some() { Halted::Yes } else { Halted::No };
    if halted == Halted::Yes {
        report.wait(&Waiting::TableRestored);
    }
    if let Some(waiting) = &plan.audit.waiting {
        report.wait(waiting);
    }
    if let (Err(waiting), true) =
        (&input.snapshot, input.claims.values().any(|claim| !claim.phase().is_final()))
    {
        // A returning agent may send only a heartbeat, which changes no generation.
        report.wait(waiting);
    }
    if let Ok(snapshot) = &input.snapshot {
        report.unreadable(snapshot.unreadable.iter().filter(|object| is_told_here(object)));
        tell_warnings(snapshot, &mut report);
    }
    for claim in input.claims.values() {
        plan_claim(claim, input, halted, &mut plan, &mut report);
    }
    consistency::tell(input, &mut report);
    plan.strays = plan_strays(input, &mut report);
    forget_launches(input, &mut plan);
    plan.pools = pools::changed(input);
    plan.learned = learn::learned(&plan.steps, input);
    plan.boots = boots::lessons(&plan.steps, input);
    if !plan.audit.orphans.is_empty() {
        plan.look_at(later(input.now, TERMINATION_POLL));
    }
    if report.waits() {
        plan.look_at(later(input.now, LOOK_AGAIN));
    }
    (plan, report)
}

/// Looks at launch templates, together with an audit that is written down. A halt may mean that the table lacks
/// launches, so nothing is deleted.
fn plan_templates(input: &LifecycleInput, plan: &mut LifecyclePlan) {
    let (Some(view), Some(record), None, None) =
        (&input.templates, plan.audit.record.as_mut(), &input.halt, &plan.audit.halt)
    else {
        return;
    };
    plan.templates = templates::plan(view, input);
    // With more to delete, the next audit looks again.
    if plan.templates.left == 0 {
        record.templates_at = Some(input.now);
    }
}

/// Tells what is probably a mistake in NodePools and EC2NodeClasses. Of bad annotations that a NodePool is better off
/// without, `disruption` tells.
fn tell_warnings(snapshot: &Snapshot, report: &mut Report) {
    let pools = snapshot.node_pools.iter().map(|pool| (SubjectKind::Pool, &pool.meta.name, &pool.warnings));
    let classes =
        snapshot.node_classes.iter().map(|class| (SubjectKind::Class, &class.meta.name, &class.warnings));
    for (kind, name, warnings) in pools.chain(classes) {
        for warning in warnings {
            report.tell(Finding::doubtful(Subject { kind, name: name.clone() }, warning));
        }
    }
}

/// Whether this function reports an unreadable object. `provisioner` reports pods, `node-classes` reports classes.
fn is_told_here(object: &Unreadable) -> bool {
    !matches!(object.kind.as_str(), "Pod" | "EC2NodeClass")
}

fn next_audit(input: &LifecycleInput, audit: &AuditPlan) -> Timestamp {
    audit.record.as_ref().unwrap_or(&input.audit).due_at().unwrap_or(input.now)
}

fn plan_claim(
    claim: &Claim,
    input: &LifecycleInput,
    halted: Halted,
    plan: &mut LifecyclePlan,
    report: &mut Report,
) {
    if claim.phase().is_final() {
        let forgotten = forget(claim, input);
        let unsure = input.snapshot.is_ok() && !input.expiring.contains(&claim.name) && forgotten.is_none();
        if unsure && claim.state.instance().is_some_and(|held| is_unseen(claim, held, input)) {
            // The agent's next heartbeat ends the wait, even without a change.
            plan.look_at(later(input.now, LOOK_AGAIN));
        }
        plan.forgotten.extend(forgotten);
        return;
    }
    let mut step =
        ClaimStep { before: claim.clone(), after: claim.clone(), action: None, journal: Vec::new() };
    if let Some((announced, message)) = statuses::announced(claim, input) {
        step.journal.push(record(&announced, Decision::Announced, message, input));
        step.after = announced;
    }
    plan_deadline(&mut step, input, plan, report);
    for _ in 0..STEPS_MOST {
        let found = match next(&step.after, input, halted) {
            ClaimNext::Step(found) => *found,
            other @ (ClaimNext::Stay
            | ClaimNext::At(_)
            | ClaimNext::AskEc2(_)
            | ClaimNext::Wait(_)
            | ClaimNext::Tell { .. }) => {
                note(other, plan, report);
                break;
            }
        };
        match step.after.stepped(found.to) {
            Ok(stepped) => {
                step.journal.push(record(&stepped, found.decision, found.message, input));
                step.action = node::action_of(&stepped, input).or(step.action);
                step.after = with_lack(&step.after, with_storage(stepped, input), input);
            }
            Err(impossible) => {
                report.tell(Finding::refused(
                    subject(claim),
                    "ImpossibleStep",
                    "not changing {}",
                    impossible.to_string(),
                ));
                plan.look_at(later(input.now, LOOK_AGAIN));
                break;
            }
        }
    }
    execute_termination(&step.after, input, plan, halted);
    if !step.journal.is_empty() {
        plan.steps.push(step);
    } else if let Some(action) = node::registration(claim, input) {
        plan.actions.push((claim.clone(), action));
    }
}

/// The earlier end of a drain that goes on: by the annotation of its NodeClaim, or because its Node stays unhealthy.
fn plan_deadline(
    step: &mut ClaimStep,
    input: &LifecycleInput,
    plan: &mut LifecyclePlan,
    report: &mut Report,
) {
    if let Some((shortened, message)) = draining::shortened(&step.after, input) {
        step.journal.push(record(&shortened, Decision::Draining, message, input));
        step.action = node::action_of(&shortened, input);
        step.after = shortened;
    }
    match draining::forced(&step.after, input) {
        UnhealthyDrain::Ends(forced, message) => {
            step.journal.push(record(&forced, Decision::Draining, message, input));
            step.action = node::action_of(&forced, input);
            step.after = *forced;
        }
        UnhealthyDrain::Stays(found) => note(found, plan, report),
    }
}

/// The claim with the storage that its Node reports last, for plans of the same class after the Node's end. A file system
/// may be smaller or gone since the Node joined, so that each step looks again.
fn with_storage(claim: Claim, input: &LifecycleInput) -> Claim {
    let has_joined = match claim.phase() {
        ClaimPhase::Registered
        | ClaimPhase::Initialized
        | ClaimPhase::Disrupting
        | ClaimPhase::Draining
        | ClaimPhase::Drained
        | ClaimPhase::Terminating => true,
        ClaimPhase::Planned | ClaimPhase::LaunchFailed | ClaimPhase::Launched | ClaimPhase::Terminated => {
            false
        }
    };
    let instance = claim.state.instance().filter(|_| has_joined);
    let node = instance.and_then(|instance| input.node_of(instance, claim.created_at).node());
    let reported = node.and_then(|node| reported_storage(&node.capacity));
    Claim { storage: reported.or(claim.storage), ..claim }
}

/// The claim with what its Node lacks, if it goes for that.
fn with_lack(before: &Claim, after: Claim, input: &LifecycleInput) -> Claim {
    let timed_out = after.state.removal() == Some(RemovalReason::InitializationTimeout);
    let instance = before.state.instance().filter(|_| timed_out && before.phase() == ClaimPhase::Registered);
    let found = instance.and_then(|instance| input.node_of(instance, before.created_at).node());
    let lacked = found.and_then(|found| node::not_initialized(before, found, input));
    Claim { lacked: lacked.or(after.lacked), ..after }
}

fn is_unseen(claim: &Claim, held: &LaunchedInstance, input: &LifecycleInput) -> bool {
    let since = claim.state.since().unwrap_or(claim.created_at);
    matches!(input.node_of(held, since), NodeSeen::Unknown)
}

/// Notes why a claim doesn't step, and when to look again; reports it if a person must know.
fn note(next: ClaimNext, plan: &mut LifecyclePlan, report: &mut Report) {
    match next {
        ClaimNext::Stay | ClaimNext::Step(_) => {}
        ClaimNext::At(at) => plan.look_at(at),
        ClaimNext::AskEc2(at) => {
            plan.asks_ec2 = true;
            plan.look_at(at);
        }
        ClaimNext::Wait(waiting) => report.wait(&waiting),
        ClaimNext::Tell { finding, again } => {
            report.tell(*finding);
            if let Some(again) = again {
                plan.look_at(again);
            }
        }
    }
}

/// Terminates the instance, repeatedly until EC2 confirms it: the call is idempotent.
fn execute_termination(claim: &Claim, input: &LifecycleInput, plan: &mut LifecyclePlan, halted: Halted) {
    let ClaimState::Terminating { instance, .. } = &claim.state else { return };
    match input.instance(&instance.id) {
        InstanceSeen::State(
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped,
        ) if halted == Halted::No => {
            plan.terminate.insert(claim.name.clone(), instance.id.clone());
        }
        InstanceSeen::State(
            InstanceState::Pending
            | InstanceState::Running
            | InstanceState::Stopping
            | InstanceState::Stopped
            | InstanceState::ShuttingDown
            | InstanceState::Terminated,
        )
        | InstanceSeen::NotAsked
        | InstanceSeen::Missing => {}
    }
}

fn record(claim: &Claim, decision: Decision, message: String, input: &LifecycleInput) -> JournalRecord {
    let mut record = JournalRecord::new(subject(claim), input.now, NAME, decision, message);
    if let Some(instance) = claim.state.instance() {
        record = record
            .detail("instance", &instance.id)
            .detail("instanceType", &instance.instance_type)
            .detail("zone", &instance.zone)
            .detail("capacityType", instance.capacity_type.as_str());
    }
    if let Some(node) = claim.state.node() {
        record = record.detail("node", node);
    }
    if let Some(reason) = claim.state.removal() {
        record = record.detail("reason", reason.as_str());
        let console = claim.state.instance().and_then(|instance| input.console_of(instance));
        if let (RemovalReason::RegistrationTimeout, Some(console)) = (reason, console) {
            record = record.detail("console", console);
        }
    }
    match &input.snapshot {
        Ok(snapshot) => record.evidence("snapshot", snapshot.generation),
        Err(_) => record,
    }
}

/// The removal of an ended claim, once its Node is known to be absent.
fn forget(claim: &Claim, input: &LifecycleInput) -> Option<Forgotten> {
    if input.expiring.contains(&claim.name) {
        return None;
    }
    match &claim.state {
        ClaimState::Terminated { instance: Some(instance), at, .. } => match input.node_of(instance, *at) {
            NodeSeen::Absent => Some(Forgotten { claim: claim.clone(), instance: Some(instance.id.clone()) }),
            NodeSeen::Unknown | NodeSeen::Present(_) | NodeSeen::Several => None,
        },
        ClaimState::Terminated { instance: None, .. } | ClaimState::LaunchFailed { .. } => {
            Some(Forgotten { claim: claim.clone(), instance: None })
        }
        ClaimState::Planned
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. } => None,
    }
}

/// Launches whose last claims this plan removes.
fn forget_launches(input: &LifecycleInput, plan: &mut LifecyclePlan) {
    let forgotten: BTreeSet<&ClaimName> =
        plan.forgotten.iter().map(|forgotten| &forgotten.claim.name).collect();
    let touched: BTreeSet<&LaunchId> =
        plan.forgotten.iter().map(|forgotten| &forgotten.claim.launch).collect();
    let ended = |name: &ClaimName| {
        forgotten.contains(name) || input.expiring.contains(name) || !input.claims.contains_key(name)
    };
    let launches = touched.into_iter().filter_map(|id| input.launches.get(id));
    plan.launches =
        launches.filter(|launch| launch.claims.iter().all(|claim| ended(&claim.name))).cloned().collect();
}

/// Whether a claim's launch is read: it may be the last one of it.
#[must_use]
pub fn needs_launch(claim: &Claim, expiring: &BTreeSet<ClaimName>) -> bool {
    claim.phase().is_final() && !expiring.contains(&claim.name)
}

/// Whether facts about the claim's type are needed: for its Node's labels, for a capacity before the Node has one, or
/// for learning.
#[must_use]
pub fn needs_type(claim: &Claim) -> bool {
    match claim.phase() {
        ClaimPhase::Launched => true,
        ClaimPhase::Planned
        | ClaimPhase::LaunchFailed
        | ClaimPhase::Registered
        | ClaimPhase::Initialized
        | ClaimPhase::Disrupting
        | ClaimPhase::Draining
        | ClaimPhase::Drained
        | ClaimPhase::Terminating
        | ClaimPhase::Terminated => false,
    }
}
