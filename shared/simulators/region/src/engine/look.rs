//! Inspection of a region, and a player's few actions from outside.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::catalog::LearnedMemory;
use tenon_domain::id::{ClusterName, InstanceType};
use tenon_domain::wake::FunctionName;
use tenon_ec2::Ec2;
use tenon_memory_table::MemoryTable;
use tenon_runtime::Installation;
use tenon_twin::RegionTwin;

use super::{PodDeletion, SimulatedRegion};
use crate::clock::RegionClock;
use crate::functions::Functions;
use crate::happening::{Happening, HappeningKind, Listeners};
use crate::queue::Queue;
use crate::site::{Site, Voice};
use crate::timeline::TimelineEvent;
use crate::usage::RegionUsage;

/// Looking at a region.
impl SimulatedRegion {
    /// EC2.
    #[must_use]
    pub const fn twin(&self) -> &RegionTwin {
        &self.twin
    }

    /// The state table.
    #[must_use]
    pub const fn table(&self) -> &MemoryTable {
        &self.table
    }

    /// The region's clock.
    #[must_use]
    pub const fn clock(&self) -> &RegionClock {
        &self.clock
    }

    /// The installation.
    #[must_use]
    pub const fn installation(&self) -> &Arc<Installation> {
        &self.installation
    }

    /// A cluster.
    #[must_use]
    pub fn site(&self, cluster: &ClusterName) -> Option<&Site> {
        self.sites.get(cluster)
    }

    /// The clusters, by name.
    pub fn sites(&self) -> impl Iterator<Item = &Site> {
        self.sites.values()
    }

    /// The queues.
    #[must_use]
    pub const fn queues(&self) -> &BTreeMap<FunctionName, Queue> {
        &self.queues
    }

    /// The quantities that AWS bills for and the engine counts.
    #[must_use]
    pub const fn usage(&self) -> &RegionUsage {
        &self.usage
    }

    /// Pods that agents deleted without asking a budget, since the last call.
    pub fn take_pod_deletions(&mut self) -> Vec<PodDeletion> {
        std::mem::take(&mut self.pod_deletions)
    }

    /// The happenings since the last call.
    pub fn take_happenings(&mut self) -> Vec<Happening> {
        std::mem::take(&mut self.log)
    }

    /// Sets whether happenings are read.
    pub const fn set_listeners(&mut self, listeners: Listeners) {
        self.listeners = listeners;
    }

    /// Whether no task is under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The region's zones, by name.
    #[must_use]
    pub fn zones(&self) -> Vec<tenon_domain::id::Zone> {
        let zones = tenon_memory_table::block_on(self.twin.describe_availability_zones());
        zones.map(|zones| zones.into_iter().map(|zone| zone.name).collect()).unwrap_or_default()
    }

    /// Makes an image: pending first.
    pub fn make_image(&mut self, form: &crate::scenario::ImageForm) -> tenon_domain::id::ImageId {
        let id = self.twin.create_image(crate::scenario::new_image(form, self.clock.now()));
        self.note(id.as_str(), format!("image `{}` is being made", form.name));
        id
    }

    /// Lets a cluster's agent fall silent, or speak again.
    pub fn set_voice(&mut self, cluster: &ClusterName, voice: Voice) {
        if let Some(site) = self.sites.get_mut(cluster) {
            site.set_voice(voice, self.clock.now());
            self.timeline.at(self.clock.now(), TimelineEvent::Agent(cluster.clone()));
        }
    }

    /// Delays all schedules until a time: those that are due earlier run then.
    pub const fn hold_schedules(&mut self, until: Timestamp) {
        self.schedules_from = until;
    }

    /// Lets kubelets that join from now on report so much memory on instances of a type.
    pub fn set_reported_memory(&mut self, instance_type: &InstanceType, memory: LearnedMemory) {
        for site in self.sites.values_mut() {
            site.set_reported_memory(instance_type.clone(), memory);
        }
    }

    /// Restarts every function: its caches are empty. Running invocations continue.
    pub fn restart_functions(&mut self) {
        self.functions = Functions::default();
    }

    /// Sends a message with any body to a function's queue.
    pub fn send(&mut self, function: FunctionName, body: String) {
        self.deliver(function, body, None);
    }

    /// The same, as a function sends it: with the cluster as its message group.
    pub fn send_for(&mut self, cluster: &ClusterName, function: FunctionName, body: String) {
        self.deliver(function, body, Some(cluster));
    }

    /// Adds a note to the happenings.
    pub fn note(&mut self, subject: &str, message: impl Into<String>) {
        self.log.push(Happening::new(self.clock.now(), HappeningKind::Note, subject, message));
    }
}
