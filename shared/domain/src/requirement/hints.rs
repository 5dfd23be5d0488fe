//! Suggestions: the nearest known word, the label behind a typo.
//!
//! Decides only the suggestion. Nothing is ever corrected silently.

use crate::labels;

/// The candidate nearest to a text, by edit distance without regard to case; `None` if none is near.
///
/// Near is at most a third of the longer of the two; of equally near ones the first wins.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&text, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| distance * 3 <= text.len().max(candidate.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The probable label for an undefined key: a well-known one, or one of `defined`.
///
/// The last part of the key decides (`zone`, `example.com/zone` -> `topology.kubernetes.io/zone`), then the edit
/// distance over the whole key, at most a fifth of the label.
pub fn label_hint<'a>(key: &str, defined: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name(key);
    labels::well_known()
        .map(|label| -> &'a str { label })
        .chain(defined)
        .filter(|label| *label != key)
        .filter_map(|label| {
            let distance = strsim::damerau_levenshtein(key, label);
            let same_name = !wanted.is_empty() && (name(label) == wanted || ends_in(label, wanted));
            let near = distance * 5 <= label.len();
            (same_name || near).then_some((name(label) != wanted, distance, label))
        })
        .min()
        .map(|(_, _, label)| label)
}

/// The part of a key after its domain.
fn name(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}

/// `instance-cpu` ends in the words `cpu`.
fn ends_in(label: &str, words: &str) -> bool {
    label.strip_suffix(words).is_some_and(|rest| rest.ends_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_words_are_found_and_far_ones_are_not() {
        let words = ["In", "NotIn", "Exists", "DoesNotExist"];
        assert_eq!(nearest("notin", words), Some("NotIn"));
        assert_eq!(nearest("Exist", words), Some("Exists"));
        assert_eq!(nearest("DoesNotExists", words), Some("DoesNotExist"));
        assert_eq!(nearest("Between", words), None);
    }

    #[test]
    fn c005_typo_hints() {
        for (key, expected) in [
            ("zone", Some("topology.kubernetes.io/zone")),
            ("region", Some("topology.kubernetes.io/region")),
            ("karpenter/nodepool", Some("karpenter.sh/nodepool")),
            ("nodepool", Some("karpenter.sh/nodepool")),
            ("capacity-type", Some("karpenter.sh/capacity-type")),
            ("karpenter.io/capacity-type", Some("karpenter.sh/capacity-type")),
            ("topology.kubernetesio/zone", Some("topology.kubernetes.io/zone")),
            ("topology.kubernetes.io/zones", Some("topology.kubernetes.io/zone")),
            ("node.kubernetes.io/instancetype", Some("node.kubernetes.io/instance-type")),
            ("kubernetes.io/architecture", None),
            ("arch", Some("kubernetes.io/arch")),
            ("deployment", None),
        ] {
            assert_eq!(label_hint(key, []), expected, "{key}");
        }
    }

    #[test]
    fn labels_of_the_node_pool_are_suggested_too() {
        assert_eq!(label_hint("taem", ["team"]), None);
        assert_eq!(label_hint("example.com/taem", ["example.com/team"]), Some("example.com/team"));
        assert_eq!(label_hint("team", ["example.com/team"]), Some("example.com/team"));
    }
}
