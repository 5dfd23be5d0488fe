//! The month's bill, computed from the counts of a simulated period.
//!
//! Decides prices, and the assumptions about quantities that one machine can't show: the length of calls,
//! Lambda's polling of queues, and its own lines in logs. Left out: the agent's compute, lines about failed calls, queries
//! of logs, backups beyond the table's size, free tiers. Money is in nano-dollars, exact until it is printed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::SignedDuration;
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::{CreateFleetRequest, Image, Instance};
use tenon_table::{Commit, QueryPage};

use crate::engine::SimulatedRegion;
use crate::gate::{CallFate, CallMoment, CallSite, Evicting, Hooks};
use crate::usage::LINE_OVERHEAD;
use crate::wiring::{
    CloudWatchUse, LogClass, LogSettings, PlatformLines, QueueKind, QueueSpec, Wiring, WiringError,
};

/// List prices of us-east-1 in nano-dollars. Lambda's are from its price page, read in September 2026; the others are
/// the published ones since DynamoDB's price cut of November 2024, not checked again. CloudWatch's page is
/// <https://aws.amazon.com/cloudwatch/pricing/>: what was read of it in November 2026 says which alarms are of the standard
/// resolution, and refers to the calculator for the amounts, which are the published ones since Lambda's tiers of May 2025.
mod price {
    /// A Lambda request: 0.20 USD a million.
    pub(super) const LAMBDA_REQUEST: u64 = 200;
    /// A Lambda GB-second on arm64, 0.0000133334 USD, as nano-dollars of a million of them.
    pub(super) const LAMBDA_MEGA_GB_SECONDS: u64 = 13_333_400_000;
    /// An SQS request on a standard queue: 0.40 USD a million.
    pub(super) const SQS_REQUEST: u64 = 400;
    /// An event on a bus of our own: 1.00 USD a million; AWS's own events are free.
    pub(super) const EVENT: u64 = 1000;
    /// An invocation of EventBridge Scheduler: 1.00 USD a million.
    pub(super) const SCHEDULE: u64 = 1000;
    /// A DynamoDB write unit on demand: 0.625 USD a million.
    pub(super) const WRITE_UNIT: u64 = 625;
    /// Half a DynamoDB read unit on demand: 0.125 USD a million units. In tenths of a nano-dollar, to be exact.
    pub(super) const HALF_READ_UNIT_TENTHS: u64 = 625;
    /// A GB-month in DynamoDB, 0.25 USD, and 0.20 USD for its point-in-time recovery.
    pub(super) const STORED_GB_MONTH: u64 = 450_000_000;
    /// A metric of an alarm of standard resolution: 0.10 USD a month.
    pub(super) const ALARM_METRIC: u64 = 100_000_000;
    /// A GB of Lambda's logs, in the first of its tiers: 0.50 USD.
    pub(super) const LOG_GB: u64 = 500_000_000;
    /// The same in the class for infrequent access: 0.25 USD.
    pub(super) const LOG_GB_INFREQUENT: u64 = 250_000_000;
    /// A GB-month of stored logs: 0.03 USD. They are compressed, which isn't counted here.
    pub(super) const LOG_GB_MONTH: u64 = 30_000_000;
}

/// The time of an invocation besides its calls: Lambda's and the handler's own, with a share of cold starts (about
/// 0.1 s each, several a day). A plan for a hundred nodes takes less than this.
const INVOCATION_MILLIS: u64 = 20;

/// How long a call of the table takes, with room: DynamoDB answers within single-digit milliseconds.
const TABLE_CALL_MILLIS: u64 = 5;

/// The duration of an EC2 call. Long lists and launches take longer; most calls take less.
const EC2_CALL_MILLIS: u64 = 150;

/// Lambda polls a standard queue with five parallel long polls, each 20 s long, where the event source mapping has a maximum
/// concurrency. Source: Lambda's guide, "Configuring scaling behavior for SQS event source mappings", read 2026-11.
const LAMBDA_POLLERS: u64 = 5;

/// Where it has none: "When traffic is low, Lambda scales back the processing to five concurrent batches, and can optimize
/// to as few as 2 concurrent batches". The same page.
const LAMBDA_POLLERS_UNBOUNDED: u64 = 2;

