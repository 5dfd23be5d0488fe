//! Which claims of a plan go into which capacity reservation.
//!
//! Decides that exactly: a reservation is planned for as many claims as it has room for, over all pools, and what is
//! more is packed anew without it. So no claim waits for another plan, and none is launched into what is full. It
//! doesn't decide which types hold what: packing does, to which a reserved type is almost free.
//!
//! Invariant: of the plans of one input no reservation holds more claims than it has room for; packing again ends,
//! since each time a reservation fewer is open.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/provisioning/scheduling/reservationmanager.go`. The peer plans
//! one claim at a time for reservations that overlap.

use std::collections::BTreeMap;

use tenon_domain::catalog::Offering;
use tenon_domain::id::ReservationId;

use super::pack::Draft;
use super::pool::Pool;

/// Whether what didn't get into a reservation is to be packed anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It is, once the reservations that are used up are closed.
    Yes,
    /// Everything is planned.
    No,
}

/// What is left of the reservations while a plan is made.
#[derive(Debug, Default)]
pub(crate) struct Room {
    left: BTreeMap<ReservationId, u32>,
}

impl Room {
    /// Gives each draft whose type is had by reservations its own, and splits one that takes several. What finds no
    /// room is dropped, and given back to the pool's limits.
    pub(crate) fn admit(&mut self, pool: &mut Pool<'_>, drafts: Vec<Draft>) -> (Vec<Draft>, Again) {
        let mut admitted = Vec::with_capacity(drafts.len());
        let mut again = Again::No;
        for draft in drafts {
            let reserved = pool.reserved(draft.class, draft.type_index);
            if reserved.is_empty() {
                admitted.push(draft);
                continue;
            }
            let mut times = draft.times;
            for reservation in reserved {
                let left = self.left.entry(reservation.id.clone()).or_insert(reservation.left);
                let taken = times.min(*left);
                *left -= taken;
                times -= taken;
                if taken > 0 {
                    let reservation = Some(reservation.id);
                    admitted.push(Draft { times: taken, reservation, ..draft.clone() });
                }
            }
            if times > 0 {
                pool.refund(draft.type_index, times);
                again = Again::Yes;
            }
        }
        (admitted, again)
    }

    /// Closes in a pool what claims have used up, other pools' among them.
    pub(crate) fn close(&self, pool: &mut Pool<'_>) {
        let used_up = self.left.iter().filter(|(_, left)| **left == 0).map(|(id, _)| id);
        pool.close(used_up);
    }
}

/// Whether a claim of a draft may be had by an offering: by the draft's own reservation, or by none.
pub(crate) fn may_use(offering: &Offering, reservation: Option<&ReservationId>) -> bool {
    offering.reservation.as_ref().is_none_or(|of| Some(&of.id) == reservation)
}
