//! Claims as a user sees them, and objects that stay unchanged.

use super::news::with_pods_uids;
use super::*;
use tenon_domain::SignedDuration;
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{
    AnnouncementKind, ClaimState, Consolidatable, Drift, DriftReason, InstanceAnnouncement, LaunchFailure,
    LaunchedInstance, RemovalReason, Terms,
};
use tenon_domain::class_status::{Condition, ConditionReason, ConditionStatus, ConditionType};
use tenon_domain::id::{
    ClaimName, CommandId, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName,
    Zone,
};
use tenon_domain::journal::Decision;
use tenon_domain::quantity::Quantity;
use tenon_domain::report::Shown;
use tenon_domain::reservation::ClassReservations;
use tenon_domain::resources::ResourceName;
use tenon_domain::wake::FunctionName;
use tenon_memory_table::block_on;
use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
use tenon_snapshot::{ActionKind, NoteKind};
use tenon_table::items::{ToldFinding, ToldFindings};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn instance() -> LaunchedInstance {
    LaunchedInstance {
        id: InstanceId::parse("i-0abc").unwrap(),
        instance_type: InstanceType::parse("m5.large").unwrap(),
        zone: Zone::parse("us-east-1a").unwrap(),
        subnet: None,
        reservation: None,
        placement: None,
        capacity_type: CapacityType::Spot,
        image: ImageId::parse("ami-0123456789abcdef0").unwrap(),
    }
}

fn node_name() -> NodeName {
    NodeName::parse("n").unwrap()
}

fn launched() -> ClaimState {
    ClaimState::Launched { instance: instance(), at: at(10) }
}

fn initialized() -> ClaimState {
    ClaimState::Initialized { instance: instance(), node: node_name(), at: at(30) }
}

fn draining() -> ClaimState {
    ClaimState::Draining {
        instance: instance(),
        node: Some(node_name()),
        reason: RemovalReason::SpotInterrupted,
        at: at(40),
        deadline: None,
    }
}

fn terminated() -> ClaimState {
    ClaimState::Terminated {
        instance: Some(instance()),
        node: Some(node_name()),
        reason: RemovalReason::SpotInterrupted,
        at: at(50),
    }
}

fn claim(state: ClaimState) -> Claim {
    Claim {
        revision: 2,
        state,
        requests: ResourceList::new().with(ResourceName::CPU, Quantity::from_integer(2)),
        ..Claim::planned(
            ClaimName::parse("default-abcde").unwrap(),
            (NodePoolName::parse("default").unwrap(), NodeClassName::parse("linux").unwrap()),
            LaunchId::parse("launch-1").unwrap(),
            at(5),
        )
    }
}

fn action() -> NodeAction {
    NodeAction {
        claim: ClaimName::parse("default-abcde").unwrap(),
        number: 2,
        kind: ActionKind::Register,
        provider_id: Some("aws:///us-east-1a/i-0abc".to_owned()),
        node: None,
        labels: [("karpenter.sh/nodepool".to_owned(), "default".to_owned())].into(),
        annotations: [("karpenter.sh/nodepool-hash".to_owned(), "1".to_owned())].into(),
        taints: vec![],
        startup_taints: vec![],
        deadline: None,
        replacement: tenon_snapshot::ReplacementOrder::Anytime,
    }
}

struct FacesWorld {
    kube: SimulatedCluster,
}