/// An agent polls its queue with one long poll.
const AGENT_POLLERS: u64 = 1;

const POLLS_A_DAY: u64 = 3 * 60 * 24;

/// Lambda's two lines about an invocation that succeeds, at the level INFO. Source: its guide, "Log-level filtering", read
/// 2026-11, and the Telemetry API's schemas of `platform.start` and `platform.report`.
const PLATFORM_LINES: [&str; 2] = [
    r#"{"time":"2026-01-01T00:00:00.000Z","type":"platform.start","record":{"requestId":"00000000-0000-0000-0000-000000000000","version":"$LATEST"}}"#,
    r#"{"time":"2026-01-01T00:00:00.000Z","type":"platform.report","record":{"requestId":"00000000-0000-0000-0000-000000000000","metrics":{"durationMs":100.01,"billedDurationMs":101,"memorySizeMB":1024,"maxMemoryUsedMB":100},"status":"success"}}"#,
];

/// Days that the month has.
const DAYS: u64 = 30;

const MILLIS_A_DAY: u64 = 24 * 60 * 60 * 1000;

/// Counts the calls of each task, and passes them to the inner hooks.
pub struct CountedCalls {
    within: Arc<dyn Hooks>,
    made: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

impl CountedCalls {
    /// Counts the calls to these hooks.
    #[must_use]
    pub const fn new(within: Arc<dyn Hooks>) -> Self {
        Self { within, made: Mutex::new(BTreeMap::new()) }
    }

    /// Calls so far, by task and call.
    #[must_use]
    pub fn made(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Hooks for CountedCalls {
    fn call(&self, site: CallSite) -> CallFate {
        if site.moment == CallMoment::Before {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            *made.entry((site.task, site.call)).or_default() += 1;
        }
        self.within.call(site)
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        self.within.delivery()
    }

    fn ring(&self) -> Vec<SignedDuration> {
        self.within.ring()
    }

    fn tamper_commit(&self, task: &'static str, commit: &mut Commit) {
        self.within.tamper_commit(task, commit);
    }

    fn tamper_page(&self, task: &'static str, page: &mut QueryPage) {
        self.within.tamper_page(task, page);
    }

    fn tamper_instances(&self, instances: &mut Vec<Instance>) {
        self.within.tamper_instances(instances);
    }

    fn tamper_fleet(&self, request: &mut CreateFleetRequest) {
        self.within.tamper_fleet(request);
    }

    fn tamper_images(&self, images: &mut Vec<Image>) {
        self.within.tamper_images(images);
    }

    fn evicting(&self) -> Evicting {
        self.within.evicting()
    }
}

/// Counts up to a moment; the difference of two is a period.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BillCounts {
    /// Time since the beginning.
    pub elapsed: SignedDuration,
    /// Half read units.
    pub read_half_units: u64,
    /// Write units.
    pub write_units: u64,
    /// The bytes stored in the table, with 100 more for each item.
    pub stored_bytes: u64,
    /// Invocations, by function.
    pub invocations: BTreeMap<FunctionName, u64>,
    /// Lambda's time in MB-milliseconds: invocations and their calls, by each function's memory.
    pub mb_millis: u64,
    /// Calls of EC2 and the services beside it, by call.
    pub ec2_calls: BTreeMap<&'static str, u64>,
    /// Messages sent to functions' queues.
    pub messages: u64,
    /// SQS requests for them, and for the agents' rings.
    pub queue_requests: u64,
    /// Events on our own bus.
    pub events: u64,
    /// Times that schedules fired.
    pub schedules: u64,
    /// Rings of agents.
    pub rings: u64,
    /// Bytes that functions log, without Lambda's own lines.
    pub logged_bytes: u64,
    /// Clusters.
    pub clusters: u64,
}

impl BillCounts {
    /// The counts up to now.
    #[must_use]
    pub fn of(region: &SimulatedRegion, calls: &CountedCalls) -> Self {
        let meter = region.table().meter();
        let (used, usage, made) = (meter.total(), region.usage(), calls.made());
        let queues = region.queues().values().map(crate::queue::Queue::usage);
        let requests = |of: crate::queue::QueueUsage| of.sent + of.received + of.deleted;
        let mut ec2_calls = BTreeMap::new();
        for ((_, call), count) in &made {
            if is_ec2(call) {
                *ec2_calls.entry(*call).or_default() += count;
            }
        }
        Self {
            elapsed: region.elapsed(),
            read_half_units: used.read_half_units,
            write_units: used.write_units,
            stored_bytes: meter.storage_bytes,
            invocations: usage.invocations.clone(),
            mb_millis: mb_millis(region, &usage.invocations, &made),
            ec2_calls,
            messages: queues.clone().map(|queue| queue.sent).sum(),
            // An agent that is rung takes the message and deletes it.
            queue_requests: queues.map(requests).sum::<u64>() + 3 * usage.agent_rings,
            events: usage.events_published,
            schedules: usage.schedules_fired,
            rings: usage.agent_rings,
            logged_bytes: usage.logged_bytes,
            clusters: u64::try_from(region.sites().count()).unwrap_or(u64::MAX),
        }
    }

