//! All combinations of what a look can see of a class, and what its conditions may then say.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::image::ImageNotices;
use super::{
    ClassObservation, ClassStatus, Condition, ConditionReason, ConditionStatus, ConditionType, Seen,
    SeenReservations,
};
use crate::api::node_class::InstanceProfile;
use crate::registry::{FeatureGate, GateName, Gates};
use crate::reservation::ReservedCapacity;

/// What a look sees of one part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Holds,
    Refused,
    Unseen,
}

const SIGHTS: [Sight; 3] = [Sight::Holds, Sight::Refused, Sight::Unseen];
const IF_ASKED: [Option<Sight>; 4] = [None, Some(Sight::Holds), Some(Sight::Refused), Some(Sight::Unseen)];

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn seen<T>(sight: Sight, value: T, reason: ConditionReason) -> Seen<T> {
    let message = "a sentence".to_owned();
    match sight {
        Sight::Holds => Seen::Holds(value),
        Sight::Refused => Seen::Refused { reason, message },
        Sight::Unseen => Seen::Unseen { reason, message, next_try: at(90) },
    }
}

/// One combination.
#[derive(Debug, Clone, Copy)]
struct Sights {
    images: Sight,
    subnets: Sight,
    groups: Sight,
    profile: Sight,
    validation: Sight,
    reservations: Option<Sight>,
    placement: Option<Sight>,
    shifts: Option<Sight>,
}

