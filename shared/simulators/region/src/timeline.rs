//! The region's agenda of due things.
//!
//! Invariant: equal times run in [`TimelineEvent`]'s order (world first, then schedules, deliveries, queues, tasks, agents),
//! and equal ones of those in the order of their insertion. So one seed gives one history.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use jiff::{RoundMode, Timestamp, TimestampRound, Unit};
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;

/// A task's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskId(pub u64);

/// Something that is due; the order is the documented order of equal times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimelineEvent {
    /// EC2 or a cluster moves by itself.
    World,
    /// A step of the scenario that is played.
    Step(usize),
    /// A schedule fires: its index.
    Schedule(usize),
    /// A message arrives on a function's queue.
    Delivery {
        /// The function.
        function: FunctionName,
        /// The message's body.
        body: String,
        /// Its message group: the cluster, if a function sent it.
        group: Option<ClusterName>,
    },
    /// An agent hears its doorbell.
    Ring(ClusterName),
    /// A queue may have a batch.
    Poll(FunctionName),
    /// A task continues.
    Resume(TaskId),
    /// An agent looks.
    Agent(ClusterName),
}

/// The agenda.
#[derive(Debug, Default)]
pub struct Timeline {
    heap: BinaryHeap<Reverse<(Timestamp, TimelineEvent, u64)>>,
    next: u64,
}

impl Timeline {
    /// Puts something on the agenda, at the next whole millisecond: the clock reaches no other time.
    pub fn at(&mut self, at: Timestamp, due: TimelineEvent) {
        let at =
            at.round(TimestampRound::new().smallest(Unit::Millisecond).mode(RoundMode::Ceil)).unwrap_or(at);
        self.next += 1;
        self.heap.push(Reverse((at, due, self.next)));
    }

    /// When the next thing is due.
    #[must_use]
    pub fn next_at(&self) -> Option<Timestamp> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    /// Takes the next thing that is due by then.
    pub fn pop_by(&mut self, now: Timestamp) -> Option<TimelineEvent> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, due, _))| due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_within_a_millisecond_comes_with_the_next_one() {
        let mut timeline = Timeline::default();
        timeline.at(Timestamp::from_microsecond(1_500).unwrap(), TimelineEvent::World);
        assert_eq!(timeline.next_at(), Some(Timestamp::from_millisecond(2).unwrap()));
    }

    #[test]
    fn equal_times_are_worked_off_in_the_documented_order() {
        let at = Timestamp::from_second(1).unwrap();
        let mut timeline = Timeline::default();
        timeline.at(at, TimelineEvent::Resume(TaskId(1)));
        timeline.at(at, TimelineEvent::Schedule(0));
        timeline.at(at, TimelineEvent::World);
        let order: Vec<TimelineEvent> = std::iter::from_fn(|| timeline.pop_by(at)).collect();
        assert_eq!(
            order,
            [TimelineEvent::World, TimelineEvent::Schedule(0), TimelineEvent::Resume(TaskId(1))]
        );
    }
}
