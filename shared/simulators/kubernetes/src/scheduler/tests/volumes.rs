//! Volumes: where they are, and how many a node attaches.

use super::*;

#[test]
fn a_volume_binds_a_pod_to_its_zone() {
    let world = two_zones();
    let claim = |name: &str, spec: Value| {
        world.apply(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec}));
    };
    let volume = |name: &str, labels: Value, spec: Value| {
        world.apply(json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": labels}, "spec": spec}));
    };
    let class = |name: &str, mode: &str| {
        let topologies = json!([{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]);
        world.apply(
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "volumeBindingMode": mode, "allowedTopologies": topologies}),
        );
    };
    class("waits", "WaitForFirstConsumer");
    class("at-once", "Immediate");
    let in_z1 = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": ZONE, "operator": "In", "values": ["z1"]}]}]}});
    volume("by-affinity", json!({}), json!({"nodeAffinity": in_z1}));
    volume("by-label", json!({ZONE: "z1__z3"}), json!({}));
    claim("affinity", json!({"volumeName": "by-affinity"}));
    claim("label", json!({"volumeName": "by-label"}));
    claim("gone", json!({"volumeName": "no-such"}));
    claim("unbound", json!({"storageClassName": "waits"}));
    claim("immediate", json!({"storageClassName": "at-once"}));
    let check = |volume: Value, expected: &str| {
        let mut volume = volume;
        volume["name"] = json!("data");
        assert_eq!(world.feasible(json!({"volumes": [volume]})), expected, "{volume}");
    };
    let named = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    check(named("affinity"), "a");
    check(named("label"), "a");
    check(named("gone"), "");
    check(named("unbound"), "b");
    check(named("immediate"), "");
    check(named("absent"), "");
    check(json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "waits"}}}}), "b");
}

#[test]
fn a_node_attaches_as_many_volumes_as_its_csi_node_says() {
    let world = two_zones();
    let object = |api: &str, kind: &str, name: &str, rest: Value| {
        let mut object =
            json!({"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        world.apply(object);
    };
    let class = json!({"provisioner": "kubernetes.io/aws-ebs", "volumeBindingMode": "WaitForFirstConsumer"});
    object("storage.k8s.io/v1", "StorageClass", "waits", class);
    for name in ["one", "two", "three"] {
        object("v1", "PersistentVolumeClaim", name, json!({"spec": {"storageClassName": "waits"}}));
    }
    let bound = json!({"spec": {"volumeName": "pv", "storageClassName": "waits"}});
    object("v1", "PersistentVolumeClaim", "bound", bound);
    object("v1", "PersistentVolume", "pv", json!({"spec": {"csi": {"driver": "ebs.csi.aws.com"}}}));
    let limit = |node: &str, count: u32| {
        let driver = json!({"name": "ebs.csi.aws.com", "nodeID": node, "allocatable": {"count": count}});
        object("storage.k8s.io/v1", "CSINode", node, json!({"spec": {"drivers": [driver]}}));
    };
    limit("a", 2);
    limit("b", 1);
    let with = |names: &[&str]| {
        let volume = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        json!({"volumes": names.iter().map(volume).collect::<Vec<_>>()})
    };
    let check = |spec: Value, expected: &str| assert_eq!(world.feasible(spec.clone()), expected, "{spec}");
    check(with(&["one"]), "a b");
    check(with(&["one", "two"]), "a");
    check(with(&["one", "two", "three"]), "");
    let own =
        json!({"name": "x", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "waits"}}}});
    check(json!({"volumes": [own, own]}), "a");
    // What a pod of the node uses already counts once, and so does what is attached still.
    world.running("first", "db", "a", with(&["one"]));
    check(with(&["one", "two"]), "a");
    check(with(&["two", "three"]), "");
    object(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "csi-1",
        json!({"spec": {"attacher": "ebs.csi.aws.com", "nodeName": "a", "source": {"persistentVolumeName": "pv"}}}),
    );
    check(with(&["two"]), "b");
    // The pod of a volume that is attached still waits until it is detached.
    check(with(&["bound"]), "b");
    check(json!({}), "a b");
}

#[test]
fn a_volume_is_made_in_the_zone_of_its_first_pod_and_the_others_follow() {
    let world = two_zones();
    world.apply(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "waits"},
        "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    for name in ["shared", "own"] {
        world.apply(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": "waits"}}));
    }
    let with = |name: &str, more: Value| {
        let mut spec = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]});
        store::merge_patch(&mut spec, &more);
        spec
    };
    assert_eq!(world.feasible(with("shared", json!({}))), "a b");
    // Nobody has looked at the cluster between the two.
    world.pod("first", "db", with("shared", json!({"nodeSelector": {ZONE: "z2"}})));
    world.pod("second", "db", with("shared", json!({"nodeSelector": {ZONE: "z1"}}))).tick(1);
    assert_eq!((world.node_of("first"), world.node_of("second")), ("b".to_owned(), "-".to_owned()));
    assert_eq!(world.feasible(with("shared", json!({}))), "b");
    // A pod that somebody else places has its volume made as well.
    world.running("third", "db", "a", with("own", json!({}))).tick(2);
    assert_eq!(world.feasible(with("own", json!({}))), "a");
}

#[test]
fn a_claim_for_one_pod_keeps_other_pods_waiting_until_its_pod_is_gone() {
    let world = two_zones();
    world.apply(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "waits"},
        "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}),
    );
    for (name, mode) in [("alone", "ReadWriteOncePod"), ("shared", "ReadWriteOnce")] {
        world.apply(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"storageClassName": "waits", "accessModes": [mode]}}));
    }
    let with =
        |name: &str| json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]});
    assert_eq!(world.feasible(with("alone")), "a b");
    for name in ["alone", "shared"] {
        world.running(&format!("{name}-old"), "db", "a", with(name)).tick(1);
    }
    assert_eq!(
        (world.feasible(with("alone")), world.feasible(with("shared"))),
        (String::new(), "a".to_owned())
    );
    world.pod("new", "db", with("alone")).tick(2);
    assert_eq!(world.node_of("new"), "-");
    world.0.delete(Kind::Pod, "default", "alone-old");
    world.tick(60);
    assert_eq!(world.node_of("new"), "a");
}
