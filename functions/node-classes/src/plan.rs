//! The statuses of a cluster's classes, from one observation.
//!
//! Decides which classes are due, which go, and the time of the next look. It doesn't decide a class's observation
//! (`look`), nor the record and reach of its change (`change`).
//!
//! Invariants: a second plan of an unchanged world writes nothing; a class is deleted only if a fresh snapshot lacks
//! it and no claim uses it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::boot::BootRecord;
use tenon_domain::class_status::{ClassStatus, ConditionType, ImageVariant};
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, ClusterName, ImageId, NodeClassName};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::launch_verdict::ClassVerdicts;
use tenon_domain::registry::Registry;
use tenon_domain::report::{CLASS_IN_USE, Finding, Report, stays_while_used};
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::snapshot::Unreadable;
use tenon_domain::unavailable::Mark;
use tenon_domain::wait::later;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    CapacityReservation, Image, ImageFilter, InstanceProfileFacts, PlacementGroup, SecurityGroup, Subnet,
    VolumeSnapshot,
};

use crate::change::{ClassChange, change};
use crate::image_snapshots::UnfinishedSnapshots;
use crate::look::ClassLook;
use crate::spec_form;
use crate::verdicts::validate;

/// The interval of queries to EC2, because events of images can be lost. It is less than the sweep's five minutes, so that
/// an early sweep isn't wasted.
pub const LOOK_EVERY: SignedDuration = SignedDuration::from_secs(290);

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
    /// Snapshots of images that aren't whole.
    pub unfinished: UnfinishedSnapshots,
    /// Statuses as they are.
    pub statuses: BTreeMap<NodeClassName, ClassStatus>,
    /// Refused launches of classes in their last resolved form, if the class is to blame.
    pub refused: BTreeMap<NodeClassName, Mark>,
    /// The refusal of spot launches as such, if there is one.
    pub spot_refused: Option<Mark>,
    /// What images showed when their instances booted.
    pub boots: Vec<BootRecord>,
    /// EC2's verdicts on launches.
    pub verdicts: BTreeMap<NodeClassName, ClassVerdicts>,
    /// Classes that a fresh snapshot doesn't have and that no claim uses.
    pub gone: BTreeSet<NodeClassName>,
    /// Classes that are deleted, with the claims that still use them.
    pub used: BTreeMap<NodeClassName, BTreeSet<ClaimName>>,
    /// Classes that the agent reported and that can't be read.
    pub unreadable: Vec<Unreadable>,
    /// The generation of the snapshot.
    pub snapshot: u64,
    /// The scope of this look.
    pub scope: LookScope,
    /// When all classes must be resolved again, as stored.
    pub look_at: Timestamp,
}

/// The scope of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookScope {
    /// All classes, and everything about them.
    Everything,
    /// The classes that are due.
    Due,
    /// Images of the classes that a change of images concerns.
    Images,
}

/// What AWS said of a part of a class.
#[derive(Debug, Clone)]
pub enum PartAnswer<T> {
    /// This look doesn't ask: the part stays as the class's status has it.
    NotAsked,
    /// The answer.
    Answered(Result<T, Ec2Error>),
}

/// EC2's answers about a class; a cluster without a registry entry gets no queries.
#[derive(Debug, Clone)]
pub struct Answers {
    /// Subnets that its terms match.
    pub subnets: PartAnswer<Vec<Subnet>>,
    /// Security groups that its terms match.
    pub security_groups: PartAnswer<Vec<SecurityGroup>>,
    /// Images that its terms select.
    pub images: SelectedImages,
    /// Snapshots that it names, if its cluster may use any besides those of images.
    pub snapshots: Result<Vec<VolumeSnapshot>, Ec2Error>,
    /// Capacity reservations that its terms match; `None` without a query.
    pub reservations: Option<AnsweredReservations>,
    /// IAM's answer about its instance profile; `None` if the class may not have it.
    pub profile: Option<PartAnswer<InstanceProfileFacts>>,
    /// Placement groups of its selector; `None` without a selector.
    pub placement_groups: Option<PartAnswer<Vec<PlacementGroup>>>,
    /// The cluster's shifted zones; `None` if the cluster stays in them.
    pub shifts: Option<PartAnswer<BTreeSet<ShiftedZone>>>,
}

impl Answers {
    /// The answers without any query.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            subnets: PartAnswer::NotAsked,
            security_groups: PartAnswer::NotAsked,
            images: SelectedImages::none(),
            snapshots: Ok(Vec::new()),
            reservations: None,
            profile: None,
            placement_groups: None,
            shifts: None,
        }
    }
}

/// The answers of EC2 and SSM about a class's images.
#[derive(Debug, Clone)]
pub struct SelectedImages {
    /// Images in every state.
    pub answer: Result<Vec<Image>, Ec2Error>,
    /// Images that parameters name, with the variants that they are for.
    pub variants: BTreeMap<ImageId, BTreeSet<ImageVariant>>,
    /// Parameters that don't exist or don't name an image.
    pub nameless: BTreeSet<String>,
    /// The queries.
    pub filters: BTreeSet<ImageFilter>,
}

impl SelectedImages {
    /// Of a class without a query.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            answer: Ok(Vec::new()),
            variants: BTreeMap::new(),
            nameless: BTreeSet::new(),
            filters: BTreeSet::new(),
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
    /// How long until AWS must be asked again, if a query failed or its answer will change.
    pub retry_after: Option<SignedDuration>,
    /// Whether the next sweep needs no record of this look.
    pub unrecorded: bool,
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
    for (class, claims) in input.used.iter().filter(|(_, claims)| !claims.is_empty()) {
        let subject = Subject { kind: SubjectKind::Class, name: class.to_string() };
        let why = format!("it {}", stays_while_used(&claims.iter().map(ClaimName::as_str).collect()));
        report.tell(Finding::waiting(subject, CLASS_IN_USE, "{} is being deleted", why));
    }
    let mut changes = Vec::new();
    let shifts = input.looked.iter().any(|(_, answers)| answers.shifts.is_some());
    let every = if shifts { SHIFTS_EVERY } else { LOOK_EVERY };
    let mut next = match input.scope {
        LookScope::Everything => later(input.now, every),
        LookScope::Due | LookScope::Images => input.look_at,
    };
    let mut soonest: Option<SignedDuration> = None;
    for (class, answers) in &input.looked {
        let stored = input.statuses.get(&class.name);
        let previous = stored.map(|status| spec_form::in_this_form(status, class));
        let previous = previous.as_deref();
        let mut look = ClassLook { input, class, previous, kept: BTreeSet::new(), again_in: None };
        let mut observation = look.observe(answers);
        validate(&look, &mut observation);
        let status = ClassStatus::observed(observation, previous, input.now);
        let kept = (!look.kept.is_empty()).then_some(RETRY_AFTER);
        soonest = [soonest, look.again_in, kept].into_iter().flatten().min();
        tell_kept(&mut report, &class.name, &look.kept);
        changes.extend(change(input, class, &answers.images, previous, status));
    }
    if let Some(soonest) = soonest {
        next = next.min(later(input.now, soonest));
    }
    let gone = input.gone.iter().filter_map(|name| Some((name.clone(), input.statuses.get(name)?.revision)));
    // Without a finding and a wait, the record of the last look stays right.
    let is_silent = input.unreadable.is_empty() && input.used.is_empty();
    let unrecorded = input.scope == LookScope::Images && soonest.is_none() && is_silent;
    let gone = gone.collect();
    (NodeClassesPlan { changes, gone, look_at: next, retry_after: soonest, unrecorded }, report)
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
