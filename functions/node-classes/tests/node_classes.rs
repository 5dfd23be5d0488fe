//! Node classes, as their users would notice them: what they resolve to, and why they aren't ready.
#![expect(
    clippy::indexing_slicing,
    reason = "helpers of an integration test aren't inside #[test] functions"
)]
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

use std::sync::{Arc, Mutex};

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_cloud::Ec2Error;
use tenon_cloud::port::{Architecture, CapacityReservation, Tags};
use tenon_cloud::twin::{Call, Fault, FaultEffect, FaultWhen, NewImage};
use tenon_cluster::snapshot::{self, ClusterObjects, Encoder, Manifest};
use tenon_domain::class_status::{ClassStatus, ConditionStatus, ConditionType};
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::image::{ImageRecord, ImageState};
use tenon_domain::registry::{Allowances, Gate, Gates, Registry};
use tenon_domain::reservation::{MatchCriteria, ReservationKind};
use tenon_domain::wake::{Cause, FunctionName};
use tenon_entrypoint::testing::{Rung, World, WorldConfig};
use tenon_entrypoint::{Handler, Scope, content_commit};
use tenon_node_classes::NodeClasses;
use tenon_table::items::{self, keys};
use tenon_table::{Table, block_on};

struct Running {
    world: World,
    function: NodeClasses,
    cluster: ClusterName,
    manifest: Mutex<Option<Manifest>>,
}

fn set(list: &[&str]) -> std::collections::BTreeSet<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn tags() -> Tags {
    Tags::from([("karpenter.sh/discovery".to_owned(), "prod".to_owned())])
}

fn allowances() -> Allowances {
    Allowances {
        node_roles: set(&["nodes"]),
        instance_profiles: set(&["profile"]),
        subnet_tags: tags(),
        security_group_tags: tags(),
        image_owners: set(&["self", "amazon"]),
        max_nodes: None,
    }
}

/// A class's spec, with some of its fields replaced.
fn class(replaced: Value) -> Value {
    let mut spec = json!({
        "amiFamily": "AL2023",
        "role": "nodes",
        "amiSelectorTerms": [{"name": "nodes-*", "owner": "self"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "prod"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "prod"}}]
    });
    for (key, value) in replaced.as_object().unwrap() {
        spec[key] = value.clone();
    }
    if !spec["instanceProfile"].is_null() {
        spec.as_object_mut().unwrap().remove("role");
    }
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "uid": "u-1", "generation": 1},
        "spec": spec
    })
}

/// A registered cluster in a region with a network.
fn running(allowed: Allowances) -> Running {
    registered(allowed, Gate::Disabled)
}

fn registered(allowed: Allowances, reserved_capacity: Gate) -> Running {
    let running = unregistered();
    let registry = Registry {
        installation: running.world.installation.id.clone(),
        cluster: running.cluster.clone(),
        endpoint: "https://prod".to_owned(),
        certificate_authority: "Y2E=".to_owned(),
        kubernetes_version: "1.33".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        settings: Default::default(),
        gates: Gates { reserved_capacity },
        agent_queue: String::new(),
        agent_role: String::new(),
        allowed,
        bootstrap: None,
    };
    let key = keys::registry(&running.world.installation.region, &running.cluster);
    let commit = content_commit(Vec::new(), vec![items::put(key, &registry)]);
    block_on(running.world.table.commit(&commit)).unwrap();
    running
}

fn unregistered() -> Running {
    let world = World::new(&WorldConfig::default()).unwrap();
    world.ec2.add_network(&tags()).unwrap();
    Running {
        world,
        function: NodeClasses::default(),
        cluster: ClusterName::parse("prod").unwrap(),
        manifest: Mutex::new(None),
    }
}

