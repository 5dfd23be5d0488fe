//! What each alarm is meant for, as the metric's minutes that its failure gives, and those of a healthy region.
//!
//! Decides how long a failure may last before its alarm. The minutes follow what AWS says of each metric: a queue
//! publishes while it is active, at first with a delay; a rule publishes where it matched; a message that was received
//! three times doesn't count for the age any more.

use crate::evaluate::Minutes;
use crate::stack::EvaluatedStack;

/// How long a region is healthy before its failure, and how long the failure lasts.
pub(crate) const HEALTHY: usize = 12 * 60;
const FAILS: usize = 6 * 60;
/// CloudWatch has metrics of a queue up to 15 minutes late when it becomes active. Source: SQS Developer Guide, on
/// monitoring queues by CloudWatch.
const ACTIVATION: usize = 15;
/// A message that was received three times leaves `ApproximateAgeOfOldestMessage`. Source: the page of SQS's metrics, read
/// 2026-11.
const RECEIVES_COUNTED: usize = 3;

/// Alarms of queues where messages end.
const DEAD_LETTERS: [&str; 3] = ["DeadLettersAlarm", "DeliveryDeadLettersAlarm", "ExecutionDeadLettersAlarm"];

/// A failure, after [`HEALTHY`] minutes.
pub(crate) struct FailureOfAlarm {
    pub(crate) what: &'static str,
    pub(crate) minutes: Minutes,
    /// How long after its begin the alarm rings at the latest.
    pub(crate) rings_within: usize,
}

/// What an alarm is meant for.
pub(crate) struct AlarmCase {
    pub(crate) alarm: &'static str,
    pub(crate) healthy: Vec<Minutes>,
    pub(crate) failures: Vec<FailureOfAlarm>,
}

/// One case for each alarm of both stacks.
pub(crate) fn cases(region: &EvaluatedStack, cluster: &EvaluatedStack) -> Vec<AlarmCase> {
    let mut cases: Vec<AlarmCase> = DEAD_LETTERS.into_iter().map(dead_letters).collect();
    let sweep = cluster.rate("SweepSchedule");
    cases.extend([
        waiting("ProvisionerWaitingAlarm", sweep, visibility(region, "ProvisionerQueue")),
        waiting("LifecycleWaitingAlarm", sweep, visibility(region, "LifecycleQueue")),
        warnings(),
        not_run("CatalogSilentAlarm", region.rate("SpotPricesSchedule"), 60),
        not_run("ImagesSilentAlarm", region.rate("ImagesSchedule"), 30),
        silent("ProvisionerSilentAlarm", region.rate("InstanceStatusSchedule"), 30),
        silent("LifecycleSilentAlarm", region.rate("InstanceStatusSchedule"), 30),
        stale(),
        attention(sweep),
    ]);
    cases
}

/// The minutes for which a message is invisible after a receive.
fn visibility(region: &EvaluatedStack, queue: &str) -> usize {
    let seconds = region.document["Resources"][queue]["Properties"]["VisibilityTimeout"].as_u64();
    usize::try_from(seconds.unwrap() / 60).unwrap()
}

fn nothing(minutes: usize) -> Minutes {
    vec![None; minutes]
}

fn value(of: f64, minutes: usize) -> Minutes {
    vec![Some(of); minutes]
}

/// One thing each so many minutes, and `between` in the other ones.
fn each(rate: usize, between: Option<f64>, minutes: usize) -> Minutes {
    (0..minutes).map(|minute| if minute.is_multiple_of(rate) { Some(1.0) } else { between }).collect()
}

/// The seconds since a minute, at the end of each minute after it.
fn ages(minutes: usize) -> Minutes {
    (1..=minutes).map(|minute| Some(seconds(minute))).collect()
}

fn seconds(minutes: usize) -> f64 {
    f64::from(u32::try_from(minutes * 60).unwrap())
}

/// The age of the oldest message that counts, where a message comes each `rate` minutes and all fail.
pub(crate) fn ages_of_failing(rate: usize, visibility: usize, minutes: usize) -> Minutes {
    let counted = visibility * (RECEIVES_COUNTED - 1);
    let oldest =
        |now: usize| (0..=now).filter(|sent| sent.is_multiple_of(rate)).find(|sent| now - sent < counted);
    (0..minutes).map(|now| oldest(now).map(|sent| seconds(now - sent))).collect()
}

fn dead_letters(alarm: &'static str) -> AlarmCase {
    let minutes = [nothing(HEALTHY), nothing(ACTIVATION), value(1.0, FAILS - ACTIVATION)].concat();
    AlarmCase {
        alarm,
        healthy: vec![nothing(HEALTHY), value(0.0, HEALTHY)],
        failures: vec![FailureOfAlarm { what: "one message", minutes, rings_within: ACTIVATION + 1 }],
    }
}

