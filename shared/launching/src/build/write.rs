//! The writes that commit a launch.
//!
//! Decides which items a launch's commit writes, and on what condition each. It doesn't commit.
//!
//! Invariants: no launch, claim or lease that somebody else wrote is overwritten; a template that is known isn't
//! written again.

use tenon_state::step::Change;
use tenon_table::Expect;
use tenon_table::items::{DecisionCounter, keys, set};

use super::{BuiltLaunch, LaunchInput};

/// Adds all writes that commit a launch, except the condition on the cluster's revision, which becomes `revision`.
/// Templates named in `known` exist already.
pub fn write_launch(
    input: &LaunchInput<'_>,
    built: &BuiltLaunch,
    revision: u64,
    known: impl Fn(&str) -> bool,
    change: &mut Change<'_>,
) {
    let cluster = &input.registry.cluster;
    change.replace(Expect::Absent, set(keys::launch(cluster, &built.launch.id), &built.launch));
    for claim in &built.claims {
        change.claim(Expect::Absent, claim);
    }
    for template in built.template_items().filter(|template| !known(&template.name)) {
        change.write(set(keys::template(cluster, &template.name), &template));
    }
    // The first launch to commit takes the lease; any other finds the mark's revision changed.
    for lease in &built.leases {
        let before = Expect::Revision(lease.revision.saturating_sub(1));
        change.replace(before, set(keys::unavailable(input.region, &lease.key), lease));
    }
    if let Some(names) = built.pods.write(cluster) {
        change.write(names);
    }
    let counted = keys::revision(cluster);
    for record in &built.records {
        change.record(record, DecisionCounter::Item(&counted, revision));
    }
}
