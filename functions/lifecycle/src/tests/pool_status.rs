//! A NodePool's status: its nodes, their resources, and its conditions.

use tenon_domain::class_status::{ClassStatus, Condition, ConditionReason, ConditionType};
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
    assert_eq!(unsupported(|pool| pool.replicas = Some(3)), told("spec.replicas"));
    assert_eq!(unsupported(|pool| pool.unknown = vec!["spec.new".to_owned()]), told("spec.new"));
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
    let message = "EC2NodeClass `default` is being deleted: create it again, or name another".to_owned();
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
    let nowhere = condition(&input(minutes(30), vec![], vec![]), PoolConditionType::NodeClassReady);
    let message =
        "EC2NodeClass `default` doesn't exist or is invalid: create or correct it, or correct `nodeClassRef`"
            .to_owned();
    assert_eq!(nowhere, Some((False, "NodeClassNotFound".to_owned(), message)));
}
