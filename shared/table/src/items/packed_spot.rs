//! The packed form of spot prices: columns instead of rows.
//!
//! Decides how data that changes every ten minutes stays small: each zone once, sorted type names as a shared prefix
//! and the rest, and one column of prices a zone, in the largest power of ten that divides all of them. EC2 quotes at
//! most six decimals, so a price takes two or three bytes before it is deflated.
//!
//! Invariant: exact for every price, every set of zones and a type without any.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenon_domain::catalog::parts::SpotPrices;
use tenon_domain::id::{InstanceType, Zone};
use tenon_domain::money::UsdPerHour;

use super::packed_forms::FormsError;

/// A power of ten above this divides no price that isn't 0: a nano-dollar's 10^19 is more than a `u64` holds.
const TENS_MAX: u32 = 19;

/// Spot prices in columns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SpotForm<'a> {
    /// Prices are in nano-dollars times ten to this.
    tens: u32,
    #[serde(borrow)]
    zones: Vec<&'a str>,
    /// Each name's bytes shared with the one before, and the rest.
    #[serde(borrow)]
    names: Vec<(usize, &'a str)>,
    /// By zone, then by name: 0 for none, else one more than the price, which may be any `u64`.
    prices: Vec<Vec<u128>>,
}

impl<'a> SpotForm<'a> {
    pub(super) fn of(prices: &'a SpotPrices) -> Self {
        let zones: BTreeSet<&'a Zone> = prices.values().flat_map(BTreeMap::keys).collect();
        let tens = tens(prices.values().flat_map(BTreeMap::values).map(|price| price.nanos()));
        let unit = 10_u64.pow(tens);
        let cell = |price: Option<&UsdPerHour>| price.map_or(0, |price| u128::from(price.nanos() / unit) + 1);
        let column = |zone: &&'a Zone| prices.values().map(|zones| cell(zones.get(*zone))).collect();
        Self {
            tens,
            prices: zones.iter().map(column).collect(),
            zones: zones.iter().map(|zone| zone.as_str()).collect(),
            names: shortened(prices.keys().map(InstanceType::as_str)),
        }
    }

    pub(super) fn data(self) -> Result<SpotPrices, FormsError> {
        let names = lengthened(&self.names)?;
        if self.prices.len() != self.zones.len()
            || self.prices.iter().any(|column| column.len() != names.len())
        {
            return Err(FormsError::Columns);
        }
        let unit = 10_u64.checked_pow(self.tens).ok_or(FormsError::Columns)?;
        let mut rows = Vec::with_capacity(names.len());
        for name in names {
            rows.push((InstanceType::parse(name)?, BTreeMap::new()));
        }
        for (zone, column) in self.zones.into_iter().zip(self.prices) {
            let zone = Zone::parse(zone)?;
            for ((_, row), cell) in rows.iter_mut().zip(column) {
                let Some(price) = cell.checked_sub(1) else { continue };
                let nanos = u64::try_from(price).ok().and_then(|price| price.checked_mul(unit));
                row.insert(zone.clone(), UsdPerHour::from_nanos(nanos.ok_or(FormsError::Columns)?));
            }
        }
        Ok(rows.into_iter().collect())
    }
}

/// The largest power of ten that divides all; 0 if there is nothing to divide.
fn tens(prices: impl Iterator<Item = u64>) -> u32 {
    let zeros =
        |price: u64| (1..=TENS_MAX).take_while(|n| price.is_multiple_of(10_u64.pow(*n))).last().unwrap_or(0);
    prices.filter(|price| *price != 0).map(zeros).min().unwrap_or(0)
}

fn shortened<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(usize, &'a str)> {
    let mut before = "";
    let mut short = Vec::new();
    for name in names {
        let same = name.chars().zip(before.chars()).take_while(|(a, b)| a == b);
        let shared = same.map(|(a, _)| a.len_utf8()).sum();
        short.push((shared, name.get(shared..).unwrap_or_default()));
        before = name;
    }
    short
}

fn lengthened(short: &[(usize, &str)]) -> Result<Vec<String>, FormsError> {
    let mut names: Vec<String> = Vec::with_capacity(short.len());
    for (shared, rest) in short {
        let before = names.last().map_or("", String::as_str);
        let shared = before.get(..*shared).ok_or(FormsError::Columns)?;
        names.push(format!("{shared}{rest}"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rows<'a> = &'a [(&'a str, &'a [(&'a str, u64)])];

    fn prices(rows: Rows<'_>) -> SpotPrices {
        let zone =
            |(zone, nanos): &(&str, u64)| (Zone::parse(*zone).unwrap(), UsdPerHour::from_nanos(*nanos));
        let row = |(name, zones): &(&str, &[(&str, u64)])| {
            (InstanceType::parse(*name).unwrap(), zones.iter().map(zone).collect())
        };
        rows.iter().map(row).collect()
    }

    /// The golden text is the stored form; it reads back as the same rows.
    fn check(rows: Rows<'_>, stored: &str) {
        let prices = prices(rows);
        let form = SpotForm::of(&prices);
        let bytes = postcard::to_allocvec(&form).unwrap();
        assert_eq!(serde_json::to_string(&form).unwrap(), stored);
        let read: SpotForm<'_> = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read.data().unwrap(), prices);
    }

    #[test]
    fn spot_prices_are_columns_and_exact_for_every_value() {
        check(&[], r#"{"tens":0,"zones":[],"names":[],"prices":[]}"#);
        check(
            &[
                ("m5.large", &[("us-east-1a", 34_500_000), ("us-east-1b", 1_000_000)]),
                ("m5.xlarge", &[("us-east-1b", 70_100_000)]),
                ("t3.nano", &[]),
            ],
            r#"{"tens":5,"zones":["us-east-1a","us-east-1b"],"names":[[0,"m5.large"],[3,"xlarge"],[0,"t3.nano"]],"prices":[[346,0,0],[11,702,0]]}"#,
        );
        check(
            &[("m5.large", &[("us-east-1a", 0), ("us-east-1b", u64::MAX), ("us-east-1c", 1)])],
            r#"{"tens":0,"zones":["us-east-1a","us-east-1b","us-east-1c"],"names":[[0,"m5.large"]],"prices":[[1],[18446744073709551616],[2]]}"#,
        );
        check(
            &[("m5.large", &[("us-east-1a", 0), ("us-east-1b", 10_000_000_000_000_000_000)])],
            r#"{"tens":19,"zones":["us-east-1a","us-east-1b"],"names":[[0,"m5.large"]],"prices":[[1],[2]]}"#,
        );
    }

    #[test]
    fn a_torn_form_is_an_error() {
        let torn = |tens, names: &[(usize, &'static str)], prices: &[&[u128]]| SpotForm {
            tens,
            zones: vec!["us-east-1a"],
            names: names.to_vec(),
            prices: prices.iter().map(|column| column.to_vec()).collect(),
        };
        for form in [
            torn(0, &[(0, "m5.large")], &[]),
            torn(0, &[(0, "m5.large")], &[&[1, 1]]),
            torn(0, &[(1, "m5.large")], &[&[1]]),
            torn(20, &[(0, "m5.large")], &[&[1]]),
            torn(1, &[(0, "m5.large")], &[&[u128::from(u64::MAX) + 1]]),
        ] {
            assert_eq!(form.data(), Err(FormsError::Columns));
        }
    }
}
