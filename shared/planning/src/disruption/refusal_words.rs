//! The longer sentences of refusals.
//!
//! Decides the words alone: what keeps a node, and what would end that.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{NamespacedName, NodePoolName};
use tenon_domain::labels::{MINIMUM_NODE_LIFETIME, MINIMUM_SAVINGS, MOVED_PODS_REST, PAUSE_DISRUPTION};
use tenon_domain::report::counted;
use tenon_domain::savings::MinimumSavings;

use super::DisruptionPause;

/// Why no spot node replaces another.
pub(super) const SPOT_TO_SPOT_DISABLED: &str = "another spot node would be cheaper, and the cluster's gate \
     `SpotToSpotConsolidation` is off: `SpotToSpotConsolidation=Enabled` of its stack opens it";

pub(super) fn paused(f: &mut fmt::Formatter<'_>, pool: &NodePoolName, by: DisruptionPause) -> fmt::Result {
    match by {
        DisruptionPause::Annotation => write!(
            f,
            "annotation `{PAUSE_DISRUPTION}` of NodePool `{pool}` pauses voluntary disruption: remove it to end that"
        ),
        DisruptionPause::Setting => f.write_str(
            "`VoluntaryDisruption=Disabled` of the cluster's stack pauses voluntary disruption: `Enabled` ends that",
        ),
    }
}

pub(super) fn kept_by(
    f: &mut fmt::Formatter<'_>,
    pod: Option<&NamespacedName>,
    until: Option<Timestamp>,
) -> fmt::Result {
    match pod {
        Some(pod) => write!(f, "pod `{pod}` has `karpenter.sh/do-not-disrupt`")?,
        None => f.write_str("the node has `karpenter.sh/do-not-disrupt`")?,
    }
    match until {
        Some(until) => write!(f, " until `{until}`"),
        None => f.write_str(": remove the annotation to allow it"),
    }
}

pub(super) fn blocked_by(f: &mut fmt::Formatter<'_>, pod: &NamespacedName, pdbs: &[String]) -> fmt::Result {
    match pdbs {
        [] | [_] => write!(
            f,
            "PodDisruptionBudget `{}` doesn't allow evicting pod `{pod}`: make its other pods Ready, add replicas, or allow a \
             disruption",
            pdbs.concat()
        ),
        several => write!(
            f,
            "several PodDisruptionBudgets, `{}`, select pod `{pod}`, so that it can't be evicted: let one of them select its \
             pods",
            several.join("` and `")
        ),
    }
}

pub(super) fn saves_too_little(
    f: &mut fmt::Formatter<'_>,
    pool: &NodePoolName,
    hundredths: u64,
    least: MinimumSavings,
) -> fmt::Result {
    match hundredths / 100 {
        0 => f.write_str("cheaper nodes for its pods would save less than 1 %")?,
        percent => write!(f, "cheaper nodes for its pods would save {percent} %")?,
    }
    write!(f, ", and NodePool `{pool}` asks for {least}: annotation `{MINIMUM_SAVINGS}` changes that")
}

pub(super) fn moved_lately(
    f: &mut fmt::Formatter<'_>,
    pool: &NodePoolName,
    moved: usize,
    rest: SignedDuration,
) -> fmt::Result {
    write!(
        f,
        "{} moved within the last {rest:#} for cheaper nodes, and another move so soon doesn't save enough: NodePool `{pool}`'s \
         annotation `{MOVED_PODS_REST}` changes that",
        counted(moved, "of its pods", "of its pods")
    )
}

pub(super) fn too_young(
    f: &mut fmt::Formatter<'_>,
    pool: &NodePoolName,
    lifetime: SignedDuration,
    until: Timestamp,
) -> fmt::Result {
    write!(
        f,
        "annotation `{MINIMUM_NODE_LIFETIME}` of NodePool `{pool}` keeps its nodes for {lifetime:#}, this one until `{until}`"
    )
}
