//! How many volumes nodes attach, and which volumes count: the peer's cases, and Kubernetes' own rules.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::claims_checker::claim_faults;
use crate::support::*;
use tenon_domain::api::Pod;
use tenon_domain::api::pod::{NodeSelectorTerm, PodShape, PodVolume};
use tenon_domain::api::storage::{
    ClaimUsers, PersistentVolume, PersistentVolumeClaim, StorageClass, VolumeAttachment, VolumeBinding,
};
use tenon_domain::id::CommandId;
use tenon_domain::labels;
use tenon_domain::requirement::Requirement;
use tenon_planning::provision::{
    ExistingNode, NodeKind, PlanTrials, PoolInput, ProvisionInput, Purpose, Reason, explain, plan,
};

const EBS: &str = "ebs.csi.aws.com";

fn class(name: &str, provisioner: &str, binding: VolumeBinding) -> StorageClass {
    StorageClass {
        meta: meta(name, ""),
        provisioner: provisioner.to_owned(),
        binding,
        allowed_topologies: Vec::new(),
    }
}

fn claim(name: &str, class: &str) -> PersistentVolumeClaim {
    PersistentVolumeClaim {
        meta: meta(name, "default"),
        storage_class: Some(class.to_owned()),
        volume: None,
        phase: "Pending".to_owned(),
        users: ClaimUsers::Many,
    }
}

fn bound(name: &str, volume: &str) -> PersistentVolumeClaim {
    PersistentVolumeClaim { volume: Some(volume.to_owned()), phase: "Bound".to_owned(), ..claim(name, "ebs") }
}

fn volume(name: &str, driver: Option<&str>) -> PersistentVolume {
    PersistentVolume { meta: meta(name, ""), node_affinity: Vec::new(), driver: driver.map(str::to_owned) }
}

/// A tiny pod with these claims.
fn using(name: &str, claims: &[&str]) -> Pod {
    let volumes = claims.iter().map(|claim| PodVolume::Claim((*claim).to_owned())).collect();
    pod(name, &Arc::new(PodShape { volumes, ..shape(&[("cpu", "10m")]) }))
}

/// One large type whose nodes attach so many EBS volumes.
fn attaching(most: u32) -> PoolInput {
    let mut option = FakeType::new("large.instance-type", 16, 64, 110).option();
    option.ebs_volumes = Some(most);
    pool("default", vec![option])
}

/// A world with the class `ebs` and a claim for each name that a pod uses.
fn world(pods: Vec<Pod>, pool: PoolInput) -> ProvisionInput {
    let mut world = input(pods, vec![pool]);
    world.storage.classes.push(class("ebs", EBS, VolumeBinding::WaitForFirstConsumer));
    let mut names: Vec<String> = Vec::new();
    for volume in world.pods.iter().flat_map(|pod| &pod.shape.volumes) {
        if let PodVolume::Claim(name) = volume {
            names.push(name.clone());
        }
    }
    names.sort();
    names.dedup();
    world.storage.claims = names.iter().map(|name| claim(name, "ebs")).collect();
    world
}

/// A node of the large type with much room.
fn there(name: &str, kind: NodeKind) -> ExistingNode {
    let mut node = node(name, kind, &[("cpu", "16"), ("memory", "64Gi"), ("pods", "110")]);
    node.labels.insert(labels::INSTANCE_TYPE.to_owned(), "large.instance-type".to_owned());
    node
}

fn many(count: usize, claims: impl Fn(usize) -> Vec<String>) -> Vec<Pod> {
    let named = |index| {
        let names = claims(index);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        using(&format!("db-{index:03}"), &names)
    };
    (0..count).map(named).collect()
}

fn own_claim(index: usize) -> Vec<String> {
    vec![format!("data-{index}")]
}

#[test]
fn c101_a_limit_on_volumes_forces_another_node() {
    let (plan, report) = claims(&world(many(25, own_claim), attaching(10)), 3);
    assert_eq!(report.unschedulable, []);
    assert!(plan.claims.iter().all(|claim| claim.pods.len() <= 10), "{plan:#?}");
    // Two volumes a pod are twice as many.
    let two = |index| vec![format!("data-{index}"), format!("log-{index}")];
    claims(&world(many(25, two), attaching(10)), 5);
    // Without a limit only the pods' room counts.
    let mut pool = attaching(10);
    Arc::make_mut(&mut pool.types)[0].ebs_volumes = None;
    claims(&world(many(25, own_claim), pool), 1);
}

