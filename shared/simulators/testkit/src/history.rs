//! A simulation's memory of a region between steps, for invariants over time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::command::Command;
use tenon_domain::id::{ClaimName, ClusterName, InstanceId, LaunchId};
use tenon_domain::launch::Launch;
use tenon_ec2::port::InstanceState;
use tenon_memory_table::Backup;
use tenon_region::engine::{PodDeletion, SimulatedRegion};
use tenon_table::items;
use tenon_twin::InstanceRecord;

use crate::accepted::ImagesSeen;
use crate::budgets::PoolSizes;
use crate::crowded::CrowdedOut;
use crate::evidence::EvidenceSeen;
use crate::passed_over::ClassFormSeen;
use crate::pauses::PausesSeen;
use crate::shifts::ShiftsSeen;
use crate::validation::UnreadySince;

/// A cluster of the region at one step, read once for all invariants.
pub struct ClusterMoment {
    /// When.
    pub at: Timestamp,
    /// All claims.
    pub claims: Vec<Arc<Claim>>,
    /// All launches.
    pub launches: Vec<Arc<Launch>>,
    /// All commands.
    pub commands: Vec<Arc<Command>>,
    /// All its instances as they really are.
    pub instances: Vec<Arc<InstanceRecord>>,
    /// Pods that the agent deleted since the step before.
    pub pod_deletions: Vec<PodDeletion>,
}

/// Memory that lasts from step to step.
#[derive(Default)]
pub struct History {
    /// The last state of claims.
    pub claims: BTreeMap<ClaimName, Arc<Claim>>,
    /// The last state of launches; some end.
    pub launches: BTreeMap<LaunchId, Arc<Launch>>,
    /// When pods last joined a launch.
    pub joined_at: BTreeMap<LaunchId, Timestamp>,
    /// Pods whose room on a claim's Node was taken.
    pub crowded_out: CrowdedOut,
    /// Since when an instance runs that no claim owns.
    pub unowned_since: BTreeMap<InstanceId, Timestamp>,
    /// Since when a pod that fits waits.
    pub pending_since: BTreeMap<String, Timestamp>,
    /// The number of judged evictions.
    pub evictions_judged: usize,
    /// The number of judged requests to EC2.
    pub requests_judged: usize,
    /// The most nodes of each pool.
    pub pool_sizes: PoolSizes,
    /// The class's form.
    pub class_form: ClassFormSeen,
    /// Samples of the evidence.
    pub evidence: EvidenceSeen,
    /// Claims that the journal speaks of: launches that it names, and terminations.
    pub journal: JournalExplained,
    /// Pauses of voluntary disruption.
    pub pauses: PausesSeen,
    /// Samples of the classes' zones.
    pub shifts: ShiftsSeen,
    /// Samples of the images.
    pub images: ImagesSeen,
    /// Since when classes aren't ready.
    pub unready: UnreadySince,
    /// Launches whose claims' memory has been judged.
    pub memory_judged: BTreeSet<LaunchId>,
    /// The time of the table's restore, if there was one.
    pub restored_at: Option<Timestamp>,
    /// Healthy instances at the restore.
    pub well_at_restore: BTreeSet<InstanceId>,
}

/// The journal's explanations.
#[derive(Default)]
pub struct JournalExplained {
    /// Names of launches in records of planned claims.
    pub launches: BTreeSet<String>,
    /// Instances in records of terminations.
    pub terminations: BTreeSet<String>,
    /// The table at the last reading: only partitions with writes are read again.
    read: Option<Backup>,
}

impl ClusterMoment {
    /// Reads a cluster of a region.
    #[must_use]
    pub fn of(region: &SimulatedRegion, cluster: &ClusterName) -> Self {
        let of_cluster = |record: &Arc<InstanceRecord>| {
            record.instance.tags.get(tenon_domain::tags::CLUSTER).is_none_or(|name| name == cluster.as_str())
        };
        let mut instances = region.twin().instances();
        if region.sites().count() > 1 {
            instances.retain(of_cluster);
        }
        Self {
            at: region.now(),
            claims: region.claims(cluster),
            launches: region.launches(cluster),
            commands: region.commands(cluster),
            instances,
            pod_deletions: Vec::new(),
        }
    }

    /// The same with the pods of its Nodes that agents deleted.
    #[must_use]
    pub fn with_deletions(mut self, deletions: &[PodDeletion]) -> Self {
        let is_its = |deletion: &&PodDeletion| {
            self.instances
                .iter()
                .any(|record| record.instance.node_name().is_ok_and(|name| name.as_str() == deletion.node))
        };
        self.pod_deletions = deletions.iter().filter(is_its).cloned().collect();
        self
    }

    /// Instances that run, or will.
    pub fn live_instances(&self) -> impl Iterator<Item = &Arc<InstanceRecord>> {
        self.instances
            .iter()
            .filter(|record| matches!(record.instance.state, InstanceState::Pending | InstanceState::Running))
    }
}

impl JournalExplained {
    /// Reads the records since the last reading.
    pub fn read(&mut self, region: &SimulatedRegion) {
        let now = region.table().backup();
        for (key, item) in now.changed_since(self.read.as_ref(), "JOURNAL#") {
            let Ok(record) = items::journal_from_item(&key, item) else { continue };
            let details = &record.details;
            self.launches.extend(details.get("launch").cloned());
            self.terminations.extend(details.get("instance").cloned());
            if record.subject.kind == tenon_domain::journal::SubjectKind::Instance {
                self.terminations.insert(record.subject.name.clone());
            }
        }
        self.read = Some(now);
    }
}
