//! Answers that look complete but may not be.
//!
//! Decides when an answer is so much smaller than the one before that it counts as incomplete: a list that ends early
//! has no other sign. It doesn't decide about empty answers, which are always refused.
//!
//! Invariants: a small answer is believed in the end, if EC2 repeats it, and before the part becomes unusable; a
//! single one never is.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::PartData;
use tenon_domain::evidence::{CatalogPart, ErrorKind};
use tenon_table::items::packed::RefreshedPart;

/// An answer may lack one entry in this many. EC2 withdraws a type now and then, while a lost page (100 types of some
/// 1,400, in EC2's own order) is more than that. The loss of a shorter last page stays unseen until the next refresh.
const LOST_MOST_ONE_IN: usize = 20;

/// Content that fits one page of the smallest size can't be incomplete.
const PAGE: usize = 100;

/// An answer that is taken for torn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "keeping the last `{part}` until it is {} hours old: EC2's answer has {now} entries, the last one {before}, so it may be \
     incomplete", kept_for(*part).as_hours()
)]
pub struct ShrunkAnswer {
    /// The part.
    pub part: CatalogPart,
    /// Entries before.
    pub before: usize,
    /// Entries of the answer.
    pub now: usize,
}

/// Compares an answer with the stored part, if there is one.
///
/// # Errors [`ShrunkAnswer`] if the answer counts as incomplete.
pub fn check(
    answer: &PartData,
    before: Option<&RefreshedPart>,
    last_error: Option<ErrorKind>,
    at: Timestamp,
) -> Result<(), ShrunkAnswer> {
    let part = answer.part();
    // After an outage of any length, one answer counts as one answer.
    let goes_on = last_error == Some(ErrorKind::Shrunk);
    let kept = |known: &&RefreshedPart| !goes_on || at.duration_since(known.refreshed_at) < kept_for(part);
    let Some(known) = before.filter(kept) else { return Ok(()) };
    let (before, now) = (entries(&known.data), entries(answer));
    let lost = before.saturating_sub(now);
    if before <= PAGE || lost.saturating_mul(LOST_MOST_ONE_IN) <= before {
        return Ok(());
    }
    Err(ShrunkAnswer { part, before, now })
}

/// The age up to which a stored part counts against an answer: half of the time for which it may be used, so that
/// more refreshes follow before it becomes unusable.
fn kept_for(part: CatalogPart) -> SignedDuration {
    part.stale_after() / 2
}

/// The number of entries: types, or types in zones.
fn entries(data: &PartData) -> usize {
    match data {
        PartData::InstanceTypes(types) => types.len(),
        PartData::Offerings(offerings) => offerings.offered.values().map(|zones| zones.len()).sum(),
        PartData::OnDemandPrices(prices) => prices.len(),
        PartData::SpotPrices(prices) => prices.values().map(|zones| zones.len()).sum(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use tenon_domain::catalog::ZoneOfferings;
    use tenon_domain::id::{InstanceType, Zone};
    use tenon_domain::money::UsdPerHour;

    use super::*;

    fn name(n: usize) -> InstanceType {
        InstanceType::parse(format!("m{n}.large")).unwrap()
    }

    fn prices(count: usize) -> PartData {
        PartData::OnDemandPrices((0..count).map(|n| (name(n), UsdPerHour::from_nanos(1))).collect())
    }

    /// So many types, in all zones but those of the last, which some lack.
    fn offerings(types: usize, zones: usize, lacking: usize) -> PartData {
        let zone = |n: usize| {
            Zone::parse(format!("us-east-1{}", char::from(b'a' + u8::try_from(n).unwrap()))).unwrap()
        };
        let zones_of =
            |n: usize| (0..if n < lacking { zones - 1 } else { zones }).map(zone).collect::<BTreeSet<_>>();
        let offered: BTreeMap<_, _> = (0..types).map(|n| (name(n), zones_of(n))).collect();
        PartData::Offerings(ZoneOfferings { zones: BTreeMap::new(), offered })
    }

    fn check_after(hours: i64, before: PartData, answer: &PartData, refused: bool) {
        check_again(hours, before, Some(ErrorKind::Shrunk), answer, refused);
    }

    fn check_again(
        hours: i64,
        before: PartData,
        last_error: Option<ErrorKind>,
        answer: &PartData,
        refused: bool,
    ) {
        let known =
            RefreshedPart { data: Arc::new(before), generation: 1, refreshed_at: Timestamp::UNIX_EPOCH };
        let at = Timestamp::from_second(hours * 3600).unwrap();
        assert_eq!(check(answer, Some(&known), last_error, at).is_err(), refused, "{answer:?}");
    }

    #[test]
    fn an_answer_that_lacks_a_page_is_torn_and_one_that_lacks_a_few_is_not() {
        check_after(12, prices(1_386), &prices(100), true);
        check_after(12, prices(1_386), &prices(1_300), true);
        check_after(12, prices(1_386), &prices(1_317), false);
        check_after(12, prices(1_386), &prices(2_000), false);
    }

    #[test]
    fn an_answer_of_one_page_cannot_be_torn() {
        check_after(12, prices(100), &prices(1), false);
        check_after(12, prices(101), &prices(1), true);
        assert_eq!(check(&prices(1), None, None, Timestamp::UNIX_EPOCH), Ok(()));
    }

    #[test]
    fn a_lost_page_is_seen_where_every_type_is_still_named() {
        check_after(6, offerings(1_386, 6, 0), &offerings(1_386, 6, 1_000), true);
        check_after(6, offerings(1_386, 6, 0), &offerings(1_386, 6, 100), false);
    }

    #[test]
    fn what_ec2_goes_on_saying_is_believed_before_the_part_is_stale() {
        let hours = CatalogPart::OnDemandPrices.stale_after().as_hours();
        check_after(hours / 2 - 1, prices(1_386), &prices(100), true);
        check_after(hours / 2, prices(1_386), &prices(100), false);
    }

    #[test]
    fn one_answer_after_an_outage_is_not_what_ec2_goes_on_saying() {
        let hours = CatalogPart::OnDemandPrices.stale_after().as_hours() / 2;
        for last_error in [None, Some(ErrorKind::Throttled), Some(ErrorKind::Denied)] {
            check_again(hours, prices(1_386), last_error, &prices(100), true);
            check_again(hours, prices(1_386), last_error, &prices(1_380), false);
        }
    }

    #[test]
    fn people_are_told_how_much_is_missing_and_for_how_long_it_is_not_believed() {
        let refused = ShrunkAnswer { part: CatalogPart::SpotPrices, before: 6_000, now: 1_000 };
        assert_eq!(
            refused.to_string(),
            "keeping the last `spot-prices` until it is 3 hours old: EC2's answer has 1000 entries, the last one 6000, so \
             it may be incomplete"
        );
    }
}
