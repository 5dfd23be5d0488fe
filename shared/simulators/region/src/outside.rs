//! Clusters outside this process, with their own API server, agent and nodes.
//!
//! Decides what such a cluster receives: changes of instances, and the agent's doorbell. Its own news come as events
//! on our bus ([`SimulatedRegion::publish`]), and through the table.

use std::collections::BTreeSet;

use tenon_domain::id::ClusterName;
use tenon_domain::snapshot::Snapshot;
use tenon_memory_table::block_on;
use tenon_snapshot::snapshot::{self, ChunkCache};
use tenon_table::Consistency;
use tenon_twin::InstanceRecord;

use crate::engine::SimulatedRegion;
use crate::wiring::WiringError;

/// A cluster that isn't in this process.
pub trait OutsideCluster: Send {
    /// An instance of the cluster runs: its kubelet joins when it has booted.
    fn power_on(&self, record: &InstanceRecord);

    /// Stops or removes an instance of the cluster, as the record says.
    fn power_off(&self, record: &InstanceRecord);

    /// The agent's doorbell rings.
    fn ring(&self);
}

impl SimulatedRegion {
    /// Adds a cluster that isn't in this process, with the schedules of its stack.
    ///
    /// # Errors
    /// [`WiringError`] when the cluster's stack can't be played.
    pub fn add_outside(
        &mut self,
        name: ClusterName,
        cluster: Box<dyn OutsideCluster>,
    ) -> Result<(), WiringError> {
        self.add_stack(&name)?;
        self.outside.insert(name, cluster);
        Ok(())
    }

    /// All clusters, by name, wherever they are.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterName> {
        let all: BTreeSet<_> = self.sites.keys().chain(self.outside.keys()).collect();
        all.into_iter()
    }

    /// The last snapshot of a cluster's agent; `None` before its first report.
    #[must_use]
    pub fn reported(&self, cluster: &ClusterName) -> Option<Snapshot> {
        let mut cache = ChunkCache::default();
        let read = snapshot::read(&self.table, cluster, Consistency::Strong, &mut cache);
        block_on(read).ok().flatten()
    }
}
