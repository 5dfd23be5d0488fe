//! Events of findings, announcements and failed launches, with Karpenter's reasons.

use tenon_domain::claim::LaunchFailure;
use tenon_domain::journal::Decision;
use tenon_domain::report::Shown;
use tenon_domain::wake::FunctionName;
use tenon_snapshot::NoteKind;
use tenon_snapshot::object::ObjectKey;
use tenon_table::items::{ToldFinding, ToldFindings};

use super::super::news::with_pods_uids;
use super::*;

#[test]
fn what_ec2_announced_of_a_node_that_stays_is_told_of_it_and_its_claim() {
    let world = FacesWorld::new();
    world.show(&[claim(initialized())]);
    let node = json!({"kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "aws:///us-east-1a/i-0abc"}});
    world.kube.apply(node).unwrap();
    let told = |kind, starts_at, state| {
        let announced = Some(InstanceAnnouncement { kind, at: at(90), starts_at });
        let one = Claim { announced, ..claim(state) };
        let mut decided = Decided::default();
        decided.claims.insert(one.name.to_string(), one);
        let shown = block_on(observe_shown(&world.kube)).unwrap();
        let news = plan_faces(&decided, &shown, &[action()], at(100)).news;
        news.iter().map(|news| format!("{} {}", news.note.about, news.note.reason)).collect::<Vec<_>>()
    };
    let recommended = AnnouncementKind::RebalanceRecommendation;
    let of_both =
        |reason: &str| vec![format!("NodeClaim default-abcde {reason}"), format!("Node n {reason}")];
    assert_eq!(told(recommended, None, initialized()), of_both("SpotRebalanceRecommendation"));
    let changes = AnnouncementKind::ScheduledChange;
    assert_eq!(told(changes, Some(at(9_000)), initialized()), of_both("InstanceUnhealthy"));
    assert_eq!(told(recommended, None, draining()), [""; 0]);
}

fn finding(kind: SubjectKind, name: &str, reason: &str) -> ToldFinding {
    ToldFinding {
        identity: reason.to_owned(),
        kind,
        names: [name.to_owned()].into(),
        decision: Decision::Refused,
        reason: reason.to_owned(),
        message: "why".to_owned(),
        shown: Shown::Event,
        since: at(90),
        told_at: at(90),
        next_try: None,
    }
}

#[test]
fn a_class_that_is_in_use_has_no_second_event() {
    let finding = finding(SubjectKind::Class, "a", "WaitingOnNodeClaimTermination");
    let function = FunctionName::NodeClasses;
    let mut decided = Decided::default();
    decided.told.push(ToldFindings { function, findings: vec![finding], resting: Vec::new() });
    let found = plan_faces(&decided, &ShownObjects::default(), &[], at(100)).news;
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn an_event_of_a_finding_has_the_reason_that_karpenter_gives_it() {
    let check = |function, kind, reason: &str, expected: (NoteKind, &str, &str)| {
        let finding = finding(kind, "a", reason);
        let mut decided = Decided::default();
        decided.told.push(ToldFindings { function, findings: vec![finding], resting: Vec::new() });
        let found = plan_faces(&decided, &ShownObjects::default(), &[], at(100)).news;
        let note = &found[0].note;
        assert_eq!((note.kind, note.reason.as_str(), note.message.as_str()), expected);
    };
    use FunctionName::{Disruption, Lifecycle, Provisioner};
    use NoteKind::{Normal, Warning};
    let blocked = |message| (Normal, "DisruptionBlocked", message);
    check(Disruption, SubjectKind::Claim, "BlockedByPdb", blocked("why (BlockedByPdb)"));
    check(Disruption, SubjectKind::Claim, "BudgetExhausted", blocked("why (BudgetExhausted)"));
    check(Disruption, SubjectKind::Pool, "BudgetExhausted", blocked("why (BudgetExhausted)"));
    let dear = (Normal, "Unconsolidatable", "why (TooFewSpotTypes)");
    check(Disruption, SubjectKind::Claim, "TooFewSpotTypes", dear);
    let invalid = (Warning, "InvalidDoNotDisruptAnnotation", "why (InvalidAnnotation)");
    check(Disruption, SubjectKind::Pod, "InvalidAnnotation", invalid);
    check(Disruption, SubjectKind::Pool, "InvalidAnnotation", (Warning, "InvalidAnnotation", "why"));
    let unplaced = (Warning, "FailedScheduling", "why (TaintsNotTolerated)");
    check(Provisioner, SubjectKind::Pod, "TaintsNotTolerated", unplaced);
    check(Lifecycle, SubjectKind::Claim, "NodeRepairBlocked", (Warning, "NodeRepairBlocked", "why"));
    let inconsistent = (Warning, "FailedConsistencyCheck", "why (ConsistencyCheckFailed)");
    check(Lifecycle, SubjectKind::Claim, "ConsistencyCheckFailed", inconsistent);
}

#[test]
fn what_keeps_a_claim_is_told_of_its_node_too_and_a_blocked_repair_of_its_pool() {
    let told = |function, reason: &str, state| {
        let one = claim(state);
        let finding = finding(SubjectKind::Claim, one.name.as_str(), reason);
        let mut decided = Decided::default();
        decided.claims.insert(one.name.to_string(), one);
        decided.told.push(ToldFindings { function, findings: vec![finding], resting: Vec::new() });
        let shown = ShownObjects {
            nodes: vec![json!({"kind": "Node", "metadata": {"name": "n", "uid": "uid-of-n"}}).into()],
            ..ShownObjects::default()
        };
        let found = plan_faces(&decided, &shown, &[], at(100)).news;
        // `kubectl describe` looks for the UID.
        let of_node = found.iter().filter(|news| news.note.about.kind == Kind::Node);
        assert!(of_node.into_iter().all(|news| news.note.uid == "uid-of-n"), "{found:#?}");
        found.iter().map(|news| format!("{} {}", news.note.about, news.note.reason)).collect::<Vec<_>>()
    };
    use FunctionName::{Disruption, Lifecycle};
    assert_eq!(
        told(Disruption, "BlockedByPdb", initialized()),
        ["NodeClaim default-abcde DisruptionBlocked", "Node n DisruptionBlocked"]
    );
    assert_eq!(
        told(Disruption, "Unbalanced", initialized()),
        ["NodeClaim default-abcde Unconsolidatable", "Node n Unconsolidatable"]
    );
    assert_eq!(
        told(Lifecycle, "NodeRepairBlocked", initialized()),
        [
            "NodeClaim default-abcde NodeRepairBlocked",
            "Node n NodeRepairBlocked",
            "NodePool default NodeRepairBlocked"
        ]
    );
    assert_eq!(told(Lifecycle, "NotInitialized", launched()), ["NodeClaim default-abcde NotInitialized"]);
}

#[test]
fn a_claim_is_consistent_until_a_check_fails_and_then_again() {
    let world = FacesWorld::new();
    let shown = |state: ClaimState, finding: Option<ToldFinding>| {
        let one = claim(state);
        let mut decided = Decided::default();
        decided.claims.insert(one.name.to_string(), one);
        let (function, findings) = (FunctionName::Lifecycle, finding.into_iter().collect());
        decided.told.push(ToldFindings { function, findings, resting: Vec::new() });
        for _ in 0..2 {
            let shown = block_on(observe_shown(&world.kube)).unwrap();
            for op in &plan_faces(&decided, &shown, &[action()], at(100)).ops {
                block_on(execute_face(&world.kube, op)).unwrap();
            }
        }
        world.conditions().into_iter().find(|told| told.starts_with("ConsistentStateFound"))
    };
    let condition = |text: &str| Some(format!("ConsistentStateFound {text}Z"));
    let failed = || finding(SubjectKind::Claim, "default-abcde", "ConsistencyCheckFailed");
    assert_eq!(shown(launched(), None), None);
    let holds = "True ConsistentStateFound 1970-01-01T00";
    assert_eq!(shown(initialized(), None), condition(&format!("{holds}:00:30")));
    let fails = condition("False ConsistencyCheckFailed 1970-01-01T00:01:30");
    assert_eq!(shown(initialized(), Some(failed())), fails);
    assert_eq!(shown(initialized(), None), condition(&format!("{holds}:01:40")));
    // Where not all names are kept, nobody knows.
    let names = (0..20).map(|n| format!("other-{n}")).collect();
    assert_eq!(shown(initialized(), Some(ToldFinding { names, ..failed() })), None);
    let others = finding(SubjectKind::Pool, "*", "Others");
    assert_eq!(shown(initialized(), Some(others)), None);
    let blocked = ToldFinding { shown: Shown::DrainBlocked, ..failed() };
    let blocked = ToldFinding { reason: "DrainBlocked".to_owned(), ..blocked };
    let held = condition("False DrainBlocked 1970-01-01T00:01:30");
    assert_eq!(shown(draining(), Some(blocked)), held);
}

#[test]
fn a_claim_whose_launch_failed_is_told_of_its_pool_while_that_is_news() {
    let world = FacesWorld::new();
    let failure = LaunchFailure { reason: "InsufficientCapacityError".into(), message: "none".into() };
    let failed = |second| claim(ClaimState::LaunchFailed { at: at(second), failure: failure.clone() });
    // The pool's own fields are written before.
    assert_eq!(world.show(&[]), [""; 0]);
    assert_eq!(world.show(&[failed(99)]), ["NodePool default InsufficientCapacityError"]);
    // Long before the 100th second.
    assert_eq!(world.show(&[failed(-50)]), [""; 0]);
    assert!(world.object().is_none());
}

#[test]
fn news_of_a_pod_has_its_uid_by_which_kubectl_describe_finds_it() {
    let kube = SimulatedCluster::new(SimulationConfig::default(), at(0));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"containers": [{"name": "a"}]}});
    let pod = kube.apply(pod).unwrap();
    let note = Note {
        about: ObjectKey::new(Kind::Pod, "default", "web"),
        uid: String::new(),
        kind: NoteKind::Warning,
        reason: "FailedScheduling".to_owned(),
        message: "why".to_owned(),
    };
    let news = vec![News { of: "why".to_owned(), at: at(1), note }];
    let named = block_on(with_pods_uids(&kube, news));
    assert_eq!(named.first().map(|news| news.note.uid.as_str()), Some(object::uid(&pod)));
}
