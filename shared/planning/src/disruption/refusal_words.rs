//! The longer sentences of refusals.
//!
//! Decides the words alone: what keeps a node, and what would end that.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::budget::{Budget, BudgetNodes, BudgetWindow};
use tenon_domain::id::{NamespacedName, NodePoolName};
use tenon_domain::labels::{MINIMUM_NODE_LIFETIME, MINIMUM_SAVINGS, MOVED_PODS_REST, PAUSE_DISRUPTION};
use tenon_domain::report::counted;
use tenon_domain::savings::percent;

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
        DisruptionPause::Karpenter => write!(
            f,
            "Karpenter runs, which has the same NodePools: condition `tenon.dev/Waiting` of NodePool `{pool}` says how to stop it"
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
        Some(until) => write!(f, " until `{until:.0}`"),
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

/// The budget that allows nothing, and what would change that.
pub(super) fn budget_closed(
    f: &mut fmt::Formatter<'_>,
    pool: &NodePoolName,
    closed: Option<&Budget>,
) -> fmt::Result {
    let Some(Budget { nodes, window, reasons }) = closed else {
        return write!(
            f,
            "the budgets of NodePool `{pool}` allow no disruption: edit `spec.disruption.budgets`"
        );
    };
    let mut when: Vec<String> = reasons.iter().map(|reason| format!("reason `{reason}`")).collect();
    if let Some(window) = window {
        when.push(format!("schedule `{}` for {:#}", window.schedule(), window.duration()));
    }
    let when = if when.is_empty() { String::new() } else { format!(" ({})", when.join(", ")) };
    write!(f, "the budget of {}{when} of NodePool `{pool}` allows no disruption", nodes_words(*nodes))?;
    match window.as_ref().map(BudgetWindow::problem) {
        None => f.write_str(": edit `spec.disruption.budgets`"),
        Some(None) => f.write_str(" now: wait until its time is over, or edit `spec.disruption.budgets`"),
        Some(Some(problem)) => {
            let problem = problem.trim_end_matches('.');
            write!(f, " until you correct it, because it can't be understood: {problem}")
        }
    }
}

fn nodes_words(nodes: BudgetNodes) -> String {
    match nodes {
        BudgetNodes::Count(count) => counted(count, "node", "nodes"),
        BudgetNodes::Percent(share) => format!("{share} % of the nodes"),
    }
}

/// A saving in tenths of a percent, as prices move all the time.
pub(super) fn rounded_percent(hundredths: u64) -> String {
    match hundredths / 10 {
        0 => "less than 0.1 %".to_owned(),
        tenths => percent(tenths.saturating_mul(10)),
    }
}

pub(super) fn saves_too_little(
    f: &mut fmt::Formatter<'_>,
    pool: &NodePoolName,
    saving: &str,
    least: &str,
) -> fmt::Result {
    write!(
        f,
        "moving its pods would save {saving}, and NodePool `{pool}` asks for {least}: annotation \
         `{MINIMUM_SAVINGS}` changes that"
    )
}

pub(super) fn unbalanced(
    f: &mut fmt::Formatter<'_>,
    pool: &NodePoolName,
    saved: u64,
    asked: u64,
) -> fmt::Result {
    write!(
        f,
        "moving its pods would save {} of the price of NodePool `{pool}`, and policy `Balanced` asks for {}, half \
         of their share of its pods' disruption: `consolidationPolicy: WhenEmptyOrUnderutilized` asks for less",
        percent(saved),
        percent(asked)
    )
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
        "annotation `{MINIMUM_NODE_LIFETIME}` of NodePool `{pool}` keeps its nodes for {lifetime:#}, this one until `{until:.0}`"
    )
}
