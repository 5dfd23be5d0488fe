//! What a pass writes of the catalogue's parts.
//!
//! Decides which parts are looked at, what is taken of the answers, which part has gone stale, and when the price list
//! that comes with the release stands in for one that AWS doesn't give. Whether content is new is seen when it is packed.
//! It doesn't decide what a stale part may still be used for.
//!
//! Invariants: a part that couldn't be read, or whose answer is torn, stays as it was, with the error and since when; what
//! AWS answered is never replaced by what it didn't while it may still be used.

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

/// A part that never arrived is said to be missing when its first look has failed for so long: the next wake, ten
/// minutes later, has failed too.
pub const MISSING_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What was observed.
#[derive(Debug, Clone)]
pub struct CatalogInput<'a> {
    /// The time.
    pub now: Timestamp,
    /// The pointers, as they were before.
    pub meta: CatalogMeta,
    /// The content of the parts that were asked for as it was before, and of what prices are for; those that arrived
    /// and can be read.
    pub before: RefreshedParts,
    /// Parts among these whose content can't be read any more.
    pub broken: BTreeSet<CatalogPart>,
    /// What EC2 answered, or why it didn't, by part; parts that weren't asked for aren't there.
    pub answers: BTreeMap<CatalogPart, Result<CatalogAnswer, RefreshFailure>>,
    /// What EC2 doesn't serve.
    pub limits: &'a Limits,
    /// The price list that comes with the release, where it says something of the region.
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
    /// What the release has for a region: another region's prices are in the same order, but not where they are in another
    /// currency than the region's spot prices, beside which they are compared.
    #[must_use]
    pub fn of(data: &'a Ec2Data, region: &Region) -> Option<Self> {
        let own = &data.on_demand_region;
        let comparable = Currency::of_region(own) == Currency::of_region(region);
        comparable.then_some(Self { prices: &data.on_demand, as_of: AS_OF, region: own })
    }
}

/// What to write.
#[derive(Debug, Clone, Default)]
pub struct CatalogPlan {
    /// The time.
    pub now: Timestamp,
    /// Parts as they are now.
    pub refreshed: BTreeMap<CatalogPart, PartData>,
    /// Parts that couldn't be read, with the error.
    pub failed: BTreeMap<CatalogPart, RefreshFailure>,
    /// What stands in for parts among these.
    pub stand_ins: BTreeMap<CatalogPart, StandIn>,
    /// Parts whose content is written anew even where it is as before: it can't be read any more.
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

/// What is said on the bus: what was left out and what is stale.
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
    /// Tells it. Types without a price are planned with all the same, and only said on the bus.
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

/// A part beyond its limit, or one that won't be refreshed until a person does something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The part.
    pub part: CatalogPart,
    /// Its age; none where AWS never answered with it.
    pub age: Option<SignedDuration>,
    /// What the last look ran into.
    pub failure: RefreshFailure,
    /// Since when looks fail.
    pub failing_since: Timestamp,
    /// Where what stands in for it is from, if something does.
    pub stand_in: Option<PartOrigin>,
}

/// The parts to look at: those asked for, those that never arrived or failed last time, and those whose own schedule
/// must have been lost.
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

/// The parts that are due, in the order in which they are asked for: one that wasn't answered last time, and may take long
/// not to be once more, keeps no other waiting.
#[must_use]
pub fn in_turn(meta: &CatalogMeta, asked: &BTreeSet<CatalogPart>, now: Timestamp) -> Vec<CatalogPart> {
    let mut due: Vec<CatalogPart> = due(meta, asked, now).into_iter().collect();
    due.sort_by_key(|part| meta.parts.get(part).is_some_and(|known| known.last_error.is_some()));
    due
}

/// Whether the last look failed and the next one may not. Where there is nobody to ask, the part's own schedule is soon
/// enough.
fn failed_and_may_not(known: &PartMeta) -> bool {
    known.last_error.is_some() && known.last_error_kind != Some(ErrorKind::NoApi)
}

/// Plans what to write.
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

/// What stands in for a part that AWS won't give until a person does something: nothing while there is an own answer that
/// may still be used.
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

/// When AWS last answered with the part, as far as its content is that answer.
fn answered_at(known: Option<&PartMeta>) -> Option<Timestamp> {
    let known = known.filter(|known| known.origin == PartOrigin::Answered)?;
    known.refreshed_at
}

/// The types that nodes can be of and that are offered without a price, for each list of prices that is new.
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

/// What is taken of an answer, and what of it was left out.
fn take(
    answer: &CatalogAnswer,
    part: CatalogPart,
    input: &CatalogInput<'_>,
) -> Result<(PartData, Vec<LeftOut>), RefreshFailure> {
    let failed = |kind, message| RefreshFailure { kind, message };
    // What stood in for an answer says nothing of how long one is.
    let before = input.before.get(&part).filter(|_| answered_at(input.meta.parts.get(&part)).is_some());
    let (data, left_out) =
        read(answer, input.limits).map_err(|error| failed(ErrorKind::Empty, error.to_string()))?;
    let last_error = input.meta.parts.get(&part).and_then(|known| known.last_error_kind);
    shrink::check(&data, before, last_error, input.now)
        .map_err(|error| failed(ErrorKind::Shrunk, error.to_string()))?;
    Ok((data, left_out))
}

/// Whether people are told, and what: at once where asking again is no help, else once the part is beyond its limit. What
/// has something to stand in for it is told when that begins, and when the reason changes.
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
