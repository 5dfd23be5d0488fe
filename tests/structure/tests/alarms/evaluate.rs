//! An alarm's state, as CloudWatch derives it from a metric's minutes.
//!
//! Decides by the rules of "Using Amazon CloudWatch alarms", whose own tables are replayed here. Doesn't decide where a
//! period begins: CloudWatch doesn't tell, so callers look at every minute.

use serde_json::Value;

/// What a metric has for each minute; nothing where nothing is published.
pub(crate) type Minutes = Vec<Option<f64>>;

/// Periods that CloudWatch reads beyond those that it evaluates. Its page says "a higher number", and its examples have
/// five for an alarm of three.
const PERIODS_BEYOND: usize = 2;

/// A state. Without `missing` and `ignore`, which no alarm uses, none lacks data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AlarmState {
    Alarm,
    Ok,
}

/// How the values of a period become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AlarmStatistic {
    Average,
    Maximum,
    Minimum,
    SampleCount,
    Sum,
}

/// Which values breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AlarmComparison {
    Above,
    AtLeast,
    AtMost,
    Below,
}

/// What counts for a period without data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingData {
    Breaches,
    IsFine,
}

/// An alarm's rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AlarmRule {
    statistic: AlarmStatistic,
    period_minutes: usize,
    evaluated: usize,
    breaching: usize,
    comparison: AlarmComparison,
    threshold: f64,
    missing: MissingData,
}

impl AlarmRule {
    /// The rule of a template's alarm.
    ///
    /// # Errors
    /// The property that isn't known here.
    pub(crate) fn read(alarm: &Value) -> Result<Self, String> {
        let text = |name: &str| alarm[name].as_str().unwrap_or_default();
        let number = |name: &str| {
            let number = alarm[name].as_u64().and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| format!("`{name}` is {}", alarm[name]))
        };
        let evaluated = number("EvaluationPeriods")?;
        let statistic = match text("Statistic") {
            "Average" => AlarmStatistic::Average,
            "Maximum" => AlarmStatistic::Maximum,
            "Minimum" => AlarmStatistic::Minimum,
            "SampleCount" => AlarmStatistic::SampleCount,
            "Sum" => AlarmStatistic::Sum,
            other => return Err(format!("the statistic is `{other}`")),
        };
        let comparison = match text("ComparisonOperator") {
            "GreaterThanThreshold" => AlarmComparison::Above,
            "GreaterThanOrEqualToThreshold" => AlarmComparison::AtLeast,
            "LessThanOrEqualToThreshold" => AlarmComparison::AtMost,
            "LessThanThreshold" => AlarmComparison::Below,
            other => return Err(format!("the comparison is `{other}`")),
        };
        let missing = match text("TreatMissingData") {
            "breaching" => MissingData::Breaches,
            "notBreaching" => MissingData::IsFine,
            other => return Err(format!("missing data is `{other}`")),
        };
        let breaching =
            if alarm["DatapointsToAlarm"].is_null() { evaluated } else { number("DatapointsToAlarm")? };
        let threshold = alarm["Threshold"].as_f64().ok_or("no threshold")?;
        let period_minutes = (number("Period")? / 60).max(1);
        Ok(Self { statistic, period_minutes, evaluated, breaching, comparison, threshold, missing })
    }

    /// The state at the end of these minutes.
    pub(crate) fn state(&self, minutes: &[Option<f64>]) -> AlarmState {
        let periods = minutes.rchunks(self.period_minutes).take(self.evaluated + PERIODS_BEYOND);
        let newest_first: Vec<Option<f64>> = periods.map(|period| self.datapoint(period)).collect();
        self.judge(&newest_first)
    }

    /// "All real data points in the evaluation range are included", the most recent first; the treatment of missing data
    /// fills up only where there are fewer than are evaluated.
    fn judge(&self, newest_first: &[Option<f64>]) -> AlarmState {
        let real = newest_first.iter().flatten().map(|value| self.breaches(*value));
        let filled = std::iter::repeat(self.missing == MissingData::Breaches);
        let breaching = real.chain(filled).take(self.evaluated).filter(|breaches| *breaches).count();
        if breaching >= self.breaching { AlarmState::Alarm } else { AlarmState::Ok }
    }

    fn datapoint(&self, minutes: &[Option<f64>]) -> Option<f64> {
        let values: Vec<f64> = minutes.iter().copied().flatten().collect();
        let largest = values.iter().copied().reduce(f64::max)?;
        let (sum, samples) =
            values.iter().fold((0.0, 0.0), |(sum, samples), value| (sum + value, samples + 1.0));
        Some(match self.statistic {
            AlarmStatistic::Average => sum / samples,
            AlarmStatistic::Maximum => largest,
            AlarmStatistic::Minimum => values.iter().copied().fold(largest, f64::min),
            AlarmStatistic::SampleCount => samples,
            AlarmStatistic::Sum => sum,
        })
    }

    fn breaches(&self, value: f64) -> bool {
        match self.comparison {
            AlarmComparison::Above => value > self.threshold,
            AlarmComparison::AtLeast => value >= self.threshold,
            AlarmComparison::AtMost => value <= self.threshold,
            AlarmComparison::Below => value < self.threshold,
        }
    }
}

/// CloudWatch's tables: five data points, the oldest first, `X` breaching and `-` missing; what an alarm of three
/// periods does where missing data breaches, and where it doesn't. `DatapointsToAlarm` is 3, then 2. Source:
/// <https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html>, read 2026-11.
#[test]
fn the_examples_of_cloudwatchs_page() {
    use AlarmState::{Alarm, Ok as Fine};
    let cases = [
        (3, "0-X-X", Fine, Fine),
        (3, "----0", Fine, Fine),
        (3, "-----", Alarm, Fine),
        (3, "0XX-X", Alarm, Alarm),
        (3, "--X--", Alarm, Fine),
        (2, "0-X-X", Alarm, Alarm),
        (2, "00X0X", Alarm, Alarm),
        (2, "0-X--", Alarm, Fine),
        (2, "----0", Alarm, Fine),
        (2, "---X-", Alarm, Fine),
    ];
    for (breaching, points, if_breaching, if_not) in cases {
        let minutes: Minutes = points
            .chars()
            .map(|point| match point {
                'X' => Some(2.0),
                '0' => Some(0.0),
                _ => None,
            })
            .collect();
        for (missing, expected) in [("breaching", if_breaching), ("notBreaching", if_not)] {
            let alarm = serde_json::json!({
                "Statistic": "Sum", "Period": 60, "EvaluationPeriods": 3, "DatapointsToAlarm": breaching,
                "ComparisonOperator": "GreaterThanThreshold", "Threshold": 1, "TreatMissingData": missing,
            });
            let rule = AlarmRule::read(&alarm).unwrap();
            assert_eq!(rule.state(&minutes), expected, "{breaching} of 3, {points}, {missing}");
        }
    }
}
