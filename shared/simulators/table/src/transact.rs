//! Commits of the table in memory: conditions, writes, tokens, and their cost.
//!
//! Invariant: all checks come before the first write.

use super::State;
use super::buckets::Side;
use super::store::Stored;
use crate::meter::{self, Operation, Usage};
use jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tenon_table::action::{Action, Effect, Form, form_of, revision_attributes};
use tenon_table::commit::{Commit, CommitError, CommitToken, Condition, Expect};
use tenon_table::key;
use tenon_table::limits;
use tenon_table::number::Number;
use tenon_table::port::Consistency;
use tenon_table::value::{Item, Value};

/// The tokens of the transactions that went through lately.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    contents: BTreeMap<CommitToken, u64>,
    order: VecDeque<(Timestamp, CommitToken)>,
}

/// The state of a token.
enum Known {
    /// Nothing.
    New,
    /// This very commit went through.
    Same,
    /// Another commit went through.
    Other,
}

impl Tokens {
    fn look_up(&mut self, commit: &Commit, now: Timestamp) -> Known {
        while self.order.front().is_some_and(|(at, _)| now.duration_since(*at) > limits::TOKEN_LIFE) {
            if let Some((_, token)) = self.order.pop_front() {
                self.contents.remove(&token);
            }
        }
        match self.contents.get(&commit.token) {
            None => Known::New,
            Some(content) if *content == content_of(commit) => Known::Same,
            Some(_) => Known::Other,
        }
    }

    fn remember(&mut self, commit: &Commit, now: Timestamp) {
        self.contents.insert(commit.token.clone(), content_of(commit));
        self.order.push_back((now, commit.token.clone()));
    }
}

/// Compared within this process only, so the hash needn't be stable across releases.
fn content_of(commit: &Commit) -> u64 {
    let mut hasher = DefaultHasher::new();
    commit.hash(&mut hasher);
    hasher.finish()
}

impl State {
    pub(super) fn commit(&mut self, commit: &Commit, now: Timestamp) -> Result<(), CommitError> {
        let actions = commit.actions()?;
        let form = form_of(&actions);
        let operation = operation_of(form, &actions);
        if let Some(full) = actions.iter().find(|a| !self.buckets.admits(Side::Write, &a.key.pk, now)) {
            self.meter.count(operation, Usage { calls: 1, throttled: 1, ..Usage::default() });
            return Err(CommitError::Throttled { pk: full.key.pk.clone() });
        }
        if form == Form::Transaction {
            match self.tokens.look_up(commit, now) {
                Known::New => {}
                Known::Same => {
                    self.charge_repetition(&actions, now);
                    return Ok(());
                }
                Known::Other => return Err(CommitError::TokenMismatch { token: commit.token.clone() }),
            }
        }
        let lost = self.lost(&actions);
        if !lost.is_empty() {
            let after: Vec<u64> = actions.iter().map(Action::request_bytes).collect();
            self.charge(&actions, &after, operation, now);
            self.meter.count(operation, Usage { lost: 1, ..Usage::default() });
            return Err(CommitError::LostRace { lost });
        }
        let outcomes = actions.iter().map(|a| self.outcome(a)).collect::<Result<Vec<_>, _>>()?;
        let after: Vec<u64> = outcomes.iter().map(Outcome::size).collect();
        let bytes = after.iter().sum();
        if bytes > limits::TRANSACTION_BYTES {
            return Err(CommitError::TooLarge { actions: actions.len(), bytes });
        }
        self.charge(&actions, &after, operation, now);
        if form == Form::Transaction {
            self.tokens.remember(commit, now);
        }
        for (action, outcome) in actions.iter().zip(outcomes) {
            match outcome {
                Outcome::Checked(_) => {}
                Outcome::Becomes(stored) => self.store.write(&action.key, Some(Arc::new(stored)), now),
                // Deleting a missing item leaves no trace.
                Outcome::Deleted if self.store.current(&action.key).is_none() => {}
                Outcome::Deleted => self.store.write(&action.key, None, now),
            }
        }
        Ok(())
    }

    fn lost(&self, actions: &[Action<'_>]) -> Vec<Condition> {
        let failed = |action: &Action<'_>| {
            let current = self.store.current(&action.key).map(|stored| &stored.item);
            action.condition.filter(|condition| !holds(condition, current)).cloned()
        };
        actions.iter().filter_map(failed).collect()
    }

