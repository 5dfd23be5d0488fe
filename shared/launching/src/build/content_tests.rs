//! The content of launches: their claims, their nodes' labels, their records and writes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tenon_domain::catalog::OfferedReservation;
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::id::NamespacedName;
use tenon_domain::labels;
use tenon_domain::launch::{CountedPod, PODS_PER_LAUNCH};
use tenon_domain::placement::{LaunchPlacement, ResolvedPlacementGroup, Tenancy};
use tenon_domain::quantity::Quantity;
use tenon_domain::requirement::Requirement;
use tenon_domain::reservation::ReservationKind;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::taint::{Taint, TaintEffect};
use tenon_ec2::port::CreateFleetRequest;
use tenon_state::step::Change;
use tenon_table::items::keys;

use super::tests::{built, with_input};
use super::*;
use crate::testing::{efa_types, mark, planned, types};

/// The cheapest way to have a node of these tests.
const SMALL: [&str; 1] = ["m5.large a on-demand 0.1"];

fn pods(count: usize) -> Vec<CountedPod> {
    let pod = |n: usize| CountedPod {
        name: NamespacedName { namespace: "default".to_owned(), name: format!("web-{n:02}") },
        uid: format!("0b1c2d3e-4f50-6172-8394-{n:012x}").parse().unwrap(),
    };
    (0..count).map(pod).collect()
}

#[test]
fn a_launch_holds_no_more_pods_than_its_item_has_room_for() {
    let check = |counts: &[usize], expected: &[usize]| {
        let claim = |(n, count): (usize, &usize)| PlannedClaim {
            pods: pods(*count),
            ..planned(&format!("default-{n}"), &SMALL)
        };
        let found = built(&counts.iter().enumerate().map(claim).collect::<Vec<_>>());
        let held = |launch: &BuiltLaunch| launch.launch.claims.iter().map(|claim| claim.pods.len()).sum();
        assert_eq!(found.launches.iter().map(held).collect::<Vec<usize>>(), expected, "{counts:?}");
    };
    check(&[PODS_PER_LAUNCH - 1, 1, 1], &[PODS_PER_LAUNCH, 1]);
    check(&[1, PODS_PER_LAUNCH, PODS_PER_LAUNCH - 1], &[PODS_PER_LAUNCH, PODS_PER_LAUNCH]);
}

#[test]
fn claims_whose_nodes_differ_in_anything_share_no_launch() {
    let check = |what: &str, change: fn(&mut PlannedClaim)| {
        let mut claims = [planned("default-a", &SMALL), planned("default-b", &SMALL)];
        assert_eq!(groups(&claims).len(), 1);
        change(&mut claims[1]);
        assert_eq!(groups(&claims).len(), 2, "{what}");
    };
    check("pool", |claim| claim.pool = NodePoolName::parse("other").unwrap());
    check("class", |claim| claim.class = NodeClassName::parse("other").unwrap());
    check("requirements", |claim| claim.requirements.add(Requirement::exists("team")));
    check("labels", |claim| claim.labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]));
    check("taints", |claim| claim.taints = vec![Taint::new("dedicated", TaintEffect::NoSchedule)]);
    check("start-up taints", |claim| claim.startup_taints = vec![Taint::new("cni", TaintEffect::NoExecute)]);
    check("EFA", |claim| {
        claim.requests = ResourceList::new().with(ResourceName::EFA, Quantity::from_integer(1))
    });
    check("offerings", |claim| claim.offerings.iter_mut().for_each(|one| one.price = None));
}

