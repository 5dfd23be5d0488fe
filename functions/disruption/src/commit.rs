//! Disruption's decisions as transactions.
//!
//! Decides what goes together: a command with its candidates, their actions, its replacements' claims and launches and
//! their records is one group under the cluster's revision; a step of a command, or a drift mark, is a transaction on
//! the revisions of what it steps.
//!
//! Invariant: a candidate is taken only in the transaction that commits what replaces it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimState, RemovalReason};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, ClusterName, CommandId, ProviderId};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_launching::build::{LaunchInput, launch_writes};
use tenon_planning::disruption::{Advance, Mark, NewCommand, Step};
use tenon_runtime::HandlerError;
use tenon_snapshot::action::{Action, ActionKind, action_key};
use tenon_state::view::ClusterView;
use tenon_table::items::{JournalOf, add_step, journal_writes, keys, set, set_expiring};
use tenon_table::{Condition, Expect, Group, Write};

use crate::plan::Planned;

/// How long a command that is done is kept.
const COMMAND_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What decisions are written from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) view: &'a ClusterView,
    pub(crate) launch: &'a LaunchInput<'a>,
    /// What the agent has to do now, by claim.
    pub(crate) actions: &'a BTreeMap<ClaimName, Action>,
    pub(crate) planned: &'a Planned,
}

/// A group of writes and what it does to the world outside.
#[derive(Debug, Default)]
pub(crate) struct Decided {
    pub(crate) group: Group,
    /// Launches that the provisioner has to send.
    pub(crate) launches: usize,
    /// Actions that the agent has to read.
    pub(crate) actions: usize,
}

