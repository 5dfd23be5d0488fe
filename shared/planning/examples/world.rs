//! What a plan costs in a fresh process: `cargo run --release -p tenon-planning --example world -- deployments 20000`.
//!
//! The first argument is the kind of world (`peers`, `preferring`, `mixed`, `deployments`), the second the number of pods; then
//! come the seed (1) and the number of processes (1). With several, the line has the medians. Without arguments, all
//! lines of `docs/planner.md` are printed.
//!
//! The time is that of a whole plan, with compiling the pools, and of its thread alone: other processes on the machine
//! don't count. Memory is the most that the process had from the beginning of the plan, with its input.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement may fail loudly")]
#![expect(clippy::cast_precision_loss, reason = "printed figures need not be exact")]

#[expect(dead_code, reason = "only the tests use all of what they share")]
#[path = "../tests/plans/support.rs"]
mod support;

#[expect(dead_code, reason = "only the tests use all of what they share")]
#[path = "../tests/plans/drawn.rs"]
mod drawn;

#[path = "../tests/plans/catalogue.rs"]
mod catalogue;

#[path = "../tests/plans/sized_worlds.rs"]
mod sized_worlds;

use std::process::Command;

use tenon_planning::provision::plan;
use tenon_planning::solve;

/// The functions' own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The worlds of the document.
const TABLE: [(&str, u64); 13] = [
    ("peers", 1_000),
    ("peers", 5_000),
    ("peers", 20_000),
    ("preferring", 4_000),
    ("mixed", 500),
    ("mixed", 2_000),
    ("mixed", 5_000),
    ("deployments", 100),
    ("deployments", 1_000),
    ("deployments", 5_000),
    ("deployments", 20_000),
    ("deployments", 100_000),
    ("deployments", 200_000),
];

/// What one plan took and gave: figures with their names.
const NAMES: [&str; 8] = ["ms", "MB", "claims", "USD/h", "bound", "price/bound", "unplaced", "steps"];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| words.get(index).map_or(default, |word| word.parse().unwrap());
    match (words.first().map(String::as_str), number(3, 1)) {
        (None, _) => {
            for (kind, count) in TABLE {
                [1, 2].into_iter().for_each(|seed| medians(kind, count, seed, 5));
            }
        }
        (Some(kind), 1) => {
            println!("{}", NAMES.join(" "));
            println!("{}", figures(kind, number(1, 1_000), number(2, 1)).join(" "));
        }
        (Some(kind), runs) => medians(kind, number(1, 1_000), number(2, 1), runs),
    }
}

/// A line with the medians of several processes.
fn medians(kind: &str, count: u64, seed: u64, runs: u64) {
    let mut all: Vec<Vec<f64>> = vec![Vec::new(); NAMES.len()];
    for _ in 0..runs {
        let this = std::env::current_exe().unwrap();
        let out = Command::new(this).args([kind, &count.to_string(), &seed.to_string()]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let line = text.lines().nth(1).unwrap();
        line.split(' ').zip(&mut all).for_each(|(figure, all)| all.push(figure.parse().unwrap()));
    }
    let medians = all.iter_mut().map(|figures| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2].to_string()
    });
    println!("| {kind} | {count} | {seed} | {} |", medians.collect::<Vec<_>>().join(" | "));
}

fn figures(kind: &str, count: u64, seed: u64) -> [String; NAMES.len()] {
    let world = match kind {
        "peers" => sized_worlds::peers(count, seed),
        "preferring" => sized_worlds::preferring(count, seed),
        "mixed" => sized_worlds::mixed(count, seed),
        _ => sized_worlds::deployments(count, seed),
    };
    // The highest mark of memory begins here.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = nanos();
    let (made, report) = plan(&world);
    let took = nanos() - before;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kibibytes: f64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    let bound = solve::linear(&world, &made);
    let usd = |nanos: u64| nanos as f64 / 1e9;
    let price = usd(made.price().nanos());
    let bound = bound.map_or(0.0, |bound| usd(bound.nanos()));
    [
        format!("{:.1}", took as f64 / 1e6),
        format!("{:.0}", kibibytes / 1000.0),
        made.claims.len().to_string(),
        format!("{price:.3}"),
        format!("{bound:.3}"),
        format!("{:.4}", if bound > 0.0 { price / bound } else { 0.0 }),
        report.unschedulable.len().to_string(),
        report.steps.to_string(),
    ]
}

/// The time that this thread has run.
fn nanos() -> u64 {
    // The kernel brings the figure up to date when the thread gives way.
    std::thread::yield_now();
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}
