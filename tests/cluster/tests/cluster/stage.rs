//! A drawn world on the real control plane: its objects, its nodes as they open one after the other, and what
//! kube-scheduler does then.
//!
//! No kubelet is needed: kwok runs the pods. A node opens when its last taint goes, after kube-scheduler has tried every
//! pod on the nodes before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tenon_cluster_tests::{Cluster, DEADLINE, SchedulerEvent, SchedulerLog, clear};
use tenon_domain::taint::{NOT_READY, Taint, TaintEffect};
use tenon_planning::provision::{ExistingNode, ProvisionInput};
use tenon_replay::objects;
use tenon_replay::replay::{NodeOpening, Nominations, OPENING, Openings, residents};

/// The namespace of the worlds' pods.
const NAMESPACE: &str = "default";
/// kube-scheduler has nothing left to try if it tries nothing for so long: its queue is never idle while a pod may be
/// tried.
const QUIET: Duration = Duration::from_millis(200);
/// The controllers and kwok are done with a new Node if they don't update it for so long.
const UPDATED: Duration = Duration::from_millis(100);
/// How often the log is read.
const POLL: Duration = Duration::from_millis(20);
/// It keeps a ReplicaSet that is being deleted, so that its controller makes no pods of its own.
const FINALIZER: &str = "tenon.dev/tests";

/// Something that happened, in the order in which kube-scheduler came to know it.
#[derive(Debug, Clone)]
pub(crate) enum StageEvent {
    /// kube-scheduler saw or did something.
    Scheduler(SchedulerEvent),
    /// A node's next update is the one that opens it.
    Opens(String),
    /// A pod's next update is the one that nominates it for the node.
    Nominates(String, String),
}

/// The control plane with a world.
pub(crate) struct Stage<'c> {
    cluster: &'c Cluster,
    log: SchedulerLog,
    /// What happened.
    pub(crate) events: Vec<StageEvent>,
    /// Attempts without an outcome.
    in_flight: usize,
}

/// The Node before it takes pods.
pub(crate) fn closed(node: &ExistingNode) -> Value {
    let mut taints = node.taints.clone();
    taints.push(Taint::new(OPENING, TaintEffect::NoSchedule));
    objects::node(&node.name, &node.labels, &taints, &node.allocatable)
}

/// The Node when it takes pods.
pub(crate) fn open(node: &ExistingNode) -> Value {
    objects::node(&node.name, &node.labels, &node.taints, &node.allocatable)
}

impl<'c> Stage<'c> {
    /// Clears the cluster, and waits until kube-scheduler knows.
    pub(crate) async fn clear(cluster: &'c Cluster) -> Self {
        let mut stage = Self { cluster, log: SchedulerLog::from_now(), events: Vec::new(), in_flight: 0 };
        let at_once = DeleteParams::default().grace_period(0);
        let pods: Api<Pod> = Api::namespaced(cluster.client(), NAMESPACE);
        let nodes: Api<Node> = Api::all(cluster.client());
        let _gone =
            pods.delete_collection(&at_once, &ListParams::default()).await.expect("pods can be deleted");
        let _gone =
            nodes.delete_collection(&at_once, &ListParams::default()).await.expect("Nodes can be deleted");
        clear(cluster).await;
        stage.quiet().await;
        stage.events.clear();
        stage.in_flight = 0;
        stage
    }

    /// Carries out a plan: what is there, then the pods, then node after node.
    pub(crate) async fn play(
        &mut self,
        input: &ProvisionInput,
        openings: &Openings,
        nominations: Nominations,
    ) {
        let mut owners = BTreeMap::new();
        for object in objects::surroundings(input) {
            owners.extend(self.surround(object).await);
        }
        for limits in openings.limits() {
            self.create(&objects::csi_node(limits)).await;
        }
        let there: Vec<&ExistingNode> = openings.ready.iter().chain(&openings.registered).collect();
        self.register(&there).await;
        let pods = input.pods.iter().map(|pod| objects::pod(&pod.name.name, &pod.shape, None));
        let residents = there.iter().flat_map(|node| residents(node));
        self.create_pods(residents.chain(pods).collect(), &owners).await;
        self.quiet().await;
        self.open_all(&openings.ready.iter().collect::<Vec<_>>()).await;
        for together in openings.later.values() {
            let known = |opening: &&NodeOpening| {
                !openings.registered.iter().any(|node| node.name == opening.node.name)
            };
            let new: Vec<&ExistingNode> = together.iter().filter(known).map(|one| &one.node).collect();
            self.register(&new).await;
            if nominations == Nominations::Made {
                self.nominate(together).await;
            }
            self.open_all(&together.iter().map(|one| &one.node).collect::<Vec<_>>()).await;
        }
        // A pod whose backoff is over is tried once more.
        self.quiet().await;
    }

