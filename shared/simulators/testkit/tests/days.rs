//! What consolidation saves, and what it costs: nodes that are hardly used, and days and nights of a workload.
//!
//! Prints its figures: `cargo test -p tenon-testkit --test days -- --nocapture`. The months:
//! `cargo test --release -p tenon-testkit --test days -- --ignored --nocapture`.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]
#![expect(clippy::cast_possible_truncation, reason = "replicas are below 100")]
#![expect(clippy::cast_precision_loss, reason = "prices and counts are far below 2^52")]

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_ec2::port::TargetCapacityType;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_twin::InstanceRecord;

mod one_pool;

use one_pool::{OnePool, deployment, name, pass};

const TYPES: [&str; 12] = [
    "m5.large",
    "m5.xlarge",
    "m5.2xlarge",
    "m6a.large",
    "m6a.xlarge",
    "m6a.2xlarge",
    "c6a.large",
    "c6a.xlarge",
    "c6a.2xlarge",
    "r6a.large",
    "r6a.xlarge",
    "r6a.2xlarge",
];
/// More for spot, where a node that is replaced by a spot node must have 15 cheaper types.
const MORE_TYPES: [&str; 12] = [
    "m5a.large",
    "m5a.xlarge",
    "m6i.large",
    "m6i.xlarge",
    "m6i.2xlarge",
    "m7i.large",
    "m7i.xlarge",
    "c5.large",
    "c5.xlarge",
    "c5.2xlarge",
    "c6i.large",
    "c6i.xlarge",
];
const QUARTER: SignedDuration = SignedDuration::from_mins(15);

fn region(title: &str, disruption: Value) -> SimulatedRegion {
    let (annotations, capacity_type) = (json!({}), "on-demand");
    let mut region =
        OnePool { title, capacity_type, start: 45, annotations, disruption, types: &TYPES }.region();
    pass(&mut region, SignedDuration::from_mins(3));
    region
}

fn consolidating(after: &str, budget: &str) -> Value {
    json!({"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": after,
        "budgets": [{"nodes": budget}]})
}

fn never() -> Value {
    one_pool::never("100%")
}

fn pods(name: &str, replicas: u32, (cpu, memory): (&str, &str)) -> Value {
    let requests = json!({"cpu": cpu, "memory": memory});
    deployment(name, replicas, json!({"containers": [{"name": name, "resources": {"requests": requests}}]}))
}

fn apply(region: &SimulatedRegion, object: Value) {
    region.site(&name()).unwrap().cluster().apply(object).unwrap();
}

fn scale(region: &SimulatedRegion, of: &str, replicas: i64) {
    region.site(&name()).unwrap().cluster().scale(of, |_| replicas).unwrap();
}

fn evictions(region: &SimulatedRegion) -> usize {
    region.site(&name()).unwrap().cluster().evictions().len()
}

/// USD an hour of the instances that run now.
fn price(region: &SimulatedRegion) -> f64 {
    let running = region.twin().instances().into_iter().filter(|record| record.terminated_at.is_none());
    let of = |record: Arc<InstanceRecord>| {
        let one = &record.instance;
        let price = region.twin().price(one.capacity_type, &one.instance_type, &one.zone);
        price.map_or(0.0, |price| price.nanos() as f64 / 1e9)
    };
    running.map(of).sum()
}

