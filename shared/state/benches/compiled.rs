//! How long a wake takes for the options of a class with the whole catalogue: compiled, kept, and kept while EC2 refuses
//! one of them: `cargo bench -p tenon-state`.

#![expect(clippy::unwrap_used, reason = "a benchmark may fail loudly")]

use std::sync::Arc;

use divan::Bencher;
use tenon_domain::catalog::describe::facts;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{ClusterName, Region};
use tenon_domain::wake::FunctionName;
use tenon_ec2::data::Ec2Data;
use tenon_harness::cluster::Cluster;
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::block_on;
use tenon_state::cluster::{CompiledClasses, ObservedCluster};
use tenon_state::heads::Watch;
use tenon_state::observe::{Caches, ClusterObservation, observe};
use tenon_state::view::{Want, Wants};

fn main() {
    divan::main();
}

/// What the provisioner observes of a cluster.
struct ObservedWorld {
    region: Region,
    name: ClusterName,
    observed: ClusterObservation,
}

impl ObservedWorld {
    /// A cluster whose class may be of every type.
    fn new(marks: &[&str]) -> Self {
        let data = Ec2Data::get().unwrap();
        let described = data.types.iter().filter(|(_, info)| facts(info, &data.limits).is_ok());
        let types: Vec<&str> = described.map(|(name, _)| name.as_str()).collect();
        let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
        let mut cluster = Cluster::new(world, &types).unwrap();
        cluster.report().unwrap();
        let region = cluster.world.installation.region.clone();
        for key in marks {
            cluster.mark(key).unwrap();
        }
        let wants = Wants {
            function: FunctionName::Provisioner,
            parts: &CatalogPart::ALL,
            sets: &[Want::Claims, Want::Classes, Want::Marks],
            watch: Watch::Everything,
        };
        let observed = block_on(observe(&cluster.world, &cluster.name, wants, &Caches::default())).unwrap();
        Self { region, name: cluster.name.clone(), observed }
    }

    /// Resolves the class, and returns how many options it has.
    fn resolve(&self, known: &CompiledClasses) -> usize {
        let Self { region, name, observed } = self;
        let (registry, snapshot) =
            (observed.view.registry.as_ref().unwrap(), observed.snapshot.as_ref().unwrap());
        let mut world = ObservedCluster::new(name, registry, &observed.view, snapshot);
        world.resolve(region, known);
        world.types.values().map(|types| Arc::as_ref(types).len()).sum()
    }
}

#[divan::bench(sample_count = 20)]
fn compiled(bencher: Bencher<'_, '_>) {
    let world = ObservedWorld::new(&[]);
    bencher.bench(|| world.resolve(&CompiledClasses::default()));
}

#[divan::bench(sample_count = 20)]
fn kept(bencher: Bencher<'_, '_>) {
    warm(bencher, &ObservedWorld::new(&[]));
}

#[divan::bench(sample_count = 20)]
fn kept_under_a_mark(bencher: Bencher<'_, '_>) {
    warm(bencher, &ObservedWorld::new(&["offering#on-demand#use1-az1#m5.large"]));
}

/// Resolves with what the first look compiled.
fn warm(bencher: Bencher<'_, '_>, world: &ObservedWorld) {
    let known = CompiledClasses::default();
    assert!(world.resolve(&known) > 500, "the whole catalogue");
    bencher.bench(|| world.resolve(&known));
}
