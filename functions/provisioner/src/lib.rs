//! `provisioner`: pending pods become claims, and claims become instances.
//!
//! It first finishes committed launches without an answer, of any pass. Then it plans for pods that no claim counts,
//! commits claims with their exact requests, sends the requests and settles the answers. It plans around refused
//! capacity in the same wake, and waits there for a throttled table. Pods with room on a node on its way are counted on
//! that node's claim. Only this function launches, for each cluster by the cluster's launch role. With nothing to launch,
//! it asks EC2 by dry runs whether it would allow launches from the classes.
//!
//! Invariants: only committed requests are sent; a launch has one answer, however often it is sent.

mod commit;
mod denials;
mod execute;
mod join;
mod launcher;
mod lost;
mod plan;
pub mod settle;
#[cfg(test)]
mod tests;
mod validate;
mod validated;
mod written_marks;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::report::Report;
use tenon_domain::wait::later;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_runtime::patient::PATIENCE;
use tenon_runtime::ports::WAKE_AT_MOST;
use tenon_runtime::{BusEvent, Handler, HandlerError, Patient, Ports, Signals, WakeScope};
use tenon_state::commit::{CommitOutcome, commit};
use tenon_state::heads::Watch;
use tenon_state::observe::{Caches, ClusterObservation, observe};
use tenon_state::pass::{AfterCommit, End, Of, Pass, SeenOf, Waits, changed, look_again, run};
use tenon_state::view::{Want, Wants};
use tenon_table::WriteGroup;

use commit::commit_and_send;
use execute::{CallPace, SentLaunches, due, send_all, tag};
use launcher::Launcher;
use plan::PlannedLaunches;
use validate::{ask, ask_after_launches};

/// The observations that provisioning needs.
const WANTS: Wants<'static> = Wants {
    function: FunctionName::Provisioner,
    parts: &CatalogPart::ALL,
    sets: &[Want::Claims, Want::Launches, Want::Classes, Want::Templates, Want::Marks],
    watch: Watch::PendingPods,
};

/// The function.
#[derive(Debug, Default)]
pub struct Provisioner {
    caches: Caches,
    pace: CallPace,
}

impl Handler for Provisioner {
    fn name(&self) -> FunctionName {
        FunctionName::Provisioner
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        causes: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        if let Some(cluster) = changed(ports, scope, causes, WANTS, &self.caches).await? {
            let Self { caches, pace } = self;
            let pass = ProvisionerPass { ports, cluster, caches, pace, began: ports.now() };
            run(&pass).await?;
        }
        Ok(())
    }
}

/// A pass of a cluster.
struct ProvisionerPass<'a, P> {
    ports: &'a Patient<'a, P>,
    cluster: &'a ClusterName,
    caches: &'a Caches,
    pace: &'a CallPace,
    began: Timestamp,
}

/// The result of a pass's observations.
#[derive(Debug, Default)]
struct ProvisionerDone {
    /// The results of the sent launches.
    sent: SentLaunches,
    /// The time of the next look, by the last plan.
    wake_at: Option<Timestamp>,
    /// Whether the last commit lost its race.
    lost: bool,
    /// Whether the last look found nothing to launch.
    idle: bool,
    /// Whether the last look wrote nothing.
    unwritten: bool,
    /// When EC2 is asked about a class's launches again.
    ask_at: Option<Timestamp>,
}

impl<'a, P: Ports> Pass for ProvisionerPass<'a, P> {
    type Ports = Patient<'a, P>;
    type Input = ClusterObservation;
    type Plan = PlannedLaunches;
    type Done = ProvisionerDone;

    fn ports(&self) -> &Self::Ports {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Provisioner
    }

