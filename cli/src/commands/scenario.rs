//! `tenon scenario`: plays scenario files, and compares them with their golden transcripts.
//!
//! Decides the form of a difference. `tenon_region` decides a transcript's content. A broken file doesn't stop the
//! others.

use std::path::{Path, PathBuf};

use similar::{ChangeTag, TextDiff};
use tenon_region::scenario::{PlayError, play_to_transcript};

use crate::args::ScenarioArgs;
use crate::errors::{CommandOutcome, Failure, Problem};
use crate::input;
use crate::output::{self, Colour};

/// Lines shown around a difference.
const CONTEXT: usize = 3;

/// The result of a scenario.
enum ScenarioOutcome {
    /// It equals its golden transcript.
    Equal,
    /// The difference, written to be read.
    Differs(String),
    /// Its golden transcript is written.
    Blessed,
}

/// Runs the command.
pub(crate) fn run(args: &ScenarioArgs) -> Result<CommandOutcome, Failure> {
    let colour = Colour::of_stdout();
    let mut problems = Vec::new();
    let mut outcome = CommandOutcome::Done;
    let (files, unread) = scenario_files(&args.files);
    problems.extend(unread);
    for file in &files {
        let played = if args.bless { bless(file) } else { compare(file, colour) };
        let line = match played {
            Ok(ScenarioOutcome::Equal) => {
                format!("{} {}\n", colour.paint("32", "equal  "), input::name_of(file))
            }
            Ok(ScenarioOutcome::Blessed) => format!("written {}\n", golden(file).display()),
            Ok(ScenarioOutcome::Differs(difference)) => {
                outcome = CommandOutcome::No;
                format!("{} {}\n{difference}", colour.paint("31", "differs"), input::name_of(file))
            }
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        output::write(&line)?;
    }
    if problems.is_empty() { Ok(outcome) } else { Err(Failure(problems)) }
}

/// The files, and instead of a directory its `*.yaml` by name; and what is wrong with directories.
fn scenario_files(given: &[PathBuf]) -> (Vec<PathBuf>, Vec<Problem>) {
    let (mut files, mut problems) = (Vec::new(), Vec::new());
    for path in given {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let found = std::fs::read_dir(path).and_then(|entries| {
            let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
            paths.retain(|path| path.extension().is_some_and(|of| of == "yaml"));
            paths.sort();
            Ok(paths)
        });
        let problem = match found {
            Ok(found) if found.is_empty() => {
                Problem::new("no `*.yaml` in this directory", "give scenario files, or a directory of them")
            }
            Ok(found) => {
                files.extend(found);
                continue;
            }
            Err(error) => {
                Problem::new(format!("can't be read: {error}"), "give a directory that can be read")
            }
        };
        problems.push(problem.in_file(input::name_of(path)));
    }
    (files, problems)
}

fn golden(file: &Path) -> PathBuf {
    file.with_extension("golden")
}

fn play(file: &Path) -> Result<String, Problem> {
    let text = input::read_text(file)?;
    let wrong = |error: PlayError| match &error {
        PlayError::Setup(setup) => input::setup_problem(setup, &text),
        PlayError::Form(_) | PlayError::Step(_) => {
            Problem::new(error.to_string(), "see docs/scenarios.md for the form")
        }
    };
    let played = play_to_transcript(&text).map(|transcript| transcript.0);
    played.map_err(|error| wrong(error).in_file(input::name_of(file)))
}

fn bless(file: &Path) -> Result<ScenarioOutcome, Problem> {
    let transcript = play(file)?;
    let golden = golden(file);
    std::fs::write(&golden, transcript).map(|()| ScenarioOutcome::Blessed).map_err(|error| {
        Problem::new(format!("can't be written: {error}"), "make it and its directory writable")
            .in_file(golden.display().to_string())
    })
}

fn compare(file: &Path, colour: Colour) -> Result<ScenarioOutcome, Problem> {
    let transcript = play(file)?;
    let golden = golden(file);
    let expected = match std::fs::read_to_string(&golden) {
        Ok(expected) => expected,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let hint = format!("  there is no `{}`; `--bless` writes it\n", golden.display());
            return Ok(ScenarioOutcome::Differs(hint));
        }
        Err(error) => {
            return Err(Problem::new(format!("can't be read: {error}"), "give a file that can be read")
                .in_file(golden.display().to_string()));
        }
    };
    if expected == transcript {
        return Ok(ScenarioOutcome::Equal);
    }
    Ok(ScenarioOutcome::Differs(difference(&expected, &transcript, colour)))
}

/// The differences with their context: `-` is expected, `+` is actual.
fn difference(expected: &str, happened: &str, colour: Colour) -> String {
    let diff = TextDiff::from_lines(expected, happened);
    let mut text = String::new();
    for group in diff.grouped_ops(CONTEXT) {
        let at = group.first().map_or(0, |op| op.new_range().start) + 1;
        text += &colour.paint("36", &format!("  from line {at}:"));
        text.push('\n');
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value().trim_end_matches('\n');
            text += &match change.tag() {
                ChangeTag::Delete => colour.paint("31", &format!("  - {line}")),
                ChangeTag::Insert => colour.paint("32", &format!("  + {line}")),
                ChangeTag::Equal => format!("    {line}"),
            };
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_shown_with_what_is_around_it() {
        let text = difference("a\nb\nc\nd\ne\nf\n", "a\nb\nc\nd\nE\nf\n", Colour::Off);
        assert_eq!(text, "  from line 2:\n    b\n    c\n    d\n  - e\n  + E\n    f\n");
    }
}
