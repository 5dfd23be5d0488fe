//! A commit as DynamoDB's actions: a condition and a write on the same item become one action.
//!
//! Decides what DynamoDB would refuse whatever the table holds, and whether a commit is a single write or a
//! transaction. All adapters share it, so that they agree. Sizes are those of the request.

use crate::commit::{Commit, CommitError, Expect, Write, WriteCondition};
use crate::key::{self, Key};
use crate::limits;
use crate::value::{self, Item, Value};
use std::collections::BTreeMap;

/// One action on one item.
#[derive(Debug, Clone)]
pub struct WriteAction<'a> {
    /// The item.
    pub key: Key,
    /// The condition on it.
    pub condition: Option<&'a WriteCondition>,
    /// The effect on it.
    pub effect: WriteEffect<'a>,
}

/// The effect of an action on its item.
#[derive(Debug, Clone, Copy)]
pub enum WriteEffect<'a> {
    /// Nothing: a `ConditionCheck`.
    Check,
    /// Sets the cluster's [`revision_attributes`] and keeps the rest.
    BumpRevision {
        /// The revision that it gets.
        next: u64,
    },
    /// See [`Write::Put`].
    Put(&'a Item),
    /// See [`Write::Set`].
    Set {
        /// Attributes to set.
        set: &'a Item,
        /// Attributes to remove.
        remove: &'a [String],
    },
    /// See [`Write::Add`].
    Add {
        /// The counter.
        attribute: &'a str,
        /// The amount to add.
        amount: i64,
    },
    /// See [`Write::Delete`].
    Delete,
}

/// How a commit is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitForm {
    /// `PutItem`, `UpdateItem` or `DeleteItem`, with a condition expression if there is a condition.
    Single,
    /// `TransactWriteItems` with the commit's token.
    Transaction,
}

/// The version of the form of the cluster's `REVISION` item.
const REVISION_FORM: u32 = 1;

/// The attributes that [`WriteEffect::BumpRevision`] sets: `revision`, and `v`, the version of the form.
#[must_use]
pub fn revision_attributes(next: u64) -> Item {
    Item::from([
        (key::REVISION.to_owned(), Value::number(next)),
        (key::VERSION.to_owned(), Value::number(REVISION_FORM)),
    ])
}

impl WriteAction<'_> {
    /// The bytes of the request, by which slices are cut.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        /// `revision`, `v` and their numbers.
        const REVISION_BYTES: u64 = 24;
        self.key.size()
            + match self.effect {
                WriteEffect::Check | WriteEffect::Delete => 0,
                WriteEffect::BumpRevision { .. } => REVISION_BYTES,
                WriteEffect::Put(item) => value::attributes_size(item),
                WriteEffect::Set { set, .. } => value::attributes_size(set),
                WriteEffect::Add { attribute, .. } => {
                    attribute.len() as u64 + crate::Number::from(i64::MIN).size()
                }
            }
    }
}

impl Commit {
    /// The actions: conditions in their order, each with the write on its item, then the other writes in theirs.
    ///
    /// # Errors [`CommitError::Invalid`], [`CommitError::ItemTooLarge`] or [`CommitError::TooLarge`] for a commit
    /// that no table accepts.
    pub fn actions(&self) -> Result<Vec<WriteAction<'_>>, CommitError> {
        let mut writes = index_writes(&self.writes)?;
        let mut actions: Vec<WriteAction<'_>> = Vec::with_capacity(self.conditions.len() + self.writes.len());
        let mut seen = BTreeMap::new();
        for condition in &self.conditions {
            let key = condition.key();
            if seen.insert(key.clone(), ()).is_some() {
                return Err(invalid(format!("two conditions on `{key}`: keep one")));
            }
            let written = writes.remove(&key);
            let effect = match (condition, written) {
                (WriteCondition::Cluster { cluster, .. }, Some(_)) => {
                    return Err(invalid(format!(
                        "a write to `{key}` beside the condition on cluster `{cluster}`, which writes it: leave it out"
                    )));
                }
                (WriteCondition::Cluster { revision, .. }, None) => {
                    let overflow = || invalid(format!("the revision of `{key}` has no successor"));
                    WriteEffect::BumpRevision { next: revision.checked_add(1).ok_or_else(overflow)? }
                }
                (WriteCondition::Item { .. }, Some(write)) => effect_of(write),
                (WriteCondition::Item { .. }, None) => WriteEffect::Check,
            };
            actions.push(WriteAction { key, condition: Some(condition), effect });
        }
        // In the given order, in which a table reports about them.
        for write in self.writes.iter().filter(|write| !seen.contains_key(write.key())) {
            actions.push(WriteAction { key: write.key().clone(), condition: None, effect: effect_of(write) });
        }
        check_actions(&actions)?;
        Ok(actions)
    }
}

