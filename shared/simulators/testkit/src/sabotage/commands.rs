//! What sabotages do to the steps of disruption commands on their way into the table.

use std::collections::BTreeSet;

use tenon_table::{Commit, Item, Number, Value, Write};

/// A command's item that is written, with its key's rest.
fn written<'a>(write: &'a Write, kind: &str) -> Option<(&'a str, &'a Item)> {
    match write {
        Write::Set { key, set, .. } | Write::Put { key, item: set } => {
            Some((key.sk.strip_prefix(kind)?, set))
        }
        Write::Add { .. } | Write::Delete { .. } => None,
    }
}

fn phase(item: &Item) -> Option<&str> {
    item.get("phase").and_then(Value::as_text)
}

fn is_new(command: &Item) -> bool {
    command.get("revision").and_then(Value::as_number).and_then(Number::to_u64) == Some(1)
}

fn has_candidates(command: &Item) -> bool {
    matches!(command.get("candidates"), Some(Value::L(names)) if !names.is_empty())
}

/// Leaves a step of commands out, and what it does to its claims: their new phase and the actions of their Nodes.
fn leave_out(commit: &mut Commit, is_step: impl Fn(&Item) -> bool, of_claims: &str) {
    let is_left_out = |write: &Write| written(write, "COMMAND#").is_some_and(|(_, item)| is_step(item));
    if !commit.writes.iter().any(is_left_out) {
        return;
    }
    let claims = commit.writes.iter().filter_map(|write| written(write, "NODECLAIM#"));
    let claims = claims.filter(|(_, item)| phase(item) == Some(of_claims));
    let claims: BTreeSet<String> = claims.map(|(name, _)| name.to_owned()).collect();
    let is_theirs = |write: &Write| {
        ["NODECLAIM#", "ACTION#"]
            .iter()
            .any(|kind| write.key().sk.strip_prefix(kind).is_some_and(|name| claims.contains(name)))
    };
    commit.writes.retain(|write| !is_left_out(write) && !is_theirs(write));
}

/// A command isn't undone in a pause. Only then its item names no candidates any more.
pub(super) fn forget_pauses_undone(commit: &mut Commit) {
    leave_out(commit, |command| phase(command) == Some("Done") && !has_candidates(command), "Initialized");
}

/// A command that waited for its replacements doesn't drain its nodes.
pub(super) fn forget_drains(commit: &mut Commit) {
    let begins = |write: &Write| {
        written(write, "COMMAND#").is_some_and(|(_, item)| is_new(item) && phase(item) == Some("Draining"))
    };
    if !commit.writes.iter().any(begins) {
        leave_out(commit, |command| phase(command) == Some("Draining"), "Draining");
    }
}

/// A command whose nodes are gone isn't done.
pub(super) fn forget_finishes(commit: &mut Commit) {
    let gives_back = |write: &Write| {
        written(write, "NODECLAIM#").is_some_and(|(_, item)| phase(item) == Some("Initialized"))
    };
    if !commit.writes.iter().any(gives_back) {
        leave_out(commit, |command| phase(command) == Some("Done"), "");
    }
}
