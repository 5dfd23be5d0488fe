//! A real cluster, as the region sees it: it receives instances and rings, and sends news through a channel.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::engine::SimulatedRegion;
use crate::kubelet::BootTimes;
use crate::outside::OutsideCluster;
use kube::api::{Api, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::Value;
use tenon_domain::id::ClusterName;
use tenon_memory_table::MemoryTable;
use tenon_runtime::{BusEvent, Installation};
use tenon_twin::InstanceRecord;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::live::agent::{self, AgentNews, AgentOf};
use crate::live::kubelets::{self, MachinePower};

/// The status of a missing object.
const NOT_FOUND: u16 = 404;
/// Hosts that are this machine.
const HERE: [&str; 4] = ["127.0.0.1", "localhost", "::1", "[::1]"];

/// Why there is no cluster.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The kubeconfig can't be read.
    #[error("the kubeconfig can't be read")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// No client can be made of it.
    #[error("no client can be made of the kubeconfig")]
    Client(#[source] Box<kube::Error>),
    /// Its classes can't be read.
    #[error("the EC2NodeClasses can't be listed")]
    Classes(#[source] Box<kube::Error>),
    /// It doesn't have the kind EC2NodeClass.
    #[error(
        "the cluster doesn't know EC2NodeClasses: install the CustomResourceDefinitions, `kubectl apply -f infra/chart/crds`"
    )]
    NotInstalled,
    /// The cluster isn't on this machine.
    #[error(
        "the API server `{0}` isn't on this machine: Nodes without machines would draw its pods; give the kubeconfig of a cluster on 127.0.0.1, such as one of kind or kwok"
    )]
    Elsewhere(String),
}

/// A client of a kubeconfig's cluster, which must run on this machine. Must be called within a tokio runtime.
///
/// # Errors [`LiveError`].
pub async fn client(kubeconfig: &Path) -> Result<Client, LiveError> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    if !config.cluster_url.host().is_some_and(|host| HERE.contains(&host)) {
        return Err(LiveError::Elsewhere(config.cluster_url.to_string()));
    }
    tenon_kube::client_of(config).map_err(|error| LiveError::Client(Box::new(error)))
}

/// The EC2NodeClasses of a cluster, as it holds them.
///
/// # Errors
/// [`LiveError`].
pub async fn classes(client: &Client) -> Result<Vec<Value>, LiveError> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("karpenter.k8s.aws", "v1", "EC2NodeClass"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let list = match api.list(&ListParams::default()).await {
        Ok(list) => list,
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Err(LiveError::NotInstalled),
        Err(error) => return Err(LiveError::Classes(Box::new(error))),
    };
    Ok(list.items.iter().filter_map(|class| serde_json::to_value(class).ok()).map(named).collect())
}

/// Items of lists have no kind.
fn named(mut class: Value) -> Value {
    if let Some(fields) = class.as_object_mut() {
        fields.insert("apiVersion".to_owned(), "karpenter.k8s.aws/v1".into());
        fields.insert("kind".to_owned(), "EC2NodeClass".into());
    }
    class
}

/// A real cluster's access to the region.
pub struct LiveWorld {
    /// Its name in the registry.
    pub name: ClusterName,
    /// The installation.
    pub installation: Arc<Installation>,
    /// The state table.
    pub table: MemoryTable,
    /// How long instances boot.
    pub boot: BootTimes,
}

/// Orders to the agent: a change is a ring, and one more crash is a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Orders {
    rings: u64,
    pub(crate) crashes: u64,
}

/// A cluster's news.
#[derive(Debug)]
enum ClusterMessage {
    Event(BusEvent),
    News(AgentNews),
}

/// Where a cluster's tasks tell.
#[derive(Debug, Clone)]
pub(crate) struct ClusterLog(Sender<ClusterMessage>);

impl ClusterLog {
    /// After the region's end there is no receiver.
    pub(crate) fn tell(&self, news: AgentNews) {
        let _ = self.0.send(ClusterMessage::News(news));
    }

    pub(crate) fn publish(&self, event: BusEvent) {
        let _ = self.0.send(ClusterMessage::Event(event));
    }
}

/// A real cluster; its agent and its kubelets end with it.
pub struct LiveCluster {
    orders: Arc<watch::Sender<Orders>>,
    powers: UnboundedSender<MachinePower>,
}

/// A real cluster's news, which the caller passes on to the region.
#[derive(Debug)]
pub struct ClusterTelling(Receiver<ClusterMessage>);

impl ClusterTelling {
    /// Passes on the news, waiting at most `wait` for the first; returns those for people.
    pub fn pass_on(&self, region: &mut SimulatedRegion, wait: Duration) -> Vec<AgentNews> {
        let mut news = Vec::new();
        let first = self.0.recv_timeout(wait).ok();
        for told in first.into_iter().chain(self.0.try_iter()) {
            match told {
                ClusterMessage::Event(event) => region.publish(&event),
                ClusterMessage::News(told) => news.push(told),
            }
        }
        news
    }
}

/// A hold on the agent of a real cluster.
#[derive(Debug, Clone)]
pub struct AgentHold(Arc<watch::Sender<Orders>>);

impl AgentHold {
    /// Crashes it at any point; it restarts a few seconds later.
    pub fn crash(&self) {
        self.0.send_modify(|orders| orders.crashes += 1);
    }
}

impl LiveCluster {
    /// Starts the agent and the kubelets on a runtime, each with the rights of its own client. Their news come
    /// through the channel.
    #[must_use]
    pub fn start(
        runtime: &Handle,
        kubelets: Client,
        agent: Client,
        world: LiveWorld,
    ) -> (Self, ClusterTelling, AgentHold) {
        let (told, telling) = channel();
        let log = ClusterLog(told);
        let (powers, served) = unbounded_channel();
        let (orders, ordered) = watch::channel(Orders::default());
        runtime.spawn(kubelets::serve(kubelets, world.boot, served, log.clone()));
        let LiveWorld { name: cluster, installation, table, .. } = world;
        runtime.spawn(agent::run(AgentOf { cluster, installation, client: agent, table, log }, ordered));
        let orders = Arc::new(orders);
        (Self { orders: Arc::clone(&orders), powers }, ClusterTelling(telling), AgentHold(orders))
    }
}

impl OutsideCluster for LiveCluster {
    fn power_on(&self, record: &InstanceRecord) {
        let _ = self.powers.send(MachinePower::On(Box::new(record.clone())));
    }

    fn power_off(&self, record: &InstanceRecord) {
        let _ = self.powers.send(MachinePower::Off(Box::new(record.clone())));
    }

    fn ring(&self) {
        self.orders.send_modify(|orders| orders.rings += 1);
    }
}
