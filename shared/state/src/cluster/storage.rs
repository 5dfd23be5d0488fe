//! The ephemeral storage that Nodes of a class have, where that is far less than its spec promises.
//!
//! Decides what such a Node tells of the class's other types. Their volumes are alike, so that one Node tells of all.
//! Where a Node with disks has no more than its volume, nothing mounts them, and it tells of all types with disks; where
//! it has more, it tells of its own type, because other types have other disks. Another spec or another image of the
//! class may mount them, and nothing is known of it. The little that file systems take of each Node is no news: the types
//! stay those that a warm function keeps.
//!
//! Invariant: what a Node had counts until its claim is forgotten, so that the end of an empty Node repeats no launch
//! whose pods can't fit.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::node_shape::{LEAST_PERCENT, disk_storage, reported_storage, volume_storage};
use tenon_domain::catalog::{InstanceTypeFacts, InstanceTypeOption, NodeSettings, find_option};
use tenon_domain::claim::{Claim, LaunchedInstance};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::{InstanceId, InstanceType};

use super::ObservedCluster;

/// The least that Nodes have, in bytes.
#[derive(Debug, Default)]
struct SeenStorage {
    of_volumes: Option<u64>,
    /// Of types whose disks aren't mounted.
    instead_of_disks: Option<u64>,
    /// Of types with some of their disks.
    of_disks: BTreeMap<InstanceType, u64>,
}

impl SeenStorage {
    fn note(&mut self, option: &InstanceTypeOption, settings: &NodeSettings, has: u64) {
        let mounted = |promised: u64| promised.saturating_mul(u64::from(LEAST_PERCENT)) / 100;
        if reported_storage(&option.capacity).is_none_or(|promised| mounted(promised) <= has) {
            return;
        }
        let known = match disk_storage(&option.facts, settings) {
            None => &mut self.of_volumes,
            Some(_) if has <= volume_storage(settings) => &mut self.instead_of_disks,
            Some(_) => {
                self.of_disks
                    .entry(option.facts.name.clone())
                    .and_modify(|known| *known = has.min(*known))
                    .or_insert(has);
                return;
            }
        };
        *known = Some(known.map_or(has, |known| known.min(has)));
    }

    fn of(&self, facts: &InstanceTypeFacts, settings: &NodeSettings) -> Option<u64> {
        match disk_storage(facts, settings) {
            None => self.of_volumes,
            Some(_) => {
                let own = self.of_disks.get(&facts.name).copied();
                self.instead_of_disks.into_iter().chain(own).min()
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.of_volumes.is_none() && self.instead_of_disks.is_none() && self.of_disks.is_empty()
    }
}

impl ObservedCluster<'_> {
    /// The class's types with no more storage than its Nodes have.
    pub(super) fn with_seen_storage(
        &self,
        class: &Ec2NodeClass,
        options: Arc<Vec<InstanceTypeOption>>,
    ) -> Arc<Vec<InstanceTypeOption>> {
        let Some(status) = self.view.classes.get(&class.name) else { return options };
        let settings = self.with_settings(class).settings;
        let nodes = self.snapshot.nodes.iter().filter_map(|node| {
            Some((&node.provider_id.as_ref()?.instance, reported_storage(&node.capacity)?))
        });
        let reported: BTreeMap<&InstanceId, u64> = nodes.collect();
        let mut seen = SeenStorage::default();
        for claim in self.view.claims.values().filter(|claim| claim.class == class.name) {
            let Some(instance) = claim.state.instance() else { continue };
            let has = reported.get(&instance.id).copied().or(claim.storage);
            let option = find_option(&options, &instance.instance_type);
            if let (Some(has), Some(option), true) = (has, option, is_alike(claim, instance, status)) {
                seen.note(option, &settings, has);
            }
        }
        if seen.is_empty() {
            return options;
        }
        let mut options = options.to_vec();
        for option in &mut options {
            if let Some(bytes) = seen.of(&option.facts, &settings) {
                option.lower_storage(&settings, bytes);
            }
        }
        Arc::new(options)
    }
}

/// Whether the class launches from the claim's spec and image still.
fn is_alike(claim: &Claim, instance: &LaunchedInstance, status: &ClassStatus) -> bool {
    claim.class_hash.zip(status.hash).is_none_or(|(had, has)| had == has)
        && status.images.iter().any(|image| image.id == instance.image)
}

#[cfg(test)]
mod tests {
    use tenon_domain::catalog::settings::GIB;
    use tenon_domain::claim::{ClaimState, RemovalReason};
    use tenon_domain::evidence::CatalogPart;
    use tenon_domain::id::ImageId;
    use tenon_domain::wake::FunctionName;
    use tenon_ec2::port::ImageArchitecture;
    use tenon_harness::cluster::Cluster;
    use tenon_harness::{FunctionWorld, WorldConfig, claims};
    use tenon_memory_table::block_on;
    use tenon_table::items::{add_step, keys, set};

