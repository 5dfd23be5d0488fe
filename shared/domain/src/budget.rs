//! NodePool disruption budgets: how many nodes may be disrupted at once, when, and for which reason.
//!
//! Decides the allowance of a pool's budgets at a moment; `window` decides when a budget is active. It doesn't count
//! current disruptions.
//!
//! Invariant: a budget that can't be understood allows nothing.
//!
//! Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodepool.go`; karpenter.sh/docs/concepts/disruption.

mod window;

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;

use window::Activity;
pub use window::BudgetWindow;

/// The allowance of an inactive budget: the peer's largest 32-bit integer.
pub const UNBOUNDED: u32 = i32::MAX.unsigned_abs();

crate::words! {
    /// Why a node is disrupted on our own will. Manifests and records have its word.
    #[derive(serde::Deserialize)]
    #[serde(rename = "a disruption reason")]
    pub enum DisruptionReason {
        /// It can be replaced by something cheaper.
        Underutilized,
        /// No pods are on it.
        Empty,
        /// The claim differs from its pool's and class's specs.
        Drifted,
    }
}

/// How many nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetNodes {
    /// A number of nodes.
    Count(u32),
    /// A percentage of the nodes, 0 to 100, rounded up.
    Percent(u8),
}

impl BudgetNodes {
    /// Reads `5` or `10%`.
    ///
    /// # Errors
    /// [`BudgetError::Nodes`] for anything else.
    pub fn parse(text: &str) -> Result<Self, BudgetError> {
        let wrong = || BudgetError::Nodes(text.to_owned());
        let digits = text.strip_suffix('%').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        if digits.len() == text.len() {
            // More than 32 bits of nodes is as good as unbounded.
            return Ok(Self::Count(digits.parse().map_or(UNBOUNDED, |count: u32| count.min(UNBOUNDED))));
        }
        match digits.parse::<u8>() {
            // The peer's pattern takes `09%` but not `009%`.
            Ok(percent) if percent <= 99 && digits.len() <= 2 || digits == "100" => {
                Ok(Self::Percent(percent))
            }
            Ok(_) | Err(_) => Err(wrong()),
        }
    }

    /// How many of `total` nodes.
    #[must_use]
    pub fn of(self, total: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let nodes = (u64::from(total) * u64::from(percent)).div_ceil(100);
                u32::try_from(nodes).unwrap_or(UNBOUNDED)
            }
        }
    }
}

impl fmt::Display for BudgetNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

/// A budget that the peer refuses as well.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// `nodes` is neither a count nor a percentage.
    #[error(
        "`{0}` is not a number of nodes: expected a count such as `5`, or a percentage from `0%` to `100%`"
    )]
    Nodes(String),
    /// `duration` has another form.
    #[error(
        "`{0}` is not a duration of a budget: expected hours and minutes, such as `30m`, `8h` or `1h30m`"
    )]
    Duration(String),
    /// `schedule` isn't even of a schedule's form.
    #[error("`{0}` is not a schedule: expected five fields such as `0 9 * * mon-fri`, or `@daily`")]
    Schedule(String),
    /// Only one of `schedule` and `duration`.
    #[error("`schedule` and `duration` must be set together: {0} is missing")]
    HalfWindow(&'static str),
}

/// One of a NodePool's disruption budgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    /// The number of nodes that may be disrupted at once.
    pub nodes: BudgetNodes,
    /// When this is active; absent means always.
    pub window: Option<BudgetWindow>,
    /// For which reasons; empty means all.
    pub reasons: BTreeSet<DisruptionReason>,
}

impl Budget {
    /// A budget that is always active and for all reasons.
    #[must_use]
    pub const fn always(nodes: BudgetNodes) -> Self {
        Self { nodes, window: None, reasons: BTreeSet::new() }
    }

    /// Parses a budget's fields; see [`BudgetWindow::parse`]. Reasons are added with [`DisruptionReason::parse`].
    ///
    /// # Errors [`BudgetError`] for input that the peer refuses too.
    pub fn parse(nodes: &str, schedule: Option<&str>, duration: Option<&str>) -> Result<Self, BudgetError> {
        let window = match (schedule, duration) {
            (None, None) => None,
            (Some(schedule), Some(duration)) => Some(BudgetWindow::parse(schedule, duration)?),
            (Some(_), None) => return Err(BudgetError::HalfWindow("`duration`")),
            (None, Some(_)) => return Err(BudgetError::HalfWindow("`schedule`")),
        };
        Ok(Self { nodes: BudgetNodes::parse(nodes)?, window, reasons: BTreeSet::new() })
    }

    /// How many of `nodes` nodes this allows at a moment; [`UNBOUNDED`] while inactive, 0 if it can't be understood.
    #[must_use]
    pub fn allowed(&self, nodes: u32, now: Timestamp) -> u32 {
        match self.window.as_ref().map_or(Activity::Active, |window| window.state(now)) {
            Activity::Active => self.nodes.of(nodes),
            Activity::Inactive => UNBOUNDED,
            Activity::Unreadable => 0,
        }
    }

