//! `LAUNCH#`: a launch, with its claims and the pods that are counted on them.
//!
//! Decides how a counted pod is written: `<namespace>/<name>/<uid>` in one text, since there may be many.

use std::str::FromStr;

use tenon_domain::id::{NamespacedName, ParseIdError, Uid};
use tenon_domain::launch::{CountedPod, Launch, LaunchCause, LaunchClaim, LaunchState};

use super::form::{Attributes, FieldError, Fields, Form, Problem};
use super::reservation::{read_reservation, write_reservation};
use crate::key::REVISION;

impl Form for Launch {
    fn write(&self, to: &mut Attributes) {
        to.text("id", &self.id);
        to.number(REVISION, self.revision);
        to.text("pool", &self.pool);
        to.text("class", &self.class);
        to.text("token", &self.token);
        to.text("request", &self.request);
        write_reservation(self.reservation.as_ref(), to);
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
                return Err(FieldError::at("phase", Problem::Invalid(message)));
            }
        };
        Ok(Self {
            id: from.parsed("id")?,
            revision: from.u64(REVISION)?,
            pool: from.parsed("pool")?,
            class: from.parsed("class")?,
            token: from.parsed("token")?,
            request: from.string("request")?,
            reservation: read_reservation(from)?,
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
