//! The audit: EC2's instances of the cluster against the table's claims.
//!
//! Decides which tags are missing, which orphans may be terminated, when a younger one is looked at again, and when the
//! cluster halts. Instances with a claim are [`crate::step`]'s.
//!
//! Invariants: only instances with the installation's and the cluster's tags and a settled launch in this table are
//! terminated; a Node with the instance's providerID, or a stale snapshot, keeps it; at most [`allowed`] are
//! terminated in an hour.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{InstanceId, LaunchId};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::LaunchState;
use tenon_domain::tags;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_ec2::port::{Instance, Tags};
use tenon_table::items::Halt;

use crate::NAME;
use crate::audit_record::{AuditRecord, allowed};
use crate::input::{Ec2View, LifecycleInput, has_instance};

/// The age before which an orphan is left alone: its launch may not be settled yet.
pub const ORPHAN_GRACE: SignedDuration = SignedDuration::from_mins(5);
/// The most orphans of an audit: each has two journal items, and one transaction holds all.
const ORPHANS_MOST: usize = 40;
/// The number of instances that a halt names; their tags find the others.
const NAMED_MOST: usize = 5;

/// The actions of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditPlan {
    /// Tags that instances of claims lack.
    pub tags: BTreeMap<InstanceId, Tags>,
    /// The record to write, if the audit has findings or is due.
    pub record: Option<AuditRecord>,
    /// Records about orphans.
    pub journal: Vec<JournalRecord>,
    /// Orphans to terminate, including those of earlier audits that still run.
    pub orphans: BTreeSet<InstanceId>,
    /// Why everything halts from now on.
    pub halt: Option<Halt>,
    /// The evidence that it waits for.
    pub waiting: Option<Waiting>,
}

/// Audits EC2's answer.
#[must_use]
pub fn audit(input: &LifecycleInput, view: &Ec2View) -> AuditPlan {
    let mut plan = AuditPlan { tags: missing_tags(input, view), ..AuditPlan::default() };
    let unowned: Vec<&Instance> = view
        .instances
        .values()
        .filter(|instance| !instance.state.is_going() && !is_owned(instance, input, view))
        .collect();
    let unknown = of_unknown_launches(&unowned, view);
    if let Some(halt) = restored(&unknown, input) {
        let named = unknown.iter().take(NAMED_MOST);
        plan.journal.extend(named.map(|instance| refusal(instance, &halt, input)));
        plan.halt = Some(halt);
    } else if input.halt.is_none() {
        terminate_orphans(&unowned, input, &mut plan);
    }
    let again = plan.record.as_ref().and_then(|record| record.again_at);
    let sooner = again.zip(input.audit.due_at()).is_some_and(|(again, turn)| again < turn);
    if input.audit.is_due(input.now) || sooner || !plan.journal.is_empty() {
        plan.record.get_or_insert_with(|| input.audit.audited(input.now));
    } else {
        plan.record = None;
    }
    plan
}

/// Instances of unknown launches: the table was restored to an earlier time, or the instances are foreign.
fn of_unknown_launches<'a>(unowned: &[&'a Instance], view: &Ec2View) -> Vec<&'a Instance> {
    let unknown = |instance: &&&Instance| {
        instance.tags.get(tags::LAUNCH).is_none_or(|launch| view.unknown_launches.contains(launch))
    };
    unowned.iter().filter(unknown).copied().collect()
}

fn restored(unknown: &[&Instance], input: &LifecycleInput) -> Option<Halt> {
    if unknown.is_empty() || input.halt.is_some() {
        return None;
    }
    let named: Vec<&str> = unknown.iter().take(NAMED_MOST).map(|instance| instance.id.as_str()).collect();
    let (count, named) = (unknown.len(), named.join("`, `"));
    let instances = if count == 1 {
        format!("instance `{named}` has this cluster's tags, but its launch isn't in the table")
    } else {
        format!(
            "{count} instances (`{named}`) have this cluster's tags, but their launches aren't in the table"
        )
    };
    Some(Halt {
        since: input.now,
        reason: format!(
            "{instances}: the table was restored to an earlier time, or another system uses these tags; terminate each \
             instance or remove its tag `{}`, then delete the item `HALT`",
            tags::CLUSTER
        ),
    })
}

