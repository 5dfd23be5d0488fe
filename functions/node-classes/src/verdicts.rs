//! Whether EC2 allows launches from a class, from the verdicts that `provisioner` keeps.
//!
//! Decides the condition `ValidationSucceeded` of a class without any other obstacle, and what is told of one that
//! holds. It asks EC2 nothing: a dry run judges its caller, so only `provisioner` can ask. It doesn't decide which
//! verdict counts (`tenon_domain::launch_verdict`).
//!
//! Invariants: a verdict on another spec or other images counts for nothing; a class awaits a verdict for each
//! architecture of its images; a message stays the same while its verdict does.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{
    ClassObservation, ClassStatus, ConditionReason, ConditionType, Seen, ValidationNote,
};
use tenon_domain::id::ClusterName;
use tenon_domain::launch_verdict::{
    ClassVerdicts, JudgedRequest, NO_LAUNCH, NO_SPOT_ROLE, VerdictOutcome, architectures,
};
use tenon_domain::registry::FeatureGate;
use tenon_domain::unavailable::RequestDigest;
use tenon_domain::wait::later;
use tenon_state::cluster::judged_request;

use crate::look::ClassLook;

/// When a class that awaits a verdict is looked at again, should the wake for it be lost.
const LOOK_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// The code of marks on spot while its service-linked role is missing.
const SPOT_ROLE_CODE: &str = "SpotSLRCreationFailed";

/// Adds what EC2 said of launches to an observation without another obstacle.
pub(crate) fn validate(look: &ClassLook<'_>, observation: &mut ClassObservation) {
    let input = look.input;
    let Ok(registry) = &input.registry else { return };
    if observation.validation != Seen::Holds(()) {
        return;
    }
    let resolved = ClassStatus::observed(observation.clone(), look.previous, input.now);
    let images = architectures(&resolved);
    if images.is_empty() {
        return;
    }
    let (validation, mut note) = match registry.settings.dry_runs {
        FeatureGate::Disabled => (Seen::Holds(()), Some(disabled())),
        FeatureGate::Enabled => {
            let digest = RequestDigest::of_class(&input.cluster, &resolved);
            let none = ClassVerdicts::default();
            judge(JudgedVerdicts {
                verdicts: input.verdicts.get(&look.class.name).unwrap_or(&none),
                request: judged_request(look.class, &digest),
                architectures: &images,
                now: input.now,
            })
        }
    };
    if input.spot_refused.as_ref().is_some_and(|mark| mark.code == SPOT_ROLE_CODE) {
        let before = note.take().filter(|note| !note.message.contains(NO_SPOT_ROLE));
        note = Some(match before {
            Some(note) => ValidationNote { message: format!("{}; {NO_SPOT_ROLE}", note.message), ..note },
            None => ValidationNote { reason: ConditionReason::Holds, message: NO_SPOT_ROLE.to_owned() },
        });
    }
    observation.validation = validation;
    observation.validation_note = note;
}

/// Whether the class's owner wants EC2 to be asked again, by a changed annotation.
pub(crate) fn asks_again(
    cluster: &ClusterName,
    class: &Ec2NodeClass,
    status: &ClassStatus,
    verdicts: &ClassVerdicts,
) -> bool {
    let digest = RequestDigest::of_class(cluster, status);
    let request = judged_request(class, &digest);
    let awaited = status
        .condition(ConditionType::ValidationSucceeded)
        .is_some_and(|told| told.reason == ConditionReason::AwaitingValidation);
    let differs = |refresh: Option<&str>| refresh != request.refresh;
    let mut of_this = verdicts.0.iter().filter(|verdict| verdict.digest == digest);
    !awaited && of_this.any(|verdict| differs(verdict.refresh.as_deref()))
}

/// Everything that a class's verdicts are judged by.
#[derive(Clone, Copy)]
struct JudgedVerdicts<'a> {
    verdicts: &'a ClassVerdicts,
    request: JudgedRequest<'a>,
    /// Those of its images.
    architectures: &'a BTreeSet<Architecture>,
    now: Timestamp,
}

