//! A registered cluster in its own region, with an agent that reports the test's objects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::journal::{JournalRecord, Subject, SubjectKind};
use tenon_domain::registry::{Allowances, ClusterSettings, FeatureGate, Gates, Registry};
use tenon_domain::wake::WakeCause;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{ImageArchitecture, Tags};
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::block_on;
use tenon_node_classes::NodeClasses;
use tenon_runtime::{Handler, WakeScope};
use tenon_snapshot::snapshot::{self, ClusterObjects, Encoder, Manifest};
use tenon_table::Table;
use tenon_table::content_commit;
use tenon_table::items::{self, JournalOf, journal_from_item, keys, steps_of};
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen, NewImage};

pub(crate) struct Running {
    pub(crate) world: FunctionWorld,
    pub(crate) function: NodeClasses,
    pub(crate) cluster: ClusterName,
    pub(crate) manifest: Mutex<Option<Manifest>>,
    /// The API server's classes, by name.
    classes: Mutex<BTreeMap<String, Value>>,
}

pub(crate) fn set(list: &[&str]) -> std::collections::BTreeSet<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

/// Roles with their instance profiles.
pub(crate) fn roles(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(role, profile)| ((*role).to_owned(), (*profile).to_owned())).collect()
}

pub(crate) fn tags() -> Tags {
    Tags::from([("karpenter.sh/discovery".to_owned(), "prod".to_owned())])
}

pub(crate) fn allowances() -> Allowances {
    Allowances {
        node_roles: roles(&[("nodes", "tenon-us-east-1-prod-nodes")]),
        instance_profiles: set(&["profile"]),
        subnet_tags: tags(),
        security_group_tags: tags(),
        image_owners: set(&["self", "amazon"]),
        ..Allowances::default()
    }
}

/// A class's spec, with some of its fields replaced.
pub(crate) fn class(replaced: Value) -> Value {
    let mut spec = json!({
        "amiFamily": "AL2023",
        "role": "nodes",
        "amiSelectorTerms": [{"name": "nodes-*", "owner": "self"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "prod"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "prod"}}]
    });
    for (key, value) in replaced.as_object().unwrap() {
        spec[key] = value.clone();
    }
    if !spec["instanceProfile"].is_null() {
        spec.as_object_mut().unwrap().remove("role");
    }
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "u-1", "generation": 1},
        "spec": spec
    })
}

/// A registered cluster in a region with a network.
pub(crate) fn running(allowed: Allowances) -> Running {
    registered(allowed, Gates::default(), ClusterSettings::default())
}

/// A registered cluster whose classes await EC2's word on launches.
pub(crate) fn validating() -> Running {
    registered_with(allowances(), Gates::default(), ClusterSettings::default())
}

/// A registered cluster without dry runs, which `provisioner` would answer.
pub(crate) fn registered(allowed: Allowances, gates: Gates, settings: ClusterSettings) -> Running {
    registered_with(allowed, gates, ClusterSettings { dry_runs: FeatureGate::Disabled, ..settings })
}

fn registered_with(allowed: Allowances, gates: Gates, settings: ClusterSettings) -> Running {
    let running = unregistered();
    for (role, profile) in &allowed.node_roles {
        running.world.ec2.add_instance_profile(profile, role);
    }
    for profile in &allowed.instance_profiles {
        running.world.ec2.add_instance_profile(profile.rsplit('/').next().unwrap(), "nodes");
    }
    let registry = Registry {
        installation: running.world.installation.id.clone(),
        cluster: running.cluster.clone(),
        endpoint: "https://prod".to_owned(),
        certificate_authority: "Y2E=".to_owned(),
        kubernetes_version: "1.33".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        settings,
        gates,
        agent_queue: String::new(),
        agent_role: String::new(),
        launch_role: None,
        allowed,
    };
    let key = keys::registry(&running.world.installation.region, &running.cluster);
    let commit = content_commit(Vec::new(), vec![items::put(key, &registry)]);
    block_on(running.world.table.commit(&commit)).unwrap();
    running
}

pub(crate) fn unregistered() -> Running {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    world.ec2.add_network(&tags()).unwrap();
    Running {
        world,
        function: NodeClasses::default(),
        cluster: ClusterName::parse("prod").unwrap(),
        manifest: Mutex::new(None),
        classes: Mutex::new(BTreeMap::new()),
    }
}

