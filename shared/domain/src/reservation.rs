//! Capacity reservations of a class, their free capacity, and their gate.
//!
//! Decides who may read them. Decisions by a reservation need a [`ReservedCapacity`], which only an open gate gives.
//! With the gate `ReservedCapacity` off, no reservation can be offered, launched into, shown as a label or cause
//! drift. `node-classes` decides which reservations a class selects.
//!
//! Invariant: the free capacity is at most EC2's count, less the instances launched since.
//!
//! Source: aws/karpenter-provider-aws `pkg/apis/v1/ec2nodeclass_status.go`,
//! `pkg/providers/instancetype/offering/reserved_capacity_resolver.go`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::id::{InstanceType, ReservationId, Zone};
use crate::labels;
use crate::registry::{FeatureGate, GateName, Gates};

/// How long before its end a capacity block takes no launch. EC2 reclaims its instances from 30 minutes before the
/// end, and the peer stops 10 minutes earlier (aws/karpenter-provider-aws
/// `pkg/controllers/capacityreservation/expiration/controller.go`).
pub const BLOCK_EXPIRING: SignedDuration = SignedDuration::from_mins(40);

/// The right to decide by capacity reservations: the gate `ReservedCapacity` is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReservedCapacity(());

impl ReservedCapacity {
    /// The right, where the gate gives it.
    #[must_use]
    pub fn behind(gates: &Gates) -> Option<Self> {
        match gates.of(GateName::ReservedCapacity) {
            FeatureGate::Enabled => Some(Self(())),
            FeatureGate::Disabled => None,
        }
    }
}

crate::words! {
    /// The kind of a reservation, in the order of use at equal prices.
    pub enum ReservationKind else Default {
        /// An on-demand capacity reservation.
        Default = "default",
        /// A capacity block, which ends.
        CapacityBlock = "capacity-block",
        /// A reservation whose owner may reclaim its instances.
        Interruptible = "interruptible",
    }
}

impl ReservationKind {
    /// The value of `karpenter.k8s.aws/capacity-reservation-type`, and of `reservationType`.
    #[must_use]
    pub const fn type_label(self) -> &'static str {
        match self {
            Self::Default | Self::Interruptible => "default",
            Self::CapacityBlock => "capacity-block",
        }
    }

    /// The value of `karpenter.k8s.aws/capacity-reservation-interruptible`.
    #[must_use]
    pub const fn interruptible_label(self) -> &'static str {
        match self {
            Self::Default | Self::CapacityBlock => "false",
            Self::Interruptible => "true",
        }
    }
}

/// The reservation of a launch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaunchedInto {
    /// The reservation.
    pub id: ReservationId,
    /// Its kind.
    pub kind: ReservationKind,
}

impl LaunchedInto {
    /// The labels of its Nodes, besides the capacity type.
    #[must_use]
    pub fn labels(&self) -> [(&'static str, &str); 3] {
        [
            (labels::CAPACITY_RESERVATION_ID, self.id.as_str()),
            (labels::CAPACITY_RESERVATION_TYPE, self.kind.type_label()),
            (labels::CAPACITY_RESERVATION_INTERRUPTIBLE, self.kind.interruptible_label()),
        ]
    }
}

crate::words! {
    /// Which instances a reservation takes: `instanceMatchCriteria`. Its words are EC2's.
    #[derive(serde::Deserialize)]
    #[serde(rename = "an instance match criterion", rename_all = "lowercase")]
    pub enum MatchCriteria {
        /// Any matching instance, unless its launch opts out.
        Open = "open",
        /// Those that name it.
        Targeted = "targeted",
    }
}

crate::words! {
    /// Whether instances can be launched into a reservation: `state` in the class's status. Its words are the peer's.
    pub enum ReservationState {
        /// They can.
        Active = "active",
        /// It ends soon.
        Expiring = "expiring",
    }
}

/// A capacity reservation that a class resolved to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassReservation {
    /// The reservation.
    pub id: ReservationId,
    /// The account that owns it.
    pub owner: String,
    /// The only type that it holds.
    pub instance_type: InstanceType,
    /// Its zone's name in this account.
    pub zone: Zone,
    /// Which instances it takes.
    pub match_criteria: MatchCriteria,
    /// Its kind.
    pub kind: ReservationKind,
    /// When it ends, if it does.
    pub ends_at: Option<Timestamp>,
    /// Its free instances at the time of the query.
    pub available: u32,
}

impl ClassReservation {
    /// Whether instances can be launched into it.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> ReservationState {
        let ends = match self.kind {
            ReservationKind::CapacityBlock => self.ends_at,
            ReservationKind::Default | ReservationKind::Interruptible => None,
        };
        if ends.is_some_and(|ends| ends.duration_since(now) <= BLOCK_EXPIRING) {
            ReservationState::Expiring
        } else {
            ReservationState::Active
        }
    }
}