#[test]
fn c101_a_volume_that_pods_share_counts_once_a_node() {
    let same = |_| vec!["shared".to_owned()];
    let (plan, _) = claims(&world(many(100, same), attaching(1)), 1);
    assert_eq!(plan.claims[0].pods.len(), 100);
    // One shared volume and one of each pod's own: nine pods a node.
    let both = |index| vec!["shared".to_owned(), format!("data-{index}")];
    let (plan, report) = claims(&world(many(20, both), attaching(10)), 3);
    assert_eq!(report.unschedulable, []);
    assert!(plan.claims.iter().all(|claim| claim.pods.len() <= 9), "{plan:#?}");
    // Pairs share one: they are together, or each pair takes an attachment twice.
    let pairs = |index: usize| vec![format!("pair-{}", index / 2)];
    claims(&world(many(20, pairs), attaching(10)), 1);
    // A claim that a pod names twice is one volume.
    let twice = |_| vec!["data-0".to_owned(), "data-0".to_owned()];
    claims(&world(many(1, twice), attaching(1)), 1);
}

#[test]
fn c101_a_node_that_is_there_attaches_what_its_csi_node_says() {
    let mut one = world(many(4, own_claim), attaching(10));
    one.nodes = vec![there("node-a", NodeKind::Initialized)];
    one.storage.nodes = vec![csi_node("node-a", 3)];
    let (plan, _) = claims(&one, 1);
    assert_eq!((plan.placements.len(), plan.claims[0].pods.len()), (3, 1));
    // Its pods' volumes count, but not again for a pod that uses the same one.
    let resident = using("resident", &["data-0", "data-9"]);
    one.storage.claims.push(claim("data-9", "ebs"));
    one.nodes[0].occupancy.add(&resident.shape);
    let (plan, _) = claims(&one, 1);
    assert_eq!(plan.placements.len(), 2, "data-0 is there, and one more fits");
    assert!(plan.placements.iter().any(|one| one.pod.name.name == "db-000"));
    // A node with more than its limit takes no volume more, but other pods.
    one.storage.nodes = vec![csi_node("node-a", 1)];
    one.pods.push(pod("plain", &Arc::new(shape(&[("cpu", "10m")]))));
    // And so do new nodes of its type, one volume each.
    let (plan, _) = claims(&one, 3);
    let placed: Vec<&str> = plan.placements.iter().map(|one| one.pod.name.name.as_str()).collect();
    assert_eq!(placed, ["db-000", "plain"]);
}

#[test]
fn a_node_that_a_taken_plan_fills_with_volumes_takes_no_more() {
    let mut world = world(many(4, own_claim), attaching(10));
    world.nodes = vec![there("node-a", NodeKind::Initialized)];
    world.storage.nodes = vec![csi_node("node-a", 3)];
    let moving = Purpose::Replacement(CommandId::parse("command-1").unwrap());
    let mut trials = PlanTrials::new(&world, |_| true, &world.pods);
    let none = BTreeSet::new();
    let [one, other] = [&world.pods[..2], &world.pods[2..]];
    let first = trials.plan(&moving, &none, one).0;
    trials.take(&none, &first, one);
    let second = trials.plan(&moving, &none, other).0;
    assert_eq!((first.placements.len(), second.placements.len(), second.claims.len()), (2, 1, 1));
}

#[test]
fn a_volume_that_is_still_attached_counts_for_its_node() {
    let mut one = world(many(2, own_claim), attaching(10));
    one.nodes = vec![there("node-a", NodeKind::Initialized)];
    one.storage.nodes = vec![csi_node("node-a", 1)];
    one.storage.claims[1] = bound("data-1", "pv-1");
    one.storage.volumes = vec![volume("pv-1", Some(EBS))];
    let attachment = |volume: &str| VolumeAttachment {
        meta: meta(volume, ""),
        driver: EBS.to_owned(),
        node: "node-a".to_owned(),
        volume: Some(volume.to_owned()),
    };
    // The pod of the attached volume comes back to it.
    one.storage.attachments = vec![attachment("pv-1")];
    let (plan, _) = claims(&one, 1);
    assert_eq!(plan.placements[0].pod.name.name, "db-001");
    // One whose pod is gone for good keeps the room until it is detached.
    one.storage.attachments = vec![attachment("pv-7")];
    let (plan, _) = claims(&one, 2);
    assert_eq!(plan.placements, []);
    // The volumes of pods of their own are among those that are attached, and count once.
    let scratch = PodVolume::Ephemeral { volume: "x".to_owned(), storage_class: Some("ebs".to_owned()) };
    let resident = PodShape { volumes: vec![scratch], ..shape(&[("cpu", "10m")]) };
    one.nodes[0].occupancy.add(&Arc::new(resident));
    one.storage.nodes = vec![csi_node("node-a", 2)];
    let (plan, _) = claims(&one, 1);
    assert_eq!(plan.placements.len(), 1);
}