    /// The counts since an earlier reading; stored bytes and the number of clusters are current.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            elapsed: self.elapsed.saturating_sub(earlier.elapsed),
            stored_bytes: self.stored_bytes,
            clusters: self.clusters,
            ..self.minus(earlier)
        }
    }

    /// The excess over the counts of another period of equal length.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        Self {
            elapsed: self.elapsed,
            stored_bytes: self.stored_bytes.saturating_sub(other.stored_bytes),
            clusters: self.clusters.saturating_sub(other.clusters),
            ..self.minus(other)
        }
    }

    fn minus(&self, other: &Self) -> Self {
        Self {
            elapsed: self.elapsed,
            read_half_units: self.read_half_units.saturating_sub(other.read_half_units),
            write_units: self.write_units.saturating_sub(other.write_units),
            stored_bytes: self.stored_bytes,
            invocations: difference(&self.invocations, &other.invocations),
            mb_millis: self.mb_millis.saturating_sub(other.mb_millis),
            ec2_calls: difference(&self.ec2_calls, &other.ec2_calls),
            messages: self.messages.saturating_sub(other.messages),
            queue_requests: self.queue_requests.saturating_sub(other.queue_requests),
            events: self.events.saturating_sub(other.events),
            schedules: self.schedules.saturating_sub(other.schedules),
            rings: self.rings.saturating_sub(other.rings),
            logged_bytes: self.logged_bytes.saturating_sub(other.logged_bytes),
            clusters: self.clusters,
        }
    }

    /// The bytes in the logs, Lambda's own lines among them.
    #[must_use]
    pub fn in_logs(&self, logs: &LogSettings) -> u64 {
        let line = |text: &&str| LINE_OVERHEAD + u64::try_from(text.len()).unwrap_or(u64::MAX);
        let of_lambda: u64 = match logs.platform {
            PlatformLines::Written => PLATFORM_LINES.iter().map(line).sum(),
            PlatformLines::Unwritten => 0,
        };
        self.logged_bytes + of_lambda * self.invocations.values().sum::<u64>()
    }

    /// The bill of a month like this period.
    #[must_use]
    pub fn month(&self, charges: &StandingCharges) -> Bill {
        let millis = u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let monthly = |count: u64| scaled(count, DAYS * MILLIS_A_DAY, millis);
        let polls = charges.polls * POLLS_A_DAY * DAYS;
        let invocations = self.invocations.values().sum();
        Bill(vec![
            ("Lambda, requests", monthly(invocations) * price::LAMBDA_REQUEST),
            // 1 GB-second is 1024 x 1000 MB-milliseconds.
            (
                "Lambda, time",
                scaled(monthly(self.mb_millis), price::LAMBDA_MEGA_GB_SECONDS, 1_024_000 * 1_000_000),
            ),
            ("SQS, messages", monthly(self.queue_requests) * price::SQS_REQUEST),
            ("SQS, polls of empty queues", polls * price::SQS_REQUEST),
            ("EventBridge, events of our own", monthly(self.events) * price::EVENT),
            ("EventBridge Scheduler", monthly(self.schedules) * price::SCHEDULE),
            ("DynamoDB, reads", monthly(self.read_half_units) * price::HALF_READ_UNIT_TENTHS / 10),
            ("DynamoDB, writes", monthly(self.write_units) * price::WRITE_UNIT),
            ("DynamoDB, storage", scaled(self.stored_bytes, price::STORED_GB_MONTH, 1 << 30)),
            ("CloudWatch, alarms", charges.alarm_metrics * price::ALARM_METRIC),
            ("CloudWatch, logs", month_of_logs(monthly(self.in_logs(&charges.logs)), &charges.logs)),
        ])
    }
}

