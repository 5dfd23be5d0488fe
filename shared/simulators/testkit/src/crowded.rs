//! Pods whose room on their claim's Node was taken by others.
//!
//! Decides from the actual cluster for which pods of a joined claim its Node lacked room at some step. It remembers
//! them, because a plan at that step was right, whatever leaves the Node afterwards.

use std::collections::BTreeSet;

use tenon_domain::api::{Node, Pod};
use tenon_domain::id::{ClaimName, Uid};
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
        for planned in claims {
            let claim = moment.claims.iter().find(|claim| claim.name == planned.name);
            let Some(instance) = claim.and_then(|claim| claim.state.instance()) else { continue };
            let is_its =
                |node: &&Node| node.provider_id.as_ref().is_some_and(|id| id.instance == instance.id);
            if let Some(node) = nodes.iter().find(is_its) {
                self.observe_room(planned, room_on(node, &pods), &pods);
            }
        }
    }

    fn observe_room(&mut self, planned: &LaunchClaim, mut room: ResourceList, pods: &[Pod]) {
        for counted in &planned.pods {
            let found = pods.iter().find(|pod| pod.uid == *counted && pod.is_unbound());
            let Some(pod) = found else { continue };
            let requests = &pod.shape.requests;
            if requests.iter().all(|(name, requested)| !room.contains(name) || requested <= room.get(name)) {
                room.subtract(requests);
            } else {
                self.0.insert((planned.name.clone(), counted.clone()));
            }
        }
    }
}

/// The Node's reported resources, less those of its bound pods.
fn room_on(node: &Node, pods: &[Pod]) -> ResourceList {
    let here = pods.iter().filter(|pod| !pod.is_finished() && pod.node.as_ref() == Some(&node.name));
    let taken = ResourceList::sum(here.map(|pod| &pod.shape.requests));
    node.allocatable.clone().without_zeroes().minus(&taken)
}