#[test]
fn a_node_without_a_csi_node_yet_attaches_as_many_as_its_type() {
    let placed = |kind: NodeKind, change: &dyn Fn(&mut ProvisionInput)| {
        let mut one = world(many(8, own_claim), attaching(5));
        one.nodes = vec![there("node-a", kind)];
        change(&mut one);
        plan(&one).0.placements.len()
    };
    assert_eq!(placed(NodeKind::Starting, &|_| {}), 5);
    assert_eq!(placed(NodeKind::InFlight, &|_| {}), 5);
    // kube-scheduler counts nothing where the driver hasn't said anything.
    assert_eq!(placed(NodeKind::Initialized, &|_| {}), 8);
    assert_eq!(placed(NodeKind::Starting, &|one| one.storage.nodes = vec![csi_node("node-a", 7)]), 7);
}

#[test]
fn new_nodes_attach_as_many_as_nodes_of_the_type_report() {
    let mut one = world(many(12, own_claim), attaching(10));
    one.nodes = vec![there("node-a", NodeKind::Initialized), there("node-b", NodeKind::Initialized)];
    one.storage.nodes = vec![csi_node("node-a", 3), csi_node("node-b", 4)];
    // 7 have room, and 5 need two nodes of 3.
    let (plan, _) = claims(&one, 2);
    assert_eq!(plan.placements.len(), 7);
    // That is how limits of drivers are known of which EC2 says nothing.
    let driver = "other.csi.example.com";
    one.storage.classes = vec![class("ebs", driver, VolumeBinding::WaitForFirstConsumer)];
    for node in &mut one.storage.nodes {
        node.drivers = BTreeMap::from([(driver.to_owned(), Some(3))]);
    }
    let (plan, _) = claims(&one, 2);
    assert_eq!(plan.placements.len(), 6);
}

