//! Why no instance type has the labels that a pod and a pool ask for together.
//!
//! Decides words, not placements: it names requirements that exclude each other, or that alone exclude every type, with
//! the values that types have. It doesn't look at resources or offerings.
//!
//! Invariant: it is asked only where no type has the labels.

use std::collections::BTreeSet;

use tenon_domain::catalog::{CapacityType, InstanceTypeOption};
use tenon_domain::labels;
use tenon_domain::requirement::hints::nearest;
use tenon_domain::requirement::{Requirement, Requirements};

use super::needs::PodGroup;
use super::pool::Pool;
use super::reason_words::{MOST_NAMES, few};
use super::report::Reason;

const RESERVED: &str = CapacityType::Reserved.as_str();

/// The types among which a requirement finds none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TypesOf {
    /// All of the node class.
    Class,
    /// Those that the pool's requirements leave.
    Pool,
}

/// Why no type of a pool matches the requirements of the pool and a pod together.
pub(crate) fn no_instance_type(pool: &Pool<'_>, group: &PodGroup<'_>, merged: &Requirements) -> Reason {
    let of_class: Vec<&InstanceTypeOption> = pool.input.types.iter().collect();
    let of_pool: Vec<&InstanceTypeOption> = pool.types.iter().map(|one| one.option).collect();
    // The class's types are those that one of its images boots on.
    if of_class.is_empty() {
        let why = "the architectures of the EC2NodeClass's images: select an image of another one by `amiSelectorTerms`";
        return Reason::NoInstanceType { why: why.to_owned() };
    }
    let mut empty = merged.iter().filter(|asked| asked.is_empty());
    let why = empty
        .find_map(|asked| contradiction(pool, group, asked.key()))
        .or_else(|| alone(merged, &of_class, TypesOf::Class))
        .or_else(|| alone(merged, &of_pool, TypesOf::Pool))
        .unwrap_or_else(|| format!("these requirements: {merged}: widen them"));
    Reason::NoInstanceType { why }
}

/// The requirements of a label that leave no value together.
fn contradiction(pool: &Pool<'_>, group: &PodGroup<'_>, key: &str) -> Option<String> {
    written(pool, group, key).iter().find_map(|all| {
        let after = |place: usize| all.iter().skip(place.saturating_add(1));
        let exclude = |a: &Requirement, b: &Requirement| {
            !(a.intersects(b) || (a.accepts_absence() && b.accepts_absence()))
        };
        let mut pairs = all.iter().enumerate().flat_map(|(place, a)| after(place).map(move |b| (a, b)));
        if let Some((a, b)) = pairs.find(|(a, b)| exclude(a, b)) {
            return Some(format!("`{a}` and `{b}` together: widen one of them"));
        }
        let first = all.first()?;
        let both = all.iter().fold(first.clone(), |both, one| both.intersection(one));
        if !both.is_empty() {
            return Some(format!(
                "`{both}` and the pod's volumes together: widen the requirement, or use other volumes"
            ));
        }
        let every_type_has_it = pool.input.types.iter().all(|option| {
            option.labels.get(key).is_some_and(|label| !label.is_complement() && !label.is_empty())
        });
        // Nodes have the label of their class whatever their type.
        let every_node_has_it = every_type_has_it || key == labels::EC2NODECLASS;
        (all.len() == 1 && pool.offered.contains(key) && every_node_has_it).then(|| {
            format!(
                "the NodePool's requirements of `{key}`, which allow no value together: widen one of them"
            )
        })
    })
}

/// What a pool and a pod ask of a label, as written: for each term of the pod's node affinity.
fn written(pool: &Pool<'_>, group: &PodGroup<'_>, key: &str) -> Vec<Vec<Requirement>> {
    let Some(shape) = group.pods.first().map(|pod| &pod.shape) else { return Vec::new() };
    let selected =
        shape.node_selector.iter().map(|(label, value)| Requirement::one_of(label, [value.as_str()]));
    let of_pool = pool.offered.get(key).cloned();
    let always: Vec<Requirement> =
        of_pool.into_iter().chain(selected.filter(|one| one.key() == key)).collect();
    if shape.required_node_affinity.is_empty() {
        return vec![always];
    }
    let with_term = |expressions: &[Requirement]| {
        let of_term = expressions.iter().filter(|one| one.key() == key);
        always.iter().chain(of_term).cloned().collect::<Vec<_>>()
    };
    shape.required_node_affinity.iter().map(|term| with_term(&term.match_expressions)).collect()
}

