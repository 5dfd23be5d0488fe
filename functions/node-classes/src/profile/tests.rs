use std::collections::BTreeMap;

use tenon_domain::api::node_class::{InstanceProfile, NodeIdentity};

use super::*;

const ARN: &str = "arn:aws:iam::111122223333:instance-profile/eks/nodes";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + seconds).unwrap()
}

fn facts(role: Option<&str>) -> Result<InstanceProfileFacts, Ec2Error> {
    Ok(InstanceProfileFacts {
        name: "nodes".to_owned(),
        arn: ARN.to_owned(),
        roles: role.map(|role| format!("arn:aws:iam::111122223333:role/eks/{role}")).into_iter().collect(),
        created_at: Some(at(-3600)),
    })
}

fn error(class: &str) -> Result<InstanceProfileFacts, Ec2Error> {
    let action = "GetInstanceProfile".to_owned();
    Err(match class {
        "missing" => Ec2Error::NotFound {
            action,
            code: "NoSuchEntity".to_owned(),
            ids: Vec::new(),
            message: "Instance Profile nodes cannot be found.".to_owned(),
        },
        "denied" => Ec2Error::Unauthorized { action, decoded: None, message: "no".to_owned() },
        _ => Ec2Error::Throttled { action },
    })
}

struct Case {
    identity: NodeIdentity,
    profile: InstanceProfile,
    answer: Result<InstanceProfileFacts, Ec2Error>,
    known: Option<SeenProfile>,
    held: bool,
}

fn role() -> Case {
    Case {
        identity: NodeIdentity::Role("nodes".to_owned()),
        profile: InstanceProfile::Name("nodes".to_owned()),
        answer: facts(Some("nodes")),
        known: None,
        held: false,
    }
}

fn named(profile: InstanceProfile) -> Case {
    Case { identity: NodeIdentity::InstanceProfile(profile.clone()), profile, ..role() }
}

fn verdict(case: &Case) -> ProfileVerdict {
    let allowed = Allowances {
        node_roles: BTreeMap::from([("nodes".to_owned(), "nodes".to_owned())]),
        ..Allowances::default()
    };
    let Case { identity, profile, answer, known, held } = case;
    let (known, held) = (known.as_ref(), *held);
    judge(JudgedProfile { profile, identity, allowed: &allowed, answer, known, held, now: at(0) })
}

fn check(case: &Case, reason: &str, says: &str) {
    match verdict(case).seen {
        Seen::Holds(()) => assert_eq!((reason, says), ("Holds", "")),
        Seen::Refused { reason: found, message } => {
            assert_eq!(found.as_str(), reason, "{message}");
            assert!(message.contains(says), "{message}");
        }
        Seen::Unseen { reason: found, message, next_try } => {
            assert_eq!(found.as_str(), reason, "{message}");
            assert!(message.contains(says) && next_try > at(0), "{message} {next_try}");
        }
    }
}

#[test]
fn a_profile_with_its_role_holds() {
    check(&role(), "Holds", "");
    check(&named(InstanceProfile::Name("nodes".to_owned())), "Holds", "");
    check(&named(InstanceProfile::Arn(ARN.to_owned())), "Holds", "");
}

#[test]
fn each_fault_has_its_reason_and_remedy() {
    let missing = Case { answer: error("missing"), ..role() };
    check(&missing, "InstanceProfileNotFound", "deploy the cluster's stack");
    let named_missing = Case { answer: error("missing"), ..named(InstanceProfile::Name("nodes".to_owned())) };
    check(&named_missing, "InstanceProfileNotFound", "correct `spec.instanceProfile`");
    let bare = Case { answer: facts(None), ..role() };
    check(&bare, "InstanceProfileWithoutRole", "add-role-to-instance-profile --instance-profile-name nodes");
    let other = Case { answer: facts(Some("admin")), ..role() };
    check(&other, "InstanceProfileRoleNotAllowed", "has role `admin`, but `spec.role` is `nodes`");
    let foreign = Case { answer: facts(Some("admin")), ..named(InstanceProfile::Name("nodes".to_owned())) };
    check(&foreign, "InstanceProfileRoleNotAllowed", "doesn't allow it");
    let path = InstanceProfile::Arn("arn:aws:iam::111122223333:instance-profile/nodes".to_owned());
    check(&named(path), "InstanceProfileNotFound", ARN);
}

#[test]
fn a_new_pair_waits_until_ec2_knows_it() {
    let seen = |role: Option<&str>, seconds| SeenProfile {
        arn: ARN.to_owned(),
        role: role.map(str::to_owned),
        first_seen_at: at(seconds),
    };
    // It had no role at the last look.
    let new = Case { known: Some(seen(None, -60)), ..role() };
    check(&new, "InstanceProfileNotPropagated", "is new");
    let after = verdict(&new).known;
    assert_eq!(after, Some(seen(Some("nodes"), 0)));
    let spread = Case { known: Some(seen(Some("nodes"), -15)), ..role() };
    check(&spread, "Holds", "");
    // It was created a moment ago, and nobody looked before.
    let mut created = role();
    if let Ok(facts) = &mut created.answer {
        facts.created_at = Some(at(-3));
    }
    check(&created, "InstanceProfileNotPropagated", "is new");
}

#[test]
fn without_an_answer_what_held_holds_and_the_rest_is_for_a_launch_to_decide() {
    for silent in ["denied", "throttled"] {
        check(&Case { answer: error(silent), held: true, ..role() }, "Holds", "");
        let never = Case { answer: error(silent), ..role() };
        check(&never, "InstanceProfileNotChecked", "the first launch decides");
    }
    let denied = Case { answer: error("denied"), ..role() };
    check(&denied, "InstanceProfileNotChecked", "`iam:GetInstanceProfile`");
}

#[test]
fn a_profile_that_stays_away_changes_nothing_from_look_to_look() {
    let missing = Case { answer: error("missing"), ..role() };
    let first = verdict(&missing);
    let later = Case { known: first.known.clone(), ..missing };
    assert_eq!(verdict(&later), first);
}
