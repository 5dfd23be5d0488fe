//! A commit as DynamoDB's actions: a condition and a write on the same item become one action.
//!
//! Decides what DynamoDB would refuse whatever the table holds, and whether a commit is a single write or a
//! transaction. All adapters share it, so that they agree. Sizes are those of the request.

use crate::commit::{Commit, CommitError, Condition, Expect, Write};
use crate::key::{self, Key};
use crate::limits;
use crate::value::{self, Item, Value};
use std::collections::BTreeMap;

/// One action on one item.
#[derive(Debug, Clone)]
pub struct Action<'a> {
    /// The item.
    pub key: Key,
    /// The condition on it.
    pub condition: Option<&'a Condition>,
    /// The effect on it.
    pub effect: Effect<'a>,
}

/// The effect of an action on its item.
#[derive(Debug, Clone, Copy)]
pub enum Effect<'a> {
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
pub enum Form {
    /// `PutItem`, `UpdateItem` or `DeleteItem`, with a condition expression if there is a condition.
    Single,
    /// `TransactWriteItems` with the commit's token.
    Transaction,
}

/// The version of the form of the cluster's `REVISION` item.
const REVISION_FORM: u32 = 1;

/// The attributes that [`Effect::BumpRevision`] sets: `revision`, and `v`, the version of the form.
#[must_use]
pub fn revision_attributes(next: u64) -> Item {
    Item::from([
        (key::REVISION.to_owned(), Value::number(next)),
        (key::VERSION.to_owned(), Value::number(REVISION_FORM)),
    ])
}

impl Action<'_> {
    /// The bytes of the request, by which slices are cut.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        /// `revision`, `v` and their numbers.
        const REVISION_BYTES: u64 = 24;
        self.key.size()
            + match self.effect {
                Effect::Check | Effect::Delete => 0,
                Effect::BumpRevision { .. } => REVISION_BYTES,
                Effect::Put(item) => value::attributes_size(item),
                Effect::Set { set, .. } => value::attributes_size(set),
                Effect::Add { attribute, .. } => {
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
    pub fn actions(&self) -> Result<Vec<Action<'_>>, CommitError> {
        let mut writes = index_writes(&self.writes)?;
        let mut actions: Vec<Action<'_>> = Vec::with_capacity(self.conditions.len() + self.writes.len());
        let mut seen = BTreeMap::new();
        for condition in &self.conditions {
            let key = condition.key();
            if seen.insert(key.clone(), ()).is_some() {
                return Err(invalid(format!("two conditions on `{key}`: keep one")));
            }
            let written = writes.remove(&key);
            let effect = match (condition, written) {
                (Condition::Cluster { cluster, .. }, Some(_)) => {
                    return Err(invalid(format!(
                        "a write to `{key}` beside the condition on cluster `{cluster}`, which writes it: leave it out"
                    )));
                }
                (Condition::Cluster { revision, .. }, None) => {
                    let overflow = || invalid(format!("the revision of `{key}` has no successor"));
                    Effect::BumpRevision { next: revision.checked_add(1).ok_or_else(overflow)? }
                }
                (Condition::Item { .. }, Some(write)) => effect_of(write),
                (Condition::Item { .. }, None) => Effect::Check,
            };
            actions.push(Action { key, condition: Some(condition), effect });
        }
        // In the given order, in which a table reports about them.
        for write in self.writes.iter().filter(|write| !seen.contains_key(write.key())) {
            actions.push(Action { key: write.key().clone(), condition: None, effect: effect_of(write) });
        }
        check_actions(&actions)?;
        Ok(actions)
    }
}

/// The form of these actions. [`Commit`] gives the reasons.
#[must_use]
pub fn form_of(actions: &[Action<'_>]) -> Form {
    match actions {
        [Action { effect: Effect::Put(_) | Effect::Set { .. } | Effect::Delete, .. }] => Form::Single,
        _ => Form::Transaction,
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

fn effect_of(write: &Write) -> Effect<'_> {
    match write {
        Write::Put { item, .. } => Effect::Put(item),
        Write::Set { set, remove, .. } => Effect::Set { set, remove },
        Write::Add { attribute, amount, .. } => Effect::Add { attribute, amount: *amount },
        Write::Delete { .. } => Effect::Delete,
    }
}

fn check_actions(actions: &[Action<'_>]) -> Result<(), CommitError> {
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
    let bytes = actions.iter().map(Action::request_bytes).sum();
    if actions.len() > limits::TRANSACTION_ACTIONS || bytes > limits::TRANSACTION_BYTES {
        return Err(CommitError::TooLarge { actions: actions.len(), bytes });
    }
    Ok(())
}

fn check_action(action: &Action<'_>) -> Result<(), String> {
    action.key.check()?;
    if let (Some(Condition::Item { expect: Expect::Absent, .. }), Effect::Delete) =
        (action.condition, action.effect)
    {
        return Err("it is deleted on the condition that it is absent: leave it out".to_owned());
    }
    match action.effect {
        Effect::Check | Effect::Delete | Effect::BumpRevision { .. } => Ok(()),
        Effect::Put(item) => value::check_attributes(item),
        Effect::Add { attribute, .. } => value::check_name(attribute),
        Effect::Set { set, remove } => check_set(set, remove),
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
