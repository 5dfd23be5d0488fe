//! Disruption's decisions as transactions.
//!
//! Decides the groups: a command with its candidates, their actions, its replacements' claims and launches and their
//! records is one group under the cluster's revision; a step of a command, or a drift mark, is a transaction on the
//! revisions of its own items.
//!
//! Invariant: a candidate is taken only in the transaction that commits its replacements.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, RemovalReason};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, ClusterName, CommandId};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_launching::build::{LaunchInput, write_launch};
use tenon_planning::disruption::{Advance, CommandStep, DriftMark, EmptyMark, NewCommand};
use tenon_runtime::HandlerError;
use tenon_snapshot::NodeAction;
use tenon_state::action::{Registration, asked};
use tenon_state::step::Change;
use tenon_state::view::ClusterView;
use tenon_table::Expect;
use tenon_table::items::{keys, set, set_expiring};

use crate::plan::PlannedDisruption;

/// How long a command that is done is kept.
const COMMAND_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The context of the writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DisruptionContext<'a> {
    pub(crate) cluster: &'a ClusterName,
    pub(crate) view: &'a ClusterView,
    pub(crate) launch: &'a LaunchInput<'a>,
    /// The agent's current actions, by claim.
    pub(crate) actions: &'a BTreeMap<ClaimName, NodeAction>,
    pub(crate) planned: &'a PlannedDisruption,
}

/// A change, with its effects outside the table.
#[derive(Debug)]
pub(crate) struct DecidedChange<'a> {
    pub(crate) change: Change<'a>,
    /// Launches that the provisioner has to send.
    pub(crate) launches: usize,
    /// Actions that the agent has to read.
    pub(crate) actions: usize,
}

impl<'a> DisruptionContext<'a> {
    fn now(&self) -> Timestamp {
        self.view.now
    }

