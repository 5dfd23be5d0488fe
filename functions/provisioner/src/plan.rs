//! Plans claims and their launches for pods that wait. Pure.
//!
//! Decides nothing of its own but which observation supports a plan: which nodes are needed is `tenon_planning`'s,
//! how EC2 is asked is `tenon_launching`'s.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClusterName, Region};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::launch::LaunchCause;
use tenon_domain::wake::FunctionName;
use tenon_launching::build::{BuildError, Built, LaunchInput, build, write_launch};
use tenon_planning::provision::{self, Purpose, Unschedulable};
use tenon_state::observe::{Observed, evidence};
use tenon_state::pass::{CONDITION, Look, told_waiting};
use tenon_state::step::Change;
use tenon_state::world::World;
use tenon_table::Group;

/// Pods that are told about at most, one for each group that is refused alike.
pub(crate) const REFUSALS_TOLD: usize = 20;

/// A plan, ready to be committed.
#[derive(Debug, Default)]
pub(crate) struct Planned {
    /// The launches with their claims.
    pub(crate) built: Built,
    /// The writes of each launch.
    pub(crate) groups: Vec<Group>,
    /// What was refused and is waited for, and when to look again.
    pub(crate) look: Look,
}

pub(crate) fn plan(cluster: &ClusterName, region: &Region, observed: &Observed) -> Planned {
    let view = &observed.view;
    let waiting = |waiting: &Waiting| Planned {
        look: Look::waiting(FunctionName::Provisioner, view.now, waiting),
        ..Planned::default()
    };
    let registry = match &view.registry {
        Ok(registry) => registry,
        Err(missing) => return waiting(missing),
    };
    let snapshot = match &observed.snapshot {
        Ok(snapshot) => snapshot,
        Err(missing) => return waiting(missing),
    };
    let mut world = World::new(cluster, registry, view, snapshot);
    let pods = world.pending();
    let recount_at = world.recount_at();
    if pods.is_empty() {
        let look = Look { wake_at: recount_at, ..Look::default() };
        return Planned { look, ..Planned::default() };
    }
    world.resolve(region);
    let input = world.input(pods, Purpose::PendingPods, &BTreeSet::new());
    let (plan, report) = provision::plan(&input);
    let evidence = evidence(view, snapshot.generation);
    let launch_input = LaunchInput {
        now: view.now,
        by: FunctionName::Provisioner,
        registry,
        classes: &world.classes,
        types: &world.types,
        region,
        marks: &view.marks,
        evidence: &evidence,
    };
    let built = build(&launch_input, &plan.claims, &LaunchCause::PendingPods);
    let mut known: BTreeSet<&str> = view.templates.keys().map(String::as_str).collect();
    let mut groups = Vec::new();
    let revision = view.generations.revision.saturating_add(1);
    for launch in &built.launches {
        let mut change = Change::of(&registry.cluster);
        write_launch(&launch_input, launch, revision, |name| known.contains(name), &mut change);
        groups.push(change.group());
        known.extend(launch.templates.iter().map(|(_, template)| template.name.as_str()));
    }
    let mut told: Vec<JournalRecord> =
        report.waiting.iter().map(|w| told_waiting(FunctionName::Provisioner, view.now, w)).collect();
    told.extend(refusals(&report.unschedulable, view.now));
    for (names, error) in built.refused.iter().filter(|(_, error)| !matches!(error, BuildError::Taken)) {
        told.extend(names.first().map(|name| {
            let subject = Subject { kind: SubjectKind::Claim, name: name.to_string() };
            let message = format!(
                "no launch can be made for {} claims: {}",
                names.len(),
                tenon_runtime::error::chain(error)
            );
            refused(subject, view.now, message)
        }));
    }
    let waits = !report.waiting.is_empty() || !built.refused.is_empty();
    let wake_at = [plan.wake_at, recount_at].into_iter().flatten().min();
    Planned { groups, look: Look { told, wake_at, waits }, built }
}

/// One record for each group of pods that is refused for the same causes.
fn refusals(unschedulable: &[Unschedulable], now: Timestamp) -> Vec<JournalRecord> {
    let mut groups: BTreeMap<String, (usize, &Unschedulable)> = BTreeMap::new();
    for refused in unschedulable {
        groups.entry(refused.message()).or_insert((0, refused)).0 += 1;
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(_, (_, a)), (_, (_, b))| a.pod.cmp(&b.pod));
    let record = |(message, (count, first)): (String, (usize, &Unschedulable))| {
        let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        let subject = Subject { kind: SubjectKind::Pod, name: first.pod.name.to_string() };
        let message = format!("pod `{}`{others} gets no node: {message}", first.pod.name);
        let record =
            refused(subject, now, message).detail("reason", first.reason().as_str()).detail("pods", count);
        match first.reason().waiting().and_then(Waiting::condition) {
            Some(condition) => record.detail(CONDITION, condition),
            None => record,
        }
    };
    groups.into_iter().take(REFUSALS_TOLD).map(record).collect()
}

fn refused(subject: Subject, now: Timestamp, message: String) -> JournalRecord {
    JournalRecord::new(subject, now, FunctionName::Provisioner.as_str(), Decision::Refused, message)
}
