//! `first-wakes`: runs every order of the functions' first wakes, and every failing call.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use tenon_testkit::{
    CANONICAL, CallFault, Failing, FirstWakes, ORDERS, Sabotage, Violation, WakeOrder, calls,
};

use crate::{sabotage_named, say, threads};

/// Runs every order of the functions' first wakes without faults, and the canonical order with each call failing once
/// in each way.
#[derive(Debug, Args)]
#[command(after_help = "Example: cargo run --release -p tenon-simulation -- first-wakes")]
pub(crate) struct FirstWakesArguments {
    /// Run only the order of this number.
    #[arg(long)]
    order: Option<u64>,
    /// The number of the failing call; needs `--failing`.
    #[arg(long, requires = "failing")]
    call: Option<u64>,
    /// How the call fails: throttled, denied, refused, unanswered, crash-before or crash-after.
    #[arg(long, requires = "call", value_parser = failing_named)]
    failing: Option<Failing>,
    /// Run only every Nth history.
    #[arg(long, default_value = "1", conflicts_with_all = ["order", "call"])]
    every: NonZeroUsize,
    /// Break the code in one place: the name of a sabotage.
    #[arg(long, value_parser = sabotage_named)]
    sabotage: Option<Sabotage>,
    /// The number of threads [default: the processors].
    #[arg(long)]
    threads: Option<usize>,
}

impl FirstWakesArguments {
    fn histories(&self) -> Vec<FirstWakes> {
        let fault = self.call.zip(self.failing).map(|(call, failing)| CallFault { call, failing });
        let of = |order, fault| FirstWakes { order, fault, sabotage: self.sabotage };
        if self.order.is_some() || fault.is_some() {
            return vec![of(self.order.map_or(CANONICAL, WakeOrder), fault)];
        }
        let orders = (0..ORDERS).map(|number| of(WakeOrder(number), None));
        let fault = |call| Failing::ALL.map(|failing| of(CANONICAL, Some(CallFault { call, failing })));
        orders.chain((0..calls()).flat_map(fault)).step_by(self.every.get()).collect()
    }
}

pub(crate) fn run(arguments: &FirstWakesArguments) -> ExitCode {
    let begun = Instant::now();
    let histories = arguments.histories();
    let violations: Mutex<Vec<Violation>> = Mutex::default();
    let numbers = 0..u64::try_from(histories.len()).unwrap_or(u64::MAX);
    threads::each(numbers, arguments.threads, |number| {
        let Some(history) = usize::try_from(number).ok().and_then(|index| histories.get(index)) else {
            return;
        };
        if let Err(violation) = history.check() {
            say(&violation.to_string());
            violations.lock().unwrap_or_else(PoisonError::into_inner).push(*violation);
        }
    });
    let failed = violations.into_inner().unwrap_or_else(PoisonError::into_inner).len();
    let with_fault = histories.iter().filter(|history| history.fault.is_some()).count();
    let seconds = begun.elapsed().as_secs_f64();
    say(&format!(
        "{} histories of first wakes in {seconds:.1} s: {} without a fault, {with_fault} with one",
        histories.len(),
        histories.len().saturating_sub(with_fault),
    ));
    say(&format!("{} passed, {failed} failed", histories.len().saturating_sub(failed)));
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn failing_named(name: &str) -> Result<Failing, String> {
    match name {
        "throttled" => Ok(Failing::Throttled),
        "denied" => Ok(Failing::Denied),
        "refused" => Ok(Failing::Refused),
        "unanswered" => Ok(Failing::Unanswered),
        "crash-before" => Ok(Failing::CrashBefore),
        "crash-after" => Ok(Failing::CrashAfter),
        other => Err(format!(
            "unknown failure `{other}`: give `throttled`, `denied`, `refused`, `unanswered`, `crash-before` or \
             `crash-after`"
        )),
    }
}
