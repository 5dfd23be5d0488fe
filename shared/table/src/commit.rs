//! Commits: conditions on observations, and writes, all or none.
//!
//! Decides the kinds of conditions and outcomes. It doesn't retry and doesn't observe again: the outcome tells the
//! caller which to do.
//!
//! Invariants: a commit is applied wholly or not at all; a commit under a cluster's revision raises it by one.

use crate::key::Key;
use crate::limits;
use crate::port::AdapterCause;
use crate::value::Item;
use std::fmt;
use tenon_domain::digest::Digest;
use tenon_domain::id::ClusterName;

/// Letters and digits of a token that is derived: 144 bits, and 8 characters left of DynamoDB's 36.
const TOKEN_DIGITS: usize = 28;

/// The token by which a repeated commit is recognised: 1 to 36 ASCII characters without spaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitToken(String);

/// A text that can't be a commit's token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a commit token: expected 1 to 36 printable ASCII characters")]
pub struct CommitTokenError {
    /// The text as given.
    pub text: String,
}

impl CommitToken {
    /// Parses a token.
    ///
    /// # Errors
    /// [`CommitTokenError`] when it is empty, too long, or not printable ASCII.
    pub fn parse(text: impl Into<String>) -> Result<Self, CommitTokenError> {
        let text = text.into();
        let printable = text.bytes().all(|b| b.is_ascii_graphic());
        if printable && (1..=limits::TOKEN_CHARACTERS).contains(&text.len()) {
            Ok(Self(text))
        } else {
            Err(CommitTokenError { text })
        }
    }

    /// The token of these texts: equal texts give equal tokens. It leaves room for slices' numbers.
    #[must_use]
    pub fn of_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(Digest::of_texts(texts))
    }

    /// The token of that digest. Leaves room for slices' numbers.
    #[must_use]
    pub fn of(digest: Digest) -> Self {
        Self(digest.base36(TOKEN_DIGITS))
    }

    /// The token of the `n`-th slice of the plan with this token: `<token>-<n>`.
    ///
    /// # Errors [`CommitTokenError`] if it is too long: 31 characters leave room for 9,999 slices.
    pub fn slice(&self, n: usize) -> Result<Self, CommitTokenError> {
        Self::parse(format!("{}-{n}", self.0))
    }

    /// The token as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CommitToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A condition on an observation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WriteCondition {
    /// For a decision about a set: the cluster's `REVISION` item has this `revision`, and gets the next one. At 0 it
    /// may be absent, and is created with 1.
    Cluster {
        /// The cluster.
        cluster: ClusterName,
        /// The observed revision; 0 without an item.
        revision: u64,
    },
    /// For one item's own step. The write of the item raises `revision` itself.
    Item {
        /// The item.
        key: Key,
        /// The observation.
        expect: Expect,
    },
}

impl WriteCondition {
    /// The key of the item that the condition looks at.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Cluster { cluster, .. } => Key::cluster_revision(cluster),
            Self::Item { key, .. } => key.clone(),
        }
    }
}

impl fmt::Display for WriteCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { cluster, revision } => write!(f, "cluster {cluster} at revision {revision}"),
            Self::Item { key, expect: Expect::Absent } => write!(f, "{key} absent"),
            Self::Item { key, expect: Expect::Revision(revision) } => {
                write!(f, "{key} at revision {revision}")
            }
        }
    }
}

/// The observed state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expect {
    /// The item was absent.
    Absent,
    /// Its attribute `revision` had this value.
    Revision(u64),
}

/// One item's change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Write {
    /// The whole item, replacing any other.
    Put {
        /// The item's key.
        key: Key,
        /// All its attributes.
        item: Item,
    },
    /// These attributes of the item, created if absent. Other attributes stay, so a writer preserves attributes that
    /// it doesn't know.
    Set {
        /// The item's key.
        key: Key,
        /// Attributes to set.
        set: Item,
        /// Attributes to remove; absent ones are no error.
        remove: Vec<String>,
    },
    /// An atomic counter: adds to a number, or to 0 if it is absent. The sum is exact; one of more than 38 digits is
    /// refused.
    Add {
        /// The item's key.
        key: Key,
        /// The counter.
        attribute: String,
        /// The amount to add; may be negative.
        amount: i64,
    },
    /// Deletes the item; an absent one is no error.
    Delete {
        /// The item's key.
        key: Key,
    },
}