/// The price of a month's bytes: taken in, and kept.
fn month_of_logs(bytes: u64, logs: &LogSettings) -> u64 {
    let taken_in = match logs.class {
        LogClass::Standard => price::LOG_GB,
        LogClass::InfrequentAccess => price::LOG_GB_INFREQUENT,
    };
    let kept = scaled(bytes, logs.kept_days, DAYS);
    scaled(bytes, taken_in, 1 << 30) + scaled(kept, price::LOG_GB_MONTH, 1 << 30)
}

/// What is billed without any event, and how logs are kept: by the stacks' templates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StandingCharges {
    /// Long polls that are open at any time.
    pub polls: u64,
    /// Metrics of alarms.
    pub alarm_metrics: u64,
    /// How the functions' logs are kept.
    pub logs: LogSettings,
}

impl StandingCharges {
    /// Those of the region's stack.
    ///
    /// # Errors [`WiringError`] names the resource and the property.
    pub fn of_region() -> Result<Self, WiringError> {
        let CloudWatchUse { alarm_metrics, logs, .. } = CloudWatchUse::built_in()?;
        Ok(Self { polls: Wiring::built_in()?.queues.values().map(pollers).sum(), alarm_metrics, logs })
    }

    /// Those of so many clusters' stacks, and of their agents.
    ///
    /// # Errors [`WiringError`] names the resource and the property.
    pub fn of_clusters(clusters: u64) -> Result<Self, WiringError> {
        let CloudWatchUse { alarm_metrics_of_cluster, logs, .. } = CloudWatchUse::built_in()?;
        Ok(Self { polls: clusters * AGENT_POLLERS, alarm_metrics: clusters * alarm_metrics_of_cluster, logs })
    }
}

/// How many long polls Lambda keeps open on a function's queue.
const fn pollers(queue: &QueueSpec) -> u64 {
    match queue.kind {
        QueueKind::Invocations => 0,
        QueueKind::Polled if queue.at_once == usize::MAX => LAMBDA_POLLERS_UNBOUNDED,
        QueueKind::Polled => LAMBDA_POLLERS,
    }
}

/// Whether it is a call of EC2 or of a service beside it: all are free, and take longer than the table's.
fn is_ec2(call: &str) -> bool {
    let ports =
        ["ec2.", "pricing.", "zonal_shift.", "parameters.", "instance_profiles.", "authorization_messages."];
    ports.iter().any(|port| call.starts_with(port))
}

/// Whether a call takes no time of its own: `node-classes` asks all services at once, and waits longest for images.
fn is_beside(task: &str, call: &str) -> bool {
    let others =
        ["describe_subnets", "describe_security_groups", "describe_placement_groups", "instance_profile"];
    task == FunctionName::NodeClasses.as_str() && others.iter().any(|other| call.ends_with(other))
}

