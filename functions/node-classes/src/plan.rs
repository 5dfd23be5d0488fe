//! The statuses of a cluster's classes, from one observation.
//!
//! Decides which classes are resolved, each one's status, its announcement, and the time of the next look. A part
//! that EC2 didn't answer keeps its last value; only a class that was never resolved is Unknown.
//!
//! Invariants: a second plan of an unchanged world writes nothing; a class is deleted only if a fresh snapshot lacks
//! it and no claim uses it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::class_status::{
    ClassObservation, ClassStatus, Condition, ConditionReason, ConditionStatus, ConditionType, ResolvedImage,
    Seen, SeenReservations,
};
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClusterName, NodeClassName};
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_domain::registry::Registry;
use tenon_domain::report::{Finding, Report};
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::snapshot::Unreadable;
use tenon_domain::unavailable::Mark;
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::port::{CapacityReservation, Image, SecurityGroup, Subnet, VolumeSnapshot};
use tenon_ec2::{ClassPart, Ec2Error, blame};
use tenon_runtime::error::chain;
use tenon_state::image_query::{ClassImages, queries};

use crate::resolve::{self, JudgedClass};
use crate::{spec, spec_form};

/// The interval of queries to EC2, because events of images can be lost.
pub const LOOK_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// The interval of queries to ARC, if the cluster avoids shifted zones: ARC sends events of autoshifts only. It is
/// less than the sweep's minute, so that an early sweep isn't wasted.
pub const SHIFTS_EVERY: SignedDuration = SignedDuration::from_secs(50);

/// How long until a failed query to EC2 is repeated: its request buckets refill within seconds.
pub const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(20);

/// The observations.
#[derive(Debug, Clone)]
pub struct NodeClassesInput {
    /// The time.
    pub now: Timestamp,
    /// The cluster.
    pub cluster: ClusterName,
    /// The installation's account.
    pub account: String,
    /// Its entry in the registry.
    pub registry: Result<Registry, Waiting>,
    /// The classes to resolve, with EC2's answers.
    pub looked: Vec<(Ec2NodeClass, Answers)>,
    /// Statuses as they are.
    pub statuses: BTreeMap<NodeClassName, ClassStatus>,
    /// Refused launches of classes in their last resolved form, if the class is to blame.
    pub refused: BTreeMap<NodeClassName, Mark>,
    /// Classes that a fresh snapshot doesn't have and that no claim uses.
    pub gone: BTreeSet<NodeClassName>,
    /// Classes that the agent reported and that can't be read.
    pub unreadable: Vec<Unreadable>,
    /// The generation of the snapshot.
    pub snapshot: u64,
    /// When all classes must be resolved again, as stored; now or earlier if this pass resolves them.
    pub look_at: Timestamp,
}

/// EC2's answers about a class; a cluster without a registry entry gets no queries.
#[derive(Debug, Clone)]
pub struct Answers {
    /// Subnets that its terms match.
    pub subnets: Result<Vec<Subnet>, Ec2Error>,
    /// Security groups that its terms match.
    pub security_groups: Result<Vec<SecurityGroup>, Ec2Error>,
    /// Images that its terms match, in every state.
    pub images: Result<Vec<Image>, Ec2Error>,
    /// Snapshots that it names, if its cluster may use any besides those of images.
    pub snapshots: Result<Vec<VolumeSnapshot>, Ec2Error>,
    /// Capacity reservations that its terms match; `None` without a query.
    pub reservations: Option<AnsweredReservations>,
    /// The cluster's shifted zones; `None` if ARC wasn't asked.
    pub shifts: Option<Result<BTreeSet<ShiftedZone>, Ec2Error>>,
}

impl Answers {
    /// The answers without any query.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            subnets: Ok(Vec::new()),
            security_groups: Ok(Vec::new()),
            images: Ok(Vec::new()),
            snapshots: Ok(Vec::new()),
            reservations: None,
            shifts: None,
        }
    }
}

