//! Capacity reservations of classes' statuses.
//!
//! Decides which of them a plan may use: those that `node-classes` would serve, behind the open gate. A status has no count
//! of free instances, so an active reservation has room for every node of a plan; a warning says so.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::api::{Ec2NodeClass, NodePool};
use tenon_domain::catalog::{CapacityType, Catalog, ClassNodes, Exhaustion, InstanceTypeOption};
use tenon_domain::labels;
use tenon_domain::manifest::{StatedReservation, StatedStatuses};
use tenon_domain::requirement::Requirements;
use tenon_domain::reservation::{
    ClassReservation, ClassReservations, ReservationKind, ReservationState, Reservations, ReservedCapacity,
};
use tenon_domain::unavailable::Marks;

/// More nodes than a plan has: a cluster has no more pods (see `MAX_PODS`).
const ROOM: u32 = 150_000;

/// A class of the files, with its reservations.
#[derive(Clone, Copy)]
pub(super) struct ReservingClass<'a> {
    /// The class.
    pub(super) class: &'a Ec2NodeClass,
    /// The reservations of its status.
    pub(super) stated: &'a [StatedReservation],
}

impl ReservingClass<'_> {
    /// Whether it has or selects any.
    fn reserves(&self) -> bool {
        !self.stated.is_empty() || !self.class.reservation_selector.is_empty()
    }

    /// Adds its reservations to its choices.
    pub(super) fn offer(
        self,
        right: ReservedCapacity,
        catalog: &Catalog<'_>,
        nodes: ClassNodes<'_>,
        options: &mut [InstanceTypeOption],
    ) {
        let served = self.stated.iter().filter(|one| is_served(one.resolved.kind)).map(with_room);
        let kept = ClassReservations::resolved(right, served.collect());
        let launched = BTreeMap::new();
        let left = Reservations::left(right, &kept, &launched);
        let marks = Marks::default();
        let exhaustion = Exhaustion { marks: &marks, requests: &[], now: Timestamp::UNIX_EPOCH };
        catalog.offer_reserved(options, &left, nodes, exhaustion);
    }

    /// What a plan with the open gate assumes and leaves out.
    pub(super) fn warn(self, warnings: &mut Vec<String>) {
        let name = &self.class.name;
        if self.stated.is_empty() && self.reserves() {
            warnings.push(format!(
                "EC2NodeClass `{name}` has no `status.capacityReservations`: planning without capacity reservations"
            ));
        }
        let ids = |wanted: fn(&StatedReservation) -> bool| {
            let found = self.stated.iter().filter(|one| wanted(one));
            let ids: Vec<&str> = found.map(|one| one.resolved.id.as_str()).collect();
            (!ids.is_empty()).then(|| ids.join("`, `"))
        };
        if let Some(ids) = ids(|one| is_served(one.resolved.kind) && one.state == ReservationState::Active) {
            warnings.push(format!(
                "EC2NodeClass `{name}`: a status has no count of free instances: assuming room for every node in capacity \
                 reservations `{ids}`"
            ));
        }
        if let Some(ids) = ids(|one| !is_served(one.resolved.kind)) {
            warnings.push(format!(
                "EC2NodeClass `{name}`: unsupported, so ignored: capacity blocks and interruptible reservations `{ids}`"
            ));
        }
    }
}

/// Whether nodes are launched into such a reservation, as in a cluster.
const fn is_served(kind: ReservationKind) -> bool {
    match kind {
        ReservationKind::Default => true,
        ReservationKind::CapacityBlock | ReservationKind::Interruptible => false,
    }
}

fn with_room(one: &StatedReservation) -> ClassReservation {
    let available = match one.state {
        ReservationState::Active => ROOM,
        ReservationState::Expiring => 0,
    };
    ClassReservation { available, ..one.resolved.clone() }
}

/// Says which pools the closed gate keeps from reservations.
pub(super) fn warn_of_closed_gate<'a>(
    pools: impl Iterator<Item = &'a NodePool>,
    statuses: &StatedStatuses,
    classes: &[Ec2NodeClass],
    warnings: &mut Vec<String>,
) {
    let wants = |pool: &&NodePool| {
        let asked = requirements(pool);
        let wanted = &pool.template.node_class;
        let class = classes.iter().find(|class| wanted.is_served() && class.name == wanted.name);
        let of_class = class.is_some_and(|class| {
            ReservingClass { class, stated: &statuses.node_class(&class.name).reservations }.reserves()
        });
        let reserved = CapacityType::Reserved.as_str();
        let by_name = asked.get(labels::CAPACITY_TYPE).is_some_and(|key| key.values().contains(reserved));
        asked.allows(labels::CAPACITY_TYPE, reserved) && (by_name || of_class)
    };
    let names: Vec<&str> = pools.filter(wants).map(|pool| pool.name.as_str()).collect();
    if !names.is_empty() {
        warnings.push(format!(
            "planning without capacity reservations for NodePool `{}`: the gate `ReservedCapacity` is Disabled; plan as with \
             an open one by `--reserved-capacity Enabled`",
            names.join("`, `")
        ));
    }
}

/// What a pool's nodes fulfil, by its labels too.
pub(super) fn requirements(pool: &NodePool) -> Requirements {
    let template = &pool.template;
    let given = template.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    Requirements::from_labels(given).and(&template.requirements)
}
