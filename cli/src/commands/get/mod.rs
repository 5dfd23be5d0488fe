//! `tenon get`: lists of the state table.
//!
//! Decides only the output: documents have all attributes, tables those that fit a line.

mod cell;
mod columns;

use serde_json::Value;
use tenon_domain::Timestamp;

use crate::args::GetArgs;
use crate::errors::{CommandOutcome, Failure};
use crate::output::{self, Columns, OutputFormat};
use crate::state::GetKind;
use crate::target;

/// Runs the command.
pub(crate) fn run(args: &GetArgs) -> Result<CommandOutcome, Failure> {
    let list = target::open(&args.target)?.items(args.kind, args.cluster.as_deref(), args.name.as_deref())?;
    match args.output.format {
        OutputFormat::Table if list.items.is_empty() => eprintln!("no {} found", args.kind.as_str()),
        OutputFormat::Table => {
            output::write(&table(args.kind, &list.items, list.at.parse().ok()))?;
        }
        format @ (OutputFormat::Json | OutputFormat::Yaml) => {
            output::write(&output::document_text(format, &list))?;
        }
    }
    Ok(if args.name.is_some() && list.items.is_empty() { CommandOutcome::No } else { CommandOutcome::Done })
}

/// Items as of a time; without one, times are printed in full.
fn table(kind: GetKind, items: &[Value], now: Option<Timestamp>) -> String {
    let columns = columns::of(kind);
    let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
    let mut table = Columns::new(&heads);
    for item in items {
        table.row(columns.iter().map(|(_, place)| place.cell(item, now)));
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: GetKind, items: &[Value], expected: &str) {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        assert_eq!(table(kind, items, Some(now)), expected);
    }

    #[test]
    fn marks_say_since_when_who_asks_and_when_next() {
        let mark = |what: &str, until: &str, next: &str| {
            json!({
                "what": what, "code": "InsufficientInstanceCapacity", "count": 3, "seen_by": "prod",
                "since": "2026-01-01T00:00:00Z", "asked_at": "2026-01-01T00:56:00Z", "until": until, "next_probe": next,
            })
        };
        let held = mark("offering#spot#use1-az1#m5.large", "2026-01-01T01:04:12Z", "2026-01-01T01:04:12Z");
        let due = mark("quota#spot#m5", "2026-01-01T00:59:30Z", "2026-01-01T00:59:30Z");
        let mut probed = mark("subnet#subnet-1", "2026-01-01T00:59:30Z", "2026-01-01T01:02:40Z");
        let lease = |until: &str| json!({"cluster": "shop", "launch": "l-9x2", "at": "x", "until": until});
        probed["probe"] = lease("2026-01-01T01:02:40Z");
        let mut over = due.clone();
        over["probe"] = lease("2026-01-01T00:59:30Z");
        check(
            GetKind::Unavailable,
            &[held, due, probed, over],
            "\
WHAT                             CODE                          COUNT  SINCE   ASKED   UNTIL     NEXT PROBE  PROBED BY   SEEN BY
offering#spot#use1-az1#m5.large  InsufficientInstanceCapacity  3      1h ago  4m ago  in 4m12s  in 4m12s    -           prod
quota#spot#m5                    InsufficientInstanceCapacity  3      1h ago  4m ago  30s ago   due         -           prod
subnet#subnet-1                  InsufficientInstanceCapacity  3      1h ago  4m ago  30s ago   in 2m40s    shop/l-9x2  prod
quota#spot#m5                    InsufficientInstanceCapacity  3      1h ago  4m ago  30s ago   due         -           prod
",
        );
    }

    #[test]
    fn parts_of_the_catalogue_say_how_old_they_are_what_fails_and_whose_they_are() {
        check(
            GetKind::Catalog,
            &[
                json!({"part": "instance-types", "generation": 2, "count": 1395, "refreshed_at": "2026-01-01T00:00:00Z"}),
                json!({"part": "on-demand-prices", "generation": 1, "count": 900, "refreshed_at": "2026-01-01T00:30:00Z",
                       "origin": "shipped", "as_of": "2025-11-21", "of_region": "us-east-1",
                       "failing_since": "2025-12-31T23:00:00Z", "last_error_kind": "Denied",
                       "last_error": "not authorised"}),
                json!({"part": "spot-prices", "generation": 7, "count": 5000, "refreshed_at": "2025-12-31T18:00:00Z",
                       "failing_since": "2025-12-31T18:10:00Z", "last_error_kind": "Throttled",
                       "last_error": "RequestLimitExceeded"}),
                json!({"part": "offerings", "generation": 0, "count": 0}),
            ],
            "\
PART              GENERATION  AGE        COUNT  FAILING SINCE  ERROR KIND  ORIGIN              AS OF       ERROR
instance-types    2           1h         1395   -              -           AWS                 -           -
on-demand-prices  1           30m        900    2h ago         Denied      shipped, us-east-1  2025-11-21  not authorised
spot-prices       7           7h, stale  5000   6h50m ago      Throttled   AWS                 -           RequestLimitExceeded
offerings         0           never      0      -              -           -                   -           -
",
        );
    }

    #[test]
    fn types_say_what_they_cost_in_each_zone() {
        check(
            GetKind::Types,
            &[
                json!({"name": "m7i.large", "capacity": {"cpu": "2", "memory": "8Gi"}, "zones": ["us-east-1a", "us-east-1b"],
                       "on_demand_usd_per_hour": "0.1008",
                       "spot_usd_per_hour": {"us-east-1a": "0.0401", "us-east-1b": "0.0398"}}),
                json!({"name": "mac2.metal", "zones": []}),
            ],
            "\
NAME        CPU  MEMORY  ZONES                  USD/H ON-DEMAND  USD/H SPOT
m7i.large   2    8Gi     us-east-1a,us-east-1b  0.1008           us-east-1a=0.0401,us-east-1b=0.0398
mac2.metal  -    -       -                      -                -
",
        );
    }
}
