//! Plays a burst while the five cheapest offerings are exhausted.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{ClusterName, ParseIdError};
use tenon_ec2::port::CreateFleetRequest;
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::{Hooks, Undisturbed};
use tenon_region::happening::Listeners;
use tenon_region::scenario::{self, SetupError, build};
use tenon_snapshot::KubeError;
use tenon_twin::CapacityPool;

use crate::case::{CLUSTER, Case, DEPLOYMENT};
use crate::measure::{Row, StillWaiting};
use crate::peer::PeersMemory;

/// Before the pods come, the region reads its catalogue and resolves its class.
const CALM_BEFORE: SignedDuration = SignedDuration::from_mins(3);
/// The time limit of the search for the cheapest offerings, and of the last pods.
const PATIENCE: SignedDuration = SignedDuration::from_mins(15);
/// How long before the pods the capacity is exhausted: half a period of the peer's rule. So it returns in the middle of
/// a period, the average case, and not exactly when the peer asks.
const BEFORE_PODS: SignedDuration = SignedDuration::from_secs(90);
/// The number of exhausted offerings, cheapest first.
const EXHAUSTED: usize = 5;

/// The rule for refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// Marks in the table, with probes.
    Ours,
    /// Three minutes in memory.
    Peers,
}

/// How much happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pods at the beginning.
    pub first: u32,
    /// Pods that come every minute after that.
    pub each_minute: u32,
    /// The minutes of the run; capacity is exhausted as long, and half-way every process restarts.
    pub minutes: u32,
}

impl Size {
    /// The runs of the document.
    pub const FULL: Self = Self { first: 500, each_minute: 50, minutes: 60 };
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The world can't be made.
    #[error("can't set up the benchmark's world")]
    Setup(#[from] SetupError),
    /// A name is malformed.
    #[error("malformed name in the benchmark")]
    Id(#[from] ParseIdError),
    /// The cluster refused an object.
    #[error("the cluster refused the benchmark's objects")]
    Object(#[from] KubeError),
    /// No launch shows the cheapest offerings.
    #[error("a burst of one pod launches nothing")]
    NothingLaunched,
    /// A run was aborted.
    #[error("a run of the benchmark panicked")]
    Panicked,
    /// Pods wait in the end.
    #[error(transparent)]
    Waiting(#[from] StillWaiting),
}

/// Plays a case under a rule, with these offerings exhausted.
pub(crate) fn play(
    case: Case,
    policy: Policy,
    (exhausted, size): (&[CapacityPool], Size),
) -> Result<Row, BenchError> {
    let memory = Arc::new(PeersMemory::default());
    let hooks: Arc<dyn Hooks> = match policy {
        Policy::Ours => Arc::new(Undisturbed),
        Policy::Peers => Arc::<PeersMemory>::clone(&memory),
    };
    let mut bench = Bench::new(case, hooks)?;
    memory.follow(bench.region.clock());
    bench.pass(CALM_BEFORE);
    bench.exhaust(exhausted.to_vec(), SignedDuration::from_mins(size.minutes.into()));
    bench.pass(BEFORE_PODS);
    let begun = bench.region.now();
    bench.scale(size.first)?;
    for minute in 1..=size.minutes {
        bench.pass(SignedDuration::from_mins(1));
        if minute == size.minutes / 2 {
            bench.region.restart_functions();
            memory.restart();
        }
        bench.scale(size.first.saturating_add(size.each_minute.saturating_mul(minute)))?;
    }
    bench.pass(PATIENCE);
    let first_until = after(begun, SignedDuration::from_secs(30));
    Ok(Row::of(&bench.region, &bench.cluster, first_until)?)
}

/// The cheapest offerings for the pods: the first overrides of a launch for one of them.
pub(crate) fn cheapest(case: Case) -> Result<Vec<CapacityPool>, BenchError> {
    let mut bench = Bench::new(case, Arc::new(Undisturbed))?;
    bench.pass(CALM_BEFORE);
    bench.scale(1)?;
    bench.pass(PATIENCE);
    let launches = bench.region.launches(&bench.cluster);
    let launch = launches.first().ok_or(BenchError::NothingLaunched)?;
    let request =
        CreateFleetRequest::from_stored(&launch.request).map_err(|_| BenchError::NothingLaunched)?;
    let capacity_type = request.capacity_type;
    let overrides = request.launch_templates.into_iter().flat_map(|template| template.overrides);
    let pools = overrides.filter_map(|from| {
        Some(CapacityPool { capacity_type, instance_type: from.instance_type, zone: from.zone? })
    });
    Ok(pools.take(EXHAUSTED).collect())
}

struct Bench {
    region: SimulatedRegion,
    cluster: ClusterName,
    exhausted: Vec<CapacityPool>,
    until: Timestamp,
}

impl Bench {
    fn new(case: Case, hooks: Arc<dyn Hooks>) -> Result<Self, BenchError> {
        let options = scenario::SetupOptions { hooks, ..scenario::SetupOptions::default() };
        let mut region = build(&case.scenario(), &options)?;
        region.set_listeners(Listeners::None);
        let until = region.now();
        Ok(Self { region, cluster: ClusterName::parse(CLUSTER)?, exhausted: Vec::new(), until })
    }

    /// Makes EC2's capacity unavailable for this time from now on.
    fn exhaust(&mut self, pools: Vec<CapacityPool>, time: SignedDuration) {
        for pool in &pools {
            self.region.twin().set_capacity(pool.clone(), Some(0));
        }
        self.exhausted = pools;
        self.until = after(self.region.now(), time);
    }

    fn pass(&mut self, time: SignedDuration) {
        let then = after(self.region.now(), time);
        if self.until <= then {
            self.region.run_until(self.until);
            for pool in std::mem::take(&mut self.exhausted) {
                self.region.twin().set_capacity(pool, None);
            }
        }
        self.region.run_until(then);
        self.region.take_happenings();
    }

    fn scale(&self, replicas: u32) -> Result<(), BenchError> {
        let Some(site) = self.region.site(&self.cluster) else { return Ok(()) };
        site.cluster().scale(DEPLOYMENT, |_| replicas.into())?;
        Ok(())
    }
}

fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
