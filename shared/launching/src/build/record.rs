//! The journal's records of a planned claim, and of pods that join one.
//!
//! Decides their messages and details, and how many names they spell out. It doesn't number them: their commit does.
//!
//! Invariant: a record's size doesn't grow with its claim's pods.

use std::collections::BTreeSet;
use std::fmt;

use tenon_domain::catalog::{Availability, Offering, Unavailability, find_option};
use tenon_domain::claim::Claim;
use tenon_domain::id::{InstanceType, NodeName};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::{CountedPod, Launch, LaunchCause};
use tenon_domain::money::Currency;
use tenon_domain::report::counted;
use tenon_planning::provision::PlannedClaim;

use super::LaunchInput;
use crate::fleet::Fleet;

/// Names that a record spells out; [`super::BuiltLaunch::pods`] holds all of them.
const NAMES_TOLD: usize = 10;

fn some_names(names: impl Iterator<Item = impl fmt::Display>, count: usize) -> String {
    let mut told: Vec<String> = names.take(NAMES_TOLD).map(|name| name.to_string()).collect();
    if count > NAMES_TOLD {
        told.push(format!("and {} more", count - NAMES_TOLD));
    }
    told.join(", ")
}

/// Pods that wait, and those that run on nodes that EC2 takes back.
fn told_pods(input: &LaunchInput<'_>, pods: &[CountedPod]) -> String {
    let leaves = |pod: &CountedPod| input.displaced.and_then(|displaced| displaced.get(&pod.uid));
    let nodes: Vec<&NodeName> = pods.iter().filter_map(leaves).collect();
    let (leaving, named) = (nodes.len(), nodes.into_iter().collect::<BTreeSet<_>>());
    let waiting = pods.len().saturating_sub(leaving);
    let mut told = Vec::new();
    if waiting > 0 || leaving == 0 {
        told.push(counted(waiting, "pending pod", "pending pods"));
    }
    if leaving > 0 {
        let leave = if leaving == 1 { "leaves" } else { "leave" };
        let noun = if named.len() == 1 { "Node" } else { "Nodes" };
        let names = some_names(named.iter().map(|name| format!("`{name}`")), named.len());
        told.push(format!("{} that {leave} {noun} {names}", counted(leaving, "pod", "pods")));
    }
    told.join(" and ")
}

pub(super) fn record(
    input: &LaunchInput<'_>,
    planned: &PlannedClaim,
    launch: &Launch,
    fleet: &Fleet,
) -> JournalRecord {
    let pods = planned.pods.len();
    let purpose = match &launch.cause {
        LaunchCause::PendingPods => format!("for {}", told_pods(input, &planned.pods)),
        LaunchCause::Replacement(_) => {
            let replaced =
                some_names(input.replaced.iter().map(|name| format!("`{name}`")), input.replaced.len());
            format!("to replace {replaced}, for {}", counted(pods, "pod", "pods"))
        }
    };
    let types = counted(planned.instance_types.len(), "instance type", "instance types");
    let message =
        format!("planned NodeClaim `{}` {purpose}: {types}, {} first", planned.name, fleet.capacity_type);
    let subject = Subject { kind: SubjectKind::Claim, name: planned.name.to_string() };
    let mut record = JournalRecord::new(subject, input.now, input.by.as_str(), Decision::Planned, message)
        .detail("launch", &launch.id)
        .detail("pool", &planned.pool)
        .detail("class", &planned.class)
        .detail("capacity_type", fleet.capacity_type)
        .detail("pods", some_names(planned.pods.iter().map(|pod| &pod.name), pods))
        .detail("zones", planned.zones.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let types = planned.instance_types.iter();
    record = record.detail("instance_types", some_names(types, planned.instance_types.len()));
    if let Some(cheapest) = planned.instance_types.first() {
        record = record.detail("instance_type", cheapest);
    }
    if let Some(price) = planned.price {
        let currency = Currency::of_region(input.region);
        record = record.detail("price", price).detail("currency", currency.as_str());
    }
    let exhausted = exhausted(input, planned);
    if !exhausted.is_empty() {
        record = record.detail("exhausted", some_names(exhausted.iter(), exhausted.len()));
    }
    if !fleet.unpriced.is_empty() {
        record = record.detail("unpriced", some_names(fleet.unpriced.iter(), fleet.unpriced.len()));
    }
    if !fleet.leases.is_empty() {
        record = record.detail("asks_again_for", some_names(fleet.leases.iter(), fleet.leases.len()));
    }
    record.evidence.clone_from(input.evidence);
    record
}

/// The record of pods that get spare room of a claim on its way.
#[must_use]
pub fn join_record(input: &LaunchInput<'_>, claim: &Claim, pods: &[CountedPod]) -> JournalRecord {
    let Claim { name, launch, .. } = claim;
    let told = told_pods(input, pods);
    let message = format!("planned {told} for spare room on NodeClaim `{name}`, which is on its way");
    let subject = Subject { kind: SubjectKind::Claim, name: name.to_string() };
    let mut record = JournalRecord::new(subject, input.now, input.by.as_str(), Decision::Placed, message)
        .detail("launch", launch)
        .detail("pods", some_names(pods.iter().map(|pod| &pod.name), pods.len()));
    record.evidence.clone_from(input.evidence);
    record
}

/// The offerings of the claim's types that EC2 has no capacity for, as far as is known, by what they are called.
fn exhausted(input: &LaunchInput<'_>, planned: &PlannedClaim) -> Vec<String> {
    let types = input.types.get(&planned.pool).map_or(&[][..], |types| types.as_slice());
    let of_type = |name: &InstanceType| {
        let offerings = find_option(types, name).map_or(&[][..], |option| &option.offerings);
        let held = |offering: &&Offering| {
            matches!(offering.availability, Availability::Unavailable(Unavailability::Exhausted { .. }))
                && planned.capacity_types.contains(&offering.capacity_type)
        };
        offerings
            .iter()
            .filter(held)
            .map(|offering| format!("{name} {} in {}", offering.capacity_type.as_str(), offering.zone))
            .collect::<Vec<_>>()
    };
    planned.instance_types.iter().flat_map(of_type).collect()
}
