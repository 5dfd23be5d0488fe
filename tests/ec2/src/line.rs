//! Functions over a server's EC2: a cluster, its table in memory, and an agent that reports the test's objects.
//!
//! Decides the events of a story; the functions decide the rest. Every port beside EC2 is the twin's on every
//! server: none of them has the Pricing API or ARC.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};
use tenon_catalog::CatalogFunction;
use tenon_domain::claim::Claim;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{ClusterName, InstallationId, Region};
use tenon_domain::registry::{Allowances, Registry};
use tenon_domain::wake::WakeCause;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_ec2::Ec2Account;
use tenon_ec2::port::{ImageState, InstanceState, Tags};
use tenon_harness::{EPOCH, Recorder, SetClock};
use tenon_images::Images;
use tenon_lifecycle::Lifecycle;
use tenon_memory_table::{MemoryConfig, MemoryTable, Throughput};
use tenon_node_classes::NodeClasses;
use tenon_provisioner::Provisioner;
use tenon_runtime::{Handler, Installation, Ports, WakeScope};
use tenon_snapshot::SeenPod;
use tenon_snapshot::snapshot::{self, ClusterObjects, Encoder, Manifest};
use tenon_table::Table;
use tenon_table::content_commit;
use tenon_table::items::form::{ItemForm, from_item};
use tenon_table::items::{self, keys};
use tenon_twin::RegionTwin;

use crate::bodies::instances;
use crate::server::{IMAGES_TAG, Server, WORLD_TAG};
use crate::twin::TwinServer;

/// The functions' ports on a server.
struct LinePorts<'a, S: Server> {
    table: MemoryTable,
    account: Ec2Account<&'a S::Ec2, RegionTwin>,
    signals: Recorder,
    clock: SetClock,
    installation: Installation,
}

impl<'a, S: Server> Ports for LinePorts<'a, S> {
    type Table = MemoryTable;
    type Ec2 = Ec2Account<&'a S::Ec2, RegionTwin>;
    type Signals = Recorder;

    fn table(&self) -> &MemoryTable {
        &self.table
    }

    fn ec2(&self) -> &Self::Ec2 {
        &self.account
    }

    fn signals(&self) -> &Recorder {
        &self.signals
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn pause(&self, time: SignedDuration) {
        self.clock.advance(time);
    }

    fn installation(&self) -> &Installation {
        &self.installation
    }
}

/// The written items.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Written {
    /// Calls of the table.
    pub(crate) calls: u64,
    /// Write units.
    pub(crate) units: u64,
}

/// A cluster on a server.
pub(crate) struct Line<'a, S: Server> {
    server: &'a S,
    ports: LinePorts<'a, S>,
    cluster: ClusterName,
    encoder: Encoder,
    manifest: Option<Manifest>,
    objects: ClusterObjects,
}

impl<'a, S: Server> Line<'a, S> {
    /// A registered cluster with a class that selects the world's images, subnets and group, and an on-demand pool.
    pub(crate) async fn new(server: &'a S) -> Self {
        let region: Region = "us-east-1".parse().unwrap();
        let clock = SetClock::at(EPOCH);
        let ticking = clock.clone();
        let memory = MemoryConfig {
            staleness_max: SignedDuration::ZERO,
            // The first catalogue is written within one moment of the set clock.
            throughput: Throughput::Off,
            ..MemoryConfig::strict(1)
        };
        let twin = TwinServer::new().twin().clone();
        let ports = LinePorts {
            table: MemoryTable::new(memory, Arc::new(move || ticking.now())),
            account: Ec2Account::beside(server.ec2(), twin),
            signals: Recorder::default(),
            clock,
            installation: Installation {
                id: InstallationId::parse(server.world().name.as_str()).unwrap(),
                region,
                account: server.world().owner.clone(),
                table: "tenon".to_owned(),
            },
        };
        let mut line = Self {
            server,
            ports,
            cluster: ClusterName::parse("prod").unwrap(),
            encoder: Encoder::default(),
            manifest: None,
            objects: ClusterObjects {
                node_classes: vec![Arc::new(class(&server.world().name))],
                node_pools: vec![Arc::new(pool())],
                ..ClusterObjects::default()
            },
        };
        line.register().await;
        line.report().await;
        line
    }

    async fn register(&self) {
        let world = Tags::from([(WORLD_TAG.to_owned(), self.server.world().name.clone())]);
        let installation = &self.ports.installation;
        let registry = Registry {
            installation: installation.id.clone(),
            cluster: self.cluster.clone(),
            endpoint: "https://prod.example".to_owned(),
            certificate_authority: "Q0E=".to_owned(),
            kubernetes_version: "1.35".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
            settings: Default::default(),
            gates: Default::default(),
            agent_queue: String::new(),
            agent_role: String::new(),
            launch_role: self.server.launch_role(&self.cluster),
            allowed: Allowances {
                node_roles: BTreeMap::from([("nodes".to_owned(), "nodes".to_owned())]),
                subnet_tags: world.clone(),
                security_group_tags: world,
                // Moto gives each image of its list AWS's alias, and such an image is allowed by the alias alone.
                image_owners: BTreeSet::from([self.server.world().owner.clone(), "amazon".to_owned()]),
                ..Allowances::default()
            },
        };
        let write = items::put(keys::registry(&installation.region, &self.cluster), &registry);
        self.ports.table.commit(&content_commit(Vec::new(), vec![write])).await.unwrap();
    }

