//! The words of refusals: the cause that stands in the way, and a remedy that helps.

use std::sync::Arc;

use crate::support::*;
use tenon_domain::api::pod::{NodeSelectorTerm, PodShape, PodVolume};
use tenon_domain::api::storage::{ClaimUsers, PersistentVolume, PersistentVolumeClaim};
use tenon_domain::catalog::{Availability, Incompatibility, Unavailability};
use tenon_domain::labels;
use tenon_domain::requirement::{NodeSelectorRequirement, Operator, Requirement, Requirements};
use tenon_domain::resources::ResourceName;
use tenon_planning::provision::{NodeKind, PoolInput, ProvisionInput, plan};

/// The message of the last pod without a place.
fn told(input: &ProvisionInput) -> String {
    let (_, report) = plan(input);
    report.unschedulable.last().unwrap().message()
}

fn check_message(shape: PodShape, pool: PoolInput, expected: &str) {
    assert_eq!(told(&input(pods("web", 1, shape), vec![pool])), format!("NodePool `default`: {expected}"));
}

#[test]
fn what_the_class_takes_from_pods_is_told_with_the_field_that_helps() {
    let mut less = FakeType::new("m.large", 2, 8, 29).option();
    less.promised_storage = Some("100Gi".parse().unwrap());
    check_message(
        shape(&[("ephemeral-storage", "50Gi")]),
        pool("default", vec![less]),
        "no instance type is large enough: `50Gi` of `ephemeral-storage` is requested, `20Gi` is available at most: nodes of \
         the EC2NodeClass joined with `20Gi` instead of `100Gi`: correct its `blockDeviceMappings`, `instanceStorePolicy` or \
         `userData` to what its image mounts, or request less",
    );
    let mut reserved = FakeType::new("m.large", 2, 8, 29).option();
    reserved.allocatable.insert(ResourceName::MEMORY, "0".parse().unwrap());
    check_message(
        shape(&[("memory", "1Gi")]),
        pool("default", vec![reserved]),
        "`spec.kubelet` of the EC2NodeClass leaves pods no `memory` on any instance type, `1Gi` is requested: correct it, or \
         allow larger types",
    );
    check_message(
        shape(&[("cpu", "1")]),
        pool("default", Vec::new()),
        "no instance type matches the architectures of the EC2NodeClass's images: select an image of another one by \
         `amiSelectorTerms`",
    );
}

#[test]
fn what_is_short_is_told_with_what_daemon_sets_take_and_with_a_remedy_that_helps() {
    let large = || pool("default", vec![FakeType::new("m.large", 2, 8, 29).option()]);
    let check = |asked: (&str, &str), daemon: Option<&str>, expected: &str| {
        let mut world = input(pods("web", 1, shape(&[asked])), vec![large()]);
        world.daemon_sets =
            daemon.into_iter().map(|cpu| daemon_set("agent", shape(&[("cpu", cpu)]))).collect();
        assert_eq!(told(&world), format!("NodePool `default`: no instance type is large enough: {expected}"));
    };
    check(
        ("cpu", "2"),
        None,
        "`2` of `cpu` is requested, `1900m` is available at most: request less, or allow larger types",
    );
    check(
        ("cpu", "1500m"),
        Some("500m"),
        "`1500m` of `cpu` is requested, `1900m` less `500m` of DaemonSet `default/agent` is available at most: request \
         less, or allow larger types",
    );
    check(
        ("cpu", "1"),
        Some("4"),
        "`1` of `cpu` is requested, `1900m` less `4` of DaemonSet `default/agent` is available at most: lower the requests \
         of DaemonSets, or allow larger types",
    );
    check(
        ("ephemeral-storage", "100Gi"),
        None,
        "`100Gi` of `ephemeral-storage` is requested, `20Gi` is available at most: request less, or give nodes more by \
         `blockDeviceMappings` or `instanceStorePolicy: RAID0` of the EC2NodeClass",
    );
    check(
        ("cpu", "1e30"),
        None,
        "`9223372036854775807` of `cpu` is requested, `1900m` is available at most: request less, or allow larger types",
    );
}