impl Write {
    /// The key of the item that is written.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Put { key, .. } | Self::Set { key, .. } | Self::Add { key, .. } | Self::Delete { key } => {
                key
            }
        }
    }
}

/// Conditions and writes that are applied together.
///
/// **How it is sent.** One `Put`, `Set` or `Delete`, alone or with a condition on its own item, is a single
/// (conditional) write, at half the price of a transaction. DynamoDB has no token for it, so a repeated one is judged
/// by its condition: it may be a [`CommitError::LostRace`] against itself, and the caller observes again. Everything
/// else, and every `Add`, is a transaction: repeating it with the same token within ten minutes changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Commit {
    /// Recognises a repetition.
    pub token: CommitToken,
    /// The conditions, each on another item.
    pub conditions: Vec<WriteCondition>,
    /// The writes, each of another item.
    pub writes: Vec<Write>,
}

/// Why a commit failed. It wrote nothing, except perhaps with [`Self::Unavailable`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum CommitError {
    /// An observation is out of date. Observe and plan again; don't repeat the commit.
    #[error("lost the race for {}: observe again", list(lost))]
    LostRace {
        /// The conditions that failed, in the commit's order; at least one.
        lost: Vec<WriteCondition>,
    },
    /// Another transaction on one of the items is under way. Send this again as it is.
    #[error("another transaction is changing `{key}`: send the same commit again")]
    Conflict {
        /// The item, if the table names it; otherwise the commit's first.
        key: Key,
    },
    /// Another commit used the token within the last ten minutes: a defect of the caller.
    #[error("the token `{token}` was used for another commit within ten minutes: derive it from the content")]
    TokenMismatch {
        /// The token.
        token: CommitToken,
    },
    /// Too much for this partition key in this second. Send this again a moment later.
    #[error("writes to `{pk}` are throttled: send the commit again later")]
    Throttled {
        /// The partition key, if the table names it; otherwise the commit's first.
        pk: String,
    },
    /// One item would be too large: split its content.
    #[error("`{key}` would be too large{}: an item holds at most {} bytes, split it", with_bytes(*bytes), limits::ITEM_BYTES)]
    ItemTooLarge {
        /// The item.
        key: Key,
        /// Its size after the write, if the table reports it.
        bytes: Option<u64>,
    },
    /// The commit doesn't fit into one transaction. Cut it into slices.
    #[error(
        "the commit has {actions} actions and {bytes} bytes: a transaction holds at most {} and {}, cut it into slices",
        limits::TRANSACTION_ACTIONS,
        limits::TRANSACTION_BYTES
    )]
    TooLarge {
        /// The number of actions; a condition and a write on one item count once.
        actions: usize,
        /// The items' bytes.
        bytes: u64,
    },
    /// The commit can't be sent like this: the caller's error.
    #[error("invalid commit: {message}")]
    Invalid {
        /// The problem, and the remedy.
        message: String,
    },
    /// The table gave no answer, and the commit may be applied. Observe again, or repeat a transaction unchanged.
    #[error("the table is unavailable: the commit may have gone through")]
    Unavailable(#[source] AdapterCause),
}

fn with_bytes(bytes: Option<u64>) -> String {
    bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default()
}

fn list(conditions: &[WriteCondition]) -> String {
    let texts: Vec<String> = conditions.iter().map(|condition| format!("`{condition}`")).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_dynamodbs_form() {
        let check =
            |text: &str, expected: bool| assert_eq!(CommitToken::parse(text).is_ok(), expected, "{text}");
        check("a", true);
        check(&"a".repeat(36), true);
        check(&"a".repeat(37), false);
        check("", false);
        check("a b", false);
        check("ä", false);
        assert_eq!(CommitToken::parse("plan").unwrap().slice(12).unwrap().as_str(), "plan-12");
    }

    #[test]
    fn a_lost_race_names_what_was_lost() {
        let cluster = ClusterName::parse("prod").unwrap();
        let claim = Key::new("CLUSTER#prod", "NODECLAIM#a");
        let error = CommitError::LostRace {
            lost: vec![
                WriteCondition::Cluster { cluster, revision: 4 },
                WriteCondition::Item { key: claim, expect: Expect::Absent },
            ],
        };
        assert_eq!(
            error.to_string(),
            "lost the race for `cluster prod at revision 4`, `CLUSTER#prod/NODECLAIM#a absent`: observe again"
        );
    }
}
