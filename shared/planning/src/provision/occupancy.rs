//! The pods of a node: what they take together, and who they are.
//!
//! Decides nothing: sums say what fits beside them, shapes say who may be their neighbour.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::api::Pod;
use tenon_domain::api::PodShape;
use tenon_domain::api::pod::HostPort;
use tenon_domain::resources::ResourceList;

/// The pods of a node, and those that are promised to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Occupancy {
    shapes: Vec<Arc<PodShape>>,
    used: ResourceList,
    daemon_used: ResourceList,
    host_ports: BTreeSet<HostPort>,
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
        }
    }

    /// Adds a pod of a shape.
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
}
