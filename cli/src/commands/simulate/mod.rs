//! `tenon simulate`: the launches for manifests, and the reasons.
//!
//! Decides when the answer is "no", and when manifests are too incomplete for an answer. The planner is the
//! provisioner's own.

mod document;
mod explain;
mod namespaces;
mod nodes;
mod pools;
mod reservations;
mod table;
mod types;
mod world;

#[cfg(test)]
mod drawn_tests;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;
use tenon_domain::default_spread::DefaultConstraint;
use tenon_domain::manifest::ReadManifests;
use tenon_domain::money::UsdPerHour;
use tenon_domain::registry::{Allowances, GateName, Gates, PlanPolicies};
use tenon_domain::report::counted;
use tenon_planning::provision::{ProvisionInput, ProvisionPlan, ProvisionReport, plan};
use tenon_planning::solve::{self as bound, BoundOmission};

use crate::args::SimulateArgs;
use crate::catalogue::{PriceOrigin, RegionCatalog, SpotOrigin, TypesScope};
use crate::errors::{CommandOutcome, Failure, Problem};
use crate::input;
use crate::output::{self, OutputFormat};

use document::{Simulation, SimulationDifference, Timing};
use explain::Explanation;
use world::PodsAside;

/// The most time for the bound of a price. The solver takes a small part of it for most plans; the answer isn't worth more
/// waiting.
const LONGEST_BOUND: Duration = Duration::from_secs(1);

/// A plan, with its input.
pub(super) struct Simulated {
    pub(super) input: ProvisionInput,
    pub(super) plan: ProvisionPlan,
    pub(super) report: ProvisionReport,
    /// The pods that aren't planned for.
    pub(super) aside: PodsAside,
    /// `None` where no prices are known.
    pub(super) bound: Option<Result<UsdPerHour, BoundOmission>>,
    pub(super) origin: PriceOrigin,
    pub(super) spot_origin: SpotOrigin,
    pub(super) warnings: Vec<String>,
    pub(super) plan_micros: u64,
}

impl Simulated {
    fn outcome(&self) -> CommandOutcome {
        if self.report.unschedulable.is_empty() && self.report.waiting.is_empty() {
            CommandOutcome::Done
        } else {
            CommandOutcome::No
        }
    }
}

#[derive(Serialize)]
struct Compared<'p> {
    #[serde(flatten)]
    first: Simulation<'p>,
    compare: Simulation<'p>,
    difference: SimulationDifference,
}

/// What a simulation takes over from the cluster's settings and its stack.
#[derive(Debug, Clone, Default)]
struct SchedulingSettings {
    policies: PlanPolicies,
    default_spread: Vec<DefaultConstraint>,
    /// What its stack allows.
    allowed: Allowances,
    /// Its gates.
    gates: Gates,
}

/// Runs the command.
pub(crate) fn run(args: &SimulateArgs) -> Result<CommandOutcome, Failure> {
    let mut catalog = RegionCatalog::built_in(&args.region.resolve()?, TypesScope::ForNodes)?;
    if let Some(path) = &args.catalog {
        catalog = catalog.with_file(path, TypesScope::ForNodes)?;
    }
    let catalog = catalog.with_spot();
    let settings = SchedulingSettings {
        policies: args.policies.policies(),
        default_spread: args.default_spread.clone(),
        allowed: Allowances {
            families: args.allowed_families.iter().cloned().collect(),
            ..Allowances::default()
        },
        gates: Gates::default().with(GateName::ReservedCapacity, args.reserved_capacity),
    };
    let first = simulate(&args.filename, &catalog, &settings);
    let second = (!args.compare.is_empty()).then(|| simulate(&args.compare, &catalog, &settings));
    let (first, second) = both(first, second)?;
    let timing = |simulated: &Simulated| {
        args.timing.then(|| Timing { plan_micros: simulated.plan_micros, peak_bytes: peak_bytes() })
    };
    let mut document = Simulation::new(&first, timing(&first));
    document.explain = args.explain.as_ref().map(|name| Explanation::of(&first, name)).transpose()?;
    let other = second.as_ref().map(|second| Simulation::new(second, timing(second)));
    match (args.output.format, other) {
        (OutputFormat::Table, other) => output::write(&table::text(&document, other.as_ref()))?,
        (format @ (OutputFormat::Json | OutputFormat::Yaml), None) => {
            output::write_document(format, &document)?
        }
        (format @ (OutputFormat::Json | OutputFormat::Yaml), Some(compare)) => {
            let difference = SimulationDifference::between(&document, &compare);
            output::write_document(format, &Compared { first: document, compare, difference })?
        }
    };
    let outcomes = [Some(first.outcome()), second.as_ref().map(Simulated::outcome)];
    Ok(if outcomes.contains(&Some(CommandOutcome::No)) { CommandOutcome::No } else { CommandOutcome::Done })
}

/// Both simulations, or everything that is wrong with both.
fn both(
    first: Result<Simulated, Failure>,
    second: Option<Result<Simulated, Failure>>,
) -> Result<(Simulated, Option<Simulated>), Failure> {
    match (first, second.transpose()) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(Failure(mut problems)), Err(Failure(more))) => {
            // A file may be in both.
            let new: Vec<Problem> = more.into_iter().filter(|one| !problems.contains(one)).collect();
            problems.extend(new);
            Err(Failure(problems))
        }
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
    }
}

fn simulate(
    paths: &[PathBuf],
    catalog: &RegionCatalog,
    settings: &SchedulingSettings,
) -> Result<Simulated, Failure> {
    let read = input::read_manifests(paths)?;
    let has_pools = !read.manifests.node_pools.is_empty();
    let mut simulated = simulate_read(read, catalog, settings)?;
    // Of static pools alone, each pod is told.
    let input = &simulated.input;
    let has_none = input.pools.is_empty() && input.static_pools.is_empty();
    if has_none && !simulated.report.unschedulable.is_empty() {
        if has_pools {
            // Each of them has a warning of its own.
            let remedy = "add one without `spec.replicas` that isn't being deleted";
            simulated.warnings.push(format!("no NodePool is left to plan with: {remedy}"));
            return Ok(simulated);
        }
        return Err(no_node_pool(paths, simulated.report.unschedulable.len()));
    }
    Ok(simulated)
}

fn simulate_read(
    read: ReadManifests,
    catalog: &RegionCatalog,
    settings: &SchedulingSettings,
) -> Result<Simulated, Failure> {
    let mut warnings = input::warnings_of(&read);
    let (input, aside) = world::input(read.manifests, catalog, settings, &mut warnings)?;
    let started = Instant::now();
    let (plan, report) = plan(&input);
    let plan_micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let bound = match catalog.origin {
        PriceOrigin::Own => Some(bound::linear_within(&input, &plan, LONGEST_BOUND)),
        PriceOrigin::Borrowed => None,
    };
    let RegionCatalog { origin, spot_origin, .. } = *catalog;
    Ok(Simulated { input, plan, report, aside, bound, origin, spot_origin, warnings, plan_micros })
}

/// There is no NodePool: suggests one.
fn no_node_pool(paths: &[PathBuf], pods: usize) -> Failure {
    let files: Vec<String> = paths.iter().map(|path| input::name_of(path)).collect();
    let pods = counted(pods, "pod", "pods");
    let message = format!("no place for {pods}: no NodePool in `{}`", files.join("`, `"));
    Problem::new(message, input::NODE_POOL_EXAMPLE).into()
}

/// The peak memory of this process, if the system reports it.
fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
