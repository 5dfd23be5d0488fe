//! `tenon clear`: lets EC2 be asked again, or drops learned memory, for an operator.
//!
//! Decides the output. The table's module decides which records are cleared, and how. The next look of a cluster
//! plans its pending pods; nothing rings for it.

use crate::api::ClearBody;
use crate::args::{ClearArgs, Clearable};
use crate::errors::{CommandOutcome, Failure};
use crate::output::{self, OutputFormat};
use crate::target;

/// Runs the command.
pub(crate) fn run(args: &ClearArgs) -> Result<CommandOutcome, Failure> {
    let cleared = target::open(&args.target)?.clear(&meant(args))?;
    let (nothing, then) = match args.kind {
        Clearable::Unavailable => {
            ("no capacity is marked", "pending pods are planned again within three minutes")
        }
        Clearable::Learned => ("no memory is learned", "new plans ignore it within ten minutes"),
    };
    match args.output.format {
        OutputFormat::Table if cleared.items.is_empty() => eprintln!("{nothing}"),
        OutputFormat::Table => {
            let what = cleared.items.iter().filter_map(|item| item.get("what")?.as_str());
            output::write(&what.map(|what| format!("cleared {what}\n")).collect::<String>())?;
            eprintln!("{then}");
        }
        format @ (OutputFormat::Json | OutputFormat::Yaml) => {
            output::write(&output::document_text(format, &cleared))?;
        }
    }
    Ok(CommandOutcome::Done)
}

fn meant(args: &ClearArgs) -> ClearBody {
    match (args.kind, args.all) {
        (Clearable::Unavailable, true) => ClearBody::All,
        (Clearable::Unavailable, false) => ClearBody::Named(args.keys.clone()),
        (Clearable::Learned, true) => ClearBody::AllLearned,
        (Clearable::Learned, false) => ClearBody::NamedLearned(learned_keys(&args.keys)),
    }
}

/// Keys of learned memory: an image after a type belongs to the type.
fn learned_keys(words: &[String]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    let mut instance_type: Option<&str> = None;
    for word in words {
        match instance_type.filter(|_| word.starts_with("ami-")) {
            Some(of) => {
                keys.retain(|key| key != of);
                keys.push(format!("{of}#{word}"));
            }
            None => {
                instance_type = Some(word);
                keys.push(word.clone());
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_after_a_type_are_those_of_the_type() {
        let check = |words: &[&str], expected: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(learned_keys(&words), expected, "{words:?}");
        };
        check(&["m5.large"], &["m5.large"]);
        check(&["m5.large", "ami-1", "ami-2"], &["m5.large#ami-1", "m5.large#ami-2"]);
        check(&["c5.large", "m5.large", "ami-1"], &["c5.large", "m5.large#ami-1"]);
        check(&["m5.large#ami-1#prod"], &["m5.large#ami-1#prod"]);
        check(&["ami-1"], &["ami-1"]);
    }
}
