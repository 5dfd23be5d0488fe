//! `AUDIT`: the times of a cluster's last audit and of the last look at its launch templates, the terminated orphans,
//! and what the last look at status checks found.
//!
//! Decides when the next audit is due and how many orphans may be terminated in an hour, not which instances are
//! orphans.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_table::Key;
use tenon_table::items::form::{Attributes, FieldProblem, Fields};
use tenon_table::items::{FieldError, ItemForm, keys};

use crate::AUDIT_EVERY;

/// The window in which orphans are counted.
pub const WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// The orphans that may always be terminated in an hour: a lost answer of a launch makes a handful at most.
const ALWAYS: usize = 5;
/// The same as a percentage of the claims, in larger clusters.
const PERCENT: usize = 5;

/// The audits of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditRecord {
    /// The count of changes; 0 before the first.
    pub revision: u64,
    /// The time of the last audit.
    pub at: Option<Timestamp>,
    /// When the next audit is due before its turn: an instance without a claim is old enough then.
    pub again_at: Option<Timestamp>,
    /// The time of the last look at launch templates; of the first audit if there was none.
    pub templates_at: Option<Timestamp>,
    /// When each orphan of the last hour was terminated, by id.
    pub told: BTreeMap<InstanceId, Timestamp>,
    /// Instances of claims that failed a status check when EC2 was last asked, each with the time since when.
    pub impaired: BTreeMap<InstanceId, Timestamp>,
}

impl AuditRecord {
    /// The key of the item.
    #[must_use]
    pub fn key(cluster: &ClusterName) -> Key {
        Key::new(keys::cluster_pk(cluster), "AUDIT")
    }

    /// The record after an audit at `now`, with the orphans of the hour before it.
    #[must_use]
    pub fn audited(&self, now: Timestamp) -> Self {
        let recent = |at: &Timestamp| now.duration_since(*at) < WINDOW;
        let told = self.told.iter().filter(|(_, at)| recent(at)).map(|(id, at)| (id.clone(), *at)).collect();
        // In a new cluster nothing can have been unneeded for long.
        let templates_at = self.templates_at.or(Some(now));
        Self { at: Some(now), again_at: None, templates_at, told, ..self.next() }
    }

    /// When the next audit is due; `None` before the first.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        let turn = self.at?.saturating_add(AUDIT_EVERY).unwrap_or(Timestamp::MAX);
        Some(self.again_at.map_or(turn, |again| again.min(turn)))
    }

    /// Whether an audit is due.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.due_at().is_none_or(|at| at <= now)
    }

    /// The record under its next revision.
    #[must_use]
    pub fn next(&self) -> Self {
        Self { revision: self.revision.saturating_add(1), ..self.clone() }
    }
}

/// The number of orphans that may be terminated in an hour, by a cluster's number of claims: max(5, 5 %).
#[must_use]
pub fn allowed(claims: usize) -> usize {
    ALWAYS.max(claims.saturating_mul(PERCENT) / 100)
}

impl ItemForm for AuditRecord {
    fn write(&self, to: &mut Attributes) {
        to.number("revision", self.revision);
        to.time_if("at", self.at);
        to.time_if("again_at", self.again_at);
        to.time_if("templates_at", self.templates_at);
        to.labels("told", &times(&self.told));
        if !self.impaired.is_empty() {
            to.labels("impaired", &times(&self.impaired));
        }
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            revision: from.u64("revision")?,
            at: from.time_if("at")?,
            again_at: from.time_if("again_at")?,
            templates_at: from.time_if("templates_at")?,
            told: instances(from, "told")?,
            impaired: instances(from, "impaired")?,
        })
    }
}

fn times(of: &BTreeMap<InstanceId, Timestamp>) -> BTreeMap<String, String> {
    of.iter().map(|(id, at)| (id.to_string(), at.to_string())).collect()
}

fn instances(from: Fields<'_>, name: &str) -> Result<BTreeMap<InstanceId, Timestamp>, FieldError> {
    let wrong = |message: String| FieldError::at(name, FieldProblem::Invalid(message));
    let instance = |(id, at): (String, String)| {
        let id = InstanceId::parse(id).map_err(|error| wrong(error.to_string()))?;
        let at = at.parse().map_err(|error: jiff::Error| wrong(error.to_string()))?;
        Ok((id, at))
    };
    from.labels(name)?.into_iter().map(instance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_table::items::{from_item, to_item};

    #[test]
    fn five_or_five_percent_go_in_an_hour() {
        for (claims, expected) in [(0, 5), (100, 5), (119, 5), (120, 6), (1000, 50)] {
            assert_eq!(allowed(claims), expected, "{claims}");
        }
    }

    #[test]
    fn the_item_comes_back_and_forgets_after_an_hour() {
        let at = Timestamp::from_second(1_767_225_600).unwrap();
        let id = InstanceId::parse("i-0abc").unwrap();
        let record = AuditRecord {
            revision: 3,
            at: Some(at),
            told: BTreeMap::from([(id.clone(), at)]),
            ..AuditRecord::default()
        };
        let key = AuditRecord::key(&ClusterName::parse("prod").unwrap());
        insta::assert_debug_snapshot!(to_item(&record));
        assert_eq!(from_item::<AuditRecord>(&key, &to_item(&record)).unwrap(), record);
        let impaired = AuditRecord { impaired: BTreeMap::from([(id, at)]), ..record.clone() };
        assert_eq!(from_item::<AuditRecord>(&key, &to_item(&impaired)).unwrap(), impaired);
        assert_eq!(impaired.audited(at).impaired, impaired.impaired);
        let again = AuditRecord { again_at: Some(at + SignedDuration::from_mins(3)), ..record.clone() };
        assert_eq!(from_item::<AuditRecord>(&key, &to_item(&again)).unwrap(), again);
        assert_eq!(again.audited(at).again_at, None);
        assert_eq!(record.audited(at).told.len(), 1);
        assert!(record.audited(at + WINDOW).told.is_empty());
        let looked = record.audited(at + WINDOW);
        assert_eq!(looked.templates_at, Some(at + WINDOW));
        assert_eq!(looked.audited(at + WINDOW * 2).templates_at, looked.templates_at);
    }
}
