//! What a drain can't get past by itself, for whoever can.
//!
//! Decides which waits count as obstacles: an annotation at once, a PodDisruptionBudget after half a minute of refusals,
//! volumes a minute after the last pod left. A wait that ends by itself is none, such as that of a refused pod whose
//! PodDisruptionBudget is gone: its next eviction succeeds. One that is refused without a PodDisruptionBudget that the agent
//! can read is told without a name.

use std::collections::BTreeMap;

use tenon_domain::api::workload::PodDisruptionBudget;
use tenon_domain::drain_block::{DrainBlock, DrainObstacle};
use tenon_snapshot::PodRef;

use crate::drain::RefusedEvictions;
use crate::hold::covers;

/// The obstacles of a drain's pods: those that an annotation keeps, and those that stay refused.
pub(crate) fn of_pods(
    kept: &[&PodRef],
    waiting: &[&PodRef],
    refused: &RefusedEvictions,
    budgets: &[PodDisruptionBudget],
) -> Vec<DrainBlock> {
    let mut found: BTreeMap<(DrainObstacle, Vec<String>), Vec<String>> = BTreeMap::new();
    let name = |pod: &PodRef| format!("{}/{}", pod.key.namespace, pod.key.name);
    for pod in kept {
        found.entry((DrainObstacle::DoNotDisrupt, Vec::new())).or_default().push(name(pod));
    }
    for pod in waiting.iter().filter(|pod| refused.stays_refused(&pod.uid)) {
        let guards = budgets.iter().filter(|budget| covers(budget, pod));
        let guards: Vec<String> =
            guards.map(|budget| format!("{}/{}", budget.meta.namespace, budget.meta.name)).collect();
        if guards.is_empty() && refused.was_guarded(&pod.uid) {
            continue;
        }
        found.entry((DrainObstacle::PodDisruptionBudget, guards)).or_default().push(name(pod));
    }
    found.into_iter().filter_map(|((by, names), objects)| block(by, names, objects)).collect()
}

/// The obstacle of volumes, if there are any.
pub(crate) fn of_volumes(attached: &[String]) -> Option<DrainBlock> {
    block(DrainObstacle::VolumeAttachment, Vec::new(), attached.to_vec())
}

fn block(by: DrainObstacle, names: Vec<String>, mut objects: Vec<String>) -> Option<DrainBlock> {
    objects.sort();
    let count = u32::try_from(objects.len()).unwrap_or(u32::MAX);
    Some(DrainBlock { by, names, first: objects.into_iter().next()?, count })
}
