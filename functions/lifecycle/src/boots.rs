//! What instances show about their images: that a Node joined, or how the instance failed.
//!
//! Decides which of a pass's steps teach something. EC2's end of an instance before its Node registers blames the image
//! if EC2's reason does ([`blames_image`]). A missing Node blames it only if no Node of the image ever joined, as far as
//! the table knows: with a proven image something else is wrong. `node-classes` decides what a class takes instead.
//!
//! Invariants: only an instance without a registered Node blames its image; a failure is never blamed on another form
//! of the class than the one that was launched, as far as its hash tells; with an agent that reports nothing, no Node is
//! missing.

use std::collections::BTreeMap;

use tenon_domain::SignedDuration;
use tenon_domain::boot::{BootFailure, BootFault, BootForm, BootRecord, blames_image};
use tenon_domain::claim::joining::REGISTRATION_TIMEOUT;
use tenon_domain::claim::{Claim, ClaimState, LaunchedInstance, RemovalReason};
use tenon_domain::id::{ClaimName, ImageId, NodeClassName};
use tenon_domain::journal::Decision;
use tenon_domain::launch_verdict::VALIDATION_REFRESH;
use tenon_ec2::port::{InstanceState, StateReason};

use crate::input::{InstanceSeen, LifecycleInput, NodeSeen};
use crate::plan::ClaimStep;

/// How long `node-classes` has to look at a failed image, before the claims that it failed step.
pub const CLASSES_LOOK: SignedDuration = SignedDuration::from_secs(5);

/// What instances of an image showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootLesson {
    /// The record under its next revision; `None` if the stored one says it already.
    pub record: Option<BootRecord>,
    /// Claims that wait with their steps until `node-classes` has looked at a failure: their pods aren't planned again
    /// with the same image meanwhile.
    pub holds: Vec<ClaimName>,
}

/// The claim whose instance may show something about its image: no Node of it has registered.
#[must_use]
pub fn booting(claim: &Claim) -> Option<&LaunchedInstance> {
    match &claim.state {
        ClaimState::Launched { instance, .. }
        | ClaimState::Draining { instance, node: None, .. }
        | ClaimState::Drained { instance, node: None, .. }
        | ClaimState::Terminating { instance, node: None, .. } => Some(instance),
        ClaimState::Draining { .. }
        | ClaimState::Drained { .. }
        | ClaimState::Terminating { .. }
        | ClaimState::Planned
        | ClaimState::LaunchFailed { .. }
        | ClaimState::Registered { .. }
        | ClaimState::Initialized { .. }
        | ClaimState::Disrupting { .. }
        | ClaimState::Terminated { .. } => None,
    }
}

/// Whether EC2 must be asked about a claim's instance: its image failed since the claim was made, so its end may be
/// known, and the event of it is spent.
#[must_use]
pub fn asks_ec2(input: &LifecycleInput) -> bool {
    let failed = |claim: &Claim| {
        let instance = booting(claim)?;
        let failure = stored(&claim.class, &instance.image, input)?.failure.as_ref()?;
        (failure.at > claim.created_at).then_some(())
    };
    input.claims.values().any(|claim| failed(claim).is_some())
}

/// EC2's end of an instance that blames its image.
pub(crate) struct FailedLaunch<'a> {
    /// The code that blames it.
    code: &'a str,
    /// EC2's words, with that code.
    pub(crate) words: String,
}

/// EC2's end of an instance, if it blames the image.
pub(crate) fn failed_launch<'a>(
    instance: &LaunchedInstance,
    input: &'a LifecycleInput,
) -> Option<FailedLaunch<'a>> {
    let found = input.ec2.as_ref()?.instances.get(&instance.id)?;
    let StateReason { code, message } = found.state_reason.as_ref().filter(|_| found.state.is_going())?;
    let code = blames_image(code, message)?;
    let words = match message.as_str() {
        "" => code.to_owned(),
        message if message.starts_with(code) => message.to_owned(),
        message => format!("{code}: {message}"),
    };
    Some(FailedLaunch { code, words })
}

