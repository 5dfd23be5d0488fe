//! The changes of the catalogue's parts in one pass.
//!
//! Decides which parts to query, what to take of the answers, which parts are stale, and when the release's price
//! list stands in for AWS's. Packing finds out whether content is new. It doesn't decide the use of a stale part.
//!
//! Invariants: a part without a complete answer stays unchanged, with the error and its beginning; AWS's own answer
//! is never replaced by a stand-in while it may still be used.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::PartData;
use tenon_domain::catalog::describe::Limits;
use tenon_domain::catalog::facts::UsageClass;
use tenon_domain::evidence::{CatalogPart, Date, ErrorKind, PartOrigin, RefreshFailure};
use tenon_domain::id::{InstanceType, Region, Zone};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_domain::report::{Finding, Report};
use tenon_ec2::data::{AS_OF, Ec2Data};
use tenon_table::items::{CatalogMeta, PartMeta, RefreshedParts};

use crate::read::{CatalogAnswer, LeftOut, read};
use crate::shrink;

/// How late a part's own schedule may be before another wake looks after the part.
pub const SCHEDULE_SLACK: SignedDuration = SignedDuration::from_mins(5);

/// How long the first refresh of a part must fail before the part is announced as missing: the next wake, ten minutes
/// later, has failed too.
pub const MISSING_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// The observations.
#[derive(Debug, Clone)]
pub struct CatalogInput<'a> {
    /// The time.
    pub now: Timestamp,
    /// The stored pointers.
    pub meta: CatalogMeta,
    /// The stored content of the queried parts, and of the parts that prices are compared with, if it exists and is
    /// readable.
    pub before: RefreshedParts,
    /// Unreadable parts among these.
    pub broken: BTreeSet<CatalogPart>,
    /// EC2's answer or its failure, for each queried part.
    pub answers: BTreeMap<CatalogPart, Result<CatalogAnswer, RefreshFailure>>,
    /// The limits that EC2 doesn't serve.
    pub limits: &'a Limits,
    /// The release's price list, if it has one for the region.
    pub shipped: Option<Shipped<'a>>,
}

/// On-demand prices that come with the release.
#[derive(Debug, Clone, Copy)]
pub struct Shipped<'a> {
    /// By type.
    pub prices: &'a BTreeMap<InstanceType, UsdPerHour>,
    /// The day of which they are.
    pub as_of: Date,
    /// The region of which they are.
    pub region: &'a Region,
}

impl<'a> Shipped<'a> {
    /// The release's list for a region. Another region's prices keep their order, but they must be in the currency of
    /// the region's spot prices, with which they are compared.
    #[must_use]
    pub fn of(data: &'a Ec2Data, region: &Region) -> Option<Self> {
        let own = &data.on_demand_region;
        let comparable = Currency::of_region(own) == Currency::of_region(region);
        comparable.then_some(Self { prices: &data.on_demand, as_of: AS_OF, region: own })
    }
}

/// The writes.
#[derive(Debug, Clone, Default)]
pub struct CatalogPlan {
    /// The time.
    pub now: Timestamp,
    /// Parts as they are now.
    pub refreshed: BTreeMap<CatalogPart, PartData>,
    /// Parts that couldn't be read, with the error.
    pub failed: BTreeMap<CatalogPart, RefreshFailure>,
    /// Stand-ins among these parts.
    pub stand_ins: BTreeMap<CatalogPart, StandIn>,
    /// Unreadable parts, whose content is written even if it is unchanged.
    pub broken: BTreeSet<CatalogPart>,
}

/// Content that AWS didn't answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    /// The content.
    pub data: PartData,
    /// Where it is from.
    pub origin: PartOrigin,
}

/// The announcements on the bus: entries left out, stale parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Announcements {
    /// Entries that were left out, by part.
    pub left_out: BTreeMap<CatalogPart, Vec<LeftOut>>,
    /// Types that are offered without a price, by the part that should have it.
    pub unpriced: BTreeMap<CatalogPart, BTreeSet<InstanceType>>,
    /// Parts that a person must look at.
    pub stale: Vec<Stale>,
}

