//! Draining one node: the pods to wait for, their order, and the operation for each.
//!
//! Decides which pods to evict or delete now. It doesn't call the API server. The order and the numbers are the
//! peer's (kubernetes-sigs/karpenter `pkg/controllers/node/termination/terminator`).
//!
//! Invariants: no pod is evicted while a pod of an earlier tier is waited for; only a deadline evicts a
//! do-not-disrupt pod, or ignores a PodDisruptionBudget.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::pod::DoNotDisrupt;
use tenon_domain::api::workload::PodDisruptionBudget;
use tenon_domain::drain_block::{DETACHED_WITHIN, DrainBlock};
use tenon_domain::wait::doubled;
use tenon_snapshot::ObjectKey;
use tenon_snapshot::pod::{Criticality, PodDisruption, PodLife, PodRef, PodRunner, SeenPod};

use crate::hold::HeldPods;
use crate::obstacles;

/// The shortest drain: it catches pods that were bound while the taint spread.
pub const SHORTEST: SignedDuration = SignedDuration::from_secs(5);
/// How long after its deletion time a pod isn't waited for any longer: its kubelet is silent.
pub const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// The first wait after a PodDisruptionBudget's refusal; it doubles.
pub const FIRST_RETRY: SignedDuration = SignedDuration::from_millis(100);
/// The longest wait.
pub const LAST_RETRY: SignedDuration = SignedDuration::from_secs(10);
/// Volumes are detached after this time, if nothing is in the way.
const DETACHED_SOON: SignedDuration = SignedDuration::from_mins(1);
/// So many refusals in a row, half a minute or more, are an obstacle.
const REFUSED_OFTEN: u32 = 10;
/// How often a waiting drain is checked.
pub const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(1);

/// The order in which pods are evicted: one tier at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// Neither critical nor a daemon.
    Workload,
    /// A DaemonSet's, not critical.
    Daemon,
    /// Critical, not a daemon.
    CriticalWorkload,
    /// A DaemonSet's, critical.
    CriticalDaemon,
}

/// The operation on a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodOp {
    /// An eviction, which PodDisruptionBudgets may refuse.
    Evict {
        /// Which.
        pod: ObjectKey,
        /// Its UID.
        uid: String,
    },
    /// A deletion, because the deadline leaves only this grace period.
    Delete {
        /// Which.
        pod: ObjectKey,
        /// Its UID.
        uid: String,
        /// Seconds of grace, at least 1.
        grace_seconds: u32,
    },
}

/// When refused pods may be evicted again, by UID.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefusedEvictions(BTreeMap<String, PodRefusals>);

/// The refusals of one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PodRefusals {
    /// How often in a row, up to [`REFUSED_OFTEN`].
    attempts: u32,
    /// When it may be evicted again.
    until: Timestamp,
    /// The same of the last refusal after which a PodDisruptionBudget was seen to cover the pod.
    guarded: Option<Timestamp>,
}

impl RefusedEvictions {
    /// Records that a PodDisruptionBudget refused the pod's eviction.
    pub fn observe_refusal(&mut self, uid: &str, now: Timestamp) {
        let before = self.0.get(uid);
        let attempts = before.map_or(0, |of| of.attempts);
        let wait = doubled(FIRST_RETRY, attempts, LAST_RETRY);
        let until = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        // From the seventh doubling on, the longest wait applies.
        let attempts = (attempts + 1).min(REFUSED_OFTEN);
        let guarded = before.and_then(|of| of.guarded);
        self.0.insert(uid.to_owned(), PodRefusals { attempts, until, guarded });
    }

    /// Records that a PodDisruptionBudget covers the pod since its last refusal.
    pub(crate) fn observe_guard(&mut self, uid: &str) {
        if let Some(of) = self.0.get_mut(uid) {
            of.guarded = Some(of.until);
        }
    }

    /// Whether a PodDisruptionBudget was there to make the last refusal.
    pub(crate) fn was_guarded(&self, uid: &str) -> bool {
        self.0.get(uid).is_some_and(|of| of.guarded == Some(of.until))
    }