/// The labels in the user data of the claim's launch.
fn registered_labels(claim: PlannedClaim) -> String {
    let found = built(&[claim]);
    let (_, template) = &found.launches[0].templates[0];
    let text = STANDARD.decode(template.data.user_data.as_deref().unwrap()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (_, flag) = text.split_once("--node-labels=").unwrap();
    flag.split('"').next().unwrap().to_owned()
}

#[test]
fn a_kubelet_registers_with_the_labels_of_its_claim_its_pool_and_how_it_is_paid() {
    let own = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    assert_eq!(
        registered_labels(PlannedClaim { labels: own, ..planned("default-a", &SMALL) }),
        "karpenter.k8s.aws/ec2nodeclass=default,karpenter.sh/capacity-type=on-demand,\
         karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default,team=a"
    );
    let mut reserved = planned("default-a", &["m5.large a reserved 0"]);
    for offering in reserved.offerings.iter_mut() {
        let id = "cr-1".parse().unwrap();
        offering.reservation = Some(OfferedReservation { kind: ReservationKind::Default, id, left: 1 });
    }
    assert_eq!(
        registered_labels(reserved),
        "karpenter.k8s.aws/capacity-reservation-id=cr-1,\
         karpenter.k8s.aws/capacity-reservation-interruptible=false,\
         karpenter.k8s.aws/capacity-reservation-type=default,karpenter.k8s.aws/ec2nodeclass=default,\
         karpenter.sh/capacity-type=reserved,karpenter.sh/do-not-sync-taints=true,karpenter.sh/nodepool=default"
    );
}

#[test]
fn pods_that_request_efa_have_a_template_for_each_number_of_interfaces() {
    let offerings = ["c5n.18xlarge a on-demand 3.9", "c6in.32xlarge a on-demand 7.3"];
    let interfaces = |requests: ResourceList| -> Vec<usize> {
        let claim = PlannedClaim { requests, ..planned("default-a", &offerings) };
        let found = with_input(efa_types(), |input| build(input, &[claim], &LaunchCause::PendingPods));
        let templates = found.launches[0].templates.iter();
        let mut found: Vec<usize> =
            templates.map(|(_, template)| template.data.network_interfaces.len()).collect();
        found.sort_unstable();
        found
    };
    // The types differ in pods too.
    assert_eq!(interfaces(ResourceList::new()), [0, 0]);
    assert_eq!(interfaces(ResourceList::new().with(ResourceName::EFA, Quantity::from_integer(1))), [1, 2]);
}

#[test]
fn a_launch_names_its_classs_placement_group_and_a_required_partition() {
    let check = |partition: Option<&str>, expected: Option<u32>, labels: &str| {
        let name = NodeClassName::parse("default").unwrap();
        let found = with_input(types(), |input| {
            let mut ready = input.classes[&name].clone();
            ready.status.placement_group = Some(ResolvedPlacementGroup {
                id: "pg-1".parse().unwrap(),
                name: "apart".to_owned(),
                strategy: PlacementStrategy::Partition,
                partitions: Some(3),
            });
            let classes = BTreeMap::from([(name.clone(), ready)]);
            let input = LaunchInput { classes: &classes, ..input.clone() };
            let mut claim = planned("default-a", &SMALL);
            if let Some(number) = partition {
                claim.requirements.add(Requirement::one_of(labels::PLACEMENT_GROUP_PARTITION, [number]));
            }
            build(&input, &[claim], &LaunchCause::PendingPods)
        });
        let placed = LaunchPlacement { group: "pg-1".parse().unwrap(), partition: expected };
        let launch = &found.launches[0];
        assert_eq!(launch.launch.placement, Some(placed.clone()));
        let (_, template) = &launch.templates[0];
        assert_eq!(template.data.placement, Some(placed));
        let text = STANDARD.decode(template.data.user_data.as_deref().unwrap()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(labels), "{text}");
    };
    check(None, None, "karpenter.k8s.aws/placement-group-id=pg-1,karpenter.sh/");
    let both = "karpenter.k8s.aws/placement-group-id=pg-1,karpenter.k8s.aws/placement-group-partition=2";
    check(Some("2"), Some(2), both);
}

#[test]
fn a_claim_that_requires_dedicated_hardware_is_launched_on_it() {
    let check = |allowed: &[&str], expected: Tenancy| {
        let mut claim = planned("default-a", &SMALL);
        claim.requirements.add(Requirement::one_of(labels::INSTANCE_TENANCY, allowed.iter().copied()));
        let found = built(&[claim]);
        let launch = &found.launches[0];
        assert_eq!(launch.claims[0].tenancy, expected, "{allowed:?}");
        let (_, template) = &launch.templates[0];
        assert_eq!(template.data.tenancy, expected, "{allowed:?}");
    };
    check(&["dedicated"], Tenancy::Dedicated);
    check(&["default", "dedicated"], Tenancy::Default);
}

#[test]
fn a_claim_keeps_the_labels_that_its_plan_chose() {
    let team = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let mut chosen = team.clone();
    chosen.insert(labels::NODEPOOL.to_owned(), "default".to_owned());
    let found = built(&[PlannedClaim { labels: chosen, ..planned("default-a", &SMALL) }]);
    assert_eq!(found.launches[0].claims[0].labels, team);
}

#[test]
fn a_record_counts_the_claims_pods_and_names_ten_of_them() {
    let check = |count: usize, counted: &str, more: &str| {
        let found = built(&[PlannedClaim { pods: pods(count), ..planned("default-a", &SMALL) }]);
        let record = &found.launches[0].records[0];
        let message =
            format!("planned NodeClaim `default-a` for {counted}: 1 instance type, on-demand first");
        assert_eq!(record.message, message);
        let named: Vec<String> = (0..count.min(10)).map(|n| format!("default/web-{n:02}")).collect();
        assert_eq!(record.details["pods"], format!("{}{more}", named.join(", ")));
    };
    check(1, "1 pending pod", "");
    check(2, "2 pending pods", "");
    check(10, "10 pending pods", "");
    check(11, "11 pending pods", ", and 1 more");
    check(12, "12 pending pods", ", and 2 more");
}

#[test]
fn a_record_tells_pods_that_leave_a_node_from_those_that_wait() {
    let check = |leaves: &[Option<&str>], counted: &str| {
        let pods = pods(leaves.len());
        let of =
            |(pod, node): (&CountedPod, &Option<&str>)| Some((pod.uid.clone(), (*node)?.parse().unwrap()));
        let displaced = pods.iter().zip(leaves).filter_map(of).collect();
        let found = with_input(types(), |input| {
            let input = LaunchInput { displaced: Some(&displaced), ..input.clone() };
            let claim = PlannedClaim { pods: pods.clone(), ..planned("default-a", &SMALL) };
            build(&input, &[claim], &LaunchCause::PendingPods)
        });
        let message =
            format!("planned NodeClaim `default-a` for {counted}: 1 instance type, on-demand first");
        assert_eq!(found.launches[0].records[0].message, message);
    };
    check(&[Some("a")], "1 pod that leaves Node `a`");
    check(&[Some("a"), Some("b"), Some("a")], "3 pods that leave Nodes `a`, `b`");
    check(&[None, Some("a"), Some("a")], "1 pending pod and 2 pods that leave Node `a`");
}

#[test]
fn a_record_names_types_without_a_price_and_what_is_asked_for_again_where_there_are_any() {
    let check = |offering: &str, expected: [Option<&str>; 2]| {
        let marks = Marks::from_iter([mark("offering#on-demand#use1-az-a#m5.large")]);
        let found = with_input(types(), |input| {
            let input = LaunchInput { marks: &marks, ..input.clone() };
            build(&input, &[planned("default-a", &[offering])], &LaunchCause::PendingPods)
        });
        let details = &found.launches[0].records[0].details;
        let told = ["unpriced", "asks_again_for"].map(|name| details.get(name).map(String::as_str));
        assert_eq!(told, expected, "{offering}");
    };
    check("m5.large b on-demand 0.1", [None, None]);
    check("m5.large b on-demand -", [Some("m5.large"), None]);
    check("m5.large a on-demand 0.1 again", [None, Some("offering#on-demand#use1-az-a#m5.large")]);
}

#[test]
fn no_launch_names_a_template_that_is_being_deleted() {
    let name = |leaving: &[&str]| {
        with_input(types(), |input| {
            let leaving = leaving.iter().map(|name| (*name).to_owned()).collect();
            let input = LaunchInput { leaving: &leaving, ..input.clone() };
            let launch =
                build(&input, &[planned("default-a", &SMALL)], &LaunchCause::PendingPods).launches.remove(0);
            let request = CreateFleetRequest::from_stored(&launch.launch.request).unwrap();
            let named: Vec<&str> =
                request.launch_templates.iter().map(|template| template.name.as_str()).collect();
            let made: Vec<&str> = launch.templates.iter().map(|(_, made)| made.name.as_str()).collect();
            assert_eq!(named, made);
            named[0].to_owned()
        })
    };
    let first = name(&[]);
    let second = format!("{first}-2");
    assert_eq!(name(&["another"]), first);
    assert_eq!(name(&[&first]), second);
    assert_eq!(name(&[&first, &second]), format!("{first}-3"));
    // The first name is free again while the template of the second one is there.
    assert_eq!(name(&[&second]), first);
}

#[test]
fn a_template_that_is_there_is_not_written_again_and_records_are_numbered() {
    let claims = ["default-a", "default-b"].map(|name| planned(name, &SMALL));
    with_input(types(), |input| {
        let launch = build(input, &claims, &LaunchCause::PendingPods).launches.remove(0);
        let name = &launch.templates[0].1.name;
        let written = |known: &str| -> Vec<String> {
            let mut change = Change::of(&input.registry.cluster);
            write_launch(input, &launch, 7, |name| name == known, &mut change);
            let writes = change.group().writes;
            writes.iter().map(|write| write.key().to_string()).collect()
        };
        let template = keys::template(&input.registry.cluster, name).to_string();
        assert!(written("another").contains(&template));
        assert!(!written(name).contains(&template));
        let records = written(name).into_iter().filter(|key| key.starts_with("JOURNAL#prod#claim#"));
        let places: Vec<String> = records.map(|key| key.split_once('/').unwrap().1.to_owned()).collect();
        let place = |n: usize| format!("1970-01-01T00:00:00.000Z#00000007#{n}#REVISION");
        assert_eq!(places, [place(0), place(1)]);
    });
}
