//! `SEEN#`, `REVISION`, `STEPS`, `HALT`: the generations of a function's last plan, and the counters behind them.
//!
//! Decides when a sweep may end after one read: the generations are those of the last full pass, and its deadline
//! hasn't passed.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::catalog::{CapacityType, HeldOffering};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::money::UsdPerHour;
use tenon_domain::wake::FunctionName;

use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm};
use super::keys;
use crate::key::REVISION;
use crate::{Item, Write};

const STEPS: &str = "steps";

/// The generations of all that a function plans from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Generations {
    /// The agent's snapshot; 0 if there is none.
    pub snapshot: u64,
    /// The cluster's revision.
    pub revision: u64,
    /// The cluster's steps.
    pub steps: u64,
    /// Parts of the catalogue that it plans from.
    pub catalog: BTreeMap<CatalogPart, u64>,
    /// The digest of the cluster's registry entry, if the function watches that and read it: no counter counts its
    /// changes.
    pub registry: Option<String>,
}

/// The input of a function's last full pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRecord {
    /// The function.
    pub function: FunctionName,
    /// The generations of its input.
    pub generations: Generations,
    /// When it must look again whether or not something changed.
    pub deadline: Option<Timestamp>,
    /// The time of a look that a sweep would be late for, if no message was sent for it: it was too far away. The last
    /// sweep before it sends one.
    pub wake_at: Option<Timestamp>,
    /// When it looked.
    pub at: Timestamp,
    /// The digest of its findings, so that equal findings aren't told twice.
    pub refusals: Option<String>,
    /// The earliest time at which one of them was told.
    pub told_at: Option<Timestamp>,
    /// The offerings of the cluster's instances as it knew them; only `disruption` tells them.
    pub offerings: Vec<HeldOffering>,
    /// When it knew them so, if that was an earlier look: one without evidence, or of a halted cluster, keeps them.
    pub offerings_at: Option<Timestamp>,
}

impl SeenRecord {
    /// When the offerings were known so.
    #[must_use]
    pub fn offerings_known_at(&self) -> Timestamp {
        self.offerings_at.unwrap_or(self.at)
    }

    /// Whether a pass would plan from the same world, and nothing is due.
    #[must_use]
    pub fn unchanged(&self, now: Timestamp, generations: &Generations) -> bool {
        self.generations == *generations && self.deadline.is_none_or(|deadline| now < deadline)
    }
}

impl ItemForm for SeenRecord {
    fn write(&self, to: &mut Attributes) {
        to.text("function", self.function.as_str());
        to.number("snapshot", self.generations.snapshot);
        to.number("cluster_revision", self.generations.revision);
        to.number(STEPS, self.generations.steps);
        let catalog = self.generations.catalog.iter();
        to.numbers("catalog", &catalog.map(|(part, generation)| (part.to_string(), *generation)).collect());
        to.text_if("registry", self.generations.registry.as_ref());
        to.time_if("deadline", self.deadline);
        to.time_if("wake_at", self.wake_at);
        to.time("at", self.at);
        to.text_if("refusals", self.refusals.as_ref());
        to.time_if("told_at", self.told_at);
        let offerings = (!self.offerings.is_empty()).then_some(&self.offerings);
        to.list_if("offerings", offerings, |offering, to| {
            to.text("type", &offering.instance_type);
            to.text("zone", &offering.zone);
            to.text("capacity_type", offering.capacity_type.as_str());
            to.text_if("price", offering.price.map(|price| price.to_string()));
            to.truth_if("unavailable", (!offering.available).then_some(true));
        });
        to.time_if("offerings_at", self.offerings_at);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        // A part that isn't known is none that this release plans from.
        let part = |(part, generation): (String, u64)| Some((CatalogPart::parse(&part)?, generation));
        Ok(Self {
            function: from.word("function", FunctionName::parse)?,
            generations: Generations {
                snapshot: from.u64("snapshot")?,
                revision: from.u64("cluster_revision")?,
                steps: from.u64(STEPS)?,
                catalog: from.numbers("catalog")?.into_iter().filter_map(part).collect(),
                registry: from.string_if("registry")?,
            },
            deadline: from.time_if("deadline")?,
            wake_at: from.time_if("wake_at")?,
            at: from.time("at")?,
            refusals: from.string_if("refusals")?,
            told_at: from.time_if("told_at")?,
            offerings: from.known_list("offerings", offering)?,
            offerings_at: from.time_if("offerings_at")?,
        })
    }
}

fn offering(from: Fields<'_>) -> Result<HeldOffering, FieldError> {
    let price = |text: &str| {
        UsdPerHour::parse(text)
            .map_err(|error| FieldError::at("price", FieldProblem::Invalid(error.to_string())))
    };
    Ok(HeldOffering {
        instance_type: from.parsed("type")?,
        zone: from.parsed("zone")?,
        capacity_type: from.word("capacity_type", CapacityType::parse)?,
        price: from.text_if("price")?.map(price).transpose()?,
        available: !from.truth_if("unavailable")?.unwrap_or(false),
    })
}

/// Why nothing is terminated or disrupted until a person deletes the item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// Since when.
    pub since: Timestamp,
    /// The observation, and what a person should check.
    pub reason: String,
}

impl ItemForm for Halt {
    fn write(&self, to: &mut Attributes) {
        to.time("since", self.since);
        to.text("reason", &self.reason);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self { since: from.time("since")?, reason: from.string("reason")? })
    }
}

/// The cluster's revision; 0 if there is none yet.
///
/// # Errors
/// [`FieldError`] if it isn't a whole number.
pub fn revision_of(item: Option<&Item>) -> Result<u64, FieldError> {
    counter(item, REVISION)
}

/// The cluster's steps; 0 without an item.
///
/// # Errors [`FieldError`] if it isn't a whole number.
pub fn steps_of(item: Option<&Item>) -> Result<u64, FieldError> {
    counter(item, STEPS)
}

/// Counts a step: a change of the planners' input outside the cluster's revision.
#[must_use]
pub fn add_step(cluster: &ClusterName) -> Write {
    Write::Add { key: keys::steps(cluster), attribute: STEPS.to_owned(), amount: 1 }
}

fn counter(item: Option<&Item>, name: &str) -> Result<u64, FieldError> {
    Ok(item.map(|item| Fields::of(item).u64_if(name)).transpose()?.flatten().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn check(now: i64, deadline: Option<i64>, steps: u64, expected: bool) {
        let seen = SeenRecord {
            function: FunctionName::Lifecycle,
            generations: Generations { steps: 4, ..Generations::default() },
            deadline: deadline.map(at),
            wake_at: None,
            at: at(0),
            refusals: None,
            told_at: None,
            offerings: Vec::new(),
            offerings_at: None,
        };
        assert_eq!(seen.unchanged(at(now), &Generations { steps, ..Generations::default() }), expected);
    }

    #[test]
    fn a_sweep_ends_while_nothing_changed_and_nothing_is_due() {
        check(10, None, 4, true);
        check(10, None, 5, false);
        check(10, Some(11), 4, true);
        check(11, Some(11), 4, false);
    }

    #[test]
    fn counters_begin_at_nothing() {
        assert_eq!(revision_of(None), Ok(0));
        let item = Item::from([(STEPS.to_owned(), crate::Value::number(7_u64))]);
        assert_eq!((steps_of(Some(&item)), revision_of(Some(&item))), (Ok(7), Ok(0)));
    }
}
