//! EC2NodeClasses as a user sees them, and what a NodePool shows of its class and of its template.

use tenon_domain::class_hash::PoolHash;
use tenon_domain::class_status::{Condition, ConditionReason, ConditionStatus, ConditionType};
use tenon_domain::manifest::{self, ManifestObject};
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::reservation::ClassReservations;

use super::*;

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

fn shown_pool() -> PoolStatus {
    PoolStatus {
        name: NodePoolName::parse("default").unwrap(),
        revision: 1,
        generation: 1,
        nodes: 0,
        resources: ResourceList::new(),
        conditions: Vec::new(),
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
    decided.pools = vec![shown_pool()];
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
fn a_pool_of_another_apis_class_shows_nothing_of_ours_with_its_name() {
    let check = |group: &str, kind: &str, expected: Option<u64>| {
        let world = FacesWorld::new();
        let class_ref = json!({"group": group, "kind": kind, "name": "default"});
        let template =
            json!({"spec": {"nodeClassRef": class_ref, "requirements": [], "expireAfter": "Never"}});
        let given = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": template}});
        world.kube.apply(given).unwrap();
        let mut decided = Decided::default();
        decided.pools = vec![shown_pool()];
        decided.classes = vec![ClassStatus { generation: 3, ..class(Vec::new()) }];
        world.show_all(&decided);
        let object = world.kube.object(Kind::NodePool, "", "default").unwrap();
        let observed = object.pointer("/status/nodeClassObservedGeneration").and_then(Value::as_u64);
        assert_eq!(observed, expected, "{group} {kind}");
    };
    check("karpenter.k8s.aws", "EC2NodeClass", Some(3));
    // EKS Auto Mode's.
    check("eks.amazonaws.com", "NodeClass", None);
    check("eks.amazonaws.com", "EC2NodeClass", None);
    check("karpenter.k8s.aws", "NodeClass", None);
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
    let apply = |name: &str, group: &str, kind: &str| {
        let class_ref = json!({"group": group, "kind": kind, "name": "linux"});
        let claim =
            json!({"kind": "NodeClaim", "metadata": {"name": name}, "spec": {"nodeClassRef": class_ref}});
        world.kube.apply(claim).unwrap();
    };
    apply("foreign", "karpenter.k8s.aws", "EC2NodeClass");
    // It uses EKS Auto Mode's class of the same name.
    apply("auto", "eks.amazonaws.com", "NodeClass");
    assert_eq!(look(&decided), found(both, &held.replace("default-abcde", "foreign")));
    world.kube.delete(Kind::NodeClaim, "", "foreign");
    assert_eq!(look(&decided), found("example.com/other", ""));
}