    fn of(&self) -> Of<'_> {
        Of::Cluster(self.cluster)
    }

    /// Observes, after every launch that is due has been settled.
    async fn observe(&self, done: &mut ProvisionerDone) -> Result<Option<ClusterObservation>, HandlerError> {
        let (ports, cluster) = (self.ports, self.cluster);
        let observed = observe(ports, cluster, WANTS, self.caches).await?;
        let launches = due(&observed.view);
        if launches.is_empty() {
            return Ok(Some(observed));
        }
        let now = send_all(ports, cluster, &observed, self.pace, &launches).await?;
        let settled = now.settled;
        done.sent = std::mem::take(&mut done.sent).and(now);
        if settled == 0 {
            return Ok(Some(observed));
        }
        let observed = observe(ports, cluster, WANTS, self.caches).await?;
        // Launches that another pass commits or delays are in its own observation, so they cause no wake here.
        for launch in due(&observed.view) {
            done.sent.put_off(launch.due_at(ports.now()));
        }
        Ok(Some(observed))
    }

    fn plan(&self, observed: &ClusterObservation) -> (PlannedLaunches, Report) {
        plan::plan(self.cluster, &self.ports.installation().region, observed)
    }

    async fn commit(
        &self,
        observed: &ClusterObservation,
        planned: PlannedLaunches,
        done: &mut ProvisionerDone,
    ) -> Result<AfterCommit, HandlerError> {
        let retry_at = done.sent.retry_at.filter(|at| *at > self.began);
        done.wake_at = [planned.wake_at, retry_at].into_iter().flatten().min();
        done.idle = planned.built.launches.is_empty() && planned.lost.is_empty();
        done.unwritten = planned.groups.is_empty();
        done.lost = false;
        if !planned.lost.is_empty() {
            let revision = observed.view.generations.revision;
            let outcome = commit(self.ports, self.cluster, revision, planned.groups).await?;
            done.lost = outcome == CommitOutcome::Lost;
            if !done.lost {
                done.sent.failed.extend(planned.lost);
            }
            return Ok(AfterCommit::LookAgain);
        }
        if done.idle {
            done.sent.plan_again = false;
            return self.commit_joins(observed, planned.groups, done).await;
        }
        let launches: Vec<_> = planned.built.launches.iter().map(execute::DueLaunch::built).collect();
        let sending =
            commit_and_send(self.ports, self.cluster, observed, self.pace, (planned.groups, &launches));
        let (outcome, now_sent) = sending.await?;
        done.lost = outcome == CommitOutcome::Lost;
        done.sent = std::mem::take(&mut done.sent).and(now_sent);
        Ok(if done.lost || done.sent.plan_again { AfterCommit::LookAgain } else { AfterCommit::Settled })
    }

    async fn execute(
        &self,
        observed: &ClusterObservation,
        done: &mut ProvisionerDone,
    ) -> Result<(), HandlerError> {
        // A pass that lost every round looks again: a lost race for a mark alone shows in no generation.
        if done.sent.plan_again || done.lost {
            done.sent.put_off(self.ports.now());
        }
        signal(self.ports, self.cluster, &done.sent).await;
        // Nothing waits for names.
        if !done.sent.launched.is_empty() {
            let launcher = Launcher::of(self.ports, self.cluster, &observed.view).await;
            tag(&launcher, &done.sent.launched).await;
        }
        done.ask_at = if done.idle && !done.lost && due(&observed.view).is_empty() {
            ask(self.ports, self.cluster, observed).await?
        } else {
            ask_after_launches(self.cluster, observed)
        };
        Ok(())
    }

    fn end(&self, observed: ClusterObservation, done: &ProvisionerDone) -> End {
        // A launch that was delayed while sending becomes due by itself; the next sweep plans again after a failed
        // one.
        let failed = (!done.sent.failed.is_empty()).then(|| look_again(self.began));
        let soon = later(self.ports.now(), WAKE_AT_MOST);
        // A verdict holds for hours: the first sweep after its end is soon enough.
        let ask_at = done.ask_at.filter(|at| *at <= soon);
        let wake_at = [done.wake_at, done.sent.retry_at, ask_at].into_iter().flatten().min();
        let seen = SeenOf {
            generations: observed.view.generations.clone(),
            deadline: [wake_at, failed, done.ask_at].into_iter().flatten().min(),
            due: None,
            before: observed.view.seen.clone(),
            waits: Waits::LookAgain,
            offerings: Vec::new(),
            offerings_at: None,
        };
        if done.unwritten && due(&observed.view).is_empty() {
            self.caches.keep(self.cluster, observed.view);
        }
        End { seen: Some(seen), wake_at }
    }
}

impl<P: Ports> ProvisionerPass<'_, P> {
    /// Writes a plan that launches nothing.
    async fn commit_joins(
        &self,
        observed: &ClusterObservation,
        joins: Vec<WriteGroup>,
        done: &mut ProvisionerDone,
    ) -> Result<AfterCommit, HandlerError> {
        let outcome = commit(self.ports, self.cluster, observed.view.generations.revision, joins).await?;
        done.lost = outcome == CommitOutcome::Lost;
        Ok(if done.lost { AfterCommit::LookAgain } else { AfterCommit::Settled })
    }
}

/// Sends the doorbells of answered launches.
async fn signal<P: Ports>(ports: &P, cluster: &ClusterName, sent: &SentLaunches) {
    let claims = sent.launched.iter().chain(&sent.failed);
    let events: Vec<BusEvent> = claims.map(|claim| event(ports, cluster, claim)).collect();
    if !events.is_empty() {
        ports.signals().publish(&events).await;
        ports.signals().wake(FunctionName::Lifecycle, cluster, SignedDuration::ZERO).await;
    }
    // EC2's refusal of a class is a condition of the class.
    if sent.classes {
        ports.signals().wake(FunctionName::NodeClasses, cluster, SignedDuration::ZERO).await;
    }
    let replaces = |claim: &&Claim| claim.role != tenon_domain::claim::CommandRole::None;
    if sent.failed.iter().any(|claim| replaces(&claim)) {
        ports.signals().wake(FunctionName::Disruption, cluster, SignedDuration::ZERO).await;
    }
}

fn event<P: Ports>(ports: &P, cluster: &ClusterName, claim: &Claim) -> BusEvent {
    let (detail_type, mut detail) = if let ClaimState::LaunchFailed { failure, .. } = &claim.state {
        ("NodeClaim Launch Failed", json!({"reason": failure.reason, "message": failure.message}))
    } else {
        let instance = claim.state.instance();
        let detail = json!({
            "instance": instance.map(|i| i.id.to_string()),
            "instanceType": instance.map(|i| i.instance_type.to_string()),
            "zone": instance.map(|i| i.zone.to_string()),
            "capacityType": instance.map(|i| i.capacity_type.as_str()),
        });
        ("NodeClaim Launched", detail)
    };
    if let Some(fields) = detail.as_object_mut() {
        fields.insert("nodeClaim".to_owned(), json!(claim.name.as_str()));
        fields.insert("nodePool".to_owned(), json!(claim.pool.as_str()));
    }
    BusEvent::new(ports.installation(), Some(cluster), detail_type, detail)
}
