//! The ports of a task: the region's table and twin behind a gate, and an outbox for its doorbells.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tenon_domain::journal::JournalRecord;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_memory_table::MemoryTable;
use tenon_runtime::ports::wake_body;
use tenon_runtime::{BusEvent, Installation, Ports, Signals};
use tenon_snapshot::ObjectKey;
use tenon_table::port::AdapterCause;
use tenon_table::{Commit, CommitError, Consistency, Item, Key, Query, QueryPage, Table, TableError, Write};
use tenon_twin::RegionTwin;

use crate::asked::AskedCall;
use crate::clock::RegionClock;
use crate::gate::{CallMoment, Passage, TaskGate};
use crate::gated_ec2::GatedEc2;
use crate::usage::logged_bytes;

/// A doorbell that a task rang.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskSignal {
    /// An event on our bus.
    Publish(BusEvent),
    /// A cluster's agent.
    RingAgent(ClusterName),
    /// A message to a function's queue.
    Wake {
        /// The function.
        function: FunctionName,
        /// The body.
        body: String,
        /// Its message group.
        cluster: ClusterName,
        /// How long SQS holds it back.
        after: SignedDuration,
    },
}

/// A task's output, which the engine collects after each poll.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Doorbells, in order.
    pub signals: Vec<TaskSignal>,
    /// Committed journal records: key and item.
    pub records: Vec<(Key, Item)>,
    /// Pods that the agent deleted without asking a budget: the pod, and its node.
    pub pod_deletions: Vec<(ObjectKey, String)>,
    /// Bytes of logged lines.
    pub logged_bytes: u64,
}

/// A shared outbox.
pub type SharedOutbox = Arc<Mutex<Outbox>>;

/// The ports of one task.
pub struct LocalPorts {
    table: GatedTable,
    ec2: GatedEc2,
    signals: LocalSignals,
    clock: RegionClock,
    installation: Arc<Installation>,
    gate: TaskGate,
}

/// The gates of a task's calls, and the target of its doorbells.
#[derive(Clone)]
pub struct TaskOutlet {
    /// Its gate.
    pub gate: TaskGate,
    /// The doorbells that were rung.
    pub outbox: SharedOutbox,
}

impl LocalPorts {
    /// The ports of a task with this gate.
    #[must_use]
    pub fn new(
        table: MemoryTable,
        twin: RegionTwin,
        clock: RegionClock,
        installation: Arc<Installation>,
        outlet: TaskOutlet,
    ) -> Self {
        let TaskOutlet { gate, outbox } = outlet;
        Self {
            table: GatedTable { inner: table, gate: gate.clone(), outbox: Arc::clone(&outbox) },
            ec2: GatedEc2::new(twin, gate.clone()),
            signals: LocalSignals { outbox, gate: gate.clone(), installation: Arc::clone(&installation) },
            clock,
            installation,
            gate,
        }
    }
}

impl Ports for LocalPorts {
    type Table = GatedTable;
    type Ec2 = GatedEc2;
    type Signals = LocalSignals;

    fn table(&self) -> &GatedTable {
        &self.table
    }

    fn ec2(&self) -> &GatedEc2 {
        &self.ec2
    }

    fn signals(&self) -> &LocalSignals {
        &self.signals
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn pause(&self, time: SignedDuration) {
        self.gate.pause(time).await;
    }

    fn installation(&self) -> &Installation {
        &self.installation
    }
}

/// The outbox as the port of doorbells.
pub struct LocalSignals {
    outbox: SharedOutbox,
    gate: TaskGate,
    installation: Arc<Installation>,
}

impl LocalSignals {
    fn push(&self, signal: TaskSignal) {
        self.gate.hear(AskedCall::Ring(&signal));
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).signals.push(signal);
    }
}

impl Signals for LocalSignals {
    async fn publish(&self, events: &[BusEvent]) {
        for event in events {
            self.push(TaskSignal::Publish(event.clone()));
        }
    }

    async fn ring_agent(&self, cluster: &ClusterName) {
        self.push(TaskSignal::RingAgent(cluster.clone()));
    }

