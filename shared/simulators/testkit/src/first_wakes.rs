//! The first wakes of all functions, from an empty table, in every order, with one failing call.
//!
//! Decides the order of wakes, the time of the agent's first report, and the fault. Each history runs until its
//! region has settled, and all must end in the same state. No decision on the way may be made without evidence.
//!
//! In this world moving prices don't change a choice: a larger type always costs more than the next smaller one, and
//! each workload has its zone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::{CallFate, CallMoment, CallSite, Hooks};
use tenon_region::happening::Listeners;
use tenon_region::scenario::{self, Scenario, build};
use tenon_region::site::Voice;
use tenon_table::{Commit, Item, Key, QueryPage};

use crate::deeds::wake;
use crate::evidence::{EvidenceSeen, invariant_evidence_held};
use crate::invariants::{Invariant, Violation};
use crate::random::Dice;
use crate::sabotage::Sabotage;
use crate::standing::standing;
use crate::world::{CLUSTER, node_class, plain_pool, set, small_region};

/// Before the first wake, the cluster creates its pods.
const BEFORE: SignedDuration = SignedDuration::from_secs(5);
/// The time between wakes: a queue waits a second for its batch.
const BETWEEN: SignedDuration = SignedDuration::from_secs(2);
/// No schedule runs before this time, so that only the first wakes act.
const SCHEDULES_FROM: SignedDuration = SignedDuration::from_secs(30);
/// When to check whether the region has settled, in seconds. Waits are looked at again after a minute; crashed
/// invocations after six minutes, and the sweep comes three later.
const LOOKS: [i64; 6] = [150, 210, 330, 570, 1170, 1770];

/// How many orders there are.
pub const ORDERS: u64 = 5040;
/// The order in which template.yaml lists the functions, the agent first.
pub const CANONICAL: WakeOrder = WakeOrder(0);

/// An order of the first wakes, by its number below [`ORDERS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakeOrder(pub u64);

impl WakeOrder {
    /// The functions, in this order.
    #[must_use]
    pub fn functions(self) -> Vec<FunctionName> {
        let mut left = FunctionName::ALL.to_vec();
        let mut rest = self.0 % ORDERS;
        let mut order = Vec::new();
        while !left.is_empty() {
            let ways = u64::try_from(left.len()).unwrap_or(1);
            order.push(left.remove(usize::try_from(rest % ways).unwrap_or(0)));
            rest /= ways;
        }
        order
    }

    /// The wake before which the agent first reports; 7 is after all of them. Each place is about equally frequent in
    /// any order of the functions; in the canonical order the agent is first.
    fn agent(self) -> u64 {
        // Fibonacci hashing: the upper bits of a product with 2^64 over the golden ratio.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61
    }
}

tenon_domain::words! {
    /// How a call fails.
    pub enum Failing {
        /// It is throttled.
        Throttled,
        /// It isn't allowed.
        Denied,
        /// It is refused for the service's own fault.
        Refused,
        /// It takes effect, and its answer is lost.
        Unanswered,
        /// The task ends before it.
        CrashBefore,
        /// The task ends after the call's effect, before its answer.
        CrashAfter,
    }
}

impl Failing {
    const fn fate(self, moment: CallMoment) -> CallFate {
        match (self, moment) {
            (Self::Throttled, CallMoment::Before) | (Self::Unanswered, CallMoment::After) => CallFate::Fail,
            (Self::Denied, CallMoment::Before) => CallFate::Deny,
            (Self::Refused, CallMoment::Before) => CallFate::Break,
            (Self::CrashBefore, CallMoment::Before) | (Self::CrashAfter, CallMoment::After) => {
                CallFate::Crash
            }
            (Self::Throttled | Self::Denied | Self::Refused | Self::CrashBefore, CallMoment::After)
            | (Self::Unanswered | Self::CrashAfter, CallMoment::Before) => CallFate::Go,
        }
    }
}

/// A failing call, by its number among all tasks' calls, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallFault {
    /// The call's number.
    pub call: u64,
    /// How.
    pub failing: Failing,
}

/// A history to play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWakes {
    /// The order of the functions' wakes.
    pub order: WakeOrder,
    /// The fault.
    pub fault: Option<CallFault>,
    /// Where the code is broken, if it is.
    pub sabotage: Option<Sabotage>,
}

/// The result of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirstWakesOutcome {
    /// The region's state at the end, a line each.
    pub standing: Vec<String>,
    /// The number of its tasks' port calls until it had settled.
    pub calls: u64,
}

impl FirstWakes {
    /// An order without faults.
    #[must_use]
    pub const fn of(order: WakeOrder) -> Self {
        Self { order, fault: None, sabotage: None }
    }

