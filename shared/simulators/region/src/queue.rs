//! A function's queue and its dead letters, on virtual time: a standard queue of SQS, or Lambda's own of asynchronous
//! invocations.
//!
//! Decides the messages of a batch, and the fate of failed ones. Of Lambda's own queue an invocation takes one message,
//! and Lambda notices at once that it failed or crashed; SQS doesn't notice a crash. Messages of one group that fills the
//! queue come after those of the others, as of SQS' fair queues. SQS has a second measure, each group's share of the
//! processing time, which isn't modelled.
//!
//! Invariant: a message is in flight, visible later, or a dead letter; it is never lost.
//!
//! Source: AWS, "How Amazon SQS fair queues work" (SQSDeveloperGuide/sqs-fair-queues-detailed, read November 2026).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::id::ClusterName;

use crate::wiring::{QueueKind, QueueSpec, RETRY_AFTER};

/// A group with fewer messages in flight fills no queue.
const NOISY_FROM: usize = 30;
/// Nor does one with at most this share of all messages in flight: a tenth.
const NOISY_SHARE: usize = 10;

/// A message on a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Its id.
    pub id: String,
    /// Its body.
    pub body: String,
    /// `MessageGroupId`: the cluster that it is about. A message without one is a group of its own.
    pub group: Option<ClusterName>,
    /// When it can be taken, or taken again.
    pub visible_at: Timestamp,
    /// The number of its receives.
    pub receive_count: u32,
}

/// A queue.
#[derive(Debug, Clone)]
pub struct Queue {
    spec: QueueSpec,
    messages: Vec<QueuedMessage>,
    dead_letters: Vec<QueuedMessage>,
    next_id: u64,
    /// When the queue is polled next, as far as that is arranged.
    poll_at: Option<Timestamp>,
    /// Groups that fill the queue, until none of their messages waits.
    noisy: BTreeSet<ClusterName>,
    usage: QueueUsage,
}

