//! Pauses of voluntary disruption: the deeds that set and end them, and the invariant that they hold.
//!
//! Decides from the NodePools, the registry entry and the claims.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::id::ClusterName;
use tenon_domain::labels::PAUSE_DISRUPTION;
use tenon_domain::registry::FeatureGate;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::change_settings;
use tenon_snapshot::object::{name, text_map};
use tenon_snapshot::{Kind, Object};

use crate::budgets::{Expiring, is_voluntary};
use crate::invariants::{Found, Invariant};
use crate::random::Dice;
use crate::world::set;

/// How long drains may begin after the cluster's pause was set: as long as a look takes that read the setting before.
const CLUSTER_SETTLES: SignedDuration = SignedDuration::from_secs(10);
/// How long they may after a pool's: decisions use a snapshot of 90 s, and its agent reports within 10 s.
const POOL_SETTLES: SignedDuration = SignedDuration::from_secs(110);

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
}

impl Pausing {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed, 20);
        let chance = if dice.permille(300) { 60 } else { 0 };
        Self { dice, chance }
    }

    /// Now and then pauses the cluster or a pool, or ends the pause.
    pub(crate) fn act(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
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

    /// Whether a claim's drain waits for the end of a pause.
    pub(crate) fn holds(&self, claim: &Claim, now: Timestamp) -> bool {
        self.holds_from(claim).is_some_and(|from| from <= now)
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
