//! The end of an EC2NodeClass: a deleted one stays while NodeClaims use it.
//!
//! Decides when its finalizer is set and removed, and what a person is told meanwhile. Nothing is launched from a class
//! that is being deleted: `provisioner` sees to that.
//!
//! Source: aws/karpenter-provider-aws `pkg/controllers/nodeclass/controller.go` (`finalize`).

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::labels::EC2NODECLASS_FINALIZER;
use tenon_domain::report::{CLASS_IN_USE, stays_while_used};
use tenon_snapshot::object::{self, Kind, ObjectKey};
use tenon_snapshot::{Note, NoteKind};

use super::conditions::{self, ShownCondition};
use super::news::News;
use super::ops::{released, with_finalizer};
use super::{Faces, ShownObjects, meant_class};
use crate::decided::Decided;

/// How long a launch may be planned by functions that didn't see the deletion yet.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(20);

/// Plans a class's finalizer; returns the condition of one that waits.
pub(super) fn plan_class_end(
    class: &Value,
    decided: &Decided,
    shown: &ShownObjects,
    now: Timestamp,
    faces: &mut Faces,
) -> Option<Value> {
    let name = object::name(class);
    let Some(deleted_at) = object::deleted_at(class) else {
        // Before the functions know a class, nothing is launched from it.
        let is_known = decided.classes.iter().any(|known| known.name.as_str() == name);
        faces.ops.extend(with_finalizer(class, EC2NODECLASS_FINALIZER).filter(|_| is_known));
        return None;
    };
    let users = users(name, decided, shown);
    if users.is_empty() {
        let is_settled = now.duration_since(deleted_at) >= SEEN_WITHIN || !has_pool(name, shown);
        faces.ops.extend(released(class, EC2NODECLASS_FINALIZER).filter(|_| is_settled));
        return None;
    }
    let message = format!("it is being deleted, and {}", stays_while_used(&users));
    faces.news.push(News {
        of: format!("{CLASS_IN_USE} {}", object::uid(class)),
        at: deleted_at,
        note: Note {
            about: ObjectKey::new(Kind::Ec2NodeClass, "", name),
            uid: object::uid(class).to_owned(),
            kind: NoteKind::Normal,
            reason: CLASS_IN_USE.to_owned(),
            message: message.clone(),
        },
    });
    Some(conditions::form(ShownCondition {
        kind: "tenon.dev/Waiting",
        status: "True",
        reason: CLASS_IN_USE,
        message: &message,
        since: deleted_at,
        generation: object::at(class, "/metadata/generation").and_then(Value::as_u64).unwrap_or_default(),
    }))
}

/// NodeClaims of the class, other controllers' too.
fn users<'a>(class: &str, decided: &'a Decided, shown: &'a ShownObjects) -> BTreeSet<&'a str> {
    let claims =
        decided.claims.values().filter(|claim| claim.class.as_str() == class && !claim.phase().is_final());
    let refers = |claim: &&object::Object| meant_class(claim, "/spec") == Some(class);
    let objects = shown.claims.iter().filter(refers).map(|claim| object::name(claim));
    claims.map(|claim| claim.name.as_str()).chain(objects).collect()
}

/// Whether a NodePool launches from the class.
fn has_pool(class: &str, shown: &ShownObjects) -> bool {
    let refers = |pool: &object::Object| meant_class(pool, "/spec/template/spec") == Some(class);
    shown.pools.iter().any(refers)
}
