//! A summary: quantiles of recent durations, their sum and count. The crate of the exposition format has none.
//!
//! Decides the window, which is client_golang's: 10 minutes. Quantiles are exact within it, up to [`RECENT_MAX`].
//!
//! Source: prometheus/client_golang `prometheus/summary.go`, `DefMaxAge`.

use std::collections::VecDeque;
use std::fmt;

use jiff::{SignedDuration, Timestamp};

/// How long a duration counts for quantiles.
const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// The latest durations that count for quantiles: 96 KB. More come in 10 minutes only to the largest clusters.
const RECENT_MAX: usize = 4_096;
/// The quantiles of Karpenter's summaries, and their spelling.
const QUANTILES: [(f64, &str); 5] = [(0.0, "0"), (0.5, "0.5"), (0.9, "0.9"), (0.99, "0.99"), (1.0, "1")];

/// Durations in seconds.
#[derive(Debug, Default)]
pub(super) struct DurationSummary {
    recent: VecDeque<(Timestamp, f64)>,
    sum: f64,
    count: u64,
}

impl DurationSummary {
    /// Adds a duration.
    pub(super) fn observe(&mut self, seconds: f64, now: Timestamp) {
        self.drop_old(now);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((now, seconds));
        self.sum += seconds;
        self.count += 1;
    }

    fn drop_old(&mut self, now: Timestamp) {
        while self.recent.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            self.recent.pop_front();
        }
    }

    /// Writes its samples. `labels` is empty, or a label's name and value.
    ///
    /// # Errors Those of the writer.
    pub(super) fn write(
        &mut self,
        writer: &mut impl fmt::Write,
        name: &str,
        label: Option<(&str, &str)>,
        now: Timestamp,
    ) -> fmt::Result {
        self.drop_old(now);
        let mut sorted: Vec<f64> = self.recent.iter().map(|(_, seconds)| *seconds).collect();
        sorted.sort_by(f64::total_cmp);
        let label = label.map(|(key, value)| format!("{key}=\"{}\"", escaped(value)));
        for (quantile, text) in QUANTILES {
            let separator = if label.is_some() { "," } else { "" };
            let own = label.as_deref().unwrap_or_default();
            let value = at_quantile(&sorted, quantile);
            writeln!(writer, "{name}{{{own}{separator}quantile=\"{text}\"}} {value:?}")?;
        }
        let own = label.map(|label| format!("{{{label}}}")).unwrap_or_default();
        writeln!(writer, "{name}_sum{own} {:?}", self.sum)?;
        writeln!(writer, "{name}_count{own} {}", self.count)
    }
}

/// Writes the head of a summary.
///
/// # Errors Those of the writer.
pub(super) fn write_head(writer: &mut impl fmt::Write, name: &str, help: &str) -> fmt::Result {
    writeln!(writer, "# HELP {name} {help}")?;
    writeln!(writer, "# TYPE {name} summary")
}

/// The least value that so large a part of the values doesn't exceed; NaN without values.
fn at_quantile(sorted: &[f64], quantile: f64) -> f64 {
    let least = quantile * sorted.len() as f64;
    let found = sorted.iter().enumerate().find(|(index, _)| *index as f64 + 1.0 >= least);
    found.map_or(f64::NAN, |(_, value)| *value)
}

/// A label's value in the exposition format.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn text(summary: &mut DurationSummary, now: i64) -> String {
        let mut text = String::new();
        summary.write(&mut text, "s", Some(("nodepool", "a\"b")), at(now)).unwrap();
        text
    }

    #[test]
    fn quantiles_are_of_ten_minutes_and_sums_of_all() {
        let mut summary = DurationSummary::default();
        for second in 0..100 {
            summary.observe(100.0 - f64::from(second), at(i64::from(second)));
        }
        let all = "s{nodepool=\"a\\\"b\",quantile=\"0\"} 1.0\ns{nodepool=\"a\\\"b\",quantile=\"0.5\"} 50.0\n\
            s{nodepool=\"a\\\"b\",quantile=\"0.9\"} 90.0\ns{nodepool=\"a\\\"b\",quantile=\"0.99\"} 99.0\n\
            s{nodepool=\"a\\\"b\",quantile=\"1\"} 100.0\ns_sum{nodepool=\"a\\\"b\"} 5050.0\n\
            s_count{nodepool=\"a\\\"b\"} 100\n";
        assert_eq!(text(&mut summary, 100), all);
        let later = text(&mut summary, 698);
        assert!(
            later.contains("quantile=\"1\"} 2.0\n") && later.contains("s_count{nodepool=\"a\\\"b\"} 100\n")
        );
        assert!(text(&mut summary, 10_000).contains("quantile=\"0.5\"} NaN\n"));
    }

    #[test]
    fn the_latest_are_kept() {
        let mut summary = DurationSummary::default();
        for _ in 0..=RECENT_MAX {
            summary.observe(1.0, at(0));
        }
        assert_eq!((summary.recent.len(), summary.count), (RECENT_MAX, 4_097));
    }
}