/// The requirements that no type has, whatever else is asked for.
fn alone(merged: &Requirements, types: &[&InstanceTypeOption], of: TypesOf) -> Option<String> {
    if types.is_empty() {
        return None;
    }
    let has = |option: &InstanceTypeOption, asked: &Requirement| {
        option.labels.get(asked.key()).is_none_or(|label| {
            label.intersects(asked) || (label.accepts_absence() && asked.accepts_absence())
        })
    };
    let none_has = |asked: &&Requirement| types.iter().all(|option| !has(option, asked));
    let all: Vec<String> = merged.iter().filter(none_has).map(|asked| explained(asked, types, of)).collect();
    (!all.is_empty()).then(|| all.join("; nor "))
}

/// A requirement, the values that types have, and what helps.
fn explained(asked: &Requirement, types: &[&InstanceTypeOption], of: TypesOf) -> String {
    let known: BTreeSet<&str> = types
        .iter()
        .copied()
        .filter_map(|option| option.labels.get(asked.key()))
        .filter(|label| !label.is_complement())
        .flat_map(|label| label.values().iter().map(String::as_str))
        .collect();
    if known.is_empty() {
        return format!("`{asked}`: no instance type has this label: remove the requirement");
    }
    let whose = match of {
        TypesOf::Class => "EC2NodeClass",
        TypesOf::Pool => "NodePool",
    };
    let has = listed(&known);
    if asked.key() == labels::ZONE || asked.key() == labels::ZONE_ID {
        return format!(
            "`{asked}`: nodes of the {whose} can be in {has}: allow them, or give the EC2NodeClass a subnet in the zone"
        );
    }
    // What another NodePool may allow is no typo.
    let mut wanted = asked.values().iter().filter(|_| of == TypesOf::Class && !asked.is_complement());
    let meant = wanted.find_map(|value| nearest(value, known.iter().copied()));
    let remedy = match asked.key() {
        labels::ARCH if of == TypesOf::Class => {
            "correct it, or select an image of it by `amiSelectorTerms` of the EC2NodeClass"
        }
        labels::CAPACITY_TYPE if is_reserved(asked) && !known.contains(RESERVED) => {
            "allow others, or let the class have reservations: `ReservedCapacity` of the cluster's stack must be \
             `Enabled`, and `capacityReservationSelectorTerms` of the EC2NodeClass must select some that are neither \
             capacity blocks nor interruptible"
        }
        labels::OS => "correct it, or choose another AMI family in the EC2NodeClass",
        _ => "correct it",
    };
    match meant {
        Some(meant) if known.len() > MOST_NAMES => {
            format!("`{asked}` (did you mean `{meant}`?): {remedy}")
        }
        Some(meant) => {
            format!("`{asked}` (did you mean `{meant}`?): nodes of the {whose} have {has}: {remedy}")
        }
        None => format!("`{asked}`: nodes of the {whose} have {has}: {remedy}"),
    }
}

fn is_reserved(asked: &Requirement) -> bool {
    !asked.is_complement() && asked.values().iter().any(|value| value == RESERVED)
}

/// The first values, or the range of many numbers.
fn listed(known: &BTreeSet<&str>) -> String {
    let numbers: Option<BTreeSet<i64>> = known.iter().map(|value| value.parse().ok()).collect();
    match numbers {
        Some(numbers) if known.len() > MOST_NAMES => {
            let ends = [numbers.first(), numbers.last()].into_iter().flatten();
            ends.map(|end| format!("`{end}`")).collect::<Vec<_>>().join(" to ")
        }
        Some(_) | None => few(known.iter()),
    }
}
