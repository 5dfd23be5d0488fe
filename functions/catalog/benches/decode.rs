//! The time for a planner to read the whole catalogue of us-east-1 from the table: `cargo bench -p tenon-catalog`.
//!
//! The table is in memory, so the benchmark measures unpacking. It fails if the median exceeds its limit.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a benchmark may fail loudly")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use divan::Bencher;
use tenon_catalog::CatalogFunction;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::wake::WakeCause;
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::block_on;
use tenon_runtime::{Handler as _, WakeScope};
use tenon_table::items::{CatalogCache, RefreshedParts, read_parts};

/// The limit for all four parts together.
const MEDIAN_MAX: Duration = Duration::from_millis(10);
/// With fewer reads, other load of the machine moves the median.
const READS: usize = 101;

fn main() -> ExitCode {
    let world = world();
    let mut taken: Vec<Duration> = (0..READS)
        .map(|_| {
            let begun = Instant::now();
            divan::black_box(read(&world, &CatalogPart::ALL));
            begun.elapsed()
        })
        .collect();
    taken.sort_unstable();
    let median = taken[READS / 2];
    println!("{} types: a median of {median:?} to have the whole catalogue", types(&world));
    divan::main();
    if median <= MEDIAN_MAX {
        return ExitCode::SUCCESS;
    }
    eprintln!("{median:?} is beyond the limit of {MEDIAN_MAX:?}");
    ExitCode::FAILURE
}

/// The whole region, refreshed once.
fn world() -> FunctionWorld {
    let config = WorldConfig { types: Vec::new(), zones: Vec::new(), ..WorldConfig::default() };
    let world = FunctionWorld::new(&config).unwrap();
    block_on(CatalogFunction::default().handle(&world, &WakeScope::Region, &[WakeCause::Sweep])).unwrap();
    world
}

/// With nothing kept from before.
fn read(world: &FunctionWorld, parts: &[CatalogPart]) -> RefreshedParts {
    block_on(read_parts(&world.table, &world.installation.region, parts, &CatalogCache::new())).unwrap()
}

fn types(world: &FunctionWorld) -> usize {
    read(world, &[CatalogPart::InstanceTypes])[&CatalogPart::InstanceTypes].data.count()
}

#[divan::bench(args = CatalogPart::ALL)]
fn part(bencher: Bencher<'_, '_>, part: CatalogPart) {
    let world = world();
    bencher.bench(|| read(&world, &[part]));
}

#[divan::bench]
fn whole(bencher: Bencher<'_, '_>) {
    let world = world();
    bencher.bench(|| read(&world, &CatalogPart::ALL));
}