/// EC2's answers about capacity reservations, behind the open gate.
#[derive(Debug, Clone)]
pub struct AnsweredReservations {
    /// The open gate.
    pub right: ReservedCapacity,
    /// The answer.
    pub answer: Result<Vec<CapacityReservation>, Ec2Error>,
}

/// The writes and announcements.
#[derive(Debug, Clone)]
pub struct NodeClassesPlan {
    /// Classes whose status changed.
    pub changes: Vec<ClassChange>,
    /// Classes to delete, with the observed revision.
    pub gone: Vec<(NodeClassName, u64)>,
    /// When all classes are due for another look.
    pub look_at: Timestamp,
    /// How long until EC2 or ARC must be asked again, if a query failed.
    pub retry_after: Option<SignedDuration>,
}

/// A class's change.
#[derive(Debug, Clone)]
pub struct ClassChange {
    /// Its status from now on.
    pub status: ClassStatus,
    /// The observed revision, if there was one.
    pub before: Option<u64>,
    /// Its queries for images.
    pub images: ClassImages,
    /// The decision's record; `None` if only free addresses changed, which wakes no function.
    pub record: Option<JournalRecord>,
    /// Which functions must look again.
    pub reach: ChangeReach,
}

/// The functions that look again after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeReach {
    /// Planners: the change counts as a step.
    Planners,
    /// None: free addresses change with every launch.
    Nobody,
}

/// Whether a class is resolved outside the regular interval: it is new or changed, or its next try is due.
#[must_use]
pub fn due(class: &Ec2NodeClass, status: Option<&ClassStatus>, now: Timestamp) -> bool {
    status.is_none_or(|status| {
        !spec_form::is_of(status, class) || status.next_try().is_some_and(|at| at <= now)
    })
}

/// Plans the statuses.
pub fn plan(input: &NodeClassesInput) -> (NodeClassesPlan, Report) {
    let mut report = Report::default();
    report.unreadable(&input.unreadable);
    let mut changes = Vec::new();
    let everything = input.look_at <= input.now;
    let shifts = input.looked.iter().any(|(_, answers)| answers.shifts.is_some());
    let every = if shifts { SHIFTS_EVERY } else { LOOK_EVERY };
    let mut next = if everything { later(input.now, every) } else { input.look_at };
    let mut unanswered = false;
    for (class, answers) in &input.looked {
        let stored = input.statuses.get(&class.name);
        let previous = stored.map(|status| spec_form::in_this_form(status, class));
        let previous = previous.as_deref();
        let mut look = ClassLook { input, class, previous, kept: BTreeSet::new(), unseen: false };
        let status = ClassStatus::observed(look.observe(answers), previous, input.now);
        unanswered |= look.unseen || !look.kept.is_empty();
        tell_kept(&mut report, &class.name, &look.kept);
        changes.extend(change(input, class, previous, status));
    }
    if unanswered {
        next = next.min(later(input.now, RETRY_AFTER));
    }
    let gone = input.gone.iter().filter_map(|name| Some((name.clone(), input.statuses.get(name)?.revision)));
    let retry_after = unanswered.then_some(RETRY_AFTER);
    (NodeClassesPlan { changes, gone: gone.collect(), look_at: next, retry_after }, report)
}

/// Reports conditions that keep their earlier value, because EC2 or ARC gave no answer.
fn tell_kept(report: &mut Report, class: &NodeClassName, kept: &BTreeSet<ConditionType>) {
    if kept.is_empty() {
        return;
    }
    let kept: Vec<&str> = kept.iter().map(|condition| condition.as_str()).collect();
    let subject = Subject { kind: SubjectKind::Class, name: class.to_string() };
    let why = format!(
        "AWS didn't answer about `{}`; next attempt in {} s",
        kept.join("`, `"),
        RETRY_AFTER.as_secs()
    );
    let found = Finding::waiting(subject, "NoAnswer", "keeping what {} last resolved to", why);
    report.tell(found.condition(kept.join(" ")));
}