impl FacesWorld {
    fn new() -> Self {
        let kube = SimulatedCluster::new(SimulationConfig::default(), at(0));
        let template = json!({"spec": {"nodeClassRef": {"name": "linux"}, "expireAfter": "Never",
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                {"key": "topology.kubernetes.io/zone", "operator": "Exists"}]}});
        kube.apply(json!({"kind": "NodePool", "metadata": {"name": "default", "uid": "pool"},
            "spec": {"template": template}}))
            .unwrap();
        Self { kube }
    }

    /// Plans and executes until nothing is left to do; returns the events.
    fn show(&self, claims: &[Claim]) -> Vec<String> {
        let mut decided = Decided::default();
        decided.claims = claims.iter().map(|claim| (claim.name.to_string(), claim.clone())).collect();
        self.show_all(&decided)
    }

    fn show_all(&self, decided: &Decided) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..3 {
            let shown = block_on(observe_shown(&self.kube)).unwrap();
            let faces = plan_faces(decided, &shown, &[action()], at(100));
            told.extend(faces.notes.iter().map(|note| format!("{} {}", note.about, note.reason)));
            for op in &faces.ops {
                block_on(execute_face(&self.kube, op)).unwrap();
            }
            if faces.ops.is_empty() {
                return told;
            }
        }
        let shown = block_on(observe_shown(&self.kube)).unwrap();
        assert_eq!(plan_faces(decided, &shown, &[action()], at(100)), Faces::default());
        told
    }

    fn object(&self) -> Option<Object> {
        self.kube.object(Kind::NodeClaim, "", "default-abcde")
    }

    fn conditions(&self) -> Vec<String> {
        let object = self.object().unwrap();
        object::list(&object, "/status/conditions")
            .iter()
            .map(|c| {
                let of = |pointer| text(c, pointer).unwrap_or_default();
                format!("{} {} {} {}", of("/type"), of("/status"), of("/reason"), of("/lastTransitionTime"))
            })
            .collect()
    }
}