/// The reservations of a class, by id. They can be stored and shown; decisions by them need the gate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassReservations(Vec<ClassReservation>);

impl ClassReservations {
    /// Newly resolved reservations, which need the open gate.
    #[must_use]
    pub fn resolved(_: ReservedCapacity, found: Vec<ClassReservation>) -> Self {
        Self::restored(found)
    }

    /// Stored reservations.
    #[must_use]
    pub fn restored(mut kept: Vec<ClassReservation>) -> Self {
        kept.sort();
        Self(kept)
    }

    /// The reservations for storing and showing. They support no decision.
    #[must_use]
    pub fn shown(&self) -> &[ClassReservation] {
        &self.0
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a reservation is among them.
    #[must_use]
    pub fn has(&self, _: ReservedCapacity, id: &ReservationId) -> bool {
        self.0.iter().any(|reservation| reservation.id == *id)
    }

    /// The reservations with all counts at zero, to compare everything else.
    #[must_use]
    pub fn without_counts(&self) -> Self {
        Self(self.0.iter().map(|one| ClassReservation { available: 0, ..one.clone() }).collect())
    }
}

/// The reservations for a class's launches, with their free capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservations<'a> {
    by_type: BTreeMap<&'a InstanceType, Vec<(&'a ClassReservation, u32)>>,
}

impl<'a> Reservations<'a> {
    /// A class's reservations, less the instances launched into them since the query.
    #[must_use]
    pub fn left(
        _: ReservedCapacity,
        of: &'a ClassReservations,
        launched: &BTreeMap<ReservationId, u32>,
    ) -> Self {
        let mut by_type: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for reservation in &of.0 {
            let taken = launched.get(&reservation.id).copied().unwrap_or(0);
            let left = reservation.available.saturating_sub(taken);
            by_type.entry(&reservation.instance_type).or_default().push((reservation, left));
        }
        Self { by_type }
    }

    /// The reservations of a type, by id, each with its free instances.
    #[must_use]
    pub fn of_type(&self, name: &InstanceType) -> &[(&'a ClassReservation, u32)] {
        self.by_type.get(name).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation(id: &str, kind: ReservationKind) -> ClassReservation {
        ClassReservation {
            id: ReservationId::parse(id).unwrap(),
            owner: "123456789012".to_owned(),
            instance_type: InstanceType::parse("m5.large").unwrap(),
            zone: Zone::parse("us-east-1a").unwrap(),
            match_criteria: MatchCriteria::Targeted,
            kind,
            ends_at: Some(Timestamp::from_second(7200).unwrap()),
            available: 3,
        }
    }

    fn with(gate: FeatureGate) -> Gates {
        Gates::default().with(GateName::ReservedCapacity, gate)
    }

    fn right() -> ReservedCapacity {
        ReservedCapacity::behind(&with(FeatureGate::Enabled)).unwrap()
    }

    #[test]
    fn with_the_gate_off_there_is_no_right_to_look_at_reservations() {
        assert_eq!(ReservedCapacity::behind(&Gates::default()), None);
        assert_eq!(ReservedCapacity::behind(&with(FeatureGate::Disabled)), None);
    }

    #[test]
    fn c071_only_a_capacity_block_expires_forty_minutes_before_its_end() {
        let check = |kind, seconds: i64, expected| {
            let state = reservation("cr-1", kind).state(Timestamp::from_second(seconds).unwrap());
            assert_eq!(state, expected, "{kind:?} at {seconds}");
        };
        check(ReservationKind::CapacityBlock, 7200 - 2401, ReservationState::Active);
        check(ReservationKind::CapacityBlock, 7200 - 2400, ReservationState::Expiring);
        check(ReservationKind::Default, 7199, ReservationState::Active);
        check(ReservationKind::Interruptible, 7199, ReservationState::Active);
    }

    #[test]
    fn what_was_launched_since_is_taken_from_what_ec2_said() {
        let kept = ClassReservations::resolved(
            right(),
            vec![
                reservation("cr-2", ReservationKind::Default),
                reservation("cr-1", ReservationKind::Default),
            ],
        );
        let launched = BTreeMap::from([(ReservationId::parse("cr-1").unwrap(), 5)]);
        let left = Reservations::left(right(), &kept, &launched);
        let found: Vec<(&str, u32)> = left
            .of_type(&InstanceType::parse("m5.large").unwrap())
            .iter()
            .map(|(reservation, left)| (reservation.id.as_str(), *left))
            .collect();
        assert_eq!(found, [("cr-1", 0), ("cr-2", 3)]);
        assert_eq!(left.of_type(&InstanceType::parse("m5.xlarge").unwrap()), []);
        assert!(kept.has(right(), &ReservationId::parse("cr-2").unwrap()));
        assert!(!kept.has(right(), &ReservationId::parse("cr-3").unwrap()));
    }
}
