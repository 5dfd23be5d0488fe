//! The resources of classes, and why they aren't ready.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenon_domain::api::node_class::InstanceProfile;
use tenon_domain::class_status::ConditionStatus;
use tenon_domain::image::{ImageFacts, ImageRecord, ImageState};
use tenon_domain::journal::{Decision, Subject, SubjectKind};
use tenon_domain::registry::{Allowances, Permission};
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_ec2::port::Tags;
use tenon_harness::RungBell;
use tenon_memory_table::block_on;
use tenon_snapshot::snapshot::{Chunk, ChunkKind, Manifest, chunk_key, manifest_key};
use tenon_table::content_commit;
use tenon_table::items::{self, keys};
use tenon_table::{Table, Write};
use tenon_twin::{Call, FaultWhen};

use crate::running::{allowances, class, image, roles, running, set, throttled, unregistered};

#[test]
fn a_class_resolves_and_is_ready_and_an_unchanged_world_ends_after_one_read() {
    let running = running(allowances());
    let id = running.world.ec2.add_image(image("nodes-1"));
    running.world.ec2.add_image(image("other"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let status = running.status().unwrap();
    assert!(status.ready(), "{status:?}");
    assert_eq!((status.subnets.len(), status.security_groups.len()), (2, 1));
    assert_eq!(running.images(), [id]);
    assert_eq!(running.said(), ["Node Class Ready"]);
    let before: Vec<_> = running.world.table.dump().collect();
    running.world.table.reset_meter();
    running.wake(WakeCause::Sweep);
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
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.images(), [old], "a class doesn't resolve to a pending image");
    running.said();
    running.world.clock.advance(SignedDuration::from_secs(61));
    running.wake(WakeCause::ImageChanged(Some(new.clone())));
    assert_eq!(running.images(), std::slice::from_ref(&new));
    assert_eq!(running.said(), ["Node Class Ready"]);
    running.world.ec2.deregister_image(&new).unwrap();
    running.wake(WakeCause::ImageChanged(Some(new)));
    assert_eq!(running.images().len(), 1);
    assert_ne!(running.status().unwrap().images[0].name, "nodes-2");
}

#[test]
fn an_image_that_is_deprecated_is_taken_only_where_there_is_no_other() {
    let running = running(allowances());
    let now = running.world.clock.now();
    let deprecated = |name: &str, at| tenon_twin::NewImage { deprecated_at: at, ..image(name) };
    let past = running.world.ec2.add_image(deprecated("nodes-2", Some(now)));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.images(), [past]);
    running.world.clock.advance(SignedDuration::from_secs(1));
    let later = now + SignedDuration::from_hours(1);
    let current = running.world.ec2.add_image(deprecated("nodes-1", Some(later)));
    running.wake(WakeCause::ImageChanged(Some(current.clone())));
    assert_eq!(running.images(), [current]);
}

#[test]
fn a_lost_event_is_made_good_by_the_sweep() {
    let running = running(allowances());
    let id = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.world.ec2.disable_image(&id).unwrap();
    running.wake(WakeCause::Sweep);
    assert_eq!(running.obstacle(), "ready");
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.said();
    running.wake(WakeCause::Sweep);
    assert_eq!(running.obstacle(), "AMIsReady=False AMINotFound");
    assert!(running.message().contains("is disabled"), "{}", running.message());
    assert_eq!(running.said(), ["Node Class Not Ready"]);
}

#[test]
fn an_image_that_is_disabled_and_then_deregistered_is_told_as_gone() {
    let running = running(allowances());
    let id = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.world.ec2.disable_image(&id).unwrap();
    running.wake(WakeCause::ImageChanged(Some(id.clone())));
    assert!(running.message().contains(&format!("`{id} is disabled`")), "{}", running.message());
    running.world.ec2.deregister_image(&id).unwrap();
    running.wake(WakeCause::ImageChanged(Some(id.clone())));
    let gone = format!("EC2 doesn't return `{id}` (was disabled); make another image");
    assert!(running.message().contains(&gone), "{}", running.message());
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert!(running.message().contains(&gone), "{}", running.message());
}

