//! Invariants: they hold at every step, whatever went wrong before.
//!
//! Each is a function of the region's current state and of the history, and a [`crate::Sabotage`] in the tests breaks
//! each. None calls the code under test: this module implements budgets, claims and marks again, from the docs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, RemovalReason};
use tenon_domain::id::{InstanceId, Uid};
use tenon_domain::launch::LaunchState;
use tenon_ec2::port::ImageState;

use crate::crowded::CrowdedOut;
use crate::history::{ClusterMoment, History};
use crate::replaced_first::has_been_joined;

/// How long an instance of Tenon may lack a claim: EC2 shows it late, the audit runs every ten minutes, some audits
/// fail, and Tenon terminates only five orphans an hour.
pub const UNOWNED_GRACE: SignedDuration = SignedDuration::from_mins(75);

/// How long a pod that fits may be pending after the last fault.
pub const PENDING_GRACE: SignedDuration = SignedDuration::from_mins(40);

/// How long a pod may wait for a plan while claims step: the provisioner looks every few seconds and may lose races.
pub const PLAN_GRACE: SignedDuration = SignedDuration::from_mins(2);

/// How long a claim with a ready Node counts its planned pods, while kube-scheduler binds them.
pub const BINDING_WINDOW: SignedDuration = SignedDuration::from_secs(30);

tenon_domain::words! {
    /// The invariants.
    pub enum Invariant {
        /// Every claim has at most one instance, and no instance two claims.
        OneInstancePerClaim,
        /// No instance of Tenon lacks a claim for longer than the grace period.
        NothingUnowned,
        /// A claim's state never goes back.
        StatesGoForward,
        /// A claim that isn't ready yet gets on, or ends, within its timeout.
        ClaimsStep,
        /// Every pod that fits some allowed type runs after the last fault.
        PodsRun,
        /// No pod is counted on two live claims.
        PodsCountedOnce,
        /// A plan of an unchanged, settled world is empty.
        SettledStays,
        /// No unavailable image is requested or launched.
        ImagesAvailable,
        /// Launches are asked for by the launch role of their own cluster.
        AskedByOwnRole,
        /// Disruption stays within the pools' budgets.
        BudgetsHold,
        /// Disruption of all pools together stays within the cluster's budget.
        ClusterBudgetHolds,
        /// While voluntary disruption is paused no drain of it begins.
        PausesHold,
        /// A command that a pause stops gives its nodes back.
        PausesGiveBack,
        /// Expired nodes go once their wait for budgets is over.
        ExpiredNodesGo,
        /// Evictions stay within the PodDisruptionBudgets.
        PodBudgetsHold,
        /// Steps of claims never starve the provisioner.
        NoStarvation,
        /// The journal explains every launch and termination.
        JournalExplains,
        /// After a restore of the table, no healthy instance is terminated.
        RestoreKillsNothing,
        /// No decision uses missing, stale or half-written evidence.
        EvidenceHeld,
        /// Every order of first wakes, with any failing call, ends in the same state.
        OrdersAgree,
        /// Holds are within bounds, and the failures of one storm count once.
        HoldsBounded,
        /// A successful launch clears the mark.
        MarksClear,
        /// At most one launch probes a mark.
        OneProbe,
        /// No pod waits longer for a probe than with the peer.
        NobodyWaitsLonger,
        /// No more memory is learned than EC2 states.
        LearnedWithinStated,
        /// Learned memory is what kubelets of that type and image report.
        LearnedIsReported,
        /// The memory that claims are planned with exists on their nodes.
        PlannedMemoryIsThere,
        /// No launch goes into a zone that was known to be shifted.
        ShiftedZonesLeftAlone,
        /// A Node that is deleted, or whose NodeClaim is, accepts no pods after some seconds.
        DeletedAreTainted,
        /// Classes resolve to images that their spec selects, and to none of strangers.
        ImagesSelected,
        /// Each pod that gets no node has a finding and an Event.
        NothingSilent,
        /// A class is ready exactly if all that it depends on holds.
        ConditionsAgree,
        /// A class is ready again soon after the world is right for it.
        ReadyAgain,
        /// Launches name images only that are available and accepted by the class's policy.
        ImagesAccepted,
        /// A class has the newest image that it accepts.
        NewestTaken,
        /// No launch names an image within the hour after an instance of it failed.
        FailedPassedOver,
        /// No launch fails for a launch template that Tenon deleted.
        TemplatesThere,
        /// EC2 keeps no launch template of Tenon for long that nothing needs.
        TemplatesFew,
        /// Empty nodes leave where their pools say so.
        EmptyNodesGo,
        /// Nodes go for being empty only after their pool's `consolidateAfter`.
        ConsolidateAfterHolds,
        /// What a consolidation launches costs less than what it takes away.
        ConsolidationSaves,
        /// A disrupted claim belongs to a command that isn't done.
        DisruptingIsHeld,
        /// A Node isn't closed for longer than its command waits for a replacement.
        UnreplacedGivenBack,
        /// A command that waits for nothing ends.
        CommandsEnd,
        /// A node that drains because it drifted has drifted.
        DrainedHaveDrifted,
        /// Pods of an interrupted node stay while the instances of their replacements start.
        ReplacementFirst,
        /// A drain waits until the Node's volumes are detached.
        VolumesDetached,
        /// Instances stay while load balancers have the time to deregister them that a pool gives.
        DeregistrationWaited,
        /// Nodes that stay unhealthy leave, where the gate is open.
        SickNodesGo,
        /// A deleted class stays while claims use it.
        ClassesOutlastClaims,
        /// Nodes whose instances fail a status check leave.
        ImpairedNodesGo,
        /// A hostile cluster delays no pod of another by a minute, and costs it no node.
        NeighboursUndisturbed,
        /// No cluster's instances have the name, the network or the role of another.
        NothingBorrowed,
        /// Nodes, vCPUs, families and templates stay within what the cluster's stack allows.
        ClusterBoundsHold,
        /// The agent keeps a Ready Node closed for some seconds at most.
        OpenedInTime,
        /// A NodePool whose nodes don't join waits, tries with one launch, and says so.
        NodesNotJoining,
    }
}