#[test]
fn a_pod_with_more_volumes_than_any_node_attaches_is_told_so() {
    let names: Vec<String> = (0..30).map(|index| format!("data-{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut one = world(vec![using("greedy", &names)], attaching(25));
    let report = check_reason(&one, "TooManyVolumes");
    assert_eq!(
        report.unschedulable[0].message(),
        "NodePool `default`: no instance type attaches 30 volumes of `ebs.csi.aws.com`, 25 at most: give the pod fewer \
         volumes, or allow instance types that attach more"
    );
    let explained = explain(&one, &one.pods[0]);
    assert_eq!(
        explained.pools[0].excluded[0].cause.to_string(),
        "only 25 volumes of `ebs.csi.aws.com` a node"
    );
    // Shared ones are volumes, too.
    one.pods.push(using("greedy-too", &names));
    let report = check_reason(&one, "TooManyVolumes");
    assert!(report.unschedulable[1].message().contains("attaches 30 volumes"), "{report:?}");
    // Another type that attaches more is used, though it is dearer.
    let mut wide = FakeType::new("wide.instance-type", 32, 128, 110).option();
    wide.ebs_volumes = Some(64);
    one.pools = vec![pool("default", vec![one.pools[0].types[0].clone(), wide])];
    let (plan, _) = claims(&one, 1);
    assert_eq!(plan.claims[0].instance_types.len(), 1);
}

#[test]
fn c101_volumes_without_a_limit_or_a_zone_are_passed_over() {
    let mut one = world(many(5, own_claim), attaching(1));
    // NFS has no driver; EFS has one that reports no limit.
    one.storage.volumes = (0..5).map(|n| volume(&format!("pv-{n}"), None)).collect();
    one.storage.claims = (0..5).map(|n| bound(&format!("data-{n}"), &format!("pv-{n}"))).collect();
    let (plan, _) = claims(&one, 1);
    assert_eq!(plan.claims[0].zones.len(), 3);
    one.storage.volumes = (0..5).map(|n| volume(&format!("pv-{n}"), Some("efs.csi.aws.com"))).collect();
    claims(&one, 1);
    // Volumes of EBS's plugin within Kubernetes are EBS volumes, by whoever they are served.
    one.storage.classes = vec![class("ebs", "kubernetes.io/aws-ebs", VolumeBinding::WaitForFirstConsumer)];
    one.storage.claims = (0..5).map(|n| claim(&format!("data-{n}"), "ebs")).collect();
    claims(&one, 5);
    // A volume that is made for each pod counts as well.
    let scratch = PodVolume::Ephemeral { volume: "x".to_owned(), storage_class: Some("ebs".to_owned()) };
    one.pods = pods("cache", 4, PodShape { volumes: vec![scratch], ..shape(&[("cpu", "10m")]) });
    claims(&one, 4);
}

/// The zones of the planned claims.
fn zones_of_sharing(world: &ProvisionInput, nodes: usize) -> BTreeSet<String> {
    let (plan, report) = claims(world, nodes);
    assert_eq!(report.unschedulable, []);
    assert_eq!(claim_faults(world, &plan), Vec::<String>::new());
    plan.claims.iter().flat_map(|claim| claim.zones.iter().map(ToString::to_string)).collect()
}

#[test]
fn pods_that_share_a_claim_that_isnt_bound_go_to_one_zone_and_to_one_node_that_holds_them() {
    let with = |name: &str, cpu: &str| {
        let volumes = vec![PodVolume::Claim("data".to_owned())];
        pod(name, &Arc::new(PodShape { volumes, ..shape(&[("cpu", cpu)]) }))
    };
    let small = world(vec![with("a", "1"), with("b", "2")], attaching(10));
    assert_eq!(zones_of_sharing(&small, 1).len(), 1);
    let large = world(vec![with("a", "9"), with("b", "10"), with("c", "9")], attaching(10));
    assert_eq!(zones_of_sharing(&large, 3).len(), 1);
    // One pod alone goes anywhere, and so do pods with a volume that is in no zone.
    assert_eq!(zones_of_sharing(&world(vec![with("a", "9")], attaching(10)), 1).len(), 3);
    let mut files = large.clone();
    files.storage.classes = vec![class("ebs", "efs.csi.aws.com", VolumeBinding::WaitForFirstConsumer)];
    assert_eq!(zones_of_sharing(&files, 3).len(), 3);
    // A bound one says itself where it is.
    let mut known = large;
    known.storage.claims = vec![bound("data", "pv-1")];
    known.storage.volumes = vec![volume("pv-1", Some(EBS))];
    assert_eq!(zones_of_sharing(&known, 3).len(), 3);
}

#[test]
fn a_pod_follows_the_claim_that_isnt_bound_to_a_node_that_is_launching() {
    let using = |name: &str| using(name, &["data"]);
    let mut one = world(vec![using("late")], attaching(10));
    let mut other = there("first", NodeKind::InFlight);
    other.labels.insert(labels::ZONE.to_owned(), "test-zone-2".to_owned());
    other.allocatable = list(&[("cpu", "20m"), ("memory", "64Gi"), ("pods", "110")]);
    other.occupancy.add(&using("early").shape);
    one.nodes = vec![other];
    let (plan, _) = claims(&one, 0);
    assert_eq!(plan.placements.len(), 1);
    one.nodes[0].allocatable = list(&[("cpu", "10m"), ("memory", "64Gi"), ("pods", "110")]);
    assert_eq!(zones_of_sharing(&one, 1), BTreeSet::from(["test-zone-2".to_owned()]));
}

#[test]
fn a_volume_that_names_no_class_gets_the_default_one() {
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let by_default = |mut class: StorageClass, second| {
        class.meta.annotations.insert(DEFAULT.to_owned(), "true".to_owned());
        class.meta.created_at = Some(at(second));
        class
    };
    let later = class("later", EBS, VolumeBinding::WaitForFirstConsumer);
    let at_once = class("at-once", EBS, VolumeBinding::Immediate);
    let check = |volumes: Vec<PodVolume>, classes: Vec<StorageClass>, makes: bool| {
        let shape = PodShape { volumes, ..shape(&[("cpu", "10m")]) };
        let mut one = world(pods("cache", 2, shape), attaching(1));
        one.storage.claims.iter_mut().for_each(|claim| claim.storage_class = None);
        one.storage.classes = classes;
        let (plan, report) = plan(&one);
        let refused = report.unschedulable.iter().map(|pod| pod.reason().into_str()).collect::<BTreeSet<_>>();
        assert_eq!((plan.claims.is_empty(), refused.is_empty()), (!makes, makes), "{refused:?}");
        plan.claims.len()
    };
    let scratch = || vec![PodVolume::Ephemeral { volume: "x".to_owned(), storage_class: None }];
    check(scratch(), vec![later.clone()], false);
    // They count against the limit of the class's driver.
    assert_eq!(check(scratch(), vec![by_default(later.clone(), 1)], true), 2);
    check(vec![PodVolume::Claim("data".to_owned())], vec![by_default(later.clone(), 1)], true);
    // Of several it is the newest.
    let both = |a, b| vec![by_default(later.clone(), a), by_default(at_once.clone(), b)];
    check(scratch(), both(2, 1), true);
    check(scratch(), both(1, 2), false);
}

/// A world whose claims are each for one pod at a time.
fn exclusive(pods: Vec<Pod>) -> ProvisionInput {
    let mut world = world(pods, attaching(10));
    world.storage.claims.iter_mut().for_each(|claim| claim.users = ClaimUsers::OnePod);
    world
}

/// The pods without a place, with their messages.
fn left_over(world: &ProvisionInput) -> Vec<(String, String)> {
    let (made, report) = plan(world);
    assert_eq!(claim_faults(world, &made), Vec::<String>::new());
    report.unschedulable.iter().map(|one| (one.pod.name.name.clone(), one.message())).collect()
}

fn in_use(pod: &str, claim: &str, by: &str) -> (String, String) {
    let message = format!(
        "PersistentVolumeClaim `{claim}` is for one pod at a time (`ReadWriteOncePod`), and pod `default/{by}` has it or \
         comes first: wait for its end, or give the pods claims of their own"
    );
    (pod.to_owned(), message)
}

#[test]
fn of_pods_that_share_a_claim_for_one_pod_the_first_gets_a_place() {
    let shared = |_| vec!["data".to_owned()];
    let world = exclusive(many(3, shared));
    let (first, others) = ("db-000", ["db-001", "db-002"]);
    assert_eq!(left_over(&world), others.map(|pod| in_use(pod, "data", first)));
    let (made, _) = plan(&world);
    assert_eq!(made.claims.iter().map(|claim| claim.pods.len()).sum::<usize>(), 1);
    // Any number of pods may use another claim.
    assert_eq!(left_over(&self::world(many(3, shared), attaching(10))), []);
    // A higher priority comes first, then the age.
    let mut prior = exclusive(many(2, shared));
    Arc::make_mut(&mut prior.pods[1].shape).priority = 1;
    assert_eq!(left_over(&prior), [in_use("db-000", "data", "db-001")]);
    // A pod that can't be planned for takes nothing.
    let mut gated = exclusive(many(2, shared));
    Arc::make_mut(&mut gated.pods[0].shape).scheduling_gates = vec!["wait".to_owned()];
    let waits: Vec<String> = left_over(&gated).into_iter().map(|(pod, _)| pod).collect();
    assert_eq!(waits, ["db-000"]);
}

#[test]
fn a_running_pod_keeps_its_claim_for_one_pod_until_it_terminates() {
    let resident = using("old", &["data"]);
    let check = |resident: &Pod, expected: &[(String, String)]| {
        let mut world = exclusive(vec![using("db", &["log", "data"])]);
        world.nodes = vec![there("node-1", NodeKind::Initialized)];
        world.nodes[0].occupancy.extend([resident]);
        let (_, report) = plan(&world);
        let told = report.unschedulable.iter().map(|one| (one.pod.name.name.clone(), one.message()));
        assert_eq!(told.collect::<Vec<_>>(), expected);
        world
    };
    let world = check(&resident, &[in_use("db", "data", "old")]);
    let terminating = Pod { deleted_at: Some(world.now), ..resident.clone() };
    check(&terminating, &[]);
    check(&using("old", &["other"]), &[]);
    // Where the plan empties the node, its pod and the claim move.
    let mut trials = PlanTrials::new(&world, |_| true, [&resident]);
    let purpose = Purpose::Replacement(CommandId::parse("command-1").unwrap());
    let (made, report) = trials.plan(&purpose, &BTreeSet::from(["node-1"]), std::slice::from_ref(&resident));
    assert_eq!((made.claims.len(), report.unschedulable), (1, Vec::new()));
}

#[test]
fn a_static_class_waits_for_the_node_and_others_say_why_they_never_bind() {
    let later = VolumeBinding::WaitForFirstConsumer;
    let check = |class: StorageClass, change: &dyn Fn(&mut PersistentVolumeClaim), why: Option<&str>| {
        let mut one = world(many(1, own_claim), attaching(5));
        one.storage.classes = vec![class];
        one.storage.volumes = vec![volume("pv-auto", Some("ebs.csi.eks.amazonaws.com"))];
        one.storage.claims.iter_mut().for_each(change);
        let Some(why) = why else { return drop(claims(&one, 1)) };
        let report = check_reason(&one, "VolumeUnusable");
        let told = format!("PersistentVolumeClaim `data-0`: {why}");
        assert_eq!(report.unschedulable[0].message(), told);
        assert!(matches!(report.unschedulable[0].reason(), Reason::VolumeUnusable { .. }));
    };
    let same = |_: &mut PersistentVolumeClaim| {};
    let ebs = |binding| class("ebs", EBS, binding);
    // Somebody makes its volumes on the node, once that is there: local disks, for instance.
    check(class("ebs", "kubernetes.io/no-provisioner", later), &same, None);
    check(
        class("ebs", "kubernetes.io/no-provisioner", VolumeBinding::Immediate),
        &same,
        Some(
            "it isn't bound yet, and StorageClass `ebs` binds at once (`volumeBindingMode: Immediate`); see the claim's \
             events",
        ),
    );
    check(
        ebs(later),
        &|claim| claim.storage_class = Some("gone".to_owned()),
        Some("its StorageClass `gone` doesn't exist; create it"),
    );
    check(
        class("ebs", "ebs.csi.eks.amazonaws.com", later),
        &same,
        Some(
            "StorageClass `ebs` makes volumes for nodes of EKS Auto Mode only; use one with the provisioner \
             `ebs.csi.aws.com`",
        ),
    );
    check(
        ebs(later),
        &|claim| claim.volume = Some("pv-auto".to_owned()),
        Some(
            "only nodes of EKS Auto Mode attach its PersistentVolume; move the data to a volume of the EBS CSI driver",
        ),
    );
    check(
        ebs(later),
        &|claim| claim.phase = "Lost".to_owned(),
        Some("its PersistentVolume is lost; restore it, or delete the claim"),
    );
    check(
        ebs(later),
        &|claim| claim.meta.deleted_at = Some(at(0)),
        Some("it is being deleted; create it again once it is gone"),
    );
}

#[test]
fn a_volume_of_a_driver_is_on_its_host_only() {
    let on_host = || NodeSelectorTerm {
        match_expressions: vec![Requirement::one_of(labels::HOSTNAME, ["old"])],
        match_fields: Vec::new(),
    };
    let with = |driver: Option<&str>| {
        let mut one = world(vec![using("web", &["data"])], attaching(10));
        one.storage.claims = vec![bound("data", "pv")];
        one.storage.volumes =
            vec![PersistentVolume { node_affinity: vec![on_host()], ..volume("pv", driver) }];
        one
    };
    // A local disk of another node does as well.
    claims(&with(None), 1);
    let gone = with(Some("local.csi.openebs.io"));
    let report = check_reason(&gone, "IncompatibleRequirements");
    assert_eq!(
        report.unschedulable[0].message(),
        "NodePool `default`: incompatible requirements: the pod's volumes require `kubernetes.io/hostname In [old]`, nodes \
         have `kubernetes.io/hostname NotIn [old]`: the volume is on that host, which is gone or has no room: make room \
         there, or give the pod other volumes"
    );
    let mut there_is = gone;
    let mut old = there("old", NodeKind::Initialized);
    old.labels.insert(labels::HOSTNAME.to_owned(), "old".to_owned());
    there_is.nodes = vec![there("other", NodeKind::Initialized), old];
    let (plan, _) = claims(&there_is, 0);
    assert_eq!(plan.placements[0].node, "old");
    let mut later = world(vec![using("web", &["data"])], attaching(10));
    later.storage.classes[0].allowed_topologies = vec![on_host()];
    check_reason(&later, "IncompatibleRequirements");
}

#[test]
fn the_order_of_objects_changes_nothing_for_volumes() {
    let both = |index: usize| vec![format!("pair-{}", index / 3), format!("data-{index}")];
    let mut one = world(many(40, both), attaching(7));
    one.nodes = vec![there("node-a", NodeKind::Initialized), there("node-b", NodeKind::Starting)];
    one.storage.nodes = vec![csi_node("node-a", 5)];
    let mut other = one.clone();
    other.pods.reverse();
    other.nodes.reverse();
    other.storage.claims.reverse();
    assert_eq!(plan(&one), plan(&other));
}