    /// Counted, because CloudWatch bills it. Transcripts read these lines from the journal.
    fn log(&self, record: &JournalRecord) {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).logged_bytes += logged_bytes(record);
    }

    async fn wake(&self, function: FunctionName, cluster: &ClusterName, after: SignedDuration) {
        let body = wake_body(&self.installation, cluster);
        let after = after.clamp(SignedDuration::ZERO, tenon_runtime::ports::WAKE_AT_MOST);
        self.push(TaskSignal::Wake { function, body, cluster: cluster.clone(), after });
    }
}

/// The table behind a gate.
#[derive(Clone)]
pub struct GatedTable {
    inner: MemoryTable,
    gate: TaskGate,
    outbox: SharedOutbox,
}

impl GatedTable {
    /// The table behind a task's gate.
    #[must_use]
    pub const fn new(inner: MemoryTable, gate: TaskGate, outbox: SharedOutbox) -> Self {
        Self { inner, gate, outbox }
    }

    async fn before(&self, call: &'static str, pk: &str) -> Result<(), TableError> {
        match self.gate.pass(call, CallMoment::Before).await {
            Passage::Pass | Passage::Conflict => Ok(()),
            Passage::Fail => Err(TableError::Throttled { pk: pk.to_owned() }),
            Passage::Denied => Err(TableError::Invalid { message: ACCESS_DENIED.to_owned() }),
            Passage::Broken => Err(TableError::Unavailable(server_error())),
        }
    }

    async fn after(&self, call: &'static str) -> Result<(), TableError> {
        match self.gate.pass(call, CallMoment::After).await {
            Passage::Pass | Passage::Conflict => Ok(()),
            Passage::Fail | Passage::Denied | Passage::Broken => Err(TableError::Unavailable(no_answer())),
        }
    }

    fn note_records(&self, commit: &Commit) {
        let records = commit.writes.iter().filter_map(|write| match write {
            Write::Put { key, item } if key.pk.starts_with("JOURNAL#") => Some((key.clone(), item.clone())),
            Write::Put { .. } | Write::Set { .. } | Write::Add { .. } | Write::Delete { .. } => None,
        });
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).records.extend(records);
    }
}

/// The adapter's error for an AccessDeniedException.
const ACCESS_DENIED: &str =
    "access denied: AccessDeniedException; allow the action for these credentials, or renew them";

fn server_error() -> AdapterCause {
    Arc::new(std::io::Error::other("InternalServerError: the request processing has failed"))
}

fn no_answer() -> AdapterCause {
    Arc::new(std::io::Error::other("the connection was closed before the answer came"))
}

impl Table for GatedTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        self.gate.hear(AskedCall::Get(key));
        self.before("table.get", &key.pk).await?;
        let answer = self.inner.get(key, consistency).await?;
        self.after("table.get").await.map(|()| answer)
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        self.gate.hear(AskedCall::BatchGet(keys));
        self.before("table.batch_get", keys.first().map_or("", |key| &key.pk)).await?;
        let mut answer = self.inner.batch_get(keys, consistency).await?;
        self.gate.hooks().tamper_items(self.gate.task(), keys, &mut answer);
        self.after("table.batch_get").await.map(|()| answer)
    }

    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        self.gate.hear(AskedCall::Query(query));
        self.before("table.query", &query.pk).await?;
        let mut answer = self.inner.query(query).await?;
        self.gate.hooks().tamper_page(self.gate.task(), &mut answer);
        self.after("table.query").await.map(|()| answer)
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.gate.hear(AskedCall::Commit(commit));
        match self.gate.pass("table.commit", CallMoment::Before).await {
            Passage::Pass => {}
            Passage::Conflict => {
                if let Some(write) = commit.writes.first() {
                    return Err(CommitError::Conflict { key: write.key().clone() });
                }
            }
            Passage::Fail => {
                let pk = commit.writes.first().map_or_else(String::new, |write| write.key().pk.clone());
                return Err(CommitError::Throttled { pk });
            }
            Passage::Denied => return Err(CommitError::Invalid { message: ACCESS_DENIED.to_owned() }),
            Passage::Broken => return Err(CommitError::Unavailable(server_error())),
        }
        let mut commit = commit.clone();
        self.gate.hooks().tamper_commit(self.gate.task(), &mut commit);
        self.inner.commit(&commit).await?;
        self.note_records(&commit);
        match self.gate.pass("table.commit", CallMoment::After).await {
            Passage::Pass | Passage::Conflict => Ok(()),
            Passage::Fail | Passage::Denied | Passage::Broken => Err(CommitError::Unavailable(no_answer())),
        }
    }
}