    /// The node of each pod that has one.
    pub(crate) async fn places(&self) -> BTreeMap<String, String> {
        let place = |pod: Pod| Some((pod.metadata.name?, pod.spec?.node_name?));
        self.pods().await.into_iter().filter_map(place).collect()
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), NAMESPACE);
        pods.list(&ListParams::default()).await.expect("pods can be listed").items
    }

    async fn create(&self, object: &Value) -> DynamicObject {
        let api = self.cluster.api_of(object).await;
        let written = serde_json::from_value(object.clone()).expect("an object is written");
        let created = api.create(&PostParams::default(), &written).await;
        created.unwrap_or_else(|error| panic!("it can't be created: {error}\n{object:#}"))
    }

    /// Creates an object of a world's surroundings; of a ReplicaSet its name and UID.
    async fn surround(&self, mut object: Value) -> Option<(String, String)> {
        match object["kind"].as_str() {
            Some("Namespace" | "PriorityClass") => {
                self.cluster.apply_object(&object).await;
                None
            }
            Some("ReplicaSet") => {
                object["spec"]["replicas"] = json!(0);
                object["metadata"]["finalizers"] = json!([FINALIZER]);
                let created = self.create(&object).await.metadata;
                let (name, uid) = created.name.zip(created.uid).expect("it has a name and a UID");
                let api = self.cluster.api_of(&object).await;
                let _going = api.delete(&name, &DeleteParams::background()).await.expect("it can be deleted");
                Some((name, uid))
            }
            Some(_) | None => {
                self.create(&object).await;
                None
            }
        }
    }

    /// Creates pods; their owners are named by the UIDs that they got.
    async fn create_pods(&self, objects: Vec<Value>, owners: &BTreeMap<String, String>) {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let written: Vec<Pod> = objects
            .into_iter()
            .map(|mut object| {
                for owner in object["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
                    let uid = owner["name"].as_str().and_then(|name| owners.get(name));
                    owner["uid"] = json!(uid);
                }
                serde_json::from_value(object).expect("a pod is written")
            })
            .collect();
        for pod in &written {
            let created = pods.create(&PostParams::default(), pod).await;
            created.unwrap_or_else(|error| panic!("a pod can't be created: {error}\n{pod:#?}"));
        }
    }

    /// Makes Nodes that take no pods yet, and waits until they are Ready.
    async fn register(&mut self, nodes: &[&ExistingNode]) {
        if nodes.is_empty() {
            return;
        }
        let api: Api<Node> = Api::all(self.cluster.client());
        for node in nodes {
            let written = serde_json::from_value(closed(node)).expect("a Node is written");
            let created = api.create(&PostParams::default(), &written).await;
            created.unwrap_or_else(|error| panic!("`{}` can't be created: {error}", node.name));
        }
        let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let waits = |node: &Node| {
            let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
            node.metadata.name.as_deref().is_some_and(|name| names.contains(name))
                && taints.any(|taint| taint.key == NOT_READY)
        };
        let began = Instant::now();
        while api.list(&ListParams::default()).await.expect("Nodes can be listed").items.iter().any(waits) {
            assert!(began.elapsed() < DEADLINE, "these Nodes don't become Ready: {names:?}");
            tokio::time::sleep(POLL).await;
        }
        // Until nobody else updates them, the update that opens one can't be told.
        let mut last = Instant::now();
        while last.elapsed() < UPDATED {
            tokio::time::sleep(POLL).await;
            let from = self.events.len();
            self.read();
            let is_update =
                |one: &StageEvent| matches!(one, StageEvent::Scheduler(SchedulerEvent::NodeUpdated(_)));
            if self.events[from..].iter().any(is_update) {
                last = Instant::now();
            }
        }
    }

    /// Nominates the pods that a node was planned for, as far as they wait, and waits until kube-scheduler knows.
    async fn nominate(&mut self, openings: &[NodeOpening]) {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let waiting: Vec<String> = self
            .pods()
            .await
            .into_iter()
            .filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none()))
            .filter_map(|pod| pod.metadata.name)
            .collect();
        self.read();
        let (from, how) = (self.events.len(), PatchParams::default());
        let mut unseen = BTreeSet::new();
        for opening in openings {
            let kept = waiting.iter().filter(|name| opening.kept.contains(&format!("uid-{name}")));
            let change = Patch::Merge(json!({"status": {"nominatedNodeName": opening.node.name}}));
            let kept: Vec<&String> = kept.collect();
            for name in &kept {
                self.events.push(StageEvent::Nominates((*name).clone(), opening.node.name.clone()));
            }
            let patches = kept.iter().map(|name| pods.patch_status(name, &how, &change));
            for patched in join_all(patches).await {
                patched.expect("a pod can be nominated");
            }
            unseen.extend(kept.into_iter().cloned());
        }
        let is_of = |event: &StageEvent, name: &str| matches!(event, StageEvent::Scheduler(SchedulerEvent::PodUpdated(pod)) if pod == name);
        self.wait_for(|events| unseen.iter().all(|name| events[from..].iter().any(|one| is_of(one, name))))
            .await;
    }

    /// Opens nodes at once, and waits until kube-scheduler has tried all pods.
    async fn open_all(&mut self, nodes: &[&ExistingNode]) {
        let api: Api<Node> = Api::all(self.cluster.client());
        let how = PatchParams::default();
        for node in nodes {
            self.read();
            let from = self.events.len();
            self.events.push(StageEvent::Opens(node.name.clone()));
            let change = Patch::Merge(json!({"spec": {"taints": objects::taints(&node.taints)}}));
            api.patch(&node.name, &how, &change).await.expect("a Node can be changed");
            let is_of = |event: &StageEvent| matches!(event, StageEvent::Scheduler(SchedulerEvent::NodeUpdated(of)) if *of == node.name);
            self.wait_for(|events| events[from..].iter().any(is_of)).await;
        }
        self.quiet().await;
    }

    async fn wait_for(&mut self, is_so: impl Fn(&[StageEvent]) -> bool) {
        let began = Instant::now();
        while !is_so(&self.events) {
            assert!(began.elapsed() < DEADLINE, "kube-scheduler doesn't see a change");
            tokio::time::sleep(POLL).await;
            self.read();
        }
    }

    /// Waits until kube-scheduler has nothing left to try. Volumes are made meanwhile.
    async fn quiet(&mut self) {
        let (began, mut last) = (Instant::now(), Instant::now());
        while last.elapsed() < QUIET || self.in_flight > 0 {
            assert!(began.elapsed() < DEADLINE, "{} attempts have no outcome", self.in_flight);
            if self.in_flight > 0 {
                self.cluster.make_volumes().await;
            }
            tokio::time::sleep(POLL).await;
            if self.read() > 0 {
                last = Instant::now();
            }
        }
    }

    /// Reads the log; how many attempts and outcomes there were.
    fn read(&mut self) -> usize {
        let mut seen = 0;
        for event in self.log.read() {
            match &event {
                SchedulerEvent::Attempted(_) => {
                    self.in_flight += 1;
                    seen += 1;
                }
                SchedulerEvent::Bound { .. } | SchedulerEvent::Refused { .. } | SchedulerEvent::Failed(_) => {
                    self.in_flight = self.in_flight.saturating_sub(1);
                    seen += 1;
                }
                SchedulerEvent::NodeAdded(_)
                | SchedulerEvent::NodeUpdated(_)
                | SchedulerEvent::PodUpdated(_)
                | SchedulerEvent::Hinted(_) => {}
            }
            self.events.push(StageEvent::Scheduler(event));
        }
        seen
    }
}
