//! A NodePool's status: its nodes, their resources, and its conditions.

use tenon_domain::api::node_class::ResolvedSecurityGroup;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::claim::NextLaunch;
use tenon_domain::class_hash::PoolHash;
use tenon_domain::class_status::{
    ClassStatus, ClassSubnet, Condition, ConditionReason, ConditionType, ImageVariant, RejectedImage,
    ResolvedImage,
};
use tenon_domain::reservation::ClassReservations;

use super::*;

fn status(seen: &LifecycleInput) -> tenon_domain::pool_status::PoolStatus {
    planned(seen).0.pools.into_iter().next().unwrap()
}

fn condition(seen: &LifecycleInput, wanted: PoolConditionType) -> Option<(ConditionStatus, String, String)> {
    let conditions = status(seen).conditions;
    let found = conditions.into_iter().find(|found| found.condition == wanted);
    found.map(|found| (found.status, found.reason, found.message))
}

#[test]
fn a_pool_names_the_fields_that_nothing_acts_on() {
    let unsupported = |change: fn(&mut NodePool)| {
        let seen = with_snapshot(input(minutes(30), vec![], vec![]), |snapshot| {
            change(&mut snapshot.node_pools[0]);
        });
        condition(&seen, PoolConditionType::Unsupported)
    };
    assert_eq!(unsupported(|_| {}), None);
    let told = |fields: &str| {
        let message = format!("unsupported, so ignored: `{fields}`");
        Some((ConditionStatus::True, "UnsupportedFields".to_owned(), message))
    };
    assert_eq!(unsupported(|pool| pool.unknown = vec!["spec.new".to_owned()]), told("spec.new"));
    let mistaken = unsupported(|pool| {
        let annotations = &mut pool.meta.annotations;
        annotations.insert("tenon.dev/minimum-savings".to_owned(), "lots".to_owned());
        annotations.insert("tenon.dev/expire-within-budgets".to_owned(), "soon".to_owned());
        pool.warnings = vec!["spec.disruption.budgets[0].schedule: it is unreadable".to_owned()];
    });
    let message = "annotation `tenon.dev/expire-within-budgets` is `soon`; write hours, minutes and seconds such as `24h`, or \
                   `0s` to drain at once; annotation `tenon.dev/minimum-savings` is `lots`; write a share such as `5%`, or a \
                   price an hour such as `0.02`; spec.disruption.budgets[0].schedule: it is unreadable";
    assert_eq!(mistaken.map(|(_, _, message)| message).as_deref(), Some(message));
}

#[test]
fn a_static_pool_is_not_ready_because_nothing_is_launched_for_it() {
    let mut seen = with_class(serde_json::json!({}));
    seen = with_snapshot(seen, |snapshot| snapshot.node_pools[0].replicas = Some(3));
    let (ready, reason, words) = condition(&seen, PoolConditionType::Ready).unwrap();
    assert_eq!((ready, reason.as_str()), (ConditionStatus::False, "StaticNodePoolUnsupported"));
    assert!(words.contains("no node is launched for it"), "{words}");
    let unsupported = condition(&seen, PoolConditionType::Unsupported).map(|(_, _, words)| words);
    assert_eq!(unsupported.as_deref(), Some("unsupported: `spec.replicas`"), "said once");
}

#[test]
fn what_is_probably_a_mistake_is_told_of_its_object() {
    let seen = with_snapshot(input(minutes(30), vec![], vec![]), |snapshot| {
        snapshot.node_pools[0].warnings = vec!["spec.a: wrong (correct it)".to_owned()];
    });
    let mut told: Vec<Finding> = Vec::new();
    plan(&seen).1.deliver(&mut told);
    let told: Vec<String> = told.iter().map(|finding| finding.message("lifecycle")).collect();
    let expected = format!("check NodePool `{}`: spec.a: wrong (correct it)", pool().name);
    assert!(told.contains(&expected), "{told:?}");
}

