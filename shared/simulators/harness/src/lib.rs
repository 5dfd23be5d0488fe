//! Ports for tests of handlers: the table in memory, the region twin, a clock that the test sets, and recorded
//! doorbells.
//!
//! Decides nothing. Each [`FunctionWorld`] is fresh and deterministic; cloned handles are the same world. Futures of its
//! ports are ready at once, so `tenon_memory_table::block_on` runs a handler.

pub mod claims;
pub mod cluster;
mod meeting;
pub mod mixed;
mod over;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tenon_domain::journal::JournalRecord;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{ClusterName, InstallationId, InstanceType, ParseIdError, Region, Zone};
use tenon_domain::wake::FunctionName;
use tenon_ec2::data::DataError;
use tenon_memory_table::{MemoryConfig, MemoryTable, Throughput};
use tenon_twin::{Delays, RegionTwin, Span, Throttling, TwinConfig, TypeSelection};

use tenon_runtime::ports::{BusEvent, Installation, Ports, Signals};

pub use meeting::{Meeting, MeetingTable};
pub use over::Over;

/// When a world's time begins, as `tenon local`'s does: 2026-01-01T00:00:00Z.
pub const EPOCH: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Why a world couldn't be made.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// An identifier of the world is malformed.
    #[error("a world with a malformed identifier")]
    Id(#[from] ParseIdError),
    /// There is no data for its region.
    #[error("a world without a region")]
    Region(#[from] DataError),
}

/// A clock that only the test moves.
#[derive(Debug, Clone)]
pub struct SetClock(Arc<Mutex<Timestamp>>);

impl SetClock {
    /// A clock at a moment.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(now)))
    }

    /// Its time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        *held(&self.0)
    }

    /// Moves it on.
    pub fn advance(&self, by: SignedDuration) {
        let mut now = held(&self.0);
        *now = now.saturating_add(by).unwrap_or(*now);
    }

    /// Sets it.
    pub fn set(&self, to: Timestamp) {
        *held(&self.0) = to;
    }
}

/// A doorbell that a handler rang.
#[derive(Debug, Clone, PartialEq)]
pub enum RungBell {
    /// An event on the bus.
    Event(BusEvent),
    /// A cluster's agent.
    Agent(ClusterName),
    /// A function, later.
    Wake {
        /// Which.
        function: FunctionName,
        /// For which cluster.
        cluster: ClusterName,
        /// After how long.
        after: SignedDuration,
    },
}

/// Doorbells, written down in their order.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Mutex<Vec<RungBell>>>, Arc<Mutex<Vec<JournalRecord>>>);

impl Recorder {
    /// The log's records since the last call.
    #[must_use]
    pub fn take_log(&self) -> Vec<JournalRecord> {
        std::mem::take(&mut *held(&self.1))
    }

    /// The rings since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<RungBell> {
        std::mem::take(&mut *held(&self.0))
    }

    /// The events among the rings since the last call: detail type and detail, as text.
    #[must_use]
    pub fn take_events(&self) -> Vec<(String, serde_json::Value)> {
        self.take()
            .into_iter()
            .filter_map(|rung| match rung {
                RungBell::Event(event) => Some((event.detail_type, event.detail)),
                RungBell::Agent(_) | RungBell::Wake { .. } => None,
            })
            .collect()
    }
}

impl Signals for Recorder {
    async fn publish(&self, events: &[BusEvent]) {
        held(&self.0).extend(events.iter().cloned().map(RungBell::Event));
    }

    async fn ring_agent(&self, cluster: &ClusterName) {
        held(&self.0).push(RungBell::Agent(cluster.clone()));
    }

    fn log(&self, record: &JournalRecord) {
        held(&self.1).push(record.clone());
    }

    async fn wake(&self, function: FunctionName, cluster: &ClusterName, after: SignedDuration) {
        held(&self.0).push(RungBell::Wake { function, cluster: cluster.clone(), after });
    }
}

/// How a world behaves.
#[derive(Debug, Clone)]
pub struct WorldConfig {
    /// The seed of all choices.
    pub seed: u64,
    /// Which instance types its region has, by name; none is all of them.
    pub types: Vec<String>,
    /// Its zones, by name; none is all of the region's.
    pub zones: Vec<String>,
    /// Whether EC2 throttles.
    pub throttling: Throttling,
    /// Whether a partition key's throughput is bounded.
    pub throughput: Throughput,
    /// How old the answer of an eventually consistent read may be.
    pub staleness_max: SignedDuration,
}

impl Default for WorldConfig {
    /// A small and kind world: three types, two zones, nothing throttled.
    fn default() -> Self {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        Self {
            seed: 1,
            types: names(&["m5.large", "m5.xlarge", "m6g.large"]),
            zones: names(&["us-east-1a", "us-east-1b"]),
            throttling: Throttling::Off,
            throughput: Throughput::Off,
            staleness_max: SignedDuration::ZERO,
        }
    }
}

/// A world of us-east-1: ports, and their simulators.
#[derive(Debug, Clone)]
pub struct FunctionWorld {
    /// The table.
    pub table: MemoryTable,
    /// EC2.
    pub ec2: RegionTwin,
    /// The doorbells.
    pub signals: Recorder,
    /// The clock, of the handlers as of the table and EC2.
    pub clock: SetClock,
    /// The installation: `tenon` in us-east-1.
    pub installation: Installation,
}

impl FunctionWorld {
    /// A world. Instances and tags are visible at once, and EC2's transitions take their usual time.
    ///
    /// # Errors [`WorldError`] for a malformed name.
    pub fn new(config: &WorldConfig) -> Result<Self, WorldError> {
        let region = Region::parse("us-east-1")?;
        let clock = SetClock::at(EPOCH);
        let ticking = clock.clone();
        let read: Arc<dyn Fn() -> Timestamp + Send + Sync> = Arc::new(move || ticking.now());
        let mut twin = TwinConfig::new(region.clone(), config.seed, Arc::clone(&read));
        twin.types = types(&config.types)?;
        twin.zones = config.zones.iter().map(Zone::parse).collect::<Result<_, _>>()?;
        twin.throttling = config.throttling;
        twin.consistency_delay_max = SignedDuration::ZERO;
        twin.delays = Delays { image: Span::seconds(60, 60), ..Delays::default() };
        let account = twin.account.clone();
        let memory = MemoryConfig {
            staleness_max: config.staleness_max,
            throughput: config.throughput,
            ..MemoryConfig::strict(config.seed)
        };
        Ok(Self {
            table: MemoryTable::new(memory, read),
            ec2: RegionTwin::new(twin)?,
            signals: Recorder::default(),
            clock,
            installation: Installation {
                id: InstallationId::parse("tenon")?,
                region,
                account,
                table: "tenon".to_owned(),
            },
        })
    }
}

impl Ports for FunctionWorld {
    type Table = MemoryTable;
    type Ec2 = RegionTwin;
    type Signals = Recorder;

    fn table(&self) -> &MemoryTable {
        &self.table
    }

    fn ec2(&self) -> &RegionTwin {
        &self.ec2
    }

    fn signals(&self) -> &Recorder {
        &self.signals
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    async fn pause(&self, time: SignedDuration) {
        self.clock.advance(time);
    }

    fn installation(&self) -> &Installation {
        &self.installation
    }
}

fn types(names: &[String]) -> Result<TypeSelection, ParseIdError> {
    if names.is_empty() {
        return Ok(TypeSelection::All);
    }
    names.iter().map(InstanceType::parse).collect::<Result<_, _>>().map(TypeSelection::Only)
}

/// A test that panicked elsewhere leaves plain values, whole as they are.
fn held<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
