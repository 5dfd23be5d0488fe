//! Launches without an answer, and when each is due.
//!
//! Decides until when a launch's stored request is sent again, and when its instances are searched by its tag.

use jiff::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::id::ClaimName;
use tenon_domain::launch::{EC2_CONSISTENCY, Launch, LaunchState, REPLAY_WITHIN};
use tenon_domain::unavailable::Mark;
use tenon_launching::build::BuiltLaunch;
use tenon_state::view::ClusterView;
use tenon_table::items::TemplateItem;

/// A launch and its claims, in the launch's order.
pub(crate) struct DueLaunch<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) claims: Vec<&'a Claim>,
    /// The marks that it leased since the observation.
    pub(crate) leases: &'a [Mark],
    /// Its templates, if it was committed since the observation.
    pub(crate) templates: Vec<TemplateItem>,
}

impl<'a> DueLaunch<'a> {
    /// A launch that this pass committed.
    pub(crate) fn built(built: &'a BuiltLaunch) -> Self {
        Self {
            launch: &built.launch,
            claims: built.claims.iter().collect(),
            leases: &built.leases,
            templates: built.template_items().collect(),
        }
    }

    /// The next time to send it, or to search for its instances.
    pub(crate) fn due_at(&self, now: Timestamp) -> Timestamp {
        match self.launch.state {
            LaunchState::Settled { at, .. } => at,
            LaunchState::Requested { not_before, .. }
                if now.duration_since(self.launch.created_at) < REPLAY_WITHIN =>
            {
                not_before.max(now)
            }
            LaunchState::Requested { not_before, .. } => {
                not_before.max(looked_for_at(self.launch, now)).max(now)
            }
        }
    }
}

/// The unsettled launches, oldest first.
pub(crate) fn due<'a>(view: &'a ClusterView) -> Vec<DueLaunch<'a>> {
    let waits = |launch: &&Launch| match launch.state {
        LaunchState::Requested { .. } => true,
        LaunchState::Settled { .. } => false,
    };
    let mut launches: Vec<&Launch> = view.launches.values().filter(waits).collect();
    launches.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let claim = |name: &ClaimName| view.claims.get(name);
    launches
        .into_iter()
        .map(|launch| DueLaunch {
            launch,
            claims: launch.claims.iter().filter_map(|c| claim(&c.name)).collect(),
            leases: &[],
            templates: Vec::new(),
        })
        .collect()
}

/// When to search by tag for the instances of a launch whose token has expired: DescribeInstances shows them by then.
pub(crate) fn looked_for_at(launch: &Launch, now: Timestamp) -> Timestamp {
    launch.created_at.saturating_add(REPLAY_WITHIN + EC2_CONSISTENCY).unwrap_or(now)
}
