//! What an interruption costs: the seconds in which wanted pods aren't ready, by workload, start time and order.
//!
//! The table of docs/interruptions.md is what this test prints:
//! `cargo test -p tenon-testkit --test interruptions -- --nocapture`.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::catalog::CapacityType;
use tenon_ec2::port::{InstanceState, TargetCapacityType};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_testkit::zonal_volume;
use tenon_twin::CapacityPool;

mod one_pool;

use one_pool::{LARGE, OnePool, deployment, name, never, pass};

/// From a launch to a Ready node.
const STARTS: [i64; 4] = [25, 45, 60, 90];
const LOOKS_A_SECOND: i64 = 10;
const CALM: SignedDuration = SignedDuration::from_mins(12);

/// A workload whose node is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Workload {
    Single,
    Several,
    RoomElsewhere,
    OneByOne,
    LongGrace,
    Volume,
    NoCapacity,
    NoSpotCapacity,
}

impl Workload {
    const ALL: [Self; 8] = [
        Self::Single,
        Self::Several,
        Self::RoomElsewhere,
        Self::OneByOne,
        Self::LongGrace,
        Self::Volume,
        Self::NoCapacity,
        Self::NoSpotCapacity,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Single => "one replica",
            Self::Several => "four replicas on one node",
            Self::RoomElsewhere => "two replicas, other nodes have room",
            Self::OneByOne => "four replicas, a PDB lets go one at a time",
            Self::LongGrace => "two replicas that take 90 s to stop",
            Self::Volume => "one replica with a ReadWriteOnce volume",
            Self::NoCapacity => "two replicas, no capacity for two minutes",
            Self::NoSpotCapacity => "two replicas, no spot capacity, on-demand instead",
        }
    }

    const fn replicas(self) -> u32 {
        match self {
            Self::Single | Self::Volume => 1,
            Self::RoomElsewhere | Self::LongGrace | Self::NoCapacity | Self::NoSpotCapacity => 2,
            Self::Several | Self::OneByOne => 4,
        }
    }

    fn objects(self) -> Vec<Value> {
        let grace = if self == Self::LongGrace { 90 } else { 30 };
        let claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
        let spec = json!({
            "containers": [{"name": "web", "resources": {"requests": {"cpu": "400m", "memory": "1Gi"}}}],
            "terminationGracePeriodSeconds": grace,
            "volumes": if self == Self::Volume { claim } else { json!([]) },
        });
        let mut objects = Vec::new();
        match self {
            Self::Volume => objects.extend(zonal_volume("us-east-1a")),
            Self::OneByOne => objects.push(json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
            })),
            Self::Single
            | Self::Several
            | Self::RoomElsewhere
            | Self::LongGrace
            | Self::NoCapacity
            | Self::NoSpotCapacity => {}
        }
        objects.push(deployment("web", self.replicas(), spec));
        objects
    }
}

fn region(workload: Workload, start: i64, order: &str) -> SimulatedRegion {
    let annotations = json!({"tenon.dev/interruption": order});
    let (capacity_type, disruption) = ("spot", never("10%"));
    OnePool { title: workload.name(), capacity_type, start, annotations, disruption, types: &LARGE }.region()
}

/// The pod-seconds that aren't ready from the interruption until everything runs again.
fn lost(workload: Workload, start: i64, order: &str) -> u64 {
    let mut region = region(workload, start, order);
    pass(&mut region, SignedDuration::from_mins(3));
    let cluster = name();
    let apply = |region: &SimulatedRegion, objects: Vec<Value>| {
        let site = region.site(&cluster).unwrap();
        objects.into_iter().for_each(|object| {
            site.cluster().apply(object).unwrap();
        });
    };
    apply(&region, workload.objects());
    pass(&mut region, CALM);
    let hosts: Vec<String> = region
        .site(&cluster)
        .unwrap()
        .cluster()
        .pods_by_node()
        .into_iter()
        .filter(|(_, pods)| !pods.is_empty())
        .map(|(node, _)| node)
        .collect();
    if workload == Workload::RoomElsewhere {
        let spec = json!({"nodeSelector": {"topology.kubernetes.io/zone": "us-east-1b"},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "900m"}}}]});
        apply(&region, vec![deployment("other", 1, spec)]);
        pass(&mut region, CALM);
    }
    let instance = region
        .claims(&cluster)
        .iter()
        .find(|claim| claim.state.node().is_some_and(|node| hosts.contains(&node.to_string())))
        .and_then(|claim| claim.state.instance().cloned())
        .unwrap();
    assert_eq!(instance.capacity_type, CapacityType::Spot);
    if matches!(workload, Workload::NoCapacity | Workload::NoSpotCapacity) {
        set_capacity(&region, Some(0));
    }
    if workload == Workload::NoSpotCapacity {
        apply(&region, vec![with_on_demand(&region)]);
        pass(&mut region, SignedDuration::from_secs(30));
    }
    region.twin().interrupt_spot(&instance.id).unwrap();
    let wanted = region.pod_counts(&cluster).running;
    let mut lost = 0;
    for look in 0..420 * LOOKS_A_SECOND {
        if look == 120 * LOOKS_A_SECOND && workload == Workload::NoCapacity {
            set_capacity(&region, None);
        }
        pass(&mut region, SignedDuration::from_millis(1000 / LOOKS_A_SECOND));
        lost += u64::try_from(wanted.saturating_sub(region.pod_counts(&cluster).running)).unwrap();
    }
    let ended = region.twin().instances().into_iter().find(|one| one.instance.id == instance.id).unwrap();
    assert_eq!(ended.instance.state, InstanceState::Terminated);
    assert_eq!(region.pod_counts(&cluster).running, wanted, "{workload:?} {start} {order}");
    lost.div_ceil(LOOKS_A_SECOND.unsigned_abs())
}

/// The pool, which may have on-demand nodes too.
fn with_on_demand(region: &SimulatedRegion) -> Value {
    let pools = region.site(&name()).unwrap().cluster().objects(Kind::NodePool);
    let mut pool = Value::clone(pools.first().unwrap());
    *pool.pointer_mut("/spec/template/spec/requirements/0/values").unwrap() = json!(["spot", "on-demand"]);
    pool
}

fn set_capacity(region: &SimulatedRegion, left: Option<u32>) {
    for instance_type in ["m5.large", "m6i.large", "m6a.large"] {
        for zone in ["us-east-1a", "us-east-1b"] {
            let (zone, instance_type) = (zone.parse().unwrap(), instance_type.parse().unwrap());
            let pool = CapacityPool { capacity_type: TargetCapacityType::Spot, instance_type, zone };
            region.twin().set_capacity(pool, left);
        }
    }
}

#[test]
fn replacing_first_loses_no_more_than_draining_at_once() {
    let mut saved = 0;
    println!("| workload | start | drained at once | replaced first |\n|---|---|---|---|");
    for workload in Workload::ALL {
        for start in STARTS {
            let (drained, replaced) = (lost(workload, start, "Drain"), lost(workload, start, "ReplaceFirst"));
            println!("| {} | {start} s | {drained} s | {replaced} s |", workload.name());
            assert!(replaced <= drained, "{workload:?}, {start} s: {replaced} instead of {drained}");
            saved += drained - replaced;
        }
    }
    assert!(saved > 0);
}
