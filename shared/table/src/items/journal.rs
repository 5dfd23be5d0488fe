//! `JOURNAL#`: a decision's record, by subject and by day.
//!
//! Decides what the day's list repeats: the sentence, and the key of the whole record.
//!
//! Invariant: no two commits write one key: a key names the item whose revision the commit raises, and the revision.

use tenon_domain::journal::{Decision, JOURNAL_KEPT, JournalRecord, Subject, SubjectKind};

use super::form::{Attributes, FieldError, Fields, FormError, ItemForm, from_item, put, seconds, to_item};
use super::keys::{self, DecisionCounter, JournalOf};
use crate::key::EXPIRES_AT;
use crate::{Item, Key, Value, Write};

/// The records of one commit, numbered in their order, so that two of one subject and moment stay two.
#[derive(Debug, Clone, Copy)]
pub struct Journal<'a> {
    of: JournalOf<'a>,
    written: usize,
}

impl<'a> Journal<'a> {
    /// The journal of a cluster or of the region, before the first record of a commit.
    #[must_use]
    pub const fn of(of: JournalOf<'a>) -> Self {
        Self { of, written: 0 }
    }

    /// The next record, of a decision that this counter counts, and its line in the day's list.
    #[must_use]
    pub fn writes(&mut self, record: &JournalRecord, counter: DecisionCounter<'_>) -> [Write; 2] {
        let n = self.written;
        self.written += 1;
        let key = keys::journal(self.of, &record.subject, record.at, counter, n);
        let day = keys::journal_day(self.of, &record.subject, record.at, counter, n);
        let line = line(record, &key);
        [put(key, record), Write::Put { key: day, item: line }]
    }
}

/// A day's line: the record without its details, and where those are. Reads back as a record.
fn line(record: &JournalRecord, place: &Key) -> Item {
    let mut line = to_item(record);
    line.retain(|name, _| !matches!(name.as_str(), "by" | "details" | "evidence"));
    line.insert("record_pk".to_owned(), Value::text(&place.pk));
    line.insert("record_sk".to_owned(), Value::text(&place.sk));
    line
}

/// A record of a subject's journal.
///
/// # Errors
/// [`FormError`] names the item and the attribute.
pub fn journal_from_item(key: &Key, item: &Item) -> Result<JournalRecord, FormError> {
    from_item(key, item)
}

impl ItemForm for JournalRecord {
    fn write(&self, to: &mut Attributes) {
        to.text("kind", self.subject.kind.as_str());
        to.text("name", &self.subject.name);
        to.time("at", self.at);
        to.text("decision", self.decision.as_str());
        to.text("message", &self.message);
        to.value(EXPIRES_AT, seconds(self.at.saturating_add(JOURNAL_KEPT).unwrap_or(self.at)));
        to.text("by", &self.by);
        to.labels("details", &self.details);
        to.numbers("evidence", &self.evidence);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            subject: Subject { kind: from.word("kind", SubjectKind::parse)?, name: from.string("name")? },
            at: from.time("at")?,
            by: from.string_if("by")?.unwrap_or_default(),
            decision: Decision::of_any_release(from.text("decision")?),
            message: from.string("message")?,
            details: from.labels("details")?,
            evidence: from.numbers("evidence")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn decisions_of_one_moment_under_equal_revisions_stay_several() {
        let cluster = "prod".parse().unwrap();
        let subject = Subject { kind: SubjectKind::Claim, name: "default-3k9x2".to_owned() };
        let record = |decision| {
            JournalRecord::new(
                subject.clone(),
                jiff::Timestamp::UNIX_EPOCH,
                "provisioner",
                decision,
                "a sentence",
            )
        };
        let (set, launch) = (keys::revision(&cluster), keys::launch(&cluster, &"launch-7".parse().unwrap()));
        let told = keys::told(&cluster, tenon_domain::wake::FunctionName::Provisioner);
        let commits = [
            (Decision::Planned, DecisionCounter::Item(&set, 1)),
            (Decision::Launched, DecisionCounter::Item(&launch, 1)),
            (Decision::Waiting, DecisionCounter::Item(&told, 1)),
            (Decision::Registered, DecisionCounter::Subject(1)),
        ];
        let of = JournalOf::Cluster(&cluster);
        let writes = |(decision, counter)| Journal::of(of).writes(&record(decision), counter);
        let keys: BTreeSet<String> =
            commits.into_iter().flat_map(writes).map(|write| write.key().to_string()).collect();
        assert_eq!(keys.len(), 2 * commits.len(), "{keys:#?}");
    }
}