impl Context<'_> {
    fn now(&self) -> Timestamp {
        self.view.now
    }

    /// A new command; nothing where no launch can be made for a replacement.
    pub(crate) fn command(&self, new: &NewCommand) -> Result<Option<Decided>, HandlerError> {
        let mut decided = Decided::default();
        if !self.launches(&mut decided, &new.id) {
            return Ok(None);
        }
        let now = self.now();
        let state = if new.drains_at_once() {
            CommandState::Draining { since: now }
        } else {
            CommandState::Replacing { since: now, attempts: 0, not_before: now }
        };
        let command = Command {
            id: new.id.clone(),
            revision: 1,
            pool: new.pool.clone(),
            reason: new.reason,
            candidates: new.candidates.clone(),
            replacements: new.replacement.claims.iter().map(|claim| claim.name.clone()).collect(),
            state,
            created_at: now,
        };
        let key = keys::command(self.cluster, &new.id);
        decided.group.conditions.push(Condition::Item { key: key.clone(), expect: Expect::Absent });
        decided.group.writes.push(set(key, &command));
        for name in &new.candidates {
            if new.drains_at_once() {
                self.drain(&mut decided, name, new.reason)?;
            } else {
                self.disrupt(&mut decided, name, &command)?;
            }
        }
        Ok(Some(decided))
    }

    /// A step of a command that is active; nothing where no launch can be made.
    pub(crate) fn advance(&self, advance: &Advance) -> Result<Option<Decided>, HandlerError> {
        let Some(command) = self.view.commands.get(&advance.command) else { return Ok(None) };
        let mut decided = Decided::default();
        let now = self.now();
        let mut next = Command { revision: command.revision.saturating_add(1), ..command.clone() };
        match &advance.step {
            Step::Drain { candidates } => {
                next.state = CommandState::Draining { since: now };
                for name in candidates {
                    self.drain(&mut decided, name, command.reason)?;
                }
            }
            Step::Replace { failed, plan, attempts, not_before } => {
                if !self.launches(&mut decided, &command.id) {
                    return Ok(None);
                }
                let since = match command.state {
                    CommandState::Replacing { since, .. } | CommandState::Draining { since } => since,
                    CommandState::Done { at } => at,
                };
                next.state = CommandState::Replacing { since, attempts: *attempts, not_before: *not_before };
                next.replacements.retain(|name| !failed.contains(name));
                next.replacements.extend(plan.claims.iter().map(|claim| claim.name.clone()));
            }
            Step::Finish => next.state = CommandState::Done { at: now },
        }
        let key = keys::command(self.cluster, &command.id);
        let expect = Expect::Revision(command.revision);
        decided.group.conditions.push(Condition::Item { key: key.clone(), expect });
        let kept = now.saturating_add(COMMAND_KEPT).unwrap_or(now);
        decided.group.writes.push(if next.is_active() {
            set(key, &next)
        } else {
            set_expiring(key, &next, kept)
        });
        decided.group.writes.push(add_step(self.cluster));
        Ok(Some(decided))
    }

    /// A drift mark.
    pub(crate) fn mark(&self, mark: &Mark) -> Option<Decided> {
        let before = self.view.claims.get(&mark.claim)?;
        let revision = before.revision.saturating_add(1);
        let claim = Claim { drift: mark.drift.clone(), revision, ..before.clone() };
        let mut decided = Decided::default();
        self.write_claim(&mut decided, before, &claim);
        decided.group.writes.push(add_step(self.cluster));
        let message = match &mark.drift {
            Some(drift) => {
                let reason = drift.reason.as_str();
                format!(
                    "NodeClaim `{}` drifted ({reason}): it has `{}`, its class gives `{}`",
                    claim.name, drift.from, drift.to
                )
            }
            None => format!("NodeClaim `{}` no longer drifts", claim.name),
        };
        let mut record = self.record(&claim, Decision::Drifted, message);
        if let Some(drift) = &mark.drift {
            record = record
                .detail("reason", drift.reason.as_str())
                .detail("from", &drift.from)
                .detail("to", &drift.to);
        }
        self.tell(&mut decided, &claim, &record);
        Some(decided)
    }

    /// Adds the launches of a command's replacements; whether each of them has one.
    fn launches(&self, decided: &mut Decided, command: &CommandId) -> bool {
        let Some(built) = self.planned.built.get(command).filter(|built| built.refused.is_empty()) else {
            return false;
        };
        let known = |name: &str, writes: &[Write]| {
            let key = keys::template(self.cluster, name);
            self.view.templates.contains_key(name) || writes.iter().any(|write| *write.key() == key)
        };
        let revision = self.view.generations.revision.saturating_add(1);
        for launch in &built.launches {
            let written = std::mem::take(&mut decided.group.writes);
            let (conditions, writes) =
                launch_writes(self.launch, launch, revision, |name| known(name, &written));
            decided.group.writes = written;
            decided.group.conditions.extend(conditions);
            decided.group.writes.extend(writes);
        }
        decided.launches += built.launches.len();
        true
    }

    fn disrupt(
        &self,
        decided: &mut Decided,
        name: &ClaimName,
        command: &Command,
    ) -> Result<(), HandlerError> {
        let Some(before) = self.view.claims.get(name) else { return Ok(()) };
        let (Some(instance), Some(node)) = (before.state.instance(), before.state.node()) else {
            return Ok(());
        };
        let state = ClaimState::Disrupting {
            instance: instance.clone(),
            node: node.clone(),
            command: command.id.clone(),
            at: self.now(),
        };
        let replacements: Vec<&str> = command.replacements.iter().map(ClaimName::as_str).collect();
        let message = format!(
            "NodeClaim `{name}` goes ({}) once `{}` serves in its place",
            command.reason.as_str(),
            replacements.join("`, `")
        );
        let claim = before.stepped(state).map_err(|error| HandlerError::Internal(error.to_string()))?;
        let record = self
            .record(&claim, Decision::Disrupting, message)
            .detail("command", &command.id)
            .detail("reason", command.reason.as_str())
            .detail("replacements", replacements.join(", "));
        self.step(decided, before, (&claim, ActionKind::Disrupt, None), &record)
    }

    fn drain(
        &self,
        decided: &mut Decided,
        name: &ClaimName,
        reason: RemovalReason,
    ) -> Result<(), HandlerError> {
        let Some(before) = self.view.claims.get(name) else { return Ok(()) };
        let Some(instance) = before.state.instance() else { return Ok(()) };
        let now = self.now();
        let deadline = self.planned.terms.get(name).and_then(|terms| terms.deadline(now, None));
        let state = ClaimState::Draining {
            instance: instance.clone(),
            node: before.state.node().cloned(),
            reason,
            at: now,
            deadline,
        };
        let claim = before.stepped(state).map_err(|error| HandlerError::Internal(error.to_string()))?;
        let message =
            format!("NodeClaim `{name}` drains ({}): nothing has to come first any more", reason.as_str());
        let record = self.record(&claim, Decision::Draining, message).detail("reason", reason.as_str());
        self.step(decided, before, (&claim, ActionKind::Drain, deadline), &record)
    }

    fn step(
        &self,
        decided: &mut Decided,
        before: &Claim,
        (claim, kind, deadline): (&Claim, ActionKind, Option<Timestamp>),
        record: &JournalRecord,
    ) -> Result<(), HandlerError> {
        self.write_claim(decided, before, claim);
        let known = self.actions.get(&claim.name);
        let provider =
            claim.state.instance().map(|i| ProviderId { zone: i.zone.clone(), instance: i.id.clone() });
        let action = Action {
            claim: claim.name.clone(),
            number: claim.revision,
            kind,
            provider_id: provider.map(|id| id.to_string()),
            node: claim.state.node().map(ToString::to_string),
            labels: known.map(|action| action.labels.clone()).unwrap_or_default(),
            annotations: known.map(|action| action.annotations.clone()).unwrap_or_default(),
            taints: known.map(|action| action.taints.clone()).unwrap_or_default(),
            startup_taints: known.map(|action| action.startup_taints.clone()).unwrap_or_default(),
            deadline,
        };
        let item = action.to_item().map_err(|error| HandlerError::Internal(error.to_string()))?;
        decided.group.writes.push(Write::Put { key: action_key(self.cluster, &claim.name), item });
        decided.actions += 1;
        self.tell(decided, claim, record);
        Ok(())
    }

    fn write_claim(&self, decided: &mut Decided, before: &Claim, claim: &Claim) {
        let key = keys::claim(self.cluster, &claim.name);
        let expect = Expect::Revision(before.revision);
        decided.group.conditions.push(Condition::Item { key: key.clone(), expect });
        decided.group.writes.push(set(key, claim));
    }

    fn tell(&self, decided: &mut Decided, claim: &Claim, record: &JournalRecord) {
        let of = JournalOf::Cluster(self.cluster);
        decided.group.writes.extend(journal_writes(of, record, claim.revision, 0));
    }

    fn record(&self, claim: &Claim, decision: Decision, message: String) -> JournalRecord {
        let subject = Subject { kind: SubjectKind::Claim, name: claim.name.to_string() };
        let mut record =
            JournalRecord::new(subject, self.now(), FunctionName::Disruption.as_str(), decision, message);
        record.evidence.clone_from(self.launch.evidence);
        record
    }
}
