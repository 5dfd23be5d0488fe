//! Worlds drawn from a number, with everything that a plan reads: one number always gives the same world.

use crate::support::*;
use std::sync::Arc;

use tenon_domain::api::Pod;
use tenon_domain::api::pod::{HostPort, NodeSelectorTerm, PodShape};
use tenon_domain::catalog::{
    Availability, CapacityType, InstanceTypeOption, OfferedReservation, Offering, Unavailability,
};
use tenon_domain::evidence::{CatalogPart, Waiting};
use tenon_domain::id::{CommandId, ReservationId};
use tenon_domain::labels;
use tenon_domain::money::UsdPerHour;
use tenon_domain::requirement::Requirement;
use tenon_domain::reservation::ReservationKind;
use tenon_domain::taint::{Taint, TaintEffect, Toleration};
use tenon_planning::provision::{ExistingNode, NodeKind, PoolInput, PoolStanding, ProvisionInput, Purpose};
pub(crate) use tenon_replay::draw::Draw;

const DEDICATED: &str = "dedicated";
const RATHER_NOT: &str = "rather-not";
const TEAM: &str = "example.com/team";

/// Whether some of a pool's offerings are unavailable or reserved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    Some,
}

/// The world of a number: an even one has pods of many sizes in one pool, an odd one has every obstacle.
pub(crate) fn world(number: u64) -> ProvisionInput {
    let mut draw = Draw::new(number);
    if number.is_multiple_of(2) {
        let groups = 2 + draw.below(12);
        let all = (0..groups).flat_map(|index| sized(&mut draw, index)).collect();
        return input(all, vec![pool("first", types(&mut draw, Trouble::None))]);
    }
    let groups = 1 + draw.below(9);
    let all = (0..groups).flat_map(|index| group(&mut draw, index)).collect();
    let pools = (0..1 + draw.below(3)).map(|index| drawn_pool(&mut draw, index)).collect();
    let mut world = input(all, pools);
    if draw.one_in(2) {
        world.nodes = (0..1 + draw.below(5)).map(|index| existing(&mut draw, index)).collect();
    }
    world.daemon_sets = (0..draw.below(4)).map(|index| daemon(&mut draw, index)).collect();
    if draw.one_in(6) {
        world.purpose = Purpose::Replacement(CommandId::parse("command-1").unwrap());
    }
    world
}

