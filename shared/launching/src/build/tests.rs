//! Launches of whole plans: which claims share one, what is refused, what a launch costs and what its commit needs.

use tenon_domain::claim::Terms;
use tenon_domain::id::NamespacedName;
use tenon_domain::labels;
use tenon_domain::launch::CountedPod;
use tenon_domain::requirement::Requirement;
use tenon_domain::tags;
use tenon_ec2::port::CreateFleetRequest;
use tenon_memory_table::block_on;
use tenon_memory_table::{MemoryConfig, MemoryTable};
use tenon_state::step::Change;
use tenon_table::items::{keys, set};
use tenon_table::{Commit, CommitToken, Table, Write, WriteGroup};

use super::*;
use crate::fleet::{LEASES_ALONG, TEMPLATES_PER_FLEET};
use crate::testing::{self, class, many_types, planned, registry, status, types};

/// What is made of the input of these tests.
pub(super) fn with_input<T>(types: Vec<InstanceTypeOption>, make: impl FnOnce(&LaunchInput<'_>) -> T) -> T {
    let pool = NodePoolName::parse("default").unwrap();
    let name = NodeClassName::parse("default").unwrap();
    let (registry, evidence, marks) = (registry("prod"), BTreeMap::new(), Marks::default());
    let classes = BTreeMap::from([(name, ReadyClass { class: class("default"), status: status("default") })]);
    let types = BTreeMap::from([(pool, Arc::new(types))]);
    let input = LaunchInput {
        now: Timestamp::UNIX_EPOCH,
        by: FunctionName::Provisioner,
        registry: &registry,
        classes: &classes,
        types: &types,
        region: &Region::parse("us-east-1").unwrap(),
        marks: &marks,
        zones: &ZoneTally::default(),
        replaced: &[],
        displaced: None,
        leaving: &BTreeSet::new(),
        evidence: &evidence,
    };
    make(&input)
}

pub(super) fn built(claims: &[PlannedClaim]) -> Built {
    built_of(claims, types())
}

fn built_of(claims: &[PlannedClaim], types: Vec<InstanceTypeOption>) -> Built {
    with_input(types, |input| build(input, claims, &LaunchCause::PendingPods))
}

#[test]
fn equal_claims_are_one_launch_and_the_rest_its_own() {
    let small = ["m5.large a on-demand 0.1"];
    let mut claims: Vec<PlannedClaim> =
        (0..25).map(|n| planned(&format!("default-{n:02}"), &small)).collect();
    claims.push(planned("default-x", &["m5.xlarge a on-demand 0.2"]));
    let found = built(&claims);
    let sizes: Vec<usize> = found.launches.iter().map(|launch| launch.claims.len()).collect();
    assert_eq!((sizes, found.refused.len()), (vec![20, 5, 1], 0));
    let first = &found.launches[0];
    let request = CreateFleetRequest::from_stored(&first.launch.request).unwrap();
    assert_eq!((request.target_capacity, request.to_stored()), (20, first.launch.request.clone()));
    assert_eq!(request.client_token, first.launch.token);
    assert_eq!(request.tags.instance[tags::LAUNCH], first.launch.id.to_string());
    assert_eq!(request.tags.instance["karpenter.sh/nodepool"], "default");
    let tokens: std::collections::BTreeSet<_> =
        found.launches.iter().map(|l| l.launch.token.clone()).collect();
    assert_eq!(tokens.len(), 3);
    assert_eq!(built(&claims).launches, found.launches);
}

#[test]
fn a_claim_keeps_the_terms_of_its_pool() {
    let hours = tenon_domain::SignedDuration::from_hours;
    let terms = Terms {
        expire_after: Some(hours(24)),
        termination_grace_period: Some(hours(1)),
        load_balancer_deregistration: Some(hours(2)),
    };
    let claim = PlannedClaim { terms, ..planned("default-a", &["m5.large a on-demand 0.1"]) };
    assert_eq!(built(&[claim]).launches[0].claims[0].terms, Some(terms));
}

#[test]
fn a_claim_keeps_the_hash_of_its_class_in_its_cluster() {
    let hash = class("default").spec_hash.in_cluster(&registry("prod").certificate_authority);
    let claim = planned("default-a", &["m5.large a on-demand 0.1"]);
    assert_eq!(built(&[claim]).launches[0].claims[0].class_hash, Some(hash));
}

#[test]
fn who_only_asks_for_what_is_marked_asks_alone() {
    let claims: Vec<PlannedClaim> =
        (0..3).map(|n| planned(&format!("default-{n}"), &["m5.large a spot 0.1 again"])).collect();
    let found = built(&claims);
    let sizes: Vec<usize> = found.launches.iter().map(|launch| launch.claims.len()).collect();
    assert_eq!((sizes, found.refused.len()), (vec![1, 1, 1], 0));
}

#[test]
fn a_claim_without_a_way_to_launch_is_refused() {
    let found = built(&[planned("default-a", &["m5.large c on-demand 0.1"])]);
    assert!(found.launches.is_empty());
    assert!(matches!(found.refused.as_slice(), [(_, BuildError::NoOverride)]), "{:?}", found.refused);
}

#[test]
fn a_launch_that_is_cut_keeps_min_values_or_isnt_made() {
    let check = |family_least: u32, type_least: u32, expected: Result<bool, &str>| {
        // Types of c7i are the dearest of all.
        let types = many_types();
        let names: Vec<String> = types.iter().map(|option| option.facts.name.to_string()).collect();
        let price = |name: &str| if name.starts_with("c7i.") { 9.0 } else { 0.1 };
        let offerings: Vec<String> =
            names.iter().map(|name| format!("{name} a on-demand {}", price(name))).collect();
        let texts: Vec<&str> = offerings.iter().map(String::as_str).collect();
        let mut claim = planned("default-a", &texts);
        let least = |key, least| Requirement::exists(key).with_min_values(Some(least));
        claim.requirements.add(least(labels::INSTANCE_FAMILY, family_least));
        claim.requirements.add(least(labels::INSTANCE_TYPE, type_least));
        let found = built_of(&[claim], types);
        match expected {
            Ok(has_c7i) => {
                assert_eq!(found.refused.first().map(|(_, error)| error.to_string()), None);
                let request = CreateFleetRequest::from_stored(&found.launches[0].launch.request).unwrap();
                let overrides = request.launch_templates.iter().flat_map(|template| &template.overrides);
                let named: Vec<&str> = overrides.map(|one| one.instance_type.as_str()).collect();
                assert_eq!(named.len(), 60);
                assert_eq!(named.iter().any(|name| name.starts_with("c7i.")), has_c7i);
            }
            Err(message) => {
                assert!(found.launches.is_empty());
                assert_eq!(found.refused[0].1.to_string(), message);
            }
        }
    };
    let families = many_types().iter().map(family).collect::<BTreeSet<_>>().len();
    let families = u32::try_from(families).unwrap();
    check(1, 1, Ok(false));
    check(families - 1, 60, Ok(false));
    check(families, 60, Ok(true));
    check(
        families,
        61,
        Err(
            "`minValues` of `node.kubernetes.io/instance-type` is 61, but the instance types of one launch have \
             60 values: lower `minValues`",
        ),
    );
}

/// The families' part of a type's name.
fn family(option: &InstanceTypeOption) -> String {
    option.facts.name.as_str().split('.').next().unwrap().to_owned()
}

/// All of a burst's launches and claims are written to one partition key, which takes 1,000 units a second.
#[test]
fn a_pod_that_is_planned_writes_little() {
    let types = many_types();
    let offerings: Vec<String> = types
        .iter()
        .flat_map(|one| ["a", "b"].map(|zone| format!("{} {zone} spot 0.1", one.facts.name)))
        .collect();
    let offerings: Vec<&str> = offerings.iter().map(String::as_str).collect();
    let pod = |n: usize| CountedPod {
        name: NamespacedName { namespace: "default".to_owned(), name: format!("web-6d4cf56db6-{n:05}") },
        uid: format!("0b1c2d3e-4f50-6172-8394-a5b6c7d8{n:04x}").parse().unwrap(),
    };
    let claim = |n: usize| PlannedClaim {
        pods: (0..15).map(|m| pod(15 * n + m)).collect(),
        ..planned(&format!("default-{n:05}"), &offerings)
    };
    let found = built_of(&(0..20).map(claim).collect::<Vec<_>>(), types);
    let launch = &found.launches[0];
    let cluster = tenon_domain::id::ClusterName::parse("prod").unwrap();
    let size = |key: &tenon_table::Key, item| tenon_table::value::item_size(key, &item);
    let of_claims = launch.claims.iter().map(|claim| {
        size(&keys::claim(&cluster, &claim.name), tenon_table::items::to_item(claim)).div_ceil(1024)
    });
    let key = keys::launch(&cluster, &launch.launch.id);
    let of_launch = size(&key, tenon_table::items::to_item(&launch.launch)).div_ceil(1024);
    // A transaction costs two write units a KB, and settling writes both items again.
    let units = 2 * 2 * (of_launch + of_claims.sum::<u64>());
    assert_eq!((launch.claims.len(), launch.launch.claims.len()), (20, 20));
    assert!(units <= 180, "300 pods write {units} units to the cluster's key");
}

#[test]
fn a_full_launch_fits_into_one_transaction() {
    let claims: Vec<PlannedClaim> =
        (0..20).map(|n| planned(&format!("default-{n:02}"), &["m5.large a on-demand 0.1"])).collect();
    let found = built(&claims);
    let launch = &found.launches[0];
    // Launch, claims, two of the journal for each claim, the revision.
    let items = 1 + launch.claims.len() + 2 * launch.records.len() + 1;
    assert_eq!(items, 62);
    assert!(items + TEMPLATES_PER_FLEET + LEASES_ALONG <= tenon_table::limits::TRANSACTION_ACTIONS);
}

/// Commits a launch of two claims that takes a lease, where something else is in the table already.
fn commits(there: impl FnOnce(&LaunchInput<'_>, &BuiltLaunch) -> Option<Write>) -> bool {
    let claims: Vec<PlannedClaim> =
        (0..2).map(|n| planned(&format!("default-{n}"), &["m5.large a on-demand 0.1"])).collect();
    with_input(types(), |input| {
        let mut launch = build(input, &claims, &LaunchCause::PendingPods).launches.remove(0);
        launch.leases = vec![mark(8)];
        let table = MemoryTable::new(MemoryConfig::strict(1), Arc::new(|| Timestamp::UNIX_EPOCH));
        let commit = |token: &str, conditions, writes| {
            let token = CommitToken::parse(token).unwrap();
            block_on(table.commit(&Commit { token, conditions, writes })).is_ok()
        };
        let known = set(keys::unavailable(input.region, &mark(7).key), &mark(7));
        assert!(commit("known", Vec::new(), vec![known]));
        if let Some(write) = there(input, &launch) {
            assert!(commit("there", Vec::new(), vec![write]));
        }
        let mut change = Change::of(&input.registry.cluster);
        write_launch(input, &launch, 1, |_| false, &mut change);
        let WriteGroup { conditions, writes } = change.group();
        let before: Vec<_> = table.dump().collect();
        let committed = commit("launch", conditions, writes);
        assert_eq!(committed, table.dump().collect::<Vec<_>>() != before);
        committed
    })
}

fn mark(revision: u64) -> Mark {
    Mark { revision, ..testing::mark("offering#on-demand#use1-az-a#m5.large") }
}

#[test]
fn a_launch_is_committed_only_where_nothing_of_it_is_there_and_what_it_asks_after_is_as_it_was() {
    let cluster = || "prod".parse().unwrap();
    assert!(commits(|_, _| None));
    assert!(!commits(|_, launch| { Some(set(keys::launch(&cluster(), &launch.launch.id), &launch.launch)) }));
    for n in 0..2 {
        assert!(!commits(|_, launch| {
            let claim = &launch.claims[n];
            Some(set(keys::claim(&cluster(), &claim.name), claim))
        }));
    }
    assert!(!commits(|input, _| Some(set(keys::unavailable(input.region, &mark(8).key), &mark(8)))));
}