/// A hundred nodes at a fifth of their CPU, and what they settle to.
#[test]
fn a_hundred_nodes_at_a_fifth_settle_near_the_bound_of_their_pods_and_stay() {
    let mut region = region("hardly used", never());
    apply(&region, pods("big", 100, ("1200m", "4Gi")));
    apply(&region, pods("small", 100, ("380m", "700Mi")));
    pass(&mut region, SignedDuration::from_mins(20));
    scale(&region, "big", 0);
    pass(&mut region, SignedDuration::from_mins(5));
    let before = price(&region);
    let pool = region.site(&name()).unwrap().cluster().objects(Kind::NodePool)[0].clone();
    let mut pool = Value::clone(&pool);
    pool["spec"]["disruption"] = consolidating("0s", "100%");
    apply(&region, pool);
    pass(&mut region, SignedDuration::from_mins(90));
    let (settled, moved) = (price(&region), evictions(&region));
    pass(&mut region, SignedDuration::from_hours(3));
    let (later, again) = (price(&region), evictions(&region) - moved);
    let bound = 100.0 * 0.38 * cheapest_cpu(&region);
    println!(
        "hardly used: {before:.2} USD an hour, {settled:.2} settled, {later:.2} three hours later, {bound:.2} the bound; \
         {moved} evictions, then {again}"
    );
    assert!(settled <= 1.1 * bound, "{settled} of {bound}");
    assert_eq!((later.to_bits(), again), (settled.to_bits(), 0));
}

/// The replicas of the workload's Deployments at a time of the day, in quarters of an hour: a night's, a day's, and a few
/// that come and go.
fn replicas(quarter: u32) -> [i64; 3] {
    let hour = f64::from(quarter % 96) / 4.0;
    let day = (0.5 - 0.5 * (std::f64::consts::TAU * hour / 24.0).cos()).powi(2);
    let coming = i64::from(quarter.wrapping_mul(2_654_435_761) >> 28);
    [12 + (60.0 * day).round() as i64, 6 + (18.0 * day).round() as i64, coming]
}

/// Pods on nodes that EC2 takes back now and then, while spot prices move by less than the pool's minimum savings.
fn quiet(settles: SignedDuration, then: SignedDuration) {
    let (annotations, disruption) = (json!({}), consolidating("0s", "100%"));
    let types = &[TYPES, MORE_TYPES].concat();
    let pool = OnePool { title: "quiet", capacity_type: "spot", start: 45, annotations, disruption, types };
    let mut region = pool.region();
    pass(&mut region, SignedDuration::from_mins(3));
    for ((name, requests, ..), replicas) in SHAPES.iter().zip([30, 12, 20]) {
        apply(&region, pods(name, replicas, *requests));
    }
    pass(&mut region, SignedDuration::from_mins(20));
    scale(&region, "jobs", 6);
    region.twin().hold_spot_prices(20);
    pass(&mut region, settles);
    let settled = (region.twin().launches().len(), evictions(&region));
    pass(&mut region, then);
    println!(
        "{then:#} of prices that move by 2 %: {} launches and {} evictions, after {} and {} until all had settled",
        region.twin().launches().len() - settled.0,
        evictions(&region) - settled.1,
        settled.0,
        settled.1,
    );
    assert_eq!((region.twin().launches().len(), evictions(&region)), settled);
}

#[test]
fn prices_that_move_less_than_the_minimum_savings_move_nothing() {
    quiet(SignedDuration::from_hours(2), SignedDuration::from_hours(4));
}

#[test]
#[ignore = "minutes"]
fn thirty_days_of_such_prices_move_nothing() {
    quiet(SignedDuration::from_hours(14), SignedDuration::from_hours(30 * 24));
}

/// What some days of the workload cost.
struct Cost {
    /// USD.
    paid: f64,
    /// USD, if the pods of each moment had the cheapest CPU.
    bound: f64,
    evictions: usize,
    /// Pods that were made for the replicas.
    pods: i64,
    /// Pods, times days.
    pod_days: f64,
}

const SHAPES: [(&str, (&str, &str), f64); 3] =
    [("web", ("600m", "1Gi"), 0.6), ("api", ("1500m", "3Gi"), 1.5), ("jobs", ("900m", "2Gi"), 0.9)];