/// Equal pods of a size, some of which ask for a zone or a way to pay.
fn sized(draw: &mut Draw, index: u64) -> Vec<Pod> {
    let (cpu, memory) = (50 + 50 * draw.below(70), 100 + 50 * draw.below(200));
    let mut one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
    let selected = match draw.below(9) {
        0 => Some((labels::ZONE, "test-zone-1")),
        1 => Some((labels::CAPACITY_TYPE, "on-demand")),
        2 => Some((labels::ARCH, "amd64")),
        _ => None,
    };
    one.node_selector.extend(selected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    pods(&format!("g{index}"), usize::try_from(1 + draw.below(30)).unwrap(), one)
}

/// Equal pods.
fn group(draw: &mut Draw, index: u64) -> Vec<Pod> {
    let cpu = draw.of(&[50, 100, 250, 400, 500, 900, 1000, 1500, 2000, 3500, 7000]);
    let memory = cpu * draw.of(&[1, 1, 2, 4, 6]) / draw.of(&[1, 2]) + 100;
    let mut one = shape(&[("cpu", &format!("{cpu}m")), ("memory", &format!("{memory}Mi"))]);
    let selected = match draw.below(14) {
        0 => Some((labels::ZONE, "test-zone-2")),
        1 => Some((labels::ARCH, "arm64")),
        2 => Some((labels::CAPACITY_TYPE, "on-demand")),
        3 => Some((labels::INSTANCE_TYPE, "a.large")),
        4 => Some((TEAM, "blue")),
        _ => None,
    };
    one.node_selector.extend(selected.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if draw.one_in(4) {
        one.required_node_affinity = (0..1 + draw.below(2)).map(|_| term(draw)).collect();
    }
    if draw.one_in(2) {
        one.tolerations.push(Toleration::exists(DEDICATED));
    }
    if draw.one_in(4) {
        one.tolerations.push(Toleration::exists(RATHER_NOT));
    }
    if draw.one_in(12) {
        one.host_ports.insert(host_port(draw));
    }
    let count = if draw.one_in(3) { 20 + draw.below(60) } else { 1 + draw.below(12) };
    pods(&format!("g{index}"), usize::try_from(count).unwrap(), one)
}

fn term(draw: &mut Draw) -> NodeSelectorTerm {
    let asked = match draw.below(4) {
        0 => Requirement::one_of(labels::ZONE, ["test-zone-1", "test-zone-3"]),
        1 => Requirement::one_of(labels::CAPACITY_TYPE, ["spot"]),
        2 => Requirement::one_of(labels::ARCH, ["arm64"]),
        _ => Requirement::none_of(labels::INSTANCE_TYPE, ["a.large", "c.large"]),
    };
    NodeSelectorTerm { match_expressions: vec![asked], match_fields: Vec::new() }
}

fn host_port(draw: &mut Draw) -> HostPort {
    HostPort { ip: String::new(), port: draw.of(&[80, 443]), protocol: "TCP".to_owned() }
}

fn daemon(draw: &mut Draw, index: u64) -> tenon_domain::api::workload::DaemonSet {
    let cpu = format!("{}m", draw.of(&[30, 70, 150]));
    let mut one: PodShape = shape(&[("cpu", &cpu), ("memory", "90Mi")]);
    match draw.below(4) {
        0 => one.node_selector.extend([(labels::ARCH.to_owned(), "arm64".to_owned())]),
        1 => one.node_selector.extend([(labels::INSTANCE_SIZE.to_owned(), "large".to_owned())]),
        2 => one.tolerations.push(Toleration::exists(DEDICATED)),
        _ => {}
    }
    if draw.one_in(6) {
        one.host_ports.insert(host_port(draw));
    }
    daemon_set(&format!("agent-{index}"), one)
}

/// A Node, or a claim on its way to one.
fn existing(draw: &mut Draw, index: u64) -> ExistingNode {
    let kind = draw.of(&[NodeKind::Initialized, NodeKind::Starting, NodeKind::InFlight]);
    let cpu = format!("{}m", 500 + 250 * draw.below(20));
    let memory = format!("{}Mi", 1000 + 500 * draw.below(20));
    let mut found =
        node(&format!("node-{index}"), kind, &[("cpu", &cpu), ("memory", &memory), ("pods", "9")]);
    let arch = draw.of(&["amd64", "amd64", "arm64"]);
    let more = [(labels::ZONE, draw.of(&ZONES)), (labels::CAPACITY_TYPE, "on-demand"), (labels::ARCH, arch)];
    found.labels.extend(more.map(|(key, value)| (key.to_owned(), value.to_owned())));
    if draw.one_in(3) {
        found.taints = vec![Taint::new(DEDICATED, TaintEffect::NoSchedule)];
    }
    let daemon = running(&[("cpu", "30m"), ("memory", "90Mi"), ("pods", "1")]);
    let mut other = PodShape::clone(&running(&[("cpu", "420m"), ("memory", "210Mi"), ("pods", "1")]));
    found.occupancy.add(&if draw.one_in(2) { of_daemon_set(&daemon) } else { daemon });
    if draw.one_in(6) {
        other.host_ports.insert(host_port(draw));
    }
    found.occupancy.add(&Arc::new(other));
    found
}

fn drawn_pool(draw: &mut Draw, index: u64) -> PoolInput {
    let mut one =
        pool(["first", "second", "third"][usize::try_from(index).unwrap()], types(draw, Trouble::Some));
    one.pool.weight = draw.of(&[0, 0, 10]);
    let template = &mut one.pool.template;
    match draw.below(6) {
        0 => template.taints = vec![Taint::new(DEDICATED, TaintEffect::NoSchedule)],
        1 => template.taints = vec![Taint::new(RATHER_NOT, TaintEffect::PreferNoSchedule)],
        _ => {}
    }
    if draw.one_in(3) {
        template.labels.insert(TEAM.to_owned(), draw.of(&["blue", "red"]).to_owned());
    }
    match draw.below(9) {
        0 => template.requirements.add(Requirement::one_of(labels::ARCH, ["amd64"])),
        1 => template.requirements.add(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"])),
        2 => {
            let all: Vec<String> = one.types.iter().map(|one| one.facts.name.to_string()).collect();
            let least = Some(2 + u32::try_from(draw.below(5)).unwrap());
            let asked = Requirement::one_of(labels::INSTANCE_TYPE, all).with_min_values(least);
            template.requirements.add(asked);
        }
        3 => {
            let asked = Requirement::one_of(labels::ZONE, ZONES).with_min_values(Some(2));
            template.requirements.add(asked);
        }
        _ => {}
    }
    if draw.one_in(4) {
        let (cpu, nodes) = (8 + draw.below(40), 1 + draw.below(8));
        one.pool.limits = list(&[("cpu", &cpu.to_string()), ("nodes", &nodes.to_string())]);
        one.usage = list(&[("cpu", "3"), ("nodes", "1")]);
    }
    if draw.one_in(8) {
        one.nodes_left = Some(u32::try_from(draw.below(6)).unwrap());
    }
    if draw.one_in(8) {
        one.standing = PoolStanding::OnProbation;
    }
    if draw.one_in(10) {
        one.without = Some(Waiting::CatalogNotHydrated { part: CatalogPart::SpotPrices });
    }
    one
}

/// Types of several sizes and shapes, with availability and prices.
fn types(draw: &mut Draw, trouble: Trouble) -> Vec<InstanceTypeOption> {
    let sizes = [("large", 2), ("xlarge", 4), ("2xlarge", 8), ("4xlarge", 16)];
    let families = [("a", 4, "amd64"), ("c", 2, "amd64"), ("r", 8, "amd64"), ("g", 4, "arm64")];
    let mut all = Vec::new();
    for (family, memory_per_cpu, arch) in families {
        for (size, cpu) in sizes {
            let name: &'static str = Box::leak(format!("{family}.{size}").into_boxed_str());
            let mut fake = FakeType::new(name, cpu, cpu * memory_per_cpu, 4 + 7 * cpu);
            fake.arch = arch;
            all.push(fake.option());
        }
    }
    let troubled = trouble == Trouble::Some && draw.one_in(2);
    for one in &mut all {
        let (spot, ours) = (30 + draw.below(50), 90 + draw.below(20));
        for offering in &mut one.offerings {
            let share = match offering.capacity_type {
                CapacityType::Spot => spot + draw.below(8),
                CapacityType::OnDemand | CapacityType::Reserved => ours,
            };
            offering.price = offering.price.map(|price| UsdPerHour::from_nanos(price.nanos() / 100 * share));
            if troubled && draw.one_in(2) {
                take_away(draw, offering);
            }
        }
        if trouble == Trouble::Some && draw.one_in(60) {
            reserve(draw, one);
        }
    }
    all
}

/// Makes an offering unavailable, mostly by an earlier refusal.
fn take_away(draw: &mut Draw, offering: &mut Offering) {
    let exhausted =
        |(until, last): (i64, i64)| Unavailability::Exhausted { until: at(until), last_resort_at: at(last) };
    let why = match draw.below(10) {
        0..4 => exhausted((-10, 60)),
        4..7 => exhausted((40 + i64::try_from(draw.below(200)).unwrap(), 400)),
        7 => exhausted((7000, -1)),
        8 => Unavailability::ZoneShifted,
        _ => {
            offering.price = None;
            Unavailability::PriceUnknown
        }
    };
    offering.availability = Availability::Unavailable(why);
}

fn reserve(draw: &mut Draw, option: &mut InstanceTypeOption) {
    let Some(first) = option.offerings.first().cloned() else { return };
    let id = format!("cr-{}", option.facts.name.as_str().replace('.', ""));
    let left = 1 + u32::try_from(draw.below(3)).unwrap();
    let reservation = OfferedReservation {
        kind: ReservationKind::Default,
        id: ReservationId::parse(id.clone()).unwrap(),
        left,
    };
    let price = first.price.map(|price| UsdPerHour::from_nanos(price.nanos() / 10_000_000));
    option.offerings.push(Offering {
        capacity_type: CapacityType::Reserved,
        reservation: Some(reservation),
        availability: Availability::Available,
        price,
        ..first
    });
    option.labels.replace(Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand", "reserved", "spot"]));
    option.labels.replace(Requirement::one_of(labels::CAPACITY_RESERVATION_ID, [id]));
}
