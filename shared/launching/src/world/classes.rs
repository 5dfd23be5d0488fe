//! Which pools are ready, and what their nodes can be.
//!
//! Decides which classes launches can be made from, with the reason where one can't, and the instance types of each
//! pool's nodes. It asks nobody: a class's status and the catalogue are what the table says.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_domain::api::{Ec2NodeClass, NodePool};
use tenon_domain::catalog::settings::PartsPerMillion;
use tenon_domain::catalog::{
    AmiFamily, CapacityType, Catalog, Exhaustion, InstanceTypeOption, PartData, Places,
};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::evidence::{CatalogPart, Waiting, require};
use tenon_domain::id::{ClusterName, NodeClassName, NodePoolName, Region};
use tenon_domain::labels;
use tenon_domain::unavailable::{RequestDigest, UnavailableKey};
use tenon_scheduling::provision::PoolReadiness;

use super::World;
use super::pools::plans;
use crate::build::ReadyClass;
use crate::fleet;

impl<'a> World<'a> {
    /// Finds out which pools are ready and what their nodes can be. Before this no pool is known.
    pub fn resolve(&mut self, region: &Region) {
        let mut by_class: BTreeMap<&NodeClassName, Arc<Vec<InstanceTypeOption>>> = BTreeMap::new();
        for pool in self.snapshot.node_pools.iter().filter(|pool| plans(pool)) {
            let name = &pool.template.node_class.name;
            let class = self.class(pool);
            if let Some(class) = class {
                let types = by_class.entry(name).or_insert_with(|| Arc::new(self.options(class, region)));
                self.types.insert(pool.name.clone(), Arc::clone(types));
            }
            let readiness = self.judge(pool, class);
            if let (PoolReadiness::Ready, Some(class), Some(status)) =
                (&readiness, class, self.view.classes.get(name))
            {
                let ready = ReadyClass { class: self.with_settings(class), status: status.clone() };
                self.classes.insert(name.clone(), ready);
            }
            self.readiness.insert(pool.name.clone(), readiness);
        }
    }

    fn class(&self, pool: &NodePool) -> Option<&'a Ec2NodeClass> {
        let wanted = &pool.template.node_class;
        let ours = wanted.group == labels::PROVIDER_DOMAIN && wanted.kind == "EC2NodeClass";
        self.snapshot.node_classes.iter().find(|class| ours && class.name == wanted.name)
    }

    /// The class with the cluster's settings.
    fn with_settings(&self, class: &Ec2NodeClass) -> Ec2NodeClass {
        let mut class = class.clone();
        class.settings.reserved_enis = self.registry.settings.reserved_enis;
        class.settings.vm_memory_overhead = PartsPerMillion(self.registry.settings.vm_memory_overhead_ppm);
        class
    }

    fn judge(&self, pool: &NodePool, class: Option<&Ec2NodeClass>) -> PoolReadiness {
        let name = &pool.template.node_class.name;
        let Some(class) = class else { return PoolReadiness::NodeClassNotFound(name.clone()) };
        let not_ready = |reason: &str| {
            PoolReadiness::NotReady(Waiting::NodeClassNotReady {
                class: name.to_string(),
                reason: reason.to_owned(),
            })
        };
        match class.settings.ami_family {
            AmiFamily::Al2023 | AmiFamily::Custom => {}
            AmiFamily::Al2
            | AmiFamily::Bottlerocket
            | AmiFamily::Windows2019
            | AmiFamily::Windows2022
            | AmiFamily::Windows2025 => return not_ready("UnsupportedAmiFamily"),
        }
        let Some(status) = self.view.classes.get(name) else { return not_ready("AwaitingReconciliation") };
        if class.meta.deleted_at.is_some() {
            return not_ready("Terminating");
        }
        if status.generation != class.meta.generation {
            return not_ready("AwaitingReconciliation");
        }
        if !status.ready() {
            return not_ready(status.obstacle().map_or("Unknown", |obstacle| obstacle.reason_text()));
        }
        let key = refused_request(self.cluster, &pool.name, status);
        if let Some(mark) = self.view.marks.held(&key, self.view.now) {
            return not_ready(&mark.code);
        }
        match self.missing_part(pool) {
            Some(waiting) => PoolReadiness::NotReady(waiting),
            None => PoolReadiness::Ready,
        }
    }

    /// The first part of the catalogue that the pool needs and that isn't there or is too old.
    fn missing_part(&self, pool: &NodePool) -> Option<Waiting> {
        let allows = |capacity_type: CapacityType| {
            pool.template.requirements.allows(labels::CAPACITY_TYPE, capacity_type.as_str())
        };
        let needed = CatalogPart::ALL.into_iter().filter(|part| match part {
            CatalogPart::InstanceTypes | CatalogPart::Offerings => true,
            CatalogPart::OnDemandPrices => allows(CapacityType::OnDemand),
            CatalogPart::SpotPrices => allows(CapacityType::Spot),
        });
        needed
            .filter_map(|part| {
                let found = self.view.parts.get(&part).map(|found| ((), found.refreshed_at));
                require(part, found, self.view.now).err()
            })
            .next()
    }

    /// All types as nodes of the class would be, by name; those without an image among the class's are left out.
    fn options(&self, class: &Ec2NodeClass, region: &Region) -> Vec<InstanceTypeOption> {
        let fresh = |part: CatalogPart| {
            let found = self.view.parts.get(&part).map(|found| (&found.data, found.refreshed_at));
            require(part, found, self.view.now).ok().map(|ready| Arc::clone(*ready))
        };
        let (types, offerings) = (fresh(CatalogPart::InstanceTypes), fresh(CatalogPart::Offerings));
        let (Some(PartData::InstanceTypes(types)), Some(PartData::Offerings(offerings))) =
            (types.as_deref(), offerings.as_deref())
        else {
            return Vec::new();
        };
        let Some(status) = self.view.classes.get(&class.name) else { return Vec::new() };
        let (on_demand, spot) = (fresh(CatalogPart::OnDemandPrices), fresh(CatalogPart::SpotPrices));
        let (no_on_demand, no_spot) = (BTreeMap::new(), BTreeMap::new());
        let catalog = Catalog {
            region,
            types,
            offerings,
            on_demand: match on_demand.as_deref() {
                Some(PartData::OnDemandPrices(prices)) => prices,
                _ => &no_on_demand,
            },
            spot: match spot.as_deref() {
                Some(PartData::SpotPrices(prices)) => prices,
                _ => &no_spot,
            },
        };
        let settings = self.with_settings(class).settings;
        let requests = [RequestDigest::of_class(self.cluster, status)];
        let exhaustion = Exhaustion { marks: &self.view.marks, requests: &requests, now: self.view.now };
        let mut options = catalog.options(&settings, Places::Subnets(&status.subnets), exhaustion);
        options.retain(|option| fleet::image_of(&option.facts, status).is_some());
        options
    }
}

/// What is marked where EC2 refuses the launches of a pool for what they are: another spec or other images of the class
/// are another request.
#[must_use]
pub fn refused_request(cluster: &ClusterName, pool: &NodePoolName, status: &ClassStatus) -> UnavailableKey {
    let images: Vec<&str> = status.images.iter().map(|image| image.id.as_str()).collect();
    let images = images.join(" ");
    let class = [status.name.as_str(), status.spec_digest.as_str(), images.as_str()];
    let texts = [cluster.as_str(), pool.as_str()].into_iter().chain(class);
    UnavailableKey::Request(RequestDigest::of(texts))
}
