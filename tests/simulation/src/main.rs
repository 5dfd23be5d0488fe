//! Runs seeds of the simulation and checks the invariants.
//!
//! `cargo run --release -p tenon-simulation -- --seeds 10000` runs seeds 0 to 9999; `--seed N` replays one.
//! `first-wakes` runs every order of the functions' first wakes instead, `money` compares what histories cost.

mod first_wakes;
mod money;
mod threads;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::{Parser, Subcommand};
use tenon_testkit::{
    HistoryPace, Sabotage, SimulationOptions, SimulationOutcome, Situation, Violation, simulate,
};

/// Runs seeds of the simulation and checks the invariants.
#[derive(Debug, Parser)]
#[command(
    after_help = "Example: cargo run --release -p tenon-simulation -- --seeds 1000 --steps 200",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// The number of seeds, from `--first` on.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Replay only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// The steps of each seed.
    #[arg(long, default_value_t = 200)]
    steps: u32,
    /// Break the code in one place, to see an invariant fail: the name of a sabotage.
    #[arg(long, value_parser = sabotage_named)]
    sabotage: Option<Sabotage>,
    /// The pace: quick, slow, fair (slow, and no call fails), restored (slow, and the table is restored), or long (steps
    /// of up to ten minutes) [default: each seed's own].
    #[arg(long, value_parser = pace_named)]
    pace: Option<HistoryPace>,
    /// The number of threads [default: the processors].
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum Command {
    FirstWakes(first_wakes::FirstWakesArguments),
    Money(money::MoneyArguments),
}

#[derive(Default)]
struct Tally {
    played: u64,
    launches: usize,
    crashes: u64,
    invocations: u64,
    restored: u64,
    reached: BTreeMap<Situation, u64>,
    violations: Vec<Violation>,
}

impl Tally {
    fn add(&mut self, outcome: Result<SimulationOutcome, Box<Violation>>) {
        self.played += 1;
        match outcome {
            Ok(outcome) => {
                self.launches += outcome.launches;
                self.crashes += outcome.crashes;
                self.invocations += outcome.invocations;
                self.restored += u64::from(outcome.restored);
                for reach in outcome.reached {
                    *self.reached.entry(reach).or_default() += 1;
                }
            }
            Err(violation) => self.violations.push(*violation),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match &arguments.command {
        Some(Command::FirstWakes(arguments)) => return first_wakes::run(arguments),
        Some(Command::Money(arguments)) => return money::run(arguments),
        None => {}
    }
    let sabotage = arguments.sabotage;
    let (first, seeds) = arguments.seed.map_or((arguments.first, arguments.seeds), |seed| (seed, 1));
    let begun = Instant::now();
    let tally = Mutex::new(Tally::default());
    threads::each(first..first.saturating_add(seeds), arguments.threads, |seed| {
        let (steps, pace) = (arguments.steps, arguments.pace);
        let outcome = simulate(SimulationOptions { seed, steps, sabotage, pace });
        if let Err(violation) = &outcome {
            say(&violation.to_string());
        }
        tally.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
    });
    let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&tally, &arguments, begun.elapsed().as_secs_f64())
}

fn pace_named(name: &str) -> Result<HistoryPace, String> {
    match name {
        "quick" => Ok(HistoryPace::Quick),
        "slow" => Ok(HistoryPace::Slow),
        "fair" => Ok(HistoryPace::Fair),
        "restored" => Ok(HistoryPace::Restored),
        "long" => Ok(HistoryPace::Long),
        other => Err(format!("unknown pace `{other}`: give `quick`, `slow`, `fair`, `restored` or `long`")),
    }
}

fn sabotage_named(name: &str) -> Result<Sabotage, String> {
    let found = Sabotage::ALL.into_iter().find(|sabotage| format!("{sabotage:?}") == name);
    found.ok_or_else(|| format!("unknown sabotage: give one of {:?}", Sabotage::ALL))
}

/// Prints a line. A closed output is ignored: the exit status still shows the result.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn report(tally: &Tally, arguments: &Arguments, seconds: f64) -> ExitCode {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = tally.played as f64 / seconds.max(0.001);
    say(&format!(
        "{} seeds of {} steps in {seconds:.1} s, {rate:.1} a second: {} launches, {} crashes, {} invocations, {} restored tables",
        tally.played, arguments.steps, tally.launches, tally.crashes, tally.invocations, tally.restored
    ));
    let reached = Situation::ALL.map(|reach| {
        let count = tally.reached.get(&reach).copied().unwrap_or(0);
        format!("{} {count}", reach.as_str())
    });
    say(&format!("situations reached, in seeds: {}", reached.join(", ")));
    let failed = tally.violations.len();
    say(&format!("{} passed, {failed} failed", tally.played.saturating_sub(failed as u64)));
    for violation in tally.violations.iter().take(3) {
        say(&format!(
            "replay it: cargo run --release -p tenon-simulation -- --seed {} --steps {}{}",
            violation.seed,
            arguments.steps,
            arguments.pace.map_or_else(String::new, |pace| format!(" --pace {pace:?}").to_lowercase())
        ));
    }
    if tally.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