/// USD an hour of the cheapest CPU of these types: no plan of pods that mostly ask for CPU is cheaper.
fn cheapest_cpu(region: &SimulatedRegion) -> f64 {
    let zone = "us-east-1a".parse().unwrap();
    let of = |name: &str| {
        let cpus = match name.split('.').next_back() {
            Some("large") => 2.0,
            Some("xlarge") => 4.0,
            _ => 8.0,
        };
        let price = region.twin().price(TargetCapacityType::OnDemand, &name.parse().unwrap(), &zone).unwrap();
        price.nanos() as f64 / 1e9 / cpus
    };
    TYPES.iter().map(|name| of(name)).fold(f64::INFINITY, f64::min)
}

fn start(disruption: Value, replicas: [i64; 3]) -> SimulatedRegion {
    let region = region("days and nights", disruption);
    for ((name, requests, _), replicas) in SHAPES.iter().zip(replicas) {
        apply(&region, pods(name, u32::try_from(replicas).unwrap(), *requests));
    }
    region
}

/// USD for an hour of new nodes, planned for these replicas alone.
fn packed_anew(replicas: [i64; 3]) -> f64 {
    let mut region = start(never(), replicas);
    pass(&mut region, SignedDuration::from_mins(2));
    price(&region)
}

/// USD that an ideal pays: in each hour new nodes for just the pods of its beginning.
fn ideal(days: u32) -> f64 {
    let mut known: BTreeMap<[i64; 3], f64> = BTreeMap::new();
    let hours = (0..days * 24).map(|hour| replicas(hour * 4));
    hours.map(|replicas| *known.entry(replicas).or_insert_with(|| packed_anew(replicas))).sum()
}

fn lived(days: u32, disruption: Value) -> Cost {
    let mut region = start(disruption, replicas(0));
    pass(&mut region, QUARTER);
    let (cheapest, begun) = (cheapest_cpu(&region), evictions(&region));
    let mut cost =
        Cost { paid: 0.0, bound: 0.0, evictions: 0, pods: replicas(0).iter().sum(), pod_days: 0.0 };
    for quarter in 1..=days * 96 {
        let (before, wanted) = (replicas(quarter - 1), replicas(quarter));
        cost.pods += wanted.iter().zip(before).map(|(now, before)| (now - before).max(0)).sum::<i64>();
        for ((name, ..), replicas) in SHAPES.iter().zip(wanted) {
            scale(&region, name, replicas);
        }
        for _ in 0..5 {
            cost.paid += price(&region) / 20.0;
            pass(&mut region, SignedDuration::from_mins(3));
        }
        let cpu: f64 = SHAPES.iter().zip(wanted).map(|((.., cpu), replicas)| cpu * replicas as f64).sum();
        cost.bound += cpu * cheapest / 4.0;
        cost.pod_days += wanted.iter().sum::<i64>() as f64 / 96.0;
    }
    cost.evictions = evictions(&region) - begun;
    cost
}

fn check(days: u32) {
    let (with, without, ideal) = std::thread::scope(|scope| {
        let with = scope.spawn(|| lived(days, consolidating("5m", "10%")));
        let without = scope.spawn(|| lived(days, never()));
        (with.join().unwrap(), without.join().unwrap(), ideal(days))
    });
    let (of_pods, of_days) =
        (with.evictions as f64 / with.pods as f64, with.evictions as f64 / with.pod_days);
    println!(
        "{days} days: {:.2} USD with consolidation, {:.2} without, {ideal:.2} ideal, {:.2} the bound; {} evictions: \
         {of_pods:.2} a pod, {of_days:.2} a pod and day",
        with.paid, without.paid, with.bound, with.evictions
    );
    assert!(with.paid <= 0.7 * without.paid, "{} of {}", with.paid, without.paid);
    assert!(with.paid <= 1.25 * ideal, "{} of {ideal}", with.paid);
    assert!(of_pods <= 2.0, "{of_pods}");
}

#[test]
fn a_day_and_a_night_cost_a_third_less_and_nearly_as_little_as_full_nodes() {
    check(1);
}

#[test]
#[ignore = "a quarter of an hour"]
fn thirty_days_and_nights() {
    check(30);
}
