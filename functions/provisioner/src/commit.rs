//! Commits a plan slice by slice, and sends the launches of committed slices meanwhile.
//!
//! A burst writes more than a partition key takes in a second. Decides what happens while the commit waits: committed
//! launches are sent and settled.
//!
//! Invariants: no launch is sent before its slice is committed; each launch committed here is sent here, unless
//! sending fails.

use futures::channel::mpsc;
use futures::future::try_join;
use jiff::SignedDuration;
use tenon_domain::id::ClusterName;
use tenon_runtime::{HandlerError, Patient, Ports};
use tenon_state::commit::{CommitOutcome, SliceOutcome, commit_slice, cut};
use tenon_state::observe::ClusterObservation;
use tenon_table::{Slices, WriteGroup};

use crate::execute::{CallPace, DueLaunch, SentLaunches, send_each};

/// When a plan is repeated after the table throttled it for longer than an invocation waits.
const THROTTLED_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// Commits groups, of which the first ones are a launch each, and sends the launches.
///
/// # Errors
/// [`HandlerError`] for anything but a lost race and throttling.
pub(crate) async fn commit_and_send<P: Ports>(
    ports: &Patient<'_, P>,
    cluster: &ClusterName,
    observed: &ClusterObservation,
    pace: &CallPace,
    (groups, launches): (Vec<WriteGroup>, &[DueLaunch<'_>]),
) -> Result<(CommitOutcome, SentLaunches), HandlerError> {
    let slices = cut(cluster, observed.view.generations.revision, groups)?;
    let (committed, to_send) = mpsc::unbounded();
    let commits = async {
        let mut left = launches.iter();
        let ended = commit_slices(ports, &slices, |groups| {
            for launch in left.by_ref().take(groups) {
                // Nobody hears it only where sending has failed, and then this ends, too.
                let _ = committed.unbounded_send(launch);
            }
        })
        .await;
        drop(committed);
        // What is committed is sent, even where the commit of the rest failed.
        Ok(ended)
    };
    let (ended, mut sent) = try_join(commits, send_each(ports, cluster, observed, pace, to_send)).await?;
    let outcome = match ended? {
        SlicesEnd::All => CommitOutcome::Whole,
        SlicesEnd::Lost => CommitOutcome::Lost,
        SlicesEnd::Throttled => {
            let again = ports.now().saturating_add(THROTTLED_AGAIN);
            sent.put_off(again.unwrap_or_else(|_| ports.now()));
            CommitOutcome::Whole
        }
    };
    Ok((outcome, sent))
}

/// Why the commit of slices ended.
enum SlicesEnd {
    /// All are committed.
    All,
    /// Something else changed the cluster.
    Lost,
    /// The table throttled one for longer than the ports wait.
    Throttled,
}

/// Commits slices in their order, and tells of each how many groups it holds.
async fn commit_slices<P: Ports>(
    ports: &P,
    slices: &Slices,
    mut committed: impl FnMut(usize),
) -> Result<SlicesEnd, HandlerError> {
    for (slice, groups) in slices.iter() {
        match commit_slice(ports.table(), slice).await? {
            SliceOutcome::Committed => committed(groups),
            SliceOutcome::Lost => return Ok(SlicesEnd::Lost),
            SliceOutcome::Throttled => return Ok(SlicesEnd::Throttled),
        }
    }
    Ok(SlicesEnd::All)
}
