//! Plans claims and their launches for pending pods. Pure.
//!
//! Decides only which observations support a plan, and that none is made while Karpenter runs: `tenon_planning` decides the
//! nodes, `tenon_launching` the requests, `join` what is written of pods on nodes on their way; and which launches without
//! an answer are told of.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::DEFAULT_SCHEDULER;
use tenon_domain::claim::Claim;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, ClusterName, Region};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::karpenter;
use tenon_domain::launch::{Launch, LaunchCause, LaunchState};
use tenon_domain::report::{Finding, Report, WAITS};
use tenon_domain::wake::FunctionName;
use tenon_launching::build::{Built, LaunchInput, build, write_launch};
use tenon_launching::zones::ZoneTally;
use tenon_planning::provision::{self, Purpose};
use tenon_state::cluster::ObservedCluster;
use tenon_state::observe::{ClusterObservation, evidence};
use tenon_state::pass::look_again;
use tenon_state::step::Change;
use tenon_state::view::ClusterView;
use tenon_table::WriteGroup;

use crate::join::joins;
use crate::lost::{LostLaunches, lost_launches};

/// A launch is told of when it was put off so often: one lost answer is nobody's concern.
const TOLD_AFTER_ATTEMPTS: u32 = 2;

/// The reason of claims whose launch EC2 hasn't taken.
const PUT_OFF: &str = "LaunchPutOff";

/// A plan, ready to be committed.
#[derive(Debug, Default)]
pub(crate) struct PlannedLaunches {
    /// The launches with their claims.
    pub(crate) built: Built,
    /// Claims whose launch is lost; while there are such, no launch is planned.
    pub(crate) lost: Vec<Claim>,
    /// The writes of each launch, then of pods that join earlier ones; or of each lost claim.
    pub(crate) groups: Vec<WriteGroup>,
    /// When to look again although nothing may have changed.
    pub(crate) wake_at: Option<Timestamp>,
}

pub(crate) fn plan(
    cluster: &ClusterName,
    region: &Region,
    observed: &ClusterObservation,
) -> (PlannedLaunches, Report) {
    let view = &observed.view;
    let mut told = Report::default();
    let (registry, snapshot) = match (&view.registry, &observed.snapshot) {
        (Ok(registry), Ok(snapshot)) => (registry, snapshot),
        (Err(missing), _) | (Ok(_), Err(missing)) => {
            told.wait(missing);
            return (PlannedLaunches::default(), told);
        }
    };
    told.unreadable(snapshot.unreadable.iter().filter(|object| object.kind == "Pod"));
    view.launches.values().flat_map(|launch| not_taken(view, launch)).for_each(|found| told.tell(found));
    let mut world = ObservedCluster::new(cluster, registry, view, snapshot);
    world.left_alone().for_each(|pod| told.tell(left_alone(pod)));
    let awaited = world.awaited_report();
    let mut pods = world.pending();
    pods.retain(|pod| !awaited.pods.contains(&pod.uid));
    let again_at = [world.recount_at(), awaited.look_at].into_iter().flatten().min();
    let held = karpenter::waiting(&snapshot.pods);
    if let Some(waiting) = &held {
        tell_wait(waiting, &pods, &mut told);
    }
    if let Some(lost) = lost_launches(cluster, view, &pods, &mut told) {
        let LostLaunches { failed, groups, wake_at } = lost;
        let wake_at = Some(again_at.map_or(wake_at, |at| at.min(wake_at)));
        return (PlannedLaunches { lost: failed, groups, wake_at, ..PlannedLaunches::default() }, told);
    }
    if pods.is_empty() || held.is_some() {
        return (PlannedLaunches { wake_at: again_at, ..PlannedLaunches::default() }, told);
    }
    world.resolve(region, &observed.compiled);
    world.keep_room_of_moving();
    let input = world.input(pods, Purpose::PendingPods, &BTreeSet::new());
    let (plan, report) = provision::plan(&input);
    report.tell(&mut told);
    let evidence = evidence(view, snapshot.generation);
    let launch_input = LaunchInput {
        now: view.now,
        by: FunctionName::Provisioner,
        registry,
        classes: &world.classes,
        types: &world.types,
        region,
        marks: &view.marks,
        zones: &ZoneTally::of(view.claims.values()),
        replaced: &[],
        displaced: Some(&world.displaced()),
        leaving: &view.leaving,
        evidence: &evidence,
    };
    let built = build(&launch_input, &plan.claims, &LaunchCause::PendingPods);
    built.tell(&mut told);
    let mut groups = groups(&launch_input, &built, view);
    groups.extend(joins(&launch_input, &world, view, &plan.placements));
    // The next look plans claims without a launch again.
    let again = (!built.refused.is_empty()).then(|| look_again(view.now));
    let wake_at = [plan.wake_at, again_at, again].into_iter().flatten().min();
    (PlannedLaunches { built, lost: Vec::new(), groups, wake_at }, told)
}

fn left_alone(pod: &Pod) -> Finding {
    let scheduler = &pod.shape.scheduler_name;
    Finding::refused(
        Subject { kind: SubjectKind::Pod, name: pod.name.to_string() },
        "OtherScheduler",
        "making no node for {}",
        format!("scheduler `{scheduler}` places it; Tenon makes nodes for the pods of `{DEFAULT_SCHEDULER}`"),
    )
}

/// Tells a wait of the whole cluster, and the pods for which nothing is launched because of it.
fn tell_wait(waiting: &Waiting, pods: &[Pod], told: &mut Report) {
    told.wait(waiting);
    for pod in pods {
        let subject = Subject { kind: SubjectKind::Pod, name: pod.name.to_string() };
        told.tell(Finding::refused(subject, waiting.into_str(), WAITS, waiting.to_string()));
    }
}

/// The claims of a launch that EC2 hasn't taken though it was sent several times.
fn not_taken(view: &ClusterView, launch: &Launch) -> Vec<Finding> {
    let attempts = match launch.state {
        LaunchState::Requested { attempts, .. } => attempts,
        LaunchState::Settled { .. } => 0,
    };
    if attempts < TOLD_AFTER_ATTEMPTS {
        return Vec::new();
    }
    let why = "EC2 throttles its launch, or doesn't answer it; the launch is sent again, once a minute or more often";
    let found = |name: &ClaimName| {
        let subject = Subject { kind: SubjectKind::Claim, name: name.to_string() };
        // Launches settle one by one: the others are no news.
        Finding::waiting(subject, PUT_OFF, "no instance yet for {}", why).group(PUT_OFF)
    };
    let claims = launch.claims.iter().map(|claim| &claim.name);
    claims.filter(|name| view.claims.contains_key(*name)).map(found).collect()
}

/// The writes of each launch; a template that several launches name is written with the first.
fn groups(input: &LaunchInput<'_>, built: &Built, view: &ClusterView) -> Vec<WriteGroup> {
    let mut known: BTreeSet<&str> = view.templates.keys().map(String::as_str).collect();
    let revision = view.generations.revision.saturating_add(1);
    let group = |launch| {
        let mut change = Change::of(&input.registry.cluster);
        write_launch(input, launch, revision, |name| known.contains(name), &mut change);
        known.extend(launch.templates.iter().map(|(_, template)| template.name.as_str()));
        change.group()
    };
    built.launches.iter().map(group).collect()
}
