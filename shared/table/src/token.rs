//! The identity of content: the token of a commit, and the digest of a form.
//!
//! Decides the bytes of conditions, writes and attributes. They are explicit and carry the version of their form, so
//! that neither a renamed field nor another compiler changes them. It doesn't decide the content.
//!
//! Invariants: equal content has equal bytes, and different content different ones: each list begins with its length,
//! each value with its type. The golden file has an example of each kind; a change of the bytes raises
//! [`COMMIT_FORM`].

use tenon_domain::digest::Digest;
use tenon_domain::id::ClusterName;

use crate::items::form::Attributes;
use crate::{Commit, CommitToken, Expect, Item, Key, Value, Write, WriteCondition, WriteGroup};

/// The version of the bytes of commits and plans. Tokens live for ten minutes, so no older version is read.
pub const COMMIT_FORM: &str = "commit-1";

/// A commit with the token of its content: only equal decisions have equal tokens.
#[must_use]
pub fn content_commit(conditions: Vec<WriteCondition>, writes: Vec<Write>) -> Commit {
    let mut content = TokenContent::of(COMMIT_FORM);
    content.group(&conditions, &writes);
    Commit { token: content.token(), conditions, writes }
}

/// The token of a plan that is committed in slices, from the cluster's revision on.
#[must_use]
pub fn plan_token(cluster: &ClusterName, revision: u64, groups: &[WriteGroup]) -> CommitToken {
    let mut content = TokenContent::of(COMMIT_FORM);
    content.text(cluster.as_str());
    content.number(revision);
    content.count(groups.len());
    for group in groups {
        content.group(&group.conditions, &group.writes);
    }
    content.token()
}

/// The digest of a form's attributes, under its version; attributes that it leaves out don't count.
#[must_use]
pub fn form_digest(version: &str, write: impl FnOnce(&mut Attributes)) -> Digest {
    let mut content = TokenContent::of(version);
    content.item(&Attributes::written(write));
    content.digest()
}

/// Content as bytes, being put together.
struct TokenContent(Vec<u8>);

impl TokenContent {
    fn of(version: &str) -> Self {
        let mut content = Self(Vec::new());
        content.text(version);
        content
    }

    fn digest(&self) -> Digest {
        Digest::of([self.0.as_slice()])
    }

    fn token(&self) -> CommitToken {
        CommitToken::of(self.digest())
    }

    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.number(u64::try_from(count).unwrap_or(u64::MAX));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn kind(&mut self, letter: u8) {
        self.0.push(letter);
    }

    fn key(&mut self, key: &Key) {
        self.text(&key.pk);
        self.text(&key.sk);
    }

    fn group(&mut self, conditions: &[WriteCondition], writes: &[Write]) {
        self.count(conditions.len());
        conditions.iter().for_each(|condition| self.condition(condition));
        self.count(writes.len());
        writes.iter().for_each(|write| self.write(write));
    }

