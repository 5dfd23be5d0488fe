//! Capacity reservations of the twin.
//!
//! Decides which instances are in one: those whose template targets it, and those of a template without a preference,
//! if an open one matches. A reservation's free capacity is counted from its instances. It doesn't model quotas,
//! tenancy or platforms of reservations.
//!
//! Invariant: a reservation never holds more instances than its size.

use tenon_domain::id::{InstanceId, ReservationId};
use tenon_domain::reservation::{MatchCriteria, ReservationKind};

use super::call::Call;
use super::capacity::CapacityPool;
use super::fleet::OverrideError;
use super::state::{TwinState, error};
use super::{NotPossible, refuse};
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    CapacityReservation, CapacityReservationFilter, InstanceState, ReservationPreference, TargetCapacityType,
};

/// The source of a launch's capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CapacitySource {
    /// The pool; matching open reservations first, if the template allows them.
    Pool {
        /// The open reservations that match.
        open: Vec<ReservationId>,
    },
    /// This reservation and nothing else.
    Reservation(ReservationId),
}

/// EC2's words where a targeted reservation can't take an instance.
fn exceeded() -> OverrideError {
    let message = "The requested reservation does not have sufficient compatible and available capacity for this request.";
    ("ReservationCapacityExceeded".to_owned(), message.to_owned())
}

impl TwinState {
    /// Makes a reservation; its `available` is how many instances it is for.
    pub(super) fn add_reservation(&mut self, made: CapacityReservation) -> Result<(), NotPossible> {
        let (id, zone) = (made.id.clone(), &made.zone);
        if !self.offered.get(&made.instance_type).is_some_and(|zones| zones.contains(zone)) {
            return refuse(format!("zone `{zone}` doesn't offer `{}`", made.instance_type));
        }
        if made.kind != ReservationKind::Default {
            return refuse(format!("reservation `{id}`: the twin has no kind but `default`"));
        }
        self.reservations.insert(id, made);
        Ok(())
    }

    /// Ends a reservation: its instances keep running without one.
    pub(super) fn end_reservation(&mut self, id: &ReservationId) -> Result<(), NotPossible> {
        if self.reservations.remove(id).is_none() {
            return refuse(format!("reservation `{id}` doesn't exist"));
        }
        for twin in self.instances.values_mut() {
            if twin.instance().reservation.as_ref() == Some(id) {
                twin.change().instance.reservation = None;
            }
        }
        Ok(())
    }

    /// How many instances a reservation has room for.
    pub(super) fn room(&self, id: &ReservationId) -> u32 {
        let Some(made) = self.reservations.get(id) else { return 0 };
        let inside =
            self.instances.values().map(super::instances::TwinInstance::instance).filter(|instance| {
                instance.reservation.as_ref() == Some(id) && instance.state != InstanceState::Terminated
            });
        made.available.saturating_sub(u32::try_from(inside.count()).unwrap_or(u32::MAX))
    }

    pub(super) fn reservations_matching(
        &self,
        filter: &CapacityReservationFilter,
    ) -> Result<Vec<CapacityReservation>, Ec2Error> {
        let unknown = |id: &&String| !self.reservations.keys().any(|known| known.as_str() == id.as_str());
        if let Some(id) = filter.ids.iter().find(unknown) {
            let message = format!("The capacity reservation ID '{id}' does not exist");
            return Err(error(
                Call::DescribeCapacityReservations,
                "InvalidCapacityReservationId.NotFound",
                &message,
            ));
        }
        let matches = |made: &&CapacityReservation| {
            (filter.ids.is_empty() || filter.ids.iter().any(|id| id == made.id.as_str()))
                && filter.owner.as_ref().is_none_or(|owner| *owner == made.owner)
                && filter.match_criteria.is_none_or(|criteria| criteria == made.match_criteria)
                && filter.tags.iter().all(|tag| tag.matches(&made.tags))
        };
        let shown = |made: &CapacityReservation| CapacityReservation {
            available: self.room(&made.id),
            ..made.clone()
        };
        Ok(self.reservations.values().filter(matches).map(shown).collect())
    }

    /// The source of a launch's capacity, by its template.
    pub(super) fn source(
        &self,
        pool: &CapacityPool,
        preference: Option<&ReservationPreference>,
    ) -> Result<CapacitySource, OverrideError> {
        let fits = |made: &CapacityReservation| {
            made.instance_type == pool.instance_type
                && made.zone == pool.zone
                && pool.capacity_type == TargetCapacityType::OnDemand
        };
        match preference {
            Some(ReservationPreference::None) => Ok(CapacitySource::Pool { open: Vec::new() }),
            Some(ReservationPreference::Only(id)) => {
                match self.reservations.get(id).filter(|made| fits(made)) {
                    Some(_) => Ok(CapacitySource::Reservation(id.clone())),
                    None => Err(exceeded()),
                }
            }
            None => {
                let open = self.reservations.values();
                let open = open.filter(|made| made.match_criteria == MatchCriteria::Open && fits(made));
                Ok(CapacitySource::Pool { open: open.map(|made| made.id.clone()).collect() })
            }
        }
    }

    /// How many of `wanted` a reservation has room for, and the error where that is too few.
    pub(super) fn fit_reservation(&self, id: &ReservationId, wanted: u32) -> (u32, Option<OverrideError>) {
        let fit = self.room(id).min(wanted);
        (fit, (fit < wanted).then(exceeded))
    }

    /// How many instances the open reservations of a source have room for.
    pub(super) fn open_room(&self, open: &[ReservationId]) -> u32 {
        open.iter().map(|id| self.room(id)).fold(0, u32::saturating_add)
    }

    /// The reservation of the next instance from a source.
    pub(super) fn next_reservation(&self, source: &CapacitySource) -> Option<ReservationId> {
        match source {
            CapacitySource::Reservation(id) => Some(id.clone()),
            CapacitySource::Pool { open } => open.iter().find(|id| self.room(id) > 0).cloned(),
        }
    }

    /// Whether an instance got its capacity from a pool, which has it back when the instance ends.
    pub(super) fn is_of_pool(&self, id: &InstanceId) -> bool {
        self.instances.get(id).is_some_and(|twin| twin.instance().reservation.is_none())
    }
}