#[test]
fn a_daemon_set_that_asks_for_what_no_node_has_is_named() {
    let large = pool("default", vec![FakeType::new("m.large", 2, 8, 29).option()]);
    let mut world = input(pods("web", 1, shape(&[("cpu", "1")])), vec![large]);
    world.daemon_sets = vec![daemon_set("gpus", shape(&[("nvidia.com/gpu", "1")]))];
    assert_eq!(
        told(&world),
        "NodePool `default`: no instance type offers pods any `nvidia.com/gpu`, and `1` of it is for DaemonSet \
         `default/gpus`: let it select nodes that have it, or allow instance types that do"
    );
}

#[test]
fn the_requirement_that_alone_excludes_every_type_is_named_with_what_types_have() {
    let check = |key: &str, value: &str, expected: &str| {
        let expected = format!("no instance type matches `{key} In [{value}]`{expected}");
        check_message(selecting(shape(&[("cpu", "1")]), key, value), default_pool(), &expected);
    };
    check(
        labels::ZONE,
        "test-zone-9",
        ": nodes of the EC2NodeClass can be in `test-zone-1`, `test-zone-2`, `test-zone-3`: allow them, or give the \
         EC2NodeClass a subnet in the zone",
    );
    check(labels::INSTANCE_TYPE, "smal.instance-type", " (did you mean `small.instance-type`?): correct it");
    check(
        labels::ARCH,
        "x86_64",
        ": nodes of the EC2NodeClass have `amd64`, `arm64`: correct it, or select an image of it by `amiSelectorTerms` of \
         the EC2NodeClass",
    );
    check(
        labels::CAPACITY_TYPE,
        "reserved",
        ": nodes of the EC2NodeClass have `on-demand`, `spot`: allow others, or let the class have reservations: \
         `ReservedCapacity` of the cluster's stack must be `Enabled`, and `capacityReservationSelectorTerms` of the \
         EC2NodeClass must select some that are neither capacity blocks nor interruptible",
    );
    check(
        labels::CAPACITY_TYPE,
        "ondemand",
        " (did you mean `on-demand`?): nodes of the EC2NodeClass have `on-demand`, `spot`: correct it",
    );
    check(
        labels::OS,
        "windows",
        ": nodes of the EC2NodeClass have `linux`: correct it, or choose another AMI family in the EC2NodeClass",
    );
    check(labels::INSTANCE_GPU_NAME, "t4", ": no instance type has this label: remove the requirement");
    // The pool leaves fewer types than the class.
    let mut amd = default_pool();
    amd.pool.template.requirements = [Requirement::one_of(labels::ARCH, ["amd64"])].into_iter().collect();
    check_message(
        selecting(shape(&[("cpu", "1")]), labels::INSTANCE_CPU, "16"),
        amd,
        "no instance type matches `karpenter.k8s.aws/instance-cpu In [16]`: nodes of the NodePool have `2`, `4`: correct \
         it",
    );
}

#[test]
fn requirements_that_exclude_each_other_are_named() {
    let mut both = selecting(shape(&[("cpu", "1")]), labels::CAPACITY_TYPE, "spot");
    both.required_node_affinity = vec![NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(labels::CAPACITY_TYPE, ["on-demand"])],
        match_fields: Vec::new(),
    }];
    check_message(
        both,
        default_pool(),
        "no instance type matches `karpenter.sh/capacity-type In [spot]` and `karpenter.sh/capacity-type In [on-demand]` \
         together: widen one of them",
    );
    let bound = |operator, value: &str| NodeSelectorRequirement {
        key: labels::INSTANCE_CPU.to_owned(),
        operator,
        values: vec![value.to_owned()],
        min_values: None,
    };
    let mut narrow = default_pool();
    narrow.pool.template.requirements =
        Requirements::parse(&[bound(Operator::Gt, "2"), bound(Operator::Lt, "3")]).unwrap();
    check_message(
        shape(&[("cpu", "1")]),
        narrow,
        "no instance type matches the NodePool's requirements of `karpenter.k8s.aws/instance-cpu`, which allow no value \
         together: widen one of them",
    );
}