#[test]
fn a_pool_counts_the_claims_that_are_its_nodes_and_what_they_hold() {
    let cpu = |claims: Vec<Claim>, nodes| {
        let status = status(&input(minutes(30), claims, nodes));
        (status.nodes, status.resources.get(&ResourceName::CPU).nanos() / 1_000_000)
    };
    assert_eq!(cpu(vec![], vec![]), (0, 0));
    // A planned claim counts its requests, one with a Node the Node's capacity.
    assert_eq!(cpu(vec![claim(0, ClaimState::Planned)], vec![]), (1, 500));
    assert_eq!(cpu(vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]), (1, 1930));
    let both = vec![claim(0, ClaimState::Planned), claim(1, initialized(1, minutes(1)))];
    assert_eq!(cpu(both, vec![node(1)]), (2, 2430));
    let reason = RemovalReason::Deleted;
    let gone = ClaimState::Terminated { instance: None, node: None, reason, at: minutes(29) };
    assert_eq!(cpu(vec![claim(0, gone)], vec![]), (0, 0));
}

/// A cluster with the pool's class, which has this metadata beside its name.
fn with_class(mut metadata: serde_json::Value) -> LifecycleInput {
    metadata["name"] = "default".into();
    let class = serde_json::json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": metadata,
        "spec": {"role": "node", "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
    let class = tenon_domain::manifest::node_class_from_value(&class).unwrap();
    with_snapshot(input(minutes(30), vec![], vec![]), |snapshot| snapshot.node_classes.push(class))
}

#[test]
fn the_class_of_a_pool_may_be_deleted() {
    let seen = with_class(serde_json::json!({"deletionTimestamp": "2026-11-01T00:00:00Z"}));
    let message = "EC2NodeClass `default` isn't ready: it is being deleted: create it again once it is gone, which waits for its \
                   NodeClaims, or let the NodePool name another"
        .to_owned();
    let expected = Some((ConditionStatus::False, "NodeClassTerminating".to_owned(), message));
    assert_eq!(condition(&seen, PoolConditionType::NodeClassReady), expected);
}

#[test]
fn a_status_that_says_the_same_is_not_written_again() {
    let mut seen = input(minutes(30), vec![claim(0, initialized(0, minutes(1)))], vec![node(0)]);
    let first = status(&seen);
    seen.pools.insert(first.name.clone(), first);
    assert_eq!(planned(&seen).0.pools, vec![]);
    seen.now = minutes(31);
    assert_eq!(planned(&seen).0.pools, vec![]);
}

#[test]
fn a_status_that_changed_is_written_over_the_one_before() {
    let mut seen = input(minutes(30), vec![], vec![]);
    let first = status(&seen);
    assert_eq!((first.revision, first.nodes), (1, 0));
    seen.pools.insert(first.name.clone(), first);
    seen.claims.insert(name(0), claim(0, ClaimState::Planned));
    let second = status(&seen);
    assert_eq!((second.revision, second.nodes), (2, 1));
}

/// A kubelet that just joined may not have reported its capacity.
#[test]
fn a_node_without_capacity_counts_with_its_types() {
    let memory = |capacity: ResourceList| {
        let joined = Node { capacity, ..node(0) };
        let claims = vec![claim(0, initialized(0, minutes(1)))];
        status(&input(minutes(30), claims, vec![joined])).resources.get(&ResourceName::MEMORY)
    };
    assert_eq!(memory(ResourceList::new()), Quantity::from_mebi(7577));
    let own = ResourceList::new().with(ResourceName::MEMORY, Quantity::from_mebi(7600));
    assert_eq!(memory(own), Quantity::from_mebi(7600));
}

/// The pool's class, as it resolved to these conditions.
pub(super) fn class(conditions: &[(ConditionType, ConditionStatus, ConditionReason, &str)]) -> ClassStatus {
    let condition = |(condition, status, reason, message): &(_, _, _, &str)| Condition {
        condition: *condition,
        status: *status,
        reason: *reason,
        message: (*message).to_owned(),
        since: EPOCH,
        observed_generation: 1,
        next_try: None,
    };
    ClassStatus {
        name: "default".parse().unwrap(),
        revision: 1,
        generation: 1,
        uid: None,
        spec_digest: String::new(),
        hash: None,
        subnets: vec![],
        security_groups: vec![],
        images: vec![],
        rejected_images: vec![],
        refused_images: vec![],
        reservations: ClassReservations::default(),
        placement_group: None,
        instance_profile: None,
        profile_seen: None,
        conditions: conditions.iter().map(condition).collect(),
        resolved_at: EPOCH,
    }
}

#[test]
fn a_pool_is_ready_when_its_class_is_and_says_why_where_it_is_not() {
    use ConditionStatus::{False, True, Unknown};
    use ConditionType::{AmisReady, Ready, SubnetsReady};
    let check = |class: Option<ClassStatus>, expected: (ConditionStatus, &str, &str), ready: (&str, &str)| {
        let mut seen = with_class(serde_json::json!({}));
        seen.classes = class.into_iter().map(|class| (class.name.clone(), class)).collect();
        let found = |wanted| condition(&seen, wanted).unwrap();
        let told =
            |(status, reason, message): (_, &str, &str)| (status, reason.to_owned(), message.to_owned());
        assert_eq!(found(PoolConditionType::NodeClassReady), told(expected));
        assert_eq!(found(PoolConditionType::Ready), told((expected.0, ready.0, ready.1)));
    };
    let not = ("UnhealthyDependents", "NodeClassReady");
    let amis = (AmisReady, True, ConditionReason::Holds, "");
    let subnets = (SubnetsReady, False, ConditionReason::SubnetsNotFound, "none has the tags");
    let unhealthy = |status| (Ready, status, ConditionReason::UnhealthyDependents, "SubnetsReady");
    check(
        Some(class(&[subnets, (Ready, True, ConditionReason::Holds, "resolved")])),
        (True, "NodeClassReady", ""),
        ("Ready", ""),
    );
    check(Some(class(&[amis, unhealthy(False)])), (False, "UnhealthyDependents", "SubnetsReady"), not);
    check(
        Some(class(&[amis, unhealthy(Unknown)])),
        (Unknown, "NodeClassReadinessUnknown", "SubnetsReady"),
        not,
    );
    let unresolved = "EC2NodeClass `default` isn't resolved yet: function `node-classes` resolves it within 5 minutes, or \
                      its log says why not";
    check(Some(class(&[])), (Unknown, "NodeClassReadinessUnknown", unresolved), not);
    check(None, (False, "NodeClassNotFound", unresolved), not);
}

#[test]
fn a_class_that_the_cluster_has_no_more_or_that_cant_be_read_is_not_ready_whatever_it_resolved_to() {
    let check = |unreadable: &[&str], reason: &str, message: &str| {
        let mut seen = with_snapshot(input(minutes(30), vec![], vec![]), |snapshot| {
            snapshot.unreadable.extend(unreadable.iter().map(|name| tenon_domain::snapshot::Unreadable {
                kind: "EC2NodeClass".to_owned(),
                name: (*name).to_owned(),
                errors: vec![],
            }));
        });
        let expected = Some((ConditionStatus::False, reason.to_owned(), message.to_owned()));
        assert_eq!(condition(&seen, PoolConditionType::NodeClassReady), expected);
        let ready = (ConditionType::Ready, ConditionStatus::True, ConditionReason::Holds, "resolved");
        let class = class(&[ready]);
        seen.classes.insert(class.name.clone(), class);
        assert_eq!(condition(&seen, PoolConditionType::NodeClassReady), expected);
    };
    let missing = "EC2NodeClass `default` doesn't exist: create it, or correct `nodeClassRef`";
    check(&[], "NodeClassNotFound", missing);
    check(&["other"], "NodeClassNotFound", missing);
    let invalid = "EC2NodeClass `default` isn't ready: it is invalid: its condition `ValidationSucceeded` names the \
                   fields to correct";
    check(&["default"], "NodeClassUnreadable", invalid);
}

/// Such as the NodePool `general-purpose` of EKS Auto Mode.
#[test]
fn a_pool_of_another_kind_of_class_has_none_though_a_class_has_the_name() {
    let ready = class(&[(ConditionType::Ready, ConditionStatus::True, ConditionReason::Holds, "resolved")]);
    let mut seen = with_snapshot(with_class(serde_json::json!({})), |snapshot| {
        let wanted = &mut snapshot.node_pools[0].template.node_class;
        wanted.group = "eks.amazonaws.com".to_owned();
        wanted.kind = "NodeClass".to_owned();
    });
    seen.classes.insert(ready.name.clone(), ready);
    let message = "its `nodeClassRef` is kind `NodeClass` of group `eks.amazonaws.com`, and Tenon serves kind \
                   `EC2NodeClass` of group `karpenter.k8s.aws`: correct it";
    let expected = Some((ConditionStatus::False, "NodeClassNotServed".to_owned(), message.to_owned()));
    assert_eq!(condition(&seen, PoolConditionType::NodeClassReady), expected);
}

/// A pool, its class, and four claims of them of which no Node joined.
fn failing() -> LifecycleInput {
    let failed = |n| {
        let reason = RemovalReason::RegistrationTimeout;
        let state = ClaimState::Terminated { instance: Some(held(n)), node: None, reason, at: minutes(20) };
        Claim {
            pool_hash: Some(PoolHash::of(&pool().template)),
            security_groups: Some(["sg-1".parse().unwrap()].into()),
            ..claim(n, state)
        }
    };
    let mut seen = input(minutes(30), (0..4).map(failed).collect(), vec![]);
    let subnet = ClassSubnet {
        id: held(0).subnet.unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        zone_id: "use1-az1".parse().unwrap(),
        free_addresses: 100,
        shifted: None,
    };
    let image = ResolvedImage {
        id: "ami-1".parse().unwrap(),
        name: "linux".to_owned(),
        architecture: Architecture::X86_64,
        variant: ImageVariant::Standard,
        boot_mode: None,
        created_at: EPOCH,
        own_snapshots: BTreeMap::new(),
    };
    let group = ResolvedSecurityGroup { id: "sg-1".parse().unwrap(), name: "nodes".to_owned() };
    let class = ClassStatus {
        subnets: vec![subnet],
        images: vec![image],
        security_groups: vec![group],
        ..class(&[])
    };
    seen.classes.insert(class.name.clone(), class);
    seen
}

fn edited(mut seen: LifecycleInput, change: impl FnOnce(&mut NodePool, &mut ClassStatus)) -> LifecycleInput {
    let mut class = seen.classes.values().next().unwrap().clone();
    seen = with_snapshot(seen, |snapshot| change(&mut snapshot.node_pools[0], &mut class));
    seen.classes.insert(class.name.clone(), class);
    seen
}

/// Whether launches fail by the condition, and whether the pool's next launch may repeat them, which makes it wait.
fn health(seen: &LifecycleInput) -> (ConditionStatus, bool) {
    let (status, ..) = condition(seen, PoolConditionType::NodeRegistrationHealthy).unwrap();
    let pool = &seen.snapshot.as_ref().unwrap().node_pools[0];
    let next = NextLaunch::of(pool, seen.classes.values().next());
    (status, seen.claims.values().any(|claim| next.repeats(claim)))
}

#[test]
fn an_edit_of_the_pool_or_its_class_begins_anew_with_the_health_of_launches() {
    use ConditionStatus::{False, True, Unknown};
    type Edit = fn(&mut NodePool, &mut ClassStatus);
    let check = |edit: Edit, expected| assert_eq!(health(&edited(failing(), edit)), expected);
    let (same, anew) = ((False, true), (Unknown, false));
    check(|_, _| {}, same);
    check(|pool, _| pool.weight = 10, same);
    check(|pool, _| pool.template.taints.clear(), anew);
    let arm = || Requirements::from_labels([("node.kubernetes.io/instance-type", "m7g.large")]);
    let mut other = edited(failing(), |pool, _| pool.template.requirements = arm());
    assert_eq!(health(&other), anew);
    check(|_, class| class.security_groups[0].id = "sg-2".parse().unwrap(), anew);
    check(|_, class| class.subnets[0].id = "subnet-2".parse().unwrap(), anew);
    check(|_, class| class.images[0].id = "ami-2".parse().unwrap(), anew);
    // The class passes over the image because of these very launches.
    let rejected = |_: &mut NodePool, class: &mut ClassStatus| {
        let ResolvedImage { id, name, .. } = class.images.remove(0);
        class.rejected_images.push(RejectedImage { id, name, reasons: vec![] });
    };
    check(rejected, (False, false));
    // The first Node of the new form says that it joins; a new image doesn't undo that.
    let joins = |mut seen: LifecycleInput, pool_hash: PoolHash| {
        let later = Claim { created_at: minutes(21), ..claim(9, initialized(9, minutes(22))) };
        let later = Claim { pool_hash: Some(pool_hash), ..later };
        seen.claims.insert(later.name.clone(), later);
        edited(seen, |_, class| class.images[0].id = "ami-3".parse().unwrap())
    };
    let hash = |seen: &LifecycleInput| PoolHash::of(&seen.snapshot.as_ref().unwrap().node_pools[0].template);
    other = edited(failing(), |pool, _| pool.template.taints.clear());
    let now = hash(&other);
    assert_eq!(health(&joins(other, now)).0, True);
    assert_eq!(health(&joins(failing(), now)).0, Unknown);
}
