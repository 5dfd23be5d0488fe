//! `disruption`: claims that aren't what their class would make any more are marked and, within their pool's budgets,
//! replaced: new nodes first, then the drain.
//!
//! It launches and drains nothing itself: a command's launches are committed for the provisioner, its drains for the
//! agent. While the table waits for a person's word, and from a snapshot that isn't fresh, it does nothing.

mod commit;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::evidence::{CatalogPart, Waiting};
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::{Cause, FunctionName};
use tenon_launching::build::LaunchInput;
use tenon_planning::disruption::{self, Plan, Report, Step};
use tenon_runtime::patient::PATIENCE;
use tenon_runtime::{Handler, HandlerError, Patient, Ports, Scope, Signals};
use tenon_snapshot::action::{Action, action_key};
use tenon_state::commit::{Outcome, commit};
use tenon_state::observe::{Caches, Observed, evidence, observe};
use tenon_state::pass::{End, Look, ROUNDS, changed, finish, told_waiting, wake_again};
use tenon_state::view::{Want, Wants, Watch};
use tenon_state::world::World;
use tenon_table::{CommitError, Consistency, Group, Key, Table, limits};

use commit::{Context, Decided};

/// What disruption looks at.
const WANTS: Wants<'static> = Wants {
    function: FunctionName::Disruption,
    parts: &CatalogPart::ALL,
    sets: &[Want::Claims, Want::Launches, Want::Commands, Want::Classes, Want::Templates, Want::Marks],
    watch: Watch::Facts,
};
/// Refusals that are told at most.
const REFUSALS_TOLD: usize = 20;

/// The function.
#[derive(Debug, Default)]
pub struct Disruption {
    caches: Caches,
}

impl Handler for Disruption {
    fn name(&self) -> FunctionName {
        FunctionName::Disruption
    }

    async fn handle<P: Ports>(&self, ports: &P, scope: &Scope, causes: &[Cause]) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        match changed(ports, scope, causes, WANTS).await? {
            Some(cluster) => self.disrupt(ports, cluster).await,
            None => Ok(()),
        }
    }
}

/// What a look did.
#[derive(Debug, Default)]
struct Done {
    launches: usize,
    actions: usize,
    commits: usize,
}

impl Disruption {
    async fn disrupt<P: Ports>(&self, ports: &P, cluster: &ClusterName) -> Result<(), HandlerError> {
        let now = ports.now();
        let mut done = Done::default();
        let mut end = None;
        for _ in 0..ROUNDS {
            let observed = observe(ports, cluster, WANTS, &self.caches).await?;
            let before = done.commits;
            let look = look(ports, cluster, &observed, &mut done).await?;
            end = Some(End::of(FunctionName::Disruption, now, &observed.view, look));
            if done.commits == before {
                self.caches.keep(cluster, observed.view);
                break;
            }
        }
        if done.launches > 0 {
            ports.signals().wake(FunctionName::Provisioner, cluster, SignedDuration::ZERO).await;
        }
        if done.actions > 0 {
            ports.signals().ring_agent(cluster).await;
        }
        let Some(end) = end else { return Ok(()) };
        if let Some(at) = end.deadline {
            wake_again(ports, FunctionName::Disruption, cluster, at).await;
        }
        finish(ports, cluster, now, end).await
    }
}

async fn look<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    observed: &Observed,
    done: &mut Done,
) -> Result<Look, HandlerError> {
    let view = &observed.view;
    let waiting = |waiting: &Waiting| Ok(Look::waiting(FunctionName::Disruption, view.now, waiting));
    let registry = match &view.registry {
        Ok(registry) => registry,
        Err(missing) => return waiting(missing),
    };
    if view.halt.is_some() {
        return waiting(&Waiting::TableRestored);
    }
    let snapshot = match &observed.snapshot {
        Ok(snapshot) => snapshot,
        Err(missing) => return waiting(missing),
    };
    if view.claims.is_empty() {
        return Ok(Look::default());
    }
    let mut world = World::new(cluster, registry, view, snapshot);
    world.resolve(&ports.installation().region);
    let (plan, report) = disruption::plan(&plan::input(&world, view, snapshot));
    let evidence = evidence(view, snapshot.generation);
    let launch = LaunchInput {
        now: view.now,
        by: FunctionName::Disruption,
        registry,
        classes: &world.classes,
        types: &world.types,
        region: &ports.installation().region,
        marks: &view.marks,
        evidence: &evidence,
    };
    let terms = view.claims.values().filter_map(|claim| {
        let pool = snapshot.node_pools.iter().find(|pool| pool.name == claim.pool);
        Some((claim.name.clone(), claim.terms_or(pool)?))
    });
    let (actions, terms) = (read_actions(ports, cluster, &plan, observed).await?, terms.collect());
    let context = Context { cluster, view, launch: &launch, actions: &actions, terms: &terms };
    carry_out(ports, &context, &plan, done).await?;
    let waits = !report.waiting.is_empty();
    Ok(Look { told: told(&report, view.now), wake_at: plan.wake_at, waits })
}

