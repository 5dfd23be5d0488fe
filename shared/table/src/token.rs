//! Commits whose token follows from what they say, so that a repetition is recognised and nothing else is.

use crate::{Commit, CommitToken, Condition, Write};

/// A commit with the token of its content: the same decision has the same token, another has another.
#[must_use]
pub fn content_commit(conditions: Vec<Condition>, writes: Vec<Write>) -> Commit {
    // The forms' debug texts name every value, and all their maps are ordered.
    let texts = [format!("{conditions:?}"), format!("{writes:?}")];
    Commit { token: CommitToken::of_texts(texts.iter().map(String::as_str)), conditions, writes }
}
