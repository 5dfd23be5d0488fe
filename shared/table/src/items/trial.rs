//! `TRIAL#`: the start and end of a cluster's handling in a batch that came back.
//!
//! An invocation that is killed or runs out of memory leaves no answer; this item tells what it was handling.

use tenon_domain::Timestamp;
use tenon_domain::wake::FunctionName;

use super::form::{Attributes, FieldError, Fields, ItemForm, seconds};
use crate::key::EXPIRES_AT;

/// A function's trial of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The function.
    pub function: FunctionName,
    /// How many starts in a row have no end; 0 after an end.
    pub begun: u64,
    /// The time of the last start or end, which tells two writes apart.
    pub at: Timestamp,
    /// When it is ignored.
    pub expires_at: Timestamp,
}

impl ItemForm for Trial {
    fn write(&self, to: &mut Attributes) {
        to.text("function", self.function.as_str());
        to.number("begun", self.begun);
        to.time("at", self.at);
        to.value(EXPIRES_AT, seconds(self.expires_at));
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let expires_at = i64::try_from(from.u64(EXPIRES_AT)?).unwrap_or(i64::MAX);
        Ok(Self {
            function: from.word("function", FunctionName::parse)?,
            begun: from.u64("begun")?,
            at: from.time("at")?,
            expires_at: Timestamp::from_second(expires_at).unwrap_or(Timestamp::MAX),
        })
    }
}