/// The quantities that SQS bills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueUsage {
    /// SendMessage, EventBridge's and Scheduler's among them.
    pub sent: u64,
    /// ReceiveMessage that gave something.
    pub received: u64,
    /// DeleteMessageBatch.
    pub deleted: u64,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub const fn new(spec: QueueSpec) -> Self {
        Self {
            spec,
            messages: Vec::new(),
            dead_letters: Vec::new(),
            next_id: 0,
            poll_at: None,
            noisy: BTreeSet::new(),
            usage: QueueUsage { sent: 0, received: 0, deleted: 0 },
        }
    }

    /// Its specification.
    #[must_use]
    pub const fn spec(&self) -> &QueueSpec {
        &self.spec
    }

    /// Whether Lambda polls it, with or without messages.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.spec.kind == QueueKind::Polled
    }

    /// The quantities that SQS bills so far: none of Lambda's own queue.
    #[must_use]
    pub const fn usage(&self) -> QueueUsage {
        self.usage
    }

    /// Its dead letters.
    #[must_use]
    pub fn dead_letters(&self) -> &[QueuedMessage] {
        &self.dead_letters
    }

    /// How many messages wait or are in flight.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether no message waits or is in flight.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether a message waits or is in flight that isn't a schedule's: something that happened.
    #[must_use]
    pub fn has_news(&self) -> bool {
        self.messages.iter().any(|message| !message.body.contains("tenon.schedule"))
    }

    /// Puts a message on the queue.
    pub fn send(&mut self, body: String, group: Option<ClusterName>, visible_at: Timestamp) {
        self.next_id += 1;
        self.usage.sent += self.billed(1);
        let id = format!("{}-{:08}", self.spec.function, self.next_id);
        self.messages.push(QueuedMessage { id, body, group, visible_at, receive_count: 0 });
    }

    /// When a batch is due: the batch window after the first message that can be taken.
    #[must_use]
    pub fn due(&self) -> Option<Timestamp> {
        self.messages
            .iter()
            .map(|m| m.visible_at)
            .filter(|at| *at < Timestamp::MAX)
            .min()
            .and_then(|at| at.checked_add(self.spec.batch_window).ok())
    }

    /// The time of the next poll to schedule: when a message is due, unless a poll is scheduled by then. Without one,
    /// an earlier poll asks again, so a visible message is always polled for.
    #[must_use]
    pub fn arrange_poll(&mut self, now: Timestamp) -> Option<Timestamp> {
        let at = self.due()?.max(now);
        if self.poll_at.is_some_and(|arranged| arranged <= at) {
            return None;
        }
        self.poll_at = Some(at);
        Some(at)
    }

    /// Runs a scheduled poll; returns whether a batch is due. Afterwards the caller schedules the next one.
    #[must_use]
    pub fn poll(&mut self, now: Timestamp) -> bool {
        if self.poll_at.is_some_and(|arranged| arranged <= now) {
            self.poll_at = None;
        }
        self.due().is_some_and(|at| at <= now)
    }

    /// The groups that fill the queue, with their messages in flight.
    fn noisy_groups(&mut self, now: Timestamp) -> BTreeMap<ClusterName, usize> {
        let mut waiting: BTreeSet<&ClusterName> = BTreeSet::new();
        let mut in_flight: BTreeMap<ClusterName, usize> = BTreeMap::new();
        let mut all: usize = 0;
        for message in &self.messages {
            let flies = message.receive_count > 0 && message.visible_at > now;
            all += usize::from(flies);
            match &message.group {
                Some(group) if flies => *in_flight.entry(group.clone()).or_default() += 1,
                Some(group) if message.visible_at <= now => {
                    waiting.insert(group);
                }
                Some(_) | None => {}
            }
        }
        self.noisy.retain(|group| waiting.contains(group));
        let fills = |(_, count): &(&ClusterName, &usize)| {
            **count >= NOISY_FROM && count.saturating_mul(NOISY_SHARE) > all
        };
        self.noisy.extend(in_flight.iter().filter(fills).map(|(group, _)| group.clone()));
        let count = |group: &ClusterName| (group.clone(), in_flight.get(group).copied().unwrap_or(0));
        self.noisy.iter().map(count).collect()
    }

    /// Takes a batch; messages with too many receives become dead letters instead.
    pub fn receive(&mut self, now: Timestamp) -> Vec<QueuedMessage> {
        // An invocation isn't repeated before it ended.
        let hidden_until = match self.spec.kind {
            QueueKind::Polled => now.checked_add(self.spec.visibility_timeout).unwrap_or(Timestamp::MAX),
            QueueKind::Invocations => Timestamp::MAX,
        };
        let mut batch = Vec::new();
        let mut dead = Vec::new();
        let noisy = self.noisy_groups(now);
        let mut visible: Vec<&mut QueuedMessage> =
            self.messages.iter_mut().filter(|message| message.visible_at <= now).collect();
        // Quiet groups first, then the noisy one with the fewest messages in flight; else as they came.
        visible.sort_by_key(|message| message.group.as_ref().and_then(|group| noisy.get(group).copied()));
        for message in visible {
            if batch.len() >= self.spec.batch_size {
                break;
            }
            if message.receive_count >= self.spec.max_receive_count {
                dead.push(message.id.clone());
                continue;
            }
            message.receive_count += 1;
            message.visible_at = hidden_until;
            batch.push(message.clone());
        }
        self.give_up(&dead);
        // Lambda's pollers take ten messages a call.
        self.usage.received += self.billed(batch.len().div_ceil(10));
        batch
    }

    /// Ends an invocation: handled messages are deleted. Failed ones become visible again, of SQS after their timeout, of
    /// Lambda's own queue after the wait for their retry.
    pub fn finish(&mut self, batch: &[String], failed: &[String], now: Timestamp) {
        let handled = |id: &String| batch.contains(id) && !failed.contains(id);
        let before = self.messages.len();
        self.messages.retain(|message| !handled(&message.id));
        let gone = before.saturating_sub(self.messages.len());
        self.usage.deleted += self.billed(gone.div_ceil(10));
        match self.spec.kind {
            QueueKind::Polled => {}
            QueueKind::Invocations => self.retry(failed, now),
        }
    }

    /// Ends an invocation that crashed, with all of its messages.
    pub fn crashed(&mut self, batch: &[String], now: Timestamp) {
        self.finish(batch, batch, now);
    }

    /// Repeats failed invocations, and keeps those that failed for the last time.
    fn retry(&mut self, failed: &[String], now: Timestamp) {
        let mut dead = Vec::new();
        for message in self.messages.iter_mut().filter(|message| failed.contains(&message.id)) {
            let wait = usize::try_from(message.receive_count)
                .ok()
                .filter(|_| message.receive_count < self.spec.max_receive_count)
                .and_then(|received| RETRY_AFTER.get(received.checked_sub(1)?));
            match wait {
                Some(wait) => message.visible_at = now.checked_add(*wait).unwrap_or(Timestamp::MAX),
                None => dead.push(message.id.clone()),
            }
        }
        self.give_up(&dead);
    }

    /// Makes messages dead letters.
    fn give_up(&mut self, dead: &[String]) {
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.messages).into_iter().partition(|m| dead.contains(&m.id));
        self.messages = kept;
        self.dead_letters.extend(gone);
    }

    /// Requests that SQS bills.
    fn billed(&self, requests: usize) -> u64 {
        if self.is_polled() { u64::try_from(requests).unwrap_or(u64::MAX) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;
    use tenon_domain::wake::FunctionName;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn queue() -> Queue {
        Queue::new(QueueSpec {
            function: FunctionName::Lifecycle,
            kind: QueueKind::Polled,
            visibility_timeout: SignedDuration::from_secs(60),
            max_receive_count: 3,
            batch_size: 2,
            batch_window: SignedDuration::from_secs(1),
            at_once: 10,
            memory_mb: 128,
        })
    }

    #[test]
    fn a_batch_is_due_a_window_after_its_first_message() {
        let mut queue = queue();
        assert_eq!(queue.due(), None);
        queue.send("a".to_owned(), None, at(10));
        queue.send("b".to_owned(), None, at(12));
        assert_eq!(queue.due(), Some(at(11)));
        assert_eq!(queue.receive(at(11)).len(), 1);
        assert_eq!(queue.receive(at(12)).len(), 1);
    }

    #[test]
    fn a_message_is_polled_for_though_the_one_before_it_is_gone() {
        let mut queue = queue();
        let mut polls = Vec::new();
        queue.send("first".to_owned(), None, at(0));
        polls.extend(queue.arrange_poll(at(0)));
        assert_eq!(polls, [at(1)]);
        assert!(queue.poll(at(1)));
        let first: Vec<String> = queue.receive(at(1)).into_iter().map(|m| m.id).collect();
        polls.extend(queue.arrange_poll(at(1)));
        // The second is in flight for longer than the first, which ends well; then the second's function crashes.
        queue.send("second".to_owned(), None, at(30));
        polls.extend(queue.arrange_poll(at(30)));
        assert!(queue.poll(at(31)));
        assert_eq!(queue.receive(at(31)).len(), 1);
        polls.extend(queue.arrange_poll(at(31)));
        queue.finish(&first, &[], at(62));
        assert_eq!(polls, [at(1), at(62), at(31), at(62)]);
        // The poll for the first message finds nothing due, and one is scheduled for the second; the other poll of
        // that time changes nothing.
        assert!(!queue.poll(at(62)));
        assert_eq!(queue.arrange_poll(at(62)), Some(at(92)));
        assert!(!queue.poll(at(62)));
        assert_eq!(queue.arrange_poll(at(62)), None);
        assert!(queue.poll(at(92)));
        assert_eq!(queue.receive(at(92)).len(), 1);
    }

    #[test]
    fn a_message_that_fails_three_times_is_a_dead_letter_and_the_others_are_handled() {
        let mut queue = queue();
        queue.send("good".to_owned(), None, at(0));
        queue.send("bad".to_owned(), None, at(0));
        let mut now = at(0);
        for _ in 0..4 {
            let batch = queue.receive(now);
            let ids: Vec<String> = batch.iter().map(|m| m.id.clone()).collect();
            let failed: Vec<String> =
                batch.iter().filter(|m| m.body == "bad").map(|m| m.id.clone()).collect();
            queue.finish(&ids, &failed, now);
            now = now.checked_add(SignedDuration::from_secs(60)).unwrap();
        }
        assert!(queue.is_empty());
        let dead: Vec<&str> = queue.dead_letters().iter().map(|m| m.body.as_str()).collect();
        assert_eq!(dead, ["bad"]);
    }

    fn invocations() -> Queue {
        Queue::new(QueueSpec {
            function: FunctionName::Images,
            kind: QueueKind::Invocations,
            visibility_timeout: SignedDuration::from_secs(30),
            max_receive_count: 3,
            batch_size: 1,
            batch_window: SignedDuration::ZERO,
            at_once: 10,
            memory_mb: 128,
        })
    }

    #[test]
    fn a_failed_invocation_is_repeated_after_one_and_two_minutes_and_then_kept() {
        let mut queue = invocations();
        queue.send("bad".to_owned(), None, at(0));
        queue.send("good".to_owned(), None, at(0));
        let mut begun = Vec::new();
        while let Some(now) = queue.due() {
            let batch: Vec<String> = queue.receive(now).into_iter().map(|message| message.id).collect();
            assert_eq!(batch.len(), 1, "an invocation has one event");
            begun.push(now.as_second());
            let ended = now.checked_add(SignedDuration::from_secs(5)).unwrap();
            match begun.len() {
                // A crash and an error count the same.
                1 => queue.crashed(&batch, ended),
                2 => queue.finish(&batch, &[], ended),
                _ => queue.finish(&batch, &batch, ended),
            }
        }
        assert_eq!(begun, [0, 0, 65, 190]);
        let dead: Vec<&str> = queue.dead_letters().iter().map(|m| m.body.as_str()).collect();
        assert_eq!(dead, ["bad"]);
        assert_eq!(queue.usage(), QueueUsage::default(), "SQS has nothing to bill");
    }

    /// The longest that a message of nine quiet clusters waits, beside one that sends a hundred times as many. A batch
    /// takes five seconds, so 20 messages a second are handled, and 32.7 come.
    fn longest_wait(group: impl Fn(&str) -> Option<ClusterName>) -> i64 {
        let mut queue = Queue::new(QueueSpec { batch_size: 10, ..queue().spec().clone() });
        let mut running: Vec<(i64, Vec<String>)> = Vec::new();
        let mut longest = 0;
        for second in 0..300_i64 {
            let loud = (0..30).map(|_| "loud".to_owned());
            let quiet = (0..9).map(|number| format!("quiet-{number}"));
            let quiet = quiet.filter(|_| matches!(second % 10, 0 | 3 | 6));
            for cluster in loud.chain(quiet).filter(|_| second < 120) {
                queue.send(format!("{cluster} {second}"), group(&cluster), at(second));
            }
            let (ended, going): (Vec<_>, Vec<_>) = running.into_iter().partition(|(end, _)| *end <= second);
            running = going;
            ended.iter().for_each(|(_, batch)| queue.finish(batch, &[], at(second)));
            while running.len() < queue.spec().at_once {
                let batch = queue.receive(at(second));
                if batch.is_empty() {
                    break;
                }
                let quiet = batch.iter().filter_map(|message| message.body.strip_prefix("quiet-"));
                let sent = quiet.filter_map(|text| text.split_once(' ')?.1.parse::<i64>().ok());
                longest = sent.map(|sent| second - sent).fold(longest, i64::max);
                running.push((second + 5, batch.into_iter().map(|message| message.id).collect()));
            }
        }
        assert!(queue.is_empty() && queue.dead_letters().is_empty());
        longest
    }

    #[test]
    fn a_group_that_fills_the_queue_waits_for_the_others() {
        let alike = longest_wait(|_| None);
        assert!(alike > 60, "{alike} s in the order of arrival");
        let fair = longest_wait(|cluster| ClusterName::parse(cluster).ok());
        assert!(fair <= 5, "{fair} s, and a batch takes 5 s");
        // Events that EventBridge delivers have no group. Each is one of its own, so a loud agent isn't told apart.
        let loud_events =
            longest_wait(|cluster| ClusterName::parse(cluster).ok().filter(|_| cluster != "loud"));
        assert!(loud_events > 60, "{loud_events} s");
    }

    #[test]
    fn a_group_with_few_messages_in_flight_keeps_its_place() {
        let mut queue = Queue::new(QueueSpec { batch_size: 100, ..queue().spec().clone() });
        let loud = || ClusterName::parse("loud").ok();
        for _ in 0..29 {
            queue.send("before".to_owned(), loud(), at(0));
        }
        assert_eq!(queue.receive(at(0)).len(), 29);
        queue.send("first".to_owned(), loud(), at(1));
        queue.send("second".to_owned(), None, at(1));
        let bodies = |queue: &mut Queue, second| {
            queue.receive(at(second)).into_iter().map(|message| message.body).collect::<Vec<_>>()
        };
        assert_eq!(bodies(&mut queue, 1), ["first", "second"]);
        queue.send("third".to_owned(), loud(), at(2));
        queue.send("fourth".to_owned(), None, at(2));
        assert_eq!(bodies(&mut queue, 2), ["fourth", "third"], "30 of it are in flight");
    }
}
