//! What a drain can't get past by itself.
//!
//! Decides the words. The agent finds the obstacles, `lifecycle` decides when a person is told of them.

use jiff::SignedDuration;

use crate::labels::DO_NOT_DISRUPT;

/// How long a drained Node's volumes may take to be detached. The peer waits for ever; the end of an instance detaches
/// its volumes too.
pub const DETACHED_WITHIN: SignedDuration = SignedDuration::from_mins(10);

crate::words! {
    /// The kind of an obstacle.
    pub enum DrainObstacle {
        /// A PodDisruptionBudget refuses the eviction of pods.
        PodDisruptionBudget,
        /// Pods have the annotation `karpenter.sh/do-not-disrupt`.
        DoNotDisrupt,
        /// Volumes of pods that are gone are still attached.
        VolumeAttachment,
    }
}

/// One obstacle, and what it keeps on the Node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrainBlock {
    /// Its kind.
    pub by: DrainObstacle,
    /// Names of the PodDisruptionBudgets, with their namespace.
    pub names: Vec<String>,
    /// The first pod, with its namespace, or the first volume.
    pub first: String,
    /// How many pods or volumes there are.
    pub count: u32,
}

impl DrainBlock {
    /// What is in the way, and what would help.
    #[must_use]
    pub fn words(&self) -> String {
        let first = &self.first;
        let others = match self.count.saturating_sub(1) {
            0 => String::new(),
            1 => " and 1 other".to_owned(),
            more => format!(" and {more} others"),
        };
        match self.by {
            DrainObstacle::PodDisruptionBudget => {
                let budgets = match self.names.as_slice() {
                    [] => "a PodDisruptionBudget keeps".to_owned(),
                    [one] => format!("PodDisruptionBudget `{one}` keeps"),
                    several => format!("PodDisruptionBudgets `{}` keep", several.join("` and `")),
                };
                // The eviction API refuses pods of two budgets, whatever these allow.
                let remedy = if self.names.len() > 1 {
                    "let one of them select its pods"
                } else {
                    "make its other pods Ready, add replicas, or allow a disruption"
                };
                format!("{budgets} pod `{first}`{others}: {remedy}")
            }
            DrainObstacle::DoNotDisrupt => {
                format!(
                    "the annotation `{DO_NOT_DISRUPT}` keeps pod `{first}`{others}: remove it, or delete the pod"
                )
            }
            DrainObstacle::VolumeAttachment => {
                let minutes = DETACHED_WITHIN.as_mins();
                let are = if self.count > 1 { "are" } else { "is" };
                format!(
                    "volume `{first}`{others} {are} still attached: see its VolumeAttachment, which the drain \
                     waits {minutes} minutes for"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_obstacle_says_what_it_keeps_and_what_helps() {
        let check = |by, names: &[&str], count, expected: &str| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(DrainBlock { by, names, first: "a/web-1".to_owned(), count }.words(), expected);
        };
        check(
            DrainObstacle::PodDisruptionBudget,
            &["a/web"],
            3,
            "PodDisruptionBudget `a/web` keeps pod `a/web-1` and 2 others: make its other pods Ready, add replicas, \
             or allow a disruption",
        );
        check(
            DrainObstacle::PodDisruptionBudget,
            &["a/all", "a/web"],
            1,
            "PodDisruptionBudgets `a/all` and `a/web` keep pod `a/web-1`: let one of them select its pods",
        );
        check(
            DrainObstacle::DoNotDisrupt,
            &[],
            2,
            "the annotation `karpenter.sh/do-not-disrupt` keeps pod `a/web-1` and 1 other: remove it, or delete the \
             pod",
        );
        check(
            DrainObstacle::VolumeAttachment,
            &[],
            1,
            "volume `a/web-1` is still attached: see its VolumeAttachment, which the drain waits 10 \
             minutes for",
        );
        check(
            DrainObstacle::VolumeAttachment,
            &[],
            2,
            "volume `a/web-1` and 1 other are still attached: see its VolumeAttachment, which the drain waits 10 \
             minutes for",
        );
    }
}