fn check(allowed: Allowances, replaced: Value, obstacle: &str, says: &str) {
    let running = running(allowed);
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(replaced)]);
    running.wake(WakeCause::SnapshotChanged);
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
        Allowances { node_roles: roles(&[("other", "nodes")]), ..allowances() },
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
fn a_role_is_used_through_the_instance_profile_that_the_stack_has_for_it() {
    let check = |role: &str, profile: &str| {
        let running = running(Allowances {
            node_roles: roles(&[("nodes", "tenon-us-east-1-prod-nodes"), ("own", "own")]),
            ..allowances()
        });
        running.world.ec2.add_image(image("nodes-1"));
        running.report(&[class(json!({ "role": role }))]);
        running.wake(WakeCause::SnapshotChanged);
        let expected = InstanceProfile::Name(profile.to_owned());
        assert_eq!(running.status().unwrap().instance_profile, Some(expected), "{role}");
    };
    check("nodes", "tenon-us-east-1-prod-nodes");
    check("own", "own");
    // A class may give the role's path or ARN: within an account a role's name is unique without them.
    check("team/nodes", "tenon-us-east-1-prod-nodes");
}

#[test]
fn an_instance_profile_is_taken_by_name_and_by_arn() {
    let arn = "arn:aws:iam::111122223333:instance-profile/profile";
    check(allowances(), json!({"instanceProfile": "profile"}), "ready", "");
    check(allowances(), json!({"instanceProfile": arn}), "ready", "");
    let path = "arn:aws:iam::111122223333:instance-profile/team/profile";
    let not_found = "InstanceProfileReady=False InstanceProfileNotFound";
    check(allowances(), json!({"instanceProfile": path}), not_found, arn);
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
fn an_alias_resolves_to_an_image_for_each_architecture_and_variant() {
    let resolved = |alias: &str, family: &str| {
        let running = running(allowances());
        running.report(&[class(json!({"amiFamily": family, "amiSelectorTerms": [{"alias": alias}]}))]);
        running.wake(WakeCause::SnapshotChanged);
        assert_eq!(running.obstacle(), "ready", "{}", running.message());
        let status = running.status().unwrap();
        let images =
            status.images.iter().map(|image| format!("{} {}", image.architecture.as_str(), image.variant));
        images.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(
        resolved("al2023@latest", "AL2023"),
        ["arm64 nvidia", "arm64 standard", "x86_64 neuron", "x86_64 nvidia", "x86_64 standard"]
    );
    assert_eq!(
        resolved("bottlerocket@latest", "Bottlerocket"),
        ["arm64 nvidia", "arm64 standard", "x86_64 neuron", "x86_64 nvidia", "x86_64 standard"]
    );
    assert_eq!(resolved("windows2019@latest", "Windows2019"), ["x86_64 standard"]);
    assert_eq!(resolved("windows2022@latest", "Windows2022"), ["x86_64 standard"]);
}

#[test]
fn an_alias_without_images_is_refused_with_the_remedy() {
    let alias = |alias: &str| json!({"amiFamily": null, "amiSelectorTerms": [{"alias": alias}]});
    check(allowances(), alias("al2@latest"), "AMIsReady=False UnsupportedAlias", "up to 1.32");
    let missing = "SSM has no parameter `/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/arm64";
    check(allowances(), alias("al2023@v20200101"), "AMIsReady=False AMINotFound", missing);
}

#[test]
fn a_parameter_names_the_image_and_a_new_value_names_another() {
    let running = running(allowances());
    running.report(&[class(json!({"amiSelectorTerms": [{"ssmParameter": "/golden/ami"}]}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "AMIsReady=False AMINotFound");
    for name in ["golden-1", "golden-2"] {
        let id = running.world.ec2.add_image(image(name));
        running.world.ec2.put_parameter("/golden/ami", id.as_str());
        running.world.clock.advance(SignedDuration::from_mins(6));
        running.wake(WakeCause::Sweep);
        assert_eq!(running.obstacle(), "ready", "{}", running.message());
        assert_eq!(running.status().unwrap().images.iter().map(|image| &image.id).collect::<Vec<_>>(), [&id]);
    }
}

#[test]
fn a_cluster_without_a_stack_is_told_to_deploy_it() {
    let running = unregistered();
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "SubnetsReady=False ClusterNotRegistered");
    assert!(running.world.ec2.calls().is_empty(), "EC2 isn't asked for a cluster that nobody registered");
}

#[test]
fn a_throttled_ec2_takes_nothing_from_a_resolved_class_and_is_asked_again_soon() {
    let running = running(allowances());
    let id = running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let before = running.status().unwrap();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.said();
    running.fail(Call::DescribeImages, FaultWhen::Next(1), throttled(Call::DescribeImages));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.status().unwrap(), before);
    let rung = running.world.signals.take();
    assert!(matches!(&rung[..], [RungBell::Wake { function: FunctionName::NodeClasses, .. }]), "{rung:?}");
    running.world.ec2.disable_image(&id).unwrap();
    running.world.clock.advance(SignedDuration::from_secs(20));
    running.wake(WakeCause::StateChanged);
    assert_eq!(running.obstacle(), "AMIsReady=False AMINotFound");
}

#[test]
fn a_class_that_was_never_resolved_is_unknown_with_a_next_try() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.fail(Call::DescribeSubnets, FaultWhen::Next(1), throttled(Call::DescribeSubnets));
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.obstacle(), "SubnetsReady=Unknown SubnetResolutionFailed");
    assert!(running.status().unwrap().next_try().is_some());
    running.world.clock.advance(SignedDuration::from_secs(20));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.obstacle(), "ready");
}