    use super::*;
    use crate::heads::Watch;
    use crate::observe::{Caches, ClusterObservation, observe};
    use crate::view::{Want, Wants};

    /// The storage that types of a class are planned with, in GiB, after one of the first type reported so much and went.
    fn planned(types: &[&str], spec: (&str, &str), reported: Option<u64>, image: &str) -> Vec<u64> {
        let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
        let mut cluster = Cluster::new(world, types).unwrap();
        let mut class = (*cluster.objects.node_classes[0]).clone();
        class["spec"][spec.0] = spec.1.into();
        cluster.objects.node_classes = vec![Arc::new(class)];
        cluster.resolve(&[(image.parse::<ImageId>().unwrap(), ImageArchitecture::X86_64)]).unwrap();
        let instance = LaunchedInstance { instance_type: types[0].parse().unwrap(), ..claims::instance(0) };
        let at = cluster.world.clock.now();
        let state = ClaimState::Terminated {
            instance: Some(instance),
            node: Some(claims::node_name(0)),
            reason: RemovalReason::Deleted,
            at,
        };
        let claim = Claim { storage: reported.map(|gib| gib * GIB), ..claims::claim(0, state) };
        cluster.put(set(keys::claim(&cluster.name, &claim.name), &claim)).unwrap();
        cluster.put(add_step(&cluster.name)).unwrap();
        cluster.report().unwrap();
        let wants = Wants {
            function: FunctionName::Provisioner,
            parts: &CatalogPart::ALL,
            sets: &[Want::Claims, Want::Classes],
            watch: Watch::Everything,
        };
        let seen = block_on(observe(&cluster.world, &cluster.name, wants, &Caches::default())).unwrap();
        let ClusterObservation { view, snapshot, compiled } = seen;
        let (registry, snapshot) = (view.registry.as_ref().unwrap(), snapshot.unwrap());
        let mut world = ObservedCluster::new(&cluster.name, registry, &view, &snapshot);
        world.resolve(&cluster.world.installation.region, &compiled);
        let options = world.types.values().next().unwrap();
        let of = |name: &&str| find_option(options, &name.parse().unwrap()).unwrap();
        types.iter().map(|name| reported_storage(&of(name).capacity).unwrap() / GIB).collect()
    }

    /// Checks the storage of all types after an m5.large.
    fn check(reported: Option<u64>, image: &str, expected: u64) {
        let found = planned(&["m5.large", "m5.xlarge"], ("amiFamily", "AL2023"), reported, image);
        assert_eq!(found, [expected; 2], "{reported:?} {image}");
    }

    #[test]
    fn one_node_with_less_storage_than_planned_tells_of_all_types_and_outlives_its_end() {
        check(None, "ami-1", 20);
        check(Some(10), "ami-1", 10);
        check(Some(19), "ami-1", 20);
        check(Some(30), "ami-1", 20);
        check(Some(10), "ami-2", 20);
    }

    #[test]
    fn a_node_with_a_part_of_its_disks_tells_of_its_own_type() {
        let check = |reported: Option<u64>, expected: [u64; 2]| {
            let raid = ("instanceStorePolicy", "RAID0");
            let found = planned(&["m5d.large", "i3en.2xlarge"], raid, reported, "ami-1");
            assert_eq!(found, expected, "{reported:?}");
        };
        check(None, [69, 4656]);
        check(Some(65), [69, 4656]);
        check(Some(50), [50, 4656]);
        check(Some(19), [19, 19]);
    }
}