impl Running {
    /// The agent reports these classes.
    fn report(&self, classes: &[Value]) {
        let objects = ClusterObjects {
            node_classes: classes.iter().cloned().map(Arc::new).collect(),
            ..ClusterObjects::default()
        };
        let mut manifest = self.manifest.lock().unwrap();
        let now = self.world.clock.now();
        let encoded = Encoder::default().encode(&objects, manifest.as_ref(), now);
        let generation = manifest.as_ref().map_or(1, |manifest| manifest.generation + 1);
        let write =
            snapshot::write(&self.world.table, &self.cluster, &encoded, (generation, manifest.as_ref()));
        let written = block_on(write).unwrap();
        *manifest = Some(written);
    }

    fn wake(&self, cause: Cause) {
        let of_region = matches!(cause, Cause::ImageChanged(_));
        let scope = if of_region { Scope::Region } else { Scope::Cluster(self.cluster.clone()) };
        block_on(self.function.handle(&self.world, &scope, &[cause])).unwrap();
    }

    fn status(&self) -> Option<ClassStatus> {
        let key = keys::node_class(&self.cluster, &NodeClassName::parse("default").unwrap());
        Some(items::from_item(&key, &self.world.table.peek(&key)?).unwrap())
    }

    fn images(&self) -> Vec<ImageId> {
        self.status().unwrap().images.into_iter().map(|image| image.id).collect()
    }

    /// The obstacle: condition, status, reason.
    fn obstacle(&self) -> String {
        self.status().unwrap().obstacle().map_or("ready".to_owned(), |obstacle| {
            let condition = obstacle.condition.as_str();
            format!("{condition}={} {}", obstacle.status.as_str(), obstacle.reason_text())
        })
    }

    fn message(&self) -> String {
        self.status().unwrap().obstacle().unwrap().message.clone()
    }

    fn said(&self) -> Vec<String> {
        self.world.signals.take_events().into_iter().map(|(kind, _)| kind).collect()
    }

    fn fail(&self, call: Call, when: FaultWhen, error: Ec2Error) {
        self.world.ec2.inject(Fault { call, when, effect: FaultEffect::Refused(error) });
    }
}

fn throttled(call: Call) -> Ec2Error {
    Ec2Error::Throttled { action: call.as_str().to_owned() }
}

fn image(name: &str) -> NewImage {
    NewImage::named(name, Architecture::X86_64)
}

#[test]
fn a_class_resolves_and_is_ready_and_an_unchanged_world_ends_after_one_read() {
    let running = running(allowances());
    let id = running.world.ec2.add_image(image("nodes-1"));
    running.world.ec2.add_image(image("other"));
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    let status = running.status().unwrap();
    assert!(status.ready(), "{status:?}");
    assert_eq!((status.subnets.len(), status.security_groups.len()), (2, 1));
    assert_eq!(running.images(), [id]);
    assert_eq!(running.said(), ["Node Class Ready"]);
    let before: Vec<_> = running.world.table.dump().collect();
    running.world.table.reset_meter();
    running.wake(Cause::Sweep);
    let meter = running.world.table.meter();
    assert_eq!(meter.operations.values().map(|usage| usage.calls).sum::<u64>(), 1);
    assert_eq!(running.world.table.dump().collect::<Vec<_>>(), before);
    assert!(running.said().is_empty());
}

#[test]
fn only_the_newest_available_image_is_taken() {
    let running = running(allowances());
    let old = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.world.clock.advance(SignedDuration::from_secs(1));
    let new = running.world.ec2.create_image(image("nodes-2"));
    running.wake(Cause::SnapshotChanged);
    assert_eq!(running.images(), [old], "a pending image is nobody's");
    running.said();
    running.world.clock.advance(SignedDuration::from_secs(61));
    running.wake(Cause::ImageChanged(Some(new.clone())));
    assert_eq!(running.images(), std::slice::from_ref(&new));
    assert_eq!(running.said(), ["Node Class Ready"]);
    running.world.ec2.deregister_image(&new).unwrap();
    running.wake(Cause::ImageChanged(Some(new)));
    assert_eq!(running.images().len(), 1);
    assert_ne!(running.status().unwrap().images[0].name, "nodes-2");
}

