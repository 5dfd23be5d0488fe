//! `LAUNCH#`: a launch, with its claims and their counted pods.
//!
//! Decides the text of a counted pod: `<namespace>/<name>/<uid>`, which is short, because there may be many.

use std::str::FromStr;

use tenon_domain::id::{NamespacedName, ParseIdError, Uid};
use tenon_domain::launch::{CountedPod, Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::unavailable::RequestDigest;

use super::deflated::{deflate, inflate};
use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm};
use super::placement::{read_placement, write_placement};
use super::reservation::{read_reservation, write_reservation};
use crate::key::REVISION;
use crate::value::Value;

const REQUEST: &str = "request";

impl ItemForm for Launch {
    fn write(&self, to: &mut Attributes) {
        to.text("id", &self.id);
        to.number(REVISION, self.revision);
        to.text("pool", &self.pool);
        to.text("class", &self.class);
        to.text("token", &self.token);
        write_request(&self.request, to);
        to.text_if("made_from", self.made_from.as_ref().map(ToString::to_string));
        write_reservation(self.reservation.as_ref(), to);
        write_placement(self.placement.as_ref(), to);
        to.list("claims", &self.claims, |claim, to| {
            to.text("name", &claim.name);
            to.texts("pods", claim.pods.iter().map(|pod| format!("{}/{}", pod.name, pod.uid)));
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
                return Err(FieldError::at("phase", FieldProblem::Invalid(message)));
            }
        };
        Ok(Self {
            id: from.parsed("id")?,
            revision: from.u64(REVISION)?,
            pool: from.parsed("pool")?,
            class: from.parsed("class")?,
            token: from.parsed("token")?,
            request: read_request(from)?,
            made_from: from.text_if("made_from")?.and_then(RequestDigest::parse),
            reservation: read_reservation(from)?,
            placement: read_placement(from)?,
            claims: from.list("claims", |from| {
                let pods: Vec<PodText> = from.texts("pods")?;
                Ok(LaunchClaim {
                    name: from.parsed("name")?,
                    pods: pods.into_iter().map(|pod| pod.0).collect(),
                })
            })?,
            cause: replacement_of.map_or(LaunchCause::PendingPods, LaunchCause::Replacement),
            created_at: from.time("created_at")?,
            state,
        })
    }
}

/// The longest request that is read: a launch template's overrides take 200 bytes each, and EC2 takes 300 of them.
const REQUEST_BYTES: u64 = 1 << 20;

/// A request is 20 KB of overrides that are alike, and is written with every step of its launch.
fn write_request(request: &str, to: &mut Attributes) {
    match deflate(request.as_bytes()) {
        Ok(deflated) => to.value(REQUEST, Value::B(deflated)),
        Err(_) => to.text(REQUEST, request),
    }
}

/// Deflated, or plain as earlier releases wrote it.
fn read_request(from: Fields<'_>) -> Result<String, FieldError> {
    if !matches!(from.value(REQUEST)?, Value::B(_)) {
        return from.string(REQUEST);
    }
    let plain = inflate(from.bytes(REQUEST)?, REQUEST_BYTES).map_err(|error| error.to_string());
    let text = plain.and_then(|plain| String::from_utf8(plain).map_err(|error| error.to_string()));
    text.map_err(|error| FieldError::at(REQUEST, FieldProblem::Invalid(error)))
}

/// A counted pod as one text.
struct PodText(CountedPod);

impl FromStr for PodText {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let expected = "`<namespace>/<name>/<uid>`";
        let malformed = || ParseIdError { kind: "counted pod", value: text.to_owned(), expected };
        let (namespace, rest) = text.split_once('/').ok_or_else(malformed)?;
        let (name, uid) = rest.split_once('/').ok_or_else(malformed)?;
        let name = NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() };
        Ok(Self(CountedPod { name, uid: Uid::parse(uid)? }))
    }
}