    /// Forgets a pod that is deleted, or being deleted.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Keeps only these pods.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.0.retain(|uid, _| keep(uid));
    }

    /// Whether the pod has been refused for half a minute.
    pub(crate) fn stays_refused(&self, uid: &str) -> bool {
        self.0.get(uid).is_some_and(|of| of.attempts == REFUSED_OFTEN)
    }

    /// Whether any pod has been.
    pub(crate) fn is_stuck(&self) -> bool {
        self.0.keys().any(|uid| self.stays_refused(uid))
    }

    fn until(&self, uid: &str) -> Option<Timestamp> {
        self.0.get(uid).map(|of| of.until)
    }
}

/// A node under drain.
#[derive(Debug, Clone, Copy)]
pub struct Drain<'a> {
    /// The pods that are bound to it.
    pub pods: &'a [PodRef],
    /// Since when it is being drained: the Node's deletion timestamp, or a later warning of EC2.
    pub since: Timestamp,
    /// When it has to be over.
    pub deadline: Option<Timestamp>,
    /// What decides which pods stay until their replacements are ready; none stay without it.
    pub holds: Option<&'a HeldPods>,
    /// The PodDisruptionBudgets that may be in the way.
    pub budgets: &'a [PodDisruptionBudget],
    /// Its volumes.
    pub volumes: DrainVolumes<'a>,
}

/// The volumes that a drain waits for.
#[derive(Debug, Clone, Copy, Default)]
pub struct DrainVolumes<'a> {
    /// Those that are attached.
    pub attached: &'a [String],
    /// Since when the drain waits for nothing else.
    pub since: Option<Timestamp>,
}

/// The operations of a drain now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainPlan {
    /// The operations, in this order.
    pub ops: Vec<PodOp>,
    /// The number of pods that the drain waits for.
    pub pods_left: u32,
    /// What it can't get past by itself.
    pub blocks: Vec<DrainBlock>,
    /// When to look again; `None` if the drain is done.
    pub next: Option<Timestamp>,
}

/// Plans a drain's next moment.
#[must_use]
pub fn plan_drain(drain: &Drain<'_>, refused: &RefusedEvictions, now: Timestamp) -> DrainPlan {
    let waited: Vec<&PodRef> = drain.pods.iter().filter(|pod| is_waited_for(pod, now)).collect();
    let held = |pod: &SeenPod| drain.holds.and_then(|holds| holds.until(pod, drain, now));
    let tier = waited.iter().map(|pod| tier_of(pod)).min();
    // Critical pods that may leave don't wait for others' replacements, as DaemonSets' do: those serve the held pods.
    let free = waited.iter().filter(|pod| held(pod).is_none() && pod.runner != PodRunner::DaemonSet);
    let free =
        if waited.iter().any(|pod| held(pod).is_some()) { free.map(|pod| tier_of(pod)).min() } else { tier };
    let first = [tier, free];
    let mut ops = Vec::new();
    let mut next: Vec<Timestamp> = Vec::new();
    for pod in &waited {
        let (key, uid) = (pod.key.clone(), pod.uid.clone());
        let forced_at = force_at(pod, drain.deadline);
        if let (Some(at), Some(deadline)) = (forced_at, drain.deadline)
            && at <= now
        {
            // A pod that ends before the deadline is left alone.
            if pod.deleted_at.is_none_or(|goes| goes > deadline) {
                ops.push(PodOp::Delete { pod: key, uid, grace_seconds: remaining_seconds(deadline, now) });
            }
            continue;
        }
        next.extend(forced_at);
        let held = held(pod);
        next.extend(held);
        let goes = pod.deleted_at.is_none() && !is_kept(pod, now) && held.is_none();
        let may_evict = first.contains(&Some(tier_of(pod))) && goes;
        if may_evict {
            match refused.until(&uid).filter(|at| *at > now) {
                Some(at) => next.push(at),
                None => ops.push(PodOp::Evict { pod: key, uid }),
            }
        }
    }
    let pods_left = u32::try_from(waited.len()).unwrap_or(u32::MAX);
    let (kept, waiting): (Vec<&PodRef>, _) = waited.into_iter().partition(|pod| is_kept(pod, now));
    let mut blocks = obstacles::of_pods(&kept, &waiting, refused, drain.budgets);
    let next = if pods_left > 0 {
        next.push(now.saturating_add(LOOK_AGAIN).unwrap_or(Timestamp::MAX));
        next.into_iter().filter(|at| *at > now).min()
    } else {
        let earliest = drain.since.saturating_add(SHORTEST).unwrap_or(Timestamp::MAX);
        let detached = detached_by(drain, now);
        let since = drain.volumes.since.filter(|since| now.duration_since(*since) >= DETACHED_SOON);
        blocks.extend(detached.zip(since).and_then(|_| obstacles::of_volumes(drain.volumes.attached)));
        [Some(earliest).filter(|at| *at > now), detached].into_iter().flatten().min()
    };
    DrainPlan { ops, pods_left, blocks, next }
}