impl Announcements {
    /// Adds the findings to a report. Types without a price are usable, so only the bus announces them.
    pub fn tell(&self, to: &mut Report) {
        let Self { left_out, unpriced: _, stale } = self;
        let of = |part: CatalogPart| Subject { kind: SubjectKind::Catalog, name: part.to_string() };
        for (part, left_out) in left_out.iter().filter(|(_, left_out)| !left_out.is_empty()) {
            let first = left_out.first().map_or("", |first| first.instance_type.as_str());
            let reason = left_out.first().map_or("", |first| first.reason.as_str());
            let why =
                format!("`{first}` ({reason}), {} in all; no node is planned with them", left_out.len());
            let found = Finding::refused(of(*part), "LeftOut", "leaving instance types out of {}", why);
            to.tell(found.condition(left_out.len().to_string()));
        }
        for stale in stale {
            let (kind, since) = (stale.failure.kind.as_str(), stale.failing_since);
            let why = format!("{} (since {since})", stale.failure.message);
            to.tell(
                Finding::refused(of(stale.part), kind, "not refreshing {}", why).condition(since.to_string()),
            );
        }
    }
}

/// A part beyond its limit, or one whose refresh needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The part.
    pub part: CatalogPart,
    /// Its age; none if AWS never answered with it.
    pub age: Option<SignedDuration>,
    /// The error of the last query.
    pub failure: RefreshFailure,
    /// Since when looks fail.
    pub failing_since: Timestamp,
    /// The origin of its stand-in, if there is one.
    pub stand_in: Option<PartOrigin>,
}

/// The due parts: scheduled ones, those without a successful last refresh, and overdue ones, whose schedule must have
/// been lost.
#[must_use]
pub fn due(meta: &CatalogMeta, asked: &BTreeSet<CatalogPart>, now: Timestamp) -> BTreeSet<CatalogPart> {
    let overdue = |part: CatalogPart, known: &PartMeta| {
        let at = known.refreshed_at;
        at.is_none_or(|at| now.duration_since(at) >= part.refresh_every() + SCHEDULE_SLACK)
    };
    let due = |part: &CatalogPart| {
        let known = meta.parts.get(part);
        asked.contains(part) || known.is_none_or(|known| failed_and_may_not(known) || overdue(*part, known))
    };
    CatalogPart::ALL.into_iter().filter(due).collect()
}

/// The due parts, with those last that failed last time: their queries may hang again, and must not delay the others.
#[must_use]
pub fn in_turn(meta: &CatalogMeta, asked: &BTreeSet<CatalogPart>, now: Timestamp) -> Vec<CatalogPart> {
    let mut due: Vec<CatalogPart> = due(meta, asked, now).into_iter().collect();
    due.sort_by_key(|part| meta.parts.get(part).is_some_and(|known| known.last_error.is_some()));
    due
}

/// Whether the last refresh failed, and the next one may succeed. Without an API, the part's own schedule is soon
/// enough.
fn failed_and_may_not(known: &PartMeta) -> bool {
    known.last_error.is_some() && known.last_error_kind != Some(ErrorKind::NoApi)
}

/// Plans the writes.
pub fn plan(input: &CatalogInput<'_>) -> (CatalogPlan, Announcements) {
    let mut plan = CatalogPlan { now: input.now, broken: input.broken.clone(), ..CatalogPlan::default() };
    let mut report = Announcements::default();
    for (part, answer) in &input.answers {
        let taken = match answer {
            Ok(answer) => take(answer, *part, input),
            Err(failure) => Err(failure.clone()),
        };
        match taken {
            Ok((data, left_out)) => {
                plan.refreshed.insert(*part, data);
                if !left_out.is_empty() {
                    report.left_out.insert(*part, left_out);
                }
            }
            Err(failure) => {
                let stand_in = stand_in(*part, &failure, input);
                report.stale.extend(stale(*part, &failure, stand_in.as_ref(), input));
                plan.stand_ins.extend(stand_in.map(|stand_in| (*part, stand_in)));
                plan.failed.insert(*part, failure);
            }
        }
    }
    report.unpriced = unpriced(&plan, &input.before);
    (plan, report)
}

