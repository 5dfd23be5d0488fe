//! The cost of the whole catalogue of us-east-1, by the table's own meter.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use jiff::SignedDuration;
use tenon_catalog::CatalogFunction;
use tenon_catalog::read::{CatalogAnswer, read};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_ec2::data::Ec2Data;
use tenon_ec2::port::InstanceTypeInfo;
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::{Operation, block_on};
use tenon_runtime::{Handler, WakeScope};
use tenon_state::heads::Watch;
use tenon_state::view::{ClusterView, Wants};
use tenon_table::items::packed::read_meta;
use tenon_table::items::{CatalogCache, read_parts, refresh};
use tenon_table::{Consistency, Table};

/// List prices in nano-dollars and the cost of a call, as in docs/bill.md. A GB-second is in millionths of a
/// nano-dollar.
const WRITE_UNIT: u64 = 625;
const READ_UNIT: u64 = 125;
const GB_SECOND_MILLIONTHS: u64 = 13_333_400_000;
/// An invocation of Lambda and of the scheduler, a message in and out of its queue, an event.
const OF_A_WAKE: u64 = 200 + 1000 + 2 * 400 + 1000;
const INVOCATION_MILLIS: u64 = 20;
const TABLE_CALL_MILLIS: u64 = 5;
const EC2_CALL_MILLIS: u64 = 150;
/// The function's memory is half a GB, in template.yaml.
const PARTS_OF_A_GB: u64 = 2;
const DAYS: u64 = 30;

/// 0.21 USD.
const SPOT_PRICES_MOST: u64 = 210_000_000;
/// A planner that starts cold.
const COLD_READ_UNITS_MOST: u64 = 60;
/// All types that are known: a few more than us-east-1 offers.
const TYPES: usize = 1395;

struct Running {
    world: FunctionWorld,
    catalog: CatalogFunction,
}

/// The usage of wakes.
#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    wakes: u64,
    write_units: u64,
    read_half_units: u64,
    table_calls: u64,
    ec2_calls: u64,
}

impl Taken {
    fn add(&mut self, other: Self) {
        self.wakes += other.wakes;
        self.write_units += other.write_units;
        self.read_half_units += other.read_half_units;
        self.table_calls += other.table_calls;
        self.ec2_calls += other.ec2_calls;
    }

    fn nanos(self) -> u64 {
        let millis = self.wakes * INVOCATION_MILLIS
            + self.table_calls * TABLE_CALL_MILLIS
            + self.ec2_calls * EC2_CALL_MILLIS;
        let lambda = millis * GB_SECOND_MILLIONTHS / 1000 / PARTS_OF_A_GB / 1_000_000;
        let table = self.write_units * WRITE_UNIT + self.read_half_units * READ_UNIT / 2;
        self.wakes * OF_A_WAKE + lambda + table
    }
}

impl Running {
    /// The whole region, refreshed once.
    fn new() -> Self {
        let config = WorldConfig { types: Vec::new(), zones: Vec::new(), ..WorldConfig::default() };
        let running =
            Self { world: FunctionWorld::new(&config).unwrap(), catalog: CatalogFunction::default() };
        running.wake(&[WakeCause::Sweep]);
        running
    }

    /// The same with every type that is known.
    fn with_all_types() -> Self {
        let running = Self::new();
        let data = Ec2Data::get().unwrap();
        let all = data.types.values().map(|info| InstanceTypeInfo::clone(info)).collect();
        let (all, _) = read(&CatalogAnswer::InstanceTypes(all), &data.limits).unwrap();
        let (table, region) = (&running.world.table, &running.world.installation.region);
        let meta = block_on(read_meta(table, region, Consistency::Strong)).unwrap();
        let refresh = refresh(region, &meta, &all, running.world.clock.now()).unwrap();
        for commit in refresh.commits() {
            block_on(table.commit(commit)).unwrap();
        }
        running
    }

    fn ec2_calls(&self) -> u64 {
        self.world.ec2.calls().values().map(|calls| calls.made).sum()
    }

