//! Commits a plan slice by slice, and sends the launches of committed slices while the table throttles the next one.
//!
//! A burst writes more than a partition key takes in a second. Decides what happens meanwhile: committed launches are
//! sent, and only without any left the commit waits.
//!
//! Invariants: no launch is sent before its slice is committed; each launch committed here is sent here, unless
//! sending fails.

use jiff::SignedDuration;
use tenon_domain::id::ClusterName;
use tenon_runtime::{HandlerError, Patient, Ports};
use tenon_state::commit::{CommitOutcome, SliceOutcome, commit_slice, cut};
use tenon_state::observe::ClusterObservation;
use tenon_table::WriteGroup;

use crate::execute::{DueLaunch, Sending, SentLaunches};

/// When a plan is repeated after the table throttled it for longer than an invocation waits.
const THROTTLED_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// Commits groups, each of which is one launch, and sends the launches.
///
/// # Errors
/// [`HandlerError`] for anything but a lost race and throttling.
pub(crate) async fn commit_and_send<P: Ports>(
    ports: &Patient<'_, P>,
    cluster: &ClusterName,
    observed: &ClusterObservation,
    groups: Vec<WriteGroup>,
    launches: &[DueLaunch<'_>],
) -> Result<(CommitOutcome, SentLaunches), HandlerError> {
    let slices = cut(cluster, observed.view.generations.revision, groups)?;
    let mut sending = Sending::new(cluster, observed);
    // Launches that are sent, and those that are committed.
    let (mut sent, mut committed) = (0, 0);
    let mut outcome = Ok(CommitOutcome::Whole);
    for (slice, groups) in slices.iter() {
        let stopped = loop {
            let table = ports.impatient().table();
            let waiting = launches.get(sent..committed).unwrap_or_default();
            let found = match waiting {
                [] => commit_slice(ports.table(), slice).await,
                [_, ..] => commit_slice(table, slice).await,
            };
            match (found, waiting) {
                (Ok(SliceOutcome::Committed), _) => break None,
                (Ok(SliceOutcome::Lost), _) => break Some(Ok(CommitOutcome::Lost)),
                (Ok(SliceOutcome::Throttled), []) => {
                    let again = ports.now().saturating_add(THROTTLED_AGAIN);
                    sending.sent.put_off(again.unwrap_or_else(|_| ports.now()));
                    break Some(Ok(CommitOutcome::Whole));
                }
                (Ok(SliceOutcome::Throttled), [_, ..]) => {
                    sent = committed;
                    sending.send(ports, waiting).await?;
                }
                (Err(error), _) => break Some(Err(error)),
            }
        };
        match stopped {
            None => committed += groups,
            Some(found) => {
                outcome = found;
                break;
            }
        }
    }
    sending.send(ports, launches.get(sent..committed).unwrap_or_default()).await?;
    outcome.map(|outcome| (outcome, sending.sent))
}