/// Commits a plan: steps and marks on their own revisions, then what is under the cluster's.
async fn carry_out<P: Ports>(
    ports: &P,
    context: &Context<'_>,
    plan: &Plan,
    done: &mut Done,
) -> Result<(), HandlerError> {
    for decided in plan.marks.iter().filter_map(|mark| context.mark(mark)) {
        commit_step(ports, decided, done).await?;
    }
    let mut groups: Vec<Group> = Vec::new();
    let (mut launches, mut actions) = (0, 0);
    let mut under_revision = |decided: Decided<'_>| {
        launches += decided.launches;
        actions += decided.actions;
        groups.push(decided.change.group());
    };
    for advance in &plan.advances {
        let Some(decided) = context.advance(advance)? else { continue };
        match advance.step {
            Step::Drain { .. } | Step::Finish => commit_step(ports, decided, done).await?,
            Step::Replace { .. } => under_revision(decided),
        }
    }
    for new in &plan.commands {
        if let Some(decided) = context.command(new)? {
            under_revision(decided);
        }
    }
    if groups.is_empty() {
        return Ok(());
    }
    match commit(ports, context.cluster, context.view.generations.revision, groups).await? {
        Outcome::Whole => {}
        // What went through before the race was lost is seen by the next look, and its doorbells are rung all the same.
        Outcome::Lost => {}
    }
    done.launches += launches;
    done.actions += actions;
    done.commits += 1;
    Ok(())
}

async fn commit_step<P: Ports>(ports: &P, decided: Decided<'_>, done: &mut Done) -> Result<(), HandlerError> {
    done.commits += 1;
    let actions = decided.actions;
    match ports.table().commit(&decided.change.commit()).await {
        Ok(()) => {
            done.actions += actions;
            Ok(())
        }
        Err(CommitError::LostRace { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What the agent has to do of the claims that take a step: their next action keeps what it was told before.
async fn read_actions<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &Plan,
    observed: &Observed,
) -> Result<BTreeMap<ClaimName, Action>, HandlerError> {
    let of_advances = plan.advances.iter().filter_map(|advance| observed.view.commands.get(&advance.command));
    let candidates = plan.commands.iter().flat_map(|command| &command.candidates);
    let names: BTreeSet<&ClaimName> =
        candidates.chain(of_advances.flat_map(|command| &command.candidates)).collect();
    let keys: Vec<Key> = names.into_iter().map(|name| action_key(cluster, name)).collect();
    let mut actions = BTreeMap::new();
    for some in keys.chunks(limits::BATCH_KEYS) {
        for (key, item) in ports.table().batch_get(some, Consistency::Strong).await? {
            let action = Action::from_item(&item)
                .map_err(|error| HandlerError::Item { key: key.to_string(), source: Box::new(error) })?;
            actions.insert(action.claim.clone(), action);
        }
    }
    Ok(actions)
}

fn told(report: &Report, now: Timestamp) -> Vec<JournalRecord> {
    let by = FunctionName::Disruption;
    let mut told: Vec<JournalRecord> =
        report.waiting.iter().map(|waiting| told_waiting(by, now, waiting)).collect();
    told.extend(report.refusals.iter().take(REFUSALS_TOLD).map(|refusal| {
        let subject = Subject { kind: SubjectKind::Claim, name: refusal.claim.to_string() };
        let message = format!("NodeClaim `{}` stays: {}", refusal.claim, refusal.reason);
        JournalRecord::new(subject, now, by.as_str(), Decision::Refused, message)
            .detail("reason", refusal.reason.as_str())
    }));
    told
}
