//! Compares the launches of Tenon and of Karpenter while the five cheapest offerings are exhausted.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tenon_backoff::{Case, Size, both, table};

/// The system's allocator would take a third of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compares the launches of Tenon and of Karpenter while the five cheapest offerings are exhausted.
#[derive(Debug, Parser)]
#[command(after_help = "Example: cargo run --release -p tenon-backoff")]
struct Arguments {
    /// Run only this case: wide, narrow or nothing-else.
    #[arg(long, value_parser = case_named)]
    case: Option<Case>,
    /// Minutes without capacity, in which new pods keep coming.
    #[arg(long, default_value_t = Size::FULL.minutes)]
    minutes: u32,
    /// A document that must contain the tables.
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
                // A reader such as `head` may close the pipe early.
                let _ = writeln!(std::io::stdout(), "## {}\n\n{table}", case.title());
                if document.as_ref().is_some_and(|document| !document.contains(&table)) {
                    eprintln!("the document has a different table: replace it with this one");
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
    found.ok_or_else(|| format!("unknown case `{name}`: give `wide`, `narrow` or `nothing-else`"))
}
