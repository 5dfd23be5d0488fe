//! `UNAVAILABLE#`: a mark. Set with `expires_at` at its `until`; readers compare with `now`, since DynamoDB is late.

use tenon_domain::unavailable::{Unavailable, UnavailableKey};

use super::form::{Attributes, FieldError, Fields, Form, seconds};
use crate::key::EXPIRES_AT;

impl Form for Unavailable {
    fn write(&self, to: &mut Attributes) {
        to.text("what", self.key.to_string());
        to.text("code", &self.code);
        to.number("count", self.count);
        to.time("since", self.since);
        to.time("until", self.until);
        to.text("seen_by", &self.seen_by);
        to.value(EXPIRES_AT, seconds(self.until));
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            key: from.word("what", UnavailableKey::parse)?,
            code: from.string("code")?,
            count: from.u32("count")?,
            since: from.time("since")?,
            until: from.time("until")?,
            seen_by: from.parsed("seen_by")?,
        })
    }
}
