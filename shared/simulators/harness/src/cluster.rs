//! A cluster for tests of functions that plan nodes: a registered cluster with a ready class, a catalogue, and an
//! agent with the test's report.
//!
//! Decides nothing; everything goes through the items that functions write.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::FunctionWorld;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::api::node_class::InstanceProfile;
use tenon_domain::catalog::describe::facts;
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::claim::Claim;
use tenon_domain::class_status::{
    ClassObservation, ClassStatus, ClassSubnet, ImageNotices, ImageVariant, ResolvedImage, Seen,
};
use tenon_domain::id::{ClusterName, ImageId, InstanceType, NodeClassName, Zone, ZoneId};
use tenon_domain::launch::Launch;
use tenon_domain::registry::{Allowances, ClusterSettings, Gates, Registry};
use tenon_domain::unavailable::{Mark, UnavailableKey};
use tenon_ec2::Ec2;
use tenon_ec2::data::Ec2Data;
use tenon_ec2::port::{ImageArchitecture, ResourceFilter, Tags, TargetCapacityType};
use tenon_memory_table::block_on;
use tenon_snapshot::snapshot::{ClusterObjects, Encoder, Heartbeat, Manifest, beat, write};
use tenon_table::content_commit;
use tenon_table::items::form::{ItemForm, from_item};
use tenon_table::items::packed::{read_meta, refresh};
use tenon_table::items::{keys, set};
use tenon_table::{Consistency, Table};
use tenon_twin::NewImage;

/// The launch role of a cluster.
pub const LAUNCH_ROLE: &str = "arn:aws:iam::111122223333:role/tenon/tenon/us-east-1/prod";

/// Why a test's cluster couldn't be made.
pub type ClusterProblem = Box<dyn std::error::Error + Send + Sync>;

