//! The pods of a node: what they take together, and who they are.
//!
//! Decides nothing: sums say what fits beside them, shapes say who may be their neighbour.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::Pod;
use tenon_domain::api::PodShape;
use tenon_domain::api::pod::{HostPort, PodVolume};
use tenon_domain::id::NamespacedName;
use tenon_domain::resources::ResourceList;

/// The pods of a node, and those that are promised to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Occupancy {
    shapes: Vec<Arc<PodShape>>,
    used: ResourceList,
    daemon_used: ResourceList,
    host_ports: BTreeSet<HostPort>,
    /// By PersistentVolumeClaim, a pod that uses it and isn't terminating.
    claims: BTreeMap<NamespacedName, NamespacedName>,
}

impl Occupancy {
    /// The pods of a node.
    #[must_use]
    pub fn of<'p>(pods: impl IntoIterator<Item = &'p Pod>) -> Self {
        let mut all = Self::default();
        all.extend(pods);
        all
    }

    /// Adds pods.
    pub fn extend<'p>(&mut self, pods: impl IntoIterator<Item = &'p Pod>) {
        for pod in pods {
            self.add(&pod.shape);
            if pod.deleted_at.is_none() {
                self.claims.extend(claims_of(&pod.shape).map(|claim| (claim, pod.name.clone())));
            }
        }
    }

    /// Adds a pod of a shape. Who uses its claims stays unknown.
    pub fn add(&mut self, shape: &Arc<PodShape>) {
        self.used.add(&shape.requests);
        if shape.is_of_daemon_set() {
            self.daemon_used.add(&shape.requests);
        }
        self.host_ports.extend(shape.host_ports.iter().cloned());
        self.shapes.push(Arc::clone(shape));
    }

    /// The pods' shapes, one a pod.
    #[must_use]
    pub fn shapes(&self) -> &[Arc<PodShape>] {
        &self.shapes
    }

    /// The used resources, DaemonSets' pods among them.
    #[must_use]
    pub const fn used(&self) -> &ResourceList {
        &self.used
    }

    /// The part of [`Self::used`] that belongs to DaemonSets' pods.
    #[must_use]
    pub const fn daemon_used(&self) -> &ResourceList {
        &self.daemon_used
    }

    /// Host ports that are taken.
    #[must_use]
    pub const fn host_ports(&self) -> &BTreeSet<HostPort> {
        &self.host_ports
    }

    /// A pod that uses a PersistentVolumeClaim, and isn't terminating.
    #[must_use]
    pub fn user_of(&self, claim: &NamespacedName) -> Option<&NamespacedName> {
        self.claims.get(claim)
    }
}

/// The PersistentVolumeClaims that a pod names. An ephemeral volume's claim is the pod's own.
pub(crate) fn claims_of(shape: &PodShape) -> impl Iterator<Item = NamespacedName> {
    shape.volumes.iter().filter_map(|volume| match volume {
        PodVolume::Claim(name) => {
            Some(NamespacedName { namespace: shape.namespace.clone(), name: name.clone() })
        }
        PodVolume::Ephemeral { .. } => None,
    })
}
