//! The input of disruption from what was observed. Pure.
//!
//! Decides nothing of its own: which nodes go is `tenon_planning`'s.

use std::collections::BTreeSet;

use tenon_domain::api::pod::DoNotDisrupt;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::labels;
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::snapshot::Snapshot;
use tenon_planning::disruption::{
    ClaimView, ClassReadiness, ClassView, DriftingReservations, Halt, Input, NodeView,
};
use tenon_planning::provision::Purpose;
use tenon_state::view::ClusterView;
use tenon_state::world::World;

/// The input of disruption.
pub(crate) fn input(world: &World<'_>, view: &ClusterView, snapshot: &Snapshot) -> Input {
    let claims = view.claims.values().map(|claim| ClaimView {
        claim: claim.clone(),
        architecture: world.architecture(claim),
        node: world.node_of(claim).map(|node| NodeView {
            name: node.name.to_string(),
            readiness: node.readiness,
            do_not_disrupt: match node.meta.annotations.get(labels::DO_NOT_DISRUPT).map(String::as_str) {
                Some("true") => DoNotDisrupt::Always,
                Some(_) | None => DoNotDisrupt::No,
            },
            pods: world.bound_to(&node.name),
        }),
    });
    Input {
        now: view.now,
        halt: if view.halt.is_some() { Halt::Halted } else { Halt::Running },
        claims: claims.collect(),
        classes: view.classes.values().map(|status| class_view(status, view, snapshot)).collect(),
        pools: snapshot.node_pools.clone(),
        pdbs: snapshot.pdbs.clone(),
        commands: view.commands.values().filter(|command| command.is_active()).cloned().collect(),
        counted: world.counted(),
        world: world.input(world.pending(), Purpose::PendingPods, &BTreeSet::new()),
    }
}

/// A class whose spec changed since it resolved says nothing about drift yet.
fn class_view(status: &ClassStatus, view: &ClusterView, snapshot: &Snapshot) -> ClassView {
    let right = view.registry.as_ref().ok().and_then(|registry| ReservedCapacity::behind(registry.gates));
    let spec = snapshot.node_classes.iter().find(|class| class.name == status.name);
    let current = spec.is_some_and(|class| class.meta.generation == status.generation);
    ClassView {
        name: status.name.clone(),
        readiness: if current && status.ready() { ClassReadiness::Ready } else { ClassReadiness::NotReady },
        images: status.images.clone(),
        subnets: status.subnets.iter().map(|subnet| subnet.id.clone()).collect(),
        reservations: right
            .map(|right| DriftingReservations { right, of_class: status.reservations.clone() }),
    }
}
