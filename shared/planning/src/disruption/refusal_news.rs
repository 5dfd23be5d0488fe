//! Which refusals of a node are news.
//!
//! Decides the cause of a refusal, whose change makes it another one, and the time of its next try, whose change doesn't.
//! It doesn't decide the words, nor when a refusal is told again.

use jiff::Timestamp;
use tenon_domain::report::Shown;

use super::RefusalReason;
use crate::provision::Unschedulable;

impl RefusalReason {
    /// What keeps the pods of the node from others, if they have no place there, or what its pool asks for: another cause
    /// is news.
    pub(super) fn cause(&self) -> String {
        match self {
            Self::Unschedulable { pods } => pods.first().map_or("", |pod| pod.reason().into_str()).to_owned(),
            // An edit of the NodePool's annotation is answered at once.
            Self::SavesTooLittle { least, currency, .. } => least.words(*currency),
            Self::MovedLately { rest, .. } => format!("{rest:#}"),
            Self::TooYoung { lifetime, .. } => format!("{lifetime:#}"),
            Self::DriftsAgain { .. }
            | Self::NotReplacedLately { .. }
            | Self::ClusterBudgetExhausted { .. }
            | Self::BudgetExhausted { .. }
            | Self::DoNotDisrupt { .. }
            | Self::BlockedByPdb { .. }
            | Self::TooManyReplacements { .. }
            | Self::PoolNotFound { .. }
            | Self::Paused { .. }
            | Self::Undone { .. }
            | Self::SpotToSpotDisabled
            | Self::TooFewSpotTypes { .. }
            | Self::MinValuesUnmet { .. }
            | Self::Unbalanced { .. } => String::new(),
        }
    }

    /// How Kubernetes shows it besides an Event.
    pub(super) const fn shown(&self) -> Shown {
        if matches!(self, Self::DriftsAgain { .. }) { Shown::DriftsAgain } else { Shown::Event }
    }

    /// When the node is tried again by itself, where that is known.
    pub(super) fn next_try(&self) -> Option<Timestamp> {
        match self {
            Self::DriftsAgain { until, .. } | Self::NotReplacedLately { until } | Self::Undone { until } => {
                Some(*until)
            }
            Self::Unschedulable { pods } => pods.iter().filter_map(Unschedulable::next_try).min(),
            Self::ClusterBudgetExhausted { .. }
            | Self::BudgetExhausted { .. }
            | Self::DoNotDisrupt { .. }
            | Self::BlockedByPdb { .. }
            | Self::TooManyReplacements { .. }
            | Self::PoolNotFound { .. }
            | Self::Paused { .. }
            | Self::SavesTooLittle { .. }
            | Self::MovedLately { .. }
            | Self::TooYoung { .. }
            | Self::SpotToSpotDisabled
            | Self::TooFewSpotTypes { .. }
            | Self::MinValuesUnmet { .. }
            | Self::Unbalanced { .. } => None,
        }
    }
}
