//! Disruption's decisions as transactions.
//!
//! Decides the groups: a command with its candidates, their actions, its replacements' claims and launches and their
//! records is one group under the cluster's revision; a step of a command, or a mark, is a transaction on the
//! revisions of its own items.
//!
//! Invariant: a candidate is taken only in the transaction that commits its replacements.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, Consolidatable, Drift, RemovalReason};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, ClusterName, CommandId};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_domain::report::counted;
use tenon_domain::wake::FunctionName;
use tenon_launching::build::{LaunchInput, write_launch};
use tenon_planning::disruption::{
    Adoption, Advance, Allowance, CommandStep, ConsolidatableMark, DriftMark, NewCommand, RefusalReason,
    UndoCause,
};
use tenon_runtime::HandlerError;
use tenon_snapshot::NodeAction;
use tenon_state::action::{Registration, asked};
use tenon_state::step::Change;
use tenon_state::view::ClusterView;
use tenon_table::Expect;
use tenon_table::items::{DecisionCounter, keys, set, set_expiring};

use crate::plan::PlannedDisruption;

/// How long a command that is done is kept.
const COMMAND_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How long a node whose consolidation was undone counts as wanted, unless its pods change: the same attempt would fail the
/// same way.
const UNDONE_FOR: SignedDuration = SignedDuration::from_hours(6);

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
            CommandState::Replacing { since: now, attempts: 0, not_before: now, unplanned: new.unplanned }
        };
        let command = Command {
            id: new.id.clone(),
            revision: 1,
            pool: new.pool.clone(),
            reason: new.reason,
            drifted_to: self.drifted_to(new),
            candidates: new.candidates.clone(),
            replacements: new.replacement.claims.iter().map(|claim| claim.name.clone()).collect(),
            state,
            created_at: now,
        };
        decided.change.replace(Expect::Absent, set(keys::command(self.cluster, &new.id), &command));
        for name in &new.candidates {
            if new.drains_at_once() {
                let why = match (new.reason, new.saves) {
                    (RemovalReason::Empty, _) => "no pod on it needs another node".to_owned(),
                    (_, Some(saves)) => {
                        format!("other nodes have room for its pods, which saves {}", self.price(saves))
                    }
                    (_, None) => "no replacement is needed".to_owned(),
                };
                self.drain(&mut decided, name, (new.reason, &why), Some(new.budget))?;
            } else {
                self.disrupt(&mut decided, name, &command, new)?;
            }
        }
        Ok(Some(decided))
    }

    /// What the command's candidates drifted to, if that is why they go.
    fn drifted_to(&self, new: &NewCommand) -> Option<String> {
        let first = new.candidates.first().filter(|_| new.reason == RemovalReason::Drifted)?;
        self.view.claims.get(first)?.drift.as_ref().map(Drift::target)
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
                    self.drain(&mut decided, name, (command.reason, why.as_str()), None)?;
                }
            }
            CommandStep::Replace { failed, plan, attempts, not_before, unplanned } => {
                if !self.launches(&mut decided, &command.id) {
                    return Ok(None);
                }
                let since = match command.state {
                    CommandState::Replacing { since, .. } | CommandState::Draining { since } => since,
                    CommandState::Done { at } => at,
                };
                let (attempts, not_before, unplanned) = (*attempts, *not_before, *unplanned);
                next.state = CommandState::Replacing { since, attempts, not_before, unplanned };
                next.replacements.retain(|name| !failed.contains(name));
                next.replacements.extend(plan.claims.iter().map(|claim| claim.name.clone()));
            }
            CommandStep::Undo { candidates, cause } => {
                next.state = CommandState::Done { at: now };
                for name in candidates {
                    self.keep(&mut decided, name, (command.reason, cause))?;
                }
                // Only what failed makes its candidates wait longer.
                if matches!(cause, UndoCause::Paused { .. }) {
                    next.candidates.clear();
                }
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
        let set = |claim: &mut Claim| claim.drift.clone_from(&mark.drift);
        self.marked(&mark.claim, set, |claim| {
            let name = &claim.name;
            let Some(drift) = &mark.drift else {
                let message = format!("NodeClaim `{name}` is no longer drifted");
                return self.record(claim, Decision::Drifted, message);
            };
            let reason = drift.reason.as_str();
            let message = format!("NodeClaim `{name}` drifted ({reason}): {}", drift.words(claim));
            let record = self.record(claim, Decision::Drifted, message);
            record.detail("reason", reason).detail("from", &drift.from).detail("to", &drift.to)
        })
    }

    /// The mark of a Node that could go, or can't any longer.
    pub(crate) fn consolidatable(&self, mark: &ConsolidatableMark) -> Option<DecidedChange<'a>> {
        let set = |claim: &mut Claim| claim.consolidatable.clone_from(&mark.mark);
        self.marked(&mark.claim, set, |claim| {
            let message = consolidatable_words(claim, mark);
            self.record(claim, Decision::Consolidatable, message)
        })
    }

    /// What an old claim takes over. It decides nothing, so it has no record.
    pub(crate) fn adopted(&self, adoption: &Adoption) -> Option<DecidedChange<'a>> {
        let before = self.view.claims.get(&adoption.claim)?;
        let mut claim = Claim { revision: before.revision.saturating_add(1), ..before.clone() };
        claim.pool_hash = claim.pool_hash.or(adoption.pool_hash);
        claim.class_hash = claim.class_hash.or(adoption.class_hash);
        claim.security_groups = claim.security_groups.or_else(|| adoption.security_groups.clone());
        let change = Change::step(self.cluster, before.revision, &claim);
        Some(DecidedChange { change, ..self.nothing() })
    }

    /// A changed mark of a claim, with its record.
    fn marked(
        &self,
        name: &ClaimName,
        set: impl FnOnce(&mut Claim),
        record: impl FnOnce(&Claim) -> JournalRecord,
    ) -> Option<DecidedChange<'a>> {
        let before = self.view.claims.get(name)?;
        let mut claim = Claim { revision: before.revision.saturating_add(1), ..before.clone() };
        set(&mut claim);
        let mut decided =
            DecidedChange { change: Change::step(self.cluster, before.revision, &claim), ..self.nothing() };
        decided.change.record(&record(&claim), DecisionCounter::Subject(claim.revision));
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
        new: &NewCommand,
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
        let mut message = format!(
            "disrupting NodeClaim `{name}` ({}): it drains when its {noun} `{}` {are} ready",
            command.reason.words(),
            replacements.join("`, `")
        );
        if new.unplanned > 0 {
            let pods = counted(new.unplanned, "more pod", "more pods");
            message
                .push_str(&format!(", and those for {pods}, which are planned once EC2 has capacity again"));
        }
        if let Some(saves) = new.saves {
            message.push_str(&format!(", which saves {}", self.price(saves)));
        }
        let claim = before.stepped(state).map_err(|error| HandlerError::Internal(error.to_string()))?;
        let record = self
            .record(&claim, Decision::Disrupting, message)
            .detail("budget", new.budget)
            .detail("command", &command.id)
            .detail("reason", command.reason.as_str())
            .detail("replacements", replacements.join(", "));
        self.step(decided, before, &claim, &record)
    }

    /// Gives a candidate back.
    fn keep(
        &self,
        decided: &mut DecidedChange<'_>,
        name: &ClaimName,
        (reason, cause): (RemovalReason, &UndoCause),
    ) -> Result<(), HandlerError> {
        let Some(before) = self.view.claims.get(name) else { return Ok(()) };
        let (Some(instance), Some(node)) = (before.state.instance(), before.state.node()) else {
            return Ok(());
        };
        let state =
            ClaimState::Initialized { instance: instance.clone(), node: node.clone(), at: self.now() };
        let mut claim = before.stepped(state).map_err(|error| HandlerError::Internal(error.to_string()))?;
        // Its mark would make this command count for a drift that comes back before the next look.
        if *cause == UndoCause::NoLongerDrifted {
            claim.drift = None;
        }
        let rested = match cause {
            UndoCause::Paused { .. } => None,
            UndoCause::ReplacementFailed
            | UndoCause::NoRoom
            | UndoCause::Held { .. }
            | UndoCause::NotReplaced { .. }
            | UndoCause::NoLongerDrifted => claim.consolidatable.as_mut(),
        };
        let mut rests = String::new();
        if let (RemovalReason::Underutilized, Some(mark)) = (reason, rested) {
            mark.since = self.now().saturating_add(UNDONE_FOR).unwrap_or_else(|_| self.now());
            rests = format!(": it rests until `{:.0}`, unless its pods change", mark.since);
        }
        let why = match cause {
            UndoCause::ReplacementFailed => "its replacement failed".to_owned(),
            UndoCause::NoRoom => "its pods have no room elsewhere any longer".to_owned(),
            UndoCause::Held { by } => by.to_string(),
            UndoCause::NotReplaced { again } => {
                format!("its replacement failed and no other could be had; next try at `{again:.0}`")
            }
            UndoCause::NoLongerDrifted => "it is no longer drifted".to_owned(),
            UndoCause::Paused { pool, by } => {
                RefusalReason::Paused { pool: pool.clone(), by: *by }.to_string()
            }
        };
        let record = self.record(&claim, Decision::Kept, format!("keeping NodeClaim `{name}`: {why}{rests}"));
        self.step(decided, before, &claim, &record)
    }

    /// A price an hour in words.
    fn price(&self, price: UsdPerHour) -> String {
        format!("{price} {} an hour", Currency::of_region(self.launch.region).as_str())
    }

    fn drain(
        &self,
        decided: &mut DecidedChange<'_>,
        name: &ClaimName,
        (reason, why): (RemovalReason, &str),
        budget: Option<Allowance>,
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
        let mut record = self.record(&claim, Decision::Draining, message).detail("reason", reason.as_str());
        if let Some(budget) = budget {
            record = record.detail("budget", budget);
        }
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
        decided.change.record(record, DecisionCounter::Subject(claim.revision));
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

/// What a mark, or its end, says.
fn consolidatable_words(claim: &Claim, mark: &ConsolidatableMark) -> String {
    let Claim { name, pool, .. } = claim;
    let (state, condition) = match &mark.mark {
        Some(Consolidatable { pods: None, .. }) => {
            ("is empty", format!("if no pod comes within `consolidateAfter` of NodePool `{pool}`"))
        }
        Some(Consolidatable { pods: Some(_), .. }) => {
            ("is underutilized", format!("if that holds for `consolidateAfter` of NodePool `{pool}`"))
        }
        None => {
            return match &mark.stays {
                Some(why) => format!("NodeClaim `{name}` stays for now: {why}"),
                None => format!("NodeClaim `{name}` isn't empty or underutilized any longer"),
            };
        }
    };
    match &mark.stays {
        Some(why) => format!("NodeClaim `{name}` {state}, and stays for now: {why}"),
        None => format!("NodeClaim `{name}` {state}: it is removed {condition}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenon_domain::id::{LaunchId, NodeClassName, NodePoolName};

    #[test]
    fn a_mark_and_its_end_say_what_is_true() {
        let name = ClaimName::parse("default-3k9x2").unwrap();
        let of = (NodePoolName::parse("default").unwrap(), NodeClassName::parse("default").unwrap());
        let launch = LaunchId::parse("launch-1").unwrap();
        let claim = Claim::planned(name.clone(), of, launch, Timestamp::UNIX_EPOCH);
        let check = |pods: Option<Option<&str>>, stays: Option<RefusalReason>, expected: &str| {
            let mark = pods
                .map(|pods| Consolidatable { since: Timestamp::UNIX_EPOCH, pods: pods.map(str::to_owned) });
            let mark = ConsolidatableMark { claim: name.clone(), mark, stays };
            assert_eq!(consolidatable_words(&claim, &mark), format!("NodeClaim `default-3k9x2` {expected}"));
        };
        let blocked = || Some(RefusalReason::DoNotDisrupt { pod: None, until: Some(Timestamp::UNIX_EPOCH) });
        let until = "the node has `karpenter.sh/do-not-disrupt` until `1970-01-01T00:00:00Z`";
        check(
            Some(None),
            None,
            "is empty: it is removed if no pod comes within `consolidateAfter` of NodePool `default`",
        );
        check(
            Some(Some("a")),
            None,
            "is underutilized: it is removed if that holds for `consolidateAfter` of NodePool `default`",
        );
        check(Some(Some("a")), blocked(), &format!("is underutilized, and stays for now: {until}"));
        check(None, blocked(), &format!("stays for now: {until}"));
        check(None, None, "isn't empty or underutilized any longer");
    }
}
