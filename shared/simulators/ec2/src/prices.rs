//! Prices of the twin.
//!
//! On-demand prices are those of us-east-1 for every region. Spot prices are synthetic: a seeded walk below the
//! on-demand price. Invariant: a spot price is a function of seed, type, zone and the ten minutes of the moment, so
//! it needs no state.

use tenon_domain::Timestamp;
use tenon_domain::id::{InstanceType, Zone};
use tenon_domain::money::UsdPerHour;

use super::random::draw;
use super::state::TwinState;

/// How long a spot price holds: EC2 moves prices slowly, the catalogue looks every ten minutes.
const STEP_SECONDS: i64 = 600;
/// Steps from one turning point of the walk to the next: six hours.
const STEPS_TO_TURN: i64 = 36;
/// EC2 quotes spot prices in ten-thousandths of a dollar.
const TICK_NANOS: u64 = 100_000;

/// Spot prices that stay near those of a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldPrices {
    pub(super) at: Timestamp,
    /// How far from them, in thousandths.
    pub(super) within: u64,
}

impl TwinState {
    /// Since when the present spot prices hold.
    pub(super) fn priced_since(&self) -> Timestamp {
        let held = self.prices_held.filter(|held| held.within == 0);
        spot_since(held.map_or(self.now, |held| held.at))
    }

    /// The present spot price of a type in a zone.
    pub(super) fn spot_price(&self, on_demand: UsdPerHour, of: &InstanceType, zone: &Zone) -> UsdPerHour {
        let Some(HeldPrices { at, within }) = self.prices_held else {
            return spot(self.config.seed, on_demand, of, zone, self.now);
        };
        let price = spot(self.config.seed, on_demand, of, zone, at).nanos();
        let step = self.now.as_second().div_euclid(STEP_SECONDS).to_string();
        let moved = draw(self.config.seed, &["held", of.as_str(), zone.as_str(), &step]) % (2 * within + 1);
        UsdPerHour::from_nanos(price.saturating_mul(1000_u64.saturating_sub(within) + moved) / 1000)
    }
}

/// When the spot price that holds at a moment began to hold.
fn spot_since(at: Timestamp) -> Timestamp {
    let second = at.as_second().div_euclid(STEP_SECONDS).saturating_mul(STEP_SECONDS);
    Timestamp::from_second(second).unwrap_or(at)
}

/// The synthetic spot price at a moment: between 20 % and 72 % of the on-demand price.
fn spot(
    seed: u64,
    on_demand: UsdPerHour,
    instance_type: &InstanceType,
    zone: &Zone,
    at: Timestamp,
) -> UsdPerHour {
    let (instance_type, zone) = (instance_type.as_str(), zone.as_str());
    let permille = |what: &str, n: i64, below: u64| {
        draw(seed, &["spot", instance_type, zone, what, &n.to_string()]) % below
    };
    let step = at.as_second().div_euclid(STEP_SECONDS);
    let turn = step.div_euclid(STEPS_TO_TURN);
    let within = u64::try_from(step.rem_euclid(STEPS_TO_TURN)).unwrap_or(0);
    let all = u64::try_from(STEPS_TO_TURN).unwrap_or(1);
    let level = 200 + permille("level", 0, 300);
    let wave =
        (permille("wave", turn, 201) * (all - within) + permille("wave", turn + 1, 201) * within) / all;
    let noise = permille("noise", step, 21);
    let nanos = on_demand.nanos().saturating_mul(level + wave + noise) / 1000;
    UsdPerHour::from_nanos((nanos / TICK_NANOS * TICK_NANOS).max(TICK_NANOS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + seconds).unwrap()
    }

    fn price(seed: u64, seconds: i64) -> UsdPerHour {
        let (m5, zone) = (InstanceType::parse("m5.large").unwrap(), Zone::parse("us-east-1a").unwrap());
        spot(seed, UsdPerHour::parse("0.096").unwrap(), &m5, &zone, at(seconds))
    }

    #[test]
    fn the_price_holds_for_ten_minutes_and_moves_over_a_day_below_on_demand() {
        assert_eq!(price(1, 0), price(1, 599));
        let day: Vec<_> = (0..144).map(|n| price(1, n * 600)).collect();
        assert!(day.iter().all(|p| *p < UsdPerHour::parse("0.096").unwrap() && *p > UsdPerHour::ZERO));
        assert!(day.iter().collect::<std::collections::BTreeSet<_>>().len() > 10);
        assert_eq!(day, (0..144).map(|n| price(1, n * 600)).collect::<Vec<_>>());
    }

    #[test]
    fn another_seed_is_another_walk() {
        let walk = |seed| (0..20).map(|n| price(seed, n * 600)).collect::<Vec<_>>();
        assert_ne!(walk(1), walk(2));
    }

    #[test]
    fn since_is_the_beginning_of_the_ten_minutes() {
        assert_eq!(spot_since(at(1234)), at(1200));
    }
}