#[test]
fn terms_that_match_no_new_node_are_told() {
    let with =
        |term: NodeSelectorTerm| PodShape { required_node_affinity: vec![term], ..shape(&[("cpu", "1")]) };
    check_message(
        with(NodeSelectorTerm { match_expressions: Vec::new(), match_fields: Vec::new() }),
        default_pool(),
        "no node can match a term of the pod's required node affinity: each is empty, or contradicts itself or \
         `nodeSelector`: correct one, or remove the affinity",
    );
    // No value in common is no wish for nodes without the label.
    let mut contradicting = with(NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of("rack", ["r1"])],
        match_fields: Vec::new(),
    });
    contradicting.node_selector.insert("rack".to_owned(), "r0".to_owned());
    check_message(
        contradicting,
        default_pool(),
        "no node can match a term of the pod's required node affinity: each is empty, or contradicts itself or \
         `nodeSelector`: correct one, or remove the affinity",
    );
    let named = Requirement::one_of("metadata.name", ["ip-1"]);
    check_message(
        with(NodeSelectorTerm { match_expressions: Vec::new(), match_fields: vec![named] }),
        default_pool(),
        "incompatible requirements: the pod requires `metadata.name In [ip-1]`, nodes have `metadata.name NotIn [ip-1]`: a \
         new node has a name of its own: let the pod select nodes by other labels, or make room on those that it names",
    );
}

#[test]
fn a_node_that_pods_must_share_is_told_to_be_full() {
    let mut web = app("web", "900m");
    web.required_pod_affinity = vec![term(labels::HOSTNAME, "web")];
    let large = pool("default", vec![FakeType::new("m.large", 2, 8, 29).option()]);
    assert_eq!(
        told(&input(pods("web", 5, web), vec![large])),
        "its affinity keeps the pod on the node of its peers, which is full: allow larger instance types, request less, \
         or relax the rule"
    );
    let mut cache = app("cache", "1");
    cache.required_pod_affinity = vec![term(labels::HOSTNAME, "web")];
    let mut full = node("full", NodeKind::Initialized, &[("cpu", "1"), ("memory", "1Gi"), ("pods", "20")]);
    full.occupancy.add(&Arc::new(app("web", "1")));
    let mut world = input(pods("cache", 1, cache), vec![default_pool()]);
    world.nodes.push(full);
    assert_eq!(
        told(&world),
        "its affinity leaves no node for the pod: no node has room and runs the pods that it follows: make room beside \
         them, or relax the rule"
    );
}

#[test]
fn another_value_of_a_label_is_no_help_where_nothing_matches_an_affinity() {
    for key in [labels::HOSTNAME, labels::ZONE] {
        let mut cache = app("cache", "1");
        cache.required_pod_affinity = vec![term(key, "web")];
        assert_eq!(
            told(&input(pods("cache", 1, cache), vec![default_pool()])),
            "its affinity leaves no place for the pod: no running or planned pod matches it: create such a pod, or correct \
             the affinity's `labelSelector` or `namespaces`"
        );
    }
}

#[test]
fn a_label_that_nothing_has_is_named() {
    let mut web = app("web", "1");
    web.topology_spread = vec![spread("rack", "web", 1)];
    assert_eq!(
        told(&input(pods("web", 1, web), vec![default_pool()])),
        "its topology spread with `maxSkew` 1 needs the label `rack`, and no Node or NodePool has it: add it to one, or relax \
         the rule"
    );
}

#[test]
fn excluded_zones_are_named_with_the_cause() {
    let foreign = || {
        let mut one = node("foreign", NodeKind::Initialized, &[("cpu", "100m"), ("pods", "20")]);
        one.labels.insert(labels::ZONE.to_owned(), "test-zone-4".to_owned());
        one
    };
    let mut web = app("web", "1");
    web.topology_spread = vec![spread(labels::ZONE, "web", 1)];
    let mut world = input(pods("web", 4, web), vec![default_pool()]);
    world.nodes.push(foreign());
    assert_eq!(
        told(&world),
        "its topology spread with `maxSkew` 1 leaves no value of `topology.kubernetes.io/zone` for the pod: `test-zone-1`, \
         `test-zone-2`, `test-zone-3` (1 pod more than the least), `test-zone-4` (no NodePool offers it, and its Nodes don't \
         take the pod): let a NodePool offer `test-zone-4`, or raise `maxSkew`"
    );
    // Both rules are against the pod.
    let mut cache = app("cache", "1");
    cache.required_pod_affinity = vec![term(labels::ZONE, "db")];
    cache.topology_spread = vec![spread(labels::ZONE, "cache", 1)];
    let mut world = input(pods("cache", 2, cache), vec![default_pool()]);
    let mut beside =
        node("beside", NodeKind::Initialized, &[("cpu", "1"), ("memory", "1Gi"), ("pods", "20")]);
    beside.labels.insert(labels::ZONE.to_owned(), "test-zone-1".to_owned());
    beside.occupancy.add(&Arc::new(app("db", "1")));
    world.nodes.push(beside);
    assert_eq!(
        told(&world),
        "its affinity and its topology spread with `maxSkew` 1 leave no value of `topology.kubernetes.io/zone` for the pod: \
         `test-zone-1` (1 pod more than the least), `test-zone-2`, `test-zone-3` (none of the pods that it follows): raise \
         `maxSkew`, let the pods that it follows run elsewhere, too, or relax the rule"
    );
}

