//! `tenon why`: the decisions that led there, newest last.

use crate::args::WhyArgs;
use crate::errors::{CommandOutcome, Failure};
use crate::output::{self, OutputFormat};
use crate::state::Story;
use crate::target;

/// Runs the command.
pub(crate) fn run(args: &WhyArgs) -> Result<CommandOutcome, Failure> {
    let list = target::open(&args.target)?.journal(args.kind, args.cluster.as_deref(), &args.name)?;
    match args.output.format {
        OutputFormat::Table => {
            output::write(&list.records.iter().map(told).collect::<String>())?;
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

fn told(record: &Story) -> String {
    let Story { at, kind, name, decision, message, by, details, evidence } = record;
    let mut text = format!("{at}  {decision}  {kind} {name}  (by {by})\n  {message}\n");
    for (name, value) in details {
        text += &format!("    {name}: {value}\n");
    }
    if !evidence.is_empty() {
        let all: Vec<String> = evidence.iter().map(|(name, number)| format!("{name} {number}")).collect();
        text += &format!("    evidence: {}\n", all.join(", "));
    }
    text
}
