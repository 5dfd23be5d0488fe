//! How long many pods wait for nodes launched for them, compared with existing nodes, and how many nodes they get.
//!
//! Run by `TENON_CONTROL_PLANE_RATES=kubernetes tests/servers/control-plane -- cargo test --workspace --test many --
//! --ignored --nocapture five_hundred`: with the default limits of kube-scheduler and kube-controller-manager. With
//! `two_thousand` it is 2,000 pods.

#![expect(clippy::expect_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tenon_cluster_tests::{CLASS, Live};
use tenon_domain::id::{ClaimName, InstanceId, Uid};
use tenon_domain::money::UsdPerHour;

/// The class and the pool are there sooner.
const WITHIN: Duration = Duration::from_secs(300);
/// The most time that a pod may add to each of the test's waits.
const WITHIN_A_POD: Duration = Duration::from_millis(600);
/// How much longer pods may wait for nodes that aren't there than for the scheduler alone.
const MOST: f64 = 1.3;
/// How many nodes may be launched for 100 planned ones.
const LAUNCHED_OF_100: usize = 102;
/// So many more may always be launched, because a few nodes have no fiftieth: on a slow machine, pods that are made
/// while Nodes open take places of pods planned before, and these get small nodes.
const ALWAYS_MORE: usize = 2;
/// How much the launched nodes may cost, where the planned ones cost 100.
const PRICE_OF_100: u64 = 105;
/// For 100 pods, so many whose nodes hold them however kube-scheduler spreads these: a third more, since it puts small
/// pods where only large ones would have fitted the rest.
const WITH_ROOM_OF_100: usize = 133;
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
    check(500);
}

/// For running by hand: it takes a quarter of an hour.
#[test]
#[ignore = "needs tests/servers/control-plane"]
fn two_thousand_pods_run_soon_after_they_would_on_nodes_that_are_there() {
    check(2_000);
}

/// Checks how long so many pods wait, and how many nodes are launched for them.
fn check(pods: usize) {
    let mut live = Live::start("many");
    live.apply(CLASS);
    live.apply(ANY);
    live.until("the class and the pool are there", WITHIN, |live| live.region.unsettled().0.is_empty());
    live.apply(&mixed(pods));
    let launched =
        live.until("on nodes that are launched", within(pods), |live| live.ready_replicas() == pods);
    println!("{}", live.told.join("\n"));
    let nodes = LaunchedNodes::of(&live);
    println!("{nodes}");
    let held = on_nodes_that_are_there(&mut live, pods);
    let (there, existing) = held.expect("a set of nodes that holds them all");
    let ratio = launched.as_secs_f64() / there.as_secs_f64();
    println!(
        "{pods} mixed pods: {launched:.1?} where their nodes are launched, {there:.1?} on {existing} that are there: {ratio:.2} times"
    );
    assert!(nodes.launched <= nodes.most(), "at most {} nodes may be launched: {nodes}", nodes.most());
    assert!(!nodes.is_dear(), "at most {PRICE_OF_100} % of the planned price is meant to be: {nodes}");
    assert!(ratio <= MOST, "{ratio:.2} times as long, where at most {MOST} is meant to be");
}

fn within(pods: usize) -> Duration {
    WITHIN_A_POD.saturating_mul(u32::try_from(pods).unwrap_or(u32::MAX))
}

/// The nodes of pods: those of each pod's first plan, and all that were launched. A node is one too many if all its
/// pods had a node planned before, whose room other pods took.
struct LaunchedNodes {
    planned: usize,
    launched: usize,
    planned_price: UsdPerHour,
    launched_price: UsdPerHour,
}

impl fmt::Display for LaunchedNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { planned, launched, planned_price, launched_price } = self;
        write!(
            f,
            "{planned} nodes planned for {planned_price} USD an hour, {launched} launched for {launched_price}"
        )
    }
}

impl LaunchedNodes {
    fn of(live: &Live) -> Self {
        let (region, twin) = (&live.region, live.region.twin());
        let (mut claims, mut launches) = (Vec::new(), Vec::new());
        for cluster in region.clusters() {
            claims.extend(region.claims(cluster));
            launches.extend(region.launches(cluster));
        }
        launches.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        let mut planned_before: BTreeSet<&Uid> = BTreeSet::new();
        let mut first: BTreeSet<&ClaimName> = BTreeSet::new();
        for claim in launches.iter().flat_map(|launch| &launch.claims) {
            let before = planned_before.len();
            planned_before.extend(&claim.pods);
            if planned_before.len() > before {
                first.insert(&claim.name);
            }
        }
        let of_first = claims.iter().filter(|claim| first.contains(&claim.name));
        let of_first: BTreeSet<&InstanceId> =
            of_first.filter_map(|claim| claim.state.instance()).map(|instance| &instance.id).collect();
        let instances = twin.instances();
        let price = |among: &dyn Fn(&InstanceId) -> bool| -> UsdPerHour {
            let counted = instances.iter().map(|record| &record.instance).filter(|one| among(&one.id));
            counted.filter_map(|one| twin.price(one.capacity_type, &one.instance_type, &one.zone)).sum()
        };
        Self {
            planned: first.len(),
            launched: instances.len(),
            planned_price: price(&|id| of_first.contains(id)),
            launched_price: price(&|_| true),
        }
    }

    /// How many nodes may be launched.
    fn most(&self) -> usize {
        (self.planned * LAUNCHED_OF_100).div_ceil(100).max(self.planned + ALWAYS_MORE)
    }

    fn is_dear(&self) -> bool {
        self.launched_price.times(100) > self.planned_price.times(PRICE_OF_100)
    }
}

/// How long the same pods take without a launch, and on how many nodes. kube-scheduler spreads them differently from
/// the first plan, so they get nodes with room for a third more; where some find none, a node is added, and they are
/// created again.
fn on_nodes_that_are_there(live: &mut Live, pods: usize) -> Option<(Duration, usize)> {
    let with_room = pods * WITH_ROOM_OF_100 / 100;
    live.apply(&mixed(with_room));
    live.until("more pods make room", within(with_room), |live| live.ready_replicas() == with_room);
    for _ in 0..ROUNDS {
        let nodes = live.look().nodes.len();
        live.delete_deployments();
        live.until("the pods are gone", within(with_room), |live| live.look().pods.is_empty());
        live.apply(&mixed(pods));
        let there = live.until("on nodes that are there", within(pods), |live| live.ready_replicas() == pods);
        if live.look().nodes.len() == nodes {
            return Some((there, nodes));
        }
        println!("{nodes} nodes didn't hold them:\n{}", live.told.join("\n"));
    }
    None
}
