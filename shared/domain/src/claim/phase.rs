//! The names of the states, their order, and the table of transitions.

crate::words! {
    /// A claim's state without its data. The order is the order of life. The table, `tenon get` and the journal have
    /// its word.
    pub enum ClaimPhase {
        /// Committed with its launch, without EC2's answer. The launch knows whether it was sent.
        Planned,
        /// EC2 gave no instance for it. Final: its pods are pending again.
        LaunchFailed,
        /// It has an instance.
        Launched,
        /// Its instance's Node joined the cluster and carries the claim's labels and taints.
        Registered,
        /// The Node is Ready, startup taints are removed, requested resources are registered.
        Initialized,
        /// A disruption command holds it: it still serves until its replacements do.
        Disrupting,
        /// Its pods are being evicted.
        Draining,
        /// The drain is complete: no evictable pod is left.
        Drained,
        /// Tenon terminates its instance.
        Terminating,
        /// Its instance doesn't exist any longer. Final.
        Terminated,
    }
}

impl ClaimPhase {
    /// Whether nothing can follow.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::LaunchFailed | Self::Terminated)
    }

    /// Whether it will offer, or offers, room to pods: before it is on its way out.
    #[must_use]
    pub const fn offers_room(self) -> bool {
        matches!(self, Self::Planned | Self::Launched | Self::Registered | Self::Initialized)
    }

    /// Whether disruption budgets count its Node: it was initialised or is going, and its instance isn't terminated yet.
    #[must_use]
    pub const fn counts_in_budgets(self) -> bool {
        matches!(self, Self::Initialized | Self::Disrupting | Self::Draining | Self::Drained)
    }

    /// Whether it got an instance that may still run.
    #[must_use]
    pub const fn has_instance(self) -> bool {
        !matches!(self, Self::Planned | Self::LaunchFailed | Self::Terminated)
    }
}

/// The table of transitions: whether `to` may follow `from`. One goes back: a claim that a disruption command gives up.
#[must_use]
pub const fn may_follow(from: ClaimPhase, to: ClaimPhase) -> bool {
    use ClaimPhase as P;
    match from {
        P::Planned => matches!(to, P::LaunchFailed | P::Launched),
        // Terminating: nothing to drain, the Node never joined. Terminated: the instance went by itself.
        P::Launched => matches!(to, P::Registered | P::Draining | P::Terminating | P::Terminated),
        P::Registered => matches!(to, P::Initialized | P::Draining | P::Terminated),
        P::Initialized => matches!(to, P::Disrupting | P::Draining | P::Terminated),
        P::Disrupting => matches!(to, P::Initialized | P::Draining | P::Terminated),
        // Terminating: the deadline of the drain passed.
        P::Draining => matches!(to, P::Drained | P::Terminating | P::Terminated),
        P::Drained => matches!(to, P::Terminating | P::Terminated),
        P::Terminating => matches!(to, P::Terminated),
        P::LaunchFailed | P::Terminated => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole matrix: a row is a state, a column its possible successor.
    #[test]
    fn the_matrix_of_transitions() {
        let mut matrix = String::from("from \\ to     ");
        for to in ClaimPhase::ALL {
            matrix.push_str(&format!("{:>13}", to.as_str()));
        }
        for from in ClaimPhase::ALL {
            matrix.push_str(&format!("\n{:<14}", from.as_str()));
            for to in ClaimPhase::ALL {
                matrix.push_str(&format!("{:>13}", if may_follow(from, to) { "yes" } else { "." }));
            }
        }
        insta::assert_snapshot!(matrix);
    }

    #[test]
    fn one_transition_goes_back_and_none_stays() {
        for from in ClaimPhase::ALL {
            for to in ClaimPhase::ALL {
                let given_back = (from, to) == (ClaimPhase::Disrupting, ClaimPhase::Initialized);
                assert!(!may_follow(from, to) || to > from || given_back, "{from} -> {to}");
            }
        }
    }

    #[test]
    fn every_state_but_the_final_ones_leads_on() {
        for from in ClaimPhase::ALL {
            let leads_on = ClaimPhase::ALL.into_iter().any(|to| may_follow(from, to));
            assert_eq!(leads_on, !from.is_final(), "{from}");
        }
    }
}
