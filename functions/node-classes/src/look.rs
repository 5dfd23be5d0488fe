//! One class's observation, from EC2's and ARC's answers about it.
//!
//! Decides what an answer or its absence means to each part of a class: a permanent refusal refuses the part, after a
//! transient one it keeps its last value, and so does a part that nobody asked about. It doesn't decide which of the answered resources the class takes
//! (`resolve`).
//!
//! Invariants: a part of an older spec is never kept for this one; a part that held stays while AWS doesn't answer.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::InstanceProfile;
use tenon_domain::class_status::{
    ClassObservation, ClassStatus, ConditionReason, ConditionStatus, ConditionType, ImageNotices,
    ResolvedImage, Seen, SeenProfile, SeenReservations,
};
use tenon_domain::id::ClusterName;
use tenon_domain::placement::ResolvedPlacementGroup;
use tenon_domain::unavailable::RequestDigest;
use tenon_domain::wait::later;
use tenon_ec2::port::Image;
use tenon_ec2::{ClassPart, Ec2Error, blame, right_of};
use tenon_runtime::error::chain;

use crate::plan::{AnsweredReservations, Answers, NodeClassesInput, PartAnswer, RETRY_AFTER};
use crate::profile::{self, JudgedProfile};
use crate::resolve::{self, JudgedClass};
use crate::{refused_image, spec, spec_form};

mod images;
mod shifts;

/// The condition that tells of one part of a class, and its reason where EC2 doesn't answer.
#[derive(Clone, Copy)]
struct PartCondition {
    condition: ConditionType,
    reason: ConditionReason,
}

/// A launch that EC2 refused for what the class is.
struct RefusedLaunch {
    /// The part of the class that EC2's words are about.
    part: Option<ClassPart>,
    /// EC2's words, the remedy and the next try.
    message: String,
}

/// A look at a class.
pub(crate) struct ClassLook<'a> {
    /// The observations of all classes.
    pub(crate) input: &'a NodeClassesInput,
    /// The class.
    pub(crate) class: &'a Ec2NodeClass,
    /// Its status until now.
    pub(crate) previous: Option<&'a ClassStatus>,
    /// Conditions that keep their value, because AWS gave no answer.
    pub(crate) kept: BTreeSet<ConditionType>,
    /// How long until the class must be looked at again, if not at the regular time.
    pub(crate) again_in: Option<SignedDuration>,
}

