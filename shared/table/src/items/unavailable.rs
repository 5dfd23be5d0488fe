//! `UNAVAILABLE#`: a mark, under a `revision`. It expires after its effect ends; its times decide its effect, because
//! DynamoDB deletes late.
//!
//! `next_probe` is for people: functions compute it from the rest.

use tenon_domain::unavailable::{Mark, Probe, UnavailableKey};

use super::form::{Attributes, FieldError, Fields, ItemForm, seconds};
use crate::key::{EXPIRES_AT, REVISION};

impl ItemForm for Mark {
    fn write(&self, to: &mut Attributes) {
        to.number(REVISION, self.revision);
        to.text("what", self.key.to_string());
        to.text("code", &self.code);
        to.text_if("message", self.message.as_ref());
        to.number("count", self.count);
        to.time("since", self.since);
        to.time("asked_at", self.asked_at);
        to.time("until", self.until);
        to.time("next_probe", self.blocked_until());
        to.number_if("from_vcpus", self.from_vcpus);
        to.map_if("probe", self.probe.as_ref(), |probe, to| {
            to.text("cluster", &probe.cluster);
            to.text("launch", &probe.launch);
            to.time("at", probe.at);
            to.time("until", probe.until);
        });
        to.text("seen_by", &self.seen_by);
        to.value(EXPIRES_AT, seconds(self.forget_at()));
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let since = from.time("since")?;
        Ok(Self {
            key: from.word("what", UnavailableKey::parse)?,
            revision: from.u64_if(REVISION)?.unwrap_or(0),
            code: from.string("code")?,
            message: from.string_if("message")?,
            count: from.u32("count")?,
            since,
            // Marks of before say only since when.
            asked_at: from.time_if("asked_at")?.unwrap_or(since),
            until: from.time("until")?,
            from_vcpus: from.u32_if("from_vcpus")?,
            probe: from.map_if("probe", |from| {
                Ok(Probe {
                    cluster: from.parsed("cluster")?,
                    launch: from.parsed("launch")?,
                    at: from.time("at")?,
                    until: from.time("until")?,
                })
            })?,
            seen_by: from.parsed("seen_by")?,
        })
    }
}
