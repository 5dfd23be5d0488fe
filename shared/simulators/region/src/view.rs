//! A region seen from outside: claims, commands and its unfinished work. It is neither metered nor delayed.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenon_domain::api::pod::{Pod, PodPhase};
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::class_status::{ClassStatus, ConditionReason, ConditionType};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClusterName, NodeName};
use tenon_domain::launch::Launch;
use tenon_domain::money::UsdPerHour;
use tenon_domain::registry::Registry;
use tenon_ec2::port::InstanceState;
use tenon_simulated_cluster::PodCounts;
use tenon_table::Key;
use tenon_table::items::{self, ItemForm};
use tenon_twin::InstanceRecord;

use crate::engine::SimulatedRegion;

/// The least time for which `disruption` looks at an empty node.
const LOOKED_TWICE: jiff::SignedDuration = jiff::SignedDuration::from_secs(15);

/// A node in the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryNode {
    /// Its name.
    pub name: String,
    /// Its instance type.
    pub instance_type: String,
    /// Its zone.
    pub zone: String,
    /// How its capacity is paid for.
    pub capacity_type: String,
    /// Pods on it, DaemonSets' left out.
    pub pods: usize,
    /// Its price.
    pub price: Option<UsdPerHour>,
}

/// The unfinished work of a region, in a word each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unsettled(pub Vec<String>);

impl SimulatedRegion {
    /// Items of a kind in a cluster's partition that can be read, by sort key.
    fn items_of<T: ItemForm>(&self, cluster: &ClusterName, prefix: &str) -> Vec<T> {
        let pk = items::keys::cluster_pk(cluster);
        let found = self.table.peek_prefix(&pk, prefix);
        let read =
            found.iter().map(|(sk, stored)| items::from_item(&Key::new(pk.as_str(), &**sk), stored.item()));
        read.filter_map(Result::ok).collect()
    }

    /// A cluster's registry entry.
    #[must_use]
    pub fn registry(&self, cluster: &ClusterName) -> Option<Registry> {
        let key = items::keys::registry(&self.installation.region, cluster);
        items::from_item(&key, &self.table.peek(&key)?).ok()
    }

    /// A cluster's claims.
    #[must_use]
    pub fn claims(&self, cluster: &ClusterName) -> Vec<Arc<Claim>> {
        self.kept.claims.of(&self.table, cluster, items::keys::NODE_CLAIM)
    }

    /// A cluster's launches.
    #[must_use]
    pub fn launches(&self, cluster: &ClusterName) -> Vec<Arc<Launch>> {
        self.kept.launches.of(&self.table, cluster, items::keys::LAUNCH)
    }

    /// The statuses of a cluster's classes.
    #[must_use]
    pub fn classes(&self, cluster: &ClusterName) -> Vec<ClassStatus> {
        self.items_of(cluster, "NODECLASS#")
    }

    /// A cluster's disruption commands.
    #[must_use]
    pub fn commands(&self, cluster: &ClusterName) -> Vec<Arc<Command>> {
        self.kept.commands.of(&self.table, cluster, items::keys::COMMAND)
    }

    /// A cluster's pods; for a cluster outside this process, as its agent last reported them.
    #[must_use]
    pub fn pod_counts(&self, cluster: &ClusterName) -> PodCounts {
        if let Some(site) = self.site(cluster) {
            return site.cluster().pod_counts();
        }
        let mut counts = PodCounts::default();
        for pod in self.reported(cluster).iter().flat_map(|reported| &reported.pods) {
            let count = match (pod.deleted_at, &pod.node, pod.phase) {
                (Some(_), _, _) => &mut counts.terminating,
                (None, None, _) => &mut counts.pending,
                (None, Some(_), PodPhase::Pending) => &mut counts.starting,
                (None, Some(_), PodPhase::Running | PodPhase::Unknown) => &mut counts.running,
                (None, Some(_), PodPhase::Succeeded | PodPhase::Failed) => continue,
            };
            *count += 1;
        }
        counts
    }

    /// The names of a cluster's Nodes, with how many pods are on each, DaemonSets' left out.
    fn pods_by_node(&self, cluster: &ClusterName) -> Vec<(String, usize)> {
        if let Some(site) = self.site(cluster) {
            let pods = site.cluster().pods_by_node();
            return site
                .node_names()
                .into_iter()
                .map(|name| {
                    let count = pods.get(&name).map_or(0, Vec::len);
                    (name, count)
                })
                .collect();
        }
        let Some(reported) = self.reported(cluster) else { return Vec::new() };
        let counted = |name: &NodeName| {
            let on_node = reported.pods.iter().filter(|pod| pod.node.as_ref() == Some(name));
            on_node.filter(|pod| !is_daemon_pod(pod)).count()
        };
        reported.nodes.iter().map(|node| (node.name.to_string(), counted(&node.name))).collect()
    }

