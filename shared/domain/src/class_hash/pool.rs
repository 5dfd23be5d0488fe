//! The hash of a NodePool's template: equal to Karpenter's by the same way of hashing, version `v3`.
//!
//! Decides which parts of the template are hashed: all but requirements, which are compared with a node's labels.
//!
//! Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodepool.go`, `nodeclaim.go`.

use std::collections::BTreeMap;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use jiff::SignedDuration;

use super::{FieldDigests, POOL_HASH_VERSION, digests, fold};
use crate::api::node_pool::{NodeClaimTemplate, NodeClassRef};
use crate::labels;
use crate::taint::Taint;

/// The hash of a NodePool's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolHash(u64);

impl PoolHash {
    /// Hashes a template.
    #[must_use]
    pub fn of(template: &NodeClaimTemplate) -> Self {
        let meta = fold::structure(
            "ObjectMeta",
            [("Labels", map(&template.labels)), ("Annotations", map(&template.annotations))]
                .into_iter()
                .filter_map(present),
        );
        let has_meta = !template.labels.is_empty() || !template.annotations.is_empty();
        let spec = [
            ("Taints", taints(&template.taints)),
            ("StartupTaints", taints(&template.startup_taints)),
            ("NodeClassRef", Some(class_ref(&template.node_class))),
            ("TerminationGracePeriod", template.termination_grace_period.map(|of| duration("Duration", of))),
            ("ExpireAfter", template.expire_after.map(|of| duration("NillableDuration", of))),
        ];
        let spec = fold::structure("NodeClaimTemplateSpec", spec.into_iter().filter_map(present));
        let parts = [("ObjectMeta", has_meta.then_some(meta)), ("Spec", Some(spec))];
        Self(fold::structure("NodeClaimTemplate", parts.into_iter().filter_map(present)))
    }
}

