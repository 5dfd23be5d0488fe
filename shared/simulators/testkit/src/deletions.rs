//! The invariant of deleted Nodes and NodeClaims.
//!
//! Decides from the cluster's objects alone, and from the times at which its agent ran.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::at;

use crate::invariants::Invariant;

/// How soon an agent without other work looks at a deletion.
pub(crate) const TAINTED_WITHIN: SignedDuration = SignedDuration::from_secs(3);

/// A Node that is deleted, or whose NodeClaim is, has the taint `karpenter.sh/disrupted:NoSchedule` after
/// [`TAINTED_WITHIN`], and an agent without other work looks within that time.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_deleted_are_tainted(
    region: &SimulatedRegion,
    cluster: &ClusterName,
) -> Result<(), (Invariant, String)> {
    let Some(site) = region.site(cluster) else { return Ok(()) };
    let claims = site.cluster().objects(Kind::NodeClaim);
    let claims: BTreeMap<&str, Timestamp> = claims
        .iter()
        .filter(|claim| at(claim, "/metadata/annotations/tenon.dev~1launch").is_some())
        .filter_map(|claim| Some((text(claim, "/metadata/name")?, deleted_at(claim)?)))
        .collect();
    for node in site.cluster().objects(Kind::Node) {
        let Some(claim) = text(&node, "/metadata/annotations/tenon.dev~1nodeclaim") else { continue };
        let deleted = [deleted_at(&node), claims.get(claim).copied()].into_iter().flatten().min();
        let Some(deleted) = deleted else { continue };
        let name = text(&node, "/metadata/name").unwrap_or_default();
        let late = site.agent_free_since().is_some_and(|free| {
            region.now().duration_since(free.max(deleted)) > TAINTED_WITHIN && site.agent_begun_at() < deleted
        });
        // A conflict during tainting is repeated within this time.
        let looked = site.agent_looked_at().duration_since(deleted) > TAINTED_WITHIN;
        if late || (looked && !is_tainted(&node)) {
            let text = format!(
                "Node {name} of NodeClaim {claim} is deleted since {deleted}: its taint is late or missing"
            );
            return Err((Invariant::DeletedAreTainted, text));
        }
    }
    Ok(())
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    at(object, pointer).and_then(Value::as_str)
}

fn deleted_at(object: &Value) -> Option<Timestamp> {
    text(object, "/metadata/deletionTimestamp")?.parse().ok()
}

fn is_tainted(node: &Value) -> bool {
    let taints = at(node, "/spec/taints").and_then(Value::as_array).into_iter().flatten();
    let mut taints = taints.map(|taint| (text(taint, "/key"), text(taint, "/effect")));
    taints.any(|taint| taint == (Some("karpenter.sh/disrupted"), Some("NoSchedule")))
}