    fn nothing(&self) -> DecidedChange<'a> {
        DecidedChange { change: Change::of(self.cluster), launches: 0, actions: 0 }
    }

    /// A new command; `None` if a replacement's launch can't be built.
    pub(crate) fn command(&self, new: &NewCommand) -> Result<Option<DecidedChange<'a>>, HandlerError> {
        let mut decided = self.nothing();
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
        decided.change.replace(Expect::Absent, set(keys::command(self.cluster, &new.id), &command));
        for name in &new.candidates {
            if new.drains_at_once() {
                let why = if new.reason == RemovalReason::Empty {
                    "no pod on it needs another node"
                } else {
                    "no replacement is needed"
                };
                self.drain(&mut decided, name, (new.reason, why))?;
            } else {
                self.disrupt(&mut decided, name, &command)?;
            }
        }
        Ok(Some(decided))
    }

    /// A step of an active command; `None` if a launch can't be built.
    pub(crate) fn advance(&self, advance: &Advance) -> Result<Option<DecidedChange<'a>>, HandlerError> {
        let Some(command) = self.view.commands.get(&advance.command) else { return Ok(None) };
        let mut decided = self.nothing();
        let now = self.now();
        let mut next = Command { revision: command.revision.saturating_add(1), ..command.clone() };
        match &advance.step {
            CommandStep::Drain { candidates } => {
                next.state = CommandState::Draining { since: now };
                let why = self.why_now(&command.replacements);
                for name in candidates {
                    self.drain(&mut decided, name, (command.reason, why.as_str()))?;
                }
            }
            CommandStep::Replace { failed, plan, attempts, not_before } => {
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
            CommandStep::Finish => next.state = CommandState::Done { at: now },
        }
        let key = keys::command(self.cluster, &command.id);
        let kept = now.saturating_add(COMMAND_KEPT).unwrap_or(now);
        let write = if next.is_active() { set(key, &next) } else { set_expiring(key, &next, kept) };
        decided.change.replace(Expect::Revision(command.revision), write);
        decided.change.count();
        Ok(Some(decided))
    }

    /// Why candidates drain now: every replacement is ready, or no pod needs one any more.
    fn why_now(&self, replacements: &[ClaimName]) -> String {
        let phase = |name: &ClaimName| self.view.claims.get(name).map(Claim::phase);
        if !replacements.iter().all(|name| phase(name) == Some(ClaimPhase::Initialized)) {
            return "no pod on the node needs a replacement".to_owned();
        }
        match replacements.len() {
            0 => "no replacement is needed".to_owned(),
            1 => "its replacement is ready".to_owned(),
            count => format!("all {count} replacements are ready"),
        }
    }

    /// A drift mark.
    pub(crate) fn mark(&self, mark: &DriftMark) -> Option<DecidedChange<'a>> {
        let before = self.view.claims.get(&mark.claim)?;
        let revision = before.revision.saturating_add(1);
        let claim = Claim { drift: mark.drift.clone(), revision, ..before.clone() };
        let mut decided =
            DecidedChange { change: Change::step(self.cluster, before.revision, &claim), ..self.nothing() };
        let message = match &mark.drift {
            Some(drift) => {
                let reason = drift.reason.as_str();
                format!(
                    "NodeClaim `{}` drifted ({reason}): it has `{}`, its EC2NodeClass resolves to `{}`",
                    claim.name, drift.from, drift.to
                )
            }
            None => format!("NodeClaim `{}` is no longer drifted", claim.name),
        };
        let mut record = self.record(&claim, Decision::Drifted, message);
        if let Some(drift) = &mark.drift {
            record = record
                .detail("reason", drift.reason.as_str())
                .detail("from", &drift.from)
                .detail("to", &drift.to);
        }
        decided.change.record(&record, claim.revision);
        Some(decided)
    }

    /// The mark of a Node that became empty, or isn't empty any longer.
    pub(crate) fn emptied(&self, mark: &EmptyMark) -> Option<DecidedChange<'a>> {
        let before = self.view.claims.get(&mark.claim)?;
        let revision = before.revision.saturating_add(1);
        let claim = Claim { empty_since: mark.since, revision, ..before.clone() };
        let mut decided =
            DecidedChange { change: Change::step(self.cluster, before.revision, &claim), ..self.nothing() };
        let message = match &mark.since {
            Some(_) => format!(
                "NodeClaim `{}` is empty: it goes if no pod comes within `consolidateAfter` of NodePool `{}`",
                claim.name, claim.pool
            ),
            None => format!("NodeClaim `{}` isn't empty any longer", claim.name),
        };
        let record = self.record(&claim, Decision::Emptied, message);
        decided.change.record(&record, claim.revision);
        Some(decided)
    }

    /// Adds the launches of a command's replacements. Returns whether each has one.
    fn launches(&self, decided: &mut DecidedChange<'_>, command: &CommandId) -> bool {
        let Some(built) = self.planned.built.get(command).filter(|built| built.refused.is_empty()) else {
            return false;
        };
        let mut known: BTreeSet<&str> = self.view.templates.keys().map(String::as_str).collect();
        let revision = self.view.generations.revision.saturating_add(1);
        for launch in &built.launches {
            write_launch(self.launch, launch, revision, |name| known.contains(name), &mut decided.change);
            known.extend(launch.templates.iter().map(|(_, template)| template.name.as_str()));
        }
        decided.launches += built.launches.len();
        true
    }

    fn disrupt(
        &self,
        decided: &mut DecidedChange<'_>,
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
        let (noun, are) =
            if replacements.len() == 1 { ("replacement", "is") } else { ("replacements", "are") };
        let message = format!(
            "disrupting NodeClaim `{name}` ({}): it drains when its {noun} `{}` {are} ready",
            command.reason.words(),
            replacements.join("`, `")
        );
        let claim = before.stepped(state).map_err(|error| HandlerError::Internal(error.to_string()))?;
        let record = self
            .record(&claim, Decision::Disrupting, message)
            .detail("command", &command.id)
            .detail("reason", command.reason.as_str())
            .detail("replacements", replacements.join(", "));
        self.step(decided, before, &claim, &record)
    }

    fn drain(
        &self,
        decided: &mut DecidedChange<'_>,
        name: &ClaimName,
        (reason, why): (RemovalReason, &str),
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
        let message = format!("draining NodeClaim `{name}` ({}): {why}", reason.words());
        let record = self.record(&claim, Decision::Draining, message).detail("reason", reason.as_str());
        self.step(decided, before, &claim, &record)
    }

    fn step(
        &self,
        decided: &mut DecidedChange<'_>,
        before: &Claim,
        claim: &Claim,
        record: &JournalRecord,
    ) -> Result<(), HandlerError> {
        decided.change.claim(Expect::Revision(before.revision), claim);
        if let Some(action) = asked(claim, self.actions.get(&claim.name), |_| Registration::default()) {
            decided.change.action(&action)?;
            decided.actions += 1;
        }
        decided.change.record(record, claim.revision);
        Ok(())
    }

    fn record(&self, claim: &Claim, decision: Decision, message: String) -> JournalRecord {
        let subject = Subject { kind: SubjectKind::Claim, name: claim.name.to_string() };
        let mut record =
            JournalRecord::new(subject, self.now(), FunctionName::Disruption.as_str(), decision, message);
        record.evidence.clone_from(self.launch.evidence);
        record
    }
}