    /// Whether this budget is about a reason. Expiry has none of the reasons that budgets can name.
    #[must_use]
    pub fn applies_to(&self, reason: Option<DisruptionReason>) -> bool {
        self.reasons.is_empty() || reason.is_some_and(|reason| self.reasons.contains(&reason))
    }

    /// The next time at which the allowance may change, after `now`; `None` if never.
    #[must_use]
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.window.as_ref()?.next_change(now)
    }
}

/// How many nodes a pool's budgets allow for a reason at a moment: the least over those about it.
#[must_use]
pub fn allowed_disruptions(
    budgets: &[Budget],
    reason: Option<DisruptionReason>,
    nodes: u32,
    now: Timestamp,
) -> u32 {
    budgets
        .iter()
        .filter(|budget| budget.applies_to(reason))
        .map(|budget| budget.allowed(nodes, now))
        .min()
        .unwrap_or(UNBOUNDED)
}

/// The budget that allows none of a pool's nodes for a reason at a moment: of several, one that waiting opens only if
/// there is no other.
#[must_use]
pub fn closed_budget(
    budgets: &[Budget],
    reason: Option<DisruptionReason>,
    now: Timestamp,
) -> Option<&Budget> {
    // Any number of nodes gives the same: percentages round up.
    let closed = budgets.iter().filter(|budget| budget.applies_to(reason) && budget.allowed(1, now) == 0);
    closed.min_by_key(|budget| match &budget.window {
        Some(window) if window.problem().is_some() => 0,
        None => 1,
        Some(_) => 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use DisruptionReason::{Drifted, Empty, Underutilized};

    /// A Wednesday.
    const NOON: &str = "2026-01-07T12:00:00Z";

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn budget(nodes: &str, window: Option<(&str, &str)>, reasons: &[DisruptionReason]) -> Budget {
        let mut budget = Budget::parse(nodes, window.map(|w| w.0), window.map(|w| w.1)).unwrap();
        budget.reasons = reasons.iter().copied().collect();
        budget
    }

    fn check(budgets: &[Budget], expected: [(DisruptionReason, u32); 3]) {
        for (reason, allowed) in expected {
            assert_eq!(allowed_disruptions(budgets, Some(reason), 100, at(NOON)), allowed, "{reason}");
        }
    }

    #[test]
    fn a_schedule_follows_the_clocks_of_its_time_zone() {
        let check = |zone: &str, now: &str, allowed: u32| {
            let zone = crate::pool_annotations::budget_time_zone(zone).unwrap();
            let mut night = budget("1", Some(("0 2 * * *", "1h")), &[]);
            night.window = night.window.map(|window| window.in_zone(Ok(zone)));
            assert_eq!(night.allowed(100, at(now)), allowed, "{now}");
        };
        check("UTC", "2026-01-07T02:30:00Z", 1);
        check("America/New_York", "2026-01-07T02:30:00Z", UNBOUNDED);
        check("America/New_York", "2026-01-07T07:30:00Z", 1);
        check("America/New_York", "2026-07-07T06:30:00Z", 1);
        // In Berlin, no clock shows 02:00 to 03:00 on 29 March 2026; on 25 October they show it twice.
        check("Europe/Berlin", "2026-03-29T00:59:59Z", UNBOUNDED);
        check("Europe/Berlin", "2026-03-29T01:30:00Z", 1);
        check("Europe/Berlin", "2026-10-25T00:30:00Z", 1);
        check("Europe/Berlin", "2026-10-25T02:30:00Z", UNBOUNDED);
        let unknown = crate::pool_annotations::budget_time_zone("Europe/Atlantis").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "annotation `tenon.dev/budget-time-zone` is `Europe/Atlantis`; write a time zone of the IANA database such as \
             `Europe/Berlin`"
        );
    }

    #[test]
    fn the_budget_that_allows_nothing_is_the_one_that_waiting_doesnt_open() {
        let check = |budgets: &[Budget], expected: Option<usize>| {
            let found = closed_budget(budgets, Some(Empty), at(NOON));
            assert_eq!(found, expected.and_then(|index| budgets.get(index)));
        };
        let freeze = || budget("0", Some(("@hourly", "1h")), &[]);
        let always = || budget("0%", None, &[Empty]);
        let wrong = || budget("5", Some(("61 * * * *", "1h")), &[]);
        check(&[budget("1", None, &[]), budget("0", None, &[Drifted])], None);
        check(&[budget("1%", None, &[]), freeze()], Some(1));
        check(&[freeze(), always()], Some(1));
        check(&[freeze(), always(), wrong()], Some(2));
    }

    #[test]
    fn c014_an_active_budget_of_nothing_allows_nothing() {
        let budgets = [
            budget("10", None, &[]),
            budget("100", None, &[]),
            budget("100%", None, &[]),
            budget("15", None, &[Drifted, Underutilized]),
            budget("4", None, &[Empty]),
            budget("0", Some(("@hourly", "1h")), &DisruptionReason::ALL),
        ];
        check(&budgets, [(Empty, 0), (Drifted, 0), (Underutilized, 0)]);
    }

    #[test]
    fn c016_without_an_active_budget_for_a_reason_the_general_one_applies() {
        let inactive = budget("1", Some(("@weekly", "1h")), &[Drifted]);
        check(&[budget("10", None, &[]), inactive], [(Empty, 10), (Drifted, 10), (Underutilized, 10)]);
        check(&[budget("10", None, &[])], [(Empty, 10), (Drifted, 10), (Underutilized, 10)]);
        check(&[], [(Empty, UNBOUNDED), (Drifted, UNBOUNDED), (Underutilized, UNBOUNDED)]);
    }

    #[test]
    fn c017_the_least_of_those_about_a_reason() {
        let budgets = [
            budget("10", None, &[]),
            budget("100", None, &[]),
            budget("100%", None, &[]),
            budget("15", None, &[Drifted, Underutilized]),
            budget("5", None, &[Drifted]),
            budget("0", Some(("@weekly", "1h")), &DisruptionReason::ALL),
            budget("4", None, &[Empty]),
        ];
        check(&budgets, [(Empty, 4), (Drifted, 5), (Underutilized, 10)]);
    }

    #[test]
    fn c019_counts_are_taken_as_they_are_and_percentages_round_up() {
        for (nodes, total, expected) in
            [("10", 100, 10), ("100%", 100, 100), ("10%", 1, 1), ("10%", 11, 2), ("0%", 9, 0), ("10%", 0, 0)]
        {
            assert_eq!(budget(nodes, None, &[]).allowed(total, at(NOON)), expected, "{nodes} of {total}");
        }
    }

    #[test]
    fn c020_schedules_are_in_utc() {
        let daily = budget("1", Some(("@daily", "30m")), &[]);
        for (now, expected) in [
            ("2026-01-07T00:00:00Z", 1),
            ("2026-01-07T00:29:59.9Z", 1),
            ("2026-01-07T00:30:00Z", UNBOUNDED),
            ("2026-01-07T00:00:00+01:00", UNBOUNDED),
            ("2026-01-06T23:59:59Z", UNBOUNDED),
        ] {
            assert_eq!(daily.allowed(5, at(now)), expected, "{now}");
        }
        assert_eq!(budget("1", None, &[]).allowed(5, at(NOON)), 1);
    }

    #[test]
    fn schedules_of_five_fields_follow_the_peer() {
        for (schedule, duration, expected) in [
            ("0 9 * * mon-fri", "8h", true),
            ("0 9 * * SAT,SUN", "8h", false),
            ("*/15 * * * *", "1m", true),
            ("0/30 12 7 jan ?", "1h0m0s", true),
            ("30 11 * * *", "30m", false),
            ("30 11 * * *", "31m", true),
            ("@midnight", "13h", true),
        ] {
            let active = budget("3", Some((schedule, duration)), &[]).allowed(9, at(NOON)) == 3;
            assert_eq!(active, expected, "{schedule} {duration}");
        }
    }

    #[test]
    fn a_schedule_that_means_nothing_allows_nothing_and_says_why() {
        for schedule in
            ["99 99 * * *", "0 0 30 2 *", "0 0 L * *", "mon * * * *", "TZ=CET 0 0 * *", "0 0 * * 9"]
        {
            let budget = budget("5", Some((schedule, "1h")), &[]);
            assert!(budget.window.as_ref().unwrap().problem().is_some(), "{schedule}");
            assert_eq!(budget.allowed(100, at(NOON)), 0, "{schedule}");
        }
    }

    #[test]
    fn what_the_peer_refuses_is_refused_with_a_remedy() {
        for (nodes, schedule, duration, message) in [
            ("101%", None, None, "`101%` is not a number of nodes"),
            ("-1", None, None, "`-1` is not a number of nodes"),
            ("5", Some("@daily"), None, "must be set together: `duration` is missing"),
            ("5", None, Some("1h"), "must be set together: `schedule` is missing"),
            ("5", Some("@dayly"), Some("1h"), "`@dayly` is not a schedule"),
            ("5", Some("* * * *"), Some("1h"), "`* * * *` is not a schedule"),
            ("5", Some("@daily"), Some("90s"), "`90s` is not a duration of a budget"),
            ("5", Some("@daily"), Some(""), "`` is not a duration of a budget"),
            ("5", Some("@daily"), Some("1m1h"), "`1m1h` is not a duration of a budget"),
        ] {
            let error = Budget::parse(nodes, schedule, duration).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn the_next_change_is_known() {
        let daily = budget("1", Some(("@daily", "30m")), &[]);
        assert_eq!(daily.next_change(at(NOON)), Some(at("2026-01-08T00:00:00Z")));
        assert_eq!(daily.next_change(at("2026-01-08T00:10:00Z")), Some(at("2026-01-08T00:30:00Z")));
        assert_eq!(budget("1", None, &[]).next_change(at(NOON)), None);
    }
}