#[test]
fn a_lost_event_is_made_good_by_the_sweep() {
    let running = running(allowances());
    let id = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    running.world.ec2.disable_image(&id).unwrap();
    running.wake(Cause::Sweep);
    assert_eq!(running.obstacle(), "ready");
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.said();
    running.wake(Cause::Sweep);
    assert_eq!(running.obstacle(), "AMIsReady=False AMINotFound");
    assert!(running.message().contains("is disabled"), "{}", running.message());
    assert_eq!(running.said(), ["Node Class Not Ready"]);
}

fn check(allowed: Allowances, replaced: Value, obstacle: &str, says: &str) {
    let running = running(allowed);
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(replaced)]);
    running.wake(Cause::SnapshotChanged);
    assert_eq!(running.obstacle(), obstacle);
    if !says.is_empty() {
        assert!(running.message().contains(says), "{}", running.message());
    }
    let status = running.status().unwrap();
    let unknown =
        status.conditions.iter().any(|c| c.status == ConditionStatus::Unknown && c.next_try.is_none());
    assert!(!unknown, "{status:?}");
}

#[test]
fn what_the_registry_does_not_allow_is_refused_by_name() {
    let not = |allowed: Allowances, replaced: Value, condition: &str, says: &str| {
        check(allowed, replaced, &format!("{condition}=False NotAllowed"), says);
    };
    not(
        Allowances { node_roles: set(&[]), ..allowances() },
        json!({}),
        "InstanceProfileReady",
        "`spec.role` `nodes`",
    );
    not(allowances(), json!({"instanceProfile": "other"}), "InstanceProfileReady", "`profile`");
    not(Allowances { image_owners: set(&["amazon"]), ..allowances() }, json!({}), "AMIsReady", "`amazon`");
    let other = Tags::from([("team".to_owned(), "*".to_owned())]);
    not(Allowances { subnet_tags: other.clone(), ..allowances() }, json!({}), "SubnetsReady", "`team=*`");
    not(
        Allowances { security_group_tags: other, ..allowances() },
        json!({}),
        "SecurityGroupsReady",
        "`team=*`",
    );
}

#[test]
fn an_instance_profile_is_taken_by_name_and_by_arn() {
    let arn = "arn:aws:iam::111122223333:instance-profile/team/profile";
    check(allowances(), json!({"instanceProfile": "profile"}), "ready", "");
    check(allowances(), json!({"instanceProfile": arn}), "ready", "");
    let foreign = "arn:aws:iam::999999999999:instance-profile/profile";
    check(allowances(), json!({"instanceProfile": foreign}), "InstanceProfileReady=False NotAllowed", "");
}

#[test]
fn what_matches_nothing_says_so() {
    check(
        allowances(),
        json!({"subnetSelectorTerms": [{"id": "subnet-1"}]}),
        "SubnetsReady=False SubnetsNotFound",
        "",
    );
    check(
        allowances(),
        json!({"securityGroupSelectorTerms": [{"name": "nobody"}]}),
        "SecurityGroupsReady=False SecurityGroupsNotFound",
        "",
    );
    check(allowances(), json!({"amiSelectorTerms": [{"id": "ami-1"}]}), "AMIsReady=False AMINotFound", "");
}

#[test]
fn an_id_that_does_not_exist_hides_no_other() {
    let terms = json!([{"id": "subnet-1"}, {"id": "subnet-00000000000000001"}]);
    check(allowances(), json!({"subnetSelectorTerms": terms}), "ready", "");
}

#[test]
fn an_alias_is_refused_with_the_remedy_and_named_as_unsupported() {
    let running = running(allowances());
    running.report(&[class(json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}))]);
    running.wake(Cause::SnapshotChanged);
    assert_eq!(running.obstacle(), "AMIsReady=False UnsupportedAlias");
    assert!(running.message().contains("select images by id, name, tags or owner"));
    let status = running.status().unwrap();
    let unsupported = status.condition(ConditionType::Unsupported).unwrap();
    assert!(unsupported.message.contains("spec.amiSelectorTerms[0].alias"), "{}", unsupported.message);
}