/// An invariant that didn't hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// The seed that replays it.
    pub seed: u64,
    /// The step.
    pub step: u32,
    /// The virtual time.
    pub at: Timestamp,
    /// The finding.
    pub found: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, seed, step, at, found } = self;
        write!(f, "{invariant:?} is violated (seed {seed}, step {step}, {at}): {found}")
    }
}

pub(crate) type Found = Result<(), (Invariant, String)>;

fn found<T>(invariant: Invariant, text: String) -> Result<T, (Invariant, String)> {
    Err((invariant, text))
}

/// Every claim has at most one instance, and no instance two claims; a launch has at most as many instances as
/// claims.
///
/// # Errors The invariant, and the finding.
pub fn invariant_one_instance_per_claim(moment: &ClusterMoment) -> Found {
    let mut owners: BTreeMap<&InstanceId, &Claim> = BTreeMap::new();
    for claim in &moment.claims {
        let Some(instance) = claim.state.instance() else { continue };
        if let Some(other) = owners.insert(&instance.id, claim) {
            let text =
                format!("instance {} belongs to both claims {} and {}", instance.id, other.name, claim.name);
            return found(Invariant::OneInstancePerClaim, text);
        }
    }
    Ok(())
}

/// No instance of Tenon lacks a claim for longer than the grace period.
///
/// # Errors The invariant, and the finding.
pub fn invariant_nothing_unowned(moment: &ClusterMoment, history: &mut History) -> Found {
    let owned: BTreeSet<&InstanceId> = moment
        .claims
        .iter()
        .filter_map(|claim| claim.state.instance())
        .map(|instance| &instance.id)
        .collect();
    let unowned: BTreeSet<&InstanceId> =
        moment.live_instances().map(|r| &r.instance.id).filter(|id| !owned.contains(id)).collect();
    history.unowned_since.retain(|id, _| unowned.contains(id));
    for id in unowned {
        let since = *history.unowned_since.entry(id.clone()).or_insert(moment.at);
        let age = moment.at.duration_since(since);
        if age > UNOWNED_GRACE && history.restored_at.is_none() {
            return found(Invariant::NothingUnowned, format!("instance {id} has had no claim since {since}"));
        }
    }
    Ok(())
}

/// A claim's state never goes back, nor does its revision. One that a consolidation gives up is initialised again.
///
/// # Errors The invariant, and the finding.
pub fn invariant_states_go_forward(moment: &ClusterMoment, history: &mut History) -> Found {
    for claim in &moment.claims {
        if let Some(before) = history.claims.get(&claim.name) {
            let given_back =
                (before.phase(), claim.phase()) == (ClaimPhase::Disrupting, ClaimPhase::Initialized);
            if claim.phase() < before.phase() && !given_back {
                let text =
                    format!("claim {} went back from {} to {}", claim.name, before.phase(), claim.phase());
                return found(Invariant::StatesGoForward, text);
            }
            if claim.revision < before.revision {
                let text = format!("claim {} went back from revision {}", claim.name, before.revision);
                return found(Invariant::StatesGoForward, text);
            }
        }
    }
    history.claims = moment.claims.iter().map(|claim| (claim.name.clone(), claim.clone())).collect();
    let joined = moment.launches.iter().filter(|now| has_been_joined(history.launches.get(&now.id), now));
    history.joined_at.extend(joined.map(|launch| (launch.id.clone(), moment.at)));
    history.launches.extend(moment.launches.iter().map(|launch| (launch.id.clone(), launch.clone())));
    Ok(())
}

