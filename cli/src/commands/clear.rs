//! `tenon clear`: an operator's word that EC2 may be asked again.
//!
//! Decides what is told. Which marks are meant and how they are cleared is the table's; waiting pods hear of it by the
//! next look of their cluster, which nothing has to be rung for.

use tenon_table::marks::Meant;

use crate::args::ClearArgs;
use crate::errors::{Failure, Outcome};
use crate::output::{self, Format};
use crate::target;

/// Runs the command.
pub(crate) fn run(args: &ClearArgs) -> Result<Outcome, Failure> {
    let meant = if args.all { Meant::All } else { Meant::Named(args.keys.clone()) };
    let cleared = target::open(&args.target)?.clear(&meant)?;
    match args.output.format {
        Format::Table if cleared.items.is_empty() => eprintln!("nothing is marked"),
        Format::Table => {
            let what = cleared.items.iter().filter_map(|item| item.get("what")?.as_str());
            output::write(&what.map(|what| format!("cleared {what}\n")).collect::<String>())?;
            eprintln!("pods that wait for it are planned again within three minutes");
        }
        format @ (Format::Json | Format::Yaml) => {
            output::write(&output::document_text(format, &cleared))?;
        }
    }
    Ok(Outcome::Done)
}
