//! Commits a plan: one transaction on the claim's revision, the last call of the table.
//!
//! The mark is in it, under its own revision. If another function changes the mark first, the drain is committed
//! without it: it can't wait, and the other function knew as much.

use tenon_domain::unavailable::Mark;
use tenon_domain::wake::FunctionName;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::step::Change;
use tenon_table::items::{DecisionCounter, keys, set};
use tenon_table::{Commit, CommitError, Expect, WriteCondition, commit_through_conflicts};

use crate::plan::{InterruptionInput, InterruptionPlan};

/// Commits the plan, unless it is empty.
///
/// # Errors [`HandlerError::Commit`], also for a lost race for the claim.
pub async fn commit<P: Ports>(
    ports: &P,
    input: &InterruptionInput,
    plan: &InterruptionPlan,
) -> Result<(), HandlerError> {
    let Some(whole) = build(ports, input, plan, plan.mark.as_ref())? else { return Ok(()) };
    match commit_through_conflicts(ports.table(), &whole).await {
        Err(CommitError::LostRace { lost }) if plan.mark.is_some() && lost.iter().all(is_of_a_mark) => {
            let drain = build(ports, input, plan, None)?;
            match drain {
                Some(drain) => Ok(commit_through_conflicts(ports.table(), &drain).await?),
                None => Ok(()),
            }
        }
        outcome => Ok(outcome?),
    }
}

fn is_of_a_mark(condition: &WriteCondition) -> bool {
    keys::name_of(&condition.key(), keys::UNAVAILABLE).is_some()
}

/// The transaction; `None` without writes.
fn build<P: Ports>(
    ports: &P,
    input: &InterruptionInput,
    plan: &InterruptionPlan,
    mark: Option<&Mark>,
) -> Result<Option<Commit>, HandlerError> {
    let mut change = match (&plan.claim, &plan.journal) {
        (Some(claim), _) => Change::step(&input.cluster, input.claim.revision, claim),
        (None, None) if mark.is_none() => return Ok(None),
        // The mark of an instance that goes already is written alone.
        (None, _) => Change::of(&input.cluster),
    };
    if let Some(action) = &plan.action {
        change.action(action)?;
    }
    if let Some(mark) = mark {
        let before = input.mark.as_ref().map_or(Expect::Absent, |mark| Expect::Revision(mark.revision));
        change.replace(before, set(keys::unavailable(&ports.installation().region, &mark.key), mark));
    }
    if let Some(record) = &plan.journal {
        let told = keys::told(&input.cluster, FunctionName::Interruption);
        let counter = match &plan.claim {
            Some(claim) => DecisionCounter::Subject(claim.revision),
            // Without a step, the claim's revision counts the decision before this one.
            None => DecisionCounter::Item(&told, input.claim.revision),
        };
        change.record(record, counter);
    }
    Ok(Some(change.commit()))
}