#[test]
fn a_new_class_is_looked_at_alone_while_others_wait_for_their_next_try() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    let call = Call::DescribeSubnets;
    running.fail(call, FaultWhen::Next(1), throttled(call));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let made = || running.world.ec2.calls()[&call].made;
    assert_eq!((running.obstacle().as_str(), made()), ("SubnetsReady=Unknown SubnetResolutionFailed", 1));
    running.world.clock.advance(SignedDuration::from_secs(10));
    let mut other = class(json!({"subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "*"}}]}));
    other["metadata"]["name"] = json!("other");
    running.report(&[class(json!({})), other]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!((running.obstacle().as_str(), made()), ("SubnetsReady=Unknown SubnetResolutionFailed", 2));
    assert_eq!(running.recorded("other").len(), 1);
    running.world.clock.advance(SignedDuration::from_secs(10));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.obstacle(), "ready");
}

#[test]
fn a_denied_call_names_the_action() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.world.ec2.deny(Call::DescribeSecurityGroups, "an explicit deny");
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
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
fn what_the_stack_denies_a_class_fails_the_validation() {
    let strict = || Allowances {
        public_addresses: Permission::Denied,
        imds_v1: Permission::Denied,
        user_data: Permission::Denied,
        ..allowances()
    };
    let check_denied = |spec: serde_json::Value, message: &str| {
        check(strict(), spec, "ValidationSucceeded=False NotAllowed", message);
    };
    check_denied(json!({"associatePublicIPAddress": true}), "`AllowPublicAddresses=false`: remove it");
    check_denied(json!({"metadataOptions": {"httpTokens": "optional"}}), "set it to `required`");
    check_denied(json!({"userData": "#!/bin/sh"}), "`spec.userData` not allowed");
    check_denied(
        json!({"associatePublicIPAddress": true, "userData": "#!/bin/sh"}),
        "or set it to `false`; `spec.userData` not allowed",
    );
}

#[test]
fn kubelet_settings_that_no_node_can_have_fail_the_validation() {
    let check_kubelet = |spec: serde_json::Value, reason: &str, message: &str| {
        check(allowances(), spec, &format!("ValidationSucceeded=False {reason}"), message);
    };
    check_kubelet(
        json!({"kubelet": {"cpuManagerPolicies": "static"}}),
        "InvalidKubeletConfiguration",
        "did you mean `cpuManagerPolicy`?",
    );
    check_kubelet(
        json!({"amiFamily": "Bottlerocket", "kubelet": {"cpuManagerPolicy": "static"}}),
        "UnsupportedKubeletConfiguration",
        "AMI family `Bottlerocket` doesn't pass this field on to the kubelet",
    );
    check_kubelet(
        json!({"kubelet": {"maxPods": "min(10, max_pods)", "kubeReserved": {"memory": "vcpus * 64"}}}),
        "KubeletExpressionsDisabled",
        "write values instead of those of `spec.kubelet.maxPods`, `spec.kubelet.kubeReserved.memory`",
    );
}

#[test]
fn free_addresses_alone_wake_nobody() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.said();
    let before = (running.steps(), running.recorded("default").len());
    assert_eq!(before, (1, 1), "planners look again once it is resolved");
    let subnet = running.status().unwrap().subnets[0].id.clone();
    running.world.ec2.set_free_addresses(&subnet, 7).unwrap();
    running.world.clock.advance(SignedDuration::from_mins(5));
    running.wake(WakeCause::Sweep);
    assert_eq!(running.status().unwrap().subnets[1].free_addresses, 7);
    assert!(running.said().is_empty());
    assert_eq!((running.steps(), running.recorded("default").len()), before);
}

#[test]
fn a_class_that_went_goes_once_a_fresh_snapshot_says_so() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    running.report(&[]);
    running.wake(WakeCause::SnapshotChanged);
    assert_eq!(running.status(), None);
}