#[test]
fn a_cluster_without_a_stack_is_told_to_deploy_it() {
    let running = unregistered();
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    assert_eq!(running.obstacle(), "SubnetsReady=False ClusterNotRegistered");
    assert!(running.world.ec2.calls().is_empty(), "EC2 isn't asked for a cluster that nobody registered");
}

#[test]
fn a_throttled_ec2_takes_nothing_from_a_resolved_class_and_is_asked_again_soon() {
    let running = running(allowances());
    let id = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    let before = running.status().unwrap();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.said();
    running.fail(Call::DescribeImages, FaultWhen::Next(1), throttled(Call::DescribeImages));
    running.wake(Cause::Sweep);
    assert_eq!(running.status().unwrap(), before);
    let rung = running.world.signals.take();
    assert!(matches!(&rung[..], [Rung::Wake { function: FunctionName::NodeClasses, .. }]), "{rung:?}");
    running.world.ec2.disable_image(&id).unwrap();
    running.world.clock.advance(SignedDuration::from_secs(20));
    running.wake(Cause::StateChanged);
    assert_eq!(running.obstacle(), "AMIsReady=False AMINotFound");
}

#[test]
fn a_class_that_was_never_resolved_is_unknown_with_a_next_try() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.fail(Call::DescribeSubnets, FaultWhen::Next(1), throttled(Call::DescribeSubnets));
    running.wake(Cause::SnapshotChanged);
    assert_eq!(running.obstacle(), "SubnetsReady=Unknown SubnetResolutionFailed");
    assert!(running.status().unwrap().next_try().is_some());
    running.world.clock.advance(SignedDuration::from_secs(20));
    running.wake(Cause::Sweep);
    assert_eq!(running.obstacle(), "ready");
}

#[test]
fn a_denied_call_names_the_action() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.world.ec2.deny(Call::DescribeSecurityGroups, "an explicit deny");
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    assert_eq!(running.obstacle(), "SecurityGroupsReady=False SecurityGroupResolutionFailed");
    assert!(running.message().contains("`ec2:DescribeSecurityGroups`"), "{}", running.message());
}

#[test]
fn reserved_tags_fail_the_validation() {
    let tags = json!({"tenon.dev/launch": "x"});
    check(
        allowances(),
        json!({"tags": tags}),
        "ValidationSucceeded=False TagValidationFailed",
        "tenon.dev/launch",
    );
}

#[test]
fn free_addresses_alone_wake_nobody() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    running.said();
    let subnet = running.status().unwrap().subnets[0].id.clone();
    running.world.ec2.set_free_addresses(&subnet, 7).unwrap();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(Cause::Sweep);
    assert_eq!(running.status().unwrap().subnets[1].free_addresses, 7);
    assert!(running.said().is_empty());
}

#[test]
fn a_class_that_went_goes_once_a_fresh_snapshot_says_so() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    running.report(&[]);
    running.wake(Cause::SnapshotChanged);
    assert_eq!(running.status(), None);
}

#[test]
fn an_image_that_no_class_selects_asks_nothing_of_ec2() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(Cause::SnapshotChanged);
    let other = running.world.ec2.add_image(image("other"));
    let told = ImageRecord {
        id: other.clone(),
        name: "other".to_owned(),
        state: ImageState::Available,
        architecture: None,
        created_at: None,
        owner: running.world.installation.account.clone(),
        tags: Tags::new(),
        deprecated_at: None,
        seen_at: running.world.clock.now(),
    };
    let key = keys::image(&running.world.installation.region, &other);
    let commit = content_commit(Vec::new(), vec![items::put(key, &told)]);
    block_on(running.world.table.commit(&commit)).unwrap();
    let before = running.world.ec2.calls();
    running.wake(Cause::ImageChanged(Some(other)));
    assert_eq!(running.world.ec2.calls(), before);
}

