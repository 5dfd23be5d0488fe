//! The time from exec to a function's first poll for an invocation, and the binary's size.
//!
//! Stands in for Lambda's runtime API on loopback: starts a binary with a function's environment, and stops the clock
//! after the whole `GET /2018-06-01/runtime/invocation/next`. It excludes Lambda's own part of a cold start: fetching
//! the code and creating the environment. It fails if a median or a size exceeds its limit.

mod measure;
mod table;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tenon_domain::wake::FunctionName;

use crate::measure::{Failure, Measured, measure};

/// The limit for each function.
const MEDIAN_MAX: Duration = Duration::from_millis(50);
const BYTES_MAX: u64 = 21_000_000;
/// Starts of each function: with fewer, other load of the machine moves the median.
const STARTS: usize = 20;

const USAGE: &str = "usage: tenon-cold-start [DIRECTORY]
Measures DIRECTORY/<name>/bootstrap of every function, and whatever else is there; DIRECTORY is target/functions unless it
is given.";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().map_or_else(|| PathBuf::from("target/functions"), PathBuf::from);
    if arguments.next().is_some() || directory.as_os_str() == "--help" {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match measure_all(&directory) {
        Ok(measured) => {
            print!("{}", table::table(&measured));
            let beyond: Vec<&Measured> = measured.iter().filter(|one| !within(one)).collect();
            for one in &beyond {
                let (limit, megabytes) = (MEDIAN_MAX.as_millis(), BYTES_MAX / 1_000_000);
                eprintln!("`{}` is beyond the limits: a median of {limit} ms, {megabytes} MB", one.function);
            }
            if beyond.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(directory: &Path) -> Result<Vec<Measured>, Failure> {
    let mut names: BTreeSet<String> = FunctionName::ALL.iter().map(ToString::to_string).collect();
    for entry in std::fs::read_dir(directory).into_iter().flatten() {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    names.iter().map(|name| measure(directory, name, STARTS)).collect()
}

fn within(one: &Measured) -> bool {
    one.median() <= MEDIAN_MAX && one.bytes <= BYTES_MAX
}
