//! Another kube-scheduler's attempts, one after the other, as the simulated one judges them.
//!
//! Decides whether the filters let a pod be where the other put it, whether they refuse it everywhere where the other
//! found no place, and whether the scores prefer no other node. The caller tells the attempts in their order, and every
//! object just before the first attempt that the other made with it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_simulated_cluster::{Placing, SimulatedCluster, SimulationConfig};
use tenon_snapshot::object::{Kind, text};

/// The namespace of the pods that are placed.
const NAMESPACE: &str = "default";

/// A cluster in which another scheduler's attempts are repeated.
pub struct Follower {
    cluster: SimulatedCluster,
}

/// What the filters and scores say of each node: its rating, or why it doesn't fit.
pub type NodeRatings = BTreeMap<String, Result<i64, String>>;

/// A place as it is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedPlace {
    /// Why the filters refuse it, if they do.
    pub refused: Option<String>,
    /// How many nodes the filters let the pod be on.
    pub feasible: usize,
    /// By how much a better place is rated higher.
    pub worse_by: i64,
    /// All nodes.
    pub ratings: NodeRatings,
}

/// A refusal as it is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedRefusal {
    /// The nodes that would take the pod.
    pub taking: Vec<String>,
    /// How often nodes refuse it for each reason.
    pub reasons: BTreeMap<String, usize>,
}

impl Follower {
    /// A cluster with these objects. ReplicaSets come with their pods, or their controller makes others.
    #[must_use]
    pub fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let never = SignedDuration::from_secs(1_000_000);
        let config =
            SimulationConfig { placing: Placing::Caller, pod_start: never, ..SimulationConfig::default() };
        let follower = Self { cluster: SimulatedCluster::new(config, Timestamp::UNIX_EPOCH) };
        for object in objects {
            follower.cluster.apply(object).unwrap();
        }
        follower.look();
        follower
    }

    fn look(&self) {
        self.cluster.tick(Timestamp::UNIX_EPOCH);
    }

    /// An object came or changed.
    pub fn apply(&self, object: Value) {
        self.cluster.apply(object).unwrap();
        self.look();
    }

    /// A pod is nominated for a node, or for none any longer.
    pub fn nominate(&self, pod: &str, node: Option<&str>) {
        self.change(pod, |pod| pod["status"]["nominatedNodeName"] = json!(node));
    }

    fn change(&self, pod: &str, change: impl FnOnce(&mut Value)) {
        let found = self.cluster.object(Kind::Pod, NAMESPACE, pod).unwrap();
        let mut pod = Value::clone(&found);
        change(&mut pod);
        self.apply(pod);
    }

    /// The other scheduler placed the pod.
    #[must_use]
    pub fn placed(&self, pod: &str, node: &str) -> JudgedPlace {
        let ratings = self.cluster.ratings(NAMESPACE, pod);
        let nominated = self.cluster.object(Kind::Pod, NAMESPACE, pod).unwrap();
        let nominated = text(&nominated, "/status/nominatedNodeName").map(str::to_owned);
        let rated: Vec<i64> = ratings.values().filter_map(|one| one.as_ref().ok().copied()).collect();
        let refused = match ratings.get(node) {
            None => Some("there is no such node".to_owned()),
            Some(Err(why)) => Some(why.clone()),
            Some(Ok(_)) => None,
        };
        // A nominated node is taken, whatever others are rated.
        let first = nominated.filter(|name| matches!(ratings.get(name), Some(Ok(_))));
        let worse_by = match (&first, ratings.get(node)) {
            (Some(name), _) if name == node => 0,
            (Some(_), _) => i64::MAX,
            (None, Some(Ok(rating))) => rated.iter().max().unwrap_or(rating) - rating,
            (None, Some(Err(_)) | None) => 0,
        };
        let feasible = if first.is_some() { 1 } else { rated.len() };
        self.change(pod, |pod| {
            pod["spec"]["nodeName"] = json!(node);
            pod["status"]["nominatedNodeName"] = Value::Null;
        });
        JudgedPlace { refused, feasible, worse_by, ratings }
    }

    /// The other scheduler found no place for the pod, which isn't nominated any longer.
    #[must_use]
    pub fn refused(&self, pod: &str) -> JudgedRefusal {
        let judged = self.waiting(pod);
        self.nominate(pod, None);
        judged
    }

    /// What keeps a pod waiting.
    #[must_use]
    pub fn waiting(&self, pod: &str) -> JudgedRefusal {
        let mut judged = JudgedRefusal { taking: Vec::new(), reasons: BTreeMap::new() };
        for (node, rating) in self.cluster.ratings(NAMESPACE, pod) {
            match rating {
                Ok(_) => judged.taking.push(node),
                Err(why) => {
                    for reason in why.split(", ") {
                        *judged.reasons.entry(reason.to_owned()).or_default() += 1;
                    }
                }
            }
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
            "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}}})
    }

    fn pod(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}})
    }

    #[test]
    fn places_are_judged_as_the_simulated_scheduler_would_choose() {
        let follower = Follower::new([pod("one"), pod("two"), pod("three"), pod("four")]);
        assert_eq!(follower.refused("one").taking, Vec::<String>::new());
        follower.apply(node("small", "1"));
        follower.apply(node("large", "4"));
        // The emptier node is the better one.
        let judged = follower.placed("one", "small");
        assert_eq!((judged.refused, judged.feasible), (None, 2));
        assert!(judged.worse_by > 0, "{}", judged.worse_by);
        let judged = follower.placed("two", "small");
        assert_eq!(judged.refused, Some("Insufficient cpu".to_owned()));
        let refused = follower.refused("three");
        assert_eq!(refused.taking, ["large"]);
        assert_eq!(refused.reasons, BTreeMap::from([("Insufficient cpu".to_owned(), 1)]));
        follower.nominate("four", Some("large"));
        let judged = follower.placed("four", "large");
        assert_eq!((judged.refused, judged.feasible, judged.worse_by), (None, 1, 0));
    }
}