/// No agent of ours writes such a report; the function's memory is shared by all clusters.
#[test]
fn classes_that_are_too_large_to_be_read_are_waited_for_and_said_once() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let bomb = Chunk::pack(ChunkKind::NodeClasses, 0, &" ".repeat(17 << 20));
    let reported = running.manifest.lock().unwrap().clone().unwrap();
    let forge = |generation: u64| {
        let chunks = vec![bomb.name.clone()];
        let manifest = Manifest { generation, chunks, index: None, ..reported.clone() };
        let writes = vec![
            Write::Put { key: chunk_key(&running.cluster, &bomb.name), item: bomb.to_item() },
            Write::Put { key: manifest_key(&running.cluster), item: manifest.to_item().unwrap() },
        ];
        block_on(running.world.table.commit(&content_commit(Vec::new(), writes))).unwrap();
        running.wake(WakeCause::SnapshotChanged);
    };
    forge(2);
    forge(3);
    let told = running.recorded_of(Subject { kind: SubjectKind::Pool, name: "*".to_owned() });
    assert_eq!(told.len(), 1);
    assert_eq!(
        (told[0].decision, told[0].details["reason"].as_str()),
        (Decision::Waiting, "SnapshotTooLarge")
    );
    let message = "node-classes waits: the agent's snapshot has at least 16777217 bytes, values counted";
    assert!(told[0].message.starts_with(message), "{}", told[0].message);
    assert_eq!(running.obstacle(), "ready", "what is known stays");
}

#[test]
fn an_image_that_no_class_selects_asks_nothing_of_ec2() {
    let running = running(allowances());
    running.world.ec2.add_image(image("nodes-1"));
    running.report(&[class(json!({}))]);
    running.wake(WakeCause::SnapshotChanged);
    let other = running.world.ec2.add_image(image("other"));
    let told = ImageRecord {
        revision: 1,
        id: other.clone(),
        name: "other".to_owned(),
        state: ImageState::Available,
        architecture: None,
        created_at: None,
        owner: running.world.installation.account.clone(),
        owner_alias: None,
        tags: Tags::new(),
        deprecated_at: None,
        facts: ImageFacts::default(),
        first_seen_at: running.world.clock.now(),
        seen_at: running.world.clock.now(),
    };
    let key = keys::image(&running.world.installation.region, &other);
    let commit = content_commit(Vec::new(), vec![items::put(key, &told)]);
    block_on(running.world.table.commit(&commit)).unwrap();
    let before = running.world.ec2.calls();
    running.wake(WakeCause::ImageChanged(Some(other)));
    assert_eq!(running.world.ec2.calls(), before);
}

#[test]
fn a_class_that_can_not_be_read_is_told_with_its_field() {
    let running = running(allowances());
    running.report(&[class(json!({"amiSelectorTerms": [{}]}))]);
    running.wake(WakeCause::SnapshotChanged);
    let told: Vec<String> = running.recorded("default").into_iter().map(|record| record.message).collect();
    let expected = "ignoring invalid EC2NodeClass `default`: spec.amiSelectorTerms[0]";
    assert!(told[0].starts_with(expected), "{told:?}");
}