/// No pending pod is counted on two live claims, unless its room on the first was taken.
///
/// # Errors The invariant, and the finding.
pub fn invariant_pods_counted_once(
    moment: &ClusterMoment,
    waiting: &BTreeSet<String>,
    crowded_out: &CrowdedOut,
) -> Found {
    let live: BTreeSet<_> =
        moment.claims.iter().filter(|c| counts_pods(c, moment.at)).map(|c| &c.name).collect();
    let mut counted = BTreeMap::new();
    for launch in &moment.launches {
        for claim in launch.claims.iter().filter(|claim| live.contains(&claim.name)) {
            let waits = |uid: &&Uid| waiting.contains(uid.as_str()) && !crowded_out.holds(&claim.name, uid);
            for pod in claim.pods.iter().filter(waits) {
                if let Some(other) = counted.insert(pod, &claim.name)
                    && *other != claim.name
                {
                    let text = format!("pod {pod} is counted on both claims {other} and {}", claim.name);
                    return found(Invariant::PodsCountedOnce, text);
                }
            }
        }
    }
    Ok(())
}

/// No request names an image that was never available, and no launch uses one that is unavailable at that moment. An
/// image may change between the look and the launch; EC2 refuses that.
///
/// # Errors The invariant, and the finding.
pub fn invariant_images_available(
    launches: &[Arc<tenon_twin::LaunchRecord>],
    requests: &[Arc<tenon_twin::RequestRecord>],
    history: &mut History,
) -> Found {
    for request in requests.iter().skip(history.requests_judged) {
        for (image, state) in &request.images {
            if matches!(state, None | Some(ImageState::Pending | ImageState::Failed)) {
                return found(
                    Invariant::ImagesAvailable,
                    format!("a launch request names image {image}, whose state was {state:?}"),
                );
            }
        }
    }
    history.requests_judged = requests.len();
    match launches.iter().find(|launch| launch.image_state != ImageState::Available) {
        Some(launch) => {
            let text =
                format!("instance {} runs image {}, which isn't available", launch.instance, launch.image);
            found(Invariant::ImagesAvailable, text)
        }
        None => Ok(()),
    }
}

