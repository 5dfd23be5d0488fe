//! `tenon why`: the decisions that led there, newest last.

use crate::args::WhyArgs;
use crate::errors::{CommandOutcome, Failure};
use crate::output::{self, OutputFormat};
use crate::target;

/// Runs the command.
pub(crate) fn run(args: &WhyArgs) -> Result<CommandOutcome, Failure> {
    let list = target::open(&args.target)?.journal(args.kind, args.cluster.as_deref(), &args.name)?;
    match args.output.format {
        OutputFormat::Table => {
            output::write(&output::told::story(&list.records))?;
        }
        format @ (OutputFormat::Json | OutputFormat::Yaml) => {
            output::write(&output::document_text(format, &list))?;
        }
    }
    if list.records.is_empty() {
        eprintln!("no decision about {} `{}` is recorded", args.kind.as_str(), args.name);
        return Ok(CommandOutcome::No);
    }
    Ok(CommandOutcome::Done)
}
