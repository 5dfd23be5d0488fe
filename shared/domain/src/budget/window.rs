//! When a disruption budget is active: a schedule, and a duration after each of its moments.
//!
//! Decides which schedules are well-formed, and their moments. A well-formed schedule that can't be understood stays,
//! with its problem.
//!
//! Invariant: schedules are in UTC, or in the time zone that the pool names.
//!
//! Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodepool.go`.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::BudgetError;

/// When a budget is active.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetWindow {
    schedule: BudgetSchedule,
    duration: SignedDuration,
    zone: TimeZone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct BudgetSchedule {
    text: String,
    cron: Result<Cron, String>,
}

/// Whether a window is active at a moment.
pub(super) enum Activity {
    /// It is.
    Active,
    /// It isn't.
    Inactive,
    /// Its schedule can't be understood.
    Unreadable,
}

impl BudgetWindow {
    /// Parses a schedule, and the duration after each of its moments.
    ///
    /// Like the peer, this accepts a well-formed schedule that can't be understood; see [`BudgetWindow::problem`].
    ///
    /// # Errors [`BudgetError`] for input that the peer refuses too.
    pub fn parse(schedule: &str, duration: &str) -> Result<Self, BudgetError> {
        let duration = parse_duration(duration)?;
        let form = match schedule.starts_with('@') {
            true => MACROS.iter().any(|(name, _)| schedule.starts_with(name)),
            false => schedule.split_whitespace().count() >= FIELDS,
        };
        if !form {
            return Err(BudgetError::Schedule(schedule.to_owned()));
        }
        let cron = parse_cron(schedule);
        let schedule = BudgetSchedule { text: schedule.to_owned(), cron };
        Ok(Self { schedule, duration, zone: TimeZone::UTC })
    }

    /// The same schedule in another time zone than UTC; where that is unknown, it can't be understood.
    #[must_use]
    pub fn in_zone(mut self, zone: Result<TimeZone, String>) -> Self {
        match zone {
            Ok(zone) => self.zone = zone,
            Err(problem) => self.schedule.cron = Err(problem),
        }
        self
    }

    /// The schedule as written.
    #[must_use]
    pub fn schedule(&self) -> &str {
        &self.schedule.text
    }

    /// How long the budget is active after each moment of the schedule.
    #[must_use]
    pub fn duration(&self) -> SignedDuration {
        self.duration
    }

    /// Why the schedule can't be understood; such a budget allows nothing.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.schedule.cron.as_ref().err().map(String::as_str)
    }

    pub(super) fn state(&self, now: Timestamp) -> Activity {
        let Ok(cron) = &self.schedule.cron else { return Activity::Unreadable };
        let begin = now.checked_sub(self.duration).unwrap_or(Timestamp::MIN);
        // Moments are whole minutes, so a fraction of a second never matters.
        match next_moment(cron, begin, &self.zone) {
            Some(moment) if moment <= now => Activity::Active,
            Some(_) | None => Activity::Inactive,
        }
    }

    /// The next time at which it begins or ends, after `now`; `None` if never.
    pub(super) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let cron = self.schedule.cron.as_ref().ok()?;
        let begins = next_moment(cron, now, &self.zone);
        // The window's first moment ends first. A later moment may prolong the window; the next look finds that.
        let first = next_moment(cron, now.checked_sub(self.duration).ok()?, &self.zone)?;
        let ends = first.checked_add(self.duration).ok().filter(|end| first <= now && *end > now);
        begins.into_iter().chain(ends).min()
    }
}

/// The first moment of a schedule after a time, by the clocks of a time zone. A moment that the clocks skip comes later by
/// as much; one that they show twice is the first.
fn next_moment(cron: &Cron, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let whole = Timestamp::from_second(after.as_second()).ok()?;
    let mut shown: DateTime = zone.to_datetime(whole);
    loop {
        shown = cron.find_next_occurrence(&shown, false).ok()?;
        // Where clocks go back, what they show next may be over already.
        let moment = zone.to_timestamp(shown).ok()?;
        if moment > whole {
            return Some(moment);
        }
    }
}

/// Hours, minutes or both, with an optional `0s` as Go writes it.
fn parse_duration(text: &str) -> Result<SignedDuration, BudgetError> {
    let wrong = || BudgetError::Duration(text.to_owned());
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse::<i64>().ok()).flatten().ok_or_else(wrong)
    };
    let body = text.strip_suffix("0s").filter(|body| body.ends_with(['h', 'm'])).unwrap_or(text);
    let (hours, rest) = match body.split_once('h') {
        Some((hours, rest)) => (number(hours)?, rest),
        None if body.is_empty() => return Err(wrong()),
        None => (0, body),
    };
    let minutes = match rest {
        "" => 0,
        rest => number(rest.strip_suffix('m').ok_or_else(wrong)?)?,
    };
    let minutes = hours.checked_mul(60).and_then(|m| m.checked_add(minutes)).ok_or_else(wrong)?;
    minutes.checked_mul(60).map(SignedDuration::from_secs).ok_or_else(wrong)
}

/// Minute, hour, day of the month, month, day of the week.
const FIELDS: usize = 5;
/// The shortcuts, each with its five fields.
const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Five fields or a shortcut. The parser knows more (`L`, `W`, `#`, names anywhere); the peer doesn't, so the words
/// are checked first.
fn parse_cron(text: &str) -> Result<Cron, String> {
    let fields = MACROS.iter().find(|(name, _)| *name == text).map_or(text, |(_, fields)| fields);
    let count = fields.split_whitespace().count();
    if count != FIELDS {
        return Err(format!("it has {count} fields instead of {FIELDS}"));
    }
    let names: [&[&str]; FIELDS] = [&[], &[], &[], &MONTHS, &WEEKDAYS];
    for (field, names) in fields.split_whitespace().zip(names) {
        if let Some(word) = field.split([',', '-', '/']).find(|word| !is_cron_word(word, names)) {
            return Err(format!("`{word}` in field `{field}` is neither a number, `*` nor a name"));
        }
    }
    let parser =
        CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).sloppy_ranges(true).build();
    let cron = parser.parse(fields).map_err(|error| error.to_string())?;
    // The calendar repeats from 2000 on, 29 February included, so a schedule without a moment after it has none.
    let epoch = jiff::civil::date(2000, 1, 1).at(0, 0, 0, 0);
    cron.find_next_occurrence(&epoch, true).map(|_| cron.clone()).map_err(|_| "it never occurs".to_owned())
}

fn is_cron_word(word: &str, names: &[&str]) -> bool {
    let number = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    number || word == "*" || word == "?" || names.iter().any(|name| name.eq_ignore_ascii_case(word))
}
