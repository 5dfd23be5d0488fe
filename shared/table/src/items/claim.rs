//! `NODECLAIM#`: a claim.
//!
//! Decides its attributes: a state's data is next to its `phase`, for queries by people.

use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{
    AnnouncementKind, Claim, ClaimPhase, ClaimState, CommandRole, Consolidatable, Drift, DriftReason,
    InstanceAnnouncement, LaunchFailure, LaunchedInstance, MinValuesState, RemovalReason, Terms,
};
use tenon_domain::class_hash::{CLASS_HASH_VERSION, POOL_HASH_VERSION};
use tenon_domain::placement::Tenancy;

use super::form::{Attributes, FieldError, Fields, ItemForm};
use super::placement::{read_placement, write_placement};
use super::reservation::{read_reservation, write_reservation};
use crate::key::REVISION;

const MIN_VALUES: &str = "min_values";
const TENANCY: &str = "tenancy";
const LABELS: &str = "labels";
const DEREGISTRATION: &str = "load_balancer_deregistration";

/// The versions of the hashes, in the attribute that has them: that which claims without it have, and the present one.
const HASH_VERSIONS: [(&str, &str, &str); 2] =
    [("class_hash_version", "v6", CLASS_HASH_VERSION), ("pool_hash_version", "v3", POOL_HASH_VERSION)];

