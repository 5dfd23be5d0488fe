//! The wiring of functions, read from the deployed stacks: rules, patterns, schedules and queues.
//!
//! Decides nothing of its own: only rules of template.yaml exist here, and one that can't be simulated is an error,
//! not a gap. It reads `AWS::SQS::Queue`, `AWS::Events::Rule`, `AWS::Scheduler::Schedule`, and of
//! `AWS::Serverless::Function` the SQS events or the settings of asynchronous invocations. For the bill it reads
//! `AWS::CloudWatch::Alarm` and how `AWS::Logs::LogGroup` keeps lines.

mod cloudwatch;
mod pattern;
mod read;
mod stack;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use jiff::SignedDuration;
use serde_json::Value;
use tenon_domain::registry::FeatureGate;
use tenon_domain::wake::FunctionName;

pub use cloudwatch::{LogClass, LogSettings, PlatformLines, alarm_metrics, log_settings};
pub use pattern::{EventPattern, PatternError};
pub use read::{read_cluster, read_region};
pub use stack::WiringError;

/// Lambda's waits before it runs a failed asynchronous invocation again. Source: Lambda's guide, "How Lambda handles
/// errors and retries with asynchronous invocation", read 2026-11.
pub const RETRY_AFTER: &[SignedDuration] = &[SignedDuration::from_mins(1), SignedDuration::from_mins(2)];

/// Whose queue a function's events wait in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueKind {
    /// A queue of SQS, which Lambda polls. A failed message comes back when its visibility timeout ends.
    Polled,
    /// Lambda's own, of asynchronous invocations. A failed one is repeated after [`RETRY_AFTER`]; nobody polls.
    Invocations,
}

/// A function's queue: of SQS, by its logical id without the suffix `Queue`, or Lambda's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSpec {
    /// The function that it wakes.
    pub function: FunctionName,
    /// Whose it is.
    pub kind: QueueKind,
    /// How long a received message of SQS stays invisible; of an invocation, how long it may run.
    pub visibility_timeout: SignedDuration,
    /// How often a message is received before it goes to the dead-letter queue.
    pub max_receive_count: u32,
    /// The most messages of one invocation.
    pub batch_size: usize,
    /// How long a queue waits to fill a batch.
    pub batch_window: SignedDuration,
    /// The most invocations at once.
    pub at_once: usize,
    /// The function's memory, by which its time is billed.
    pub memory_mb: u64,
}

/// A rule of a bus.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its logical id.
    pub name: String,
    /// Which bus.
    pub bus: BusName,
    /// Its pattern.
    pub pattern: EventPattern,
    /// The functions that receive the event.
    pub targets: Vec<FunctionName>,
}

/// The buses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BusName {
    /// The account's default bus, on which AWS's events arrive.
    Default,
    /// Our own.
    Tenon,
}

/// A schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// Its logical id.
    pub name: String,
    /// Its period.
    pub every: SignedDuration,
    /// Its target.
    pub target: ScheduleTarget,
}

/// The target of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub enum ScheduleTarget {
    /// Sends this body to a function.
    Function {
        /// The function.
        function: FunctionName,
        /// The body.
        body: String,
    },
    /// Puts this event on our bus.
    Event {
        /// `source`.
        source: String,
        /// `detail-type`.
        detail_type: String,
        /// `detail`.
        detail: Value,
    },
}

/// The wiring of the region's stack.
#[derive(Debug, Clone, PartialEq)]
pub struct Wiring {
    /// A queue for each function.
    pub queues: BTreeMap<FunctionName, QueueSpec>,
    /// All rules, in the order of the file.
    pub rules: Vec<Rule>,
    /// The region's schedules, in the order of the file.
    pub schedules: Vec<Schedule>,
}

/// The region's stack.
const REGION_STACK: &str = include_str!("../../../../../template.yaml");
/// A cluster's stack.
const CLUSTER_STACK: &str = include_str!("../../../../../infra/cluster.yaml");

/// What CloudWatch bills of the deployed stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudWatchUse {
    /// The metrics of the region's alarms.
    pub alarm_metrics: u64,
    /// The metrics of a cluster's alarms.
    pub alarm_metrics_of_cluster: u64,
    /// How the functions' logs are kept.
    pub logs: LogSettings,
}

impl CloudWatchUse {
    /// That of template.yaml and infra/cluster.yaml.
    ///
    /// # Errors [`WiringError`] names the resource and the property.
    pub fn built_in() -> Result<Self, WiringError> {
        Ok(Self {
            alarm_metrics: alarm_metrics("template.yaml", REGION_STACK)?,
            alarm_metrics_of_cluster: alarm_metrics("infra/cluster.yaml", CLUSTER_STACK)?,
            logs: log_settings("template.yaml", REGION_STACK)?,
        })
    }
}

impl Wiring {
    /// The built-in stack: template.yaml.
    ///
    /// # Errors [`WiringError`] names the resource and the property.
    pub fn built_in() -> Result<Self, WiringError> {
        // It never changes, and a simulation needs it for every seed.
        static READ: OnceLock<Wiring> = OnceLock::new();
        if let Some(wiring) = READ.get() {
            return Ok(wiring.clone());
        }
        let wiring = read_region(REGION_STACK)?;
        Ok(READ.get_or_init(|| wiring).clone())
    }

    /// The functions that receive an event of a bus; a function receives it once for each matching rule.
    #[must_use]
    pub fn route(&self, bus: BusName, event: &Value) -> Vec<FunctionName> {
        self.rules
            .iter()
            .filter(|rule| rule.bus == bus && rule.pattern.matches(event))
            .flat_map(|rule| rule.targets.iter().copied())
            .collect()
    }
}

/// The schedules of one cluster's stack, infra/cluster.yaml.
///
/// # Errors
/// [`WiringError`] names the resource and the property.
pub fn cluster_schedules(
    installation: &str,
    cluster: &str,
    zonal_shift: FeatureGate,
) -> Result<Vec<Schedule>, WiringError> {
    // As above; the few clusters of a process are kept by name.
    static READ: Mutex<BTreeMap<(String, String, FeatureGate), Vec<Schedule>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let name = (installation.to_owned(), cluster.to_owned(), zonal_shift);
    if let Some(schedules) = read.get(&name) {
        return Ok(schedules.clone());
    }
    let parameters =
        [("Installation", installation), ("Cluster", cluster), ("ZonalShift", zonal_shift.as_str())];
    let schedules = read_cluster(CLUSTER_STACK, &parameters)?;
    read.insert(name, schedules.clone());
    Ok(schedules)
}
