//! Starts and ends of the handling of clusters in returned batches.
//!
//! Decides which clusters ended an invocation. It is a hint: without an answer from the table, no cluster is a
//! suspect.
//!
//! Invariant: the start is written before the handling, so an invocation that dies leaves it behind.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_table::items::{Trial, from_item, keys, put};
use tenon_table::{Consistency, Key, Table, Write, limits};

use crate::handler::WakeScope;
use crate::ports::Ports;
use tenon_table::content_commit;

/// How long a cluster that ended an invocation is a suspect: longer than the life of a message that comes back
/// [`super::RECEIVES_LEAST`] times, six minutes each.
const HELD_FOR: SignedDuration = SignedDuration::from_hours(1);

/// The trials of a batch's clusters.
#[derive(Debug)]
pub(super) struct Trials {
    function: FunctionName,
    of: BTreeMap<ClusterName, Trial>,
}

impl Trials {
    /// Reads them, as of now.
    pub(super) async fn read<'a, P: Ports>(
        ports: &P,
        function: FunctionName,
        scopes: impl Iterator<Item = &'a WakeScope>,
    ) -> Self {
        let clusters = scopes.filter_map(WakeScope::cluster);
        let clusters = clusters.map(|cluster| (keys::trial(cluster, function), cluster.clone()));
        let clusters: BTreeMap<Key, ClusterName> = clusters.take(limits::BATCH_KEYS).collect();
        let (mut trials, now) = (Self { function, of: BTreeMap::new() }, ports.now());
        let asked: Vec<Key> = clusters.keys().cloned().collect();
        if asked.is_empty() {
            return trials;
        }
        if let Ok(items) = ports.table().batch_get(&asked, Consistency::Strong).await {
            let found = clusters.into_iter().filter_map(|(key, cluster)| {
                let trial: Trial = from_item(&key, items.get(&key)?).ok()?;
                (trial.begun > 0 && now < trial.expires_at).then_some((cluster, trial))
            });
            trials.of = found.collect();
        }
        trials
    }

    /// Whether the last trial has no recorded end. A trial that runs in another invocation looks the same: waiting
    /// for it costs this message one receive, joining it may cost all other messages one.
    pub(super) fn may_end_an_invocation(&self, scope: &WakeScope) -> bool {
        self.begun(scope) > 0
    }

    /// How many trials in a row have begun.
    pub(super) fn begun(&self, scope: &WakeScope) -> u64 {
        self.trial(scope).map_or(0, |trial| trial.begun)
    }

    /// Writes that it is begun.
    pub(super) async fn begin<P: Ports>(&mut self, ports: &P, scope: &WakeScope) {
        let begun = self.begun(scope).saturating_add(1);
        let at = ports.now();
        let expires_at = at.saturating_add(HELD_FOR).unwrap_or(Timestamp::MAX);
        self.write(ports, scope, Trial { function: self.function, begun, at, expires_at }).await;
    }

    /// Records the end of the invocation.
    pub(super) async fn end<P: Ports>(&mut self, ports: &P, scope: &WakeScope) {
        let at = ports.now();
        let trial = Trial { function: self.function, begun: 0, at, expires_at: at };
        self.write(ports, scope, trial).await;
    }

    async fn write<P: Ports>(&mut self, ports: &P, scope: &WakeScope, trial: Trial) {
        let Some(cluster) = scope.cluster() else { return };
        let write: Write = put(keys::trial(cluster, self.function), &trial);
        // It is only a hint, so a failed write is ignored.
        let _ = ports.table().commit(&content_commit(Vec::new(), vec![write])).await;
        self.of.insert(cluster.clone(), trial);
    }

    fn trial(&self, scope: &WakeScope) -> Option<&Trial> {
        self.of.get(scope.cluster()?)
    }
}
