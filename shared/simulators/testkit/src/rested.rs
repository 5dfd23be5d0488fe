//! The invariant of `consolidateAfter`: a node goes for being empty only after its pods have been gone for that long.
//!
//! Decides from the cluster's pods and the NodePools. The table says only which node begins to drain, and why. Pods that come
//! and go within a step aren't seen.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::claim::{ClaimState, RemovalReason};
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{deleted_at, list, name, namespace, text};

use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};

/// How much earlier a node may go: functions use a snapshot of up to 90 s, and an agent reports within 10 s.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_secs(100);

/// The pods of each Node at the last step, and after which step one had left.
#[derive(Debug, Default)]
pub(crate) struct PodsSeen {
    at: Option<Timestamp>,
    pods: BTreeMap<String, BTreeSet<String>>,
    left: BTreeMap<String, Timestamp>,
    judged: BTreeSet<ClaimName>,
}

impl PodsSeen {
    fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let mut pods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let objects = region.site(cluster).map(|site| site.cluster().objects(Kind::Pod));
        for pod in objects.iter().flatten().filter(|pod| keeps_its_node(pod)) {
            if let Some(node) = text(pod, "/spec/nodeName") {
                let pods = pods.entry(node.to_owned()).or_default();
                pods.insert(format!("{}/{}", namespace(pod), name(pod)));
            }
        }
        let before = self.at.replace(region.now()).unwrap_or_else(|| region.now());
        for (node, had) in &self.pods {
            if had.iter().any(|pod| !pods.get(node).is_some_and(|has| has.contains(pod))) {
                self.left.insert(node.clone(), before);
            }
        }
        self.pods = pods;
    }
}

/// Pods of DaemonSets, finished pods and those that are being deleted keep no node.
fn keeps_its_node(pod: &Value) -> bool {
    let is_over = matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"));
    let is_of_daemon_set =
        list(pod, "/metadata/ownerReferences").iter().any(|owner| text(owner, "/kind") == Some("DaemonSet"));
    !is_over && !is_of_daemon_set && deleted_at(pod).is_none()
}

/// No node begins to drain for being empty before its pool's `consolidateAfter` has passed since a pod left it.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_consolidate_after_holds(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
    seen: &mut PodsSeen,
) -> Found {
    seen.look(region, cluster);
    let Some(reported) = region.reported(cluster) else { return Ok(()) };
    for claim in &moment.claims {
        let ClaimState::Draining { node: Some(node), reason: RemovalReason::Empty, at, .. } = &claim.state
        else {
            continue;
        };
        if !seen.judged.insert(claim.name.clone()) {
            continue;
        }
        let pool = reported.node_pools.iter().find(|pool| pool.name == claim.pool);
        let after = pool.and_then(|pool| pool.disruption.consolidate_after);
        let Some((after, left)) = after.zip(seen.left.get(node.as_str()).copied()) else { continue };
        if at.duration_since(left).saturating_add(SEEN_WITHIN) < after {
            let text = format!(
                "claim {} drains since {at} because it is empty, and a pod left its Node {node} after {left}: its pool asks for \
                 {after:#}",
                claim.name
            );
            return Err((Invariant::ConsolidateAfterHolds, text));
        }
    }
    Ok(())
}