/// A failure that comes after a queue was handled within seconds.
fn after_handling(what: &'static str, fails: Minutes, rings_within: usize) -> FailureOfAlarm {
    FailureOfAlarm { what, minutes: [value(1.0, HEALTHY), fails].concat(), rings_within }
}

fn waiting(alarm: &'static str, sweep: usize, visibility: usize) -> AlarmCase {
    // One message fails once and comes again: a person needn't know.
    let once = [value(1.0, HEALTHY / 2), ages(visibility), value(1.0, HEALTHY / 2)].concat();
    AlarmCase {
        alarm,
        healthy: vec![nothing(HEALTHY), value(1.0, HEALTHY), once],
        failures: vec![
            after_handling("the queue isn't read", ages(FAILS), 16),
            after_handling("every message fails", ages_of_failing(sweep, visibility, FAILS), 16),
        ],
    }
}

fn warnings() -> AlarmCase {
    AlarmCase {
        alarm: "InterruptionWaitingAlarm",
        healthy: vec![nothing(HEALTHY), value(1.0, HEALTHY)],
        failures: vec![after_handling("the queue isn't read", ages(FAILS), 2)],
    }
}

fn silent(alarm: &'static str, rate: usize, period: usize) -> AlarmCase {
    let handled = each(rate, Some(0.0), HEALTHY);
    // Two of three looks fail, or aren't delivered.
    let seldom = each(3 * rate, Some(0.0), HEALTHY);
    let failure = |what, fails: Minutes, rings_within| FailureOfAlarm {
        what,
        minutes: [handled.clone(), fails].concat(),
        rings_within,
    };
    AlarmCase {
        alarm,
        healthy: vec![handled.clone(), seldom],
        failures: vec![
            failure("no message is handled", value(0.0, FAILS), period),
            // CloudWatch then goes by older periods, as long as it reads any.
            failure("no message comes", nothing(FAILS), 3 * period),
        ],
    }
}

/// Of a function without a queue: Lambda publishes only where it ran.
fn not_run(alarm: &'static str, rate: usize, period: usize) -> AlarmCase {
    let run = each(rate, None, HEALTHY);
    AlarmCase {
        alarm,
        // Two of three events are lost.
        healthy: vec![run.clone(), each(3 * rate, None, HEALTHY)],
        failures: vec![FailureOfAlarm {
            what: "it isn't invoked, or throttled",
            minutes: [run, nothing(FAILS)].concat(),
            // CloudWatch then goes by older periods, as long as it reads any.
            rings_within: 3 * period,
        }],
    }
}

/// A part that is fetched twice a day tells once that it is stale, so only the first hour is sure.
fn stale() -> AlarmCase {
    let minutes = [nothing(HEALTHY), value(1.0, 1), nothing(59)].concat();
    AlarmCase {
        alarm: "CatalogStaleAlarm",
        healthy: vec![nothing(HEALTHY)],
        failures: vec![FailureOfAlarm { what: "a part is stale", minutes, rings_within: 1 }],
    }
}

/// A rule that matches each sweep of a cluster, and each reminder that comes with one.
fn attention(sweep: usize) -> AlarmCase {
    const PERIOD: usize = 15;
    let swept = each(sweep, None, HEALTHY);
    let reminded: Minutes = each(sweep, None, FAILS).into_iter().map(|swept| swept.map(|_| 2.0)).collect();
    // Two sweeps find the agent missing while it is installed.
    let mut installed = swept.clone();
    installed.iter_mut().skip(HEALTHY - 2 * sweep).flatten().for_each(|swept| *swept = 2.0);
    let installed = [installed, swept.clone()].concat();
    // A sweep is late, and the next one is early.
    let mut uneven = swept.clone();
    uneven.iter_mut().skip(HEALTHY - 1).for_each(|minute| *minute = Some(1.0));
    let uneven = [uneven, swept.clone()].concat();
    let mut lossy = reminded.clone();
    lossy.iter_mut().skip(60).take(sweep).for_each(|minute| *minute = None);
    let failure = |what, fails: Minutes, rings_within| FailureOfAlarm {
        what,
        minutes: [swept.clone(), fails].concat(),
        rings_within,
    };
    AlarmCase {
        alarm: "AttentionAlarm",
        healthy: vec![swept.clone(), installed, uneven],
        failures: vec![
            failure("the agent is silent, or the cluster is halted", reminded, 2 * sweep + 1),
            failure("the same, and all events of a sweep are lost", lossy, 2 * sweep + 1),
            // CloudWatch then goes by older periods, as long as it reads any.
            failure("no sweep comes", nothing(FAILS), 3 * PERIOD),
        ],
    }
}
