//! The instance types and zones that a scenario names.
//!
//! Decides which of them its region hasn't: the twin would silently go without them, and a step about one would change
//! nothing. A step may name only what the scenario's own `types` and `zones` leave. Names in events and objects are left to
//! those who read them.

use std::collections::BTreeSet;

use tenon_domain::id::{InstanceType, Region as RegionName};
use tenon_domain::requirement::hints::nearest;
use tenon_ec2::data::Ec2Data;

use super::form::{Scenario, ScenarioStep};
use super::setup::SetupError;

/// The most names of a family that a refused type is told: a family has about ten sizes.
const NEAR_NAMES: usize = 12;

/// A name that the region doesn't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct UnknownName {
    /// The field of the scenario, such as `steps[3].capacity.zone`.
    pub field: String,
    /// What is wrong with it, and what may be meant.
    pub message: String,
}

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamedThing {
    InstanceType,
    Zone,
}

/// The names that may be given.
struct KnownNames<'a> {
    of: NamedThing,
    /// What each of them is, in words.
    what: String,
    names: BTreeSet<&'a str>,
}

impl<'a> KnownNames<'a> {
    /// Those that a scenario chose of them: all if it chose none.
    fn chosen(self, by: &'a [String], field: &str) -> Self {
        if by.is_empty() {
            return self;
        }
        let names = by.iter().map(String::as_str).collect();
        Self { what: format!("one of the scenario's `{field}`"), names, ..self }
    }

    fn check(&self, field: &str, name: &str) -> Result<(), UnknownName> {
        if self.names.contains(name) {
            return Ok(());
        }
        let near = self.near(name);
        let near =
            if near.is_empty() { String::new() } else { format!(": did you mean `{}`?", near.join("`, `")) };
        let message = format!("`{name}` isn't {}{near}", self.what);
        Err(UnknownName { field: field.to_owned(), message })
    }

    /// The names that may be meant. A region has few zones.
    fn near(&self, wrong: &str) -> Vec<&'a str> {
        let all = self.names.iter().copied();
        match self.of {
            NamedThing::Zone => all.collect(),
            NamedThing::InstanceType => match nearest(wrong, all.clone()) {
                Some(near) => vec![near],
                None => {
                    let family = |name: &str| name.split_once('.').map(|(family, _)| family.to_owned());
                    let wanted = family(wrong);
                    all.filter(|known| wanted.is_some() && family(known) == wanted).take(NEAR_NAMES).collect()
                }
            },
        }
    }
}

/// Refuses types and zones that the region hasn't.
pub(super) fn check_names(scenario: &Scenario, name: &RegionName) -> Result<(), SetupError> {
    let data = Ec2Data::get()?;
    let region = data.region(name)?;
    let described = region.types.keys().filter(|known| data.types.contains_key(*known));
    let types = KnownNames {
        of: NamedThing::InstanceType,
        what: format!("an instance type that region `{name}` offers"),
        names: described.map(InstanceType::as_str).collect(),
    };
    let zones = KnownNames {
        of: NamedThing::Zone,
        what: format!("a zone of region `{name}`"),
        names: region.zones.iter().map(|zone| zone.name.as_str()).collect(),
    };
    for (at, given) in scenario.types.iter().enumerate() {
        types.check(&format!("types[{at}]"), given)?;
    }
    for (at, given) in scenario.zones.iter().enumerate() {
        zones.check(&format!("zones[{at}]"), given)?;
    }
    let (types, zones) = (types.chosen(&scenario.types, "types"), zones.chosen(&scenario.zones, "zones"));
    Ok(check_steps(&scenario.steps, "steps", &types, &zones)?)
}

fn check_steps(
    steps: &[ScenarioStep],
    at: &str,
    types: &KnownNames<'_>,
    zones: &KnownNames<'_>,
) -> Result<(), UnknownName> {
    for (index, step) in steps.iter().enumerate() {
        for (field, of, name) in names_of(step) {
            let known = match of {
                NamedThing::InstanceType => types,
                NamedThing::Zone => zones,
            };
            known.check(&format!("{at}[{index}].{field}"), name)?;
        }
        if let ScenarioStep::Repeat { steps, .. } = step {
            check_steps(steps, &format!("{at}[{index}].repeat.steps"), types, zones)?;
        }
    }
    Ok(())
}

/// The names in a step, each with its field.
fn names_of(step: &ScenarioStep) -> Vec<(&'static str, NamedThing, &str)> {
    use NamedThing::{InstanceType, Zone};
    let mut names = Vec::new();
    if let ScenarioStep::Capacity { instance_type, zone, .. } = step {
        names.push(("capacity.instanceType", InstanceType, instance_type.as_str()));
        names.extend(zone.iter().map(|zone| ("capacity.zone", Zone, zone.as_str())));
    }
    if let ScenarioStep::Reserve { instance_type, zone, .. } = step {
        names.push(("reserve.instanceType", InstanceType, instance_type.as_str()));
        names.push(("reserve.zone", Zone, zone.as_str()));
    }
    if let ScenarioStep::ReportedMemory { instance_type, .. } = step {
        names.push(("reported-memory.instanceType", InstanceType, instance_type.as_str()));
    }
    if let ScenarioStep::WithdrawType(name) = step {
        names.push(("withdraw-type", InstanceType, name.as_str()));
    }
    if let ScenarioStep::ShiftZone { zone, .. } = step {
        names.push(("shift-zone.zone", Zone, zone.as_str()));
    }
    if let ScenarioStep::EndShift(zone) = step {
        names.push(("end-shift", Zone, zone.as_str()));
    }
    names
}
