//! The error of a handler: the message goes back to its queue, and in the end to the dead-letter queue.

use tenon_ec2::Ec2Error;
use tenon_table::{CommitError, TableError};

/// Why a wake wasn't handled. Refusals and waits are reports, not errors.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The table couldn't be read.
    #[error("can't read the state table")]
    Read(#[from] TableError),
    /// A decision couldn't be committed, for another reason than a lost race.
    #[error("can't write to the state table")]
    Commit(#[from] CommitError),
    /// EC2 gave no usable answer.
    #[error("asking EC2")]
    Ec2(#[from] Ec2Error),
    /// An item of the table doesn't have its form.
    #[error("can't read item `{key}`")]
    Item {
        /// The item's key.
        key: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A decision doesn't fit its form: a defect of Tenon.
    #[error("{0}")]
    Internal(String),
    /// A message doesn't have the form of its kind.
    #[error("message")]
    Message(#[from] crate::events::EventError),
    /// Evidence that must be there isn't, for now.
    #[error("waiting: {0}")]
    Waiting(String),
}

/// The error type of messages that the invocation had no time for.
pub const DEADLINE: &str = "Deadline";
/// The error type of messages whose cluster ended invocations: the others of their batch go first.
pub const SET_ASIDE: &str = "SetAside";

impl HandlerError {
    /// The stable name that alarms key on.
    #[must_use]
    pub const fn error_type(&self) -> &'static str {
        match self {
            Self::Read(_) => "TableRead",
            Self::Commit(_) => "TableCommit",
            Self::Ec2(_) => "Ec2",
            Self::Item { .. } => "ItemForm",
            Self::Internal(_) => "Internal",
            Self::Message(_) => "MessageForm",
            Self::Waiting(_) => "Waiting",
        }
    }
}

/// An error with everything below it, in one line, for the log.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(below) = source {
        text.push_str(": ");
        text.push_str(&below.to_string());
        source = below.source();
    }
    text
}
