//! Resources as short vectors of integers, so that fitting is a few comparisons.
//!
//! Decides units and order, not what is compared. It is exact: a resource's unit is the greatest common divisor of
//! all requests for it. Requests are whole numbers of the unit, and room rounds down.

use std::collections::BTreeMap;

use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};

/// The requested resources, each with its unit in nanos.
#[derive(Debug, Clone)]
pub(crate) struct Dimensions(Vec<(ResourceName, i128)>);

/// An amount for each dimension, in its unit.
pub(crate) type DenseAmounts = Vec<i64>;

impl Dimensions {
    /// The dimensions of requests: resources with a request above zero.
    pub(crate) fn of<'a>(requests: impl IntoIterator<Item = &'a ResourceList>) -> Self {
        let mut units: BTreeMap<ResourceName, i128> = BTreeMap::new();
        for list in requests {
            for (name, quantity) in list.iter().filter(|(_, q)| q.nanos() > 0) {
                let unit = units.entry(name.clone()).or_insert(0);
                *unit = greatest_common_divisor(*unit, quantity.nanos());
            }
        }
        Self(units.into_iter().collect())
    }

    /// Requests in whole units; the dimensions must have been computed from them, too.
    pub(crate) fn need(&self, requests: &ResourceList) -> DenseAmounts {
        // Exact: the unit divides each of them.
        let amount = |nanos: i128, unit: i128| i64::try_from(nanos.div_euclid(unit)).unwrap_or(i64::MAX);
        self.0.iter().map(|(name, unit)| amount(requests.get(name).nanos(), *unit)).collect()
    }

    /// Room, rounded down to whole units.
    pub(crate) fn room(&self, available: &ResourceList) -> DenseAmounts {
        let amount = |nanos: i128, unit: i128| {
            let down = nanos.div_euclid(unit);
            // Below the largest integer, so that a request that overflows to it never fits.
            i64::try_from(down).unwrap_or(if down < 0 { i64::MIN } else { i64::MAX - 1 })
        };
        self.0.iter().map(|(name, unit)| amount(available.get(name).nanos(), *unit)).collect()
    }

    /// The resources' names, in the order of amounts.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ResourceName> {
        self.0.iter().map(|(name, _)| name)
    }
}

fn greatest_common_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

/// How often a need fits into room; nothing fits where something is overdrawn.
pub(crate) fn times_fit(need: &[i64], room: &[i64]) -> u32 {
    let mut times = u32::MAX;
    for (need, room) in need.iter().zip(room) {
        // No need is negative, so nothing fits into overdrawn room.
        if need > room {
            return 0;
        }
        if *need > 0 {
            times = times.min(u32::try_from(room / need).unwrap_or(u32::MAX));
        }
    }
    times
}

/// Whether all of one is at most the other.
pub(crate) fn within(amounts: &[i64], room: &[i64]) -> bool {
    amounts.iter().zip(room).all(|(amount, room)| amount <= room)
}

/// Adds so many times an amount.
pub(crate) fn add_times(sum: &mut [i64], amounts: &[i64], times: u32) {
    for (sum, amount) in sum.iter_mut().zip(amounts) {
        *sum = sum.saturating_add(amount.saturating_mul(i64::from(times)));
    }
}

/// Takes so many times an amount away.
pub(crate) fn take_times(room: &mut [i64], amounts: &[i64], times: u32) {
    for (room, amount) in room.iter_mut().zip(amounts) {
        *room = room.saturating_sub(amount.saturating_mul(i64::from(times)));
    }
}

/// So many times a list of resources.
pub(crate) fn times(list: &ResourceList, count: u32) -> ResourceList {
    list.iter()
        .map(|(name, quantity): (_, Quantity)| (name.clone(), quantity.saturating_mul(count)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(cpu: &str, memory: &str) -> ResourceList {
        ResourceList::new()
            .with(ResourceName::CPU, Quantity::parse(cpu).unwrap())
            .with(ResourceName::MEMORY, Quantity::parse(memory).unwrap())
    }

    fn check(need: (&str, &str), room: (&str, &str), expected: u32) {
        let (need, room) = (list(need.0, need.1), list(room.0, room.1));
        let dimensions = Dimensions::of([&need, &list("300m", "1")]);
        assert_eq!(times_fit(&dimensions.need(&need), &dimensions.room(&room)), expected, "{need} in {room}");
    }

    #[test]
    fn fits_are_exact() {
        check(("500m", "1Gi"), ("1999m", "16Gi"), 3);
        check(("500m", "1Gi"), ("2", "2047Mi"), 1);
        check(("100u", "1"), ("1m", "1Ti"), 10);
        check(("0", "0"), ("1", "1"), u32::MAX);
        check(("1", "1"), ("0", "1"), 0);
        check(("1", "0"), ("2", "0"), 2);
        // Room that is more units than the numbers hold is large, not none.
        check(("1m", "1n"), ("1", "1Ti"), 1000);
        // And a request that is more than they hold fits nowhere.
        check(("1m", "10000000000.000000001"), ("1", "1Ti"), 0);
        check(("1", "0"), ("2", "-1"), 0);
    }
}
