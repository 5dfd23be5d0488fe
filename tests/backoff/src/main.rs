//! Prints what it takes to launch while the five cheapest offerings are exhausted, under both rules.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tenon_backoff::{Case, Size, both, table};

/// A third of the time went into the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Prints what it takes to launch while the five cheapest offerings are exhausted, under both rules.
#[derive(Debug, Parser)]
#[command(after_help = "Example: cargo run --release -p tenon-backoff")]
struct Arguments {
    /// One case only: wide, narrow or nothing-else.
    #[arg(long, value_parser = case_named)]
    case: Option<Case>,
    /// Minutes for which capacity is exhausted and pods come.
    #[arg(long, default_value_t = Size::FULL.minutes)]
    minutes: u32,
    /// A document that must hold the tables.
    #[arg(long)]
    check: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let document = match arguments.check.as_deref().map(std::fs::read_to_string) {
        None => None,
        Some(Ok(document)) => Some(document),
        Some(Err(error)) => {
            eprintln!("reading the document to check: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut code = ExitCode::SUCCESS;
    let size = Size { minutes: arguments.minutes, ..Size::FULL };
    let cases = Case::ALL.into_iter().filter(|case| arguments.case.is_none_or(|only| only == *case));
    for case in cases {
        match both(case, size) {
            Ok(rows) => {
                let table = table(&rows);
                // Who reads it may leave before the end.
                let _ = writeln!(std::io::stdout(), "## {}\n\n{table}", case.title());
                if document.as_ref().is_some_and(|document| !document.contains(&table)) {
                    eprintln!("the document has another table: write this one into it");
                    code = ExitCode::FAILURE;
                }
            }
            Err(error) => {
                eprintln!("{}: {error}", case.as_str());
                return ExitCode::FAILURE;
            }
        }
    }
    code
}

fn case_named(name: &str) -> Result<Case, String> {
    let found = Case::ALL.into_iter().find(|case| case.as_str() == name);
    found.ok_or_else(|| format!("`{name}` is no case: give `wide`, `narrow` or `nothing-else`"))
}
