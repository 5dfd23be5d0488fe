//! `tenon local --bill`: the AWS bill of days like the scenario's.
//!
//! Decides the counted period: everything after the scenario's first step, which builds its world. The region's part
//! is the cost of the same time without any cluster; the clusters' part is the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_region::bill::{Bill, BillCounts, CountedCalls, StandingCharges, usd};
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::{Hooks, Undisturbed};
use tenon_region::scenario::{Player, Progress, Scenario, ScenarioStep, SetupOptions, build};

use super::lines::{Ending, OutputLines};
use super::region::LocalRegion;
use crate::args::LocalArgs;
use crate::errors::{CommandOutcome, Failure, Problem};
use crate::output::{self, API_VERSION, Columns, OutputFormat};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The document.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BillDocument {
    api_version: &'static str,
    kind: &'static str,
    scenario: String,
    counted_seconds: i64,
    region: BillPart,
    clusters: BillPart,
}

/// The usage of the region or its clusters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BillPart {
    per_day: PerDay,
    usd_per_month: BTreeMap<&'static str, String>,
    total_usd_per_month: String,
    #[serde(skip)]
    bill: Bill,
}

/// Counts of a day.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PerDay {
    read_units: u64,
    write_units: u64,
    invocations: BTreeMap<&'static str, u64>,
    ec2_calls: BTreeMap<&'static str, u64>,
    messages: u64,
    events: u64,
    schedules: u64,
    rings: u64,
    stored_bytes: u64,
    logged_bytes: u64,
}

/// Plays the scenario, counts, and prints.
pub(super) fn run(mut world: LocalRegion, args: &LocalArgs) -> Result<CommandOutcome, Failure> {
    let name = world.name.clone();
    let wrong = |message: String| {
        Failure::from(Problem::new(message, "see docs/scenarios.md for the form").in_file(&name))
    };
    let (began, all) =
        count(&world.scenario, &mut world.region, &world.calls).map_err(&wrong)?.ok_or_else(|| {
            wrong("nothing to count: the scenario has only the step that sets it up".to_owned())
        })?;
    let region = without_clusters(&world.scenario, args, began, all.elapsed).map_err(&wrong)?;
    let clusters = all.beyond(&region);
    let charges = StandingCharges::of_region().map_err(|error| wrong(error.to_string()))?;
    let of_clusters =
        StandingCharges::of_clusters(clusters.clusters).map_err(|error| wrong(error.to_string()))?;
    let document = BillDocument {
        api_version: API_VERSION,
        kind: "Bill",
        scenario: name.clone(),
        counted_seconds: all.elapsed.as_secs(),
        region: BillPart::of(&region, &charges),
        clusters: BillPart::of(&clusters, &of_clusters),
    };
    let unsettled = world.region.unsettled().0;
    match args.output.format {
        OutputFormat::Table => {
            OutputLines::new(OutputFormat::Table, world.region.started()).end(
                &world.region,
                &unsettled,
                Ending::Stopped,
            )?;
            output::write(&table(&document))?
        }
        OutputFormat::Json | OutputFormat::Yaml => {
            output::write(&output::document_text(args.output.format, &document))?
        }
    };
    Ok(if unsettled.is_empty() { CommandOutcome::Done } else { CommandOutcome::No })
}

/// The beginning of the count, and the counts from there to the scenario's end.
fn count(
    scenario: &Scenario,
    region: &mut SimulatedRegion,
    calls: &CountedCalls,
) -> Result<Option<(SignedDuration, BillCounts)>, String> {
    let mut player = Player::new(scenario);
    let mut start = None;
    loop {
        let progress = player.advance(region, Timestamp::MAX)?;
        region.take_happenings();
        match progress {
            Progress::Step(1, _) => start = Some(BillCounts::of(region, calls)),
            Progress::Step(..) | Progress::At(_) => {}
            Progress::Done => break,
        }
    }
    Ok(start.map(|start| (start.elapsed, BillCounts::of(region, calls).since(&start))))
}