    /// A random order with a random fault.
    #[must_use]
    pub fn random(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let mut dice = Dice::new(seed, 5);
        let order = WakeOrder(dice.below(ORDERS));
        let failing = dice.pick(&Failing::ALL).copied().unwrap_or(Failing::Throttled);
        let fault = Some(CallFault { call: dice.below(calls()), failing });
        Self { order, fault, sabotage }
    }

    /// Plays it and checks the invariants: it must end like the canonical order without faults.
    ///
    /// # Errors A [`Violation`] of [`Invariant::EvidenceHeld`] or [`Invariant::OrdersAgree`]; its seed is the order's
    /// number, its step the failing call.
    pub fn check(self) -> Result<(), Box<Violation>> {
        let (played, at) = self.play_until_settled(&LOOKS)?;
        let expected = reference(at);
        if played.standing == expected {
            return Ok(());
        }
        let differs = |(a, b): &(&String, &String)| a != b;
        let text = match played.standing.iter().zip(&expected).find(differs) {
            Some((is, expected)) => format!("`{is}`, but `{expected}` in the canonical order"),
            None => format!("{} lines, but {} in the canonical order", played.standing.len(), expected.len()),
        };
        Err(self.violation(at, Invariant::OrdersAgree, text))
    }

    /// Plays it, and returns the result.
    ///
    /// # Errors A [`Violation`] of [`Invariant::EvidenceHeld`].
    pub fn play(self) -> Result<FirstWakesOutcome, Box<Violation>> {
        self.play_until_settled(&LOOKS).map(|(played, _)| played)
    }

    /// Plays it until a look finds it settled, or until the last look; returns that time.
    fn play_until_settled(self, looks: &[i64]) -> Result<(FirstWakesOutcome, Timestamp), Box<Violation>> {
        let hooks = Arc::new(OneFault::new(self.fault, self.sabotage));
        let unmade = |what: &str| {
            self.violation(Timestamp::UNIX_EPOCH, Invariant::OrdersAgree, format!("can't set up the {what}"))
        };
        let options = scenario::SetupOptions {
            hooks: Arc::<OneFault>::clone(&hooks),
            ..scenario::SetupOptions::default()
        };
        let mut region = build(&world(), &options).map_err(|_| unmade("world"))?;
        let cluster = ClusterName::parse(CLUSTER).map_err(|_| unmade("cluster"))?;
        region.set_listeners(Listeners::None);
        region.set_voice(&cluster, Voice::Silent);
        let start = region.now();
        region.hold_schedules(after(start, SCHEDULES_FROM));
        let mut run = FirstWakesRun { first: self, region, cluster, seen: EvidenceSeen::default() };
        run.pass(after(start, BEFORE))?;
        let functions = self.order.functions().into_iter().map(Some).chain([None]);
        for (place, function) in (0..).zip(functions) {
            if place == self.order.agent() {
                run.region.set_voice(&run.cluster, Voice::Speaks);
                run.pass(after(run.region.now(), BETWEEN))?;
            }
            if let Some(function) = function {
                run.region.send(function, wake(&run.cluster));
                run.pass(after(run.region.now(), BETWEEN))?;
            }
        }
        for look in looks {
            run.pass(after(start, SignedDuration::from_secs(*look)))?;
            if has_settled(&run.region, &run.cluster) {
                break;
            }
        }
        let at = run.region.now();
        Ok((FirstWakesOutcome { standing: standing(&run.region, &run.cluster), calls: hooks.calls() }, at))
    }

    fn violation(self, at: Timestamp, invariant: Invariant, found: String) -> Box<Violation> {
        let step = self.fault.map_or(0, |fault| u32::try_from(fault.call).unwrap_or(u32::MAX));
        let found = match self.fault {
            Some(fault) => format!("{:?} at call {}: {found}", fault.failing, fault.call),
            None => found,
        };
        Box::new(Violation { invariant, seed: self.order.0, step, at, found })
    }
}

/// The number of port calls of the canonical order until its region has settled.
#[must_use]
pub fn calls() -> u64 {
    static CALLS: OnceLock<u64> = OnceLock::new();
    *CALLS.get_or_init(|| FirstWakes::of(CANONICAL).play().map_or(0, |played| played.calls))
}

