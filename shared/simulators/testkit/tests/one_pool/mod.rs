//! A region with one cluster and one NodePool in two zones.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;
use tenon_region::kubelet::BootTimes;
use tenon_region::scenario::{ClusterForm, ImageForm, Scenario, SetupOptions, build};
use tenon_twin::{Delays, Span};

const CLUSTER: &str = "prod";

/// What differs between such regions.
pub(crate) struct OnePool<'a> {
    pub(crate) title: &'a str,
    pub(crate) capacity_type: &'a str,
    /// The seconds from a launch to a Ready node.
    pub(crate) start: i64,
    /// The pool's.
    pub(crate) annotations: Value,
    /// The pool's `spec.disruption`.
    pub(crate) disruption: Value,
    /// The region's types.
    pub(crate) types: &'a [&'a str],
}

/// Types of one size and nearly one price.
#[allow(dead_code, reason = "not every test has few types")]
pub(crate) const LARGE: [&str; 3] = ["m5.large", "m6i.large", "m6a.large"];

/// `spec.disruption` of a pool that never consolidates.
#[allow(dead_code, reason = "not every test has such a pool")]
pub(crate) fn never(budget: &str) -> Value {
    json!({"consolidateAfter": "Never", "budgets": [{"nodes": budget}]})
}

impl OnePool<'_> {
    pub(crate) fn region(&self) -> SimulatedRegion {
        let cluster = ClusterForm {
            name: CLUSTER.to_owned(),
            objects: objects(CLUSTER, self.capacity_type, &self.annotations, &self.disruption),
            spot_to_spot_consolidation: true,
            ..ClusterForm::default()
        };
        let scenario = scenario(self.title, self.types, vec![cluster]);
        // EC2 takes a third of the start, the kubelet's join the rest.
        let seconds = SignedDuration::from_secs;
        let (ec2, ready) = ((self.start / 3).min(8), (self.start / 3).min(4));
        let delays = Delays { start: Span::seconds(ec2, ec2), ..Delays::default() };
        let boot = BootTimes { joins_after: seconds(self.start - ec2 - ready), ready_after: seconds(ready) };
        build(&scenario, &SetupOptions { delays, boot, ..SetupOptions::default() }).unwrap()
    }
}

/// A region of two zones.
pub(crate) fn scenario(title: &str, types: &[&str], clusters: Vec<ClusterForm>) -> Scenario {
    Scenario {
        title: title.to_owned(),
        region: "us-east-1".to_owned(),
        seed: 1,
        types: types.iter().map(|name| (*name).to_owned()).collect(),
        zones: ["us-east-1a", "us-east-1b"].map(str::to_owned).to_vec(),
        clusters,
        images: vec![image("node-1")],
        steps: vec![],
    }
}

/// The class and the pool of a cluster.
pub(crate) fn objects(
    cluster: &str,
    capacity_type: &str,
    annotations: &Value,
    disruption: &Value,
) -> Vec<Value> {
    let class = json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
        "spec": {"amiFamily": "AL2023", "role": format!("{cluster}-node"),
            "amiSelectorTerms": [{"tags": {"team": "platform"}}],
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": cluster}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": cluster}}]},
    });
    let pool = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "annotations": annotations},
        "spec": {"template": {"spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]}]}},
            "disruption": disruption},
    });
    vec![class, pool]
}

pub(crate) fn image(name: &str) -> ImageForm {
    ImageForm::tagged(name, ("team", "platform"))
}

pub(crate) fn deployment(name: &str, replicas: u32, spec: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })
}

/// Pods of which each fills a node of [`LARGE`].
#[allow(dead_code, reason = "not every test fills nodes by one pod")]
pub(crate) fn fill(region: &SimulatedRegion, nodes: u32) {
    let spec = json!({"containers": [{"name": "web", "resources": {"requests": {"cpu": "1500m"}}}]});
    region.site(&name()).unwrap().cluster().apply(deployment("web", nodes, spec)).unwrap();
}

pub(crate) fn name() -> ClusterName {
    ClusterName::parse(CLUSTER).unwrap()
}

pub(crate) fn pass(region: &mut SimulatedRegion, time: SignedDuration) {
    region.run_until(region.now() + time);
    region.take_happenings();
}
