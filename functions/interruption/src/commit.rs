//! A plan, committed: one transaction on the claim's revision, the last call of the table.
//!
//! The mark goes with it, under its own revision. Where another function was faster with the mark, the drain goes
//! through without it: it can't wait, and the other one knew as much.

use tenon_domain::unavailable::Mark;
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::action::action_key;
use tenon_state::step::ClaimStep;
use tenon_table::items::{JournalOf, journal_writes, keys, set};
use tenon_table::{Commit, CommitError, Condition, Expect, Write};
use tenon_table::{commit_through_conflicts, content_commit};

use crate::plan::{Input, Plan};

/// Commits the plan, if it says anything.
///
/// # Errors
/// [`HandlerError::Commit`], a lost race for the claim among it.
pub async fn commit<P: Ports>(ports: &P, input: &Input, plan: &Plan) -> Result<(), HandlerError> {
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

fn is_of_a_mark(condition: &Condition) -> bool {
    keys::name_of(&condition.key(), keys::UNAVAILABLE).is_some()
}

/// The transaction; nothing where there is nothing to write.
fn build<P: Ports>(
    ports: &P,
    input: &Input,
    plan: &Plan,
    mark: Option<&Mark>,
) -> Result<Option<Commit>, HandlerError> {
    Ok(match (&plan.claim, &plan.journal) {
        (Some(claim), journal) => {
            let mut step = ClaimStep::new(&input.cluster, input.claim.revision, claim);
            if let Some(action) = &plan.action {
                let item = action.to_item().map_err(|error| HandlerError::Internal(error.to_string()))?;
                step = step.write(Write::Put { key: action_key(&input.cluster, &action.claim), item });
            }
            if let Some(mark) = mark {
                let key = keys::unavailable(&ports.installation().region, &mark.key);
                let before = input.mark.as_ref();
                let expect = before.map_or(Expect::Absent, |mark| Expect::Revision(mark.revision));
                step = step.condition(Condition::Item { key: key.clone(), expect }).write(set(key, mark));
            }
            Some(journal.iter().fold(step, ClaimStep::record).commit())
        }
        (None, Some(journal)) => {
            let of = JournalOf::Cluster(&input.cluster);
            let writes = journal_writes(of, journal, input.claim.revision, 0);
            Some(content_commit(Vec::new(), writes.into()))
        }
        (None, None) => None,
    })
}
