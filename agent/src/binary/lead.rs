//! Leadership: one replica acts, the others wait without watches.
//!
//! Decides when the agent runs, and drops it once another replica may hold the lease. The next leader's first step
//! repairs an interrupted step.

use std::sync::Arc;
use std::time::Instant;

use tenon_kube::lease::{EVERY, Election, Standing};
use tenon_kube::{Client, KubeClient, Listing, listing_of};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep_until};

use super::aws::Aws;
use super::configuration::Configuration;
use super::drive::drive;
use super::logging::chain;
use super::metrics::Metrics;
use crate::agent::Agent;

/// The lease's name, in the agent's own namespace.
const LEASE: &str = "tenon-agent";

/// Campaigns until shutdown; leads while elected.
pub(super) async fn campaign(
    configuration: &Configuration,
    kube: &Client,
    aws: &Aws,
    (metrics, mut stopped): (&Arc<Metrics>, watch::Receiver<bool>),
) {
    let lease = (configuration.namespace.as_str(), LEASE);
    let mut election = Election::new(kube.clone(), lease, &configuration.pod);
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !*stopped.borrow() {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopped.changed() => continue,
        }
        metrics.turn();
        if let Standing::Leads(until) = stand(&mut election).await {
            tracing::info!(pod = configuration.pod, "leads");
            metrics.leader.set(1);
            lead(configuration, kube, aws, (metrics, stopped.clone()), (&mut election, until)).await;
            metrics.leader.set(0);
            tracing::info!(pod = configuration.pod, "doesn't lead any more");
        }
    }
    if let Err(error) = election.release().await {
        tracing::warn!(error_type = "Lease", error = %chain(&error), "the lease ends by itself");
    }
}

async fn stand(election: &mut Election) -> Standing {
    if let Err(error) = election.campaign().await {
        tracing::warn!(error_type = "Lease", error = %chain(&error), "the lease wasn't reached");
    }
    election.standing(Instant::now())
}

/// Runs the agent beside the renewals; the first to end ends both.
async fn lead(
    configuration: &Configuration,
    kube: &Client,
    aws: &Aws,
    (metrics, stopped): (&Arc<Metrics>, watch::Receiver<bool>),
    (election, until): (&mut Election, Instant),
) {
    let renewals = async {
        let mut until = until;
        loop {
            tokio::time::sleep(EVERY).await;
            let renewed = tokio::select! {
                biased;
                () = sleep_until(until.into()) => Standing::Stands,
                standing = stand(election) => standing,
            };
            match renewed {
                Standing::Leads(later) => until = later,
                Standing::Stands => break,
            }
        }
        tracing::warn!(error_type = "Lease", "the lease was lost: what is under way is dropped");
    };
    let agent = async {
        let listing = listing_of(kube).await.unwrap_or(Listing::Paged);
        let watched = KubeClient::start(kube.clone(), listing, &configuration.pod);
        let changes = watched.changes();
        let (table, bell) = (aws.table.clone(), aws.bell.clone());
        let mut agent = Agent::new(configuration.cluster.clone(), watched, table, bell);
        drive(&mut agent, (changes, &aws.doorbell), metrics, stopped).await;
    };
    tokio::select! {
        // In this order: a process that stood still finds first that its lease is over, and then does nothing more.
        biased;
        () = renewals => {}
        () = agent => {}
    }
}