/// The condition that tells of one part of a class, and its reason where EC2 doesn't answer.
#[derive(Clone, Copy)]
struct PartCondition {
    condition: ConditionType,
    reason: ConditionReason,
}

struct ClassLook<'a> {
    input: &'a NodeClassesInput,
    class: &'a Ec2NodeClass,
    previous: Option<&'a ClassStatus>,
    kept: BTreeSet<ConditionType>,
    unseen: bool,
}

impl ClassLook<'_> {
    fn observe(&mut self, answers: &Answers) -> ClassObservation {
        let class = self.class;
        let asked = queries(&class.ami_selector);
        let mut unsupported = class.unsupported.clone();
        unsupported.extend(asked.unserved.iter().map(|(field, _)| field.clone()));
        unsupported.extend(unserved_reservations(class, answers.reservations.as_ref()));
        let registry = match &self.input.registry {
            Ok(registry) => registry,
            Err(_) => return self.unregistered(unsupported),
        };
        let judged = JudgedClass { class, registry, account: &self.input.account, now: self.input.now };
        let known = self.previous.filter(|known| known.spec_digest == spec_form::digest(class));
        let images = match asked.unserved.first() {
            Some((field, value)) => unserved(field, value),
            None => self.part(
                PartCondition {
                    condition: ConditionType::AmisReady,
                    reason: ConditionReason::AmiResolutionFailed,
                },
                &answers.images,
                known.map(|known| known.images.clone()),
                |found| resolve::images(judged, found),
            ),
        };
        let validation = match spec::validate(class, registry) {
            Seen::Holds(()) => match self.snapshots(judged, &images, answers) {
                Seen::Holds(()) => self.launches(&images),
                obstacle @ (Seen::Refused { .. } | Seen::Unseen { .. }) => obstacle,
            },
            obstacle @ (Seen::Refused { .. } | Seen::Unseen { .. }) => obstacle,
        };
        ClassObservation {
            name: class.name.clone(),
            generation: class.meta.generation,
            spec_digest: spec_form::digest(class),
            subnets: self.part(
                PartCondition {
                    condition: ConditionType::SubnetsReady,
                    reason: ConditionReason::SubnetResolutionFailed,
                },
                &answers.subnets,
                known.map(|known| known.subnets.clone()),
                |found| resolve::subnets(judged, found),
            ),
            security_groups: self.part(
                PartCondition {
                    condition: ConditionType::SecurityGroupsReady,
                    reason: ConditionReason::SecurityGroupResolutionFailed,
                },
                &answers.security_groups,
                known.map(|known| known.security_groups.clone()),
                |found| resolve::security_groups(judged, found),
            ),
            images,
            instance_profile: resolve::instance_profile(judged),
            reservations: answers.reservations.as_ref().map(|answered| SeenReservations {
                right: answered.right,
                seen: self.part(
                    PartCondition {
                        condition: ConditionType::CapacityReservationsReady,
                        reason: ConditionReason::CapacityReservationResolutionFailed,
                    },
                    &answered.answer,
                    known.map(|known| known.reservations.shown().to_vec()),
                    |found| resolve::reservations(found),
                ),
            }),
            shifts: answers.shifts.as_ref().map(|answer| self.shifts(answer)),
            validation,
            unsupported,
        }
    }

    /// Whether EC2 accepts launches of the class, from launches with this spec and these images.
    fn launches(&self, images: &Seen<Vec<ResolvedImage>>) -> Seen<()> {
        let known = self.previous.filter(|known| known.spec_digest == spec_form::digest(self.class));
        let (Some(known), Some(mark)) = (known, self.input.refused.get(&self.class.name)) else {
            return Seen::Holds(());
        };
        let ids = |images: &[ResolvedImage]| images.iter().map(|image| image.id.clone()).collect::<Vec<_>>();
        if let Seen::Holds(images) = images
            && ids(images) != ids(&known.images)
        {
            return Seen::Holds(());
        }
        let words = mark.message.as_deref().unwrap_or(&mark.code);
        let remedy = blame(words).map_or("check the class's spec", ClassPart::remedy);
        let until = mark.blocked_until().min(mark.last_resort_at());
        let message = format!(
            "EC2 refuses launches from this class ({words}); {remedy}; next launch at `{until}`, or when the class \
             changes"
        );
        Seen::Refused { reason: ConditionReason::LaunchRefused, message }
    }

    /// Whether the class may use the snapshots that it names. Without images nothing depends on it.
    fn snapshots(
        &mut self,
        judged: JudgedClass<'_>,
        images: &Seen<Vec<ResolvedImage>>,
        answers: &Answers,
    ) -> Seen<()> {
        let Seen::Holds(resolved) = images else { return Seen::Holds(()) };
        if spec::named_snapshots(self.class).is_empty() {
            return Seen::Holds(());
        }
        let answer = match (&answers.images, &answers.snapshots) {
            (Ok(images), Ok(snapshots)) => Ok((images, snapshots)),
            (Err(error), _) | (_, Err(error)) => Err(error.clone()),
        };
        let known =
            self.previous.filter(|known| known.spec_digest == spec_form::digest(self.class)).map(|_| ());
        self.part(
            PartCondition {
                condition: ConditionType::ValidationSucceeded,
                reason: ConditionReason::ValidationIncomplete,
            },
            &answer,
            known,
            |(images, snapshots)| {
                let taken = |image: &&Image| resolved.iter().any(|resolved| resolved.id == image.id);
                let taken: Vec<&Image> = images.iter().filter(taken).collect();
                resolve::snapshots(judged, &taken, snapshots)
            },
        )
    }

    /// The cluster's shifted zones. Without an answer from ARC they stay as they are.
    fn shifts(&mut self, answer: &Result<BTreeSet<ShiftedZone>, Ec2Error>) -> Seen<BTreeSet<ShiftedZone>> {
        let error = match answer {
            Ok(found) => return Seen::Holds(found.clone()),
            Err(error) => error,
        };
        let reason = ConditionReason::ZonalShiftResolutionFailed;
        let next_look = later(self.input.now, SHIFTS_EVERY);
        match error {
            Ec2Error::NotFound { .. } => {
                let message = format!(
                    "zonal shift isn't enabled for cluster `{}`: enable it in EKS, or set `ZonalShift` to `Disabled` in its stack",
                    self.input.cluster
                );
                Seen::Refused { reason, message }
            }
            Ec2Error::Unauthorized { action, .. } => {
                let message = format!(
                    "{}; allow function `node-classes` the action `arc-zonal-shift:{action}`",
                    chain(error)
                );
                Seen::Unseen { reason, message, next_try: next_look }
            }
            Ec2Error::Invalid { .. } | Ec2Error::Unknown { .. } => {
                Seen::Unseen { reason, message: chain(error), next_try: next_look }
            }
            Ec2Error::Throttled { .. }
            | Ec2Error::AlreadyExists { .. }
            | Ec2Error::IdempotentParameterMismatch { .. }
            | Ec2Error::Refused { .. }
            | Ec2Error::ServerError { .. }
            | Ec2Error::NoAnswer { .. } => self.shifts_as_before().unwrap_or_else(|| {
                self.unseen = true;
                let next_try = later(self.input.now, RETRY_AFTER);
                Seen::Unseen { reason, message: chain(error), next_try }
            }),
        }
    }

    /// ARC's last answer, from any class: shifts belong to the cluster.
    fn shifts_as_before(&mut self) -> Option<Seen<BTreeSet<ShiftedZone>>> {
        let condition = ConditionType::ZonesInService;
        let told = || self.input.statuses.values().filter_map(|known| known.condition(condition));
        let failed = |told: &&Condition| told.reason == ConditionReason::ZonalShiftResolutionFailed;
        if told().any(|told| !failed(&told)) {
            self.kept.insert(condition);
            return Some(Seen::Holds(self.input.statuses.values().flat_map(ClassStatus::shifts).collect()));
        }
        let refused = told().find(|told| failed(told) && told.status == ConditionStatus::False)?;
        let (reason, message) = (refused.reason, refused.message.clone());
        self.kept.insert(condition);
        Some(Seen::Refused { reason, message })
    }

    /// One part, judged from EC2's answer. A permanent refusal refuses the part; after a transient one it keeps its
    /// last value.
    fn part<A, T>(
        &mut self,
        told: PartCondition,
        answer: &Result<A, Ec2Error>,
        known: Option<T>,
        judge: impl FnOnce(&A) -> Seen<T>,
    ) -> Seen<T> {
        let PartCondition { condition, reason } = told;
        let error = match answer {
            Ok(found) => return judge(found),
            Err(error) => error,
        };
        match error {
            Ec2Error::Unauthorized { action, .. } => {
                let message =
                    format!("{}; allow function `node-classes` the action `ec2:{action}`", chain(error));
                Seen::Refused { reason, message }
            }
            Ec2Error::Invalid { .. } => Seen::Refused { reason, message: chain(error) },
            Ec2Error::Throttled { .. }
            | Ec2Error::NotFound { .. }
            | Ec2Error::AlreadyExists { .. }
            | Ec2Error::IdempotentParameterMismatch { .. }
            | Ec2Error::Refused { .. }
            | Ec2Error::ServerError { .. }
            | Ec2Error::NoAnswer { .. }
            | Ec2Error::Unknown { .. } => {
                let held = self.previous.and_then(|previous| previous.condition(condition));
                let held = held.is_some_and(|held| held.status == ConditionStatus::True);
                if let (Some(known), true) = (known, held) {
                    self.kept.insert(condition);
                    return Seen::Holds(known);
                }
                self.unseen = true;
                let next_try = later(self.input.now, RETRY_AFTER);
                Seen::Unseen { reason, message: chain(error), next_try }
            }
        }
    }

    fn unregistered(&self, unsupported: Vec<String>) -> ClassObservation {
        fn refused<T>(cluster: &ClusterName) -> Seen<T> {
            let message = format!("cluster `{cluster}` isn't registered: deploy its per-cluster stack");
            Seen::Refused { reason: ConditionReason::ClusterNotRegistered, message }
        }
        let cluster = &self.input.cluster;
        ClassObservation {
            name: self.class.name.clone(),
            generation: self.class.meta.generation,
            spec_digest: spec_form::digest(self.class),
            subnets: refused(cluster),
            security_groups: refused(cluster),
            images: refused(cluster),
            instance_profile: refused(cluster),
            reservations: None,
            shifts: None,
            validation: refused(cluster),
            unsupported,
        }
    }
}

