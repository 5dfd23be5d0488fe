//! The agent of a real cluster, in this process: its core over kube-rs, with the region's table and bus.
//!
//! Decides how the core's pace runs in real time, and what a crash is: the agent's memory is lost, its current call
//! isn't finished, and it restarts after a while.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use tenon_agent::agent::Reported;
use tenon_agent::bell::DETAIL_TYPE;
use tenon_agent::pace::{AgentPace, StepEnded, run_step};
use tenon_agent::{Agent, Bell, BellError, Ring};
use tenon_domain::id::ClusterName;
use tenon_kube::{KubeClient, listing_of};
use tenon_memory_table::MemoryTable;
use tenon_runtime::{BusEvent, Installation};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::live::cluster::{ClusterLog, Orders};

/// How long an agent that crashed takes to be there again.
const RESTART: Duration = Duration::from_secs(5);
/// The wait after an API server that gave no answer at the start.
const RETRY: Duration = Duration::from_secs(2);

/// News from the agent and the kubelets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentNews {
    /// The agent wrote a new generation of the snapshot.
    Reported {
        /// The generation.
        generation: u64,
        /// Pods that wait for a node.
        pending_pods: u32,
    },
    /// The agent crashed on request, and restarts.
    Crashed,
    /// Something didn't work and is tried again.
    Trouble(String),
}

/// The parts of an agent.
pub(crate) struct AgentOf {
    pub(crate) cluster: ClusterName,
    pub(crate) installation: Arc<Installation>,
    pub(crate) client: Client,
    pub(crate) table: MemoryTable,
    pub(crate) log: ClusterLog,
}

/// Runs agents, one after the other, until the region ends.
pub(crate) async fn run(of: AgentOf, mut orders: watch::Receiver<Orders>) {
    loop {
        let crashes = orders.borrow_and_update().crashes;
        tokio::select! {
            () = lead(&of, orders.clone()) => return,
            () = crashed(orders.clone(), crashes) => of.log.tell(AgentNews::Crashed),
        }
        sleep(RESTART).await;
    }
}

/// Waits until a crash is requested; forever if no request can come.
async fn crashed(mut orders: watch::Receiver<Orders>, before: u64) {
    if orders.wait_for(|orders| orders.crashes > before).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// One agent's life; it ends with the region.
async fn lead(of: &AgentOf, mut orders: watch::Receiver<Orders>) {
    let listing = loop {
        match listing_of(&of.client).await {
            Ok(listing) => break listing,
            Err(error) => {
                of.log.tell(AgentNews::Trouble(format!("a call to the API server failed: {error}")))
            }
        }
        sleep(RETRY).await;
    };
    let kube = KubeClient::start(of.client.clone(), listing, "tenon-local");
    let mut changes = kube.changes();
    let bell = LiveBell {
        cluster: of.cluster.clone(),
        installation: Arc::clone(&of.installation),
        log: of.log.clone(),
    };
    let mut agent = Agent::new(of.cluster.clone(), kube, of.table.clone(), bell);
    let mut pace = AgentPace::default();
    loop {
        let now = Timestamp::now();
        if let Some(work) = pace.begin(now) {
            // Noted before the step, so that changes during it cause another step.
            pace.note(*changes.borrow_and_update());
            let ended = run_step(&mut agent, work, Timestamp::now).await;
            of.log.tell_step(&ended);
            pace.end(&ended, Timestamp::now());
            continue;
        }
        let wait = Duration::try_from(pace.due(now).duration_since(now)).unwrap_or_default();
        tokio::select! {
            () = sleep(wait) => {}
            Ok(()) = changes.changed() => {
                pace.observe(*changes.borrow_and_update(), Timestamp::now());
            }
            changed = orders.changed() => match changed {
                Ok(()) => pace.observe_ring(),
                Err(_) => return,
            },
        }
    }
}

impl ClusterLog {
    fn tell_step(&self, ended: &StepEnded) {
        for error in &ended.errors {
            self.tell(AgentNews::Trouble(tenon_runtime::error::chain(error)));
        }
        if let Some(Reported::Changed(ring)) = &ended.reported {
            let (generation, pending_pods) = (ring.generation, ring.pending_pods);
            self.tell(AgentNews::Reported { generation, pending_pods });
        }
    }
}

/// Rings for the functions by an event on the region's bus.
#[derive(Debug, Clone)]
struct LiveBell {
    cluster: ClusterName,
    installation: Arc<Installation>,
    log: ClusterLog,
}

impl Bell for LiveBell {
    async fn ring(&self, ring: &Ring) -> Result<(), BellError> {
        let form = serde_json::to_value(ring.to_form(&self.cluster)).unwrap_or_default();
        let event = BusEvent::new(&self.installation, Some(&self.cluster), DETAIL_TYPE, form);
        self.log.publish(BusEvent { source: format!("tenon.agent.{}", self.cluster), ..event });
        Ok(())
    }
}
