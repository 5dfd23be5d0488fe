//! Queues with clusters that end every invocation that handles them.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;

use std::collections::{BTreeMap, BTreeSet};
use tenon_domain::wake::WakeCause;
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::block_on;
use tenon_runtime::batch::*;
use tenon_runtime::error::HandlerError;
use tenon_runtime::handler::{Handler, WakeScope};
use tenon_runtime::ports::{Installation, Ports};
use tenon_table::items::{Trial, keys, put};
use tenon_table::{Table, content_commit};

/// Ends the invocation for clusters that are called so: no answer ever comes.
struct Probe;

impl Handler for Probe {
    fn name(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    async fn handle<P: Ports>(&self, _: &P, scope: &WakeScope, _: &[WakeCause]) -> Result<(), HandlerError> {
        match scope {
            WakeScope::Cluster(cluster) if cluster.as_str().starts_with("ends") => {
                std::future::pending().await
            }
            WakeScope::Cluster(_) | WakeScope::Region => Ok(()),
        }
    }
}

/// The seconds after which a message comes back.
const VISIBILITY: i64 = 360;
const BATCH: usize = 10;

#[derive(Debug, Clone)]
struct Queued {
    cluster: String,
    visible_at: i64,
    received: u32,
}

/// A queue, its function and the fate of its messages.
struct Queue {
    world: FunctionWorld,
    second: i64,
    next: usize,
    dice: u64,
    messages: BTreeMap<String, Queued>,
    dead: BTreeMap<String, u64>,
    /// By cluster, the most receives of a handled message.
    receives: BTreeMap<String, u32>,
}

impl Queue {
    fn new(seed: u64) -> Self {
        Self {
            world: FunctionWorld::new(&WorldConfig::default()).unwrap(),
            second: 0,
            next: 0,
            dice: seed.wrapping_mul(2).wrapping_add(1),
            messages: BTreeMap::new(),
            dead: BTreeMap::new(),
            receives: BTreeMap::new(),
        }
    }

