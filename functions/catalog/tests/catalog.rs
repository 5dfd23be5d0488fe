//! The catalogue, as planners and people see it.
#![expect(clippy::indexing_slicing, reason = "helpers of integration tests aren't inside #[test] functions")]
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use jiff::SignedDuration;
use tenon_catalog::CatalogFunction;
use tenon_domain::catalog::PartData;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::InstanceType;
use tenon_domain::wake::WakeCause;
use tenon_ec2::Ec2Error;
use tenon_harness::{FunctionWorld, WorldConfig};
use tenon_memory_table::Throughput;
use tenon_memory_table::block_on;
use tenon_runtime::{Handler, HandlerError, WakeScope};
use tenon_table::content_commit;
use tenon_table::items::{self, CatalogCache, CatalogMeta, TypeRecord, TypesClaim, keys, read_parts};
use tenon_table::{Table, Write};
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen};

struct Running {
    world: FunctionWorld,
    catalog: CatalogFunction,
}

fn running(config: &WorldConfig) -> Running {
    Running { world: FunctionWorld::new(config).unwrap(), catalog: CatalogFunction::default() }
}

fn small() -> Running {
    running(&WorldConfig::default())
}

impl Running {
    fn wake(&self, causes: &[WakeCause]) -> Result<(), HandlerError> {
        block_on(self.catalog.handle(&self.world, &WakeScope::Region, causes))
    }

    fn meta(&self) -> CatalogMeta {
        let key = keys::catalog(&self.world.installation.region);
        items::from_item(&key, &self.world.table.peek(&key).unwrap()).unwrap()
    }

    fn generation(&self, part: CatalogPart) -> u64 {
        self.meta().parts[&part].generation
    }

    fn said(&self) -> Vec<String> {
        let events = self.world.signals.take_events().into_iter();
        events.map(|(kind, detail)| format!("{kind} {}", detail["part"].as_str().unwrap())).collect()
    }

    /// The sentences of the journal about parts.
    fn recorded(&self) -> Vec<String> {
        let records = self.world.table.dump().filter(|(key, _)| key.pk.starts_with("JOURNAL#"));
        let records = records.filter_map(|(key, item)| items::journal_from_item(&key, &item).ok());
        records.filter(|record| record.by == "catalog").map(|record| record.message).collect()
    }

    fn types(&self) -> usize {
        self.world.table.dump().filter(|(key, _)| key.sk.starts_with(keys::TYPE)).count()
    }

    fn throttle(&self, call: Call, when: FaultWhen) {
        let effect = FaultEffect::Refused(Ec2Error::Throttled { action: call.as_str().to_owned() });
        self.world.ec2.inject(Fault { call, when, effect });
    }
}

/// A pointer's content was deleted: the next answer repairs it, even if it is unchanged.
#[test]
fn a_lost_piece_is_written_again_by_an_unchanged_answer() {
    let mut running = small();
    running.wake(&[WakeCause::Sweep]).unwrap();
    let part = CatalogPart::OnDemandPrices;
    let (key, _) =
        running.world.table.dump().find(|(key, _)| key.sk.contains("PACKED#on-demand-prices")).unwrap();
    let gone = content_commit(Vec::new(), vec![Write::Delete { key }]);
    block_on(running.world.table.commit(&gone)).unwrap();
    let parts = |running: &Running| {
        let region = &running.world.installation.region;
        block_on(read_parts(&running.world.table, region, &[part], &CatalogCache::new()))
            .map(|parts| parts.len())
    };
    assert!(parts(&running).is_err());
    running.catalog = CatalogFunction::default();
    running.wake(&[WakeCause::Refresh(part)]).unwrap();
    assert_eq!((parts(&running).unwrap(), running.generation(part)), (1, 1));
}

/// An unreadable price list doesn't affect the types.
#[test]
fn types_are_told_without_the_prices_that_are_lost() {
    let mut running = small();
    running.wake(&[WakeCause::Sweep]).unwrap();
    let told = running.types();
    let lost: Vec<_> = running
        .world
        .table
        .dump()
        .filter(|(key, _)| {
            // An interrupted pass doesn't count as seen.
            ["PACKED#spot-prices", "SEEN#"].iter().any(|part| key.sk.contains(part))
                || key.sk.starts_with(keys::TYPE)
        })
        .map(|(key, _)| Write::Delete { key })
        .collect();
    for write in lost {
        block_on(running.world.table.commit(&content_commit(Vec::new(), vec![write]))).unwrap();
    }
    running.world.clock.advance(SignedDuration::from_hours(2));
    running.world.ec2.deny(Call::DescribeSpotPriceHistory, "no");
    running.catalog = CatalogFunction::default();
    running.wake(&[WakeCause::Sweep]).unwrap();
    assert!(told > 0);
    assert_eq!(running.types(), told);
}