    /// A cluster's nodes, by name.
    #[must_use]
    pub fn nodes(&self, cluster: &ClusterName) -> Vec<SummaryNode> {
        let by_name: BTreeMap<String, Arc<InstanceRecord>> = self
            .twin
            .instances()
            .into_iter()
            .filter_map(|record| Some((record.instance.node_name().ok()?.to_string(), record)))
            .collect();
        self.pods_by_node(cluster)
            .into_iter()
            .filter_map(|(name, pods)| {
                let instance = &by_name.get(&name)?.instance;
                Some(SummaryNode {
                    instance_type: instance.instance_type.to_string(),
                    zone: instance.zone.to_string(),
                    capacity_type: instance.capacity_type.as_str().to_owned(),
                    pods,
                    price: self.twin.price(instance.capacity_type, &instance.instance_type, &instance.zone),
                    name,
                })
            })
            .collect()
    }

    /// The region's unfinished work; empty once every pod runs and every started change is done.
    #[must_use]
    pub fn unsettled(&self) -> Unsettled {
        let mut left = Vec::new();
        if !self.is_idle() {
            left.push("functions are running".to_owned());
        }
        for (function, queue) in self.queues() {
            // Failed messages before their retry count, dead letters don't; sweeps never end.
            if queue.has_news() {
                left.push(format!("messages for {function}"));
            }
        }
        for record in self.twin.instances() {
            let state = record.instance.state;
            if !matches!(state, InstanceState::Running | InstanceState::Terminated) {
                left.push(format!("{} is {}", record.instance.id, state.as_str()));
            }
        }
        for cluster in self.clusters() {
            self.cluster_unsettled(cluster, &mut left);
        }
        Unsettled(left)
    }

    fn cluster_unsettled(&self, cluster: &ClusterName, left: &mut Vec<String>) {
        let pods = self.pod_counts(cluster);
        for (count, what) in
            [(pods.pending, "pending"), (pods.starting, "starting"), (pods.terminating, "terminating")]
        {
            if count > 0 {
                left.push(format!("{count} pods {what}"));
            }
        }
        for claim in self.claims(cluster) {
            let phase = claim.phase();
            if phase != ClaimPhase::Initialized && !phase.is_final() {
                left.push(format!("{} is {phase}", claim.name));
            }
            if self.goes_soon(cluster, &claim) {
                left.push(format!("{} is empty", claim.name));
            }
        }
        for class in self.classes(cluster) {
            // Denied dry runs are repeated after minutes.
            let open = [
                ConditionReason::AwaitingValidation,
                ConditionReason::CreateLaunchTemplateAuthCheckFailed,
                ConditionReason::CreateFleetAuthCheckFailed,
                ConditionReason::RunInstancesAuthCheckFailed,
            ];
            let told = class.condition(ConditionType::ValidationSucceeded);
            if let Some(told) = told.filter(|told| open.contains(&told.reason)) {
                left.push(format!("class {} is {}", class.name, told.reason.as_str()));
            }
        }
        for command in self.commands(cluster) {
            match command.state {
                CommandState::Replacing { .. } | CommandState::Draining { .. } => {
                    left.push(format!("{} is under way", command.id));
                }
                CommandState::Done { .. } => {}
            }
        }
    }

    /// Whether the claim's Node could go, and its pool's time for that isn't over.
    fn goes_soon(&self, cluster: &ClusterName, claim: &Claim) -> bool {
        let mark = claim.consolidatable.as_ref();
        let (ClaimPhase::Initialized, Some(since)) = (claim.phase(), mark.map(|mark| mark.since)) else {
            return false;
        };
        let after = self.reported(cluster).and_then(|reported| {
            reported.node_pools.iter().find(|pool| pool.name == claim.pool)?.disruption.consolidate_after
        });
        let (now, least) = (self.now(), LOOKED_TWICE);
        after.is_some_and(|after| since <= now && now.duration_since(since) < after.max(least))
    }

    /// The exact price of all running instances an hour; `None` when one has no price.
    #[must_use]
    pub fn price(&self) -> Option<UsdPerHour> {
        let running =
            self.twin.instances().into_iter().filter(|r| r.instance.state == InstanceState::Running);
        running
            .map(|r| self.twin.price(r.instance.capacity_type, &r.instance.instance_type, &r.instance.zone))
            .sum()
    }

    /// The time since the region began.
    #[must_use]
    pub fn elapsed(&self) -> jiff::SignedDuration {
        self.now().duration_since(self.started())
    }
}

fn is_daemon_pod(pod: &Pod) -> bool {
    pod.shape.owner.as_ref().is_some_and(|owner| owner.kind == "DaemonSet")
}
