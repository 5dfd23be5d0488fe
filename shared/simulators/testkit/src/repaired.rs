//! The deeds of a sick Node and of an impaired instance, and the invariants that they are replaced.
//!
//! Decides from the cluster's Nodes, EC2's instances and the claims. A sick Node's accelerated hardware isn't ready; Tenon
//! replaces it where its gate is open. An impaired instance fails a status check; Tenon replaces it in any case. If so many
//! Nodes are unhealthy, it waits.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::claim::{Claim, ClaimState, RemovalReason};
use tenon_domain::id::{ClusterName, InstanceId};
use tenon_domain::labels::{INITIALIZED, NODEPOOL};
use tenon_ec2::port::{InstanceState, StatusCheck};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::object::{condition, name, text};
use tenon_snapshot::{Kind, Object};
use tenon_twin::Impairment;

use crate::history::ClusterMoment;
use crate::invariants::Invariant;
use crate::pace::HistoryPace;
use crate::random::Dice;

/// Where a Node has its instance.
const PROVIDER_ID: &str = "/spec/providerID";
/// The condition, and how long it may be False.
const SICK: &str = "AcceleratedHardwareReady";
const LASTS: SignedDuration = SignedDuration::from_mins(10);
/// How long a status check may fail.
const CHECK_FAILS: SignedDuration = SignedDuration::from_mins(2);

/// Makes an initialised Node sick, or now and then all well again. Mostly one is unhealthy at a time, of either kind: of
/// several none is replaced.
pub(crate) fn sicken(region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
    let Some(site) = region.site(cluster) else { return };
    let Some(nodes) = breakable(region, cluster, dice) else { return };
    if let Some(node) = dice.pick(&nodes) {
        site.cluster().set_node_condition(name(node), SICK, "False");
    }
}

/// The initialised Nodes, one of which may become unhealthy. Mostly none of them may while one is; now and then all become
/// well again instead.
fn breakable(region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) -> Option<Vec<Object>> {
    let site = region.site(cluster)?;
    let initialized = |node: &Object| text(node, &label(INITIALIZED)) == Some("true");
    let nodes: Vec<Object> = site.cluster().objects(Kind::Node).into_iter().filter(initialized).collect();
    if nodes.iter().any(|node| is_unhealthy(region, node)) && !dice.permille(100) {
        if dice.permille(200) {
            heal(region, cluster);
            mend(region, cluster);
        }
        return None;
    }
    Some(nodes)
}

/// Makes all Nodes well again.
pub(crate) fn heal(region: &SimulatedRegion, cluster: &ClusterName) {
    let Some(site) = region.site(cluster) else { return };
    for node in site.cluster().objects(Kind::Node).iter().filter(|node| is_sick(node)) {
        site.cluster().set_node_condition(name(node), SICK, "True");
    }
}

/// Fails a status check of an initialised Node's instance, or now and then makes all well again. Some kubelets fall silent
/// with it. Mostly one is unhealthy at a time, as in [`sicken`].
pub(crate) fn impair(region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
    let Some(site) = region.site(cluster) else { return };
    let Some(nodes) = breakable(region, cluster, dice) else { return };
    let check = if dice.permille(500) { StatusCheck::Instance } else { StatusCheck::System };
    if let Some(node) = dice.pick(&nodes)
        && let Some(id) = instance_of(node)
        && region.twin().set_status_check(&id, check, Impairment::Fails).is_ok()
        && let (true, Some(provider_id)) = (dice.permille(300), text(node, PROVIDER_ID))
    {
        site.cluster().silence_kubelet(provider_id);
    }
}

/// Passes all status checks again; somebody terminates instances whose kubelets are silent.
pub(crate) fn mend(region: &SimulatedRegion, cluster: &ClusterName) {
    let Some(site) = region.site(cluster) else { return };
    for node in site.cluster().objects(Kind::Node) {
        let Some(id) = instance_of(&node) else { continue };
        if text(&node, PROVIDER_ID).is_some_and(|provider_id| site.cluster().is_silent(provider_id)) {
            let _ = region.twin().push_instance(&id, InstanceState::ShuttingDown);
        } else if impaired_since(region, &node).is_some() {
            for check in StatusCheck::ALL {
                let _ = region.twin().set_status_check(&id, check, Impairment::Passes);
            }
        }
    }
}