/// The class's reservations that Tenon doesn't act on: all with the gate off, otherwise unsupported kinds.
fn unserved_reservations(class: &Ec2NodeClass, answered: Option<&AnsweredReservations>) -> Vec<String> {
    match answered.map(|answered| &answered.answer) {
        None if class.reservation_selector.is_empty() => Vec::new(),
        None => vec!["spec.capacityReservationSelectorTerms".to_owned()],
        Some(Err(_)) => Vec::new(),
        Some(Ok(found)) => {
            let kinds = found.iter().filter(|found| !resolve::is_served(found));
            kinds.map(|found| format!("{} ({})", found.id, found.kind.as_str())).collect()
        }
    }
}

fn unserved<T>(field: &str, value: &str) -> Seen<T> {
    let reason = if field.ends_with(".alias") {
        ConditionReason::UnsupportedAlias
    } else {
        ConditionReason::AmiResolutionFailed
    };
    let message =
        format!("`{field}` (`{value}`) isn't supported yet: select images by id, name, tags or owner");
    Seen::Refused { reason, message }
}

fn change(
    input: &NodeClassesInput,
    class: &Ec2NodeClass,
    previous: Option<&ClassStatus>,
    status: ClassStatus,
) -> Option<ClassChange> {
    // Launches after a query are subtracted from its counts, so each query has its own time.
    let stored = input.statuses.get(&class.name);
    let same = stored.is_some_and(|stored| stored.same_as(&status));
    if same && status.reservations.is_empty() {
        return None;
    }
    let only_counts =
        previous.is_some_and(|previous| without_counts(previous).same_as(&without_counts(&status)));
    let room = previous.is_some_and(|previous| previous.reservations != status.reservations);
    Some(ClassChange {
        before: previous.map(|previous| previous.revision),
        images: ClassImages { filters: queries(&class.ami_selector).filters },
        record: (!only_counts).then(|| record(input, previous, &status)),
        reach: if room || !only_counts { ChangeReach::Planners } else { ChangeReach::Nobody },
        status,
    })
}