impl ClassLook<'_> {
    /// The observation, with each part that AWS didn't answer as it was.
    pub(crate) fn observe(&mut self, answers: &Answers) -> ClassObservation {
        let class = self.class;
        let mut unsupported = class.unsupported.clone();
        unsupported.extend(unserved_reservations(class, answers.reservations.as_ref()));
        let registry = match &self.input.registry {
            Ok(registry) => registry,
            Err(_) => return self.unregistered(unsupported),
        };
        let judged = JudgedClass { class, registry, account: &self.input.account, now: self.input.now };
        let known = self.previous.filter(|known| spec_form::is_of_spec(known, class));
        let (images, image_notices) = self.images(judged, answers);
        let (instance_profile, profile_seen) = self.profile(judged, answers, &images);
        let validation = match spec::validate(class, registry) {
            Seen::Holds(()) => match self.snapshots(judged, &images, answers) {
                Seen::Holds(()) => match self.launches(&images, profile_seen.as_ref()) {
                    Some(RefusedLaunch { message, .. }) => {
                        Seen::Refused { reason: ConditionReason::LaunchRefused, message }
                    }
                    None => Seen::Holds(()),
                },
                obstacle @ (Seen::Refused { .. } | Seen::Unseen { .. }) => obstacle,
            },
            obstacle @ (Seen::Refused { .. } | Seen::Unseen { .. }) => obstacle,
        };
        ClassObservation {
            name: class.name.clone(),
            generation: class.meta.generation,
            uid: class.meta.uid.clone(),
            spec_digest: spec_form::digest(class),
            hash: Some(class.spec_hash.in_cluster(&registry.certificate_authority)),
            subnets: self.asked_part(
                PartCondition {
                    condition: ConditionType::SubnetsReady,
                    reason: ConditionReason::SubnetResolutionFailed,
                },
                &answers.subnets,
                known.map(|known| known.subnets.clone()),
                |found| resolve::subnets(judged, found),
            ),
            security_groups: self.asked_part(
                PartCondition {
                    condition: ConditionType::SecurityGroupsReady,
                    reason: ConditionReason::SecurityGroupResolutionFailed,
                },
                &answers.security_groups,
                known.map(|known| known.security_groups.clone()),
                |found| resolve::security_groups(judged, found),
            ),
            images,
            image_notices,
            instance_profile,
            asked_profile: match resolve::instance_profile(judged) {
                Seen::Holds(profile) => Some(profile),
                Seen::Refused { .. } | Seen::Unseen { .. } => None,
            },
            profile_seen,
            reservations: self.reservations(answers),
            placement_group: self.placement_group(answers),
            shifts: answers.shifts.as_ref().map(|answer| self.shifts(answer)),
            validation,
            validation_note: None,
            unsupported,
        }
    }

    /// The class's capacity reservations; `None` without a query.
    fn reservations(&mut self, answers: &Answers) -> Option<SeenReservations> {
        let answered = answers.reservations.as_ref()?;
        let known = self.previous.filter(|known| spec_form::is_of_spec(known, self.class));
        let seen = self.part(
            PartCondition {
                condition: ConditionType::CapacityReservationsReady,
                reason: ConditionReason::CapacityReservationResolutionFailed,
            },
            &answered.answer,
            known.map(|known| known.reservations.shown().to_vec()),
            |found| resolve::reservations(found),
        );
        Some(SeenReservations { right: answered.right, seen })
    }

    /// The class's placement group; `None` if it selects none.
    fn placement_group(&mut self, answers: &Answers) -> Option<Seen<ResolvedPlacementGroup>> {
        let (selector, answer) = (self.class.placement_group.as_ref()?, answers.placement_groups.as_ref()?);
        let known = self.previous.filter(|known| spec_form::is_of_spec(known, self.class));
        Some(self.asked_part(
            PartCondition {
                condition: ConditionType::PlacementGroupReady,
                reason: ConditionReason::PlacementGroupResolutionFailed,
            },
            answer,
            known.and_then(|known| known.placement_group.clone()),
            |found| resolve::placement_group(selector, found),
        ))
    }

    /// Looks again after this long at the latest.
    fn look_in(&mut self, by: SignedDuration) {
        self.again_in = Some(self.again_in.map_or(by, |known| known.min(by)));
    }

    /// Whether a launch from the class as it was resolved last has succeeded.
    fn launched(&self) -> bool {
        let known = self.previous.filter(|known| spec_form::is_of_spec(known, self.class));
        known.zip(self.input.verdicts.get(&self.class.name)).is_some_and(|(known, verdicts)| {
            let digest = RequestDigest::of_class(&self.input.cluster, known);
            verdicts.0.iter().any(|verdict| verdict.digest == digest && verdict.launched_at.is_some())
        })
    }

    /// The nodes' instance profile: allowed, as IAM has it, and not refused by EC2.
    fn profile(
        &mut self,
        judged: JudgedClass<'_>,
        answers: &Answers,
        images: &Seen<Vec<ResolvedImage>>,
    ) -> (Seen<InstanceProfile>, Option<SeenProfile>) {
        let known = self.previous.and_then(|known| known.profile_seen.as_ref());
        let allowed = resolve::instance_profile(judged);
        let Seen::Holds(profile) = &allowed else { return (allowed, known.cloned()) };
        let Some(answer) = &answers.profile else {
            let next_try = later(self.input.now, profile::LOOK_EVERY);
            let message = "IAM wasn't asked about the instance profile".to_owned();
            let reason = ConditionReason::InstanceProfileNotChecked;
            return (Seen::Unseen { reason, message, next_try }, known.cloned());
        };
        let told = PartCondition {
            condition: ConditionType::InstanceProfileReady,
            reason: ConditionReason::InstanceProfileNotChecked,
        };
        let held = self.previous.filter(|known| spec_form::is_of_spec(known, self.class));
        let held = held.and_then(|known| known.condition(told.condition));
        let (of_iam, profile_seen) = match answer {
            PartAnswer::Answered(answer) => {
                let verdict = profile::judge(JudgedProfile {
                    profile,
                    identity: &self.class.identity,
                    allowed: &judged.registry.allowed,
                    answer,
                    known,
                    held: held.is_some_and(|held| held.status == ConditionStatus::True) || self.launched(),
                    now: self.input.now,
                });
                match &verdict.seen {
                    Seen::Refused { .. } => self.look_in(profile::LOOK_EVERY),
                    Seen::Unseen { next_try, .. } => self.look_in(next_try.duration_since(self.input.now)),
                    Seen::Holds(()) => {}
                }
                (verdict.seen, verdict.known)
            }
            // EC2 refused launches, and IAM saw nothing wrong.
            PartAnswer::NotAsked
                if held.is_some_and(|held| held.reason == ConditionReason::LaunchRefused) =>
            {
                (Seen::Holds(()), known.cloned())
            }
            PartAnswer::NotAsked => (self.stored(told, Some(())), known.cloned()),
        };
        let seen = match (of_iam, self.launches(images, profile_seen.as_ref())) {
            (Seen::Refused { reason, message }, _) => Seen::Refused { reason, message },
            // IAM sees nothing wrong, EC2 does.
            (_, Some(RefusedLaunch { part: Some(ClassPart::InstanceProfile), message })) => {
                Seen::Refused { reason: ConditionReason::LaunchRefused, message }
            }
            (Seen::Unseen { reason, message, next_try }, _) => Seen::Unseen { reason, message, next_try },
            (Seen::Holds(()), _) => Seen::Holds(profile.clone()),
        };
        (seen, profile_seen)
    }

    /// EC2's refusal of launches with this spec and these images. One for the instance profile ends once IAM has shown
    /// another pair of profile and role since: without pods no launch would ever show that it is put right.
    fn launches(
        &self,
        images: &Seen<Vec<ResolvedImage>>,
        profile: Option<&SeenProfile>,
    ) -> Option<RefusedLaunch> {
        let known = self.previous.filter(|known| known.spec_digest == spec_form::digest(self.class))?;
        let mark = self.input.refused.get(&self.class.name);
        let mark = mark.filter(|mark| !refused_image::is_over(mark, known, self.input.now))?;
        let ids = |images: &[ResolvedImage]| images.iter().map(|image| image.id.clone()).collect::<Vec<_>>();
        if let Seen::Holds(images) = images
            && ids(images) != ids(&known.images)
        {
            return None;
        }
        let words = mark.message.as_deref().unwrap_or(&mark.code);
        let part = blame(words);
        let changed = profile.is_some_and(|seen| seen.first_seen_at > mark.asked_at);
        if part == Some(ClassPart::InstanceProfile) && changed {
            return None;
        }
        let remedy = part.map_or("check the class's spec", ClassPart::remedy);
        let until = mark.blocked_until().min(mark.last_resort_at());
        let next = if until > self.input.now {
            format!("next launch at `{until:.0}`, or when the class changes")
        } else {
            "the next pending pod is launched for, and decides".to_owned()
        };
        let message = format!("EC2 refuses launches from this class ({words}); {remedy}; {next}");
        Some(RefusedLaunch { part, message })
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
        let answer = match (&answers.images.answer, &answers.snapshots) {
            (Ok(images), Ok(snapshots)) => Ok((images, snapshots)),
            (Err(error), _) | (_, Err(error)) => Err(error.clone()),
        };
        let known = self.previous.filter(|known| spec_form::is_of_spec(known, self.class)).map(|_| ());
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

    /// One part, judged from EC2's answer if it was asked for.
    fn asked_part<A, T>(
        &mut self,
        told: PartCondition,
        answer: &PartAnswer<A>,
        known: Option<T>,
        judge: impl FnOnce(&A) -> Seen<T>,
    ) -> Seen<T> {
        match answer {
            PartAnswer::Answered(answer) => self.part(told, answer, known, judge),
            PartAnswer::NotAsked => self.stored(told, known),
        }
    }

    /// One part as the class's status has it.
    fn stored<T>(&self, told: PartCondition, known: Option<T>) -> Seen<T> {
        let previous = self.previous.filter(|known| spec_form::is_of_spec(known, self.class));
        let stored = previous.and_then(|previous| previous.condition(told.condition));
        let (reason, message) = match (stored, known) {
            (Some(stored), Some(known)) if stored.status == ConditionStatus::True => {
                return Seen::Holds(known);
            }
            (Some(stored), _) => (stored.reason, stored.message.clone()),
            (None, _) => (told.reason, "AWS wasn't asked yet".to_owned()),
        };
        match stored {
            Some(stored) if stored.status == ConditionStatus::False => Seen::Refused { reason, message },
            Some(_) | None => {
                let next_try = stored.and_then(|stored| stored.next_try);
                let next_try = next_try.unwrap_or_else(|| later(self.input.now, RETRY_AFTER));
                Seen::Unseen { reason, message, next_try }
            }
        }
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
                let message = format!(
                    "{}; allow function `node-classes` the action `{}`",
                    chain(error),
                    right_of(action)
                );
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
                self.look_in(RETRY_AFTER);
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
            uid: self.class.meta.uid.clone(),
            spec_digest: spec_form::digest(self.class),
            hash: None,
            subnets: refused(cluster),
            security_groups: refused(cluster),
            images: refused(cluster),
            image_notices: ImageNotices::default(),
            instance_profile: refused(cluster),
            asked_profile: None,
            profile_seen: self.previous.and_then(|known| known.profile_seen.clone()),
            reservations: None,
            placement_group: None,
            shifts: None,
            validation: refused(cluster),
            validation_note: None,
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