#[test]
fn a_launched_claim_is_shown_as_the_peer_would() {
    let world = FacesWorld::new();
    assert_eq!(world.show(&[claim(launched())]), ["NodeClaim default-abcde Launched"]);
    let object = world.object().unwrap();
    let mut object = Value::clone(&object);
    for field in ["uid", "resourceVersion", "creationTimestamp"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    insta::assert_snapshot!(format!("{object:#}"));
}

#[test]
fn a_node_claim_shows_the_terms_that_it_was_made_with() {
    let spec = |terms: Option<Terms>| {
        let world = FacesWorld::new();
        world.show(&[Claim { terms, ..claim(launched()) }]);
        let object = world.object().unwrap();
        ["expireAfter", "terminationGracePeriod"]
            .map(|field| text(&object, &format!("/spec/{field}")).map(str::to_owned))
    };
    let own = |expires: Option<i64>, grace: Option<i64>| {
        Some(Terms {
            expire_after: expires.map(SignedDuration::from_hours),
            termination_grace_period: grace.map(SignedDuration::from_secs),
            load_balancer_deregistration: None,
        })
    };
    let texts = |texts: [Option<&str>; 2]| texts.map(|text| text.map(str::to_owned));
    assert_eq!(spec(own(Some(24), Some(90))), texts([Some("24h"), Some("1m30s")]));
    assert_eq!(spec(own(None, None)), texts([Some("Never"), None]));
    assert_eq!(spec(None), texts([Some("Never"), None]), "what the pool says now");
}

#[test]
fn its_steps_become_conditions_and_events() {
    let world = FacesWorld::new();
    world.show(&[claim(launched())]);
    let told = world.show(&[claim(initialized())]);
    assert_eq!(told, ["NodeClaim default-abcde Registered", "NodeClaim default-abcde Initialized"]);
    assert_eq!(
        world.conditions(),
        [
            "Launched True Launched 1970-01-01T00:00:10Z",
            "Registered True Registered 1970-01-01T00:00:30Z",
            "Initialized True Initialized 1970-01-01T00:00:30Z",
            "Ready True Ready 1970-01-01T00:00:30Z",
            "ConsistentStateFound True ConsistentStateFound 1970-01-01T00:00:30Z"
        ]
    );
    assert_eq!(world.show(&[claim(initialized())]), [""; 0]);
    let disrupting = ClaimState::Disrupting {
        instance: instance(),
        node: node_name(),
        command: CommandId::parse("command-1").unwrap(),
        at: at(35),
    };
    assert_eq!(
        world.show(&[claim(disrupting)]),
        ["NodeClaim default-abcde DisruptionLaunching", "NodeClaim default-abcde DisruptionWaitingReadiness"]
    );
    assert_eq!(world.conditions()[4], "DisruptionReason True Underutilized 1970-01-01T00:00:35Z");
}

#[test]
fn a_node_that_may_go_is_consolidatable_once_it_was_so_for_as_long_as_its_pool_says() {
    let shown = |after: &str, since: i64, pods: Option<&str>| {
        let world = FacesWorld::new();
        let pool = world.kube.object(Kind::NodePool, "", "default").unwrap();
        let mut pool = Value::clone(&pool);
        pool["spec"]["disruption"] = json!({"consolidateAfter": after});
        world.kube.apply(pool).unwrap();
        let mark = Consolidatable { since: at(since), pods: pods.map(str::to_owned) };
        let found = |state| Claim { consolidatable: Some(mark.clone()), ..claim(state) };
        world.show(&[claim(launched())]);
        world.show(&[found(initialized())]);
        world.conditions().into_iter().find(|told| told.starts_with("Consolidatable"))
    };
    let quiet = |second: &str| Some(format!("Consolidatable True Consolidatable 1970-01-01T00:01:{second}Z"));
    assert_eq!(shown("30s", 60, None), quiet("30"));
    assert_eq!(shown("40s", 60, Some("digest")), quiet("40"), "the hundredth second");
    assert_eq!(shown("41s", 60, None), None);
    assert_eq!(shown("Never", 60, None), None);
    // One whose consolidation was undone isn't taken again before.
    assert_eq!(shown("0s", 101, None), None);
}

#[test]
fn a_claim_that_a_command_holds_says_why() {
    let expires = |second: i64| Terms {
        expire_after: Some(SignedDuration::from_secs(second)),
        termination_grace_period: None,
        load_balancer_deregistration: None,
    };
    let drift = |reason| Drift { reason, since: at(31), from: "a".into(), to: "b".into() };
    let check = |change: &dyn Fn(&mut Claim), expected: &str| {
        let world = FacesWorld::new();
        let disrupting = ClaimState::Disrupting {
            instance: instance(),
            node: node_name(),
            command: CommandId::parse("command-1").unwrap(),
            at: at(35),
        };
        let mut held = claim(disrupting);
        change(&mut held);
        world.show(&[claim(launched())]);
        world.show(&[held]);
        let conditions = world.conditions();
        let told = conditions.iter().find(|told| told.starts_with("DisruptionReason")).unwrap();
        assert_eq!(told, &format!("DisruptionReason True {expected} 1970-01-01T00:00:35Z"));
    };
    check(&|_| {}, "Underutilized");
    check(&|held| held.drift = Some(drift(DriftReason::AmiDrift)), "Drifted");
    check(&|held| held.terms = Some(expires(30)), "Expired");
    check(&|held| held.terms = Some(expires(31)), "Underutilized");
    let announced = |kind| InstanceAnnouncement { kind, at: at(20), starts_at: None };
    check(&|held| held.announced = Some(announced(AnnouncementKind::ScheduledChange)), "ScheduledChange");
    let recommended = AnnouncementKind::RebalanceRecommendation;
    check(&|held| held.announced = Some(announced(recommended)), "RebalanceRecommended");
}

#[test]
fn a_claim_that_goes_is_deleted_and_held_until_its_instance_is_gone() {
    let world = FacesWorld::new();
    world.show(&[claim(initialized())]);
    assert_eq!(
        world.show(&[claim(draining())]),
        ["NodeClaim default-abcde SpotInterrupted", "NodeClaim default-abcde TerminatingOnInterruption"]
    );
    let object = world.object().unwrap();
    assert!(object::deleted_at(&object).is_some());
    assert_eq!(world.conditions()[5], "Drained Unknown Draining 1970-01-01T00:00:40Z");
    world.show(&[claim(terminated())]);
    assert!(world.object().is_none());
    assert_eq!(world.show(&[claim(terminated())]), [""; 0]);
}

#[test]
fn a_drain_that_has_to_end_shows_when_and_never_later() {
    let world = FacesWorld::new();
    let drains = |deadline| ClaimState::Draining {
        instance: instance(),
        node: Some(node_name()),
        reason: RemovalReason::Drifted,
        at: at(40),
        deadline: Some(at(deadline)),
    };
    let shown = || {
        let object = world.object().unwrap();
        text(&object, "/metadata/annotations/karpenter.sh~1nodeclaim-termination-timestamp")
            .map(str::to_owned)
    };
    world.show(&[claim(initialized())]);
    assert_eq!(shown(), None);
    assert_eq!(
        world.show(&[claim(drains(340))]),
        [
            "NodeClaim default-abcde DisruptionTerminating",
            "NodeClaim default-abcde TerminationGracePeriodExpiring"
        ]
    );
    assert_eq!(shown().as_deref(), Some("1970-01-01T00:05:40Z"));
    world.show(&[claim(drains(400))]);
    assert_eq!(shown().as_deref(), Some("1970-01-01T00:05:40Z"));
    world.show(&[claim(drains(120))]);
    assert_eq!(shown().as_deref(), Some("1970-01-01T00:02:00Z"));
}

#[test]
fn volumes_of_a_drain_that_its_deadline_ended_arent_shown_as_detached() {
    let check = |ended: i64, expected: &str| {
        let world = FacesWorld::new();
        let drains = ClaimState::Draining {
            instance: instance(),
            node: Some(node_name()),
            reason: RemovalReason::Drifted,
            at: at(40),
            deadline: Some(at(340)),
        };
        let ends = |at| ClaimState::Terminating {
            instance: instance(),
            node: Some(node_name()),
            reason: RemovalReason::Drifted,
            at,
        };
        world.show(&[claim(initialized())]);
        world.show(&[claim(drains)]);
        world.show(&[claim(ends(at(ended)))]);
        let volumes = || world.conditions().into_iter().find(|of| of.starts_with("VolumesDetached"));
        let words = |condition: String| condition.split(' ').take(3).collect::<Vec<_>>().join(" ");
        assert_eq!(volumes().map(words).as_deref(), Some(expected));
        // Nothing is written again.
        assert_eq!(world.show(&[claim(ends(at(ended)))]), [""; 0]);
    };
    check(340, "VolumesDetached False TerminationGracePeriodElapsed");
    check(339, "VolumesDetached True VolumesDetached");
}

#[test]
fn the_last_pod_that_came_or_left_is_shown_and_not_each_of_a_burst() {
    let world = FacesWorld::new();
    let node = json!({"kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "aws:///us-east-1a/i-0abc"}});
    world.kube.apply(node).unwrap();
    let claims = [claim(initialized())];
    let mut decided = Decided::default();
    decided.claims = claims.iter().map(|claim| (claim.name.to_string(), claim.clone())).collect();
    world.show_all(&decided);
    let shows = |second: Option<i64>| {
        let pod_times = second.map(|second| ("n".to_owned(), at(second))).into_iter().collect();
        let shown = ShownObjects { pod_times, ..block_on(observe_shown(&world.kube)).unwrap() };
        for op in &plan_faces(&decided, &shown, &[action()], at(100)).ops {
            block_on(execute_face(&world.kube, op)).unwrap();
        }
        let object = world.object().unwrap();
        text(&object, "/status/lastPodEventTime").map(str::to_owned)
    };
    let told = |second: i64| Some(at(second).to_string());
    assert_eq!(shows(None), None);
    assert_eq!(shows(Some(40)), told(40));
    assert_eq!(shows(Some(49)), told(40));
    assert_eq!(shows(Some(50)), told(50));
    assert_eq!(shows(None), told(50), "a new agent doesn't know it yet");
}

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
    }
}

#[test]
fn an_event_of_a_finding_has_the_reason_that_karpenter_gives_it() {
    let check = |function, kind, reason: &str, expected: (NoteKind, &str, &str)| {
        let finding = finding(kind, "a", reason);
        let mut decided = Decided::default();
        decided.told.push(ToldFindings { function, findings: vec![finding] });
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
        decided.told.push(ToldFindings { function, findings: vec![finding] });
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
        decided.told.push(ToldFindings { function, findings });
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
    assert_eq!(world.show(&[failed(99)]), ["NodePool default InsufficientCapacityError"]);
    // Long before the 100th second.
    assert_eq!(world.show(&[failed(-50)]), [""; 0]);
    assert!(world.object().is_none());
}

#[test]
fn what_the_user_deletes_holds_until_it_is_terminated() {
    let world = FacesWorld::new();
    world.show(&[claim(initialized())]);
    world.kube.delete(Kind::NodeClaim, "", "default-abcde");
    world.show(&[claim(initialized())]);
    assert!(object::deleted_at(&world.object().unwrap()).is_some());
}

/// A table that was restored doesn't know the claim, or knows it from before its instance.
#[test]
fn a_claim_whose_instance_the_table_forgot_goes_with_its_node() {
    for known in [&[][..], &[claim(ClaimState::Planned)]] {
        let world = FacesWorld::new();
        world.show(&[claim(initialized())]);
        world
            .kube
            .apply(json!({"kind": "Node", "metadata": {"name": "n"}, "spec": {"providerID": "aws:///us-east-1a/i-0abc"}}))
            .unwrap();
        world.show(known);
        assert!(object::deleted_at(&world.object().unwrap()).is_none(), "its Node lives");
        world.kube.delete(Kind::Node, "", "n");
        world.show(known);
        assert!(world.object().is_none());
    }
}

#[test]
fn a_node_claim_of_somebody_else_is_left_alone() {
    let world = FacesWorld::new();
    let theirs = json!({"kind": "NodeClaim", "metadata": {"name": "default-abcde"}, "spec": {}});
    world.kube.apply(theirs).unwrap();
    world.show(&[claim(initialized())]);
    world.show(&[]);
    assert!(world.object().unwrap().get("status").is_none());
}

fn class(conditions: Vec<Condition>) -> ClassStatus {
    ClassStatus {
        name: NodeClassName::parse("default").unwrap(),
        revision: 1,
        generation: 1,
        uid: None,
        spec_digest: String::new(),
        hash: None,
        subnets: Vec::new(),
        security_groups: Vec::new(),
        images: Vec::new(),
        rejected_images: Vec::new(),
        refused_images: Vec::new(),
        reservations: ClassReservations::default(),
        instance_profile: None,
        profile_seen: None,
        placement_group: None,
        conditions,
        resolved_at: at(10),
    }
}

/// Reasons as the API server takes them: the pattern of `metav1.Condition`.
fn is_reason(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',' | ':');
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(inner)
}

fn reasons(status: &Value) -> Vec<String> {
    let conditions = status["conditions"].as_array().unwrap().iter();
    let line = |condition: &Value| {
        let reason = condition["reason"].as_str().unwrap();
        assert!(is_reason(reason), "the API server refuses the reason `{reason}`");
        format!("{}={} {reason}", condition["type"].as_str().unwrap(), condition["status"].as_str().unwrap())
    };
    conditions.map(line).collect()
}

#[test]
fn what_is_true_of_a_class_shows_its_own_type_as_the_reason() {
    let conditions = ConditionType::ALL.iter().map(|condition| Condition {
        condition: *condition,
        status: ConditionStatus::True,
        reason: match condition {
            ConditionType::Unsupported => ConditionReason::UnsupportedFields,
            ConditionType::AmisReady
            | ConditionType::SubnetsReady
            | ConditionType::SecurityGroupsReady
            | ConditionType::InstanceProfileReady
            | ConditionType::CapacityReservationsReady
            | ConditionType::PlacementGroupReady
            | ConditionType::ValidationSucceeded
            | ConditionType::Ready
            | ConditionType::ZonesInService => ConditionReason::Holds,
        },
        message: String::new(),
        since: at(10),
        observed_generation: 1,
        next_try: None,
    });
    let class = class(conditions.collect());
    assert_eq!(
        reasons(&class_status(&class)),
        [
            "AMIsReady=True AMIsReady",
            "SubnetsReady=True SubnetsReady",
            "SecurityGroupsReady=True SecurityGroupsReady",
            "InstanceProfileReady=True InstanceProfileReady",
            "CapacityReservationsReady=True CapacityReservationsReady",
            "PlacementGroupReady=True PlacementGroupReady",
            "ValidationSucceeded=True ValidationSucceeded",
            "Ready=True Ready",
            "tenon.dev/Unsupported=True UnsupportedFields",
            "tenon.dev/ZonesInService=True ZonesInService",
        ]
    );
}

#[test]
fn a_class_has_the_hash_of_its_spec_beside_its_other_annotations() {
    let world = FacesWorld::new();
    let given = json!({"kind": "EC2NodeClass", "spec": {}, "metadata": {"name": "default", "annotations": {"team": "a"}}});
    world.kube.apply(given).unwrap();
    let check = |generation: u64, hash: &str, expected: Option<&str>| {
        let hash = Some(hash.parse().unwrap());
        let mut decided = Decided::default();
        decided.classes = vec![ClassStatus { generation, hash, ..class(Vec::new()) }];
        world.show_all(&decided);
        let object = world.kube.object(Kind::Ec2NodeClass, "", "default").unwrap();
        let shown: BTreeMap<&str, &str> = object::texts(&object, "/metadata/annotations").collect();
        assert_eq!(shown.get("team"), Some(&"a"));
        assert_eq!(shown.get("karpenter.k8s.aws/ec2nodeclass-hash").copied(), expected);
        let version = shown.get("karpenter.k8s.aws/ec2nodeclass-hash-version").copied();
        assert_eq!(version, expected.map(|_| "v6"));
    };
    check(0, "1", None);
    check(1, "2", Some("2"));
    check(1, "3", Some("3"));
    check(2, "4", Some("3"));
}

#[test]
fn a_pool_has_the_hash_of_its_template_and_the_generation_of_its_class() {
    let world = FacesWorld::new();
    let linux = json!({"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]});
    let class_ref = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let given = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "annotations": {"team": "a"}},
        "spec": {"template": {"spec": {"nodeClassRef": class_ref, "requirements": [linux], "expireAfter": "Never"}},
            "disruption": {"consolidateAfter": "0s"}}});
    world.kube.apply(given.clone()).unwrap();
    let Ok(ManifestObject::NodePool(pool)) = manifest::read_stored(&given) else { unreachable!() };
    let mut decided = Decided::default();
    decided.pools = vec![PoolStatus {
        name: pool.name.clone(),
        revision: 1,
        generation: 1,
        nodes: 0,
        resources: ResourceList::new(),
        conditions: Vec::new(),
    }];
    decided.classes = vec![ClassStatus { generation: 3, ..class(Vec::new()) }];
    world.show_all(&decided);
    let object = world.kube.object(Kind::NodePool, "", "default").unwrap();
    let shown: BTreeMap<&str, &str> = object::texts(&object, "/metadata/annotations").collect();
    let hash = PoolHash::of(&pool.template).to_string();
    let expected = [
        ("karpenter.sh/nodepool-hash", hash.as_str()),
        ("karpenter.sh/nodepool-hash-version", "v3"),
        ("team", "a"),
    ];
    assert_eq!(shown, BTreeMap::from(expected));
    assert_eq!(object.pointer("/status/nodeClassObservedGeneration"), Some(&json!(3)));
}