#[test]
fn a_class_that_no_offered_type_suits_is_named() {
    let mut types = six();
    for offering in types.iter_mut().flat_map(|one| &mut one.offerings) {
        let why = Unavailability::Incompatible(Incompatibility::ImageNotBootable);
        offering.availability = Availability::Unavailable(why);
    }
    check_message(
        shape(&[("cpu", "1")]),
        pool("default", types),
        "no matching instance type suits the EC2NodeClass: AMI family `AL2023` doesn't boot on `a1`: change the class, or \
         allow other instance types",
    );
}

#[test]
fn values_that_are_too_few_are_counted() {
    let check = |key: &str, least: u32, expected: &str| {
        let mut one = default_pool();
        one.pool.template.requirements.add(Requirement::exists(key).with_min_values(Some(least)));
        let expected = format!(
            "`minValues` of `{key}` is {least}, but only {expected} available: lower it, or allow more"
        );
        check_message(shape(&[("cpu", "1")]), one, &expected);
    };
    check(labels::ZONE, 4, "3 values are");
    check(labels::OS, 2, "1 value is");
}

#[test]
fn volumes_that_can_not_be_used_are_named() {
    let bound = |name: &str| PersistentVolumeClaim {
        meta: meta(name, "default"),
        storage_class: Some("ebs".to_owned()),
        volume: Some(format!("pv-{name}")),
        phase: "Bound".to_owned(),
        users: ClaimUsers::Many,
    };
    let in_zone = |name: &str, zone: &str| PersistentVolume {
        meta: meta(&format!("pv-{name}"), ""),
        node_affinity: vec![NodeSelectorTerm {
            match_expressions: vec![Requirement::one_of(labels::ZONE, [zone])],
            match_fields: Vec::new(),
        }],
        driver: None,
    };
    let static_one =
        PersistentVolumeClaim { storage_class: Some(String::new()), volume: None, ..bound("static") };
    let check = |volumes: Vec<PodVolume>, expected: &str| {
        let shape = PodShape { volumes, ..shape(&[("cpu", "1")]) };
        let mut world = input(pods("web", 1, shape), vec![default_pool()]);
        world.storage.claims = vec![bound("a"), bound("b"), static_one.clone()];
        world.storage.volumes = vec![in_zone("a", "test-zone-1"), in_zone("b", "test-zone-2")];
        assert_eq!(told(&world), expected);
    };
    let template = |class: Option<&str>| {
        vec![PodVolume::Ephemeral { volume: "data".to_owned(), storage_class: class.map(str::to_owned) }]
    };
    let claim = |name: &str| PodVolume::Claim(name.to_owned());
    check(
        template(None),
        "the claim template of volume `data`: it isn't bound and names no StorageClass; name one",
    );
    check(
        template(Some("gone")),
        "the claim template of volume `data`: its StorageClass `gone` doesn't exist; create it",
    );
    check(
        vec![claim("static")],
        "PersistentVolumeClaim `static`: it isn't bound, and its empty `storageClassName` rules out a new \
         PersistentVolume; bind an existing one to it, or name a StorageClass",
    );
    check(
        vec![claim("a"), claim("b")],
        "PersistentVolumeClaim `b`: it asks for `topology.kubernetes.io/zone In [test-zone-2]`, PersistentVolumeClaim `a` \
         for `topology.kubernetes.io/zone In [test-zone-1]`, and no node has both; use volumes of one zone",
    );
}