#[test]
fn the_first_wake_of_any_kind_brings_the_whole_catalogue() {
    let running = small();
    running.wake(&[WakeCause::Sweep]).unwrap();
    assert_eq!(
        running.said(),
        [
            "Catalog Refreshed instance-types",
            "Catalog Refreshed offerings",
            "Catalog Refreshed on-demand-prices",
            "Catalog Refreshed spot-prices"
        ]
    );
    let region = &running.world.installation.region;
    let cache = CatalogCache::new();
    let parts = block_on(read_parts(&running.world.table, region, &CatalogPart::ALL, &cache)).unwrap();
    assert_eq!(parts.len(), 4);
    let PartData::Offerings(offerings) = parts[&CatalogPart::Offerings].data.as_ref() else { panic!() };
    let zones: Vec<_> = offerings.zones.iter().map(|(name, id)| format!("{name}={id}")).collect();
    assert_eq!(zones, ["us-east-1a=use1-az2", "us-east-1b=use1-az4"]);
    let key = keys::instance_type(region, &InstanceType::parse("m5.large").unwrap());
    let record: TypeRecord = items::from_item(&key, &running.world.table.peek(&key).unwrap()).unwrap();
    assert_eq!(record.zones, ["us-east-1a", "us-east-1b"]);
    assert_eq!(record.on_demand.unwrap().to_string(), "0.096");
    assert_eq!(record.spot.len(), 2);
    assert_eq!(record.labels["kubernetes.io/arch"], "amd64");
}

#[test]
fn an_unchanged_part_is_only_dated() {
    let running = small();
    running.wake(&[WakeCause::Sweep]).unwrap();
    running.said();
    let before = running.world.table.dump().count();
    running.world.clock.advance(SignedDuration::from_secs(30));
    running
        .wake(&[WakeCause::Refresh(CatalogPart::InstanceTypes), WakeCause::Refresh(CatalogPart::SpotPrices)])
        .unwrap();
    assert!(running.said().is_empty());
    assert_eq!(running.generation(CatalogPart::InstanceTypes), 1);
    assert_eq!(
        running.meta().parts[&CatalogPart::InstanceTypes].refreshed_at,
        Some(running.world.clock.now())
    );
    assert_eq!(running.world.table.dump().count(), before);
}

#[test]
fn several_refreshes_in_one_batch_are_one_pass() {
    let running = small();
    running
        .wake(&[WakeCause::Refresh(CatalogPart::SpotPrices), WakeCause::Refresh(CatalogPart::SpotPrices)])
        .unwrap();
    assert_eq!(running.world.ec2.calls()[&Call::DescribeSpotPriceHistory].made, 1);
}

#[test]
fn new_spot_prices_are_a_new_generation_and_reach_people_every_twelve_hours() {
    let running = small();
    running.wake(&[WakeCause::Sweep]).unwrap();
    running.said();
    let key =
        keys::instance_type(&running.world.installation.region, &InstanceType::parse("m5.large").unwrap());
    let first = running.world.table.peek(&key).unwrap();
    running.world.clock.advance(SignedDuration::from_mins(10));
    running.wake(&[WakeCause::Refresh(CatalogPart::SpotPrices)]).unwrap();
    assert_eq!(running.said(), ["Catalog Refreshed spot-prices"]);
    assert_eq!(running.world.table.peek(&key).unwrap(), first);
    for _ in 0..12 {
        running.world.clock.advance(SignedDuration::from_hours(1));
        running.wake(&[WakeCause::Refresh(CatalogPart::SpotPrices)]).unwrap();
    }
    assert_ne!(running.world.table.peek(&key).unwrap(), first);
}

