//! Parts of the catalogue, written to a table and read back.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_domain::catalog::PartData;
use tenon_domain::digest::Digest;
use tenon_domain::evidence::ErrorKind;
use tenon_domain::evidence::{CatalogPart, PartOrigin, RefreshFailure};
use tenon_domain::id::Region;
use tenon_domain::id::{InstanceType, Zone};
use tenon_domain::money::UsdPerHour;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_memory_table::{MemoryConfig, MemoryTable, Operation, block_on};
use tenon_table::content_commit;
use tenon_table::items::catalog::PartMeta;
use tenon_table::items::keys;
use tenon_table::items::packed::*;
use tenon_table::key::EXPIRES_AT;
use tenon_table::{Commit, CommitToken, Consistency, Key, Table, Value, Write};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn region() -> Region {
    Region::parse("us-east-1").unwrap()
}

fn table() -> MemoryTable {
    let config = MemoryConfig { staleness_max: SignedDuration::ZERO, ..MemoryConfig::strict(1) };
    MemoryTable::new(config, Arc::new(|| at(1_000)))
}

fn prices(nanos: u64) -> PartData {
    let name = InstanceType::parse("m5.large").unwrap();
    let zone = Zone::parse("us-east-1a").unwrap();
    let prices = BTreeMap::from([(zone, UsdPerHour::from_nanos(nanos))]);
    PartData::SpotPrices(BTreeMap::from([(name, prices)]))
}

/// Prices that don't compress: several items.
fn many_prices() -> PartData {
    let price = |n: u64| {
        let nanos = Digest::of_texts([n.to_string().as_str()]).bytes()[..8].try_into().unwrap();
        let name = InstanceType::parse(format!("m{n}.large")).unwrap();
        (name, UsdPerHour::from_nanos(u64::from_le_bytes(nanos)))
    };
    PartData::OnDemandPrices((0..60_000).map(price).collect())
}

fn refreshed(table: &MemoryTable, data: &PartData, now: i64) -> Refresh {
    let meta = block_on(read_meta(table, &region(), Consistency::Strong)).unwrap();
    refresh(&region(), &meta, data, at(now)).unwrap()
}

/// Refreshes, and returns the number of written pieces.
fn put(table: &MemoryTable, data: &PartData, now: i64) -> usize {
    let refresh = refreshed(table, data, now);
    for commit in refresh.commits() {
        block_on(table.commit(commit)).unwrap();
    }
    refresh.pieces.len()
}

fn meta_of(table: &MemoryTable, part: CatalogPart) -> PartMeta {
    let mut meta = block_on(read_meta(table, &region(), Consistency::Strong)).unwrap();
    meta.parts.remove(&part).unwrap()
}

fn read(table: &MemoryTable, part: CatalogPart, cache: &CatalogCache) -> Option<RefreshedPart> {
    block_on(read_parts(table, &region(), &[part], cache)).unwrap().remove(&part)
}

/// Overwrites a piece.
fn spoil(table: &MemoryTable, key: Key, data: &[u8]) {
    let mut item = table.peek(&key).unwrap();
    item.insert("data".to_owned(), Value::B(data.to_vec()));
    block_on(table.commit(&content_commit(vec![], vec![Write::Put { key, item }]))).unwrap();
}

#[test]
fn a_refresh_is_read_back_and_a_warm_reader_reads_the_pointer_only() {
    let (table, cache) = (table(), CatalogCache::new());
    assert!(read(&table, CatalogPart::SpotPrices, &cache).is_none());
    put(&table, &prices(5), 100);
    let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
    assert_eq!((&*part.data, part.generation, part.refreshed_at), (&prices(5), 1, at(100)));
    table.reset_meter();
    assert_eq!(read(&table, CatalogPart::SpotPrices, &cache).unwrap().generation, 1);
    let used: Vec<Operation> = table.meter().operations.keys().copied().collect();
    assert_eq!(used, [Operation::GetItem]);
}

