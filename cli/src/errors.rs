//! Problems of a call or its input, and their output.
//!
//! Decides the form of an error on stderr: file, line, field, expected form, remedy; all errors of a call together.
//! Every failure has exit status 2. A "no" isn't a failure: see [`CommandOutcome`].

use std::fmt;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use tenon_domain::manifest::{ManifestError, ManifestErrors};

use crate::output::{API_VERSION, OutputFormat};

/// How a command ended that could do its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandOutcome {
    /// Done.
    Done,
    /// Done, but the answer is "no": pods remain pending, the plan waits, or nothing is found.
    No,
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        match outcome {
            CommandOutcome::Done => Self::SUCCESS,
            CommandOutcome::No => Self::from(1),
        }
    }
}

/// The status of a call or of input that is wrong.
pub(crate) const EXIT_WRONG: u8 = 2;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// The file, if it is about one.
    pub(crate) file: Option<String>,
    /// The line, counted from 1, if known.
    pub(crate) line: Option<u32>,
    /// The field's path, the flag or the argument.
    pub(crate) field: Option<String>,
    /// The problem, and the expected form.
    pub(crate) message: String,
    /// The remedy.
    pub(crate) remedy: String,
}

impl Problem {
    /// A problem of the call as a whole.
    pub(crate) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { file: None, line: None, field: None, message: message.into(), remedy: remedy.into() }
    }

    /// Of which file.
    pub(crate) fn in_file(mut self, file: impl Into<String>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// On which line.
    pub(crate) fn on_line(mut self, line: Option<u32>) -> Self {
        self.line = line;
        self
    }

    /// Of which field, flag or argument.
    pub(crate) fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}

impl From<ManifestError> for Problem {
    fn from(error: ManifestError) -> Self {
        let ManifestError { file, line, field, message, remedy } = error;
        let field = Some(field).filter(|field| !field.is_empty());
        Self { file: Some(file), line, field, message, remedy }
    }
}

/// `error: file:line: field: message`, and the remedy on a line of its own.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error: ")?;
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\n  {}", self.remedy) }
    }
}

/// Everything that is wrong with a call. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Vec<Problem>);

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl From<ManifestErrors> for Failure {
    fn from(errors: ManifestErrors) -> Self {
        Self(errors.0.into_iter().map(Problem::from).collect())
    }
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    kind: &'static str,
    errors: &'a [Problem],
}

impl Failure {
    /// Prints it on stderr; returns the exit status.
    pub(crate) fn report(&self, format: OutputFormat) -> ExitCode {
        let text = match format {
            OutputFormat::Table => self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
            OutputFormat::Json | OutputFormat::Yaml => {
                let document = ErrorDocument { api_version: API_VERSION, kind: "Error", errors: &self.0 };
                crate::output::document_text(format, &document)
            }
        };
        eprintln!("{}", text.trim_end());
        ExitCode::from(EXIT_WRONG)
    }
}

/// An error with everything below it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        text += &format!(": {below}");
        source = below.source();
    }
    text
}

/// The known names nearest to an unknown one, nearest first: at most three, and only near ones.
pub(crate) fn nearest<'a>(wanted: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    const SHOWN: usize = 3;
    // Below this, names have little more in common than letters.
    const ALIKE: f64 = 0.75;
    let score = |name: &str| {
        let edits = strsim::normalized_damerau_levenshtein(wanted, name);
        edits.max(strsim::jaro_winkler(wanted, name) - 0.1)
    };
    let mut scored: Vec<(f64, &str)> = known.map(|name| (score(name), name)).collect();
    scored.retain(|(score, _)| *score >= ALIKE);
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(SHOWN).map(|(_, name)| name).collect()
}

/// "did you mean" with the nearest names, or another remedy.
pub(crate) fn did_you_mean<'a>(
    wanted: &str,
    known: impl Iterator<Item = &'a str>,
    otherwise: &str,
) -> String {
    let near = nearest(wanted, known);
    if near.is_empty() {
        return otherwise.to_owned();
    }
    format!("did you mean {}?", quoted(&near))
}

/// `a`, `b` or `c`, each in backticks.
pub(crate) fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} or {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wanted: &str, known: &[&str], expected: &str) {
        assert_eq!(did_you_mean(wanted, known.iter().copied(), "look it up"), expected);
    }

    #[test]
    fn near_names_are_offered_and_far_ones_are_not() {
        let types = ["m5.large", "m5.xlarge", "m5a.large", "c5.large", "t3.micro"];
        check("m5.larg", &types, "did you mean `m5.large`, `m5.xlarge` or `m5a.large`?");
        check("zzz", &types, "look it up");
    }

    #[test]
    fn a_problem_says_where_what_and_what_to_do() {
        let problem =
            Problem::new("`1.5.0Gi` is not a quantity", "write `1.5Gi`").in_file("a.yaml").on_line(Some(7));
        assert_eq!(
            problem.at("spec.x").to_string(),
            "error: a.yaml:7: spec.x: `1.5.0Gi` is not a quantity\n  write `1.5Gi`"
        );
    }
}