/// The stand-in for a part that AWS won't serve until a person acts; `None` while AWS's own answer may still be used.
fn stand_in(part: CatalogPart, failure: &RefreshFailure, input: &CatalogInput<'_>) -> Option<StandIn> {
    match part {
        CatalogPart::InstanceTypes | CatalogPart::Offerings | CatalogPart::SpotPrices => return None,
        CatalogPart::OnDemandPrices => {}
    }
    let usable = answered_at(input.meta.parts.get(&part))
        .is_some_and(|at| input.now.duration_since(at) <= part.stale_after());
    let shipped = input.shipped.filter(|_| failure.kind.is_permanent() && !usable)?;
    Some(StandIn {
        data: PartData::OnDemandPrices(shipped.prices.clone()),
        origin: PartOrigin::Shipped { as_of: shipped.as_of, region: shipped.region.clone() },
    })
}

/// When AWS last answered with the part; `None` if the content is a stand-in.
fn answered_at(known: Option<&PartMeta>) -> Option<Timestamp> {
    let known = known.filter(|known| known.origin == PartOrigin::Answered)?;
    known.refreshed_at
}

/// Usable types that are offered without a price, for each new price list.
fn unpriced(plan: &CatalogPlan, before: &RefreshedParts) -> BTreeMap<CatalogPart, BTreeSet<InstanceType>> {
    let stand_ins = plan.stand_ins.iter().map(|(part, stand_in)| (*part, &stand_in.data));
    let new: BTreeMap<CatalogPart, &PartData> =
        plan.refreshed.iter().map(|(part, data)| (*part, data)).chain(stand_ins).collect();
    let now = |part| new.get(&part).copied().or_else(|| before.get(&part).map(|known| known.data.as_ref()));
    let (Some(PartData::InstanceTypes(types)), Some(PartData::Offerings(offerings))) =
        (now(CatalogPart::InstanceTypes), now(CatalogPart::Offerings))
    else {
        return BTreeMap::new();
    };
    let lacking = |class: &UsageClass, priced: &dyn Fn(&InstanceType, &Zone) -> bool| {
        let bought = |name: &InstanceType| {
            types.get(name).is_some_and(|facts| facts.is_for_nodes() && facts.usage_classes.contains(class))
        };
        let offered = offerings.offered.iter().filter(|(name, _)| bought(name));
        offered
            .filter(|(name, zones)| zones.iter().any(|zone| !priced(name, zone)))
            .map(|(name, _)| name.clone())
            .collect()
    };
    let of = |data: &PartData| match data {
        PartData::OnDemandPrices(prices) => {
            Some(lacking(&UsageClass::OnDemand, &|name, _| prices.contains_key(name)))
        }
        PartData::SpotPrices(prices) => Some(lacking(&UsageClass::Spot, &|name, zone| {
            prices.get(name).is_some_and(|zones| zones.contains_key(zone))
        })),
        PartData::InstanceTypes(_) | PartData::Offerings(_) => None,
    };
    new.into_iter().filter_map(|(part, data)| Some((part, of(data)?))).collect()
}

/// The usable content of an answer, and the entries left out.
fn take(
    answer: &CatalogAnswer,
    part: CatalogPart,
    input: &CatalogInput<'_>,
) -> Result<(PartData, Vec<LeftOut>), RefreshFailure> {
    let failed = |kind, message| RefreshFailure { kind, message };
    // A stand-in says nothing about the length of AWS's list.
    let before = input.before.get(&part).filter(|_| answered_at(input.meta.parts.get(&part)).is_some());
    let (data, left_out) =
        read(answer, input.limits).map_err(|error| failed(ErrorKind::Empty, error.to_string()))?;
    let last_error = input.meta.parts.get(&part).and_then(|known| known.last_error_kind);
    shrink::check(&data, before, last_error, input.now)
        .map_err(|error| failed(ErrorKind::Shrunk, error.to_string()))?;
    Ok((data, left_out))
}

