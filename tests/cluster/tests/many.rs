//! How long five hundred pods wait for nodes launched for them, compared with existing nodes.
//!
//! Run by `TENON_CONTROL_PLANE_RATES=kubernetes tests/servers/control-plane -- cargo test --workspace --test many --
//! --ignored --nocapture`: with the default limits of kube-scheduler and kube-controller-manager.

use std::time::Duration;

use tenon_cluster_tests::{CLASS, Live};

/// Neither takes longer.
const WITHIN: Duration = Duration::from_secs(300);
/// How much longer pods may wait for nodes that aren't there than for the scheduler alone.
const MOST: f64 = 1.3;
const PODS: usize = 500;
/// Pods whose nodes hold the others however kube-scheduler spreads these: a third more, since it puts small pods where
/// only large ones would have fitted the rest.
const PODS_WITH_ROOM: usize = 665;
/// Rounds in which a set of nodes is found that holds the pods however they are spread.
const ROUNDS: usize = 5;

/// Five Deployments of different sizes, with so many pods in all.
fn mixed(pods: usize) -> String {
    let sizes = [("100m", "128Mi"), ("250m", "512Mi"), ("500m", "1Gi"), ("1", "1Gi"), ("500m", "4Gi")];
    let replicas = pods / sizes.len();
    let one = |(n, (cpu, memory)): (usize, &(&str, &str))| {
        format!(
            "
apiVersion: apps/v1
kind: Deployment
metadata: {{name: mixed-{n}, namespace: NAMESPACE}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: mixed-{n}}}}}
  template:
    metadata: {{labels: {{app: mixed-{n}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{{name: app, image: app, resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}}}]
"
        )
    };
    sizes.iter().enumerate().map(one).collect::<Vec<_>>().join("---")
}

/// A NodePool of any size.
const ANY: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: any}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
        - {key: kubernetes.io/arch, operator: In, values: [amd64]}
        - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
  disruption: {consolidateAfter: Never}
";

#[test]
#[ignore = "needs tests/servers/control-plane"]
fn five_hundred_pods_run_soon_after_they_would_on_nodes_that_are_there() {
    let mut live = Live::start("many");
    live.apply(CLASS);
    live.apply(ANY);
    live.until("the class and the pool are there", WITHIN, |live| live.region.unsettled().0.is_empty());
    live.apply(&mixed(PODS));
    let launched = live.until("on nodes that are launched", WITHIN, |live| live.ready_replicas() == PODS);
    println!("{}", live.told.join("\n"));
    let (there, nodes) = on_nodes_that_are_there(&mut live).expect("a set of nodes that holds them all");
    let ratio = launched.as_secs_f64() / there.as_secs_f64();
    println!(
        "{PODS} mixed pods: {launched:.1?} where their nodes are launched, {there:.1?} on {nodes} that are there: {ratio:.2} times"
    );
    assert!(ratio <= MOST, "{ratio:.2} times as long, where at most {MOST} is meant to be");
}

/// How long the same pods take without a launch, and on how many nodes. kube-scheduler spreads them differently from
/// the first plan, so they get nodes with room for a third more; where some find none, a node is added, and they are
/// created again.
fn on_nodes_that_are_there(live: &mut Live) -> Option<(Duration, usize)> {
    live.apply(&mixed(PODS_WITH_ROOM));
    live.until("more pods make room", WITHIN, |live| live.ready_replicas() == PODS_WITH_ROOM);
    for _ in 0..ROUNDS {
        let nodes = live.look().nodes.len();
        live.delete_deployments();
        live.until("the pods are gone", WITHIN, |live| live.look().pods.is_empty());
        live.apply(&mixed(PODS));
        let there = live.until("on nodes that are there", WITHIN, |live| live.ready_replicas() == PODS);
        if live.look().nodes.len() == nodes {
            return Some((there, nodes));
        }
        println!("{nodes} nodes didn't hold them:\n{}", live.told.join("\n"));
    }
    None
}
