//! A table that waits out DynamoDB's throttling within one invocation.
//!
//! DynamoDB throttles a partition key only until its capacity of the current second is replaced. A message that goes
//! back to its queue returns only after the visibility timeout. So a function that must be quick repeats a throttled
//! call in the same invocation.
//!
//! Decides when to repeat a throttled call, and when to leave it to the queue. It repeats no other failed call: a
//! conflict needs a new observation, and an unclear answer may hide a success.
//!
//! Invariant: no call is repeated after the invocation's patience has ended.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_table::{Commit, CommitError, Consistency, Item, Key, Query, QueryPage, Table, TableError};

use crate::ports::{Installation, Ports};

/// The first wait after a throttled call: a key has 1,000 write units a second, so 50 more are free by then.
const FIRST_WAIT: SignedDuration = SignedDuration::from_millis(50);
/// The longest wait between two calls.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_millis(400);

/// How long an invocation with a timeout of 60 s waits for a throttled table; the rest is for its other calls.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(40);

/// Ports whose table waits out throttling until a given time.
pub struct Patient<'a, P> {
    table: PatientTable<'a, P>,
}

impl<'a, P: Ports> Patient<'a, P> {
    /// Wraps ports with a table that waits at most `at_most` from now on, over all calls together.
    #[must_use]
    pub fn new(ports: &'a P, at_most: SignedDuration) -> Self {
        let until = ports.now().saturating_add(at_most).unwrap_or(Timestamp::MAX);
        Self { table: PatientTable { ports, until } }
    }

    /// Whether the patience has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.now() >= self.table.until
    }
}

impl<'a, P: Ports> Ports for Patient<'a, P> {
    type Table = PatientTable<'a, P>;
    type Ec2 = P::Ec2;
    type Signals = P::Signals;

    fn table(&self) -> &Self::Table {
        &self.table
    }

    fn ec2(&self) -> &Self::Ec2 {
        self.table.ports.ec2()
    }

    fn signals(&self) -> &Self::Signals {
        self.table.ports.signals()
    }

    fn now(&self) -> Timestamp {
        self.table.ports.now()
    }

    async fn pause(&self, time: SignedDuration) {
        self.table.ports.pause(time).await;
    }

    fn installation(&self) -> &Installation {
        self.table.ports.installation()
    }
}

/// The table of [`Patient`] ports.
pub struct PatientTable<'a, P> {
    ports: &'a P,
    until: Timestamp,
}

impl<P: Ports> PatientTable<'_, P> {
    /// Waits, unless the patience has ended.
    async fn wait(&self, waits: &mut Backoff) -> bool {
        let wait = waits.next();
        let again = self.ports.now().saturating_add(wait).unwrap_or(Timestamp::MAX);
        if again > self.until {
            return false;
        }
        self.ports.pause(wait).await;
        true
    }
}

impl<P: Ports> Table for PatientTable<'_, P> {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        let mut waits = Backoff::default();
        loop {
            let answer = self.ports.table().get(key, consistency).await;
            if !is_throttled(&answer) || !self.wait(&mut waits).await {
                return answer;
            }
        }
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        let mut waits = Backoff::default();
        loop {
            let answer = self.ports.table().batch_get(keys, consistency).await;
            if !is_throttled(&answer) || !self.wait(&mut waits).await {
                return answer;
            }
        }
    }

    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        let mut waits = Backoff::default();
        loop {
            let answer = self.ports.table().query(query).await;
            if !is_throttled(&answer) || !self.wait(&mut waits).await {
                return answer;
            }
        }
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let mut waits = Backoff::default();
        loop {
            let answer = self.ports.table().commit(commit).await;
            if !matches!(answer, Err(CommitError::Throttled { .. })) || !self.wait(&mut waits).await {
                return answer;
            }
        }
    }
}

const fn is_throttled<T>(answer: &Result<T, TableError>) -> bool {
    matches!(answer, Err(TableError::Throttled { .. }))
}

/// The waits of one call: each twice as long as the one before.
#[derive(Debug, Default)]
struct Backoff(u32);

impl Backoff {
    fn next(&mut self) -> SignedDuration {
        let wait = FIRST_WAIT.saturating_mul(1 << self.0).min(LONGEST_WAIT);
        // Eight times the first wait is the longest.
        self.0 = self.0.saturating_add(1).min(3);
        wait
    }
}
