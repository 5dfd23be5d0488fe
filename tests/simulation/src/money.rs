//! `money`: plays histories with consolidation and without, and compares what their instances cost.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use tenon_testkit::{HistoryCosts, HistoryPace, SimulationOptions, spent};

use crate::{say, threads};

/// Compares what histories cost with consolidation and without it.
#[derive(Debug, Args)]
#[command(after_help = "Example: cargo run --release -p tenon-simulation -- money --seeds 100")]
pub(crate) struct MoneyArguments {
    /// The number of seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// The steps of each seed, of up to ten minutes.
    #[arg(long, default_value_t = 300)]
    steps: u32,
    /// The number of threads [default: the processors].
    #[arg(long)]
    threads: Option<usize>,
}

/// The sum must be 30 % less with consolidation.
const SUM_AT_MOST: f64 = 0.7;
/// A seed may cost 5 % more with it.
const SEED_AT_MOST: f64 = 1.05;

pub(crate) fn run(arguments: &MoneyArguments) -> ExitCode {
    let costs: Mutex<Vec<(u64, HistoryCosts)>> = Mutex::default();
    let seeds = arguments.first..arguments.first.saturating_add(arguments.seeds);
    threads::each(seeds, arguments.threads, |seed| {
        let pace = Some(HistoryPace::Long);
        match spent(SimulationOptions { seed, steps: arguments.steps, sabotage: None, pace }) {
            Ok(spent) => costs.lock().unwrap_or_else(PoisonError::into_inner).push((seed, spent)),
            Err(violation) => say(&violation.to_string()),
        }
    });
    let costs = costs.into_inner().unwrap_or_else(PoisonError::into_inner);
    let sum = |of: fn(&HistoryCosts) -> f64| costs.iter().map(|(_, spent)| of(spent)).sum::<f64>();
    let (consolidating, keeping) = (sum(|spent| spent.consolidating), sum(|spent| spent.keeping));
    say(&format!(
        "{} of {} seeds of {} steps: {consolidating:.2} USD with consolidation, {keeping:.2} USD without, {:.3} of it",
        costs.len(),
        arguments.seeds,
        arguments.steps,
        consolidating / keeping,
    ));
    let dearer: Vec<_> =
        costs.iter().filter(|(_, spent)| spent.consolidating > SEED_AT_MOST * spent.keeping).collect();
    for (seed, HistoryCosts { consolidating, keeping }) in &dearer {
        say(&format!("seed {seed}: {consolidating:.2} USD with consolidation, {keeping:.2} USD without"));
    }
    let all_played = u64::try_from(costs.len()) == Ok(arguments.seeds);
    if all_played && dearer.is_empty() && consolidating <= SUM_AT_MOST * keeping {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