/// Without overflow on the way; never more than fits.
fn scaled(count: u64, by: u64, of: u64) -> u64 {
    let exact = u128::from(count) * u128::from(by) / u128::from(of.max(1));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

fn difference<K: Ord + Copy>(now: &BTreeMap<K, u64>, then: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let before = |key: &K| then.get(key).copied().unwrap_or_default();
    now.iter().map(|(key, count)| (*key, count.saturating_sub(before(key)))).collect()
}

fn mb_millis(
    region: &SimulatedRegion,
    invocations: &BTreeMap<FunctionName, u64>,
    made: &BTreeMap<(&'static str, &'static str), u64>,
) -> u64 {
    let memory = |name: &str| {
        let of = region.queues().iter().find(|(function, _)| function.as_str() == name);
        of.map_or(0, |(_, queue)| queue.spec().memory_mb)
    };
    let own =
        invocations.iter().map(|(function, count)| count * INVOCATION_MILLIS * memory(function.as_str()));
    let waiting =
        made.iter().filter(|((task, call), _)| !is_beside(task, call)).map(|((task, call), count)| {
            let millis = if is_ec2(call) { EC2_CALL_MILLIS } else { TABLE_CALL_MILLIS };
            // The agent isn't a function: its memory is 0 here.
            count * millis * memory(task)
        });
    own.chain(waiting).sum()
}

/// A month's bill: nano-dollars by item.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bill(pub Vec<(&'static str, u64)>);

impl Bill {
    /// All of it, in nano-dollars.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, nanos)| nanos).sum()
    }
}

/// Nano-dollars in USD, to the hundredth of a cent.
#[must_use]
pub fn usd(nanos: u64) -> String {
    let rounded = (nanos + 50_000) / 100_000;
    format!("{}.{:04}", rounded / 10_000, rounded % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_worked_out_from_a_day() {
        let day = BillCounts {
            elapsed: SignedDuration::from_hours(24),
            read_half_units: 2_000_000,
            write_units: 1_000_000,
            stored_bytes: 1 << 30,
            invocations: BTreeMap::from([(FunctionName::Lifecycle, 1_000_000)]),
            // A million GB-seconds.
            mb_millis: 1_024_000 * 1_000_000,
            queue_requests: 1_000_000,
            events: 1_000_000,
            schedules: 1_000_000,
            logged_bytes: 1 << 30,
            clusters: 1,
            ..BillCounts::default()
        };
        let logs =
            LogSettings { class: LogClass::Standard, kept_days: 60, platform: PlatformLines::Unwritten };
        let bill = day.month(&StandingCharges { polls: 7 * 5 + 1, alarm_metrics: 3, logs });
        let lines: Vec<String> = bill.0.iter().map(|(_, nanos)| usd(*nanos)).collect();
        // 30 days; 7 queues with 5 polls and one with 1, each 3 a minute.
        assert_eq!(
            lines,
            [
                "6.0000", "400.0020", "12.0000", "1.8662", "30.0000", "30.0000", "3.7500", "18.7500",
                "0.4500", "0.3000", "16.8000"
            ]
        );
        let idle = StandingCharges { polls: 1, alarm_metrics: 0, logs };
        assert_eq!(day.since(&day).month(&idle).total(), 450_000_000 + 51_840_000);
        let seldom = LogSettings { class: LogClass::InfrequentAccess, ..logs };
        assert_eq!(month_of_logs(1 << 30, &seldom), 250_000_000 + 60_000_000);
    }

    #[test]
    fn lambda_writes_two_lines_for_each_invocation() {
        let counts = BillCounts {
            invocations: BTreeMap::from([(FunctionName::Lifecycle, 10)]),
            logged_bytes: 1000,
            ..BillCounts::default()
        };
        let in_logs =
            |platform| counts.in_logs(&LogSettings { class: LogClass::Standard, kept_days: 30, platform });
        assert_eq!(in_logs(PlatformLines::Unwritten), 1000);
        assert_eq!(in_logs(PlatformLines::Written), 1000 + 10 * (141 + 238 + 2 * 26));
    }

    #[test]
    fn what_costs_without_an_event_is_read_from_the_stacks() {
        let (region, clusters) =
            (StandingCharges::of_region().unwrap(), StandingCharges::of_clusters(2).unwrap());
        // Four event source mappings with a maximum concurrency, and that of `interruption`.
        assert_eq!((region.polls, region.alarm_metrics), (4 * 5 + 2, 11));
        assert_eq!((clusters.polls, clusters.alarm_metrics), (2, 2));
        let logs = LogSettings { class: LogClass::Standard, kept_days: 30, platform: PlatformLines::Written };
        assert_eq!((region.logs, clusters.logs), (logs, logs));
    }
}
