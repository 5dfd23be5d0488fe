//! How long plans take over the whole catalogue of us-east-1, and in the peer's benchmark: `cargo bench -p
//! tenon-planning`. The example `world` measures one plan in a fresh process.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark may fail loudly")]

#[expect(dead_code, reason = "only the tests use all of what they share")]
#[path = "../tests/plans/support.rs"]
mod support;

#[expect(dead_code, reason = "only the tests use all of what they share")]
#[path = "../tests/plans/drawn.rs"]
mod drawn;

#[path = "../tests/plans/catalogue.rs"]
mod catalogue;

#[expect(dead_code, reason = "only the tests use all of what they share")]
#[path = "../tests/plans/sized_worlds.rs"]
mod sized_worlds;

use catalogue::catalogue;
use divan::Bencher;
use support::{input, pods, pool, shape};
use tenon_planning::provision::{ProvisionInput, plan};
use tenon_planning::solve as bound;

fn main() {
    for count in [1_000, 5_000] {
        let world = mixed(count);
        let (plan, report) = plan(&world);
        let bound = bound::linear(&world, &plan);
        let bound = bound.map_or_else(|| "unknown".to_owned(), |bound| bound.to_string());
        println!(
            "{count} pods: {} claims, {} USD/h, bound {bound}, {} unschedulable, {} steps",
            plan.claims.len(),
            plan.price(),
            report.unschedulable.len(),
            report.steps
        );
    }
    divan::main();
}

/// Pods of twenty sizes, some of which ask for a zone, an architecture or on-demand capacity.
fn mixed(count: usize) -> ProvisionInput {
    let mut all = Vec::new();
    for kind in 0..20_usize {
        let cpu = [100, 250, 500, 1000, 2000, 3500, 7000][kind % 7];
        let memory = [128, 512, 1024, 4096, 12_000][kind % 5];
        let mut one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
        let asked = match kind % 6 {
            0 => Some(("topology.kubernetes.io/zone", "us-east-1a")),
            1 => Some(("kubernetes.io/arch", "arm64")),
            2 => Some(("karpenter.sh/capacity-type", "on-demand")),
            _ => None,
        };
        one.node_selector.extend(asked.map(|(key, value)| (key.to_owned(), value.to_owned())));
        all.extend(pods(&format!("kind-{kind}"), count / 20, one));
    }
    let mut default = pool("default", Vec::new());
    default.types = catalogue();
    input(all, vec![default])
}

/// Pods that all differ.
fn distinct(count: usize) -> ProvisionInput {
    let mut all = Vec::new();
    for index in 0..count {
        let (cpu, memory) = (100 + index * 7919 % 4000, 128 + index * 104_729 % 16_000);
        let one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
        all.extend(pods(&format!("pod-{index}"), 1, one));
    }
    let mut default = pool("default", Vec::new());
    default.types = catalogue();
    input(all, vec![default])
}

/// Few kinds have a bound; for many the programme is given up.
#[divan::bench(args = [100, 3_000], sample_count = 5)]
fn bound_of_distinct_pods(bencher: Bencher<'_, '_>, count: usize) {
    let world = distinct(count);
    let (plan, _) = plan(&world);
    bencher.bench(|| bound::linear(&world, &plan));
}

#[divan::bench(args = [1_000, 5_000], sample_count = 10)]
fn mixed_pods(bencher: Bencher<'_, '_>, count: usize) {
    let world = mixed(count);
    bencher.bench(|| plan(&world));
}

#[divan::bench(args = [1_000], sample_count = 5)]
fn distinct_pods(bencher: Bencher<'_, '_>, count: usize) {
    let world = distinct(count);
    bencher.bench(|| plan(&world));
}

#[divan::bench(args = [100, 1_000], sample_count = 5)]
fn peers_pods(bencher: Bencher<'_, '_>, count: u64) {
    let world = sized_worlds::peers(count, 1);
    bencher.bench(|| plan(&world));
}

#[divan::bench(args = [1_000], sample_count = 5)]
fn preferring_pods(bencher: Bencher<'_, '_>, count: u64) {
    let world = sized_worlds::preferring(count, 1);
    bencher.bench(|| plan(&world));
}

#[divan::bench(args = [100, 1_000], sample_count = 5)]
fn deployments(bencher: Bencher<'_, '_>, count: u64) {
    let world = sized_worlds::deployments(count, 1);
    bencher.bench(|| plan(&world));
}
