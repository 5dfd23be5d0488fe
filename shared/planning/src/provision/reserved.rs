//! Which claims of a plan use which capacity reservation.
//!
//! Decides it exactly: a reservation gets as many claims as it has room for, over all pools, and the rest is packed
//! again without it. So no claim waits for another plan, and none is launched into a full reservation. It doesn't
//! decide the type of a claim: packing does, and sees a reserved type as almost free.
//!
//! Invariants: in the plans of one input, no reservation gets more claims than it has room for; packing again ends,
//! because each round closes a reservation.
//!
//! Source: kubernetes-sigs/karpenter `pkg/controllers/provisioning/scheduling/reservationmanager.go`. The peer plans
//! one claim at a time for reservations that overlap.

use std::collections::BTreeMap;

use tenon_domain::catalog::Offering;
use tenon_domain::id::ReservationId;

use super::draft::Draft;
use super::pool::Pool;
use super::trials::Spent;

/// Whether claims without a reservation are packed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// They are, without the reservations that are used up.
    Yes,
    /// Everything is planned.
    No,
}

/// The free capacity of the reservations while a plan is made.
#[derive(Debug)]
pub(crate) struct ReservedRoom {
    /// What earlier plans on the same input have used.
    taken: BTreeMap<ReservationId, u32>,
    left: BTreeMap<ReservationId, u32>,
}

impl ReservedRoom {
    /// All that earlier plans have left.
    pub(crate) fn besides(spent: &Spent) -> Self {
        Self { taken: spent.reserved().clone(), left: BTreeMap::new() }
    }

    /// Gives each draft with reserved offerings its reservation, and splits a draft that needs several. Claims
    /// without room are dropped, and their charges returned to the pool's limits.
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
                let before = self.taken.get(&reservation.id).copied().unwrap_or_default();
                let left = self.left.entry(reservation.id.clone());
                let left = left.or_insert(reservation.left.saturating_sub(before));
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

    /// Closes the reservations that claims of any pool have used up.
    pub(crate) fn close(&self, pool: &mut Pool<'_>) {
        let used_up = self.left.iter().filter(|(_, left)| **left == 0).map(|(id, _)| id);
        pool.close(used_up);
    }
}

/// Whether a claim of a draft may use an offering: one of the draft's own reservation, or one of none.
pub(crate) fn may_use(offering: &Offering, reservation: Option<&ReservationId>) -> bool {
    offering.reservation.as_ref().is_none_or(|of| Some(&of.id) == reservation)
}
