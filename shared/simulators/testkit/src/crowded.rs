//! Pods whose room on their claim's Node was taken by others.
//!
//! Decides from the actual cluster for which pods of a joined claim its Node lacked room at some step: beside its bound
//! pods, and those that the claim counts before them, which are pending or lose an interrupted node. It remembers them,
//! because a plan at that step was right, whatever leaves the Node afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::{Node, Pod};
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, InstanceId, NodeName, Uid};
use tenon_domain::launch::LaunchClaim;
use tenon_domain::manifest;
use tenon_domain::resources::ResourceList;
use tenon_simulated_cluster::SimulatedCluster;
use tenon_snapshot::Kind;

use crate::history::ClusterMoment;

/// The pods without room, with the claims that counted them.
#[derive(Debug, Default)]
pub struct CrowdedOut(BTreeSet<(ClaimName, Uid)>);

impl CrowdedOut {
    /// Whether the claim's Node lacked room for the pod at some step.
    #[must_use]
    pub fn holds(&self, claim: &ClaimName, pod: &Uid) -> bool {
        self.0.contains(&(claim.clone(), pod.clone()))
    }

    /// Looks at the Nodes of claims on which pods are counted that wait.
    pub fn observe(
        &mut self,
        moment: &ClusterMoment,
        waiting: &BTreeSet<String>,
        cluster: &SimulatedCluster,
    ) {
        let counted = moment.launches.iter().flat_map(|launch| &launch.claims);
        let mut claims =
            counted.filter(|claim| claim.pods.iter().any(|uid| waiting.contains(uid.as_str()))).peekable();
        if claims.peek().is_none() {
            return;
        }
        let pods = cluster.objects(Kind::Pod);
        let pods: Vec<Pod> = pods.iter().filter_map(|pod| manifest::pod_from_value(pod).ok()).collect();
        let nodes = cluster.objects(Kind::Node);
        let nodes: Vec<Node> = nodes.iter().filter_map(|node| manifest::node_from_value(node).ok()).collect();
        let interrupted = interrupted(moment);
        let displaced = nodes
            .iter()
            .filter(|node| node.provider_id.as_ref().is_some_and(|id| interrupted.contains(&id.instance)));
        let asking = asking(&pods, &displaced.map(|node| &node.name).collect());
        for planned in claims {
            let claim = moment.claims.iter().find(|claim| claim.name == planned.name);
            let Some(instance) = claim.and_then(|claim| claim.state.instance()) else { continue };
            let is_its =
                |node: &&Node| node.provider_id.as_ref().is_some_and(|id| id.instance == instance.id);
            if let Some(node) = nodes.iter().find(is_its) {
                self.observe_room(planned, room_on(node, &pods), &asking);
            }
        }
    }

    fn observe_room(&mut self, planned: &LaunchClaim, mut room: ResourceList, asking: &BTreeMap<Uid, &Pod>) {
        for counted in &planned.pods {
            let Some(pod) = asking.get(counted) else { continue };
            let requests = &pod.shape.requests;
            if requests.iter().all(|(name, requested)| !room.contains(name) || requested <= room.get(name)) {
                room.subtract(requests);
            } else {
                self.0.insert((planned.name.clone(), counted.clone()));
            }
        }
    }
}

/// Instances that EC2 takes back, and whose pods are planned for elsewhere.
fn interrupted(moment: &ClusterMoment) -> BTreeSet<&InstanceId> {
    let holds = |claim: &&Arc<Claim>| claim.state.holds_pods_until().is_some_and(|until| moment.at < until);
    let instances = moment.claims.iter().filter(holds).filter_map(|claim| claim.state.instance());
    instances.map(|instance| &instance.id).collect()
}

/// The pods that need room, by the UIDs by which claims count them: pending ones, and those of these nodes.
fn asking<'p>(pods: &'p [Pod], displaced: &BTreeSet<&NodeName>) -> BTreeMap<Uid, &'p Pod> {
    let counted_as = |pod: &'p Pod| match &pod.node {
        None => pod.is_unbound().then(|| (pod.uid.clone(), pod)),
        Some(node) => {
            let leaves = displaced.contains(node) && pod.deleted_at.is_none() && !pod.is_finished();
            let uid = manifest::pod_uid(&pod.name.namespace, &pod.name.name).ok()?;
            leaves.then_some((uid, pod))
        }
    };
    pods.iter().filter_map(counted_as).collect()
}

/// The Node's reported resources, less those of its bound pods.
fn room_on(node: &Node, pods: &[Pod]) -> ResourceList {
    let here = pods.iter().filter(|pod| !pod.is_finished() && pod.node.as_ref() == Some(&node.name));
    let taken = ResourceList::sum(here.map(|pod| &pod.shape.requests));
    node.allocatable.clone().without_zeroes().minus(&taken)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenon_domain::quantity::Quantity;
    use tenon_domain::resources::ResourceName;

    use super::*;

    /// A pod of one CPU.
    fn pod(name: &str, node: Option<&str>, deleted_at: Option<&str>) -> Pod {
        let value: Value = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "deletionTimestamp": deleted_at},
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
        manifest::pod_from_value(&value).unwrap()
    }

    #[test]
    fn pods_of_interrupted_nodes_that_are_counted_earlier_take_room() {
        let check = |(node, deleted_at): (Option<&str>, Option<&str>), expected: bool| {
            let pods = [pod("earlier", node, deleted_at), pod("later", None, None)];
            let displaced = NodeName::parse("interrupted").unwrap();
            let asking = asking(&pods, &[&displaced].into());
            let later = Uid::parse("uid-later").unwrap();
            let earlier = node.map_or_else(
                || Uid::parse("uid-earlier").unwrap(),
                |_| manifest::pod_uid("default", "earlier").unwrap(),
            );
            let name = ClaimName::parse("default-abcde").unwrap();
            let planned = LaunchClaim { name: name.clone(), pods: vec![earlier, later.clone()] };
            let mut crowded_out = CrowdedOut::default();
            let room = ResourceList::new().with(ResourceName::CPU, Quantity::from_integer(1));
            crowded_out.observe_room(&planned, room, &asking);
            assert_eq!(crowded_out.holds(&name, &later), expected, "{node:?} {deleted_at:?}");
        };
        check((None, None), true);
        check((Some("interrupted"), None), true);
        check((Some("interrupted"), Some("2026-01-01T00:00:00Z")), false);
        check((Some("other"), None), false);
    }
}