impl Sights {
    fn all() -> impl Iterator<Item = Self> {
        let mut all = Vec::new();
        for images in SIGHTS {
            for subnets in SIGHTS {
                for groups in SIGHTS {
                    for profile in SIGHTS {
                        for validation in SIGHTS {
                            for reservations in IF_ASKED {
                                for placement in IF_ASKED {
                                    for shifts in IF_ASKED {
                                        all.push(Self {
                                            images,
                                            subnets,
                                            groups,
                                            profile,
                                            validation,
                                            reservations,
                                            placement,
                                            shifts,
                                        });
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        all.into_iter()
    }

    fn observation(self) -> ClassObservation {
        let right = ReservedCapacity::behind(
            &Gates::default().with(GateName::ReservedCapacity, FeatureGate::Enabled),
        )
        .unwrap();
        let group = crate::placement::ResolvedPlacementGroup {
            id: "pg-1".parse().unwrap(),
            name: "group".to_owned(),
            strategy: crate::catalog::facts::PlacementStrategy::Spread,
            partitions: None,
        };
        ClassObservation {
            name: "default".parse().unwrap(),
            generation: 1,
            uid: None,
            spec_digest: "abc".to_owned(),
            hash: None,
            images: seen(self.images, Vec::new(), ConditionReason::AmiNotFound),
            image_notices: ImageNotices::default(),
            subnets: seen(self.subnets, Vec::new(), ConditionReason::SubnetsNotFound),
            security_groups: seen(self.groups, Vec::new(), ConditionReason::SecurityGroupsNotFound),
            instance_profile: seen(
                self.profile,
                InstanceProfile::Name("nodes".to_owned()),
                ConditionReason::InstanceProfileNotFound,
            ),
            asked_profile: None,
            profile_seen: None,
            reservations: self.reservations.map(|sight| SeenReservations {
                right,
                seen: seen(sight, Vec::new(), ConditionReason::CapacityReservationResolutionFailed),
            }),
            placement_group: self
                .placement
                .map(|sight| seen(sight, group, ConditionReason::PlacementGroupNotFound)),
            shifts: self
                .shifts
                .map(|sight| seen(sight, BTreeSet::new(), ConditionReason::ZonalShiftResolutionFailed)),
            validation_note: None,
            validation: seen(self.validation, (), ConditionReason::LaunchRefused),
            unsupported: Vec::new(),
        }
    }

    /// What was seen of a condition's own part; nothing of one that follows from others.
    fn of(self, condition: ConditionType) -> Option<Sight> {
        match condition {
            ConditionType::AmisReady => Some(self.images),
            ConditionType::SubnetsReady => Some(self.subnets),
            ConditionType::SecurityGroupsReady => Some(self.groups),
            ConditionType::InstanceProfileReady => Some(self.profile),
            ConditionType::CapacityReservationsReady => self.reservations,
            ConditionType::PlacementGroupReady => self.placement,
            ConditionType::ZonesInService => self.shifts,
            ConditionType::ValidationSucceeded => Some(self.validation),
            ConditionType::Ready | ConditionType::Unsupported => None,
        }
    }
}

/// Conditions that `Ready` follows from.
fn is_below_ready(condition: ConditionType) -> bool {
    ![ConditionType::Ready, ConditionType::Unsupported, ConditionType::ZonesInService].contains(&condition)
}

fn check(sights: Sights, status: &ClassStatus) -> Result<(), String> {
    let told = |condition: &Condition| (condition.condition, condition.status);
    let types: BTreeSet<ConditionType> = status.conditions.iter().map(|c| c.condition).collect();
    if types.len() != status.conditions.len() {
        return Err("one condition is told twice".to_owned());
    }
    for condition in &status.conditions {
        let sight = sights.of(condition.condition);
        let why = match condition.status {
            ConditionStatus::True if sight.is_some_and(|sight| sight != Sight::Holds) => {
                "True, and not seen to hold"
            }
            ConditionStatus::Unknown if condition.message.is_empty() => "Unknown without a reason",
            ConditionStatus::Unknown if condition.next_try.is_none() => "Unknown without a next try",
            ConditionStatus::False if condition.message.is_empty() => "False without a sentence",
            ConditionStatus::True | ConditionStatus::False | ConditionStatus::Unknown => continue,
        };
        return Err(format!("{:?} is {why}", told(condition)));
    }
    let below = || status.conditions.iter().filter(|condition| is_below_ready(condition.condition));
    let expected = if below().all(|condition| condition.status == ConditionStatus::True) {
        ConditionStatus::True
    } else if below().any(|condition| condition.status == ConditionStatus::False) {
        ConditionStatus::False
    } else {
        ConditionStatus::Unknown
    };
    let ready = status.condition(ConditionType::Ready).map(|ready| ready.status);
    if ready != Some(expected) {
        return Err(format!("Ready is {ready:?}, and what it follows from says {expected:?}"));
    }
    if status.obstacle().is_none() != (expected == ConditionStatus::True) {
        return Err("an obstacle is named if and only if the class isn't ready".to_owned());
    }
    if expected == ConditionStatus::True && !status.launchable() {
        return Err("the class is ready, and nothing may be launched from it".to_owned());
    }
    let validation = status.condition(ConditionType::ValidationSucceeded).map(|found| found.status);
    let others = below().filter(|condition| condition.condition != ConditionType::ValidationSucceeded);
    if validation == Some(ConditionStatus::True)
        && others.into_iter().any(|condition| condition.status != ConditionStatus::True)
    {
        return Err("the validation succeeded of a class that has no part to launch with".to_owned());
    }
    Ok(())
}

#[test]
fn no_two_conditions_contradict_each_other_whatever_a_look_sees() {
    let before = Sights {
        images: Sight::Holds,
        subnets: Sight::Holds,
        groups: Sight::Holds,
        profile: Sight::Holds,
        validation: Sight::Holds,
        reservations: Some(Sight::Holds),
        placement: Some(Sight::Holds),
        shifts: Some(Sight::Holds),
    };
    let before = ClassStatus::observed(before.observation(), None, at(0));
    let mut count = 0;
    for sights in Sights::all() {
        for previous in [None, Some(&before)] {
            let status = ClassStatus::observed(sights.observation(), previous, at(60));
            if let Err(why) = check(sights, &status) {
                panic!("{why}: {sights:?}, previous: {}", previous.is_some());
            }
            count += 1;
        }
    }
    assert_eq!(count, 2 * 3_usize.pow(5) * 4_usize.pow(3));
}
