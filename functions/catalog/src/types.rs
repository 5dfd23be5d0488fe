//! `TYPE#`: the catalogue for people, as a default class sees it.
//!
//! Decides which items are written: changed ones. Spot prices change all the time, so they alone cause a write only
//! every twelve hours, each hour for another share of the types. So no pass writes all items at once, and a throttled
//! pass doesn't find all of them changed again. Twice a day is enough, because these writes are the largest cost of
//! spot prices. No function plans with these items, so they may lag, and the next wake writes the remaining
//! differences.
//!
//! Invariant: of several runs at once, one writes more than [`FEW`] items.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::{PartData, ZoneOfferings};
use tenon_domain::digest::Digest;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{InstanceType, Region};
use tenon_domain::money::Currency;
use tenon_domain::wake::FunctionName;
use tenon_table::items::{Generations, SeenRecord, TypeRecord, TypesClaim};

/// How often the next share of types may be written for spot prices alone.
pub const SHARE_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How many shares the types have: each has its turn every twelve hours.
const SHARES: i64 = 12;

/// The most items that are written without a claim: more than a share has, and few enough to be written twice.
pub const FEW: usize = 150;
/// How long a claim holds: a run of the function ends before (`Timeout` in template.yaml).
pub const CLAIMED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// The observations.
#[derive(Debug, Clone, Default)]
pub struct TypesInput {
    /// The time.
    pub now: Timestamp,
    /// Stored parts, as of their last refresh.
    pub parts: BTreeMap<CatalogPart, Arc<PartData>>,
    /// Their generations.
    pub generations: BTreeMap<CatalogPart, u64>,
    /// The currency of the region's prices.
    pub currency: Currency,
    /// The region of the on-demand prices, if it is another one.
    pub on_demand_of: Option<Region>,
    /// The last claim, read before the items.
    pub claimed: Option<TypesClaim>,
    /// The items as they are.
    pub written: BTreeMap<InstanceType, TypeRecord>,
}

/// Whether the run may write the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TypesRight {
    /// They are few.
    Few,
    /// It claims them first, if the last claim still has this revision; 0 without one.
    Claims {
        /// The last claim's revision.
        before: u64,
        /// Its own.
        claim: TypesClaim,
    },
    /// Another run writes them. The next wake writes what remains.
    Taken,
}

/// The writes, and their input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypesPlan {
    /// Whether it may be written.
    pub right: TypesRight,
    /// Items that changed.
    pub changed: Vec<TypeRecord>,
    /// Types that the region doesn't have any longer.
    pub gone: Vec<InstanceType>,
    /// The input of a complete pass, written after all other writes.
    pub seen: SeenRecord,
}

/// Whether a pass is due: something but spot prices is new, or spot prices are and another share has its turn.
#[must_use]
pub fn due(generations: &BTreeMap<CatalogPart, u64>, seen: Option<&SeenRecord>, now: Timestamp) -> bool {
    let now_at = |part: CatalogPart| generations.get(&part).copied().unwrap_or(0);
    if now_at(CatalogPart::InstanceTypes) == 0 || now_at(CatalogPart::Offerings) == 0 {
        return false;
    }
    let Some(seen) = seen else { return true };
    CatalogPart::ALL.into_iter().any(|part| {
        let before = seen.generations.catalog.get(&part).copied().unwrap_or(0);
        let changed = before != now_at(part);
        let rested = before == 0 || turn(now) != turn(seen.at);
        changed && (part != CatalogPart::SpotPrices || rested)
    })
}

/// Plans which items to write.
#[must_use]
pub fn plan(input: &TypesInput) -> TypesPlan {
    let records = records(input);
    let gone: Vec<InstanceType> =
        input.written.keys().filter(|name| !records.contains_key(*name)).cloned().collect();
    let differs = |record: &TypeRecord| {
        input.written.get(&record.name).is_none_or(|written| differs(written, record, input.now))
    };
    let changed: Vec<TypeRecord> = records.into_values().filter(differs).collect();
    TypesPlan {
        right: right(changed.len().saturating_add(gone.len()), input.claimed, input.now),
        changed,
        gone,
        seen: SeenRecord {
            function: FunctionName::Catalog,
            generations: Generations { catalog: input.generations.clone(), ..Generations::default() },
            deadline: None,
            wake_at: None,
            at: input.now,
            refusals: None,
            told_at: None,
            offerings: Vec::new(),
            offerings_at: None,
        },
    }
}

fn right(items: usize, claimed: Option<TypesClaim>, now: Timestamp) -> TypesRight {
    let before = claimed.map_or(0, |claim| claim.revision);
    let until = now.saturating_add(CLAIMED_FOR).unwrap_or(now);
    match claimed {
        _ if items <= FEW => TypesRight::Few,
        Some(claim) if now < claim.until => TypesRight::Taken,
        Some(_) | None => {
            TypesRight::Claims { before, claim: TypesClaim { revision: before.saturating_add(1), until } }
        }
    }
}

/// The number of the current turn.
fn turn(at: Timestamp) -> i64 {
    at.as_second().div_euclid(SHARE_EVERY.as_secs())
}

/// Whether an item must be written; a changed spot price counts only at its share's turn.
fn differs(written: &TypeRecord, record: &TypeRecord, now: Timestamp) -> bool {
    let [first, ..] = *Digest::of_texts([record.name.as_str()]).bytes();
    let has_turn = i64::from(first).rem_euclid(SHARES) == turn(now).rem_euclid(SHARES);
    if has_turn || !written.spot.keys().eq(record.spot.keys()) {
        return written != record;
    }
    *written != TypeRecord { spot: written.spot.clone(), ..record.clone() }
}