    fn condition(&mut self, condition: &WriteCondition) {
        match condition {
            WriteCondition::Cluster { cluster, revision } => {
                self.kind(b'C');
                self.text(cluster.as_str());
                self.number(*revision);
            }
            WriteCondition::Item { key, expect: Expect::Absent } => {
                self.kind(b'A');
                self.key(key);
            }
            WriteCondition::Item { key, expect: Expect::Revision(revision) } => {
                self.kind(b'R');
                self.key(key);
                self.number(*revision);
            }
        }
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Put { item, .. } => {
                self.kind(b'P');
                self.item(item);
            }
            Write::Set { set, remove, .. } => {
                self.kind(b'S');
                self.item(set);
                self.count(remove.len());
                remove.iter().for_each(|name| self.text(name));
            }
            Write::Add { attribute, amount, .. } => {
                self.kind(b'I');
                self.text(attribute);
                self.0.extend(amount.to_le_bytes());
            }
            Write::Delete { .. } => self.kind(b'D'),
        }
        self.key(write.key());
    }

    fn item(&mut self, item: &Item) {
        self.count(item.len());
        for (name, value) in item {
            self.text(name);
            self.value(value);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::S(text) => {
                self.kind(b's');
                self.text(text);
            }
            Value::N(number) => {
                self.kind(b'n');
                self.text(number.as_str());
            }
            Value::Bool(truth) => {
                self.kind(b't');
                self.kind(u8::from(*truth));
            }
            Value::B(bytes) => {
                self.kind(b'b');
                self.bytes(bytes);
            }
            Value::Null => self.kind(b'z'),
            Value::L(values) => {
                self.kind(b'l');
                self.count(values.len());
                values.iter().for_each(|value| self.value(value));
            }
            Value::M(fields) => {
                self.kind(b'm');
                self.item(fields);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Write as _;

    use super::*;
    use crate::items::form;

    const GOLDEN: &str = include_str!("../golden/commit-tokens.v1.txt");

    fn cluster() -> ClusterName {
        ClusterName::parse("prod").unwrap()
    }

    fn item(name: &str, value: Value) -> Item {
        Item::from([(name.to_owned(), value)])
    }

    fn put(value: Value) -> Write {
        Write::Put { key: Key::new("p", "s"), item: item("a", value) }
    }

    /// Each kind of condition, write and value, under a name.
    fn samples() -> Vec<(&'static str, Vec<WriteCondition>, Vec<Write>)> {
        let key = || Key::new("CLUSTER#prod", "NODECLAIM#default-3k9x2");
        let on = |expect| vec![WriteCondition::Item { key: key(), expect }];
        let set = |set: Item, remove: &[&str]| Write::Set {
            key: key(),
            set,
            remove: remove.iter().map(|n| (*n).to_owned()).collect(),
        };
        let add = |amount| Write::Add { key: key(), attribute: "steps".to_owned(), amount };
        let ready = || item("ready", Value::Bool(true));
        vec![
            ("nothing", vec![], vec![]),
            ("under a cluster", vec![WriteCondition::Cluster { cluster: cluster(), revision: 7 }], vec![]),
            ("absent", on(Expect::Absent), vec![]),
            ("at a revision", on(Expect::Revision(7)), vec![]),
            ("at another revision", on(Expect::Revision(8)), vec![]),
            ("put nothing", vec![], vec![Write::Put { key: key(), item: Item::new() }]),
            ("set", vec![], vec![set(ready(), &[])]),
            ("set and remove", vec![], vec![set(ready(), &["expires_at"])]),
            ("add", vec![], vec![add(1)]),
            ("subtract", vec![], vec![add(-1)]),
            ("delete", vec![], vec![Write::Delete { key: key() }]),
            ("text", vec![], vec![put(Value::text("grün"))]),
            ("text of digits", vec![], vec![put(Value::text("12"))]),
            ("number", vec![], vec![put(Value::number(12_u64))]),
            ("true", vec![], vec![put(Value::Bool(true))]),
            ("false", vec![], vec![put(Value::Bool(false))]),
            ("bytes", vec![], vec![put(Value::B(b"12".to_vec()))]),
            ("null", vec![], vec![put(Value::Null)]),
            ("empty list", vec![], vec![put(Value::L(vec![]))]),
            ("list", vec![], vec![put(Value::L(vec![Value::text("ab"), Value::text("c")]))]),
            ("list cut otherwise", vec![], vec![put(Value::L(vec![Value::text("a"), Value::text("bc")]))]),
            ("empty map", vec![], vec![put(Value::M(BTreeMap::new()))]),
            ("map", vec![], vec![put(Value::M(ready()))]),
        ]
    }

    #[test]
    fn tokens_are_those_of_the_golden_file_and_each_content_has_its_own() {
        let mut text = format!("{COMMIT_FORM}\n");
        let mut tokens = BTreeSet::new();
        for (name, conditions, writes) in samples() {
            let group = WriteGroup { conditions: conditions.clone(), writes: writes.clone() };
            let commit = content_commit(conditions, writes);
            writeln!(text, "{} {name}", commit.token).unwrap();
            assert!(tokens.insert(commit.token), "{name}");
            assert!(tokens.insert(plan_token(&cluster(), 7, &[group])), "{name} as a plan");
        }
        let groups =
            [WriteGroup::default(), WriteGroup { conditions: samples().remove(3).1, writes: vec![] }];
        writeln!(text, "{} two groups", plan_token(&cluster(), 7, &groups)).unwrap();
        assert_eq!(text, GOLDEN);
    }

    #[test]
    fn a_plan_at_another_revision_has_another_token() {
        assert_ne!(plan_token(&cluster(), 7, &[]), plan_token(&cluster(), 8, &[]));
    }

    #[test]
    fn what_a_form_leaves_out_is_no_part_of_its_digest() {
        let digest = |rate: Option<u64>| {
            form_digest("volume-1", |to: &mut form::Attributes| {
                to.text("name", "/dev/xvda");
                to.number_if("rate", rate);
            })
        };
        let plain = form_digest("volume-1", |to| to.text("name", "/dev/xvda"));
        assert_eq!(digest(None), plain);
        assert_ne!(digest(Some(100)), plain);
        assert_ne!(form_digest("volume-2", |to| to.text("name", "/dev/xvda")), plain);
    }
}
