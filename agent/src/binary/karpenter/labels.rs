//! Labels and values as Karpenter writes them.
//!
//! Decides the spelling alone.

use prometheus_client::encoding::EncodeLabelSet;
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::ResourceName;

/// Labels of one sample, without empty ones.
pub(super) type LabelPairs<'a> = Vec<(&'static str, &'a str)>;

/// The labels that have a value.
pub(super) fn filled<'a>(pairs: impl IntoIterator<Item = (&'static str, &'a str)>) -> LabelPairs<'a> {
    pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// A resource's name as a label: `ephemeral_storage`.
pub(super) fn resource_type(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// A quantity: cores to the thousandth, other resources in whole units.
pub(super) fn amount(name: &ResourceName, quantity: Quantity) -> f64 {
    if *name == ResourceName::CPU {
        quantity.milli_ceil() as f64 / 1_000.0
    } else {
        quantity.value_ceil() as f64
    }
}

/// A word of Kubernetes in snake case: `SpotInterrupted` as `spot_interrupted`.
pub(super) fn snake_case(word: &str) -> String {
    let mut snake = String::with_capacity(word.len() + 4);
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() && !snake.ends_with('_') {
            snake.push('_');
        }
        snake.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    }
    snake
}

/// A NodePool.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct PoolLabels {
    pub(super) nodepool: String,
}

/// A NodePool's nodes in a zone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ZoneLabels {
    pub(super) nodepool: String,
    pub(super) zone: String,
}

/// A NodeClaim that was made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CreatedLabels {
    pub(super) reason: String,
    pub(super) nodepool: String,
    pub(super) min_values_relaxed: String,
}

/// A NodeClaim that goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DisruptedLabels {
    pub(super) reason: String,
    pub(super) nodepool: String,
    pub(super) capacity_type: String,
    pub(super) consolidation_policy: String,
    pub(super) termination_mode: String,
}

/// A NodeClaim that is gone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TerminatedLabels {
    pub(super) nodepool: String,
    pub(super) capacity_type: String,
    pub(super) zone: String,
}

/// An answer of the eviction API.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct CodeLabels {
    pub(super) code: &'static str,
}

/// Why a pod was evicted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct DrainLabels {
    pub(super) reason: String,
}

/// The build.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BuildLabels {
    pub(super) version: &'static str,
    pub(super) goarch: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_spelled_as_the_peer_spells_them() {
        for (word, expected) in [
            ("SpotInterrupted", "spot_interrupted"),
            ("WhenEmptyOrUnderutilized", "when_empty_or_underutilized"),
            ("Balanced", "balanced"),
            ("LaunchTemplateNotFound", "launch_template_not_found"),
            ("Server.Internal", "server_internal"),
        ] {
            assert_eq!(snake_case(word), expected);
        }
        assert_eq!(resource_type("ephemeral-storage"), "ephemeral_storage");
    }
}
