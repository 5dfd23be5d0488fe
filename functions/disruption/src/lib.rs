//! `disruption`: marks claims that drifted from their class or could go, and takes them away within their pools' budgets:
//! new nodes first, where they are needed, then the drain.
//!
//! It doesn't launch or drain itself: it commits a command's launches for `provisioner`, and its drains for the
//! agent. While the cluster is halted, or the snapshot is stale, it does nothing.

mod commit;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::HeldOffering;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::report::Report;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_planning::disruption::{CommandStep, DisruptionPlan};
use tenon_runtime::patient::PATIENCE;
use tenon_runtime::{Handler, HandlerError, Patient, Ports, Signals, WakeScope};
use tenon_snapshot::action::{NodeAction, action_key};
use tenon_state::commit::{CommitOutcome, commit};
use tenon_state::heads::Watch;
use tenon_state::observe::{Caches, ClusterObservation, observe};
use tenon_state::pass::{AfterCommit, End, Of, Pass, SeenOf, Waits, changed, run};
use tenon_state::view::{ClusterView, Want, Wants};
use tenon_table::{CommitError, Consistency, Key, Table, WriteGroup, limits};

use commit::{DecidedChange, DisruptionContext};
use plan::PlannedDisruption;

/// The observations that disruption needs.
const WANTS: Wants<'static> = Wants {
    function: FunctionName::Disruption,
    parts: &CatalogPart::ALL,
    sets: &[Want::Claims, Want::Launches, Want::Commands, Want::Classes, Want::Templates, Want::Marks],
    watch: Watch::Facts,
};

/// The function.
#[derive(Debug, Default)]
pub struct Disruption {
    caches: Caches,
}

impl Handler for Disruption {
    fn name(&self) -> FunctionName {
        FunctionName::Disruption
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        if let Some(cluster) = changed(ports, scope, causes, WANTS, &self.caches).await? {
            run(&DisruptionPass { ports, cluster, caches: &self.caches }).await?;
        }
        Ok(())
    }
}

/// A pass of a cluster.
struct DisruptionPass<'a, P> {
    ports: &'a Patient<'a, P>,
    cluster: &'a ClusterName,
    caches: &'a Caches,
}

/// The result of a pass's observations.
#[derive(Debug, Default)]
struct DisruptionDone {
    launches: usize,
    actions: usize,
    commits: usize,
    /// The time of the next look, by the last plan.
    wake_at: Option<Timestamp>,
    /// The times of a look at new prices and at the next expired node, by the last plan.
    swept_at: [Option<Timestamp>; 2],
    /// The offerings of the cluster's instances, by the last look if it could plan.
    offerings: Option<Vec<HeldOffering>>,
    /// Whether the last look wrote nothing.
    idle: bool,
}

impl<'a, P: Ports> Pass for DisruptionPass<'a, P> {
    type Ports = Patient<'a, P>;
    type Input = ClusterObservation;
    type Plan = Option<PlannedDisruption>;
    type Done = DisruptionDone;

    fn ports(&self) -> &Self::Ports {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Disruption
    }

    fn of(&self) -> Of<'_> {
        Of::Cluster(self.cluster)
    }

    async fn observe(&self, _: &mut DisruptionDone) -> Result<Option<ClusterObservation>, HandlerError> {
        observe(self.ports, self.cluster, WANTS, self.caches).await.map(Some)
    }

    fn plan(&self, observed: &ClusterObservation) -> (Option<PlannedDisruption>, Report) {
        plan::plan(self.cluster, &self.ports.installation().region, observed)
    }

    async fn commit(
        &self,
        observed: &ClusterObservation,
        planned: Option<PlannedDisruption>,
        done: &mut DisruptionDone,
    ) -> Result<AfterCommit, HandlerError> {
        let before = done.commits;
        done.wake_at = None;
        done.offerings = None;
        if let (Some(planned), Ok(registry)) = (planned, &observed.view.registry) {
            done.wake_at = planned.plan.wake_at;
            done.swept_at = [planned.reprice_at, planned.plan.next_expiry];
            done.offerings = Some(planned.offerings.clone());
            let (view, cluster) = (&observed.view, self.cluster);
            let launch = planned.launch_input(registry, &self.ports.installation().region, view);
            let actions = read_actions(self.ports, cluster, &planned.plan, observed).await?;
            let context =
                DisruptionContext { cluster, view, launch: &launch, actions: &actions, planned: &planned };
            carry_out(self.ports, &context, &planned.plan, done).await?;
        }
        done.idle = done.commits == before;
        Ok(if done.idle { AfterCommit::Settled } else { AfterCommit::LookAgain })
    }

    async fn execute(&self, _: &ClusterObservation, done: &mut DisruptionDone) -> Result<(), HandlerError> {
        let signals = self.ports.signals();
        if done.launches > 0 {
            signals.wake(FunctionName::Provisioner, self.cluster, SignedDuration::ZERO).await;
        }
        if done.actions > 0 {
            signals.ring_agent(self.cluster).await;
        }
        Ok(())
    }

    fn end(&self, observed: ClusterObservation, done: &DisruptionDone) -> End {
        let (offerings, offerings_at) = offerings(&observed.view, done.offerings.as_deref());
        let seen = SeenOf {
            generations: observed.view.generations.clone(),
            // The first sweep after it is soon enough for prices and expiry.
            deadline: done.swept_at.into_iter().chain([done.wake_at]).flatten().min(),
            due: None,
            before: observed.view.seen.clone(),
            waits: Waits::LookAgain,
            offerings,
            offerings_at,
        };
        if done.idle {
            self.caches.keep(self.cluster, observed.view);
        }
        End { seen: Some(seen), wake_at: done.wake_at }
    }
}

