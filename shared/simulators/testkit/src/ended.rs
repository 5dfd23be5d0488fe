//! The invariant of commands that nothing holds: they end.
//!
//! Decides from the claims, the Nodes and their pods whether a command still waits for something: for replacements before
//! its nodes drain, for pods and instances after that. It counts the time from the step at which it saw first that nothing is
//! waited for, whatever the command's item says. It doesn't judge how long pods take to leave: PodDisruptionBudgets may hold
//! them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::ClaimPhase;
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, ClusterName, CommandId};
use tenon_region::engine::SimulatedRegion;

use crate::consolidated::decides_nothing;
use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};
use crate::pace::HistoryPace;

/// How long an instance may stay once its node's last pod has left: volumes are waited for, 10 min at most, and load
/// balancers have up to 5 min.
const LEAVES_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// What a command has nothing left to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unheld {
    /// All its replacements are ready, or it has none: its nodes drain, or it is undone.
    Ready,
    /// No pod is left on its nodes: they end, and so does it.
    Left,
}

/// Commands that wait for nothing, and since when.
#[derive(Debug, Default)]
pub(crate) struct UnheldCommands(BTreeMap<CommandId, (Unheld, Timestamp)>);

/// A command drains its nodes, or is undone, once all its replacements are ready; it is done once its nodes have no pod, also
/// one that only deletes. While the cluster is halted or its agent silent nothing is decided.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_commands_end(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (moment, pace): (&ClusterMoment, HistoryPace),
    seen: &mut UnheldCommands,
) -> Found {
    seen.look(region, cluster, moment);
    for command in &moment.commands {
        let Some((unheld, since)) = seen.0.get(&command.id) else { continue };
        let (within, waits) = match unheld {
            Unheld::Ready => (pace.repaired_within(), "waits although its replacements are all ready"),
            Unheld::Left => (
                pace.repaired_within().saturating_add(LEAVES_WITHIN),
                "isn't done although no pod is left on its nodes",
            ),
        };
        if moment.at.duration_since(*since) > within {
            let Command { id, reason, candidates, replacements, .. } = command.as_ref();
            let text = format!(
                "{id} ({reason:?}) of {candidates:?} {waits} since {since}; its replacements: {replacements:?}"
            );
            return Err((Invariant::CommandsEnd, text));
        }
    }
    Ok(())
}

impl UnheldCommands {
    /// Samples the commands. One that comes to wait for something else begins anew.
    fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName, moment: &ClusterMoment) {
        if decides_nothing(region, cluster) {
            self.0.clear();
            return;
        }
        let before = std::mem::take(&mut self.0);
        for command in &moment.commands {
            let Some(unheld) = unheld(region, cluster, moment, command) else { continue };
            let known = before.get(&command.id).filter(|(of, _)| *of == unheld);
            let since = known.map_or(moment.at, |(_, since)| *since);
            self.0.insert(command.id.clone(), (unheld, since));
        }
    }
}

/// Why nothing holds a command; `None` if something does, or it is done.
fn unheld(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
    command: &Command,
) -> Option<Unheld> {
    let claim = |name: &ClaimName| moment.claims.iter().find(|claim| claim.name == *name);
    match command.state {
        CommandState::Replacing { unplanned, .. } => {
            let is_ready = |name| claim(name).is_some_and(|claim| claim.phase() == ClaimPhase::Initialized);
            (unplanned == 0 && command.replacements.iter().all(is_ready)).then_some(Unheld::Ready)
        }
        CommandState::Draining { .. } => {
            let by_node = region.site(cluster)?.cluster().pods_by_node();
            let has_left = |name: &ClaimName| {
                claim(name).is_none_or(|claim| {
                    let pods = claim.state.node().and_then(|node| by_node.get(node.as_str()));
                    claim.phase().is_final() || pods.is_none_or(Vec::is_empty)
                })
            };
            command.candidates.iter().all(has_left).then_some(Unheld::Left)
        }
        CommandState::Done { .. } => None,
    }
}