/// The status with equal free addresses for all subnets, and no room in reservations.
fn without_counts(status: &ClassStatus) -> ClassStatus {
    let mut status = status.clone();
    status.reservations = status.reservations.without_counts();
    for subnet in &mut status.subnets {
        subnet.free_addresses = 0;
    }
    status.subnets.sort();
    status
}

fn record(input: &NodeClassesInput, previous: Option<&ClassStatus>, status: &ClassStatus) -> JournalRecord {
    let subject = Subject { kind: SubjectKind::Class, name: status.name.to_string() };
    let by = FunctionName::NodeClasses.as_str();
    let images: Vec<String> =
        status.images.iter().map(|image| format!("{} ({})", image.id, image.architecture.as_str())).collect();
    let (before, shifts) = (previous.map(ClassStatus::shifts).unwrap_or_default(), status.shifts());
    let away: Vec<String> = shifts.iter().map(|zone| format!("{} {}", zone.zone_id, zone.end)).collect();
    let in_service = status
        .condition(ConditionType::ZonesInService)
        .is_some_and(|told| told.status == ConditionStatus::True);
    let record = match status.obstacle() {
        _ if before != shifts && !shifts.is_empty() => {
            let message = format!(
                "not launching for EC2NodeClass `{}` in zones with a zonal shift of cluster `{}`: {}",
                status.name,
                input.cluster,
                away.join(", ")
            );
            JournalRecord::new(subject, input.now, by, Decision::ZonalShiftActive, message)
        }
        None if before != shifts && in_service => {
            let message = format!("all zones of EC2NodeClass `{}` are in service again", status.name);
            JournalRecord::new(subject, input.now, by, Decision::ZonalShiftCleared, message)
        }
        None => {
            let message =
                format!("EC2NodeClass `{}` is ready: it resolves to {}", status.name, images.join(", "));
            JournalRecord::new(subject, input.now, by, Decision::Resolved, message)
        }
        Some(obstacle) => {
            let message = format!(
                "EC2NodeClass `{}` isn't ready: {}: {}",
                status.name,
                obstacle.reason_text(),
                obstacle.message
            );
            JournalRecord::new(subject, input.now, by, Decision::NotReady, message)
                .detail("reason", obstacle.reason_text())
        }
    };
    let subnets: Vec<&str> = status.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
    let record = if away.is_empty() { record } else { record.detail("shifted", away.join(", ")) };
    record
        .detail("images", images.join(", "))
        .detail("subnets", subnets.join(", "))
        .detail("generation", status.generation)
        .evidence("snapshot", input.snapshot)
}

fn later(now: Timestamp, by: SignedDuration) -> Timestamp {
    now.saturating_add(by).unwrap_or(now)
}
