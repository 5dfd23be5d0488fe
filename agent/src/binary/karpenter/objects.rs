//! Nodes and NodeClaims that are gone.
//!
//! Decides which of them count: Tenon's, deleted and held by the finalizer until then. Their times are the API server's;
//! their end is seen within a look.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::labels;
use tenon_snapshot::object::{self, Object};

use super::look::ClusterLook;
use crate::faces::is_ours;
use crate::plan::CLAIM_ANNOTATION;

/// An object that is gone.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ObjectEnd {
    /// A Node.
    Node {
        /// Its NodePool.
        pool: String,
        /// Its zone.
        zone: String,
        /// From its deletion to its end.
        termination_seconds: f64,
        /// From its creation to its end.
        lifetime_seconds: Option<f64>,
    },
    /// A NodeClaim.
    NodeClaim {
        /// Its NodePool.
        pool: String,
        /// From its deletion to its end.
        termination_seconds: f64,
    },
}

/// The objects that are gone since the look before.
pub(super) fn ended_objects(before: &ClusterLook, after: &ClusterLook, now: Timestamp) -> Vec<ObjectEnd> {
    let nodes = gone(&before.nodes, &after.nodes).filter_map(|node| {
        let mut annotations = object::texts(node, "/metadata/annotations");
        annotations.find(|(key, _)| *key == CLAIM_ANNOTATION)?;
        let created = object::time(node, "/metadata/creationTimestamp");
        Some(ObjectEnd::Node {
            pool: label(node, labels::NODEPOOL),
            zone: label(node, labels::ZONE),
            termination_seconds: seconds(object::deleted_at(node)?, now),
            lifetime_seconds: created.map(|at| seconds(at, now)),
        })
    });
    let claims = gone(&before.claims, &after.claims).filter(|claim| is_ours(claim));
    let claims = claims.filter_map(|claim| {
        let termination_seconds = seconds(object::deleted_at(claim)?, now);
        Some(ObjectEnd::NodeClaim { pool: label(claim, labels::NODEPOOL), termination_seconds })
    });
    nodes.chain(claims).collect()
}

/// Objects that aren't there any longer, and that the finalizer held.
fn gone<'a>(before: &'a [Object], after: &[Object]) -> impl Iterator<Item = &'a Object> {
    let stay: BTreeSet<String> = after.iter().map(|object| object::uid(object).to_owned()).collect();
    let held = |object: &&Object| {
        let finalizers = object::list(object, "/metadata/finalizers");
        finalizers.iter().any(|finalizer| finalizer == labels::TERMINATION_FINALIZER)
    };
    before.iter().filter(held).filter(move |object| !stay.contains(object::uid(object)))
}

/// The value of a label; empty where it is missing.
pub(super) fn label(object: &Object, key: &str) -> String {
    let found = object::texts(object, "/metadata/labels").find(|(one, _)| *one == key);
    found.map(|(_, value)| value.to_owned()).unwrap_or_default()
}

/// The time between, never negative: clocks differ.
pub(super) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}
