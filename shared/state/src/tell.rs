//! The sink: the one place that tells what planners refuse and wait for.
//!
//! Tells the new and changed findings of a pass's [`Report`], and lasting ones again after an hour. A finding becomes a
//! record of the journal, a line of the function's log and, for a cluster, a part of
//! `TOLD#<function>`, which the agent shows as Events and conditions. It doesn't decide what is refused.
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
use tenon_table::items::{Journal, JournalOf, SeenRecord, ToldFinding, ToldFindings, from_item, keys, put};
use tenon_table::{Consistency, Key, Table, Write};

use crate::view::form_error;

/// How long until a lasting finding is told again.
pub(crate) const TOLD_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// The length of the digest of a report's identities.
const DIGEST_DIGITS: usize = 24;
/// Letters and digits of the digest of one finding's identity.
const IDENTITY_DIGITS: usize = 16;

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
        let identities: Vec<String> = findings.iter().map(Finding::identity).collect();
        let digest = (!identities.is_empty())
            .then(|| Digest::of_texts(identities.iter().map(String::as_str)).base36(DIGEST_DIGITS));
        let (known, told_at) = match before {
            Some(seen) => (seen.refusals.clone(), seen.told_at),
            None => (None, None),
        };
        let lasts = told_at.is_some_and(|at| self.now.duration_since(at) < TOLD_AGAIN_AFTER);
        if digest == known && (digest.is_none() || lasts) {
            return Ok(Telltale { writes: Vec::new(), digest, told_at });
        }
        let key = self.key();
        let mut told = known_findings(ports, &key).await?;
        let mut telltale = Telltale { digest, ..Telltale::default() };
        let mut journal = Journal::of(self.journal());
        let mut next = Vec::new();
        for finding in findings {
            let (finding, record) = self.finding(finding, &told);
            if let Some(record) = record {
                ports.signals().log(&record);
                telltale.writes.extend(journal.writes(&record, self.revision));
            }
            told.remove(&finding.identity);
            telltale.told_at = [telltale.told_at, Some(finding.told_at)].into_iter().flatten().min();
            next.push(finding);
        }
        if let Of::Region(_) = self.of {
            let lasts = |known: &ToldFinding| self.now.duration_since(known.told_at) < TOLD_AGAIN_AFTER;
            next.extend(told.into_values().filter(lasts));
        }
        if let (true, Of::Region(_)) = (telltale.writes.is_empty(), self.of) {
            return Ok(telltale);
        }
        telltale.writes.push(put(key, &ToldFindings { function: self.function, findings: next }));
        Ok(telltale)
    }

    /// A finding in its told form, with a journal record if it is new or due again.
    fn finding(
        &self,
        finding: Finding,
        told: &BTreeMap<String, ToldFinding>,
    ) -> (ToldFinding, Option<JournalRecord>) {
        let identity = Digest::of_texts([finding.identity().as_str()]).base36(IDENTITY_DIGITS);
        let before = told.get(&identity);
        let lasts = before.filter(|told| self.now.duration_since(told.told_at) < TOLD_AGAIN_AFTER);
        let record = lasts.is_none().then(|| self.record(&finding));
        let message = finding.message(self.function.as_str());
        let told = ToldFinding {
            identity,
            kind: finding.kind,
            names: finding.names,
            decision: finding.decision,
            reason: finding.reason,
            message,
            shown: finding.shown,
            since: before.map_or(self.now, |told| told.since),
            told_at: lasts.map_or(self.now, |told| told.told_at),
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

/// The told findings, by identity.
async fn known_findings<P: Ports>(
    ports: &P,
    key: &Key,
) -> Result<BTreeMap<String, ToldFinding>, HandlerError> {
    let found = ports.table().batch_get(std::slice::from_ref(key), Consistency::Strong).await?;
    let told: Option<ToldFindings> =
        found.get(key).map(|item| from_item(key, item)).transpose().map_err(form_error)?;
    let findings = told.into_iter().flat_map(|told| told.findings);
    Ok(findings.map(|finding| (finding.identity.clone(), finding)).collect())
}