fn judge(judged: JudgedVerdicts<'_>) -> (Seen<()>, Option<ValidationNote>) {
    let JudgedVerdicts { verdicts, request, architectures, now } = judged;
    let (mut awaited, mut told, mut used, mut has_pools) = (Vec::new(), Vec::new(), false, false);
    for architecture in architectures {
        let outcome = verdicts.on(request, architecture).map(|verdict| &verdict.outcome);
        used |= !matches!(outcome, Some(VerdictOutcome::Unused { .. }));
        has_pools |= matches!(outcome, Some(VerdictOutcome::Unused { pools }) if !pools.is_empty());
        match outcome {
            None => awaited.push(format!("`{}`", architecture.as_str())),
            Some(VerdictOutcome::Allowed | VerdictOutcome::Unused { .. }) => {}
            Some(VerdictOutcome::Warned { message }) => told.push(message.clone()),
            Some(VerdictOutcome::Doubted { message }) => {
                told.push(format!("{message}; the first launch has one instance, and decides"));
            }
            Some(VerdictOutcome::Denied { reason, message, image: _ }) => {
                let again = if message.starts_with(NO_LAUNCH) {
                    "Tenon tries again within an hour"
                } else {
                    "Tenon asks EC2 again within 5 minutes"
                };
                let message = format!("{message}; {again}, or at once when the class changes");
                return (Seen::Refused { reason: *reason, message }, None);
            }
        }
    }
    if !awaited.is_empty() {
        let message = format!(
            "EC2 hasn't said yet whether it allows launches of {} nodes from the class: a dry run asks once no launch \
             is due, or the next launch shows it",
            awaited.join(" and ")
        );
        let (reason, next_try) = (ConditionReason::AwaitingValidation, later(now, LOOK_EVERY));
        return (Seen::Unseen { reason, message, next_try }, None);
    }
    if !used {
        let why = if has_pools {
            "no instance type of its NodePools can be launched from the class"
        } else {
            "no NodePool takes nodes from the class"
        };
        told.push(format!("{why}, so its launches aren't validated"));
    }
    told.dedup();
    let note = ValidationNote { reason: ConditionReason::Holds, message: told.join("; ") };
    (Seen::Holds(()), (!told.is_empty()).then_some(note))
}

fn disabled() -> ValidationNote {
    let message =
        "`DryRuns` is `Disabled` in the cluster's stack: the first launch shows whether EC2 allows launches";
    ValidationNote { reason: ConditionReason::DryRunDisabled, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use tenon_domain::launch_verdict::LaunchVerdict;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn denied() -> VerdictOutcome {
        let reason = ConditionReason::CreateFleetAuthCheckFailed;
        VerdictOutcome::Denied { reason, message: "EC2 denies it".to_owned(), image: None }
    }

    /// The condition of a class with images of both architectures, after these answers.
    fn check(x86: Option<VerdictOutcome>, arm: Option<VerdictOutcome>, expected: &str) {
        let digest = RequestDigest::of(["spec"]);
        let request = JudgedRequest { digest: &digest, refresh: None };
        let mut verdicts = ClassVerdicts::default();
        for (architecture, answer) in [(Architecture::X86_64, x86), (Architecture::Arm64, arm)] {
            let Some(answer) = answer else { continue };
            let verdict = LaunchVerdict::of_dry_run(None, request, &architecture, answer, at(0));
            verdicts = verdicts.with(verdict);
        }
        let architectures = BTreeSet::from([Architecture::X86_64, Architecture::Arm64]);
        let judged =
            JudgedVerdicts { verdicts: &verdicts, request, architectures: &architectures, now: at(0) };
        let found = match judge(judged) {
            (Seen::Holds(()), None) => "True".to_owned(),
            (Seen::Holds(()), Some(note)) => format!("True: {}", note.message),
            (Seen::Refused { reason, message }, _) => format!("False {}: {message}", reason.as_str()),
            (Seen::Unseen { reason, message, next_try }, _) => {
                assert_eq!(next_try, at(300));
                format!("Unknown {}: {message}", reason.as_str())
            }
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn ec2_is_asked_again_only_where_it_was_asked() {
        let message = format!("{NO_LAUNCH}: invalid user data");
        let reason = ConditionReason::LaunchRefused;
        let told = "False LaunchRefused: no launch can be made from the class: invalid user data; Tenon tries again \
                    within an hour, or at once when the class changes";
        check(Some(VerdictOutcome::Denied { reason, message, image: None }), None, told);
    }

    #[test]
    fn every_architecture_needs_a_verdict_and_one_denial_is_enough() {
        let allowed = || Some(VerdictOutcome::Allowed);
        let awaits = |names: &str| {
            format!(
                "Unknown AwaitingValidation: EC2 hasn't said yet whether it allows launches of {names} nodes from the \
                 class: a dry run asks once no launch is due, or the next launch shows it"
            )
        };
        check(None, None, &awaits("`x86_64` and `arm64`"));
        check(allowed(), None, &awaits("`arm64`"));
        check(allowed(), allowed(), "True");
        let unused = || Some(VerdictOutcome::Unused { pools: String::new() });
        check(allowed(), unused(), "True");
        let told = "False CreateFleetAuthCheckFailed: EC2 denies it; Tenon asks EC2 again within 5 minutes, or at \
                    once when the class changes";
        check(None, Some(denied()), told);
        check(allowed(), Some(denied()), told);
        let told = "True: no NodePool takes nodes from the class, so its launches aren't validated";
        check(unused(), unused(), told);
        let of_pool = || Some(VerdictOutcome::Unused { pools: "digest".to_owned() });
        let told = "True: no instance type of its NodePools can be launched from the class, so its launches aren't \
                    validated";
        check(of_pool(), of_pool(), told);
    }

    #[test]
    fn a_warning_is_told_of_a_class_that_is_ready() {
        let warned = || Some(VerdictOutcome::Warned { message: "denied".to_owned() });
        check(warned(), warned(), "True: denied");
        let doubted = Some(VerdictOutcome::Doubted { message: "denied".to_owned() });
        let told = "True: denied; the first launch has one instance, and decides";
        check(doubted, Some(VerdictOutcome::Allowed), told);
    }
}
