//! A plan, committed: one transaction on the claim's revision, the third and last call of the table.

use tenon_cluster::action::action_key;
use tenon_entrypoint::step::ClaimStep;
use tenon_entrypoint::{HandlerError, Ports, content_commit};
use tenon_table::items::{JournalOf, journal_writes, keys, set};
use tenon_table::{Table, Write};

use crate::plan::{Input, Plan};

/// Commits the plan, if it says anything.
///
/// # Errors
/// [`HandlerError::Commit`], a lost race among it.
pub async fn commit<P: Ports>(ports: &P, input: &Input, plan: &Plan) -> Result<(), HandlerError> {
    let commit = match (&plan.claim, &plan.journal) {
        (Some(claim), journal) => {
            let mut step = ClaimStep::new(&input.cluster, input.claim.revision, claim);
            if let Some(action) = &plan.action {
                let item = action.to_item().map_err(|error| HandlerError::Internal(error.to_string()))?;
                step = step.write(Write::Put { key: action_key(&input.cluster, &action.claim), item });
            }
            if let Some(mark) = &plan.mark {
                let key = keys::unavailable(&ports.installation().region, &mark.key);
                step = step.write(set(key, mark));
            }
            journal.iter().fold(step, ClaimStep::record).commit()
        }
        (None, Some(journal)) => {
            let of = JournalOf::Cluster(&input.cluster);
            content_commit(Vec::new(), journal_writes(of, journal, input.claim.revision, 0).into())
        }
        (None, None) => return Ok(()),
    };
    Ok(ports.table().commit(&commit).await?)
}