#[test]
fn an_unchanged_refresh_writes_the_time_only() {
    let (table, cache) = (table(), CatalogCache::new());
    assert_eq!(put(&table, &prices(5), 100), 1);
    assert_eq!(put(&table, &prices(5), 200), 0);
    let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
    assert_eq!((part.generation, part.refreshed_at), (1, at(200)));
    let old = meta_of(&table, CatalogPart::SpotPrices);
    assert_eq!(put(&table, &prices(6), 300), 1);
    let part = read(&table, CatalogPart::SpotPrices, &cache).unwrap();
    assert_eq!((&*part.data, part.generation), (&prices(6), 2));
    // A reader of the old pointer still finds its content.
    let old = table.peek(&keys::packed(&region(), CatalogPart::SpotPrices, &old.digest, 0)).unwrap();
    assert_eq!(old[EXPIRES_AT], Value::number(100_u64 + 7 * 24 * 3_600));
}

#[test]
fn pieces_are_put_anew_when_half_of_their_life_is_over() {
    let (table, week) = (table(), 7 * 24 * 3_600);
    put(&table, &prices(5), 100);
    assert_eq!(put(&table, &prices(5), 100 + week / 2), 0);
    assert_eq!(put(&table, &prices(5), 101 + week / 2), 1);
    let part = meta_of(&table, CatalogPart::SpotPrices);
    assert_eq!((part.generation, part.packed_until), (1, Some(at(101 + week / 2 + week))));
}

#[test]
fn a_crash_before_the_pointer_changes_nothing() {
    let table = table();
    put(&table, &prices(5), 100);
    for commit in refreshed(&table, &prices(6), 200).pieces {
        block_on(table.commit(&commit)).unwrap();
    }
    assert_eq!(*read(&table, CatalogPart::SpotPrices, &CatalogCache::new()).unwrap().data, prices(5));
    assert_eq!(put(&table, &prices(6), 300), 1);
    assert_eq!(*read(&table, CatalogPart::SpotPrices, &CatalogCache::new()).unwrap().data, prices(6));
}

#[test]
fn spot_prices_of_a_large_region_fit_a_few_write_units() {
    let price = |name: u64, zone: u64| {
        let digest = Digest::of_texts([name.to_string().as_str(), zone.to_string().as_str()]);
        let drawn = u64::from_le_bytes(digest.bytes()[..8].try_into().unwrap());
        // Up to 10 USD in ten-thousandths.
        UsdPerHour::from_nanos((drawn % 100_000) * 100_000)
    };
    let zones = |name| {
        let zone = |(n, letter)| (Zone::parse(format!("us-east-1{letter}")).unwrap(), price(name, n));
        (0..).zip(["a", "b", "c", "d", "e", "f"]).map(zone).collect()
    };
    let name = |n: u64| InstanceType::parse(format!("m{}g.{}xlarge", n / 20, n % 20)).unwrap();
    let all = PartData::SpotPrices((0..1_395).map(|n| (name(n), zones(n))).collect());
    let refresh = refreshed(&table(), &all, 100);
    let [piece] = refresh.pieces.as_slice() else { panic!("{}", refresh.pieces.len()) };
    let [Write::Put { item, .. }] = piece.writes.as_slice() else { panic!() };
    assert!(item["data"].as_bytes().unwrap().len() <= 30 * 1024);
}

#[test]
fn a_large_part_is_cut_and_put_together() {
    let (table, cache) = (table(), CatalogCache::new());
    put(&table, &many_prices(), 100);
    assert!(meta_of(&table, CatalogPart::OnDemandPrices).items >= 2);
    assert_eq!(*read(&table, CatalogPart::OnDemandPrices, &cache).unwrap().data, many_prices());
}

#[test]
fn parts_are_read_by_one_call_and_one_that_is_broken_leaves_the_others() {
    const BROKEN: CatalogPart = CatalogPart::OnDemandPrices;
    let table = table();
    put(&table, &prices(5), 100);
    put(&table, &many_prices(), 100);
    table.reset_meter();
    let all = [BROKEN, CatalogPart::SpotPrices, CatalogPart::SpotPrices];
    assert_eq!(block_on(read_parts(&table, &region(), &all, &CatalogCache::new())).unwrap().len(), 2);
    assert_eq!(table.meter().operations[&Operation::BatchGetItem].calls, 1);
    let digest = meta_of(&table, BROKEN).digest;
    let piece = keys::packed(&region(), BROKEN, &digest, 1);
    spoil(&table, piece, &[1]);
    let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
    let cache = CatalogCache::new();
    let each = block_on(each_part(&table, &region(), &meta, &all, &cache)).unwrap();
    assert!(matches!(each[&BROKEN], Err(CatalogError::Corrupt { .. })), "{:?}", each[&BROKEN]);
    assert_eq!(*each[&CatalogPart::SpotPrices].as_ref().unwrap().data, prices(5));
}

