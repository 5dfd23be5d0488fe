//! Claims as a user sees them, and objects that stay unchanged.

mod classes;
mod events;

use tenon_domain::SignedDuration;
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{
    AnnouncementKind, ClaimState, Consolidatable, Drift, DriftReason, InstanceAnnouncement, LaunchedInstance,
    RemovalReason, Terms,
};
use tenon_domain::id::{
    ClaimName, CommandId, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName, NodeName, NodePoolName,
    Zone,
};
use tenon_domain::quantity::Quantity;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_memory_table::block_on;
use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
use tenon_snapshot::ActionKind;

use super::*;

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
        let class_ref = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "linux"});
        let template = json!({"spec": {"nodeClassRef": class_ref, "expireAfter": "Never",
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
    let drift =
        |reason| Drift { reason, since: at(31), from: "a".into(), to: "b".into(), fields: Vec::new() };
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
