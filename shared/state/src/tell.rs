//! The sink: the one place that tells what planners refuse and wait for.
//!
//! Tells the new and changed findings of a pass's [`Report`], and lasting ones again after an hour. A finding becomes a
//! record of the journal, a line of the function's log and, for a cluster, a part of
//! `TOLD#<function>`, which the agent shows as Events and conditions. It doesn't decide what is refused.
//!
//! A finding with the time of a next try is over while it is tried. If it is back within an hour after it was told, the
//! try failed, which is no news; its new time is shown, and isn't told.
//!
//! Invariants: an unchanged report writes nothing within the hour; a cluster's `TOLD#` holds exactly the current
//! findings, though the names of a group's finding may be up to an hour old. The region's holds the findings of the last hour, because each of its functions looks at a part of the
//! region.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::digest::Digest;
use tenon_domain::id::{ClusterName, Region};
use tenon_domain::journal::{JournalRecord, SubjectKind};
use tenon_domain::report::{Finding, Report};
use tenon_domain::wake::FunctionName;
use tenon_runtime::{HandlerError, Ports, Signals};
use tenon_table::items::{
    DecisionCounter, Journal, JournalOf, RestingFinding, SeenRecord, ToldFinding, ToldFindings, from_item,
    keys, put,
};
use tenon_table::{Consistency, Key, Table, Write};

use crate::view::form_error;

/// How long until a lasting finding is told again.
pub(crate) const TOLD_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// The length of the digest of a report's identities.
const DIGEST_DIGITS: usize = 24;
/// Letters and digits of the digest of one finding's identity.
const IDENTITY_DIGITS: usize = 16;

const SECONDS_OF_A_MINUTE: i64 = 60;
/// The most resting findings of a function, the last told ones: so many fit the item beside the findings.
const RESTING_MOST: usize = 200;

/// The owner of the findings.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// A cluster's.
    Cluster(&'a ClusterName),
    /// The region's.
    Region(&'a Region),
}

/// The function, the owner and the time of a report.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telling<'a> {
    pub(crate) function: FunctionName,
    pub(crate) of: Of<'a>,
    pub(crate) now: Timestamp,
    /// A number that no earlier pass of this moment has.
    pub(crate) revision: u64,
}

/// The writes of a report, and the values for the next pass.
#[derive(Debug, Default)]
pub(crate) struct Telltale {
    pub(crate) writes: Vec<Write>,
    /// The digest for `SEEN#`.
    pub(crate) digest: Option<String>,
    pub(crate) told_at: Option<Timestamp>,
}

impl Telling<'_> {
    /// The key of the told findings.
    fn key(&self) -> Key {
        match self.of {
            Of::Cluster(cluster) => keys::told(cluster, self.function),
            Of::Region(region) => keys::region_told(region, self.function),
        }
    }

    const fn journal(&self) -> JournalOf<'_> {
        match self.of {
            Of::Cluster(cluster) => JournalOf::Cluster(cluster),
            Of::Region(region) => JournalOf::Region(region),
        }
    }

    /// Compares a report with the told findings, and collects the writes.
    pub(crate) async fn tell<P: Ports>(
        self,
        ports: &P,
        report: Report,
        before: Option<&SeenRecord>,
    ) -> Result<Telltale, HandlerError> {
        let mut findings: Vec<Finding> = Vec::new();
        report.deliver(&mut findings);
        let written: Vec<String> = findings.iter().map(written).collect();
        let digest = (!written.is_empty())
            .then(|| Digest::of_texts(written.iter().map(String::as_str)).base36(DIGEST_DIGITS));
        let (known, told_at) = match before {
            Some(seen) => (seen.refusals.clone(), seen.told_at),
            None => (None, None),
        };
        let is_recent = told_at.is_some_and(|at| lasts(at, self.now));
        if digest == known && (digest.is_none() || is_recent) {
            return Ok(Telltale { writes: Vec::new(), digest, told_at });
        }
        let key = self.key();
        let mut known = KnownFindings::read(ports, &key).await?;
        let mut telltale = Telltale { digest, ..Telltale::default() };
        let mut journal = Journal::of(self.journal());
        let mut next = Vec::new();
        for finding in findings {
            let (finding, record) = self.finding(finding, &known);
            if let Some(record) = record {
                ports.signals().log(&record);
                let counter = DecisionCounter::Item(&key, self.revision);
                telltale.writes.extend(journal.writes(&record, counter));
            }
            known.forget(&finding.identity);
            telltale.told_at = [telltale.told_at, Some(finding.told_at)].into_iter().flatten().min();
            next.push(finding);
        }
        let resting = match self.of {
            Of::Cluster(_) => known.resting(self.now),
            Of::Region(_) if telltale.writes.is_empty() => return Ok(telltale),
            Of::Region(_) => {
                next.extend(known.told.into_values().filter(|known| lasts(known.told_at, self.now)));
                Vec::new()
            }
        };
        let told = ToldFindings { function: self.function, findings: next, resting };
        telltale.writes.push(put(key, &told));
        Ok(telltale)
    }

    /// A finding in its told form, with a journal record if it is new or due again.
    fn finding(&self, finding: Finding, known: &KnownFindings) -> (ToldFinding, Option<JournalRecord>) {
        let identity = Digest::of_texts([finding.identity().as_str()]).base36(IDENTITY_DIGITS);
        let before = known.times(&identity);
        let recent = before.filter(|(_, told_at)| lasts(*told_at, self.now));
        let record = recent.is_none().then(|| self.record(&finding));
        let message = finding.message(self.function.as_str());
        let told = ToldFinding {
            identity,
            kind: finding.kind,
            names: finding.names,
            decision: finding.decision,
            reason: finding.reason,
            message,
            shown: finding.shown,
            since: before.map_or(self.now, |(since, _)| since),
            told_at: recent.map_or(self.now, |(_, told_at)| told_at),
            next_try: finding.next_try,
        };
        (told, record)
    }

    fn record(&self, finding: &Finding) -> JournalRecord {
        let (subject, by) = (finding.subject(), self.function.as_str());
        let mut record = JournalRecord::new(
            subject,
            self.now,
            by,
            finding.decision,
            finding.message(self.function.as_str()),
        )
        .detail("reason", &finding.reason);
        record.details.extend(finding.details.clone());
        if !finding.condition.is_empty() {
            record = record.detail("condition", &finding.condition);
        }
        match finding.kind {
            SubjectKind::Pod => record.detail("pods", finding.count),
            SubjectKind::Claim if finding.count > 1 => record.detail("claims", finding.count),
            SubjectKind::Claim
            | SubjectKind::Pool
            | SubjectKind::Class
            | SubjectKind::Image
            | SubjectKind::Instance
            | SubjectKind::Command
            | SubjectKind::Object
            | SubjectKind::Catalog => record,
        }
    }
}

