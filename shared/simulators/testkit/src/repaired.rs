//! The deed of a sick Node, and the invariant that it is replaced.
//!
//! Decides from the cluster's Nodes and the claims. A sick Node's accelerated hardware isn't ready; Tenon replaces it where
//! its gate is open, unless so many are sick that it waits.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::claim::{Claim, ClaimState};
use tenon_domain::id::ClusterName;
use tenon_domain::labels::{INITIALIZED, NODEPOOL};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::object::{condition, name, text};
use tenon_snapshot::{Kind, Object};

use crate::history::ClusterMoment;
use crate::invariants::Invariant;
use crate::random::Dice;

/// The condition, and how long it may be False.
const SICK: &str = "AcceleratedHardwareReady";
const LASTS: SignedDuration = SignedDuration::from_mins(10);
/// How long a repair takes then: the agent reports, the function may fail, and sweeps come after that.
const REPAIRED_WITHIN: SignedDuration = SignedDuration::from_mins(20);

/// Makes an initialised Node sick, or now and then the sick ones well again.
pub(crate) fn sicken(region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
    let Some(site) = region.site(cluster) else { return };
    let initialized = |node: &Object| text(node, &label(INITIALIZED)) == Some("true");
    let nodes: Vec<Object> = site.cluster().objects(Kind::Node).into_iter().filter(initialized).collect();
    // Mostly one at a time: of several none is repaired.
    if nodes.iter().any(|node| is_sick(node)) && !dice.permille(100) {
        if dice.permille(100) {
            heal(region, cluster);
        }
    } else if let Some(node) = dice.pick(&nodes) {
        site.cluster().set_node_condition(name(node), SICK, "False");
    }
}

/// Makes all Nodes well again.
pub(crate) fn heal(region: &SimulatedRegion, cluster: &ClusterName) {
    let Some(site) = region.site(cluster) else { return };
    for node in site.cluster().objects(Kind::Node).iter().filter(|node| is_sick(node)) {
        site.cluster().set_node_condition(name(node), SICK, "True");
    }
}

fn is_sick(node: &Value) -> bool {
    condition(node, SICK) == Some("False")
}

fn sick_since(node: &Value) -> Option<Timestamp> {
    let conditions = tenon_snapshot::object::list(node, "/status/conditions");
    let found = conditions.iter().find(|condition| text(condition, "/type") == Some(SICK))?;
    text(found, "/lastTransitionTime")?.parse().ok().filter(|_| is_sick(node))
}

fn label(key: &str) -> String {
    format!("/metadata/labels/{}", key.replace('/', "~1"))
}

/// A node that is sick for long leaves, if few of its pool and its cluster are sick. For clusters whose gate is open.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_sick_nodes_go(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
) -> Result<(), (Invariant, String)> {
    let Some(site) = region.site(cluster) else { return Ok(()) };
    let nodes = site.cluster().objects(Kind::Node);
    let few = |of: &dyn Fn(&Object) -> bool| {
        let (all, sick) =
            nodes.iter().filter(|node| of(node)).fold((0_usize, 0_usize), |(all, sick), node| {
                (all + 1, sick + usize::from(condition(node, "Ready") != Some("True") || is_sick(node)))
            });
        sick * 5 <= all.next_multiple_of(5)
    };
    for node in &nodes {
        let Some(since) = sick_since(node) else { continue };
        let pool = text(node, &label(NODEPOOL)).map(str::to_owned);
        let stays = |claim: &Claim| match &claim.state {
            ClaimState::Initialized { node: of, at, .. } => {
                of.as_str() == name(node) && late(since.max(*at), moment.at)
            }
            ClaimState::Planned
            | ClaimState::LaunchFailed { .. }
            | ClaimState::Launched { .. }
            | ClaimState::Registered { .. }
            | ClaimState::Disrupting { .. }
            | ClaimState::Draining { .. }
            | ClaimState::Drained { .. }
            | ClaimState::Terminating { .. }
            | ClaimState::Terminated { .. } => false,
        };
        let Some(claim) = moment.claims.iter().find(|claim| stays(claim)) else { continue };
        if few(&|other| text(other, &label(NODEPOOL)).map(str::to_owned) == pool) && few(&|_| true) {
            let text = format!("Node {} of claim {} is sick since {since}", name(node), claim.name);
            return Err((Invariant::SickNodesGo, text));
        }
    }
    Ok(())
}

fn late(since: Timestamp, now: Timestamp) -> bool {
    now.duration_since(since) > LASTS + REPAIRED_WITHIN
}