fn terminate_orphans(unowned: &[&Instance], input: &LifecycleInput, plan: &mut AuditPlan) {
    let mut record = input.audit.audited(input.now);
    let limit = allowed(input.claims.values().filter(|claim| claim.phase().has_instance()).count());
    for instance in unowned {
        match orphan(instance, input) {
            Orphan::No => {}
            Orphan::Young(until) => {
                record.again_at = Some(record.again_at.map_or(until, |again| again.min(until)));
            }
            Orphan::Unseen(waiting) => plan.waiting = Some(waiting),
            Orphan::Yes if record.told.contains_key(&instance.id) => {
                plan.orphans.insert(instance.id.clone());
            }
            Orphan::Yes if record.told.len() < limit && plan.journal.len() < ORPHANS_MOST => {
                record.told.insert(instance.id.clone(), input.now);
                plan.orphans.insert(instance.id.clone());
                plan.journal.push(told(instance, input));
            }
            Orphan::Yes => {
                // While orphans are being terminated, the halt is left to the next audit. More orphans than the
                // allowance, after those, can't come from a lost answer.
                if plan.halt.is_none() && plan.journal.is_empty() {
                    let halt = Halt {
                        since: input.now,
                        reason: format!(
                            "found more than {limit} instances without a NodeClaim within an hour, such as `{}`; find out why, \
                             then delete the item `HALT`: up to {limit} of them are terminated in the next hour",
                            instance.id
                        ),
                    };
                    plan.journal.push(refusal(instance, &halt, input));
                    plan.halt = Some(halt);
                }
            }
        }
    }
    if plan.halt.is_some() {
        // A halt terminates nothing. Earlier terminations stay recorded, and continue after the halt.
        plan.orphans.clear();
    }
    plan.record = Some(record);
}

/// Whether an orphan may be terminated.
enum Orphan {
    /// It may.
    Yes,
    /// Not before this time.
    Young(Timestamp),
    /// Not now, or not by us.
    No,
    /// The cluster isn't seen well enough to tell.
    Unseen(Waiting),
}

fn orphan(instance: &Instance, input: &LifecycleInput) -> Orphan {
    let launch = instance.tags.get(tags::LAUNCH).and_then(|id| LaunchId::parse(id.as_str()).ok());
    let settled_at = launch.and_then(|id| input.launches.get(&id)).and_then(|launch| match launch.state {
        LaunchState::Settled { at, .. } => Some(at),
        // Its instances are dealt to its claims yet.
        LaunchState::Requested { .. } => None,
    });
    let Some(settled_at) = settled_at else { return Orphan::No };
    let known_since = settled_at.max(instance.launched_at);
    let until = known_since.saturating_add(ORPHAN_GRACE).unwrap_or(Timestamp::MAX);
    if input.now < until {
        return Orphan::Young(until);
    }
    match &input.snapshot {
        Err(waiting) => Orphan::Unseen(waiting.clone()),
        Ok(snapshot) if snapshot.nodes.iter().any(|node| has_instance(node, &instance.id)) => Orphan::No,
        Ok(snapshot) if snapshot.unreadable.iter().any(|object| object.kind == "Node") => Orphan::No,
        Ok(_) => Orphan::Yes,
    }
}

/// Whether a claim owns the instance: one of the input's, or a newer one, by the instance's own item.
fn is_owned(instance: &Instance, input: &LifecycleInput, view: &Ec2View) -> bool {
    let holds = |claim: &Claim| {
        claim.phase() != ClaimPhase::Terminated
            && claim.state.instance().is_some_and(|held| held.id == instance.id)
    };
    if input.claims.values().any(holds) {
        return true;
    }
    view.owners.get(&instance.id).is_some_and(|owner| {
        // A claim outside the input is newer; a final claim has given up its instance.
        input.claims.get(&owner.claim).is_none_or(|claim| !claim.phase().is_final())
    })
}

fn missing_tags(input: &LifecycleInput, view: &Ec2View) -> BTreeMap<InstanceId, Tags> {
    let mut missing = BTreeMap::new();
    for claim in input.claims.values().filter(|claim| !claim.phase().is_final()) {
        let Some(instance) = claim.state.instance().and_then(|held| view.instances.get(&held.id)) else {
            continue;
        };
        if instance.state.is_going() {
            continue;
        }
        let wanted = [tags::CLAIM, tags::NAME].into_iter().filter(|tag| !instance.tags.contains_key(*tag));
        let named: Tags = wanted.map(|tag| (tag.to_owned(), claim.name.to_string())).collect();
        if !named.is_empty() {
            missing.insert(instance.id.clone(), named);
        }
    }
    missing
}

fn subject(instance: &Instance) -> Subject {
    Subject { kind: SubjectKind::Instance, name: instance.id.to_string() }
}

fn told(instance: &Instance, input: &LifecycleInput) -> JournalRecord {
    let message =
        format!("terminating instance `{}` ({}): no NodeClaim owns it", instance.id, instance.instance_type);
    let launch = instance.tags.get(tags::LAUNCH).map_or("", String::as_str);
    let record = JournalRecord::new(subject(instance), input.now, NAME, Decision::OrphanTerminated, message);
    let record = record.detail("launch", launch).detail("launched_at", instance.launched_at);
    match &input.snapshot {
        Ok(snapshot) => record.evidence("snapshot", snapshot.generation),
        Err(_) => record,
    }
}

fn refusal(instance: &Instance, halt: &Halt, input: &LifecycleInput) -> JournalRecord {
    let message = format!("halted terminations and disruptions of this cluster: {}", halt.reason);
    JournalRecord::new(subject(instance), input.now, NAME, Decision::Refused, message)
}