/// What of a finding is written again when it changes. Its words aren't: some of them name ages. The time of its next try
/// is, by the minute, because that of a due mark moves with each look; and so are the names of NodeClaims that have a
/// condition by it.
fn written(finding: &Finding) -> String {
    let mut identity = finding.identity();
    if finding.is_shown_by_name() {
        for name in &finding.names {
            identity.push(' ');
            identity.push_str(name);
        }
    }
    match finding.next_try.map(|at| at.as_second().div_euclid(SECONDS_OF_A_MINUTE)) {
        Some(minute) => format!("{identity} {minute}"),
        None => identity,
    }
}

/// Whether a finding that was told then isn't told again yet.
fn lasts(told_at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(told_at) < TOLD_AGAIN_AFTER
}

/// What was told, by identity.
struct KnownFindings {
    told: BTreeMap<String, ToldFinding>,
    resting: BTreeMap<String, RestingFinding>,
}

impl KnownFindings {
    async fn read<P: Ports>(ports: &P, key: &Key) -> Result<Self, HandlerError> {
        let found = ports.table().batch_get(std::slice::from_ref(key), Consistency::Strong).await?;
        let told: Option<ToldFindings> =
            found.get(key).map(|item| from_item(key, item)).transpose().map_err(form_error)?;
        let (findings, resting) = told.map(|told| (told.findings, told.resting)).unwrap_or_default();
        Ok(Self {
            told: findings.into_iter().map(|finding| (finding.identity.clone(), finding)).collect(),
            resting: resting.into_iter().map(|finding| (finding.identity.clone(), finding)).collect(),
        })
    }

    /// Since when a finding is known, and when it was told.
    fn times(&self, identity: &str) -> Option<(Timestamp, Timestamp)> {
        let told = self.told.get(identity).map(|told| (told.since, told.told_at));
        told.or_else(|| self.resting.get(identity).map(|resting| (resting.since, resting.told_at)))
    }

    fn forget(&mut self, identity: &str) {
        self.told.remove(identity);
        self.resting.remove(identity);
    }

    /// Those that are left: the findings that are over while they are tried again.
    fn resting(self, now: Timestamp) -> Vec<RestingFinding> {
        let tried = self.told.into_values().filter(|told| told.next_try.is_some());
        let rest = tried.map(|told| RestingFinding {
            identity: told.identity,
            since: told.since,
            told_at: told.told_at,
        });
        let mut all: Vec<RestingFinding> =
            rest.chain(self.resting.into_values()).filter(|one| lasts(one.told_at, now)).collect();
        all.sort_by(|a, b| (b.told_at, &a.identity).cmp(&(a.told_at, &b.identity)));
        all.truncate(RESTING_MOST);
        all
    }
}

#[cfg(test)]
mod tests {
    use tenon_domain::journal::Subject;
    use tenon_domain::report::{CONSISTENCY_CHECK_FAILED, Shown};

    use super::*;

    #[test]
    fn another_claim_is_written_where_it_has_a_condition() {
        let check = |reason: &str, shown: Shown, expected: bool| {
            let written_of = |names: &[&str]| {
                let mut report = Report::default();
                for name in names {
                    let subject = Subject { kind: SubjectKind::Claim, name: (*name).to_owned() };
                    report.tell(Finding::refused(subject, reason, "{}", "why").shown(shown));
                }
                let mut findings: Vec<Finding> = Vec::new();
                report.deliver(&mut findings);
                findings.iter().map(written).collect::<Vec<_>>()
            };
            assert_eq!(written_of(&["a"]) != written_of(&["a", "b"]), expected, "{reason}");
        };
        check(CONSISTENCY_CHECK_FAILED, Shown::Event, true);
        check("DrainBlocked", Shown::DrainBlocked, true);
        check("BlockedByPdb", Shown::Event, false);
    }
}
