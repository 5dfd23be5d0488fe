//! Zonal shift: zones that a cluster is moved away from, by its operator or by AWS.
//!
//! Decides whether a shift is active at a moment. ARC decides which zones are shifted.

use jiff::Timestamp;

use crate::id::{Zone, ZoneId};

/// When a shift ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShiftEnd {
    /// By itself at this time, unless it is ended or prolonged before.
    At(Timestamp),
    /// When AWS ends it: an autoshift has no end time.
    Open,
}

impl ShiftEnd {
    /// Whether the shift still holds at a moment, as far as is known.
    #[must_use]
    pub fn holds(self, now: Timestamp) -> bool {
        match self {
            Self::At(end) => now < end,
            Self::Open => true,
        }
    }
}

impl std::fmt::Display for ShiftEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::At(end) => write!(f, "until {end:.0}"),
            Self::Open => f.write_str("until AWS ends the autoshift"),
        }
    }
}

/// A zone that a cluster is shifted away from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShiftedZone {
    /// The zone.
    pub zone_id: ZoneId,
    /// When the shift ends.
    pub end: ShiftEnd,
}

impl ShiftedZone {
    /// The zone by its name in the account, as Nodes have it, where that is known, and its id.
    #[must_use]
    pub fn words(&self, name: Option<&Zone>) -> String {
        let Self { zone_id, end } = self;
        match name {
            Some(name) => format!("`{name}` ({zone_id}) {end}"),
            None => format!("`{zone_id}` {end}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shift_holds_until_its_end() {
        let end = ShiftEnd::At(Timestamp::from_second(60).unwrap());
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(end.holds(at(59)));
        assert!(!end.holds(at(60)));
        assert!(ShiftEnd::Open.holds(Timestamp::MAX));
        assert_eq!(end.to_string(), "until 1970-01-01T00:01:00Z");
    }
}