/// The region's own usage in the same time.
fn without_clusters(
    scenario: &Scenario,
    args: &LocalArgs,
    began: SignedDuration,
    counted: SignedDuration,
) -> Result<BillCounts, String> {
    let alone = Scenario {
        clusters: Vec::new(),
        steps: vec![ScenarioStep::Run(began), ScenarioStep::Run(counted)],
        ..scenario.clone()
    };
    let calls = Arc::new(CountedCalls::new(Arc::new(Undisturbed)));
    let hooks: Arc<dyn Hooks> = Arc::<CountedCalls>::clone(&calls);
    let options = SetupOptions { seed: args.seed, hooks, ..SetupOptions::default() };
    let mut region = build(&alone, &options).map_err(|error| error.to_string())?;
    Ok(count(&alone, &mut region, &calls)?.map(|(_, counts)| counts).unwrap_or_default())
}

impl BillPart {
    fn of(counts: &BillCounts, charges: &StandingCharges) -> Self {
        let seconds = counts.elapsed.as_secs().max(1);
        let daily = |count: u64| {
            let exact = i128::from(count) * i128::from(DAY.as_secs()) / i128::from(seconds);
            u64::try_from(exact).unwrap_or(u64::MAX)
        };
        let bill = counts.month(charges);
        let ec2 = counts.ec2_calls.iter();
        let invocations = counts.invocations.iter();
        Self {
            per_day: PerDay {
                read_units: daily(counts.read_half_units.div_ceil(2)),
                write_units: daily(counts.write_units),
                invocations: invocations.map(|(name, count)| (name.as_str(), daily(*count))).collect(),
                ec2_calls: ec2
                    .filter(|(_, count)| **count > 0)
                    .map(|(name, count)| {
                        (name.split_once('.').map_or(*name, |(_, call)| call), daily(*count))
                    })
                    .collect(),
                messages: daily(counts.messages),
                events: daily(counts.events),
                schedules: daily(counts.schedules),
                rings: daily(counts.rings),
                stored_bytes: counts.stored_bytes,
                logged_bytes: daily(counts.in_logs(&charges.logs)),
            },
            usd_per_month: bill.0.iter().map(|(what, nanos)| (*what, usd(*nanos))).collect(),
            total_usd_per_month: usd(bill.total()),
            bill,
        }
    }
}

fn table(document: &BillDocument) -> String {
    let BillDocument { region, clusters, .. } = document;
    let mut counts = Columns::new(&["A DAY", "REGION", "CLUSTERS"]).right(&[1, 2]);
    let mut row = |what: &str, of: &dyn Fn(&PerDay) -> u64| {
        counts.row([what.to_owned(), of(&region.per_day).to_string(), of(&clusters.per_day).to_string()]);
    };
    row("DynamoDB read units", &|day| day.read_units);
    row("DynamoDB write units", &|day| day.write_units);
    row("DynamoDB bytes stored", &|day| day.stored_bytes);
    row("invocations", &|day| day.invocations.values().sum());
    for name in region
        .per_day
        .invocations
        .keys()
        .chain(clusters.per_day.invocations.keys())
        .collect::<std::collections::BTreeSet<_>>()
    {
        row(&format!("  {name}"), &|day| day.invocations.get(name).copied().unwrap_or_default());
    }
    row("EC2 calls", &|day| day.ec2_calls.values().sum());
    for name in region
        .per_day
        .ec2_calls
        .keys()
        .chain(clusters.per_day.ec2_calls.keys())
        .collect::<std::collections::BTreeSet<_>>()
    {
        row(&format!("  {name}"), &|day| day.ec2_calls.get(name).copied().unwrap_or_default());
    }
    row("messages", &|day| day.messages);
    row("events of our own", &|day| day.events);
    row("schedules fired", &|day| day.schedules);
    row("agents rung", &|day| day.rings);
    row("bytes logged", &|day| day.logged_bytes);

    let mut month = Columns::new(&["USD A MONTH", "REGION", "CLUSTERS"]).right(&[1, 2]);
    for ((what, of_region), (_, of_clusters)) in region.bill.0.iter().zip(&clusters.bill.0) {
        month.row([(*what).to_owned(), usd(*of_region), usd(*of_clusters)]);
    }
    month.row(["total".to_owned(), region.total_usd_per_month.clone(), clusters.total_usd_per_month.clone()]);
    format!("\n{}\n{}", counts.text(), month.text())
}