    fn wake(&self, causes: &[WakeCause]) -> Taken {
        self.world.table.reset_meter();
        let ec2_before = self.ec2_calls();
        block_on(self.catalog.handle(&self.world, &WakeScope::Region, causes)).unwrap();
        let mut taken = Taken { wakes: 1, ec2_calls: self.ec2_calls() - ec2_before, ..Taken::default() };
        for used in self.world.table.meter().operations.values() {
            taken.write_units += used.write_units;
            taken.read_half_units += used.read_half_units;
            taken.table_calls += used.calls;
        }
        taken
    }

    fn spot_prices_after(&self, minutes: i64) -> Taken {
        self.world.clock.advance(SignedDuration::from_mins(minutes));
        self.wake(&[WakeCause::Refresh(CatalogPart::SpotPrices)])
    }
}

/// Every price of the twin is another one every ten minutes, which is more than EC2's do.
#[test]
fn spot_prices_every_ten_minutes_cost_at_most_twenty_one_cents_a_month() {
    let running = Running::new();
    let (mut first, mut other) = (Taken::default(), Taken::default());
    // Half a day, in which each type's item for people has one turn: one wake in an hour's middle, and the next
    // hour's first.
    for _ in 0..12 {
        other.add(running.spot_prices_after(50));
        // The other parts' own schedules, which aren't counted here.
        let others = [CatalogPart::InstanceTypes, CatalogPart::Offerings, CatalogPart::OnDemandPrices];
        running.wake(&others.map(WakeCause::Refresh));
        first.add(running.spot_prices_after(10));
    }
    // A day has twice as many of the first, and five times that of the others.
    let month = (2 * first.nanos() + 2 * 5 * other.nanos()) * DAYS;
    println!("{month} nano-dollars a month; of 12 hours: first wakes {first:?}, others {other:?}");
    assert!(month <= SPOT_PRICES_MOST, "{month} nano-dollars");
    assert!(other.write_units <= 12 * 20, "{other:?}");
}

#[test]
fn a_refresh_without_change_writes_next_to_nothing() {
    let running = Running::new();
    running.world.clock.advance(SignedDuration::from_secs(30));
    let taken = running.wake(&CatalogPart::ALL.map(WakeCause::Refresh));
    assert!(taken.write_units <= 2 * 4, "{taken:?}");
    let writes =
        |operation| running.world.table.meter().operations.get(&operation).map_or(0, |used| used.calls);
    assert_eq!((writes(Operation::UpdateItem), writes(Operation::PutItem)), (4, 0), "a date for each part");
}

#[test]
fn a_cold_planner_reads_the_whole_catalogue_for_sixty_units_and_a_warm_one_the_pointers() {
    let running = Running::new();
    let (table, region) = (&running.world.table, &running.world.installation.region);
    let cache = CatalogCache::new();
    for units_most in [COLD_READ_UNITS_MOST, 1] {
        table.reset_meter();
        let parts = block_on(read_parts(table, region, &CatalogPart::ALL, &cache)).unwrap();
        assert_eq!(parts.len(), 4);
        let half_units: u64 = table.meter().operations.values().map(|used| used.read_half_units).sum();
        assert!(half_units <= 2 * units_most, "{:?}", table.meter());
    }
    assert_eq!(table.meter().operations.keys().collect::<Vec<_>>(), [&Operation::GetItem]);
}

/// A planner reads a cluster's other items in one call with the pointers.
#[test]
fn a_cold_planner_has_the_whole_catalogue_by_two_reads() {
    let running = Running::with_all_types();
    let wants = Wants {
        function: FunctionName::Provisioner,
        parts: &CatalogPart::ALL,
        sets: &[],
        watch: Watch::PendingPods,
    };
    let (cluster, cache) = (ClusterName::parse("prod").unwrap(), CatalogCache::new());
    for reads in [2, 1] {
        running.world.table.reset_meter();
        let view = block_on(ClusterView::observe(&running.world, &cluster, wants, &cache)).unwrap();
        assert_eq!(view.parts[&CatalogPart::InstanceTypes].data.count(), TYPES);
        let used = &running.world.table.meter().operations;
        assert_eq!(used.keys().collect::<Vec<_>>(), [&Operation::BatchGetItem]);
        let used = used[&Operation::BatchGetItem];
        println!("{} reads, {} half units", used.calls, used.read_half_units);
        assert_eq!(used.calls, reads);
        assert!(used.read_half_units <= 2 * COLD_READ_UNITS_MOST, "{used:?}");
    }
}