impl Running {
    /// The agent reports these classes, as an API server has them: a changed spec raises the generation.
    pub(crate) fn report(&self, classes: &[Value]) {
        let objects = ClusterObjects {
            node_classes: classes.iter().map(|class| Arc::new(self.applied(class))).collect(),
            ..ClusterObjects::default()
        };
        let mut manifest = self.manifest.lock().unwrap();
        let now = self.world.clock.now();
        let encoded = Encoder::default().encode(&objects, manifest.as_ref(), now);
        let generation = manifest.as_ref().map_or(1, |manifest| manifest.generation + 1);
        let write =
            snapshot::write(&self.world.table, &self.cluster, &encoded, generation, manifest.as_ref());
        let written = block_on(write).unwrap();
        *manifest = Some(written);
    }

    /// The class with its generation. One with another UID is another class.
    fn applied(&self, class: &Value) -> Value {
        let mut classes = self.classes.lock().unwrap();
        let mut applied = class.clone();
        let name = class["metadata"]["name"].as_str().unwrap().to_owned();
        if let Some(old) = classes.get(&name).filter(|old| old["metadata"]["uid"] == class["metadata"]["uid"])
        {
            let generation = old["metadata"]["generation"].as_u64().unwrap();
            let edits = u64::from(old["spec"] != class["spec"]);
            applied["metadata"]["generation"] = json!(generation + edits);
        }
        classes.insert(name, applied.clone());
        applied
    }

    pub(crate) fn wake(&self, cause: WakeCause) {
        let of_region = matches!(cause, WakeCause::ImageChanged(_) | WakeCause::ZonalShift);
        let scope = if of_region { WakeScope::Region } else { WakeScope::Cluster(self.cluster.clone()) };
        block_on(self.function.handle(&self.world, &scope, &[cause])).unwrap();
    }

    pub(crate) fn status(&self) -> Option<ClassStatus> {
        let key = keys::node_class(&self.cluster, &NodeClassName::parse("default").unwrap());
        Some(items::from_item(&key, &self.world.table.peek(&key)?).unwrap())
    }

    pub(crate) fn images(&self) -> Vec<ImageId> {
        self.status().unwrap().images.into_iter().map(|image| image.id).collect()
    }

    /// The obstacle: condition, status, reason.
    pub(crate) fn obstacle(&self) -> String {
        self.status().unwrap().obstacle().map_or("ready".to_owned(), |obstacle| {
            let condition = obstacle.condition.as_str();
            format!("{condition}={} {}", obstacle.status.as_str(), obstacle.reason_text())
        })
    }

    pub(crate) fn message(&self) -> String {
        self.status().unwrap().obstacle().unwrap().message.clone()
    }

    pub(crate) fn said(&self) -> Vec<String> {
        self.world.signals.take_events().into_iter().map(|(kind, _)| kind).collect()
    }

    /// The records of a class, in order; of all classes under `*`.
    pub(crate) fn recorded(&self, class: &str) -> Vec<JournalRecord> {
        self.recorded_of(Subject { kind: SubjectKind::Class, name: class.to_owned() })
    }

    /// The records of a subject.
    pub(crate) fn recorded_of(&self, subject: Subject) -> Vec<JournalRecord> {
        let pk = JournalOf::Cluster(&self.cluster).subject_pk(&subject);
        let items = self.world.table.dump().filter(|(key, _)| key.pk == pk);
        items.map(|(key, item)| journal_from_item(&key, &item).unwrap()).collect()
    }

    /// How often planners were woken by a step.
    pub(crate) fn steps(&self) -> u64 {
        steps_of(self.world.table.peek(&keys::steps(&self.cluster)).as_ref()).unwrap()
    }

    pub(crate) fn fail(&self, call: Call, when: FaultWhen, error: Ec2Error) {
        self.world.ec2.inject(Fault { call, when, effect: FaultEffect::Refused(error) });
    }
}

pub(crate) fn throttled(call: Call) -> Ec2Error {
    Ec2Error::Throttled { action: call.as_str().to_owned() }
}

pub(crate) fn image(name: &str) -> NewImage {
    NewImage::named(name, ImageArchitecture::X86_64)
}
