//! `LAUNCH#`: a launch, with its claims and the UIDs of their counted pods.
//!
//! Decides nothing but its form. The names of the pods are in the journal: each step of a launch is charged for its
//! whole item, and no step needs them.

use tenon_domain::launch::{Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::unavailable::RequestDigest;

use super::deflated::{read_deflated, write_deflated};
use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm};
use super::placement::{read_placement, write_placement};
use super::reservation::{read_reservation, write_reservation};
use super::uids::{read_uids, write_uids};
use crate::key::REVISION;

const REQUEST: &str = "request";
const PODS: &str = "pods";

impl ItemForm for Launch {
    fn write(&self, to: &mut Attributes) {
        to.text("id", &self.id);
        to.number(REVISION, self.revision);
        to.text("pool", &self.pool);
        to.text("class", &self.class);
        to.text("token", &self.token);
        // 20 KB of overrides that are alike, which are written with every step of the launch.
        write_deflated(REQUEST, &self.request, to);
        to.text_if("made_from", self.made_from.as_ref().map(ToString::to_string));
        write_reservation(self.reservation.as_ref(), to);
        write_placement(self.placement.as_ref(), to);
        to.list("claims", &self.claims, |claim, to| {
            to.text("name", &claim.name);
            write_uids(PODS, &claim.pods, to);
        });
        let replacement_of = match &self.cause {
            LaunchCause::PendingPods => None,
            LaunchCause::Replacement(command) => Some(command),
        };
        to.text_if("replacement_of", replacement_of);
        to.time("created_at", self.created_at);
        let (phase, attempts, not_before, settled_at, instances) = match &self.state {
            LaunchState::Requested { attempts, not_before } => {
                ("Requested", Some(*attempts), Some(*not_before), None, None)
            }
            LaunchState::Settled { at, instances } => ("Settled", None, None, Some(*at), Some(*instances)),
        };
        to.text("phase", phase);
        to.number_if("attempts", attempts);
        to.time_if("not_before", not_before);
        to.time_if("settled_at", settled_at);
        to.number_if("instances", instances);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let replacement_of = from.parsed_if("replacement_of")?;
        let state = match from.text("phase")? {
            "Requested" => LaunchState::Requested {
                attempts: from.u32("attempts")?,
                not_before: from.time("not_before")?,
            },
            "Settled" => {
                LaunchState::Settled { at: from.time("settled_at")?, instances: from.u32("instances")? }
            }
            other => {
                let message = format!("`{other}` isn't a launch's phase: expected `Requested` or `Settled`");
                return Err(FieldError::at("phase", FieldProblem::Unknown(message)));
            }
        };
        Ok(Self {
            id: from.parsed("id")?,
            revision: from.u64(REVISION)?,
            pool: from.parsed("pool")?,
            class: from.parsed("class")?,
            token: from.parsed("token")?,
            request: read_deflated(REQUEST, from, REQUEST_BYTES)?,
            made_from: from.text_if("made_from")?.and_then(RequestDigest::parse),
            reservation: read_reservation(from)?,
            placement: read_placement(from)?,
            claims: from.list("claims", |from| {
                Ok(LaunchClaim { name: from.parsed("name")?, pods: read_uids(PODS, from)? })
            })?,
            cause: replacement_of.map_or(LaunchCause::PendingPods, LaunchCause::Replacement),
            created_at: from.time("created_at")?,
            state,
        })
    }
}

/// The longest request that is read: a launch template's overrides take 200 bytes each, and EC2 takes 300 of them.
const REQUEST_BYTES: u64 = 1 << 20;