#[test]
fn a_class_that_is_made_anew_shows_nothing_of_the_one_before() {
    let world = FacesWorld::new();
    let object = json!({"kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": {"role": "node"}});
    world.kube.apply(object).unwrap();
    let ready = Condition {
        condition: ConditionType::Ready,
        status: ConditionStatus::True,
        reason: ConditionReason::Holds,
        message: String::new(),
        since: at(10),
        observed_generation: 1,
        next_try: None,
    };
    let shown_of = |uid: &str| {
        let mut decided = Decided::default();
        decided.classes = vec![ClassStatus { uid: Some(uid.parse().unwrap()), ..class(vec![ready.clone()]) }];
        world.show_all(&decided);
        let object = world.kube.object(Kind::Ec2NodeClass, "", "default").unwrap();
        conditions::holds(&object, "Ready")
    };
    let uid = object::uid(&world.kube.object(Kind::Ec2NodeClass, "", "default").unwrap()).to_owned();
    assert_eq!([shown_of("another"), shown_of(&uid)], [false, true]);
}

#[test]
fn a_deleted_class_stays_while_node_claims_use_it() {
    let world = FacesWorld::new();
    let class_object = json!({"kind": "EC2NodeClass", "metadata": {"name": "linux", "finalizers": ["example.com/other"]},
        "spec": {"role": "node"}});
    world.kube.apply(class_object).unwrap();
    let mut decided = Decided::default();
    let look = |decided: &Decided| {
        world.show_all(decided);
        let object = world.kube.object(Kind::Ec2NodeClass, "", "linux")?;
        let held = conditions::known(&object, "tenon.dev/Waiting").and_then(|of| text(of, "/message"));
        let finalizers = object::list(&object, "/metadata/finalizers").iter().filter_map(Value::as_str);
        Some((finalizers.collect::<Vec<_>>().join(" "), held.unwrap_or_default().to_owned()))
    };
    let found = |finalizers: &str, held: &str| Some((finalizers.to_owned(), held.to_owned()));
    assert_eq!(look(&decided), found("example.com/other", ""), "the functions don't know it yet");
    decided.classes = vec![ClassStatus { name: NodeClassName::parse("linux").unwrap(), ..class(Vec::new()) }];
    let both = "example.com/other karpenter.k8s.aws/termination";
    assert_eq!(look(&decided), found(both, ""));
    let held = "it is being deleted, and stays while NodeClaims `default-abcde` use it: delete their \
                NodePools, or let these name another EC2NodeClass";
    world.kube.delete(Kind::Ec2NodeClass, "", "linux");
    let planned = Claim::planned(
        ClaimName::parse("default-abcde").unwrap(),
        (NodePoolName::parse("default").unwrap(), NodeClassName::parse("linux").unwrap()),
        LaunchId::parse("launch-1").unwrap(),
        at(5),
    );
    for state in [planned, claim(launched()), claim(draining())] {
        decided.claims = [(state.name.to_string(), state)].into();
        assert_eq!(look(&decided), found(both, held));
    }
    // Of another controller.
    decided.claims.clear();
    let foreign = json!({"kind": "NodeClaim", "metadata": {"name": "foreign"},
        "spec": {"nodeClassRef": {"name": "linux"}}});
    world.kube.apply(foreign).unwrap();
    assert_eq!(look(&decided), found(both, &held.replace("default-abcde", "foreign")));
    world.kube.delete(Kind::NodeClaim, "", "foreign");
    assert_eq!(look(&decided), found("example.com/other", ""));
}

#[test]
fn every_reason_that_a_class_can_have_is_one_that_the_api_server_takes() {
    for reason in ConditionReason::ALL {
        for condition in ConditionType::ALL {
            let condition = Condition {
                condition,
                status: ConditionStatus::False,
                reason,
                message: String::new(),
                since: at(10),
                observed_generation: 1,
                next_try: None,
            };
            assert!(is_reason(condition.reason_text()), "{condition:?}");
        }
    }
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