/// Whether the item's hash is of the present version.
fn has(
    from: Fields<'_>,
    (attribute, first, present): (&'static str, &str, &str),
) -> Result<bool, FieldError> {
    Ok(from.string_if(attribute)?.as_deref().unwrap_or(first) == present)
}

impl ItemForm for Claim {
    fn write(&self, to: &mut Attributes) {
        to.text("name", &self.name);
        to.number(REVISION, self.revision);
        to.text("pool", &self.pool);
        to.text("class", &self.class);
        to.text_if("class_hash", self.class_hash.map(|hash| hash.to_string()));
        to.text_if("pool_hash", self.pool_hash.map(|hash| hash.to_string()));
        for (attribute, first, present) in HASH_VERSIONS {
            to.text_if(attribute, (first != present).then_some(present));
        }
        to.text_if("class_fields", self.class_fields.as_ref().map(ToString::to_string));
        to.text_if("pool_fields", self.pool_fields.as_ref().map(ToString::to_string));
        to.texts_if("security_groups", self.security_groups.as_ref());
        to.text("launch", &self.launch);
        to.time("created_at", self.created_at);
        to.text_if("expire_after", self.terms.map(|terms| terms.expire_after_text()));
        let grace = self.terms.and_then(|terms| terms.termination_grace_period_text());
        to.text_if("termination_grace_period", grace);
        let deregistration = self.terms.and_then(|terms| terms.load_balancer_deregistration_text());
        to.text_if(DEREGISTRATION, deregistration);
        let relaxed = self.min_values != MinValuesState::AsWritten;
        to.text_if(MIN_VALUES, relaxed.then(|| self.min_values.as_str()));
        let dedicated = self.tenancy != Tenancy::Default;
        to.text_if(TENANCY, dedicated.then(|| self.tenancy.as_str()));
        if self.labels.is_empty() {
            to.text_if(LABELS, None::<&str>);
        } else {
            to.labels(LABELS, &self.labels);
        }
        to.resources("requests", &self.requests);
        to.number_if("ephemeral_storage", self.storage);
        to.text_if("lacked", self.lacked.as_ref());
        let replaces = match &self.role {
            CommandRole::None => None,
            CommandRole::Replacement(command) => Some(command),
        };
        to.text_if("replacement_of", replaces);
        to.map_if("drift", self.drift.as_ref(), |drift, to| {
            to.text("reason", drift.reason.as_str());
            to.time("since", drift.since);
            to.text("from", &drift.from);
            to.text("to", &drift.to);
            to.texts_if("fields", (!drift.fields.is_empty()).then_some(&drift.fields));
        });
        to.map_if("consolidatable", self.consolidatable.as_ref(), |mark, to| {
            to.time("since", mark.since);
            to.text_if("pods", mark.pods.as_ref());
        });
        to.map_if("announced", self.announced.as_ref(), |announced, to| {
            to.text("kind", announced.kind.as_str());
            to.time("at", announced.at);
            to.time_if("starts_at", announced.starts_at);
        });
        write_state(&self.state, to);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        let replaces = from.parsed_if("replacement_of")?;
        // Hashes of another version can't be compared: the claim takes over the present ones, as one without.
        let [class, pool] = [has(from, HASH_VERSIONS[0])?, has(from, HASH_VERSIONS[1])?];
        Ok(Self {
            name: from.parsed("name")?,
            revision: from.u64(REVISION)?,
            pool: from.parsed("pool")?,
            class: from.parsed("class")?,
            class_hash: from.parsed_if("class_hash")?.filter(|_| class),
            pool_hash: from.parsed_if("pool_hash")?.filter(|_| pool),
            class_fields: from.parsed_if("class_fields")?.filter(|_| class),
            pool_fields: from.parsed_if("pool_fields")?.filter(|_| pool),
            security_groups: from.texts_if("security_groups")?,
            launch: from.parsed("launch")?,
            created_at: from.time("created_at")?,
            state: read_state(from)?,
            // Whoever doesn't know the reason judges it anew.
            drift: from.known_map_if("drift", |from| {
                Ok(Drift {
                    reason: from.word("reason", DriftReason::parse)?,
                    since: from.time("since")?,
                    from: from.string("from")?,
                    to: from.string("to")?,
                    fields: from.texts_if("fields")?.unwrap_or_default(),
                })
            })?,
            consolidatable: from.map_if("consolidatable", |from| {
                Ok(Consolidatable { since: from.time("since")?, pods: from.string_if("pods")? })
            })?,
            announced: from.map_if("announced", |from| {
                Ok(InstanceAnnouncement {
                    kind: AnnouncementKind::of_any_release(from.text("kind")?),
                    at: from.time("at")?,
                    starts_at: from.time_if("starts_at")?,
                })
            })?,
            role: replaces.map_or(CommandRole::None, CommandRole::Replacement),
            terms: read_terms(from)?,
            min_values: from.text_if(MIN_VALUES)?.map(MinValuesState::of_any_release).unwrap_or_default(),
            tenancy: from.text_if(TENANCY)?.map(Tenancy::of_any_release).unwrap_or_default(),
            labels: from.labels(LABELS)?,
            requests: from.resources("requests")?,
            storage: from.u64_if("ephemeral_storage")?,
            lacked: from.string_if("lacked")?,
        })
    }
}

fn read_terms(from: Fields<'_>) -> Result<Option<Terms>, FieldError> {
    if from.value_if("expire_after").is_none() {
        return Ok(None);
    }
    let duration_if = |name| match from.value_if(name) {
        Some(_) => from.formed(name, Terms::parse_duration).map(Some),
        None => Ok(None),
    };
    Ok(Some(Terms {
        expire_after: from.formed("expire_after", Terms::parse_expire_after)?,
        termination_grace_period: duration_if("termination_grace_period")?,
        load_balancer_deregistration: duration_if(DEREGISTRATION)?,
    }))
}

fn write_state(state: &ClaimState, to: &mut Attributes) {
    to.text("phase", state.phase().as_str());
    to.time_if("phase_at", state.since());
    to.map_if("instance", state.instance(), |instance, to| {
        to.text("id", &instance.id);
        to.text("type", &instance.instance_type);
        to.text("zone", &instance.zone);
        to.text_if("subnet", instance.subnet.as_ref());
        to.text("capacity_type", instance.capacity_type.as_str());
        write_reservation(instance.reservation.as_ref(), to);
        write_placement(instance.placement.as_ref(), to);
        to.text("image", &instance.image);
    });
    to.text_if("node", state.node());
    to.text_if("removal", state.removal().map(RemovalReason::as_str));
    let (failure, command, deadline) = match state {
        ClaimState::LaunchFailed { failure, .. } => (Some(failure), None, None),
        ClaimState::Disrupting { command, .. } => (None, Some(command), None),
        ClaimState::Draining { deadline, .. } => (None, None, *deadline),
        ClaimState::Planned
        | ClaimState::Launched { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => (None, None, None),
    };
    to.map_if("failure", failure, |failure, to| {
        to.text("reason", &failure.reason);
        to.text("message", &failure.message);
    });
    to.text_if("command", command);
    to.time_if("deadline", deadline);
}

fn read_state(from: Fields<'_>) -> Result<ClaimState, FieldError> {
    let at = || from.time("phase_at");
    let instance = || from.map("instance", read_instance);
    let node = || from.parsed("node");
    let node_if = || from.parsed_if("node");
    let reason = || from.text("removal").map(RemovalReason::of_any_release);
    Ok(match from.word("phase", ClaimPhase::parse)? {
        ClaimPhase::Planned => ClaimState::Planned,
        ClaimPhase::LaunchFailed => ClaimState::LaunchFailed {
            at: at()?,
            failure: from.map("failure", |from| {
                Ok(LaunchFailure { reason: from.string("reason")?, message: from.string("message")? })
            })?,
        },
        ClaimPhase::Launched => ClaimState::Launched { instance: instance()?, at: at()? },
        ClaimPhase::Registered => ClaimState::Registered { instance: instance()?, node: node()?, at: at()? },
        ClaimPhase::Initialized => {
            ClaimState::Initialized { instance: instance()?, node: node()?, at: at()? }
        }
        ClaimPhase::Disrupting => ClaimState::Disrupting {
            instance: instance()?,
            node: node()?,
            command: from.parsed("command")?,
            at: at()?,
        },
        ClaimPhase::Draining => ClaimState::Draining {
            instance: instance()?,
            node: node_if()?,
            reason: reason()?,
            at: at()?,
            deadline: from.time_if("deadline")?,
        },
        ClaimPhase::Drained => {
            ClaimState::Drained { instance: instance()?, node: node_if()?, reason: reason()?, at: at()? }
        }
        ClaimPhase::Terminating => {
            ClaimState::Terminating { instance: instance()?, node: node_if()?, reason: reason()?, at: at()? }
        }
        ClaimPhase::Terminated => ClaimState::Terminated {
            instance: from.map_if("instance", read_instance)?,
            node: node_if()?,
            reason: reason()?,
            at: at()?,
        },
    })
}

fn read_instance(from: Fields<'_>) -> Result<LaunchedInstance, FieldError> {
    Ok(LaunchedInstance {
        id: from.parsed("id")?,
        instance_type: from.parsed("type")?,
        zone: from.parsed("zone")?,
        subnet: from.parsed_if("subnet")?,
        capacity_type: from.word("capacity_type", CapacityType::parse)?,
        reservation: read_reservation(from)?,
        placement: read_placement(from)?,
        image: from.parsed("image")?,
    })
}