/// The canonical order's state at that time, which matters because spot prices change every ten minutes.
fn reference(at: Timestamp) -> Vec<String> {
    static KEPT: Mutex<BTreeMap<Timestamp, Vec<String>>> = Mutex::new(BTreeMap::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let start = scenario::SetupOptions::default().start;
    let look = at.duration_since(start).as_secs();
    let played = || match FirstWakes::of(CANONICAL).play_until_settled(&[look]) {
        Ok((played, _)) => played.standing,
        Err(violation) => vec![violation.to_string()],
    };
    kept.entry(at).or_insert_with(played).clone()
}

/// Whether no work is left, and everything expected has arrived.
fn has_settled(region: &SimulatedRegion, cluster: &ClusterName) -> bool {
    let pods = region.pod_counts(cluster);
    region.unsettled().0.is_empty()
        && pods.running > 0
        && pods.pending == 0
        && region.classes(cluster).iter().all(ClassStatus::ready)
}

struct FirstWakesRun {
    first: FirstWakes,
    region: SimulatedRegion,
    cluster: ClusterName,
    seen: EvidenceSeen,
}

impl FirstWakesRun {
    /// Runs the region until a time, and checks the invariants at every moment.
    fn pass(&mut self, until: Timestamp) -> Result<(), Box<Violation>> {
        while self.region.step(until).is_some() {
            invariant_evidence_held(&self.region, &self.cluster, &mut self.seen)
                .map_err(|(invariant, found)| self.first.violation(self.region.now(), invariant, found))?;
        }
        self.region.run_until(until);
        self.region.take_happenings();
        Ok(())
    }
}

fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Three types in two zones; pods that want on-demand nodes in one of them, and pods that want spot in the other.
fn world() -> Scenario {
    let objects = vec![
        node_class(CLUSTER),
        pool("on-demand"),
        pool("spot"),
        deployment("web", "on-demand", "us-east-1a", 3),
        deployment("batch", "spot", "us-east-1b", 4),
    ];
    Scenario {
        types: ["m5.large", "m5.2xlarge", "m5.8xlarge"].map(str::to_owned).to_vec(),
        zones: ["us-east-1a", "us-east-1b"].map(str::to_owned).to_vec(),
        ..small_region("first wakes".to_owned(), 0, vec![crate::world::cluster(CLUSTER, objects)])
    }
}

fn pool(capacity_type: &str) -> serde_json::Value {
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]});
    let mut pool = plain_pool(&[capacity_type], &disruption);
    set(&mut pool, &["metadata", "name"], json!(capacity_type));
    pool
}

fn deployment(name: &str, capacity_type: &str, zone: &str, replicas: u32) -> serde_json::Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {
                        "karpenter.sh/capacity-type": capacity_type, "topology.kubernetes.io/zone": zone,
                    },
                    "containers": [{"name": "main", "resources": {"requests": {"cpu": "700m", "memory": "1Gi"}}}],
                },
            },
        },
    })
}

/// Lets all calls but one pass.
struct OneFault {
    fault: Option<CallFault>,
    sabotage: Option<Sabotage>,
    state: Mutex<FirstWakesCounts>,
}

#[derive(Default)]
struct FirstWakesCounts {
    calls: u64,
    tampered: u64,
}

impl OneFault {
    fn new(fault: Option<CallFault>, sabotage: Option<Sabotage>) -> Self {
        Self { fault, sabotage, state: Mutex::default() }
    }

    fn with<T>(&self, f: impl FnOnce(&mut FirstWakesCounts) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn calls(&self) -> u64 {
        self.with(|counts| counts.calls)
    }
}

impl Hooks for OneFault {
    /// No call takes time here, so a call's answer comes before the next call.
    fn call(&self, site: CallSite) -> CallFate {
        let call = self.with(|counts| match site.moment {
            CallMoment::Before => {
                counts.calls += 1;
                counts.calls - 1
            }
            CallMoment::After => counts.calls.saturating_sub(1),
        });
        let its = self.fault.filter(|fault| fault.call == call);
        its.map_or(CallFate::Go, |fault| fault.failing.fate(site.moment))
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        vec![SignedDuration::ZERO]
    }

    fn tamper_commit(&self, task: &'static str, commit: &mut Commit) {
        if let Some(sabotage) = self.sabotage {
            let number = || {
                self.with(|counts| {
                    counts.tampered += 1;
                    counts.tampered
                })
            };
            sabotage.tamper_commit(task, commit, number);
        }
    }

    fn tamper_page(&self, task: &'static str, page: &mut QueryPage) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_page(task, page);
        }
    }

    fn tamper_items(&self, task: &'static str, asked: &[Key], items: &mut BTreeMap<Key, Item>) {
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper_items(task, asked, items);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn orders_are_all_orders_and_the_agent_has_every_place_in_about_as_many() {
        let orders: BTreeSet<Vec<FunctionName>> = (0..ORDERS).map(|n| WakeOrder(n).functions()).collect();
        assert_eq!(orders.len(), 5040);
        assert_eq!((CANONICAL.functions(), CANONICAL.agent()), (FunctionName::ALL.to_vec(), 0));
        for place in 0..8 {
            let count = (0..ORDERS).filter(|n| WakeOrder(*n).agent() == place).count();
            assert!((620..=640).contains(&count), "{place}: {count}");
        }
    }
}
