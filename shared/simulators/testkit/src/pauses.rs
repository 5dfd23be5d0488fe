//! Pauses of voluntary disruption: the deeds that set and end them, and the invariants that they hold and give nodes back.
//!
//! Decides from the NodePools, the registry entry, the claims and the Nodes' taints. A command's item says only which nodes it
//! takes together.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::command::{Command, CommandState};
use tenon_domain::id::{ClaimName, ClusterName};
use tenon_domain::labels::PAUSE_DISRUPTION;
use tenon_domain::registry::FeatureGate;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::change_settings;
use tenon_snapshot::object::{name, text_map};
use tenon_snapshot::{Kind, Object};

use crate::budgets::{Expiring, is_voluntary};
use crate::consolidated::{closed_and_kept, decides_nothing, held_by};
use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};
use crate::pace::HistoryPace;
use crate::random::Dice;
use crate::world::set;

/// How long drains may begin after the cluster's pause was set: as long as a look takes that read the setting before.
const CLUSTER_SETTLES: SignedDuration = SignedDuration::from_secs(10);
/// How long they may after a pool's: decisions use a snapshot of 90 s, and its agent reports within 10 s.
const POOL_SETTLES: SignedDuration = SignedDuration::from_secs(110);

/// The longest outage of slow histories, in seconds: only there a pause lasts for as long as undoing may take.
const SLOW: u64 = 900;

/// What is paused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum PausedPart {
    Cluster,
    Pool(String),
}

/// Users who pause a cluster or its pools, in some worlds.
pub(crate) struct Pausing {
    dice: Dice,
    /// How often in a thousand steps.
    chance: u64,
    stopping: Stopping,
}

impl Pausing {
    /// Nothing yet. Outages last so many seconds at most.
    pub(crate) fn new(seed: u64, longest_outage: u64) -> Self {
        let mut dice = Dice::new(seed, 20);
        let chance = if dice.permille(300) { 60 } else { 0 };
        Self { dice, chance, stopping: Stopping::new(seed, longest_outage) }
    }

    /// Now and then pauses the cluster or a pool, or ends the pause.
    pub(crate) fn act(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        self.stopping.act(region, cluster);
        if !self.dice.permille(self.chance) {
            return;
        }
        if self.dice.permille(400) {
            let _ = change_settings(region, cluster, |settings| {
                settings.voluntary_disruption = match settings.voluntary_disruption {
                    FeatureGate::Enabled => FeatureGate::Disabled,
                    FeatureGate::Disabled => FeatureGate::Enabled,
                };
            });
        } else if let Some(site) = region.site(cluster)
            && let Some(pool) = self.dice.pick(&site.cluster().objects(Kind::NodePool))
        {
            annotate(region, cluster, pool, if is_paused(pool) { "false" } else { "true" });
        }
    }
}

/// A user who pauses what Tenon is about to disrupt, in some of the slow histories: pauses at any time rarely meet a command.
struct Stopping {
    dice: Dice,
    /// How often in a thousand steps at which a command waits for replacements.
    chance: u64,
    /// The pause that is on, and its end.
    paused: Option<(PausedPart, Timestamp)>,
}

impl Stopping {
    /// Its own dice: what it does leaves all other worlds as they are.
    fn new(seed: u64, longest_outage: u64) -> Self {
        let mut dice = Dice::new(seed, 40);
        let stops = dice.permille(100) && longest_outage >= SLOW;
        Self { dice, chance: if stops { 500 } else { 0 }, paused: None }
    }

    fn act(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        if let Some((part, until)) = &self.paused {
            if *until <= region.now() {
                set_pause(region, cluster, part, FeatureGate::Enabled);
                self.paused = None;
            }
            return;
        }
        if self.chance == 0 {
            return;
        }
        let commands = region.commands(cluster);
        let waits = |command: &Command| matches!(command.state, CommandState::Replacing { .. });
        let Some(command) = commands.iter().find(|command| waits(command)) else { return };
        if !self.dice.permille(self.chance) {
            return;
        }
        let of_pool = self.dice.permille(500);
        let part = if of_pool { PausedPart::Pool(command.pool.to_string()) } else { PausedPart::Cluster };
        let lasts = SignedDuration::from_mins(i64::try_from(self.dice.between(25, 45)).unwrap_or(30));
        set_pause(region, cluster, &part, FeatureGate::Disabled);
        self.paused = Some((part, region.now().saturating_add(lasts).unwrap_or(Timestamp::MAX)));
    }
}

/// Allows or stops voluntary disruption.
fn set_pause(region: &SimulatedRegion, cluster: &ClusterName, part: &PausedPart, allowed: FeatureGate) {
    match part {
        PausedPart::Cluster => {
            let _ = change_settings(region, cluster, |settings| settings.voluntary_disruption = allowed);
        }
        PausedPart::Pool(of) => {
            let Some(site) = region.site(cluster) else { return };
            let value = if allowed == FeatureGate::Enabled { "false" } else { "true" };
            for pool in site.cluster().objects(Kind::NodePool).iter().filter(|pool| name(pool) == of) {
                annotate(region, cluster, pool, value);
            }
        }
    }
}