fn instance_of(node: &Value) -> Option<InstanceId> {
    InstanceId::parse(text(node, PROVIDER_ID)?.rsplit('/').next()?).ok()
}

/// Since when the Node's instance has failed a check.
fn impaired_since(region: &SimulatedRegion, node: &Value) -> Option<Timestamp> {
    let record = region.twin().instance(&instance_of(node)?)?;
    let is_running = record.instance.state == InstanceState::Running;
    record.impaired.values().min().copied().filter(|_| is_running)
}

/// Whether a claim leaves because its instance fails a status check.
pub(crate) fn impaired_gone(region: &SimulatedRegion, moment: &ClusterMoment) -> bool {
    let is_impaired = |claim: &Claim| {
        let record = claim.state.instance().and_then(|held| region.twin().instance(&held.id));
        record.is_some_and(|record| !record.impaired.is_empty())
    };
    let leaves = |claim: &Claim| claim.state.removal() == Some(RemovalReason::Unhealthy);
    moment.claims.iter().any(|claim| leaves(claim) && is_impaired(claim))
}

fn is_unhealthy(region: &SimulatedRegion, node: &Value) -> bool {
    is_sick(node) || impaired_since(region, node).is_some()
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

/// Since when unhealthy nodes are so few that each is to be repaired, by name.
#[derive(Debug, Default)]
pub(crate) struct FewSince(BTreeMap<String, Timestamp>);

/// A node that is sick for long leaves, if few of its pool and its cluster are unhealthy. For clusters whose gate is open.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_sick_nodes_go(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (moment, pace): (&ClusterMoment, HistoryPace),
    seen: &mut FewSince,
) -> Result<(), (Invariant, String)> {
    match stays(region, (cluster, moment), (LASTS, pace, sick_since), seen) {
        Some(found) => Err((Invariant::SickNodesGo, format!("{found} is sick"))),
        None => Ok(()),
    }
}

/// A node whose instance fails a status check for long leaves, if few of its pool and its cluster are unhealthy.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_impaired_nodes_go(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (moment, pace): (&ClusterMoment, HistoryPace),
    seen: &mut FewSince,
) -> Result<(), (Invariant, String)> {
    let since = |node: &Value| impaired_since(region, node);
    match stays(region, (cluster, moment), (CHECK_FAILS, pace, since), seen) {
        Some(found) => Err((Invariant::ImpairedNodesGo, format!("{found} is impaired"))),
        None => Ok(()),
    }
}

/// A node that is unhealthy, by the time since when, for longer than it may, where few are.
fn stays(
    region: &SimulatedRegion,
    (cluster, moment): (&ClusterName, &ClusterMoment),
    (lasts, pace, since): (SignedDuration, HistoryPace, impl Fn(&Value) -> Option<Timestamp>),
    seen: &mut FewSince,
) -> Option<String> {
    let nodes = region.site(cluster)?.cluster().objects(Kind::Node);
    let few = |of: &dyn Fn(&Object) -> bool| {
        let (all, bad) = nodes.iter().filter(|node| of(node)).fold((0_usize, 0_usize), |(all, bad), node| {
            let unhealthy = condition(node, "Ready") != Some("True") || is_unhealthy(region, node);
            (all + 1, bad + usize::from(unhealthy))
        });
        bad * 5 <= all.next_multiple_of(5)
    };
    let pool_of = |node: &Object| text(node, &label(NODEPOOL)).map(str::to_owned);
    let is_alone = |node: &Object| {
        since(node).is_some() && few(&|other| pool_of(other) == pool_of(node)) && few(&|_| true)
    };
    let alone = nodes.iter().filter(|node| is_alone(node)).map(|node| {
        let known = seen.0.get(name(node)).copied();
        (name(node).to_owned(), known.unwrap_or(moment.at))
    });
    seen.0 = alone.collect();
    nodes.iter().find_map(|node| {
        let (since, few_since) = (since(node)?, *seen.0.get(name(node))?);
        if moment.at.duration_since(few_since) < pace.looked_again() {
            return None;
        }
        let late = |from: Timestamp| moment.at.duration_since(from) > lasts + pace.repaired_within();
        let stays = |claim: &Claim| match &claim.state {
            ClaimState::Initialized { node: of, at, .. } => of.as_str() == name(node) && late(since.max(*at)),
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
        let claim = moment.claims.iter().find(|claim| stays(claim))?;
        Some(format!("since {since} Node {} of claim {}", name(node), claim.name))
    })
}
