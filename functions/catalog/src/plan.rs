//! What a pass writes of the catalogue's parts.
//!
//! Decides which parts are looked at, what is taken of the answers and which part has gone stale. Whether content is
//! new is seen when it is packed. It doesn't decide what a stale part may still be used for.
//!
//! Invariant: a part that couldn't be read, or whose answer is torn, stays as it was, with the error and since when.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::PartData;
use tenon_domain::catalog::describe::Limits;
use tenon_domain::catalog::facts::UsageClass;
use tenon_domain::evidence::{CatalogPart, ErrorKind, RefreshFailure};
use tenon_domain::id::{InstanceType, Zone};
use tenon_table::items::packed::Part;
use tenon_table::items::{CatalogMeta, PartMeta, Parts};

use crate::read::{Answer, LeftOut, read};
use crate::shrink;

/// How late a part's own schedule may be before another wake looks after the part.
pub const SCHEDULE_SLACK: SignedDuration = SignedDuration::from_mins(5);

/// A part that never arrived is said to be missing when its first look has failed for so long: the next wake, ten
/// minutes later, has failed too.
pub const MISSING_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What was observed.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// The time.
    pub now: Timestamp,
    /// The pointers, as they were before.
    pub meta: CatalogMeta,
    /// The content of the parts that were asked for as it was before, and of what prices are for; those that arrived
    /// and can be read.
    pub before: Parts,
    /// What EC2 answered, or why it didn't, by part; parts that weren't asked for aren't there.
    pub answers: BTreeMap<CatalogPart, Result<Answer, RefreshFailure>>,
    /// What EC2 doesn't serve.
    pub limits: &'a Limits,
}

/// What to write.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The time.
    pub now: Timestamp,
    /// Parts as they are now.
    pub refreshed: BTreeMap<CatalogPart, PartData>,
    /// Parts that couldn't be read, with the error.
    pub failed: BTreeMap<CatalogPart, RefreshFailure>,
}

/// What was left out and what is stale.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Report {
    /// Entries that were left out, by part.
    pub left_out: BTreeMap<CatalogPart, Vec<LeftOut>>,
    /// Types that are offered without a price, by the part that should have it.
    pub unpriced: BTreeMap<CatalogPart, BTreeSet<InstanceType>>,
    /// Parts beyond their limit.
    pub stale: Vec<Stale>,
}

/// A part beyond its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stale {
    /// The part.
    pub part: CatalogPart,
    /// Its age; none where it never arrived.
    pub age: Option<SignedDuration>,
    /// What the last look ran into.
    pub error: String,
}

/// The parts to look at: those asked for, those that never arrived or failed last time, and those whose own schedule
/// must have been lost.
#[must_use]
pub fn due(meta: &CatalogMeta, asked: &BTreeSet<CatalogPart>, now: Timestamp) -> BTreeSet<CatalogPart> {
    let due = |part: &CatalogPart| {
        let known = meta.parts.get(part);
        asked.contains(part)
            || known.is_none_or(|known| {
                known.last_error.is_some()
                    || known
                        .refreshed_at
                        .is_none_or(|at| now.duration_since(at) >= part.refresh_every() + SCHEDULE_SLACK)
            })
    };
    CatalogPart::ALL.into_iter().filter(due).collect()
}

/// Plans what to write.
pub fn plan(input: &Input<'_>) -> (Plan, Report) {
    let mut plan = Plan { now: input.now, ..Plan::default() };
    let mut report = Report::default();
    for (part, answer) in &input.answers {
        let taken = match answer {
            Ok(answer) => take(answer, input.before.get(part), input),
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
                let known = input.meta.parts.get(part);
                report.stale.extend(stale(*part, known, &failure.message, input.now));
                plan.failed.insert(*part, failure);
            }
        }
    }
    report.unpriced = unpriced(&plan.refreshed, &input.before);
    (plan, report)
}

/// The types that are offered without a price, for each list of prices that is new.
fn unpriced(
    refreshed: &BTreeMap<CatalogPart, PartData>,
    before: &Parts,
) -> BTreeMap<CatalogPart, BTreeSet<InstanceType>> {
    let now = |part| refreshed.get(&part).or_else(|| before.get(&part).map(|known| known.data.as_ref()));
    let (Some(PartData::InstanceTypes(types)), Some(PartData::Offerings(offerings))) =
        (now(CatalogPart::InstanceTypes), now(CatalogPart::Offerings))
    else {
        return BTreeMap::new();
    };
    let lacking = |class: &UsageClass, priced: &dyn Fn(&InstanceType, &Zone) -> bool| {
        let bought =
            |name: &InstanceType| types.get(name).is_some_and(|facts| facts.usage_classes.contains(class));
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
    refreshed.iter().filter_map(|(part, data)| Some((*part, of(data)?))).collect()
}

/// What is taken of an answer, and what of it was left out.
fn take(
    answer: &Answer,
    before: Option<&Part>,
    input: &Input<'_>,
) -> Result<(PartData, Vec<LeftOut>), RefreshFailure> {
    let failed = |kind, message| RefreshFailure { kind, message };
    let (data, left_out) =
        read(answer, input.limits).map_err(|error| failed(ErrorKind::Empty, error.to_string()))?;
    shrink::check(&data, before, input.now).map_err(|error| failed(ErrorKind::Shrunk, error.to_string()))?;
    Ok((data, left_out))
}

fn stale(part: CatalogPart, known: Option<&PartMeta>, error: &str, now: Timestamp) -> Option<Stale> {
    let found = |age| Stale { part, age, error: error.to_owned() };
    match known.and_then(|known| known.refreshed_at) {
        Some(at) => {
            let age = now.duration_since(at);
            (age > part.stale_after()).then(|| found(Some(age)))
        }
        None => {
            let since = known.and_then(|known| known.failing_since)?;
            (now.duration_since(since) >= MISSING_AFTER).then(|| found(None))
        }
    }
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
    }

    fn look(meta: CatalogMeta, now: i64) -> (Plan, Report) {
        let answers = BTreeMap::from([(CatalogPart::SpotPrices, Ok(Answer::SpotPrices(vec![])))]);
        plan(&Input { now: at(now), meta, before: Parts::new(), answers, limits: &Limits::default() })
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
