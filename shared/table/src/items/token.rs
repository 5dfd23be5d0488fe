//! A commit's token from its content, so that a repetition is recognised and nothing else is.
//!
//! Invariant: two commits have one token only if they have the same conditions and writes.

use std::fmt::Write as _;

use crate::{Commit, CommitToken, Condition, Item, Value, Write};

/// A commit whose token is derived from what it says.
#[must_use]
pub fn content_commit(conditions: Vec<Condition>, writes: Vec<Write>) -> Commit {
    let token = content_token(&conditions, &writes);
    Commit { token, conditions, writes }
}

/// The token of these conditions and writes.
#[must_use]
pub fn content_token(conditions: &[Condition], writes: &[Write]) -> CommitToken {
    let mut texts: Vec<String> = conditions.iter().map(ToString::to_string).collect();
    texts.extend(writes.iter().map(write_text));
    CommitToken::of_texts(texts.iter().map(String::as_str))
}

fn write_text(write: &Write) -> String {
    let mut text = String::new();
    match write {
        Write::Put { key, item } => {
            push(&mut text, "put", &key.to_string());
            push_item(&mut text, item);
        }
        Write::Set { key, set, remove } => {
            push(&mut text, "set", &key.to_string());
            push_item(&mut text, set);
            remove.iter().for_each(|name| push(&mut text, "-", name));
        }
        Write::Add { key, attribute, amount } => {
            push(&mut text, "add", &key.to_string());
            push(&mut text, attribute, &amount.to_string());
        }
        Write::Delete { key } => push(&mut text, "delete", &key.to_string()),
    }
    text
}

fn push_item(text: &mut String, item: &Item) {
    for (name, value) in item {
        push(text, "+", name);
        push_value(text, value);
    }
}

fn push_value(text: &mut String, value: &Value) {
    match value {
        Value::S(found) => push(text, "s", found),
        Value::N(number) => push(text, "n", number.as_str()),
        Value::Bool(truth) => push(text, "b", if *truth { "1" } else { "0" }),
        Value::B(bytes) => {
            push(text, "x", "");
            // Writing to a String can't fail.
            for byte in bytes {
                let _ = write!(text, "{byte:02x}");
            }
        }
        Value::Null => push(text, "0", ""),
        Value::L(values) => {
            push(text, "l", &values.len().to_string());
            values.iter().for_each(|value| push_value(text, value));
        }
        Value::M(fields) => {
            push(text, "m", &fields.len().to_string());
            push_item(text, fields);
        }
    }
}

/// A tagged text with its length, so that where one ends matters.
fn push(text: &mut String, tag: &str, content: &str) {
    // Writing to a String can't fail.
    let _ = write!(text, "{tag}{}:{content}", content.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expect, Key};

    fn token(revision: u64, name: &str, value: Value) -> CommitToken {
        let key = Key::new("CLUSTER#a", "NODECLAIM#b");
        let condition = Condition::Item { key: key.clone(), expect: Expect::Revision(revision) };
        let set = Item::from([(name.to_owned(), value)]);
        content_token(&[condition], &[Write::Set { key, set, remove: vec![] }])
    }

    #[test]
    fn the_same_content_and_nothing_else_has_the_same_token() {
        let first = token(1, "a", Value::text("1"));
        assert_eq!(first, token(1, "a", Value::text("1")));
        assert_ne!(first, token(2, "a", Value::text("1")));
        assert_ne!(first, token(1, "b", Value::text("1")));
        assert_ne!(first, token(1, "a", Value::number(1_u64)));
        assert!(first.slice(99).is_ok());
    }
}