/// The announcement of a stale part: at once if a retry can't help, otherwise once the part is beyond its limit. For
/// a part with a stand-in, it is sent when the stand-in begins, and when its reason changes.
fn stale(
    part: CatalogPart,
    failure: &RefreshFailure,
    stand_in: Option<&StandIn>,
    input: &CatalogInput<'_>,
) -> Option<Stale> {
    let known = input.meta.parts.get(&part);
    let failing_since = known.and_then(|known| known.failing_since).unwrap_or(input.now);
    let age = answered_at(known).map(|at| input.now.duration_since(at));
    let beyond_limit = match known.and_then(|known| known.refreshed_at) {
        Some(at) => input.now.duration_since(at) > part.stale_after(),
        None => input.now.duration_since(failing_since) >= MISSING_AFTER,
    };
    let told = match stand_in {
        Some(stand_in) => known.is_none_or(|known| {
            known.origin != stand_in.origin || known.last_error_kind != Some(failure.kind)
        }),
        None => failure.kind.is_permanent() || beyond_limit,
    };
    let stand_in = stand_in.map(|stand_in| stand_in.origin.clone());
    told.then(|| Stale { part, age, failure: failure.clone(), failing_since, stand_in })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn meta(refreshed: &[(CatalogPart, i64)]) -> CatalogMeta {
        let part = |(part, second): &(CatalogPart, i64)| {
            (*part, PartMeta { generation: 1, refreshed_at: Some(at(*second)), ..PartMeta::default() })
        };
        CatalogMeta { revision: 1, parts: refreshed.iter().map(part).collect() }
    }

    #[test]
    fn every_wake_looks_after_what_never_arrived_failed_or_is_overdue() {
        use CatalogPart::{InstanceTypes, Offerings, OnDemandPrices, SpotPrices};
        let all = |second| meta(&CatalogPart::ALL.map(|part| (part, second)));
        let check = |meta: &CatalogMeta, asked: &[CatalogPart], now: i64, expected: &[CatalogPart]| {
            let found = due(meta, &asked.iter().copied().collect(), at(now));
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
        };
        check(&CatalogMeta::default(), &[], 0, &[InstanceTypes, Offerings, OnDemandPrices, SpotPrices]);
        check(&all(0), &[], 0, &[]);
        check(&all(0), &[OnDemandPrices], 0, &[OnDemandPrices]);
        check(&all(0), &[], 600, &[]);
        check(&all(0), &[], 900, &[SpotPrices]);
        let mut failed = all(0);
        failed.parts.get_mut(&Offerings).unwrap().last_error = Some("throttled".to_owned());
        check(&failed, &[], 1, &[Offerings]);
        assert_eq!(
            in_turn(&failed, &CatalogPart::ALL.into(), at(1)),
            [InstanceTypes, OnDemandPrices, SpotPrices, Offerings]
        );
        let mut alone = all(0);
        alone.parts.get_mut(&OnDemandPrices).unwrap().last_error = Some("nobody to ask".to_owned());
        alone.parts.get_mut(&OnDemandPrices).unwrap().last_error_kind = Some(ErrorKind::NoApi);
        check(&alone, &[], 1, &[]);
    }

    fn look(meta: CatalogMeta, now: i64) -> (CatalogPlan, Announcements) {
        let answers = BTreeMap::from([(CatalogPart::SpotPrices, Ok(CatalogAnswer::SpotPrices(vec![])))]);
        let limits = &Limits::default();
        let (before, broken) = (RefreshedParts::new(), BTreeSet::new());
        plan(&CatalogInput { now: at(now), meta, before, broken, answers, limits, shipped: None })
    }

    #[test]
    fn an_empty_answer_keeps_the_part_and_is_stale_only_beyond_its_limit() {
        let limit = CatalogPart::SpotPrices.stale_after().as_secs();
        let (fresh, report) = look(meta(&[(CatalogPart::SpotPrices, 0)]), limit);
        assert_eq!((fresh.refreshed.len(), fresh.failed.len(), report.stale.len()), (0, 1, 0));
        let (_, report) = look(meta(&[(CatalogPart::SpotPrices, 0)]), limit + 1);
        assert_eq!(report.stale[0].age, Some(SignedDuration::from_secs(limit + 1)));
    }

    #[test]
    fn a_part_that_never_arrives_is_missed_after_its_second_failure() {
        let failing = PartMeta { failing_since: Some(at(0)), ..PartMeta::default() };
        let meta = CatalogMeta { revision: 1, parts: BTreeMap::from([(CatalogPart::SpotPrices, failing)]) };
        assert!(look(CatalogMeta::default(), 0).1.stale.is_empty());
        assert_eq!(look(meta, 600).1.stale[0].age, None);
    }
}
