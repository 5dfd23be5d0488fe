//! The zones that a cluster is shifted away from, as a look at a class sees them.
//!
//! Decides what ARC's answer or its absence means. It doesn't decide which subnets are in those zones.
//!
//! Invariant: without an answer no shift ends and none begins.

use std::collections::BTreeSet;

use tenon_domain::class_status::{
    ClassStatus, Condition, ConditionReason, ConditionStatus, ConditionType, Seen,
};
use tenon_domain::wait::later;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::{Ec2Error, right_of};
use tenon_runtime::error::chain;

use super::ClassLook;
use crate::plan::{PartAnswer, RETRY_AFTER, SHIFTS_EVERY};

impl ClassLook<'_> {
    /// The cluster's shifted zones. Without an answer from ARC they stay as they are.
    pub(super) fn shifts(
        &mut self,
        answer: &PartAnswer<BTreeSet<ShiftedZone>>,
    ) -> Seen<BTreeSet<ShiftedZone>> {
        let error = match answer {
            PartAnswer::NotAsked => return self.stored_shifts(),
            PartAnswer::Answered(Ok(found)) => return Seen::Holds(found.clone()),
            PartAnswer::Answered(Err(error)) => error,
        };
        let reason = ConditionReason::ZonalShiftResolutionFailed;
        let next_look = later(self.input.now, SHIFTS_EVERY);
        match error {
            Ec2Error::NotFound { .. } => {
                let message = format!(
                    "zonal shift isn't enabled for cluster `{}`: enable it in EKS, or set `ZonalShift` to `Disabled` in its stack",
                    self.input.cluster
                );
                Seen::Refused { reason, message }
            }
            Ec2Error::Unauthorized { action, .. } => {
                let message = format!(
                    "{}; allow function `node-classes` the action `{}`",
                    chain(error),
                    right_of(action)
                );
                Seen::Unseen { reason, message, next_try: next_look }
            }
            Ec2Error::Invalid { .. } | Ec2Error::Unknown { .. } => {
                Seen::Unseen { reason, message: chain(error), next_try: next_look }
            }
            Ec2Error::Throttled { .. }
            | Ec2Error::AlreadyExists { .. }
            | Ec2Error::IdempotentParameterMismatch { .. }
            | Ec2Error::Refused { .. }
            | Ec2Error::ServerError { .. }
            | Ec2Error::NoAnswer { .. } => self.shifts_as_before().unwrap_or_else(|| {
                self.look_in(RETRY_AFTER);
                let next_try = later(self.input.now, RETRY_AFTER);
                Seen::Unseen { reason, message: chain(error), next_try }
            }),
        }
    }

    /// The shifts as the class's status has them.
    fn stored_shifts(&self) -> Seen<BTreeSet<ShiftedZone>> {
        let told = self.previous.and_then(|known| known.condition(ConditionType::ZonesInService));
        match told.filter(|told| told.reason == ConditionReason::ZonalShiftResolutionFailed) {
            Some(told) => match told.status {
                ConditionStatus::Unknown => Seen::Unseen {
                    reason: told.reason,
                    message: told.message.clone(),
                    next_try: told.next_try.unwrap_or_else(|| later(self.input.now, SHIFTS_EVERY)),
                },
                ConditionStatus::True | ConditionStatus::False => {
                    Seen::Refused { reason: told.reason, message: told.message.clone() }
                }
            },
            None => Seen::Holds(self.input.statuses.values().flat_map(ClassStatus::shifts).collect()),
        }
    }

    /// ARC's last answer, from any class: shifts belong to the cluster.
    fn shifts_as_before(&mut self) -> Option<Seen<BTreeSet<ShiftedZone>>> {
        let condition = ConditionType::ZonesInService;
        let told = || self.input.statuses.values().filter_map(|known| known.condition(condition));
        let failed = |told: &&Condition| told.reason == ConditionReason::ZonalShiftResolutionFailed;
        if told().any(|told| !failed(&told)) {
            self.kept.insert(condition);
            return Some(Seen::Holds(self.input.statuses.values().flat_map(ClassStatus::shifts).collect()));
        }
        let refused = told().find(|told| failed(told) && told.status == ConditionStatus::False)?;
        let (reason, message) = (refused.reason, refused.message.clone());
        self.kept.insert(condition);
        Some(Seen::Refused { reason, message })
    }
}
