//! Plans from kept options equal plans from options that are compiled anew, whatever changes in between.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::catalog::LearnedRecord;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::catalog::node_shape::LearnedMemory;
use tenon_domain::catalog::settings::{KubeletConfiguration, MIB};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::money::UsdPerHour;
use tenon_domain::registry::Registry;
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::ShiftEnd;
use tenon_harness::cluster::{Cluster, pod, pool};
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::block_on;
use tenon_planning::provision::{ProvisionPlan, Purpose, plan};
use tenon_snapshot::SeenPod;
use tenon_table::items::form::from_item;
use tenon_table::items::packed::{read_meta, refresh};
use tenon_table::items::{keys, set};
use tenon_table::{Consistency, Table};

use super::*;
use crate::cluster::ObservedCluster;
use crate::heads::Watch;
use crate::observe::{Caches, observe};
use crate::view::{Want, Wants};

const WANTS: Wants<'static> = Wants {
    function: FunctionName::Provisioner,
    parts: &CatalogPart::ALL,
    sets: &[Want::Claims, Want::Classes, Want::Marks],
    watch: Watch::Everything,
};

/// A cluster whose pods wait, and a warm function.
struct WarmWorld {
    cluster: Cluster,
    caches: Caches,
}

impl WarmWorld {
    fn new() -> Self {
        let types = ["c5.large", "m5.large", "m5.xlarge", "m6g.large"];
        let mut cluster = Cluster::new(FunctionWorld::new(&WorldConfig::default()).unwrap(), &types).unwrap();
        let waiting = |n: usize| Arc::new(SeenPod::read(&pod(&format!("web-{n}"), "1500m", None)).unwrap());
        cluster.objects.pods = (0..5).map(waiting).collect();
        cluster.report().unwrap();
        Self { cluster, caches: Caches::default() }
    }

    /// A look of the warm function, which must see and plan what a cold one does: the options of the pool, and the
    /// plan.
    fn look(&self) -> (Arc<Vec<InstanceTypeOption>>, ProvisionPlan) {
        let (warm, cold) = (self.look_with(&self.caches), self.look_with(&Caches::default()));
        assert_eq!(warm, cold);
        warm
    }

    fn look_with(&self, caches: &Caches) -> (Arc<Vec<InstanceTypeOption>>, ProvisionPlan) {
        let Self { cluster, .. } = self;
        cluster.beat(cluster.world.clock.now()).unwrap();
        let observed = block_on(observe(&cluster.world, &cluster.name, WANTS, caches)).unwrap();
        let registry = observed.view.registry.as_ref().unwrap();
        let snapshot = observed.snapshot.as_ref().unwrap();
        let mut world = ObservedCluster::new(&cluster.name, registry, &observed.view, snapshot);
        world.resolve(&cluster.world.installation.region, &observed.compiled);
        let input = world.input(world.pending(), Purpose::PendingPods, &BTreeSet::new());
        let options = Arc::clone(world.types.values().next().unwrap());
        (options, plan(&input).0)
    }

    /// Changes the spec of the cluster's class; null removes the field.
    fn change_class(&mut self, key: &str, value: Value) {
        let mut class = Value::clone(&self.cluster.objects.node_classes[0]);
        let spec = class["spec"].as_object_mut().unwrap();
        if value.is_null() {
            drop(spec.remove(key));
        } else {
            drop(spec.insert(key.to_owned(), value));
        }
        self.cluster.objects.node_classes = vec![Arc::new(class)];
        self.cluster.report().unwrap();
    }

    /// Changes the class as it resolved.
    fn change_status(&self, change: impl FnOnce(&mut ClassStatus)) {
        let key = keys::node_class(&self.cluster.name, &"default".parse().unwrap());
        let mut status: ClassStatus = from_item(&key, &self.cluster.world.table.peek(&key).unwrap()).unwrap();
        change(&mut status);
        self.cluster.put(set(key, &status)).unwrap();
    }

    fn change_registry(&self, change: impl FnOnce(&mut Registry)) {
        let key = keys::registry(&self.cluster.world.installation.region, &self.cluster.name);
        let mut registry: Registry = from_item(&key, &self.cluster.world.table.peek(&key).unwrap()).unwrap();
        change(&mut registry);
        self.cluster.put(set(key, &registry)).unwrap();
    }

    /// A new generation of a part.
    fn change_part(&self, data: &PartData) {
        let world = &self.cluster.world;
        let region = &world.installation.region;
        let meta = block_on(read_meta(&world.table, region, Consistency::Strong)).unwrap();
        for commit in refresh(region, &meta, data, world.clock.now()).unwrap().commits() {
            block_on(world.table.commit(commit)).unwrap();
        }
    }

    fn advance(&self, by: SignedDuration) {
        self.cluster.world.clock.advance(by);
    }
}

#[test]
fn a_second_look_at_an_unchanged_world_compiles_nothing() {
    let mut world = WarmWorld::new();
    let (first, planned) = world.look();
    assert!(!planned.claims.is_empty());
    let (second, again) = world.look();
    assert!(Arc::ptr_eq(&first, &second));
    assert_eq!(planned, again);
    // Pods and pools aren't in the options.
    world.cluster.objects.node_pools =
        vec![Arc::new(pool(&[&["node.kubernetes.io/instance-type", "m5.xlarge"]]))];
    world.cluster.report().unwrap();
    let (third, other) = world.look();
    assert!(Arc::ptr_eq(&first, &third));
    assert_ne!(planned.claims, other.claims);
}