/// The lessons of a pass's steps, by class and image: each is one write.
pub(crate) fn lessons(steps: &[ClaimStep], input: &LifecycleInput) -> Vec<BootLesson> {
    let mut lessons: BTreeMap<(&NodeClassName, &ImageId), BootLesson> = BTreeMap::new();
    for step in steps {
        let Some(instance) = booting(&step.before) else { continue };
        let (class, image) = (&step.before.class, &instance.image);
        let failure = failure(step, instance, input);
        if failure.is_none() && !registers(step) {
            continue;
        }
        let lesson = lessons.entry((class, image)).or_insert(BootLesson { record: None, holds: Vec::new() });
        let known = lesson.record.as_ref().or_else(|| stored(class, image, input));
        let new = || BootRecord::new(input.cluster.clone(), class.clone(), image.clone());
        let before = known.cloned().unwrap_or_else(new);
        let after = match &failure {
            Some(failure) => before.failed(failure),
            None => before.joined(step.before.created_at, input.now),
        };
        let noticed = after.as_ref().unwrap_or(&before).failure.as_ref().map(|failure| failure.at);
        if failure.is_some() && noticed.is_some_and(|at| input.since(at) < CLASSES_LOOK) {
            lesson.holds.push(step.before.name.clone());
        }
        if let Some(record) = after {
            let revision = stored(class, image, input).map_or(0, |stored| stored.revision).saturating_add(1);
            lesson.record = Some(BootRecord { revision, ..record });
        }
    }
    let taught = |lesson: &BootLesson| lesson.record.is_some() || !lesson.holds.is_empty();
    lessons.into_values().filter(taught).collect()
}

fn stored<'a>(class: &NodeClassName, image: &ImageId, input: &'a LifecycleInput) -> Option<&'a BootRecord> {
    input.boots.get(&(class.clone(), image.clone()))
}

fn registers(step: &ClaimStep) -> bool {
    step.decisions().any(|decision| decision == Decision::Registered)
}

/// The failure that a claim's step shows, if it shows one.
fn failure(step: &ClaimStep, instance: &LaunchedInstance, input: &LifecycleInput) -> Option<BootFailure> {
    let claim = &step.before;
    let (fault, code, message) = if let Some(FailedLaunch { code, words }) = failed_launch(instance, input) {
        (BootFault::LaunchFailed, Some(code.to_owned()), words)
    } else if times_out(step) && never_joined(claim, instance, input) {
        let minutes = REGISTRATION_TIMEOUT.as_mins();
        let message = format!("no Node joined within {minutes} minutes");
        (BootFault::NeverJoined, None, message)
    } else {
        return None;
    };
    let form = form(claim, input)?;
    Some(BootFailure { fault, code, message, instance: instance.id.clone(), at: input.now, form })
}

fn times_out(step: &ClaimStep) -> bool {
    matches!(step.before.state, ClaimState::Launched { .. })
        && step.after.state.removal() == Some(RemovalReason::RegistrationTimeout)
}

/// Whether a running instance without a Node blames its image.
fn never_joined(claim: &Claim, instance: &LaunchedInstance, input: &LifecycleInput) -> bool {
    let runs = matches!(
        input.instance(&instance.id),
        InstanceSeen::State(InstanceState::Pending | InstanceState::Running)
    );
    let since = claim.state.since().unwrap_or(claim.created_at);
    let absent = matches!(input.node_of(instance, since), NodeSeen::Absent);
    let proven = stored(&claim.class, &instance.image, input).is_some_and(|known| known.joined_at.is_some())
        || input.claims.values().any(|other| {
            let joined = other.state.node().is_some();
            joined && other.state.instance().is_some_and(|held| held.image == instance.image)
        });
    runs && absent && !proven
}

/// The class as the instance was launched from it; `None` if it is gone or another now.
fn form(claim: &Claim, input: &LifecycleInput) -> Option<BootForm> {
    let status = input.classes.get(&claim.class)?;
    let same = match (&claim.class_hash, &status.hash) {
        (Some(launched), Some(now)) => launched == now,
        (None, _) | (_, None) => true,
    };
    let classes = input.snapshot.as_deref().ok().map(|snapshot| &snapshot.node_classes);
    let class = classes.and_then(|classes| classes.iter().find(|class| class.name == claim.class));
    let refresh = class.and_then(|class| class.meta.annotations.get(VALIDATION_REFRESH)).cloned();
    same.then(|| BootForm { spec_digest: status.spec_digest.clone(), refresh })
}
