//! `tenon doctor`: checks of an account and a cluster, before and after an installation.
//!
//! Decides the output and the exit status. [`ask`] gets the facts, [`judge`] decides what they mean: a failed check
//! makes the answer "no", an unknown one doesn't. Nothing is changed anywhere.

mod ask;
mod facts;
mod judge;

use serde::Serialize;
use tenon_domain::Timestamp;

use crate::args::DoctorArgs;
use crate::errors::{CommandOutcome, Failure, Problem};
use crate::output::{self, API_VERSION, Columns, OutputFormat};
use ask::DoctorQuestion;
use facts::{CallerFacts, DoctorFacts};
use judge::{DoctorCheck, Judged};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DoctorDocument<'a> {
    api_version: &'static str,
    kind: &'static str,
    at: String,
    region: &'a str,
    installation: &'a str,
    cluster: Option<&'a str>,
    account: Option<&'a str>,
    checks: Vec<CheckDocument<'a>>,
}

#[derive(Debug, Serialize)]
struct CheckDocument<'a> {
    check: &'static str,
    status: &'static str,
    message: &'a str,
    remedy: Option<&'a str>,
}

/// Runs the command.
pub(crate) fn run(args: &DoctorArgs) -> Result<CommandOutcome, Failure> {
    let region = args.region.resolve()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
        Problem::new(format!("can't start the async runtime: {error}"), "free memory or file descriptors")
    })?;
    let question = DoctorQuestion {
        region: &region,
        installation: &args.installation,
        table: args.table.as_deref(),
        cluster: args.cluster.as_ref(),
    };
    let now = Timestamp::now();
    let facts = runtime.block_on(ask::facts(&question, now));
    let checks = judge::judge(&facts);
    match args.output.format {
        OutputFormat::Table => {
            output::write(&table(&checks))?;
        }
        format @ (OutputFormat::Json | OutputFormat::Yaml) => {
            output::write(&output::document_text(format, &document(&facts, &checks, now)))?;
        }
    }
    Ok(outcome(&checks))
}

fn outcome(checks: &[(DoctorCheck, Judged)]) -> CommandOutcome {
    if checks.iter().any(|(_, judged)| matches!(judged, Judged::Failed { .. })) {
        CommandOutcome::No
    } else {
        CommandOutcome::Done
    }
}

fn document<'a>(
    facts: &'a DoctorFacts,
    checks: &'a [(DoctorCheck, Judged)],
    now: Timestamp,
) -> DoctorDocument<'a> {
    let account = match &facts.caller {
        Ok(CallerFacts::Known { account, .. }) => Some(account.as_str()),
        Ok(CallerFacts::Nobody { .. } | CallerFacts::Refused) | Err(_) => None,
    };
    let check = |(check, judged): &'a (DoctorCheck, Judged)| CheckDocument {
        check: check.as_str(),
        status: judged.status(),
        message: judged.message(),
        remedy: judged.remedy(),
    };
    DoctorDocument {
        api_version: API_VERSION,
        kind: "Doctor",
        at: now.to_string(),
        region: &facts.scope.region,
        installation: &facts.scope.installation,
        cluster: facts.scope.cluster.as_deref(),
        account,
        checks: checks.iter().map(check).collect(),
    }
}

/// The checks, and below them the remedies.
fn table(checks: &[(DoctorCheck, Judged)]) -> String {
    let mut table = Columns::new(&["CHECK", "STATUS", "MESSAGE"]);
    for (check, judged) in checks {
        table.row([check.as_str().to_owned(), judged.status().to_owned(), judged.message().to_owned()]);
    }
    let mut text = table.text();
    for (check, judged) in checks {
        if let Some(remedy) = judged.remedy() {
            text += &format!("\n{}, {}:\n  {remedy}\n", check.as_str(), judged.status());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<(DoctorCheck, Judged)> {
        vec![
            (DoctorCheck::Region, Judged::Passed { message: "`us-east-1` is enabled".to_owned() }),
            (
                DoctorCheck::RegionStack,
                Judged::Failed { message: "no stack".to_owned(), remedy: "sam deploy".to_owned() },
            ),
        ]
    }

    #[test]
    fn remedies_stand_below_the_table() {
        let expected = "\
CHECK         STATUS  MESSAGE
region        passed  `us-east-1` is enabled
region-stack  failed  no stack

region-stack, failed:
  sam deploy
";
        assert_eq!(table(&checks()), expected);
    }

    #[test]
    fn only_a_failed_check_is_a_no() {
        let mut checks = checks();
        assert_eq!(outcome(&checks), CommandOutcome::No);
        let remedy = "allow it".to_owned();
        checks.truncate(1);
        checks
            .push((DoctorCheck::DeadLetters, Judged::Unknown { message: "not allowed".to_owned(), remedy }));
        assert_eq!(outcome(&checks), CommandOutcome::Done);
    }
}