/// A reservation of two m5.large for a team.
fn reservation(id: &str, team: &str) -> CapacityReservation {
    CapacityReservation {
        id: id.parse().unwrap(),
        owner: "111122223333".to_owned(),
        instance_type: "m5.large".parse().unwrap(),
        zone: "us-east-1a".parse().unwrap(),
        match_criteria: MatchCriteria::Targeted,
        kind: ReservationKind::Default,
        ends_at: None,
        available: 2,
        tags: Tags::from([("team".to_owned(), team.to_owned())]),
    }
}

/// A class that selects a reservation by id, one that doesn't exist, and those of a team.
fn selecting() -> Value {
    let terms = json!([{"id": "cr-0a"}, {"id": "cr-0gone"}, {"tags": {"team": "ml"}, "instanceMatchCriteria": "targeted"}]);
    class(json!({"capacityReservationSelectorTerms": terms}))
}

fn with_reservations(gate: Gate) -> Running {
    let running = registered(allowances(), gate);
    running.world.ec2.add_image(image("nodes-1"));
    for (id, team) in [("cr-0a", "web"), ("cr-0b", "ml"), ("cr-0c", "web")] {
        running.world.ec2.add_reservation(reservation(id, team)).unwrap();
    }
    running.report(&[selecting()]);
    running.wake(Cause::SnapshotChanged);
    running
}

fn reservations(running: &Running) -> Vec<(String, u32)> {
    let status = running.status().unwrap();
    status.reservations.shown().iter().map(|one| (one.id.to_string(), one.available)).collect()
}

#[test]
fn behind_the_gate_a_class_has_the_reservations_that_its_terms_select() {
    let running = with_reservations(Gate::Enabled);
    assert_eq!(running.obstacle(), "ready");
    assert_eq!(reservations(&running), [("cr-0a".to_owned(), 2), ("cr-0b".to_owned(), 2)]);
    let ready = running.status().unwrap();
    let condition = ready.condition(ConditionType::CapacityReservationsReady).unwrap();
    assert_eq!(condition.status, ConditionStatus::True);
    assert!(ready.condition(ConditionType::Unsupported).is_none());
}

#[test]
fn with_the_gate_off_nothing_is_asked_kept_or_waited_for() {
    let running = with_reservations(Gate::Disabled);
    assert_eq!(running.obstacle(), "ready");
    assert_eq!(reservations(&running), []);
    let status = running.status().unwrap();
    assert!(status.condition(ConditionType::CapacityReservationsReady).is_none());
    let unsupported = status.condition(ConditionType::Unsupported).unwrap();
    assert!(unsupported.message.contains("spec.capacityReservationSelectorTerms"), "{}", unsupported.message);
    assert!(!running.world.ec2.calls().contains_key(&Call::DescribeCapacityReservations));
}

#[test]
fn reservations_that_are_not_answered_stay_and_that_are_denied_are_named() {
    let running = with_reservations(Gate::Enabled);
    running.world.ec2.deny(Call::DescribeCapacityReservations, "an explicit deny");
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(Cause::Sweep);
    assert_eq!(running.obstacle(), "CapacityReservationsReady=False CapacityReservationResolutionFailed");
    assert!(running.message().contains("`ec2:DescribeCapacityReservations`"), "{}", running.message());
    running.world.ec2.allow(Call::DescribeCapacityReservations);
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(Cause::Sweep);
    let effect =
        FaultEffect::Refused(Ec2Error::Throttled { action: "DescribeCapacityReservations".to_owned() });
    let call = Call::DescribeCapacityReservations;
    running.world.ec2.inject(Fault { call, effect, when: FaultWhen::Next(9) });
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(Cause::Sweep);
    assert_eq!((running.obstacle().as_str(), reservations(&running).len()), ("ready", 2));
}

#[test]
fn a_look_at_reservations_is_dated_though_nothing_changed_and_wakes_nobody() {
    let running = with_reservations(Gate::Enabled);
    running.said();
    let before = running.status().unwrap();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(Cause::Sweep);
    let after = running.status().unwrap();
    assert_eq!(after.resolved_at, running.world.clock.now());
    assert!(after.same_as(&before) && after.revision == before.revision + 1);
    assert!(running.said().is_empty());
}
