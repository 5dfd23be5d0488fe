//! Leadership: one replica acts, the others wait without watches.
//!
//! Decides when the agent runs, and drops it once another replica may hold the lease. The next leader's first step
//! repairs an interrupted step.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tenon_kube::lease::{EVERY, Election, Leadership};
use tenon_kube::{Client, KubeClient, Listing, listing_of};
use tenon_snapshot::{Kind, ObjectKey};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::aws::Aws;
use super::configuration::AgentConfiguration;
use super::drive::{beside, drive};
use super::karpenter::follow;
use super::logging::chain;
use super::metrics::Metrics;
use crate::agent::Agent;

/// The lease's name, in the agent's own namespace.
const LEASE: &str = "tenon-agent";

/// Campaigns until shutdown; leads while elected.
pub(super) async fn campaign(
    configuration: &AgentConfiguration,
    kube: &Client,
    aws: &Aws,
    metrics: &Arc<Metrics>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut election = Election::new(kube.clone(), &configuration.namespace, LEASE, &configuration.pod);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stopped.borrow() {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.changed() => continue,
        }
        metrics.turn();
        if let Leadership::Leads(until) = stand(&mut election).await {
            tracing::info!(pod = configuration.pod, "leads");
            metrics.leader.set(1);
            metrics.karpenter.begin(Timestamp::now());
            let leader = Leader { configuration, kube, aws, metrics, stopped: stopped.clone() };
            leader.lead(&mut election, until).await;
            metrics.leader.set(0);
            metrics.karpenter.end();
            tracing::info!(pod = configuration.pod, "no longer leads");
        }
    }
    if let Err(error) = election.release().await {
        tracing::warn!(error_type = "Lease", error = %chain(&error), "not releasing the lease: it expires by itself");
    }
}

async fn stand(election: &mut Election) -> Leadership {
    if let Err(error) = election.campaign().await {
        tracing::warn!(error_type = "Lease", error = %chain(&error), "can't acquire or renew the lease");
    }
    election.standing(Instant::now())
}

/// A replica that leads.
struct Leader<'a> {
    configuration: &'a AgentConfiguration,
    kube: &'a Client,
    aws: &'a Aws,
    metrics: &'a Arc<Metrics>,
    stopped: watch::Receiver<bool>,
}

impl Leader<'_> {
    /// Runs the agent beside the renewals; the first to end ends both.
    async fn lead(self, election: &mut Election, until: Instant) {
        let Self { configuration, kube, aws, metrics, stopped } = self;
        let renewals = async {
            let mut until = until;
            loop {
                tokio::time::sleep(EVERY).await;
                let renewed = tokio::select! {
                    biased;
                    () = sleep_until(until.into()) => Leadership::Stands,
                    standing = stand(election) => standing,
                };
                match renewed {
                    Leadership::Leads(later) => until = later,
                    Leadership::Stands => break,
                }
            }
            tracing::warn!(error_type = "Lease", "lost the lease, dropping the current step");
        };
        let agent = async {
            let listing = listing_of(kube).await.unwrap_or(Listing::Paged);
            let watched = KubeClient::start(kube.clone(), listing, &configuration.pod);
            let changes = watched.changes();
            let (table, bell) = (aws.table.clone(), aws.bell.clone());
            let own = ObjectKey::new(Kind::Pod, &configuration.namespace, &configuration.pod);
            let agent = Agent::new(configuration.cluster.clone(), watched, table, bell);
            let mut agent = agent.running_as(own);
            let kube = agent.kube();
            let looks = follow(&*kube, changes.clone(), &metrics.karpenter);
            beside(drive(&mut agent, changes, &aws.doorbell, metrics, stopped), looks).await;
        };
        tokio::select! {
            // In this order: a process that stood still finds first that its lease is over, and then does nothing more.
            biased;
            () = renewals => {}
            () = agent => {}
        }
    }
}