#[test]
fn a_changed_class_is_compiled_anew_and_its_old_spec_is_still_there() {
    let mut world = WarmWorld::new();
    let (first, _) = world.look();
    world.change_class("kubelet", json!({"maxPods": 3}));
    let (second, _) = world.look();
    assert_ne!(first, second);
    world.change_class("kubelet", Value::Null);
    assert!(Arc::ptr_eq(&first, &world.look().0));
    world.change_status(|status| status.subnets.truncate(1));
    let (third, _) = world.look();
    assert_ne!(first, third);
    world.change_status(|status| status.images.truncate(1));
    assert_ne!(third, world.look().0);
}

#[test]
fn addresses_of_a_subnet_are_no_reason_to_compile() {
    let world = WarmWorld::new();
    let (first, _) = world.look();
    world.change_status(|status| status.subnets[0].free_addresses = 1);
    assert!(Arc::ptr_eq(&first, &world.look().0));
}

#[test]
fn marks_and_shifts_are_those_of_the_moment() {
    let world = WarmWorld::new();
    let (first, _) = world.look();
    let mut zone = None;
    world.change_status(|status| zone = status.subnets.first().map(|subnet| subnet.zone_id.clone()));
    world.cluster.mark(&format!("offering#on-demand#{}#m5.large", zone.unwrap())).unwrap();
    let (marked, _) = world.look();
    assert_ne!(first, marked);
    world.advance(SignedDuration::from_mins(30));
    let (due, _) = world.look();
    assert_eq!(marked, due);
    world.advance(SignedDuration::from_hours(3));
    assert_eq!(first, world.look().0);
    let end = world.cluster.world.clock.now() + SignedDuration::from_mins(5);
    world.change_status(|status| status.subnets[0].shifted = Some(ShiftEnd::At(end)));
    assert_ne!(first, world.look().0);
    world.advance(SignedDuration::from_mins(6));
    assert_eq!(first, world.look().0);
}

#[test]
fn a_new_generation_and_a_stale_part_are_other_input() {
    let world = WarmWorld::new();
    let (first, _) = world.look();
    let prices = |text: &str| {
        let price = UsdPerHour::parse(text).unwrap();
        PartData::OnDemandPrices(first.iter().map(|option| (option.facts.name.clone(), price)).collect())
    };
    world.change_part(&prices("0.5"));
    let (second, _) = world.look();
    assert_ne!(first, second);
    // The content is the same, so its generation is, too.
    world.change_part(&prices("0.5"));
    assert!(Arc::ptr_eq(&second, &world.look().0));
    world.advance(SignedDuration::from_hours(7));
    let (without_spot, _) = world.look();
    assert_ne!(second, without_spot);
}

#[test]
fn the_clusters_settings_and_learned_memory_are_input() {
    let world = WarmWorld::new();
    let (first, _) = world.look();
    world.change_registry(|registry| registry.settings.reserved_enis = 1);
    let (second, _) = world.look();
    assert_ne!(first, second);
    world.change_registry(|registry| registry.allowed.families = BTreeSet::from(["c5".parse().unwrap()]));
    let (third, _) = world.look();
    assert_ne!(second, third);
    let reporter: ClusterName = "other".parse().unwrap();
    let mut image = None;
    let boots = |image: &&ResolvedImage| image.architecture == Architecture::X86_64;
    world.change_status(|status| image = status.images.iter().find(boots).map(|image| image.id.clone()));
    let record = LearnedRecord {
        instance_type: "m5.large".parse().unwrap(),
        image: image.unwrap(),
        revision: 1,
        memory: LearnedMemory(7_700 * MIB),
        seen_at: world.cluster.world.clock.now(),
        cluster: Some(reporter.clone()),
    };
    let region = &world.cluster.world.installation.region;
    let key = keys::learned(region, &record.instance_type, &record.image, &reporter);
    world.cluster.put(set(key, &record)).unwrap();
    // The function reads such records every 10 minutes.
    world.advance(SignedDuration::from_mins(11));
    assert_ne!(third, world.look().0);
}

/// Input that differs from other such input by a number.
fn input(parts: &FreshParts, max_pods: u32) -> CompiledFrom {
    let kubelet = KubeletConfiguration { max_pods: Some(max_pods), ..KubeletConfiguration::default() };
    CompiledFrom {
        region: "us-east-1".parse().unwrap(),
        parts: parts.clone(),
        learned: Arc::default(),
        images: Vec::new(),
        settings: NodeSettings { kubelet, ..NodeSettings::default() },
        zones: BTreeSet::new(),
        families: BTreeSet::new(),
    }
}

#[test]
fn what_is_kept_is_bounded_and_what_was_used_last_stays() {
    let (options, _) = WarmWorld::new().look();
    let large: Vec<InstanceTypeOption> = options.iter().cycle().take(OPTIONS_AT_MOST / 3).cloned().collect();
    let part = || Arc::new(PartData::SpotPrices(BTreeMap::new()));
    let parts = || FreshParts { types: part(), offerings: part(), on_demand: None, spot: None };
    let (kept, now) = (CompiledClasses::default(), parts());
    let is_compiled = |parts: &FreshParts, number: u32| {
        let mut compiled = false;
        kept.of(input(parts, number), || {
            compiled = true;
            large.clone()
        });
        compiled
    };
    let seen: Vec<bool> = [1, 2, 3, 1, 4, 1, 2].iter().map(|number| is_compiled(&now, *number)).collect();
    assert_eq!(seen, [true, true, true, false, true, false, true]);
    assert_eq!(kept.0.lock().unwrap().len(), 3);
    // Another generation takes the place of all before.
    assert!(is_compiled(&parts(), 1));
    assert_eq!(kept.0.lock().unwrap().len(), 1);
}
