//! Capacity reservations in classes, launches and claims.
//!
//! Decides the attributes' names. Older items have none.

use tenon_domain::reservation::{
    ClassReservation, ClassReservations, LaunchedInto, MatchCriteria, ReservationKind,
};

use super::form::{Attributes, FieldError, Fields};

const RESERVATIONS: &str = "capacity_reservations";
const RESERVATION: &str = "capacity_reservation";

pub(super) fn write_reservations(reservations: &ClassReservations, to: &mut Attributes) {
    let some = (!reservations.is_empty()).then(|| reservations.shown());
    to.list_if(RESERVATIONS, some, |reservation, to| {
        to.text("id", &reservation.id);
        to.text("owner", &reservation.owner);
        to.text("instance_type", &reservation.instance_type);
        to.text("zone", &reservation.zone);
        to.text("match_criteria", reservation.match_criteria.as_str());
        to.text("kind", reservation.kind.as_str());
        to.time_if("ends_at", reservation.ends_at);
        to.number("available", reservation.available);
    });
}

pub(super) fn read_reservations(from: Fields<'_>) -> Result<ClassReservations, FieldError> {
    let kept = from.known_list(RESERVATIONS, |from| {
        Ok(ClassReservation {
            id: from.parsed("id")?,
            owner: from.string("owner")?,
            instance_type: from.parsed("instance_type")?,
            zone: from.parsed("zone")?,
            match_criteria: from.word("match_criteria", MatchCriteria::parse)?,
            kind: from.word("kind", ReservationKind::parse)?,
            ends_at: from.time_if("ends_at")?,
            available: from.u32("available")?,
        })
    })?;
    Ok(ClassReservations::restored(kept))
}

pub(super) fn write_reservation(reservation: Option<&LaunchedInto>, to: &mut Attributes) {
    to.map_if(RESERVATION, reservation, |reservation, to| {
        to.text("id", &reservation.id);
        to.text("kind", reservation.kind.as_str());
    });
}

pub(super) fn read_reservation(from: Fields<'_>) -> Result<Option<LaunchedInto>, FieldError> {
    from.map_if(RESERVATION, |from| {
        Ok(LaunchedInto { id: from.parsed("id")?, kind: ReservationKind::of_any_release(from.text("kind")?) })
    })
}