/// The offerings of the cluster's instances, and since when they are known so. A look that couldn't plan, as of a halted
/// cluster, keeps those of the last one that could.
fn offerings(view: &ClusterView, planned: Option<&[HeldOffering]>) -> (Vec<HeldOffering>, Option<Timestamp>) {
    match (planned, &view.seen) {
        (Some(known), _) => (known.to_vec(), None),
        (None, Some(before)) if !view.claims.is_empty() && !before.offerings.is_empty() => {
            (before.offerings.clone(), Some(before.offerings_known_at()))
        }
        (None, Some(_) | None) => (Vec::new(), None),
    }
}

/// Commits a plan: steps and marks on their own revisions, then the groups under the cluster's revision.
async fn carry_out<P: Ports>(
    ports: &P,
    context: &DisruptionContext<'_>,
    plan: &DisruptionPlan,
    done: &mut DisruptionDone,
) -> Result<(), HandlerError> {
    let drifted = plan.marks.iter().filter_map(|mark| context.mark(mark));
    let consolidatable = plan.consolidatable.iter().filter_map(|mark| context.consolidatable(mark));
    let adopted = plan.adopted.iter().filter_map(|adoption| context.adopted(adoption));
    for decided in drifted.chain(consolidatable).chain(adopted) {
        commit_step(ports, decided, done).await?;
    }
    let mut groups: Vec<WriteGroup> = Vec::new();
    let (mut launches, mut actions) = (0, 0);
    let mut under_revision = |decided: DecidedChange<'_>| {
        launches += decided.launches;
        actions += decided.actions;
        groups.push(decided.change.group());
    };
    for advance in &plan.advances {
        let Some(decided) = context.advance(advance)? else { continue };
        match advance.step {
            CommandStep::Drain { .. } | CommandStep::Undo { .. } | CommandStep::Finish => {
                commit_step(ports, decided, done).await?
            }
            CommandStep::Replace { .. } => under_revision(decided),
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
        CommitOutcome::Whole => {}
        // The next observation sees committed slices; their doorbells are rung in any case.
        CommitOutcome::Lost => {}
    }
    done.launches += launches;
    done.actions += actions;
    done.commits += 1;
    Ok(())
}

async fn commit_step<P: Ports>(
    ports: &P,
    decided: DecidedChange<'_>,
    done: &mut DisruptionDone,
) -> Result<(), HandlerError> {
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

/// The agent's actions for claims with a step: the next action keeps their labels, annotations and taints.
async fn read_actions<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    plan: &DisruptionPlan,
    observed: &ClusterObservation,
) -> Result<BTreeMap<ClaimName, NodeAction>, HandlerError> {
    let of_advances = plan.advances.iter().filter_map(|advance| observed.view.commands.get(&advance.command));
    let candidates = plan.commands.iter().flat_map(|command| &command.candidates);
    let names: BTreeSet<&ClaimName> =
        candidates.chain(of_advances.flat_map(|command| &command.candidates)).collect();
    let keys: Vec<Key> = names.into_iter().map(|name| action_key(cluster, name)).collect();
    let mut actions = BTreeMap::new();
    for some in keys.chunks(limits::BATCH_KEYS) {
        for (key, item) in ports.table().batch_get(some, Consistency::Strong).await? {
            let action = NodeAction::from_item(&item)
                .map_err(|error| HandlerError::Item { key: key.to_string(), source: Box::new(error) })?;
            actions.insert(action.claim.clone(), action);
        }
    }
    Ok(actions)
}
