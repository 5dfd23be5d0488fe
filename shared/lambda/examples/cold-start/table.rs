//! The measurements as a table for people.

use std::fmt::Write;
use std::time::Duration;

use crate::measure::Measured;

/// A line for each function, under a head.
pub(crate) fn table(measured: &[Measured]) -> String {
    let mut text =
        format!("{:<14}{:>10}{:>10}{:>10}{:>10}\n", "FUNCTION", "MB", "MIN MS", "MEDIAN MS", "MAX MS");
    for one in measured {
        let [min, median, max] = [one.min(), one.median(), one.max()].map(milliseconds);
        // Writing to a text can't fail.
        let _ =
            writeln!(text, "{:<14}{:>10}{min:>10}{median:>10}{max:>10}", one.function, megabytes(one.bytes));
    }
    text
}

/// With two decimals.
fn megabytes(bytes: u64) -> String {
    hundredths(u128::from(bytes) / 10_000)
}

fn milliseconds(time: Duration) -> String {
    hundredths(time.as_micros() / 10)
}

fn hundredths(count: u128) -> String {
    format!("{}.{:02}", count / 100, count % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_line_a_function() {
        let one = Measured {
            function: "node-classes".to_owned(),
            bytes: 9_504_999,
            starts: vec![
                Duration::from_micros(4_870),
                Duration::from_micros(5_004),
                Duration::from_micros(61_230),
            ],
        };
        assert_eq!(
            table(&[one]),
            "FUNCTION              MB    MIN MS MEDIAN MS    MAX MS\n\
             node-classes        9.50      4.87      5.00     61.23\n"
        );
    }
}
