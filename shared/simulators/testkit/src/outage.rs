//! Outages of an instance profile: somebody deletes it or takes its role away, and puts it right again.
//!
//! Decides when, and for how long.

use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;

use crate::random::Dice;

/// The outages of a cluster's node profile.
pub(crate) struct ProfileOutages {
    dice: Dice,
    /// The longest, in seconds.
    longest: u64,
    now: Option<Outage>,
}

struct Outage {
    until: Timestamp,
    lost: Lost,
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    Profile,
    Role,
}

impl ProfileOutages {
    /// The outages of a seed.
    pub(crate) fn new(seed: u64, longest: u64) -> Self {
        Self { dice: Dice::new(seed, 14), longest, now: None }
    }

    /// Begins an outage now and then, and ends it when its time has come.
    pub(crate) fn act(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        if let Some(outage) = &self.now {
            if outage.until <= region.now() {
                self.end(region, cluster);
            }
            return;
        }
        let profile = name_of(cluster);
        let lost = match self.dice.below(1000) {
            0..=2 => Lost::Profile,
            3..=5 => Lost::Role,
            _ => return,
        };
        let _ = match lost {
            Lost::Profile => region.twin().delete_instance_profile(&profile),
            Lost::Role => region.twin().remove_role_from_instance_profile(&profile),
        };
        let wait =
            SignedDuration::from_secs(i64::try_from(self.dice.between(20, self.longest)).unwrap_or(60));
        self.now = Some(Outage { until: region.now().checked_add(wait).unwrap_or(Timestamp::MAX), lost });
    }

    /// Puts the profile right.
    pub(crate) fn end(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let Some(outage) = self.now.take() else { return };
        let profile = name_of(cluster);
        if outage.lost == Lost::Profile {
            let _ = region.twin().create_instance_profile(&profile);
        }
        let _ = region.twin().add_role_to_instance_profile(&profile, &profile);
    }

    /// Whether there is one.
    pub(crate) const fn is_on(&self) -> bool {
        self.now.is_some()
    }
}

/// The profile of the cluster's nodes, and its role.
fn name_of(cluster: &ClusterName) -> String {
    format!("{cluster}-node")
}
