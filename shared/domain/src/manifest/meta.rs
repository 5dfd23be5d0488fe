//! `metadata`, and what every reader does first.
//!
//! Decides names, namespaces and the form of labels. It doesn't decide which labels a NodePool may set.

use crate::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use crate::id::{Uid, is_dns_subdomain};

use super::decode::{At, Fields};

/// Whether a kind's objects live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Namespaced,
    Cluster,
}

/// Fields of `metadata` (Kubernetes, ObjectMeta).
pub(super) const META_FIELDS: Fields<'static> = Fields::Only(&[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
]);

/// Reads `metadata` of an object; its name has to be there.
pub(super) fn read_meta(object: At<'_>, scope: Scope, fields: Fields<'_>) -> Option<ObjectMeta> {
    let at = object.required_object("metadata", fields)?;
    let name = at.required_text("name", "a name")?;
    if !is_dns_subdomain(&name) {
        if let Some(field) = at.field("name") {
            field.error(
                format!("`{name}` is not a name"),
                "write lower-case letters, digits, `-` and `.`, beginning and ending with a letter or digit",
            );
        }
        return None;
    }
    Some(ObjectMeta { name, ..read_parts(at, scope) })
}

/// `metadata` of a pod template: it has no name of its own.
pub(super) fn read_template_meta(template: At<'_>) -> ObjectMeta {
    template.object("metadata", Fields::Any).map(|at| read_parts(at, Scope::Namespaced)).unwrap_or_default()
}

fn read_parts(at: At<'_>, scope: Scope) -> ObjectMeta {
    let namespace = match scope {
        Scope::Namespaced => {
            at.text_of("namespace").filter(|n| !n.is_empty()).unwrap_or_else(|| "default".to_owned())
        }
        Scope::Cluster => String::new(),
    };
    ObjectMeta {
        name: String::new(),
        namespace,
        uid: at.field("uid").and_then(|uid| uid.id(Uid::parse)),
        labels: at.labels("labels"),
        annotations: at.text_map("annotations"),
        finalizers: at.texts("finalizers"),
        owners: read_owners(at),
        generation: at.integer_of("generation", 0..=i64::MAX).unwrap_or(0),
        created_at: at.timestamp("creationTimestamp"),
        deleted_at: at.timestamp("deletionTimestamp"),
    }
}

fn read_owners(at: At<'_>) -> Vec<OwnerReference> {
    let Some(list) = at.list("ownerReferences") else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            let role = match item.boolean("controller") {
                Some(true) => OwnerRole::Controller,
                Some(false) | None => OwnerRole::Owner,
            };
            Some(OwnerReference {
                kind: item.required_text("kind", "the owner's kind")?,
                name: item.required_text("name", "the owner's name")?,
                uid: item.text_of("uid").unwrap_or_default(),
                role,
            })
        })
        .collect()
}
