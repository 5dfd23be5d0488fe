//! Learned memory for plans: records of all clusters in the table, and reports of the cluster's own Nodes.
//!
//! Decides how old the table's records may be. The cluster's own Nodes are in every snapshot, so a plan that turned
//! out wrong isn't repeated. It writes nothing; `lifecycle` does.
//!
//! Invariant: with the cluster's setting `learned_memory` Disabled, nothing is learned.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::view::ClusterView;
use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Node;
use tenon_domain::catalog::{Learned, LearnedMemory, LearnedRecord};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::registry::FeatureGate;
use tenon_domain::snapshot::Snapshot;
use tenon_runtime::{HandlerError, Ports};
use tenon_table::items::{from_item, keys};
use tenon_table::{Consistency, Query, SkRange, query_all};

/// How long the records are cached. They are a better estimate, not evidence, and other clusters' new types can wait.
const KEPT_FOR: SignedDuration = SignedDuration::from_mins(10);

/// The cached records and the time of their reading.
#[derive(Debug, Default)]
pub(crate) struct LearnedCache(Mutex<Option<(Timestamp, Arc<[LearnedRecord]>)>>);

impl LearnedCache {
    /// The region's learned memory, as the view's cluster uses it.
    pub(crate) async fn read<P: Ports>(
        &self,
        ports: &P,
        cluster: &ClusterName,
        view: &ClusterView,
    ) -> Result<Arc<Learned>, HandlerError> {
        if gate(view) == FeatureGate::Disabled {
            return Ok(Arc::default());
        }
        let records = match self.kept(view.now) {
            Some(records) => records,
            None => self.read_records(ports, view.now).await?,
        };
        Ok(Arc::new(Learned::of(records.iter(), cluster, view.now)))
    }

    async fn read_records<P: Ports>(
        &self,
        ports: &P,
        now: Timestamp,
    ) -> Result<Arc<[LearnedRecord]>, HandlerError> {
        let pk = keys::region_pk(&ports.installation().region);
        let query = Query::new(pk, SkRange::Prefix(keys::LEARNED.to_owned()), Consistency::Eventual);
        let items = query_all(ports.table(), &query).await?;
        // A record that can't be read is no reason to launch nothing: its type is planned with the estimate.
        let records: Arc<[LearnedRecord]> =
            items.iter().filter_map(|(key, item)| from_item::<LearnedRecord>(key, item).ok()).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, Arc::clone(&records)));
        Ok(records)
    }

    fn kept(&self, now: Timestamp) -> Option<Arc<[LearnedRecord]>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().filter(|(at, _)| now.duration_since(*at) < KEPT_FOR).map(|(_, known)| Arc::clone(known))
    }
}

fn gate(view: &ClusterView) -> FeatureGate {
    view.registry.as_ref().map_or(FeatureGate::Disabled, |registry| registry.settings.learned_memory)
}

/// Adds the reports of the cluster's own Nodes.
pub(crate) fn with_own_nodes(known: Arc<Learned>, view: &ClusterView, snapshot: &Snapshot) -> Arc<Learned> {
    if gate(view) == FeatureGate::Disabled {
        return known;
    }
    let reported: BTreeMap<&InstanceId, LearnedMemory> = snapshot.nodes.iter().filter_map(report).collect();
    let of_claims = view.claims.values().filter_map(|claim| claim.state.instance());
    let mut learned = Learned::clone(&known);
    for instance in of_claims {
        if let Some(memory) = reported.get(&instance.id) {
            learned.note_own(&instance.instance_type, &instance.image, *memory);
        }
    }
    Arc::new(learned)
}

fn report(node: &Node) -> Option<(&InstanceId, LearnedMemory)> {
    Some((&node.provider_id.as_ref()?.instance, LearnedMemory::of_capacity(&node.capacity)?))
}

#[cfg(test)]
mod tests {
    use crate::heads::Watch;
    use crate::view::{Want, Wants};
    use serde_json::json;
    use tenon_domain::catalog::settings::MIB;
    use tenon_domain::claim::{Claim, ClaimState};
    use tenon_domain::evidence::CatalogPart;
    use tenon_domain::id::ImageId;
    use tenon_domain::registry::{ClusterSettings, Registry};
    use tenon_domain::wake::FunctionName;
    use tenon_ec2::port::ImageArchitecture;
    use tenon_harness::claims;
    use tenon_harness::{FunctionWorld, WorldConfig};
    use tenon_memory_table::block_on;
    use tenon_table::items::set;

    use super::*;
    use crate::cluster::ObservedCluster;
    use crate::observe::{Caches, ClusterObservation, observe};
    use tenon_harness::cluster::Cluster;