fn records(input: &TypesInput) -> BTreeMap<InstanceType, TypeRecord> {
    let (no_zones, no_prices, no_spot) = (ZoneOfferings::default(), BTreeMap::new(), BTreeMap::new());
    let (mut types, mut offerings, mut on_demand, mut spot) = (None, &no_zones, &no_prices, &no_spot);
    for data in input.parts.values() {
        match data.as_ref() {
            PartData::InstanceTypes(found) => types = Some(found),
            PartData::Offerings(found) => offerings = found,
            PartData::OnDemandPrices(found) => on_demand = found,
            PartData::SpotPrices(found) => spot = found,
        }
    }
    // Without the list of types, no type counts as removed.
    let types = types.into_iter().flatten();
    types
        .map(|(name, facts)| {
            let zones = offerings.offered.get(name).into_iter().flatten();
            let spot = spot.get(name).into_iter().flatten();
            let on_demand = on_demand.get(name).copied();
            let record = TypeRecord {
                zones: zones.map(ToString::to_string).collect(),
                currency: input.currency,
                on_demand,
                on_demand_of: on_demand.and(input.on_demand_of.clone()),
                spot: spot.map(|(zone, price)| (zone.to_string(), *price)).collect(),
                ..TypeRecord::described(facts)
            };
            (name.clone(), record)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use tenon_domain::catalog::describe::facts;
    use tenon_domain::money::UsdPerHour;
    use tenon_ec2::data::Ec2Data;

    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(hours * 3600).unwrap()
    }

    fn generations(types: u64, spot: u64) -> BTreeMap<CatalogPart, u64> {
        BTreeMap::from([
            (CatalogPart::InstanceTypes, types),
            (CatalogPart::Offerings, 1),
            (CatalogPart::SpotPrices, spot),
        ])
    }

    fn check(now: BTreeMap<CatalogPart, u64>, before: Option<(u64, u64)>, hours: i64, expected: bool) {
        let seen = before.map(|(types, spot)| SeenRecord {
            function: FunctionName::Catalog,
            generations: Generations { catalog: generations(types, spot), ..Generations::default() },
            deadline: None,
            wake_at: None,
            at: at(0),
            refusals: None,
            told_at: None,
            offerings: Vec::new(),
            offerings_at: None,
        });
        assert_eq!(due(&now, seen.as_ref(), at(hours)), expected, "{now:?} {before:?} {hours}");
    }

    #[test]
    fn a_pass_is_due_for_news_and_for_spot_prices_every_hour() {
        check(BTreeMap::new(), None, 0, false);
        check(generations(1, 0), None, 0, true);
        check(generations(1, 1), Some((1, 1)), 9, false);
        check(generations(2, 1), Some((1, 1)), 0, true);
        check(generations(1, 2), Some((1, 1)), 0, false);
        check(generations(1, 2), Some((1, 1)), 1, true);
        check(generations(1, 1), Some((1, 0)), 0, true);
    }

    #[test]
    fn spot_prices_alone_change_an_item_once_in_twelve_hours() {
        let record = |cents: u64, zone: &str| TypeRecord {
            name: InstanceType::parse("m5.large").unwrap(),
            labels: BTreeMap::new(),
            capacity: tenon_domain::resources::ResourceList::default(),
            zones: Vec::new(),
            currency: Currency::Usd,
            on_demand: None,
            on_demand_of: None,
            spot: BTreeMap::from([(zone.to_owned(), UsdPerHour::from_nanos(cents * 10_000_000))]),
        };
        let written = record(1, "us-east-1a");
        let turns = |now: &TypeRecord| (0..12).filter(|hour| differs(&written, now, at(*hour))).count();
        assert_eq!(turns(&record(1, "us-east-1a")), 0);
        assert_eq!(turns(&record(2, "us-east-1a")), 1);
        assert_eq!(turns(&record(1, "us-east-1b")), 12, "another zone is more than a price");
        assert_eq!(
            turns(&TypeRecord { zones: vec!["us-east-1a".to_owned()], ..record(1, "us-east-1a") }),
            12
        );
    }

    #[test]
    fn a_price_is_shown_with_its_currency_and_the_region_that_it_is_of() {
        let data = Ec2Data::get().unwrap();
        let name = InstanceType::parse("m5.large").unwrap();
        let facts = Arc::new(facts(&data.types[&name], &data.limits).unwrap());
        let prices = BTreeMap::from([(name.clone(), UsdPerHour::from_nanos(1))]);
        let parts = BTreeMap::from([
            (CatalogPart::InstanceTypes, PartData::InstanceTypes(BTreeMap::from([(name.clone(), facts)]))),
            (CatalogPart::OnDemandPrices, PartData::OnDemandPrices(prices)),
        ]);
        let of = Some(Region::parse("us-east-1").unwrap());
        let mut input = TypesInput {
            parts: parts.into_iter().map(|(part, data)| (part, Arc::new(data))).collect(),
            currency: Currency::Cny,
            on_demand_of: of.clone(),
            ..TypesInput::default()
        };
        let written = plan(&input).changed;
        assert_eq!((written[0].currency, &written[0].on_demand_of), (Currency::Cny, &of));
        input.written = written.into_iter().map(|record| (name.clone(), record)).collect();
        assert_eq!(plan(&input).changed, []);
        input.on_demand_of = None;
        assert_eq!(plan(&input).changed[0].on_demand_of, None, "it is the region's own now");
    }
}