/// Ends all pauses.
pub(crate) fn end_pauses(region: &SimulatedRegion, cluster: &ClusterName) {
    let _ = change_settings(region, cluster, |settings| settings.voluntary_disruption = FeatureGate::Enabled);
    let Some(site) = region.site(cluster) else { return };
    for pool in site.cluster().objects(Kind::NodePool).iter().filter(|pool| is_paused(pool)) {
        annotate(region, cluster, pool, "false");
    }
}

fn annotate(region: &SimulatedRegion, cluster: &ClusterName, pool: &Object, value: &str) {
    let mut pool = serde_json::Value::clone(pool);
    set(&mut pool, &["metadata", "annotations", PAUSE_DISRUPTION], json!(value));
    let _ = region.site(cluster).map(|site| site.cluster().apply(pool));
}

fn is_paused(pool: &Object) -> bool {
    text_map(pool, "/metadata/annotations").get(PAUSE_DISRUPTION).is_some_and(|value| value != "false")
}

/// Since when pauses were seen.
#[derive(Default)]
pub struct PausesSeen(BTreeMap<PausedPart, Timestamp>);

impl PausesSeen {
    /// Looks at a cluster at one step.
    pub(crate) fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let pools = region.site(cluster).map(|site| site.cluster().objects(Kind::NodePool));
        let of_pools = pools.iter().flatten().filter(|pool| is_paused(pool));
        let mut paused: Vec<PausedPart> =
            of_pools.map(|pool| PausedPart::Pool(name(pool).to_owned())).collect();
        let setting = region.registry(cluster).map(|entry| entry.settings.voluntary_disruption);
        if setting == Some(FeatureGate::Disabled) {
            paused.push(PausedPart::Cluster);
        }
        self.0.retain(|part, _| paused.contains(part));
        for part in paused {
            self.0.entry(part).or_insert(region.now());
        }
    }

    /// From when on no drain of a claim may begin.
    fn holds_from(&self, claim: &Claim) -> Option<Timestamp> {
        let of = |part: &PausedPart, settles: SignedDuration| self.0.get(part)?.checked_add(settles).ok();
        let of_pool = of(&PausedPart::Pool(claim.pool.to_string()), POOL_SETTLES);
        [of(&PausedPart::Cluster, CLUSTER_SETTLES), of_pool].into_iter().flatten().min()
    }
}

/// While a cluster or a pool is paused, no voluntary drain of its nodes begins, nor one that was decided before.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_pauses_hold((moment, waits): Expiring<'_>, pauses: &PausesSeen) -> Found {
    for claim in &moment.claims {
        let ClaimState::Draining { reason, at, .. } = claim.state else { continue };
        if let Some(from) = pauses.holds_from(claim)
            && from < at
            && (is_voluntary(reason) || waits.is_within_budgets(claim))
        {
            let name = &claim.name;
            let text = format!("claim {name} drains since {at} ({reason:?}), but a pause holds since {from}");
            return Err((Invariant::PausesHold, text));
        }
    }
    Ok(())
}

/// Nodes that are held for a command, and since when.
#[derive(Debug, Default)]
pub(crate) struct HeldInPauses(BTreeMap<ClaimName, Timestamp>);

/// A command that hasn't begun to drain is undone in a pause of the cluster or of one of its pools: its claims are no longer
/// disrupted, and their Nodes open. While the cluster is halted or its agent silent nothing is decided.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_pauses_give_back(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (moment, pace): (&ClusterMoment, HistoryPace),
    (pauses, held): (&PausesSeen, &mut HeldInPauses),
) -> Found {
    if decides_nothing(region, cluster) {
        held.0.clear();
        return Ok(());
    }
    let closed = closed_and_kept(region, cluster, moment);
    let before = std::mem::take(&mut held.0);
    for claim in &moment.claims {
        let by = held_by(claim);
        if by.is_none() && !closed.contains(&claim.name) {
            continue;
        }
        let command = by.and_then(|by| moment.commands.iter().find(|command| command.id == *by));
        let since = before.get(&claim.name).copied().unwrap_or(moment.at);
        held.0.insert(claim.name.clone(), since);
        let taken = command.map_or(std::slice::from_ref(&claim.name), |command| &command.candidates);
        let together = moment.claims.iter().filter(|one| taken.contains(&one.name));
        let Some(paused) = together.filter_map(|one| pauses.holds_from(one)).min() else { continue };
        if moment.at.duration_since(since.max(paused)) > pace.repaired_within() {
            let text = format!(
                "the node of claim {} is held since {since} ({}), and a pause holds since {paused}",
                claim.name,
                claim.phase()
            );
            return Err((Invariant::PausesGiveBack, text));
        }
    }
    Ok(())
}