#[test]
fn what_stands_in_for_an_answer_is_as_of_now_and_says_what_failed() {
    let table = table();
    let failure = RefreshFailure { kind: ErrorKind::Denied, message: "denied".to_owned() };
    let origin = PartOrigin::Shipped { as_of: "2026-11-01".parse().unwrap(), region: region() };
    for now in [100, 200] {
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        let prices = prices(5);
        let given = Substitute { data: &prices, origin: origin.clone() };
        let refresh = refresh_without_answer(&region(), &meta, given, &failure, at(now)).unwrap();
        for commit in refresh.commits() {
            block_on(table.commit(commit)).unwrap();
        }
        assert_eq!(refresh.after, meta_of(&table, CatalogPart::SpotPrices));
    }
    let part = meta_of(&table, CatalogPart::SpotPrices);
    assert_eq!((part.generation, part.refreshed_at, part.failing_since), (1, Some(at(200)), Some(at(100))));
    assert_eq!((part.origin, part.last_error_kind), (origin, Some(ErrorKind::Denied)));
    put(&table, &prices(6), 300);
    let part = meta_of(&table, CatalogPart::SpotPrices);
    assert_eq!((part.generation, part.origin, part.failing_since), (2, PartOrigin::Answered, None));
}

#[test]
fn of_two_refreshes_one_loses() {
    let table = table();
    let (first, second) = (refreshed(&table, &prices(5), 100), refreshed(&table, &prices(6), 100));
    for commit in first.pieces.iter().chain(&second.pieces).chain([&first.pointer]) {
        block_on(table.commit(commit)).unwrap();
    }
    let lost = block_on(table.commit(&second.pointer)).unwrap_err();
    assert!(matches!(lost, tenon_table::CommitError::LostRace { .. }), "{lost}");
    assert_eq!(*read(&table, CatalogPart::SpotPrices, &CatalogCache::new()).unwrap().data, prices(5));
}

#[test]
fn a_failed_refresh_keeps_the_content_and_says_since_when() {
    let table = table();
    put(&table, &prices(5), 100);
    for now in [200, 300] {
        let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
        let failure = RefreshFailure { kind: ErrorKind::Throttled, message: "throttled".to_owned() };
        let refresh = failed(&region(), &meta, CatalogPart::SpotPrices, &failure, at(now));
        block_on(table.commit(&refresh.pointer)).unwrap();
    }
    let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
    let part = &meta.parts[&CatalogPart::SpotPrices];
    assert_eq!((part.refreshed_at, part.failing_since), (Some(at(100)), Some(at(200))));
    assert_eq!(part.last_error.as_deref(), Some("throttled"));
    assert_eq!(part.last_error_kind, Some(ErrorKind::Throttled));
    put(&table, &prices(5), 400);
    let meta = block_on(read_meta(&table, &region(), Consistency::Strong)).unwrap();
    let part = &meta.parts[&CatalogPart::SpotPrices];
    assert_eq!((&part.last_error, part.last_error_kind), (&None, None));
}

#[test]
fn what_isnt_what_the_pointer_says_is_an_error() {
    let table = table();
    put(&table, &prices(5), 100);
    let digest = meta_of(&table, CatalogPart::SpotPrices).digest;
    let key = keys::packed(&region(), CatalogPart::SpotPrices, &digest, 0);
    spoil(&table, key.clone(), &[1, 2, 3]);
    let read = block_on(read_parts(&table, &region(), &[CatalogPart::SpotPrices], &CatalogCache::new()));
    assert!(matches!(read, Err(CatalogError::Corrupt { .. })), "{read:?}");
    let writes = vec![Write::Delete { key }];
    let gone = Commit { token: CommitToken::of_texts(["gone"]), conditions: vec![], writes };
    block_on(table.commit(&gone)).unwrap();
    let read = block_on(read_parts(&table, &region(), &[CatalogPart::SpotPrices], &CatalogCache::new()));
    assert!(matches!(read, Err(CatalogError::Missing { .. })), "{read:?}");
}
