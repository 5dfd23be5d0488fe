//! `provisioner`: pods that wait become claims, and claims become instances.
//!
//! Finishes launches that were committed and not settled, whoever committed them; then plans for pods that no claim
//! counts, commits claims with the exact requests, sends those and settles the answers. What EC2 has no capacity for is
//! planned around in the same wake, and a throttled table is waited for in it. Only this function launches.
//!
//! Invariants: nothing is sent that isn't committed; a launch has one answer, however often it is asked for.

mod commit;
mod execute;
mod plan;
pub mod settle;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::{Cause, FunctionName};
use tenon_runtime::patient::PATIENCE;
use tenon_runtime::{BusEvent, Handler, HandlerError, Patient, Ports, Scope, Signals};
use tenon_state::commit::Outcome;
use tenon_state::observe::{Caches, Observed, observe};
use tenon_state::pass::{End, ROUNDS, changed, finish, look_again, wake_again};
use tenon_state::view::{Want, Wants, Watch};

use commit::commit_and_send;
use execute::{Sent, due, send_all, tag};

/// What the provisioner looks at.
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
}

impl Handler for Provisioner {
    fn name(&self) -> FunctionName {
        FunctionName::Provisioner
    }

    async fn handle<P: Ports>(&self, ports: &P, scope: &Scope, causes: &[Cause]) -> Result<(), HandlerError> {
        let ports = &Patient::new(ports, PATIENCE);
        match changed(ports, scope, causes, WANTS).await? {
            Some(cluster) => self.provision(ports, cluster).await,
            None => Ok(()),
        }
    }
}

impl Provisioner {
    async fn provision<P: Ports>(
        &self,
        ports: &Patient<'_, P>,
        cluster: &ClusterName,
    ) -> Result<(), HandlerError> {
        let now = ports.now();
        let mut sent = Sent::default();
        let mut end = None;
        let mut lost = false;
        for _ in 0..ROUNDS {
            let observed = self.observe_settled(ports, cluster, &mut sent).await?;
            let mut planned = plan::plan(cluster, &ports.installation().region, &observed);
            let view = &observed.view;
            let retry_at = sent.retry_at.filter(|at| *at > now);
            planned.look.wake_at = [planned.look.wake_at, retry_at].into_iter().flatten().min();
            end = Some(End::of(FunctionName::Provisioner, now, view, planned.look));
            if planned.built.launches.is_empty() {
                if due(view).is_empty() {
                    self.caches.keep(cluster, observed.view);
                }
                sent.plan_again = false;
                lost = false;
                break;
            }
            let launches: Vec<_> = planned.built.launches.iter().map(execute::Due::built).collect();
            let (outcome, now_sent) =
                commit_and_send(ports, cluster, view, (planned.groups, &launches)).await?;
            lost = outcome == Outcome::Lost;
            sent = sent.and(now_sent);
            if !lost && !sent.plan_again {
                break;
            }
        }
        // Who lost every round, perhaps for a mark alone, of which no generation tells, looks again all the same.
        if sent.plan_again || lost {
            sent.put_off(ports.now());
        }
        self.signal(ports, cluster, &sent, end.as_ref().and_then(|end| end.deadline)).await;
        match end {
            Some(end) => finish(ports, cluster, now, with_retry(end, &sent, now)).await,
            None => Ok(()),
        }
    }

    /// Observes, after every launch that is due has been settled.
    async fn observe_settled<P: Ports>(
        &self,
        ports: &P,
        cluster: &ClusterName,
        sent: &mut Sent,
    ) -> Result<Observed, HandlerError> {
        let observed = observe(ports, cluster, WANTS, &self.caches).await?;
        let launches = due(&observed.view);
        if launches.is_empty() {
            return Ok(observed);
        }
        let now = send_all(ports, cluster, &observed.view, &launches).await?;
        let settled = now.settled;
        *sent = std::mem::take(sent).and(now);
        if settled == 0 {
            return Ok(observed);
        }
        let observed = observe(ports, cluster, WANTS, &self.caches).await?;
        // What another run committed or put off meanwhile is in what this one has seen: nobody is woken for it again.
        for launch in due(&observed.view) {
            sent.put_off(launch.due_at(ports.now()));
        }
        Ok(observed)
    }

    async fn signal<P: Ports>(
        &self,
        ports: &P,
        cluster: &ClusterName,
        sent: &Sent,
        deadline: Option<Timestamp>,
    ) {
        tag(ports, &sent.launched).await;
        let claims = sent.launched.iter().chain(&sent.failed);
        let events: Vec<BusEvent> = claims.map(|claim| event(ports, cluster, claim)).collect();
        if !events.is_empty() {
            ports.signals().publish(&events).await;
            ports.signals().wake(FunctionName::Lifecycle, cluster, SignedDuration::ZERO).await;
        }
        let replaces = |claim: &&Claim| claim.role != tenon_domain::claim::CommandRole::None;
        if sent.failed.iter().any(|claim| replaces(&claim)) {
            ports.signals().wake(FunctionName::Disruption, cluster, SignedDuration::ZERO).await;
        }
        let next = [deadline, sent.retry_at].into_iter().flatten().min();
        if let Some(at) = next {
            wake_again(ports, FunctionName::Provisioner, cluster, at).await;
        }
    }
}

/// A launch that was put off while sending is due again by itself; one that failed is planned anew by the next sweep.
fn with_retry(mut end: End, sent: &Sent, now: Timestamp) -> End {
    let again = (!sent.failed.is_empty()).then(|| look_again(now));
    end.deadline = [end.deadline, sent.retry_at, again].into_iter().flatten().min();
    end
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
