//! Commits of the table in memory: conditions, writes, tokens, and their cost.
//!
//! Invariant: all checks come before the first write.

use super::TableState;
use super::buckets::Side;
use super::store::StoredItem;
use crate::meter::{self, Operation, OperationUsage};
use jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use tenon_table::action::{CommitForm, WriteAction, WriteEffect, form_of, revision_attributes};
use tenon_table::commit::{Commit, CommitError, CommitToken, Expect, WriteCondition};
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
enum TokenKnown {
    /// Nothing.
    New,
    /// This very commit went through.
    Same,
    /// Another commit went through.
    Other,
}

impl Tokens {
    fn look_up(&mut self, commit: &Commit, now: Timestamp) -> TokenKnown {
        while self.order.front().is_some_and(|(at, _)| now.duration_since(*at) > limits::TOKEN_LIFE) {
            if let Some((_, token)) = self.order.pop_front() {
                self.contents.remove(&token);
            }
        }
        match self.contents.get(&commit.token) {
            None => TokenKnown::New,
            Some(content) if *content == content_of(commit) => TokenKnown::Same,
            Some(_) => TokenKnown::Other,
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

impl TableState {
    pub(super) fn commit(&mut self, commit: &Commit, now: Timestamp) -> Result<(), CommitError> {
        let actions = commit.actions()?;
        let form = form_of(&actions);
        let operation = operation_of(form, &actions);
        if let Some(full) = actions.iter().find(|a| !self.buckets.admits(Side::Write, &a.key.pk, now)) {
            self.meter
                .count(operation, OperationUsage { calls: 1, throttled: 1, ..OperationUsage::default() });
            return Err(CommitError::Throttled { pk: full.key.pk.clone() });
        }
        if form == CommitForm::Transaction {
            match self.tokens.look_up(commit, now) {
                TokenKnown::New => {}
                TokenKnown::Same => {
                    self.charge_repetition(&actions, now);
                    return Ok(());
                }
                TokenKnown::Other => return Err(CommitError::TokenMismatch { token: commit.token.clone() }),
            }
        }
        let lost = self.lost(&actions);
        if !lost.is_empty() {
            let after: Vec<u64> = actions.iter().map(WriteAction::request_bytes).collect();
            self.charge(&actions, &after, operation, now);
            self.meter.count(operation, OperationUsage { lost: 1, ..OperationUsage::default() });
            return Err(CommitError::LostRace { lost });
        }
        let outcomes = actions.iter().map(|a| self.outcome(a)).collect::<Result<Vec<_>, _>>()?;
        let after: Vec<u64> = outcomes.iter().map(ActionOutcome::size).collect();
        let bytes = after.iter().sum();
        if bytes > limits::TRANSACTION_BYTES {
            return Err(CommitError::TooLarge { actions: actions.len(), bytes });
        }
        self.charge(&actions, &after, operation, now);
        if form == CommitForm::Transaction {
            self.tokens.remember(commit, now);
        }
        for (action, outcome) in actions.iter().zip(outcomes) {
            match outcome {
                ActionOutcome::Checked(_) => {}
                ActionOutcome::Becomes(stored) => self.store.write(&action.key, Some(Arc::new(stored)), now),
                // Deleting a missing item leaves no trace.
                ActionOutcome::Deleted if self.store.current(&action.key).is_none() => {}
                ActionOutcome::Deleted => self.store.write(&action.key, None, now),
            }
        }
        Ok(())
    }

    fn lost(&self, actions: &[WriteAction<'_>]) -> Vec<WriteCondition> {
        let failed = |action: &WriteAction<'_>| {
            let current = self.store.current(&action.key).map(|stored| &stored.item);
            action.condition.filter(|condition| !holds(condition, current)).cloned()
        };
        actions.iter().filter_map(failed).collect()
    }

    fn outcome(&self, action: &WriteAction<'_>) -> Result<ActionOutcome, CommitError> {
        let current = self.store.current(&action.key);
        let kept = || current.map(|stored| stored.item.clone()).unwrap_or_default();
        let item = match action.effect {
            WriteEffect::Check => return Ok(ActionOutcome::Checked(current.map_or(0, |stored| stored.size))),
            WriteEffect::Delete => return Ok(ActionOutcome::Deleted),
            WriteEffect::Put(item) => item.clone(),
            WriteEffect::BumpRevision { next } => {
                let mut item = kept();
                item.extend(revision_attributes(next));
                item
            }
            WriteEffect::Set { set, remove } => {
                let mut item = kept();
                item.extend(set.iter().map(|(name, value)| (name.clone(), value.clone())));
                for name in remove {
                    item.remove(name);
                }
                item
            }
            WriteEffect::Add { attribute, amount } => {
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
        let stored = StoredItem::new(&action.key, item);
        if stored.size > limits::ITEM_BYTES {
            return Err(CommitError::ItemTooLarge { key: action.key.clone(), bytes: Some(stored.size) });
        }
        Ok(ActionOutcome::Becomes(stored))
    }

    /// Charges each item by the larger of its sizes before and after.
    fn charge(&mut self, actions: &[WriteAction<'_>], after: &[u64], operation: Operation, now: Timestamp) {
        let factor = if operation == Operation::TransactWriteItems { 2 } else { 1 };
        let mut total = 0;
        for (action, after) in actions.iter().zip(after) {
            let before = self.store.current(&action.key).map_or(0, |stored| stored.size);
            let units = factor * meter::write_units(before.max(*after));
            self.buckets.charge(Side::Write, &action.key.pk, units, now);
            match self.written.get_mut(&action.key.pk) {
                Some(written) => *written += units,
                None => drop(self.written.insert(action.key.pk.clone(), units)),
            }
            total += units;
        }
        self.meter
            .count(operation, OperationUsage { calls: 1, write_units: total, ..OperationUsage::default() });
    }

    /// A repeated transaction reads its items: two units for 4 KB.
    fn charge_repetition(&mut self, actions: &[WriteAction<'_>], now: Timestamp) {
        let mut total = 0;
        for action in actions {
            let size = self.store.current(&action.key).map_or(0, |stored| stored.size);
            let units = 2 * meter::read_half_units(size, Consistency::Strong);
            self.charge_read(&action.key.pk, units, now);
            total += units;
        }
        let usage = OperationUsage { calls: 1, read_half_units: total, ..OperationUsage::default() };
        self.meter.count(Operation::TransactWriteItems, usage);
    }
}

/// The result of an action.
enum ActionOutcome {
    /// The unchanged item, of this size.
    Checked(u64),
    Becomes(StoredItem),
    Deleted,
}

impl ActionOutcome {
    fn size(&self) -> u64 {
        match self {
            Self::Checked(size) => *size,
            Self::Becomes(stored) => stored.size,
            Self::Deleted => 0,
        }
    }
}

fn operation_of(form: CommitForm, actions: &[WriteAction<'_>]) -> Operation {
    match (form, actions.first().map(|action| action.effect)) {
        (CommitForm::Transaction, _) | (CommitForm::Single, None) => Operation::TransactWriteItems,
        (CommitForm::Single, Some(WriteEffect::Put(_))) => Operation::PutItem,
        (CommitForm::Single, Some(WriteEffect::Delete)) => Operation::DeleteItem,
        (
            CommitForm::Single,
            Some(
                WriteEffect::Set { .. }
                | WriteEffect::Add { .. }
                | WriteEffect::Check
                | WriteEffect::BumpRevision { .. },
            ),
        ) => Operation::UpdateItem,
    }
}

fn holds(condition: &WriteCondition, current: Option<&Item>) -> bool {
    let revision = || current?.get(key::REVISION)?.as_number()?.to_u64();
    match condition {
        WriteCondition::Cluster { revision: 0, .. } => {
            current.is_none_or(|item| !item.contains_key(key::REVISION)) || revision() == Some(0)
        }
        WriteCondition::Cluster { revision: expected, .. } => revision() == Some(*expected),
        WriteCondition::Item { expect: Expect::Absent, .. } => current.is_none(),
        WriteCondition::Item { expect: Expect::Revision(expected), .. } => revision() == Some(*expected),
    }
}

fn add(current: Option<&Value>, amount: i64) -> Option<Number> {
    match current {
        None => Some(Number::from(amount)),
        Some(value) => value.as_number()?.checked_add(amount),
    }
}