    const WANTS: Wants<'static> = Wants {
        function: FunctionName::Provisioner,
        parts: &CatalogPart::ALL,
        sets: &[Want::Claims, Want::Classes],
        watch: Watch::Everything,
    };
    /// The estimate for an m5.large, in MiB.
    const ESTIMATE: u64 = 7577;

    fn ami(n: usize) -> ImageId {
        format!("ami-{n}").parse().unwrap()
    }

    /// A cluster whose class has these images, all as old and so by their ids, with one type.
    fn cluster(images: &[usize]) -> Cluster {
        let mut cluster =
            Cluster::new(FunctionWorld::new(&WorldConfig::default()).unwrap(), &["m5.large"]).unwrap();
        let images: Vec<_> = images.iter().map(|n| (ami(*n), ImageArchitecture::X86_64)).collect();
        cluster.resolve(&images).unwrap();
        cluster.report().unwrap();
        cluster
    }

    /// What another cluster's Nodes reported.
    fn learn(cluster: &Cluster, image: usize, mebibytes: u64) {
        learn_of(cluster, "other", image, mebibytes);
    }

    fn learn_of(cluster: &Cluster, reporter: &str, image: usize, mebibytes: u64) {
        let reporter: ClusterName = reporter.parse().unwrap();
        let record = LearnedRecord {
            instance_type: "m5.large".parse().unwrap(),
            image: ami(image),
            revision: 1,
            memory: LearnedMemory(mebibytes * MIB),
            seen_at: cluster.world.clock.now(),
            cluster: Some(reporter.clone()),
        };
        let region = &cluster.world.installation.region;
        let key = keys::learned(region, &record.instance_type, &record.image, &reporter);
        cluster.put(set(key, &record)).unwrap();
    }

    /// The memory that an m5.large is planned with, in MiB.
    fn planned(cluster: &Cluster, caches: &Caches) -> u64 {
        cluster.beat(cluster.world.clock.now()).unwrap();
        let ClusterObservation { view, snapshot, compiled } =
            block_on(observe(&cluster.world, &cluster.name, WANTS, caches)).unwrap();
        let (registry, snapshot) = (view.registry.as_ref().unwrap(), snapshot.unwrap());
        let mut world = ObservedCluster::new(&cluster.name, registry, &view, &snapshot);
        world.resolve(&cluster.world.installation.region, &compiled);
        let options = world.types.values().next().unwrap();
        let LearnedMemory(bytes) = LearnedMemory::of_capacity(&options[0].capacity).unwrap();
        bytes / MIB
    }

    fn check(learned: &[(usize, u64)], images: &[usize], expected: u64) {
        let cluster = cluster(images);
        for (image, mebibytes) in learned {
            learn(&cluster, *image, *mebibytes);
        }
        assert_eq!(planned(&cluster, &Caches::default()), expected, "{learned:?} {images:?}");
    }

    #[test]
    fn a_type_is_planned_with_what_was_learned_of_the_image_that_its_nodes_boot() {
        check(&[], &[1], ESTIMATE);
        check(&[(1, 7700)], &[1], 7700);
        check(&[(1, 7700), (2, 7650)], &[1, 2], 7700);
        check(&[(2, 7700)], &[1, 2], ESTIMATE);
        check(&[(1, 8193)], &[1], ESTIMATE);
    }

    #[test]
    fn a_cluster_that_lies_changes_no_other_clusters_plans() {
        let cluster = cluster(&[1]);
        learn_of(&cluster, "liar", 1, 1);
        assert_eq!(planned(&cluster, &Caches::default()), ESTIMATE);
        learn_of(&cluster, "other", 1, 7650);
        assert_eq!(planned(&cluster, &Caches::default()), 7650);
        // The cluster's own Nodes win, even with a value that no other cluster accepts.
        learn_of(&cluster, cluster.name.as_str(), 1, 7000);
        assert_eq!(planned(&cluster, &Caches::default()), 7000);
    }

    #[test]
    fn what_was_read_is_kept_for_ten_minutes() {
        let (cluster, caches) = (cluster(&[1]), Caches::default());
        learn(&cluster, 1, 7700);
        assert_eq!(planned(&cluster, &caches), 7700);
        learn(&cluster, 1, 7600);
        cluster.world.clock.advance(SignedDuration::from_secs(599));
        assert_eq!(planned(&cluster, &caches), 7700);
        cluster.world.clock.advance(SignedDuration::from_secs(1));
        assert_eq!(planned(&cluster, &caches), 7600);
    }

    #[test]
    fn a_node_of_the_cluster_itself_is_heard_at_once() {
        let (mut cluster, caches) = (cluster(&[1]), Caches::default());
        assert_eq!(planned(&cluster, &caches), ESTIMATE);
        let state = ClaimState::Registered {
            instance: claims::instance(0),
            node: claims::node_name(0),
            at: cluster.world.clock.now(),
        };
        let claim: Claim = claims::claim(0, state);
        cluster.put(set(keys::claim(&cluster.name, &claim.name), &claim)).unwrap();
        cluster.put(tenon_table::items::add_step(&cluster.name)).unwrap();
        cluster.objects.nodes.push(Arc::new(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-0"},
            "spec": {"providerID": format!("aws:///us-east-1a/{}", claims::instance_id(0))},
            "status": {"capacity": {"cpu": "2", "memory": "7400Mi", "pods": "29"}},
        })));
        cluster.report().unwrap();
        assert_eq!(planned(&cluster, &caches), 7400);
    }

    #[test]
    fn a_cluster_that_does_not_want_it_plans_with_the_estimate() {
        let cluster = cluster(&[1]);
        learn(&cluster, 1, 7700);
        let key = keys::registry(&cluster.world.installation.region, &cluster.name);
        let registry: Registry = from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap();
        let settings = ClusterSettings { learned_memory: FeatureGate::Disabled, ..registry.settings.clone() };
        cluster.put(set(key, &Registry { settings, ..registry })).unwrap();
        assert_eq!(planned(&cluster, &Caches::default()), ESTIMATE);
    }
}