/// When to look again at the volumes of a Node without pods to wait for; `None` once it waits for none.
fn detached_by(drain: &Drain<'_>, now: Timestamp) -> Option<Timestamp> {
    let DrainVolumes { attached, since } = drain.volumes;
    if attached.is_empty() {
        return None;
    }
    let longest = since.unwrap_or(now).saturating_add(DETACHED_WITHIN).unwrap_or(Timestamp::MAX);
    let end = drain.deadline.map_or(longest, |deadline| deadline.min(longest));
    let soon = now.saturating_add(LOOK_AGAIN).unwrap_or(Timestamp::MAX);
    (end > now).then(|| soon.min(end))
}

/// Whether a drain isn't over while the pod is there.
#[must_use]
pub fn is_waited_for(pod: &SeenPod, now: Timestamp) -> bool {
    let stuck = pod.deleted_at.is_some_and(|at| now.duration_since(at) > STUCK_AFTER);
    let stays = pod.runner == PodRunner::Kubelet || pod.disruption == PodDisruption::Tolerated;
    pod.life == PodLife::Active && !stays && !stuck
}

/// The pod's tier.
#[must_use]
pub const fn tier_of(pod: &SeenPod) -> Tier {
    match (pod.criticality, pod.runner) {
        (Criticality::Ordinary, PodRunner::Other | PodRunner::Kubelet) => Tier::Workload,
        (Criticality::Ordinary, PodRunner::DaemonSet) => Tier::Daemon,
        (Criticality::Critical, PodRunner::Other | PodRunner::Kubelet) => Tier::CriticalWorkload,
        (Criticality::Critical, PodRunner::DaemonSet) => Tier::CriticalDaemon,
    }
}

/// Whether `karpenter.sh/do-not-disrupt` keeps the pod where it is: `true`, or a duration since its start that isn't
/// over. Any other value is ignored.
#[must_use]
pub fn is_kept(pod: &SeenPod, now: Timestamp) -> bool {
    DoNotDisrupt::parse(pod.do_not_disrupt.as_deref()).keeps(pod.started_at, now)
}

/// When the time until the deadline equals the pod's grace period. Pods without one are never deleted by force.
fn force_at(pod: &SeenPod, deadline: Option<Timestamp>) -> Option<Timestamp> {
    deadline?.saturating_sub(SignedDuration::from_secs(pod.grace_seconds?)).ok()
}