/// The form of these actions. [`Commit`] gives the reasons.
#[must_use]
pub fn form_of(actions: &[WriteAction<'_>]) -> CommitForm {
    match actions {
        [
            WriteAction {
                effect: WriteEffect::Put(_) | WriteEffect::Set { .. } | WriteEffect::Delete, ..
            },
        ] => CommitForm::Single,
        _ => CommitForm::Transaction,
    }
}

fn index_writes(writes: &[Write]) -> Result<BTreeMap<&Key, &Write>, CommitError> {
    let mut index = BTreeMap::new();
    for write in writes {
        if index.insert(write.key(), write).is_some() {
            return Err(invalid(format!("two writes to `{}`: make them one", write.key())));
        }
    }
    Ok(index)
}

fn effect_of(write: &Write) -> WriteEffect<'_> {
    match write {
        Write::Put { item, .. } => WriteEffect::Put(item),
        Write::Set { set, remove, .. } => WriteEffect::Set { set, remove },
        Write::Add { attribute, amount, .. } => WriteEffect::Add { attribute, amount: *amount },
        Write::Delete { .. } => WriteEffect::Delete,
    }
}

fn check_actions(actions: &[WriteAction<'_>]) -> Result<(), CommitError> {
    if actions.is_empty() {
        return Err(invalid("it has neither conditions nor writes: don't send it".to_owned()));
    }
    for action in actions {
        check_action(action)
            .map_err(|message| CommitError::Invalid { message: format!("`{}`: {message}", action.key) })?;
        let bytes = action.request_bytes();
        if bytes > limits::ITEM_BYTES {
            return Err(CommitError::ItemTooLarge { key: action.key.clone(), bytes: Some(bytes) });
        }
    }
    let bytes = actions.iter().map(WriteAction::request_bytes).sum();
    if actions.len() > limits::TRANSACTION_ACTIONS || bytes > limits::TRANSACTION_BYTES {
        return Err(CommitError::TooLarge { actions: actions.len(), bytes });
    }
    Ok(())
}

fn check_action(action: &WriteAction<'_>) -> Result<(), String> {
    action.key.check()?;
    if let (Some(WriteCondition::Item { expect: Expect::Absent, .. }), WriteEffect::Delete) =
        (action.condition, action.effect)
    {
        return Err("it is deleted on the condition that it is absent: leave it out".to_owned());
    }
    match action.effect {
        WriteEffect::Check | WriteEffect::Delete | WriteEffect::BumpRevision { .. } => Ok(()),
        WriteEffect::Put(item) => value::check_attributes(item),
        WriteEffect::Add { attribute, .. } => value::check_name(attribute),
        WriteEffect::Set { set, remove } => check_set(set, remove),
    }
}

fn check_set(set: &Item, remove: &[String]) -> Result<(), String> {
    if set.is_empty() && remove.is_empty() {
        return Err("it sets and removes nothing: leave it out".to_owned());
    }
    let named = set.len() + remove.len();
    if named > limits::UPDATED_ATTRIBUTES {
        return Err(format!(
            "it sets and removes {named} attributes: name at most {}, or put the whole item",
            limits::UPDATED_ATTRIBUTES
        ));
    }
    value::check_attributes(set)?;
    let mut removed = BTreeMap::new();
    for name in remove {
        value::check_name(name)?;
        if set.contains_key(name) || removed.insert(name, ()).is_some() {
            return Err(format!("attribute `{name}` is changed twice: keep one change"));
        }
    }
    Ok(())
}

fn invalid(message: String) -> CommitError {
    CommitError::Invalid { message }
}