/// Whether a claim counts its planned pods: until its Node has been ready for [`BINDING_WINDOW`].
#[must_use]
pub fn counts_pods(claim: &Claim, now: Timestamp) -> bool {
    match &claim.state {
        ClaimState::Planned | ClaimState::Launched { .. } | ClaimState::Registered { .. } => true,
        ClaimState::Initialized { at, .. } => now.duration_since(*at) < BINDING_WINDOW,
        ClaimState::LaunchFailed { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Terminated { .. } => false,
    }
}

/// Evictions obey PodDisruptionBudgets, and pods are deleted without eviction only at a deadline.
///
/// # Errors The invariant, and the finding.
pub fn invariant_pod_budgets_hold(
    moment: &ClusterMoment,
    evictions: &[tenon_simulated_cluster::Evicted],
    history: &mut History,
) -> Found {
    for eviction in evictions.iter().skip(history.evictions_judged) {
        if let Some((budget, _)) = eviction.budgets.iter().find(|(_, allowed)| *allowed == 0) {
            let text = format!("pod {} was evicted, but budget {budget} allowed no disruption", eviction.pod);
            return found(Invariant::PodBudgetsHold, text);
        }
    }
    history.evictions_judged = evictions.len();
    for deletion in &moment.pod_deletions {
        // A claim that is interrupted before its Node registered has no Node name; its instance has.
        let instances: BTreeSet<&InstanceId> = moment
            .instances
            .iter()
            .filter(|record| record.instance.node_name().is_ok_and(|name| name.as_str() == deletion.node))
            .map(|record| &record.instance.id)
            .collect();
        let held = |claim: &&std::sync::Arc<Claim>| {
            claim.state.instance().is_some_and(|held| instances.contains(&held.id))
        };
        let mut reasons = moment.claims.iter().filter(held).filter_map(|claim| claim.state.removal());
        if !reasons.any(has_deadline) {
            let text =
                format!("pod {} of node {} was deleted instead of evicted", deletion.pod, deletion.node);
            return found(Invariant::PodBudgetsHold, text);
        }
    }
    Ok(())
}

/// Whether EC2 has a deadline; the pools of the simulation have no `terminationGracePeriod`.
pub(crate) const fn has_deadline(reason: RemovalReason) -> bool {
    match reason {
        RemovalReason::SpotInterrupted
        | RemovalReason::CapacityReservationInterrupted
        | RemovalReason::InstanceStopped
        | RemovalReason::Unhealthy
        | RemovalReason::InstanceTerminated => true,
        RemovalReason::Drifted
        | RemovalReason::Empty
        | RemovalReason::Underutilized
        | RemovalReason::ScheduledChange
        | RemovalReason::RebalanceRecommended
        | RemovalReason::Deleted
        | RemovalReason::Expired
        | RemovalReason::RegistrationTimeout
        | RemovalReason::InitializationTimeout => false,
    }
}

/// No pod that fits is pending for longer than the grace period.
///
/// # Errors The invariant, and the finding.
pub fn invariant_pods_run(at: Timestamp, waiting: &BTreeSet<String>, history: &mut History) -> Found {
    history.pending_since.retain(|pod, _| waiting.contains(pod));
    for pod in waiting {
        let since = *history.pending_since.entry(pod.clone()).or_insert(at);
        if at.duration_since(since) > PENDING_GRACE {
            return found(Invariant::PodsRun, format!("pod {pod} fits, but is pending since {since}"));
        }
    }
    Ok(())
}

/// Pending pods are planned for in time, however many steps claims take.
///
/// # Errors The invariant, and the finding.
pub fn invariant_no_starvation(at: Timestamp, uncounted: &BTreeSet<String>, history: &mut History) -> Found {
    history.pending_since.retain(|pod, _| uncounted.contains(pod));
    for pod in uncounted {
        let since = *history.pending_since.entry(pod.clone()).or_insert(at);
        if at.duration_since(since) > PLAN_GRACE {
            let text = format!("no claim was planned for pod {pod}, which waits since {since}");
            return found(Invariant::NoStarvation, text);
        }
    }
    Ok(())
}

/// Each launch and termination of Tenon has a record.
///
/// # Errors The invariant, and the finding.
pub fn invariant_journal_explains(moment: &ClusterMoment, history: &History) -> Found {
    for record in &moment.instances {
        let Some(launch) = record.instance.tags.get(tenon_domain::tags::LAUNCH) else { continue };
        if !history.journal.launches.contains(launch) {
            let text = format!("the journal lacks launch {launch} of instance {}", record.instance.id);
            return found(Invariant::JournalExplains, text);
        }
        let by_us =
            record.instance.state_reason.as_ref().is_some_and(|r| r.code == "Client.UserInitiatedShutdown");
        if by_us && !history.journal.terminations.contains(record.instance.id.as_str()) {
            let text = format!("the journal lacks the termination of instance {}", record.instance.id);
            return found(Invariant::JournalExplains, text);
        }
    }
    Ok(())
}

/// Tenon terminates no instance that was healthy at the table's restore.
///
/// # Errors The invariant, and the finding.
pub fn invariant_restore_kills_nothing(moment: &ClusterMoment, history: &History) -> Found {
    for record in moment.instances.iter().filter(|r| history.well_at_restore.contains(&r.instance.id)) {
        let by_us =
            record.instance.state_reason.as_ref().is_some_and(|r| r.code == "Client.UserInitiatedShutdown");
        if by_us && record.instance.state.is_going() {
            let text = format!(
                "instance {} was healthy at the restore, but Tenon terminated it",
                record.instance.id
            );
            return found(Invariant::RestoreKillsNothing, text);
        }
    }
    Ok(())
}

/// The state that a settled region must keep: its claims, launches, commands and instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledRegion {
    claims: Vec<(String, u64)>,
    launches: usize,
    commands: usize,
    instances: Vec<InstanceId>,
    requests: usize,
}

impl SettledRegion {
    /// The state at a moment.
    #[must_use]
    pub fn of(moment: &ClusterMoment, requests: usize) -> Self {
        let open = |claim: &&Arc<Claim>| !claim.phase().is_final();
        Self {
            claims: moment.claims.iter().filter(open).map(|c| (c.name.to_string(), c.revision)).collect(),
            launches: moment
                .launches
                .iter()
                .filter(|launch| matches!(launch.state, LaunchState::Requested { .. }))
                .count(),
            commands: moment.commands.iter().filter(|command| command.is_active()).count(),
            instances: moment.live_instances().map(|record| record.instance.id.clone()).collect(),
            requests,
        }
    }
}

/// Another look doesn't change a settled region.
///
/// # Errors The invariant, and the finding.
pub fn invariant_settled_stays(before: &SettledRegion, after: &SettledRegion) -> Found {
    if before == after {
        return Ok(());
    }
    found(Invariant::SettledStays, format!("the settled region changed from {before:?} to {after:?}"))
}
