//! A region looked at from outside: claims, commands and what has settled. Nothing here is metered or waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use tenon_cloud::port::InstanceState;
use tenon_cloud::twin::InstanceRecord;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::class_status::ClassStatus;
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::ClusterName;
use tenon_domain::launch::Launch;
use tenon_domain::money::UsdPerHour;
use tenon_table::Key;
use tenon_table::items::{self, Form};

use crate::engine::Region;

/// A node in the summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
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

/// What is left to do before a region has settled, in a word each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unsettled(pub Vec<String>);

impl Region {
    /// Items of a kind in a cluster's partition that can be read, by sort key.
    fn items_of<T: Form>(&self, cluster: &ClusterName, prefix: &str) -> Vec<T> {
        let pk = items::keys::cluster_pk(cluster);
        let found = self.table.peek_prefix(&pk, prefix);
        let read =
            found.iter().map(|(sk, stored)| items::from_item(&Key::new(pk.as_str(), &**sk), stored.item()));
        read.filter_map(Result::ok).collect()
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

    /// What a cluster's classes resolved to.
    #[must_use]
    pub fn classes(&self, cluster: &ClusterName) -> Vec<ClassStatus> {
        self.items_of(cluster, "NODECLASS#")
    }

    /// A cluster's disruption commands.
    #[must_use]
    pub fn commands(&self, cluster: &ClusterName) -> Vec<Arc<Command>> {
        self.kept.commands.of(&self.table, cluster, items::keys::COMMAND)
    }

    /// A cluster's nodes, by name.
    #[must_use]
    pub fn nodes(&self, cluster: &ClusterName) -> Vec<NodeView> {
        let Some(site) = self.site(cluster) else { return Vec::new() };
        let by_name: BTreeMap<String, Arc<InstanceRecord>> = self
            .twin
            .instances()
            .into_iter()
            .filter_map(|record| Some((record.instance.node_name().ok()?.to_string(), record)))
            .collect();
        let pods = site.cluster().pods_by_node();
        site.node_names()
            .into_iter()
            .filter_map(|name| {
                let instance = &by_name.get(&name)?.instance;
                Some(NodeView {
                    instance_type: instance.instance_type.to_string(),
                    zone: instance.zone.to_string(),
                    capacity_type: instance.capacity_type.as_str().to_owned(),
                    pods: pods.get(&name).map_or(0, Vec::len),
                    price: self.twin.price(instance.capacity_type, &instance.instance_type, &instance.zone),
                    name,
                })
            })
            .collect()
    }

    /// What keeps the region from being settled: nothing, when every pod runs and everything that was begun is done.
    #[must_use]
    pub fn unsettled(&self) -> Unsettled {
        let mut left = Vec::new();
        if !self.is_idle() {
            left.push("functions are running".to_owned());
        }
        for (function, queue) in self.queues() {
            // What failed and waits for its next try counts, what is dead doesn't; sweeps come for ever.
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
        for site in self.sites() {
            self.site_unsettled(site.name(), &mut left);
        }
        Unsettled(left)
    }

    fn site_unsettled(&self, cluster: &ClusterName, left: &mut Vec<String>) {
        let Some(site) = self.site(cluster) else { return };
        let pods = site.cluster().pod_counts();
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
        let start: Timestamp = crate::clock::START.parse().unwrap_or(Timestamp::UNIX_EPOCH);
        self.now().duration_since(start)
    }
}
