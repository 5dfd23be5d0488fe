//! `TRIAL#`: that a function began with a cluster in a batch that had failed before, and whether it came to its end.
//!
//! An invocation that runs out of memory or is cut off says nothing. What it was at is found here.

use tenon_domain::Timestamp;
use tenon_domain::wake::FunctionName;

use super::form::{Attributes, FieldError, Fields, ItemForm, seconds};
use crate::key::EXPIRES_AT;

/// A function's trial of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// The function.
    pub function: FunctionName,
    /// How often in a row it began; 0 once it came to its end.
    pub begun: u64,
    /// When the last one began, or came to its end: what makes two writes of one second differ.
    pub at: Timestamp,
    /// When it isn't held against the cluster any more.
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
