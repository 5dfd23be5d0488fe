//! What a consolidation must save, and how old its nodes must be.
//!
//! Decides the grammar of three annotations of a NodePool, `tenon.dev/minimum-savings`, `tenon.dev/minimum-node-lifetime`
//! and `tenon.dev/moved-pods-rest`, and their defaults. It doesn't decide what is saved.

use jiff::SignedDuration;

use crate::api::NodePool;
use crate::labels::{MINIMUM_NODE_LIFETIME, MINIMUM_SAVINGS, MOVED_PODS_REST};
use crate::manifest::duration::parse_plain;
use crate::money::{Currency, UsdPerHour};
use crate::pool_annotations::{PoolAnnotationError, read};

/// How long moved pods rest where their pool doesn't say: where pods come and go all day, each is moved about twice a day.
const MOVED_PODS_REST_FOR: SignedDuration = SignedDuration::from_hours(12);
/// A whole in hundredths of a percent.
const WHOLE: u64 = 10_000;

/// The saving that is worth an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinimumSavings {
    /// A share of the price of the nodes that go, in hundredths of a percent.
    Share(u64),
    /// An amount an hour.
    Amount(UsdPerHour),
}

impl Default for MinimumSavings {
    /// 5 %: more than plans differ by for equal pods, and than spot prices usually move in an hour.
    fn default() -> Self {
        Self::Share(500)
    }
}

impl MinimumSavings {
    /// Reads `5%`, `2.5%`, or USD an hour such as `0.02`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            // A decimal with at most nine places, as prices are.
            Some(share) => {
                let hundredths = UsdPerHour::parse(share).ok()?.nanos().checked_div(10_000_000)?;
                (hundredths <= WHOLE).then_some(Self::Share(hundredths))
            }
            None => UsdPerHour::parse(text).ok().map(Self::Amount),
        }
    }

    /// What must be saved of a price.
    #[must_use]
    pub fn of(self, price: UsdPerHour) -> UsdPerHour {
        match self {
            Self::Share(share) => {
                let amount = u128::from(price.nanos()).saturating_mul(share.into()).div_ceil(WHOLE.into());
                UsdPerHour::from_nanos(u64::try_from(amount).unwrap_or(u64::MAX))
            }
            Self::Amount(amount) => amount,
        }
    }
}

impl MinimumSavings {
    /// What is asked for, for people: `5 %`, or `0.02 USD an hour`.
    #[must_use]
    pub fn words(self, currency: Currency) -> String {
        match self {
            Self::Share(share) => percent(share),
            Self::Amount(amount) => format!("{amount} {} an hour", currency.as_str()),
        }
    }
}

/// A share in hundredths of a percent, for people: `2.25 %`.
#[must_use]
pub fn percent(hundredths: u64) -> String {
    format!("{} %", UsdPerHour::from_nanos(hundredths.saturating_mul(10_000_000)))
}

/// A pool's own terms of consolidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsolidationTerms {
    /// The least saving.
    pub savings: MinimumSavings,
    /// The least age of a node.
    pub lifetime: SignedDuration,
    /// How long pods rest that a consolidation moved.
    pub rest: SignedDuration,
}

impl Default for ConsolidationTerms {
    fn default() -> Self {
        Self { savings: MinimumSavings::default(), lifetime: SignedDuration::ZERO, rest: MOVED_PODS_REST_FOR }
    }
}

impl ConsolidationTerms {
    /// The terms of a pool.
    ///
    /// # Errors
    /// The first annotation that can't be read. A typing error must not move pods, so none of the pool's nodes is
    /// consolidated then.
    pub fn of(pool: &NodePool) -> Result<Self, PoolAnnotationError> {
        let share = "a share such as `5%`, or a price an hour such as `0.02`";
        let savings = read(pool, MINIMUM_SAVINGS, share, MinimumSavings::parse)?;
        let time = "hours, minutes and seconds such as `1h30m`";
        let lifetime = read(pool, MINIMUM_NODE_LIFETIME, time, parse_plain)?;
        let rest = read(pool, MOVED_PODS_REST, time, parse_plain)?;
        Ok(Self {
            savings: savings.unwrap_or_default(),
            lifetime: lifetime.unwrap_or_default(),
            rest: rest.unwrap_or(MOVED_PODS_REST_FOR),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_are_a_share_or_a_price() {
        let check = |text: &str, expected: Option<&str>| {
            let shown = MinimumSavings::parse(text).map(|savings| savings.words(Currency::Usd));
            assert_eq!(shown.as_deref(), expected, "{text}");
        };
        check("5%", Some("5 %"));
        check("2.25%", Some("2.25 %"));
        check("100%", Some("100 %"));
        check("0.02", Some("0.02 USD an hour"));
        for wrong in ["", "%", "101%", "-1%", "5 %%", "cheap", "1e3"] {
            check(wrong, None);
        }
    }

    #[test]
    fn what_must_be_saved_is_never_rounded_down() {
        let of = |text: &str, price: &str| {
            let price = UsdPerHour::parse(price).unwrap();
            MinimumSavings::parse(text).unwrap().of(price).to_string()
        };
        assert_eq!(of("5%", "0.096"), "0.0048");
        assert_eq!(of("5%", "0.000000001"), "0.000000001");
        assert_eq!(of("0%", "3"), "0");
        assert_eq!(of("0.02", "3"), "0.02");
    }
}