    fn throw(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    fn send(&mut self, cluster: &str) {
        self.next += 1;
        let message = Queued { cluster: cluster.to_owned(), visible_at: self.second, received: 0 };
        self.messages.insert(format!("m{}", self.next), message);
    }

    /// Runs an invocation with some of the visible messages; returns whether there were any.
    fn invoke(&mut self) -> bool {
        let mut visible: Vec<String> = self
            .messages
            .iter()
            .filter(|(_, m)| m.visible_at <= self.second)
            .map(|(id, _)| id.clone())
            .collect();
        let mut batch = Vec::new();
        while !visible.is_empty() && batch.len() < BATCH {
            let at = usize::try_from(self.throw(visible.len() as u64)).unwrap();
            let id = visible.swap_remove(at);
            let message = self.messages.get_mut(&id).unwrap();
            if message.received >= RECEIVES_LEAST {
                let dead = self.messages.remove(&id).unwrap();
                *self.dead.entry(dead.cluster).or_default() += 1;
                continue;
            }
            message.received += 1;
            message.visible_at = self.second + VISIBILITY;
            let wake = json!({"source": "tenon", "detail-type": "Wake",
                "detail": {"installation": "tenon", "cluster": message.cluster}});
            batch.push(Message { id, body: wake.to_string(), received: message.received });
        }
        let mut handled = Batch::read(&batch);
        let ended = {
            let shares = Shares::default();
            let mut handling = pin!(handled.handle(&Probe, &shares, &self.world));
            handling.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Pending
        };
        if !ended {
            let failed: BTreeSet<String> =
                handled.into_failures().into_iter().map(|f| f.message_id).collect();
            for message in batch.iter().filter(|message| !failed.contains(&message.id)) {
                let gone = self.messages.remove(&message.id).unwrap();
                let most = self.receives.entry(gone.cluster).or_default();
                *most = gone.received.max(*most);
            }
        }
        !batch.is_empty()
    }

    fn pass(&mut self, seconds: i64) {
        self.second += seconds;
        self.world.clock.advance(SignedDuration::from_secs(seconds));
    }
}

/// Plays two hours with so many clusters that end invocations, among ten others; returns the most receives of a
/// message of one of the others.
fn play(seed: u64, ending: usize) -> u32 {
    let mut queue = Queue::new(seed);
    let others: Vec<String> =
        (0..10).map(|n| format!("{}-{n}", if n % 2 == 0 { "a" } else { "z" })).collect();
    for _ in 0..120 {
        for cluster in &others {
            if queue.throw(3) == 0 {
                queue.send(cluster);
            }
        }
        for n in 0..ending {
            if queue.throw(2) == 0 {
                queue.send(&format!("ends-{n}"));
            }
        }
        for _ in 0..3 {
            queue.invoke();
            queue.pass(20);
        }
    }
    // The ending ones' last messages go one by one.
    for _ in 0..200 {
        queue.invoke();
        queue.pass(20);
    }
    let dead: Vec<&String> = queue.dead.keys().filter(|cluster| !cluster.starts_with("ends")).collect();
    assert!(dead.is_empty(), "seed {seed}: dead letters of {dead:?}");
    let left = queue.messages.values().filter(|message| !message.cluster.starts_with("ends")).count();
    assert_eq!(left, 0, "seed {seed}: messages of others wait for ever");
    queue.receives.values().copied().max().unwrap()
}

#[test]
fn a_cluster_that_ends_every_invocation_takes_no_other_clusters_messages_to_the_dead_letters() {
    assert_eq!(play(0, 0), 1);
    for seed in 0..30 {
        for ending in 1..=3 {
            let most = play(seed, ending);
            assert!(
                most <= 2 + u32::try_from(ending).unwrap(),
                "seed {seed}, {ending}: received {most} times"
            );
        }
    }
}

fn wake(cluster: &str, received: u32) -> Message {
    let body = json!({"source": "tenon", "detail-type": "Wake",
        "detail": {"installation": "tenon", "cluster": cluster}});
    Message { id: cluster.to_owned(), body: body.to_string(), received }
}

/// So many invocations in a row began with the cluster, and none is known to have come to its end.
fn begun(world: &FunctionWorld, cluster: &str, times: u64) {
    let (now, function) = (world.clock.now(), FunctionName::Lifecycle);
    let trial = Trial { function, begun: times, at: now, expires_at: now + SignedDuration::from_hours(1) };
    let key = keys::trial(&ClusterName::parse(cluster).unwrap(), function);
    block_on(world.table.commit(&content_commit(vec![], vec![put(key, &trial)]))).unwrap();
}

#[test]
fn who_is_found_out_is_set_aside_with_a_reason_and_tried_among_its_like() {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    begun(&world, "prod", 2);
    let failures =
        |messages: &[Message]| block_on(handle_batch(&Probe, &Shares::default(), &world, messages));
    let both = failures(&[wake("prod", 2), wake("shop", 1)]);
    let told: Vec<(&str, &str)> = both.iter().map(|f| (f.message_id.as_str(), f.error_type)).collect();
    assert_eq!(told, [("prod", "SetAside")]);
    assert_eq!(
        both[0].error,
        "setting cluster `prod` aside: its last 2 invocations ended without an answer, so the rest of \
         this batch comes first"
    );
    // The suspect with the fewest trials is handled, and is a suspect no longer.
    begun(&world, "dev", 1);
    let set_aside =
        |failures: Vec<MessageFailure>| failures.into_iter().map(|f| f.message_id).collect::<Vec<_>>();
    assert_eq!(set_aside(failures(&[wake("prod", 3), wake("dev", 2)])), ["prod"]);
    assert_eq!(set_aside(failures(&[wake("prod", 4), wake("dev", 2)])), ["prod"]);
    assert_eq!(set_aside(failures(&[wake("prod", 5)])), [""; 0]);
}

#[test]
fn who_ended_one_invocation_is_tried_again_beside_messages_that_come_for_the_first_time() {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    begun(&world, "prod", 1);
    let failures = |messages: &[Message]| {
        let failures = block_on(handle_batch(&Probe, &Shares::default(), &world, messages));
        failures.into_iter().map(|f| f.message_id).collect::<Vec<_>>()
    };
    assert_eq!(failures(&[wake("prod", 2), wake("shop", 2)]), ["prod"]);
    assert_eq!(failures(&[wake("prod", 3), wake("shop", 1)]), [""; 0]);
    // It came to its end: nothing is held against it.
    assert_eq!(failures(&[wake("prod", 2), wake("shop", 2)]), [""; 0]);
}

/// Handles each scope for as many seconds as its cluster's name says, one after another, and notes the order of the ends.
struct Slow {
    ended: Mutex<Vec<String>>,
}

impl Handler for Slow {
    fn name(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    async fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        _: &[WakeCause],
    ) -> Result<(), HandlerError> {
        let WakeScope::Cluster(cluster) = scope else { return Ok(()) };
        let seconds = cluster.as_str().rsplit('-').next().unwrap().parse().unwrap();
        ports.pause(SignedDuration::from_secs(seconds)).await;
        self.ended.lock().unwrap().push(cluster.to_string());
        Ok(())
    }
}

/// A world in which pauses take their time, also side by side.
struct TimedWorld {
    world: FunctionWorld,
    waits: Mutex<BTreeSet<Timestamp>>,
}

impl TimedWorld {
    /// Runs a future: whenever it waits, the time of its next pause comes.
    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            self.waits.lock().unwrap().clear();
            if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return done;
            }
            let next = *self.waits.lock().unwrap().first().unwrap();
            self.world.clock.advance(next.duration_since(self.now()));
        }
    }
}

