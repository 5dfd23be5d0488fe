//! Namespaces, as selectors of pods' rules see them.
//!
//! Decides their labels: those of the files, and the one that the API server gives every Namespace. A Namespace that only
//! pods name exists, with unknown labels.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::{ObjectMeta, Pod, PodShape};

/// The label that the API server sets to the Namespace's name (Kubernetes, `core.LabelMetadataName`).
const NAME: &str = "kubernetes.io/metadata.name";

/// The labels of all Namespaces, by name.
pub(super) fn labelled(
    given: Vec<ObjectMeta>,
    pods: &[Pod],
    warnings: &mut Vec<String>,
) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut known: BTreeMap<_, _> = given.into_iter().map(|meta| (meta.name, meta.labels)).collect();
    let named: BTreeSet<&str> = pods.iter().map(|pod| pod.shape.namespace.as_str()).collect();
    let absent: Vec<&str> = named.into_iter().filter(|name| !known.contains_key(*name)).collect();
    if !absent.is_empty() && pods.iter().any(|pod| asks_for_labels(&pod.shape)) {
        warnings.push(format!(
            "a `namespaceSelector` asks for labels of Namespaces, and the files lack `{}`: taking them to have no labels but \
             `{NAME}`; add them with `-f`",
            absent.join("`, `")
        ));
    }
    known.extend(absent.into_iter().map(|name| (name.to_owned(), BTreeMap::new())));
    for (name, labels) in &mut known {
        labels.insert(NAME.to_owned(), name.clone());
    }
    known
}

/// Whether a rule of the pod selects Namespaces by a label of their own.
fn asks_for_labels(shape: &PodShape) -> bool {
    let required = shape.required_pod_affinity.iter().chain(&shape.required_pod_anti_affinity);
    let preferred = shape.preferred_pod_affinity.iter().chain(&shape.preferred_pod_anti_affinity);
    let selectors =
        required.chain(preferred.map(|(_, term)| term)).filter_map(|term| term.namespace_selector.as_ref());
    selectors.flat_map(|selector| &selector.requirements).any(|asked| asked.key() != NAME)
}