    fn outcome(&self, action: &Action<'_>) -> Result<Outcome, CommitError> {
        let current = self.store.current(&action.key);
        let kept = || current.map(|stored| stored.item.clone()).unwrap_or_default();
        let item = match action.effect {
            Effect::Check => return Ok(Outcome::Checked(current.map_or(0, |stored| stored.size))),
            Effect::Delete => return Ok(Outcome::Deleted),
            Effect::Put(item) => item.clone(),
            Effect::BumpRevision { next } => {
                let mut item = kept();
                item.extend(revision_attributes(next));
                item
            }
            Effect::Set { set, remove } => {
                let mut item = kept();
                item.extend(set.iter().map(|(name, value)| (name.clone(), value.clone())));
                for name in remove {
                    item.remove(name);
                }
                item
            }
            Effect::Add { attribute, amount } => {
                let mut item = kept();
                let sum = add(item.get(attribute), amount).ok_or_else(|| CommitError::Invalid {
                    message: format!(
                        "`{}`: attribute `{attribute}` can't be counted up: expected a number, and a sum of at most 38 digits",
                        action.key
                    ),
                })?;
                item.insert(attribute.to_owned(), Value::N(sum));
                item
            }
        };
        let stored = Stored::new(&action.key, item);
        if stored.size > limits::ITEM_BYTES {
            return Err(CommitError::ItemTooLarge { key: action.key.clone(), bytes: Some(stored.size) });
        }
        Ok(Outcome::Becomes(stored))
    }

    /// Charges each item by the larger of its sizes before and after.
    fn charge(&mut self, actions: &[Action<'_>], after: &[u64], operation: Operation, now: Timestamp) {
        let factor = if operation == Operation::TransactWriteItems { 2 } else { 1 };
        let mut total = 0;
        for (action, after) in actions.iter().zip(after) {
            let before = self.store.current(&action.key).map_or(0, |stored| stored.size);
            let units = factor * meter::write_units(before.max(*after));
            self.buckets.charge(Side::Write, &action.key.pk, units, now);
            total += units;
        }
        self.meter.count(operation, Usage { calls: 1, write_units: total, ..Usage::default() });
    }

    /// A repeated transaction reads its items: two units for 4 KB.
    fn charge_repetition(&mut self, actions: &[Action<'_>], now: Timestamp) {
        let mut total = 0;
        for action in actions {
            let size = self.store.current(&action.key).map_or(0, |stored| stored.size);
            let units = 2 * meter::read_half_units(size, Consistency::Strong);
            self.charge_read(&action.key.pk, units, now);
            total += units;
        }
        let usage = Usage { calls: 1, read_half_units: total, ..Usage::default() };
        self.meter.count(Operation::TransactWriteItems, usage);
    }
}

/// The result of an action.
enum Outcome {
    /// The unchanged item, of this size.
    Checked(u64),
    Becomes(Stored),
    Deleted,
}

impl Outcome {
    fn size(&self) -> u64 {
        match self {
            Self::Checked(size) => *size,
            Self::Becomes(stored) => stored.size,
            Self::Deleted => 0,
        }
    }
}

fn operation_of(form: Form, actions: &[Action<'_>]) -> Operation {
    match (form, actions.first().map(|action| action.effect)) {
        (Form::Transaction, _) | (Form::Single, None) => Operation::TransactWriteItems,
        (Form::Single, Some(Effect::Put(_))) => Operation::PutItem,
        (Form::Single, Some(Effect::Delete)) => Operation::DeleteItem,
        (
            Form::Single,
            Some(Effect::Set { .. } | Effect::Add { .. } | Effect::Check | Effect::BumpRevision { .. }),
        ) => Operation::UpdateItem,
    }
}

fn holds(condition: &Condition, current: Option<&Item>) -> bool {
    let revision = || current?.get(key::REVISION)?.as_number()?.to_u64();
    match condition {
        Condition::Cluster { revision: 0, .. } => {
            current.is_none_or(|item| !item.contains_key(key::REVISION)) || revision() == Some(0)
        }
        Condition::Cluster { revision: expected, .. } => revision() == Some(*expected),
        Condition::Item { expect: Expect::Absent, .. } => current.is_none(),
        Condition::Item { expect: Expect::Revision(expected), .. } => revision() == Some(*expected),
    }
}

fn add(current: Option<&Value>, amount: i64) -> Option<Number> {
    match current {
        None => Some(Number::from(amount)),
        Some(value) => value.as_number()?.checked_add(amount),
    }
}