impl Ports for TimedWorld {
    type Table = <FunctionWorld as Ports>::Table;
    type Ec2 = <FunctionWorld as Ports>::Ec2;
    type Signals = <FunctionWorld as Ports>::Signals;

    fn table(&self) -> &Self::Table {
        self.world.table()
    }

    fn ec2(&self) -> &Self::Ec2 {
        self.world.ec2()
    }

    fn signals(&self) -> &Self::Signals {
        self.world.signals()
    }

    fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    async fn pause(&self, time: SignedDuration) {
        let until = self.now() + time;
        poll_fn(|_| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            self.waits.lock().unwrap().insert(until);
            Poll::Pending
        })
        .await;
    }

    fn installation(&self) -> &Installation {
        self.world.installation()
    }
}

/// In which order the clusters of a batch end, and how many seconds all of it takes, after so many seconds.
fn handled(clusters: &[&str], after: i64) -> (Vec<String>, i64) {
    let world = FunctionWorld::new(&WorldConfig::default()).unwrap();
    world.clock.advance(SignedDuration::from_secs(after));
    let timed = TimedWorld { world, waits: Mutex::default() };
    let (began, handler) = (timed.now(), Slow { ended: Mutex::default() });
    let messages: Vec<Message> = clusters.iter().map(|cluster| wake(cluster, 1)).collect();
    assert_eq!(timed.run(handle_batch(&handler, &Shares::default(), &timed, &messages)), []);
    (handler.ended.into_inner().unwrap(), timed.now().duration_since(began).as_secs())
}

#[test]
fn a_slow_cluster_goes_on_after_the_others() {
    for after in 0..3 {
        let (order, seconds) = handled(&["a-40", "b-1", "c-1"], after);
        assert_eq!(order.last().unwrap(), "a-40");
        // It begins anew, so its first seconds are lost, where others waited.
        assert!(seconds <= 5 + 2 + 40, "{seconds}");
    }
    assert_eq!(handled(&["a-40"], 0), (vec!["a-40".to_owned()], 40));
}

#[test]
fn each_second_begins_with_another_cluster() {
    let first = |after| handled(&["a-1", "b-1", "c-1"], after).0[0].clone();
    assert_eq!([0, 1, 2].map(first).into_iter().collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(first(0), first(3));
}