fn remaining_seconds(deadline: Timestamp, now: Timestamp) -> u32 {
    u32::try_from(deadline.duration_since(now).as_secs().max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use tenon_domain::drain_block::DrainObstacle;
    use tenon_domain::manifest::{self, ManifestObject};

    use crate::hold::ReplacementStage;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, patch: Value) -> PodRef {
        let mut pod = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "a", "uid": name},
            "spec": {"terminationGracePeriodSeconds": 30}, "status": {"phase": "Running"}});
        merge(&mut pod, patch);
        Arc::new(SeenPod::read(&pod).unwrap())
    }

    fn merge(target: &mut Value, patch: Value) {
        match (target, patch) {
            (Value::Object(target), Value::Object(patch)) => {
                for (field, value) in patch {
                    merge(target.entry(field).or_insert(Value::Null), value);
                }
            }
            (target, patch) => *target = patch,
        }
    }

    fn drain_of(pods: &[PodRef], deadline: Option<i64>) -> Drain<'_> {
        let volumes = DrainVolumes::default();
        Drain { pods, since: at(0), deadline: deadline.map(at), holds: None, budgets: &[], volumes }
    }

    fn check(pods: &[PodRef], (deadline, now): (Option<i64>, i64), expected: &[&str]) -> DrainPlan {
        let plan = plan_drain(&drain_of(pods, deadline), &RefusedEvictions::default(), at(now));
        assert_eq!(told_ops(&plan), expected);
        plan
    }

    fn told_ops(plan: &DrainPlan) -> Vec<String> {
        let told = plan.ops.iter().map(|op| match op {
            PodOp::Evict { pod, .. } => format!("evict {}", pod.name),
            PodOp::Delete { pod, grace_seconds, .. } => format!("delete {} {grace_seconds}", pod.name),
        });
        told.collect()
    }

    fn daemon() -> Value {
        json!({"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]}})
    }

    fn critical() -> Value {
        json!({"spec": {"priorityClassName": "system-node-critical"}})
    }

    #[test]
    fn a_critical_pod_waits_for_no_held_pod_and_a_daemon_does() {
        let pods = [pod("w", json!({})), pod("d", daemon()), pod("c", critical())];
        let launched = pods[0].counted_as().map(|uid| (uid, ReplacementStage::Launched));
        let replacements = Arc::new(launched.into_iter().collect());
        let holds = HeldPods { replacements, ..HeldPods::default() };
        let drain = Drain { holds: Some(&holds), ..drain_of(&pods, Some(120)) };
        let evicted = |now| told_ops(&plan_drain(&drain, &RefusedEvictions::default(), at(now)));
        // It has a place elsewhere, as nobody plans one for it.
        assert_eq!(evicted(6), ["evict c"]);
        assert_eq!(evicted(71), ["evict w"], "nothing is held any longer");
    }

    #[test]
    fn tiers_go_one_at_a_time() {
        let mut both = daemon();
        merge(&mut both, critical());
        let pods = [pod("cd", both), pod("c", critical()), pod("d", daemon()), pod("w", json!({}))];
        check(&pods, (None, 1), &["evict w"]);
        check(&pods[..3], (None, 1), &["evict d"]);
        check(&pods[..2], (None, 1), &["evict c"]);
        check(&pods[..1], (None, 1), &["evict cd"]);
        // A terminating pod still holds its tier.
        let going = json!({"metadata": {"deletionTimestamp": at(30).to_string()}});
        check(&[pods[2].clone(), pod("w", going)], (None, 1), &[]);
    }

    #[test]
    fn some_pods_are_not_waited_for() {
        let check = |patch: Value, expected: u32| {
            assert_eq!(
                plan_drain(&drain_of(&[pod("a", patch)], None), &RefusedEvictions::default(), at(100))
                    .pods_left,
                expected
            );
        };
        check(json!({}), 1);
        check(json!({"status": {"phase": "Succeeded"}}), 0);
        check(json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}), 0);
        let of_node =
            |api: &str| json!({"metadata": {"ownerReferences": [{"apiVersion": api, "kind": "Node"}]}});
        check(of_node("v1"), 0);
        check(of_node("longhorn.io/v1beta2"), 1);
        check(json!({"spec": {"tolerations": [{"operator": "Exists"}]}}), 0);
        check(json!({"spec": {"tolerations": [{"key": "karpenter.sh/disrupted", "operator": "Exists"}]}}), 0);
        check(json!({"metadata": {"deletionTimestamp": at(41).to_string()}}), 1);
        check(json!({"metadata": {"deletionTimestamp": at(39).to_string()}}), 0);
    }

    #[test]
    fn do_not_disrupt_stays_until_the_deadline() {
        let kept = |value: &str| {
            pod(
                "k",
                json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": value}},
            "status": {"startTime": at(0).to_string()}}),
            )
        };
        check(&[kept("true")], (None, 1000), &[]);
        check(&[kept("10m")], (None, 599), &[]);
        check(&[kept("10m")], (None, 600), &["evict k"]);
        check(&[kept("-10m")], (None, 1), &["evict k"]);
        check(&[kept("yes")], (None, 1), &["evict k"]);
        // The planner reads the same: Go's durations, and no others.
        check(&[kept("0.5h1m")], (None, 1859), &[]);
        check(&[kept("0.5h1m")], (None, 1860), &["evict k"]);
        for others in ["1 hour", "1h 30m", "PT1H"] {
            check(&[kept(others)], (None, 1), &["evict k"]);
        }
        check(&[kept("true")], (Some(120), 89), &[]);
        check(&[kept("true")], (Some(120), 90), &["delete k 30"]);
        check(&[kept("true")], (Some(120), 200), &["delete k 1"]);
    }

    #[test]
    fn the_deadline_ignores_tiers_and_shortens_what_takes_too_long() {
        let slow = pod("slow", json!({"spec": {"terminationGracePeriodSeconds": 100}}));
        check(&[slow.clone(), pod("w", daemon())], (Some(120), 20), &["delete slow 100"]);
        let goes = |second: i64| pod("g", json!({"metadata": {"deletionTimestamp": at(second).to_string()}}));
        check(&[goes(121)], (Some(120), 95), &["delete g 25"]);
        check(&[goes(119)], (Some(120), 95), &[]);
    }

    #[test]
    fn a_drain_takes_five_seconds_at_least() {
        assert_eq!(check(&[], (None, 4), &[]).next, Some(at(5)));
        assert_eq!(check(&[], (None, 5), &[]).next, None);
    }

    #[test]
    fn a_refused_pod_is_asked_again_after_a_growing_wait() {
        let mut refused = RefusedEvictions::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            refused.observe_refusal("a", at(0));
            waits.push(refused.until("a").unwrap().as_millisecond());
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        let pods = [pod("a", json!({}))];
        let plan = plan_drain(&drain_of(&pods, None), &refused, at(1));
        assert_eq!((plan.ops.len(), plan.pods_left, plan.next), (0, 1, Some(at(2))));
    }

    #[test]
    fn a_drain_waits_for_volumes_after_its_last_pod_and_not_for_ever() {
        let check =
            |(deadline, since): (Option<i64>, Option<i64>), now: i64, expected: (Option<i64>, usize)| {
                let attached = ["pv-1".to_owned()];
                let volumes = DrainVolumes { attached: &attached, since: since.map(at) };
                let drain = Drain { volumes, ..drain_of(&[], deadline) };
                let plan = plan_drain(&drain, &RefusedEvictions::default(), at(now));
                assert_eq!((plan.next, plan.blocks.len()), (expected.0.map(at), expected.1));
            };
        check((None, None), 20, (Some(21), 0));
        check((None, Some(20)), 79, (Some(80), 0));
        check((None, Some(20)), 80, (Some(81), 1));
        check((None, Some(20)), 619, (Some(620), 1));
        check((None, Some(20)), 620, (None, 0));
        check((Some(60), Some(20)), 59, (Some(60), 0));
        check((Some(60), Some(20)), 60, (None, 0));
        let drain = Drain {
            volumes: DrainVolumes { attached: &["pv-1".to_owned()], since: None },
            ..drain_of(&[], None)
        };
        assert_eq!(plan_drain(&drain, &RefusedEvictions::default(), at(2)).next, Some(at(3)));
    }

    #[test]
    fn a_pod_that_is_refused_for_half_a_minute_or_kept_is_an_obstacle() {
        let mut refused = RefusedEvictions::default();
        let annotated = json!({"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}});
        let pods = [pod("b", json!({})), pod("a", json!({})), pod("k", annotated)];
        let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {"name": "all", "namespace": "a"}, "spec": {"maxUnavailable": 0, "selector": {}}});
        let Ok(ManifestObject::PodDisruptionBudget(budget)) = manifest::read_stored(&budget) else {
            panic!("{budget}")
        };
        let within = |refused: &RefusedEvictions, budgets| -> Vec<(DrainObstacle, String, u32)> {
            let plan = plan_drain(&Drain { budgets, ..drain_of(&pods, None) }, refused, at(60));
            plan.blocks.into_iter().map(|block| (block.by, block.first, block.count)).collect()
        };
        let blocks = |refused: &RefusedEvictions| within(refused, std::slice::from_ref(&*budget));
        let kept = (DrainObstacle::DoNotDisrupt, "a/k".to_owned(), 1);
        for uid in ["a", "b"] {
            for _ in 0..9 {
                refused.observe_refusal(uid, at(0));
            }
        }
        assert_eq!(blocks(&refused), std::slice::from_ref(&kept));
        ["a", "b"].iter().for_each(|uid| refused.observe_refusal(uid, at(0)));
        let guarded = (DrainObstacle::PodDisruptionBudget, "a/a".to_owned(), 2);
        assert_eq!(blocks(&refused), [guarded.clone(), kept.clone()]);
        // Nothing refuses the next evictions once the budget is gone. Where something does, it is told without a name.
        assert_eq!(within(&refused, &[]), [guarded.clone(), kept.clone()]);
        ["a", "b"].iter().for_each(|uid| refused.observe_guard(uid));
        assert_eq!(within(&refused, &[]), std::slice::from_ref(&kept));
        ["a", "b"].iter().for_each(|uid| refused.observe_refusal(uid, at(50)));
        assert_eq!(within(&refused, &[]), [guarded, kept]);
    }
}