impl PoolHash {
    /// The annotations of a NodePool with this hash, of its NodeClaims and of their Nodes.
    #[must_use]
    pub fn annotations(self) -> [(&'static str, String); 2] {
        [
            (labels::NODEPOOL_HASH, self.to_string()),
            (labels::NODEPOOL_HASH_VERSION, POOL_HASH_VERSION.to_owned()),
        ]
    }
}

impl FieldDigests {
    /// The digests of a template's hashed fields.
    #[must_use]
    pub fn of_template(template: &NodeClaimTemplate) -> Self {
        let hashes = [
            map(&template.labels),
            map(&template.annotations),
            taints(&template.taints),
            taints(&template.startup_taints),
            Some(class_ref(&template.node_class)),
            template.termination_grace_period.map(|of| duration("Duration", of)),
            template.expire_after.map(|of| duration("NillableDuration", of)),
        ];
        Self::of(hashes.map(digests::short))
    }
}

fn present((name, hash): (&'static str, Option<u64>)) -> Option<(&'static str, u64)> {
    Some((name, hash?))
}

fn map(texts: &BTreeMap<String, String>) -> Option<u64> {
    let entries = texts.iter().map(|(key, value)| (fold::text(key), fold::text(value)));
    (!texts.is_empty()).then(|| fold::map(entries))
}

fn taints(taints: &[Taint]) -> Option<u64> {
    let one = |taint: &Taint| {
        let fields =
            [("Key", taint.key.as_str()), ("Value", &taint.value), ("Effect", taint.effect.as_str())];
        structure_of_texts("Taint", &fields)
    };
    (!taints.is_empty()).then(|| fold::list(taints.iter().map(one)))
}

fn class_ref(of: &NodeClassRef) -> u64 {
    let fields = [("Kind", of.kind.as_str()), ("Name", of.name.as_str()), ("Group", of.group.as_str())];
    structure_of_texts("NodeClassReference", &fields)
}

fn structure_of_texts(name: &str, fields: &[(&'static str, &str)]) -> u64 {
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    fold::structure(name, given.map(|(field, value)| (*field, fold::text(value))))
}

fn duration(name: &str, of: SignedDuration) -> u64 {
    let nanos = i64::try_from(of.as_nanos()).unwrap_or(i64::MAX);
    fold::structure(name, [("Duration", fold::bytes(nanos.to_le_bytes()))].into_iter())
}

/// Decimal, as Karpenter writes it.
impl fmt::Display for PoolHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PoolHash {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest;

    fn read(template: &str) -> NodeClaimTemplate {
        let text = format!(
            "{{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {{name: default}}, spec: {{template: {template}}}}}"
        );
        let read = manifest::read_files(&[("pool.yaml", &text)]).unwrap();
        read.manifests.node_pools[0].template.clone()
    }

    fn hash(template: &str) -> PoolHash {
        PoolHash::of(&read(template))
    }

    const CLASS: &str =
        "requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}";

    #[test]
    fn a_hash_changes_with_all_of_the_template_but_its_requirements() {
        let plain = hash(&format!("{{spec: {{{CLASS}}}}}"));
        let same = [
            format!("{{metadata: {{labels: {{}}}}, spec: {{{CLASS}, taints: []}}}}"),
            format!("{{spec: {{{CLASS}, expireAfter: 720h}}}}"),
            format!(
                "{{spec: {{{}}}}}",
                CLASS.replace("[]", "[{key: kubernetes.io/arch, operator: In, values: [arm64]}]")
            ),
        ];
        for template in same {
            assert_eq!(hash(&template), plain, "{template}");
        }
        let other = [
            format!("{{metadata: {{labels: {{team: a}}}}, spec: {{{CLASS}}}}}"),
            format!("{{metadata: {{annotations: {{team: a}}}}, spec: {{{CLASS}}}}}"),
            format!("{{spec: {{{CLASS}, taints: [{{key: a, effect: NoSchedule}}]}}}}"),
            format!("{{spec: {{{CLASS}, startupTaints: [{{key: a, effect: NoSchedule}}]}}}}"),
            format!("{{spec: {{{CLASS}, expireAfter: Never}}}}"),
            format!("{{spec: {{{CLASS}, expireAfter: 719h}}}}"),
            format!("{{spec: {{{CLASS}, terminationGracePeriod: 30s}}}}"),
            format!("{{spec: {{{}}}}}", CLASS.replace("name: default", "name: other")),
        ];
        let mut seen = std::collections::BTreeSet::from([plain]);
        for template in other {
            assert!(seen.insert(hash(&template)), "{template}");
        }
    }

    #[test]
    fn an_edit_is_named_by_its_fields() {
        let plain = FieldDigests::of_template(&read(&format!("{{spec: {{{CLASS}}}}}")));
        let check = |template: &str, expected: &[&str]| {
            let edited = FieldDigests::of_template(&read(template));
            assert_eq!(plain.changed_in_template(&edited), expected, "{template}");
        };
        check(&format!("{{spec: {{{CLASS}, expireAfter: 720h, taints: []}}}}"), &[]);
        check(&format!("{{metadata: {{labels: {{team: a}}}}, spec: {{{CLASS}}}}}"), &["metadata.labels"]);
        check(
            &format!("{{metadata: {{annotations: {{team: a}}}}, spec: {{{CLASS}}}}}"),
            &["metadata.annotations"],
        );
        check(&format!("{{spec: {{{CLASS}, taints: [{{key: a, effect: NoSchedule}}]}}}}"), &["spec.taints"]);
        check(
            &format!("{{spec: {{{CLASS}, startupTaints: [{{key: a, effect: NoSchedule}}]}}}}"),
            &["spec.startupTaints"],
        );
        check(
            &format!("{{spec: {{{CLASS}, expireAfter: Never, terminationGracePeriod: 30s}}}}"),
            &["spec.terminationGracePeriod", "spec.expireAfter"],
        );
        check(
            &format!("{{spec: {{{}}}}}", CLASS.replace("name: default", "name: other")),
            &["spec.nodeClassRef"],
        );
    }

    #[test]
    fn a_hash_is_read_as_it_is_written() {
        let plain = hash(&format!("{{spec: {{{CLASS}}}}}"));
        assert_eq!(plain.to_string().parse(), Ok(plain));
    }
}