#[test]
fn a_torn_answer_keeps_the_old_generation_with_the_error_and_recovers() {
    let running = running(&WorldConfig { types: Vec::new(), ..WorldConfig::default() });
    running.wake(&[WakeCause::Sweep]).unwrap();
    running.said();
    running.world.clock.advance(SignedDuration::from_hours(6));
    // The third page of the list breaks off.
    running.throttle(Call::DescribeInstanceTypes, FaultWhen::Nth(3));
    running.wake(&[WakeCause::Refresh(CatalogPart::InstanceTypes)]).unwrap();
    let part = running.meta().parts[&CatalogPart::InstanceTypes].clone();
    assert_eq!(part.generation, 1);
    assert_eq!(part.last_error.as_deref(), Some("`DescribeInstanceTypes` was throttled by EC2"));
    assert_eq!(part.failing_since, Some(running.world.clock.now()));
    running.wake(&[WakeCause::Refresh(CatalogPart::SpotPrices)]).unwrap();
    let part = running.meta().parts[&CatalogPart::InstanceTypes].clone();
    assert_eq!((part.generation, part.last_error, part.failing_since), (1, None, None));
}

#[test]
fn a_part_beyond_its_limit_is_said_to_be_stale() {
    let running = small();
    running.wake(&[WakeCause::Sweep]).unwrap();
    running.said();
    running.throttle(Call::DescribeSpotPriceHistory, FaultWhen::Next(3));
    for (hours, expected) in [(1, vec![]), (5, vec![]), (1, vec!["Catalog Stale spot-prices".to_owned()])] {
        running.world.clock.advance(SignedDuration::from_hours(hours));
        running.wake(&[WakeCause::Refresh(CatalogPart::SpotPrices)]).unwrap();
        let said: Vec<_> = running.said().into_iter().filter(|said| said.contains("spot")).collect();
        assert_eq!(said, expected, "{hours}");
        assert_eq!(running.recorded().len(), said.len(), "{:?}", running.recorded());
    }
    assert!(running.recorded()[0].starts_with("not refreshing "), "{:?}", running.recorded());
    running.wake(&[WakeCause::Refresh(CatalogPart::SpotPrices)]).unwrap();
    assert_eq!(running.said(), ["Catalog Refreshed spot-prices"]);
}

#[test]
fn the_whole_region_converges_under_a_bounded_table() {
    let running = running(&WorldConfig {
        types: Vec::new(),
        zones: Vec::new(),
        throughput: Throughput::Enforced,
        ..WorldConfig::default()
    });
    for _ in 0..40 {
        // A throttled message comes back.
        let _throttled = running.wake(&[WakeCause::Sweep]);
        running.world.clock.advance(SignedDuration::from_secs(10));
    }
    let meta = running.meta();
    assert!(meta.parts.values().all(|part| part.generation > 0 && part.last_error.is_none()), "{meta:?}");
    assert_eq!(usize::try_from(meta.parts[&CatalogPart::InstanceTypes].count), Ok(running.types()));
    running.world.table.reset_meter();
    running.wake(&[WakeCause::Sweep]).unwrap();
    let writes: u64 = running.world.table.meter().operations.values().map(|usage| usage.write_units).sum();
    assert_eq!(writes, 0, "an unchanged world writes nothing");
}

/// The first schedules after an installation invoke several runs at once.
#[test]
fn of_several_runs_at_once_one_writes_the_types() {
    let running = running(&WorldConfig { types: Vec::new(), ..WorldConfig::default() });
    let now = running.world.clock.now();
    let key = keys::types_claim(&running.world.installation.region);
    let other = TypesClaim { revision: 7, until: now + SignedDuration::from_secs(60) };
    let write = items::set(key.clone(), &other);
    block_on(running.world.table.commit(&content_commit(Vec::new(), vec![write]))).unwrap();
    running.wake(&[WakeCause::Sweep]).unwrap();
    assert_eq!(running.types(), 0, "another run writes them");
    // It died: its claim ends, and the next wake writes what it left.
    running.world.clock.advance(SignedDuration::from_secs(60));
    running.wake(&[WakeCause::Sweep]).unwrap();
    let all = usize::try_from(running.meta().parts[&CatalogPart::InstanceTypes].count).unwrap();
    assert_eq!(running.types(), all);
    let ended: TypesClaim = items::from_item(&key, &running.world.table.peek(&key).unwrap()).unwrap();
    assert_eq!((ended.revision, ended.until), (9, running.world.clock.now()));
}