/// A cluster of a world.
pub struct Cluster {
    /// Its world.
    pub world: FunctionWorld,
    /// Its name.
    pub name: ClusterName,
    /// The objects of its agent's next report.
    pub objects: ClusterObjects,
    encoder: Encoder,
    manifest: Option<Manifest>,
    generation: u64,
    types: Vec<InstanceType>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster `prod` in the world with NodePool and EC2NodeClass `default`, resolved to one image of each
    /// architecture, and a whole catalogue of these types.
    ///
    /// # Errors [`ClusterProblem`].
    pub fn new(world: FunctionWorld, types: &[&str]) -> Result<Self, ClusterProblem> {
        let name = ClusterName::parse("prod")?;
        let types = types.iter().map(|name| InstanceType::parse(*name)).collect::<Result<_, _>>()?;
        world.ec2.add_network(&Tags::new())?;
        let mut cluster = Self {
            world,
            name,
            objects: ClusterObjects::default(),
            encoder: Encoder::default(),
            manifest: None,
            generation: 0,
            types,
        };
        cluster.register()?;
        cluster.refresh_catalog()?;
        let images = [("x86", ImageArchitecture::X86_64), ("arm", ImageArchitecture::Arm64)];
        let images =
            images.map(|(name, arch)| (cluster.world.ec2.add_image(NewImage::named(name, arch)), arch));
        cluster.resolve(&images)?;
        cluster.objects.node_pools.push(Arc::new(pool(&[])));
        cluster.objects.node_classes.push(Arc::new(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
            "metadata": {"name": "default", "generation": 1},
            "spec": {
                "amiFamily": "AL2023", "instanceProfile": "nodes",
                "amiSelectorTerms": [{"name": "*"}],
                "subnetSelectorTerms": [{"tags": {"*": "*"}}],
                "securityGroupSelectorTerms": [{"tags": {"*": "*"}}],
            },
        })));
        Ok(cluster)
    }

    fn register(&self) -> Result<(), ClusterProblem> {
        self.world.ec2.add_launch_role(LAUNCH_ROLE, &self.name);
        let registry = Registry {
            installation: self.world.installation.id.clone(),
            cluster: self.name.clone(),
            endpoint: "https://prod.example".to_owned(),
            certificate_authority: "Q0E=".to_owned(),
            kubernetes_version: "1.33".to_owned(),
            service_cidr: "10.100.0.0/16".to_owned(),
            settings: ClusterSettings::default(),
            gates: Gates::default(),
            agent_queue: String::new(),
            agent_role: String::new(),
            launch_role: Some(LAUNCH_ROLE.to_owned()),
            allowed: Allowances::default(),
        };
        self.put(set(keys::registry(&self.world.installation.region, &self.name), &registry))
    }

    /// Puts one item.
    ///
    /// # Errors
    /// [`ClusterProblem`] where the table doesn't take it.
    pub fn put(&self, write: tenon_table::Write) -> Result<(), ClusterProblem> {
        Ok(block_on(self.world.table.commit(&content_commit(Vec::new(), vec![write])))?)
    }

    /// Puts a mark in the table, as if EC2 had just refused it; it holds for a minute.
    ///
    /// # Errors
    /// [`ClusterProblem`] for a malformed key, or where the table doesn't take it.
    pub fn mark(&self, key: &str) -> Result<(), ClusterProblem> {
        let now = self.world.clock.now();
        let mark = Mark {
            key: UnavailableKey::parse(key).ok_or_else(|| format!("`{key}` is no key of a mark"))?,
            revision: 1,
            code: "InsufficientInstanceCapacity".to_owned(),
            message: None,
            count: 1,
            since: now,
            asked_at: now,
            until: now + SignedDuration::from_mins(1),
            from_vcpus: None,
            probe: None,
            seen_by: self.name.clone(),
        };
        self.put(set(keys::unavailable(&self.world.installation.region, &mark.key), &mark))
    }

    /// Refreshes all parts of the catalogue, as of now.
    ///
    /// # Errors
    /// [`ClusterProblem`] where there is no data.
    pub fn refresh_catalog(&self) -> Result<(), ClusterProblem> {
        let data = Ec2Data::get().map_err(|error| error.to_string())?;
        let zones: BTreeMap<Zone, ZoneId> = block_on(self.world.ec2.describe_availability_zones())?
            .into_iter()
            .map(|z| (z.name, z.id))
            .collect();
        let (mut types, mut offered) = (BTreeMap::new(), BTreeMap::new());
        let (mut on_demand, mut spot) = (BTreeMap::new(), BTreeMap::new());
        for name in &self.types {
            let info = data.types.get(name).ok_or("an instance type without data")?;
            types.insert(name.clone(), Arc::new(facts(info, &data.limits)?));
            offered.insert(name.clone(), zones.keys().cloned().collect());
            let price = |capacity_type, zone: &Zone| self.world.ec2.price(capacity_type, name, zone);
            let first = zones.keys().next().ok_or("a region without zones")?;
            on_demand.extend(price(TargetCapacityType::OnDemand, first).map(|price| (name.clone(), price)));
            let by_zone =
                zones.keys().filter_map(|zone| Some((zone.clone(), price(TargetCapacityType::Spot, zone)?)));
            spot.insert(name.clone(), by_zone.collect());
        }
        let region = &self.world.installation.region;
        for part in [
            PartData::InstanceTypes(types),
            PartData::Offerings(ZoneOfferings { zones, offered }),
            PartData::OnDemandPrices(on_demand),
            PartData::SpotPrices(spot),
        ] {
            let meta = block_on(read_meta(&self.world.table, region, Consistency::Strong))?;
            for commit in refresh(region, &meta, &part, self.world.clock.now())?.commits() {
                block_on(self.world.table.commit(commit))?;
            }
        }
        Ok(())
    }

    /// Lets the class resolve to these images, newest first.
    ///
    /// # Errors
    /// [`ClusterProblem`] where the table doesn't take it.
    pub fn resolve(&self, images: &[(ImageId, ImageArchitecture)]) -> Result<(), ClusterProblem> {
        let now = self.world.clock.now();
        let name = NodeClassName::parse("default")?;
        let subnets = block_on(self.world.ec2.describe_subnets(&ResourceFilter::default()))?;
        let subnet = |s: tenon_ec2::port::Subnet| ClassSubnet {
            id: s.id,
            zone: s.zone,
            zone_id: s.zone_id,
            free_addresses: s.available_addresses,
            shifted: None,
        };
        let image = |(id, arch): &(ImageId, ImageArchitecture)| ResolvedImage {
            id: id.clone(),
            name: id.to_string(),
            architecture: (*arch).into(),
            variant: ImageVariant::Any,
            boot_mode: None,
            created_at: now,
            own_snapshots: BTreeMap::new(),
        };
        let observation = ClassObservation {
            name: name.clone(),
            generation: 1,
            uid: None,
            spec_digest: "spec".to_owned(),
            hash: None,
            subnets: Seen::Holds(subnets.into_iter().map(subnet).collect()),
            security_groups: Seen::Holds(Vec::new()),
            images: Seen::Holds(images.iter().map(image).collect()),
            image_notices: ImageNotices::default(),
            instance_profile: Seen::Holds(InstanceProfile::Name("nodes".to_owned())),
            asked_profile: None,
            profile_seen: None,
            reservations: None,
            placement_group: None,
            shifts: None,
            validation: Seen::Holds(()),
            validation_note: None,
            unsupported: Vec::new(),
        };
        let key = keys::node_class(&self.name, &name);
        let writes = vec![
            set(key, &ClassStatus::observed(observation, None, now)),
            tenon_table::items::add_step(&self.name),
        ];
        Ok(block_on(self.world.table.commit(&content_commit(Vec::new(), writes)))?)
    }

    /// The agent reports its objects.
    ///
    /// # Errors
    /// [`ClusterProblem`] where the table doesn't take them.
    pub fn report(&mut self) -> Result<(), ClusterProblem> {
        let now = self.world.clock.now();
        self.generation += 1;
        let encoded = self.encoder.encode(&self.objects, self.manifest.as_ref(), now);
        let base = self.manifest.as_ref();
        let manifest = block_on(write(&self.world.table, &self.name, &encoded, self.generation, base))?;
        self.manifest = Some(manifest);
        self.beat(now)
    }

    /// Writes the agent's heartbeat.
    ///
    /// # Errors [`ClusterProblem`] if the write fails.
    pub fn beat(&self, seen_at: Timestamp) -> Result<(), ClusterProblem> {
        let heartbeat = Heartbeat { generation: self.generation, seen_at };
        Ok(block_on(beat(&self.world.table, &self.name, heartbeat))?)
    }

    /// All claims, by name.
    ///
    /// # Errors
    /// [`ClusterProblem`] where one can't be read.
    pub fn claims(&self) -> Result<Vec<Claim>, ClusterProblem> {
        self.all(keys::NODE_CLAIM)
    }

    /// All launches, by id.
    ///
    /// # Errors
    /// [`ClusterProblem`] where one can't be read.
    pub fn launches(&self) -> Result<Vec<Launch>, ClusterProblem> {
        self.all(keys::LAUNCH)
    }

    /// All items of a kind.
    ///
    /// # Errors
    /// [`ClusterProblem`] where one can't be read.
    pub fn all<F: ItemForm>(&self, prefix: &str) -> Result<Vec<F>, ClusterProblem> {
        let pk = keys::cluster_pk(&self.name);
        let items = self.world.table.dump().filter(|(key, _)| key.pk == pk && key.sk.starts_with(prefix));
        items.map(|(key, item)| Ok(from_item(&key, &item)?)).collect()
    }
}

/// NodePool `default` with these requirements, each as `key value…`.
#[must_use]
pub fn pool(requirements: &[&[&str]]) -> Value {
    let requirement =
        |words: &&[&str]| json!({"key": words.first(), "operator": "In", "values": words.get(1..)});
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default", "uid": "pool-1"},
        "spec": {
            "disruption": {"budgets": [{"nodes": "1"}], "consolidateAfter": "Never"},
            "template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": requirements.iter().map(requirement).collect::<Vec<_>>(),
            }},
        },
    })
}

/// A pod with this CPU request, bound to a Node or not.
#[must_use]
pub fn pod(name: &str, cpu: &str, node: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": format!("{cpu} {node:?}"),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": true}]},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": if node.is_some() { "Running" } else { "Pending" }},
    })
}