    /// The agent reports the current objects.
    async fn report(&mut self) {
        let encoded = self.encoder.encode(&self.objects, self.manifest.as_ref(), self.ports.now());
        let generation = self.manifest.as_ref().map_or(1, |manifest| manifest.generation + 1);
        let base = self.manifest.as_ref();
        let written =
            snapshot::write(&self.ports.table, &self.cluster, &encoded, generation, base).await.unwrap();
        self.manifest = Some(written);
    }

    /// The cluster gets pods that wait for a node.
    pub(crate) async fn add_pods(&mut self, count: usize, cpu: &str) {
        self.objects.pods = (0..count).map(|n| Arc::new(SeenPod::read(&pod(n, cpu)).unwrap())).collect();
        self.report().await;
    }

    /// Time passes, for functions, the agent and the server.
    pub(crate) async fn pass(&mut self, by: SignedDuration) {
        self.ports.clock.advance(by);
        self.server.pass(by.as_secs());
        self.report().await;
    }

    async fn wake<H: Handler>(&self, function: &H, scope: &WakeScope) {
        function.handle(&self.ports, scope, &[WakeCause::Sweep]).await.unwrap();
    }

    /// Every function's sweep, twice, so that each sees the others' results.
    pub(crate) async fn sweep(&self) {
        let cluster = WakeScope::Cluster(self.cluster.clone());
        for _ in 0..2 {
            self.wake(&CatalogFunction::default(), &WakeScope::Region).await;
            self.wake(&NodeClasses::default(), &cluster).await;
            self.wake(&Images, &WakeScope::Region).await;
            self.wake(&Provisioner::default(), &cluster).await;
            self.wake(&Lifecycle::default(), &cluster).await;
        }
    }

    /// Refreshes all parts of the catalogue; returns the written items.
    pub(crate) async fn refresh_catalogue(&self) -> Written {
        self.ports.table.reset_meter();
        let causes = CatalogPart::ALL.map(WakeCause::Refresh);
        CatalogFunction::default().handle(&self.ports, &WakeScope::Region, &causes).await.unwrap();
        let operations = self.ports.table.meter().operations;
        let writing = operations.values().filter(|used| used.write_units > 0);
        writing.fold(Written::default(), |sum, used| Written {
            calls: sum.calls + used.calls,
            units: sum.units + used.write_units,
        })
    }

    /// How many instance types the table has for people.
    pub(crate) fn types(&self) -> usize {
        self.ports.table.dump().filter(|(key, _)| key.sk.starts_with(keys::TYPE)).count()
    }

    /// The class's status.
    pub(crate) fn class(&self) -> ClassStatus {
        self.cluster_items(keys::NODE_CLASS).remove(0)
    }

    /// The claims, by name.
    pub(crate) fn claims(&self) -> Vec<Claim> {
        self.cluster_items(keys::NODE_CLAIM)
    }

    fn cluster_items<F: ItemForm>(&self, prefix: &str) -> Vec<F> {
        let pk = keys::cluster_pk(&self.cluster);
        let items = self.ports.table.dump().filter(|(key, _)| key.pk == pk && key.sk.starts_with(prefix));
        items.map(|(key, item)| from_item(&key, &item).unwrap()).collect()
    }

    /// How many of the world's instances are in each state, by instance type.
    pub(crate) async fn instances(&self) -> BTreeMap<(String, InstanceState), usize> {
        let mut found = BTreeMap::new();
        for instance in instances(self.server).await {
            *found.entry((instance.instance_type.to_string(), instance.state)).or_default() += 1;
        }
        found
    }

    /// The functions' distinct events since the last call.
    pub(crate) fn announced(&self) -> BTreeSet<String> {
        self.ports.signals.take_events().into_iter().map(|(kind, _)| kind).collect()
    }

    /// The images that the class resolved to, and those that it may not have.
    pub(crate) fn images(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let world = self.server.world();
        let resolved = self.class().images.into_iter().map(|image| image.id.to_string()).collect();
        let others = world.images.iter().filter(|(state, _)| **state != ImageState::Available);
        (resolved, others.map(|(_, id)| id.to_string()).collect())
    }
}

fn class(world: &str) -> Value {
    let (key, value) = IMAGES_TAG;
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "class-1", "generation": 1},
        "spec": {
            "amiFamily": "AL2023", "role": "nodes",
            "amiSelectorTerms": [{"tags": {key: value}}],
            "subnetSelectorTerms": [{"tags": {WORLD_TAG: world}}],
            "securityGroupSelectorTerms": [{"tags": {WORLD_TAG: world}}],
            "tags": {WORLD_TAG: world},
        },
    })
}

fn pool() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "uid": "pool-1", "generation": 1},
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5"]},
            ],
        }}},
    })
}

fn pod(n: usize, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("web-{n}"), "namespace": "default", "uid": format!("uid-{n}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"},
    })
}
