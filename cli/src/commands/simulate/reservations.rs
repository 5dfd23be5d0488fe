//! Capacity reservations of classes' statuses.
//!
//! Decides which of them a plan may use: those that `node-classes` would serve, behind the open gate. A status has no count
//! of free instances, so an active reservation has room for every node of a plan; a warning says so.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::api::{Ec2NodeClass, NodePool};
use tenon_domain::catalog::{
    Availability, CapacityType, Catalog, ClassNodes, Exhaustion, InstanceTypeOption,
};
use tenon_domain::labels;
use tenon_domain::manifest::{StatedClass, StatedReservation, StatedStatuses};
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::{Requirements, UndefinedKeys};
use tenon_domain::reservation::{
    ClassReservation, ClassReservations, ReservationKind, ReservationState, Reservations, ReservedCapacity,
};
use tenon_domain::unavailable::Marks;
use tenon_planning::provision::{PoolInput, ProvisionInput};

/// More nodes than a plan has: a cluster has no more pods (see `MAX_PODS`).
const ROOM: u32 = 150_000;

/// A class of the files, with what its status has for its nodes.
#[derive(Clone, Copy)]
pub(super) struct ReservingClass<'a> {
    /// The class.
    pub(super) class: &'a Ec2NodeClass,
    /// The reservations of its status.
    pub(super) stated: &'a [StatedReservation],
    /// What the images of its status require of types; none where it has no images.
    pub(super) images: &'a [Requirements],
}

impl<'a> ReservingClass<'a> {
    /// A class with its status.
    pub(super) fn of(class: &'a Ec2NodeClass, statuses: &'a StatedStatuses) -> Self {
        let StatedClass { reservations, images, .. } = statuses.node_class(&class.name);
        Self { class, stated: reservations, images }
    }

    /// Whether nodes of the class can be of a type: one of its images launches it.
    pub(super) fn boots(self, option: &InstanceTypeOption) -> bool {
        let suits = |image: &Requirements| option.labels.is_compatible(image, UndefinedKeys::Absent);
        self.images.is_empty() || self.images.iter().any(suits)
    }

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

/// Whether a plan could use a reservation: a NodePool and its limits allow a type that has one.
pub(super) fn may_be_used(input: &ProvisionInput) -> bool {
    let allows = |of: &PoolInput, option: &InstanceTypeOption| {
        let mut limits = of.pool.limits.iter();
        let left = |name, limit: Quantity| limit.saturating_sub(of.usage.get(name));
        option.labels.intersects(&of.pool.template.requirements).is_ok()
            && limits.all(|(name, limit)| option.capacity.get(name) <= left(name, limit))
    };
    let has_one = |of: &PoolInput, option: &InstanceTypeOption| {
        let mut reserved = option.offerings.iter().filter(|offering| offering.reservation.is_some());
        let asked = requirements(&of.pool);
        reserved.any(|one| one.availability == Availability::Available && one.goes_with(&asked))
    };
    let mut pools = input.pools.iter();
    pools.any(|of| of.types.iter().any(|option| has_one(of, option) && allows(of, option)))
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
        let of_class = class.is_some_and(|class| ReservingClass::of(class, statuses).reserves());
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
