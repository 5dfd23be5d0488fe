//! Unknown fields in objects of an API server and in files.

use super::*;
use crate::catalog::settings::KubeletProblem;
use serde_json::json;

fn stored(value: &Value) -> ManifestObject {
    read_stored(value).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The value with one more field at a JSON pointer, whose parents are created.
fn with(value: &Value, pointer: &str, field: Value) -> Value {
    let mut all = value.clone();
    let mut at = &mut all;
    for step in pointer.split('/').skip(1) {
        at = match step.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[step],
        };
    }
    *at = field;
    all
}

fn meta(name: &str) -> Value {
    json!({"name": name, "resourceVersion": "7", "managedFields": [{"manager": "kubectl"}]})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta("web"), "spec": {
        "containers": [{"name": "web", "image": "web:1", "env": [{"name": "A", "value": "secret"}],
            "resources": {"requests": {"cpu": "1"}}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}}})
}

fn pool() -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": meta("default"), "spec": {"template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []}}}})
}

fn class() -> Value {
    json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": meta("default"), "spec": {
        "amiFamily": "AL2023", "role": "nodes", "amiSelectorTerms": [{"id": "ami-1"}],
        "subnetSelectorTerms": [{"id": "subnet-1"}], "securityGroupSelectorTerms": [{"id": "sg-1"}]}})
}

fn claim() -> Value {
    json!({"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": meta("default-abcde"), "spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []}})
}

#[test]
fn fields_of_a_newer_kubernetes_are_ignored() {
    let template = json!({"metadata": {"creationTimestamp": null}, "spec": pod()["spec"]});
    let object = |version: &str, kind: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": meta("a"), "spec": spec, "status": {}});
    for value in [
        object("v1", "Node", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]})),
        object("apps/v1", "Deployment", json!({"template": template})),
        object("apps/v1", "DaemonSet", json!({"template": template})),
        object("v1", "PersistentVolumeClaim", json!({"storageClassName": "gp3"})),
        object("v1", "PersistentVolume", json!({"csi": {"driver": "ebs.csi.aws.com"}})),
        object("policy/v1", "PodDisruptionBudget", json!({"maxUnavailable": 1})),
        pod(),
    ] {
        let known = stored(&value);
        for pointer in ["/new", "/metadata/new", "/spec/new", "/status/new"] {
            let newer = with(&value, pointer, json!({"a": [1]}));
            assert_eq!(stored(&newer), known, "{pointer}: {newer}");
        }
    }
    let node = object("v1", "Node", json!({"taints": [{"key": "a", "effect": "NoSchedule"}]}));
    assert_eq!(stored(&with(&node, "/spec/taints/0/new", json!(1))), stored(&node));
    // A DaemonSet's template counts with its known fields, so that its overhead on a node stays; its pods are refused.
    let set = object("apps/v1", "DaemonSet", json!({"template": template}));
    assert_eq!(stored(&with(&set, "/spec/template/spec/affinity/new", json!({}))), stored(&set));
}

#[test]
fn unknown_fields_of_karpenters_specs_are_named() {
    let check = |value: &Value, fields: &[(&str, &str)]| {
        let mut newer = with(value, "/status", json!({"new": 1}));
        newer["metadata"]["new"] = json!(1);
        for (pointer, _) in fields {
            newer = with(&newer, pointer, json!({"a": 1}));
        }
        let read = stored(&newer);
        let unknown = if let ManifestObject::NodePool(pool) = &read {
            &pool.unknown
        } else if let ManifestObject::NodeClaim(claim) = &read {
            &claim.unknown
        } else if let ManifestObject::NodeClass(class) = &read {
            &class.unsupported
        } else {
            panic!("{read:?}")
        };
        assert_eq!(*unknown, fields.iter().map(|(_, place)| *place).collect::<Vec<_>>());
    };
    check(
        &pool(),
        &[
            ("/spec/disruption/new", "spec.disruption.new"),
            ("/spec/new", "spec.new"),
            ("/spec/template/spec/nodeClassRef/new", "spec.template.spec.nodeClassRef.new"),
        ],
    );
    check(
        &class(),
        &[("/spec/amiSelectorTerms/0/new", "spec.amiSelectorTerms[0].new"), ("/spec/new", "spec.new")],
    );
    check(&claim(), &[("/spec/new", "spec.new")]);
    assert_eq!(stored(&pool()), stored(&with(&pool(), "/status/new", json!(1))));
}

#[test]
fn unknown_fields_that_may_place_a_pod_are_named_and_others_are_not() {
    let unknown = |pointer: &str| {
        let ManifestObject::Pod(pod) = stored(&with(&pod(), pointer, json!({"a": 1}))) else {
            panic!("{pointer}")
        };
        pod.shape.unknown.clone()
    };
    for (pointer, place) in [
        ("/spec/affinity/new", "spec.affinity.new"),
        (
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/new",
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].new",
        ),
        ("/spec/topologySpreadConstraints/0/new", "spec.topologySpreadConstraints[0].new"),
        ("/spec/tolerations/0/new", "spec.tolerations[0].new"),
        ("/spec/resources/new", "spec.resources.new"),
        ("/spec/containers/0/resources/new", "spec.containers[0].resources.new"),
    ] {
        assert_eq!(unknown(pointer), [place]);
    }
    for pointer in
        ["/spec/new", "/spec/containers/0/new", "/spec/containers/0/env/0/new", "/metadata/labels2"]
    {
        assert_eq!(unknown(pointer), [""; 0], "{pointer}");
    }
}

#[test]
fn files_are_strict_about_karpenters_kinds_and_warn_of_pods() {
    let text = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    let told = |text: &str| read_files(&[("a.json", text)]).unwrap_err().to_string();
    let warned = |text: &str| read_files(&[("a.json", text)]).unwrap().warnings[0].to_string();
    let toleration = text(&with(&pod(), "/spec/tolerations/0/tolerationSecond", json!(3)));
    let line = toleration.lines().position(|line| line.contains("tolerationSecond")).unwrap() + 1;
    let expected = "spec.tolerations[0].tolerationSecond: unknown field that may affect placement: pods with it get no \
                    node (did you mean `tolerationSeconds`?)";
    assert_eq!(warned(&toleration), format!("a.json:{line}: {expected}"));
    let pool = told(&text(&with(&pool(), "/metadata/label", json!({}))));
    assert!(pool.contains("metadata.label: unknown field (did you mean `labels`?)"), "{pool}");
    assert!(read_files(&[("a.json", &class().to_string())]).is_ok());
}

#[test]
fn what_a_file_gets_a_warning_for_is_named_on_the_object_of_a_cluster() {
    let budget = json!({"nodes": "1", "schedule": "0 99 * * *", "duration": "1h"});
    let pool = with(&pool(), "/spec/disruption/budgets", json!([budget]));
    let pool = with(&pool, "/metadata/annotations", json!({"tenon.dev/budget-time-zone": "Mars/Base"}));
    let ManifestObject::NodePool(read) = stored(&pool) else { panic!("{pool}") };
    let [schedule, zone] = read.warnings.as_slice() else { panic!("{:?}", read.warnings) };
    let (place, remedy) = (
        "spec.disruption.budgets[0].schedule: `0 99 * * *` can't be understood: ",
        "(correct it: until then",
    );
    assert!(schedule.starts_with(place) && schedule.contains(remedy), "{schedule}");
    assert!(
        zone.contains("annotation `tenon.dev/budget-time-zone` is `Mars/Base`; write a time zone"),
        "{zone}"
    );
    let terms = json!([{"id": "subnet-0123456789abcdef0", "tags": {"team": "a"}}, {"tags": {"team": "b"}}]);
    let class = with(&class(), "/spec/subnetSelectorTerms", terms);
    let ManifestObject::NodeClass(read) = stored(&class) else { panic!("{class}") };
    let mixed = "spec.subnetSelectorTerms[0]: `id` can't be combined with `tags`; only `id` counts";
    assert!(read.warnings.len() == 1 && read.warnings[0].starts_with(mixed), "{:?}", read.warnings);
}

#[test]
fn a_pause_that_is_neither_true_nor_false_pauses_and_is_told() {
    let check = |value: &str, told: bool| {
        let pool = with(&pool(), "/metadata/annotations", json!({"tenon.dev/pause-disruption": value}));
        let ManifestObject::NodePool(read) = stored(&pool) else { panic!("{pool}") };
        let expected = format!(
            "metadata.annotations: annotation `tenon.dev/pause-disruption` is `{value}`; write `true` or `false` (any value \
             but `false` pauses voluntary disruption)"
        );
        assert_eq!(read.warnings, if told { vec![expected] } else { Vec::new() });
        assert_eq!(read.is_paused(), value != "false");
    };
    check("true", false);
    check("false", false);
    for value in ["yes", "no", "0", ""] {
        check(value, true);
    }
}

#[test]
fn nothing_is_kept_but_what_is_read() {
    let kept = |kind: &str, mut value: Value| {
        keep(kind, &mut value);
        let once = value.clone();
        keep(kind, &mut value);
        assert_eq!(value, once, "{kind}: kept again");
        value
    };
    let newer = with(&with(&pod(), "/spec/new", json!(1)), "/spec/tolerations/0/new", json!(1));
    let pod = kept("Pod", newer);
    assert_eq!(pod["spec"]["containers"], json!([{"name": "web", "resources": {"requests": {"cpu": "1"}}}]));
    assert_eq!((&pod["spec"]["new"], &pod["metadata"]["managedFields"]), (&Value::Null, &Value::Null));
    assert_eq!(pod["spec"]["tolerations"][0]["new"], 1);
    // An invalid value stays in the object, and other unread fields are still dropped.
    let wrong = kept(
        "Pod",
        with(&super::stored_tests::pod(), "/spec/containers/0/resources/requests/cpu", json!("many")),
    );
    assert_eq!(
        wrong["spec"]["containers"],
        json!([{"name": "web", "resources": {"requests": {"cpu": "many"}}}])
    );
    let pool = kept("NodePool", with(&with(&pool(), "/spec/new", json!(1)), "/status/conditions", json!([])));
    assert_eq!((&pool["spec"]["new"], &pool["status"]), (&json!(1), &json!({"conditions": []})));
    assert_eq!(pool["metadata"], json!({"name": "default", "resourceVersion": "7"}));
}

#[test]
fn all_errors_of_an_object_come_together() {
    let text = "\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  weight: 101
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: Default}
      requirements:
        - {key: a, operator: Inn, values: [x]}
        - {key: karpenter.sh/nodepool, operator: Exists}
      taints: [{key: a, effect: Never, valeu: b}]
  limits: {cpu: many}
";
    let errors = read_files(&[("a.yaml", text)]).unwrap_err();
    let found: Vec<(u32, &str)> = errors.0.iter().map(|e| (e.line.unwrap(), e.field.as_str())).collect();
    assert_eq!(
        found,
        [
            (5, "spec.weight"),
            (8, "spec.template.spec.nodeClassRef.name"),
            (10, "spec.template.spec.requirements[0].operator"),
            (12, "spec.template.spec.taints[0].effect"),
            (12, "spec.template.spec.taints[0].valeu"),
            (13, "spec.limits.cpu"),
        ]
    );
}

#[test]
fn what_is_wrong_is_told_by_its_field_alone() {
    let wrong =
        with(&pool(), "/spec/template/spec/requirements", json!([{"key": "a", "operator": "Around"}]));
    let (stored, strict) = (read_stored(&wrong).unwrap_err(), read_value(&wrong, "pool").unwrap_err());
    let told = stored.0[0].to_string();
    assert!(told.starts_with("spec.template.spec.requirements[0].operator: `Around`"), "{told}");
    assert_eq!(strict.0[0].to_string(), format!("pool: {told}"));
}

/// An API server accepts any field of the kubelet's, and only the class's conditions can say what is wrong.
#[test]
fn a_stored_class_is_read_with_the_problem_of_its_kubelet() {
    let invalid = |text: &str| Some(KubeletProblem::Invalid(text.to_owned()));
    let unsupported = |text: &str| Some(KubeletProblem::Unsupported(text.to_owned()));
    let check = |family: &str, kubelet: Value, expected: Option<KubeletProblem>| {
        let value = with(&with(&class(), "/spec/amiFamily", json!(family)), "/spec/kubelet", kubelet);
        let ManifestObject::NodeClass(read) = stored(&value) else { panic!("{value}") };
        assert_eq!(read.settings.kubelet.problem, expected, "{value}");
        let strict = read_value(&value, "file").map(|_| ());
        assert_eq!(strict.is_err(), expected.is_some(), "{value}: {strict:?}");
    };
    let not_passed_on = |family: &str| {
        unsupported(&format!(
            "`spec.kubelet.cpuManagerPolicy`: AMI family `{family}` doesn't pass this field on to the kubelet (leave it \
             out, or use `AL2023`)"
        ))
    };
    let policy = || json!({"cpuManagerPolicy": "static"});
    check("AL2023", policy(), None);
    check("Custom", policy(), None);
    for family in ["AL2", "Bottlerocket", "Windows2022"] {
        check(family, policy(), not_passed_on(family));
    }
    let addresses = || json!({"clusterDNS": ["10.0.0.10", "10.0.0.11"]});
    check("AL2023", addresses(), None);
    let one = "`spec.kubelet.clusterDNS`: AMI family `AL2` takes one address (keep one)";
    check("AL2", addresses(), unsupported(one));
    let per_core =
        "`spec.kubelet.podsPerCore`: AMI family `Bottlerocket` doesn't know `podsPerCore` (write `maxPods`)";
    check("Bottlerocket", json!({"podsPerCore": 10}), unsupported(per_core));
    check("Windows2019", json!({"podsPerCore": 10, "maxPods": 110}), None);
    let unknown = "`spec.kubelet.maxPod`: unknown field (did you mean `maxPods`?)";
    check("AL2023", json!({"maxPod": 10}), invalid(unknown));
    let wrong = "`spec.kubelet.cpuManagerPolicy`: expected a string (write a string)";
    check("AL2023", json!({"cpuManagerPolicy": 1}), invalid(wrong));
    let many = "`spec.kubelet.maxPods`: expected an integer, found the string `many` (write an integer)";
    check("AL2", json!({"maxPods": "many", "cpuManagerPolicy": "static"}), invalid(many));
    let taints = "`spec.kubelet.registerWithTaints`: node taints can't be set here (write `taints` in the NodePool's template)";
    check("Custom", json!({"registerWithTaints": []}), invalid(taints));
}

#[test]
fn what_a_node_may_attach_and_whom_a_service_selects_is_read_and_the_rest_is_dropped() {
    let meta = json!({"name": "a", "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": "a,b"}});
    let node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": {"drivers": [
        {"name": "ebs.csi.aws.com", "nodeID": "i-0abc", "topologyKeys": ["topology.kubernetes.io/zone"],
            "allocatable": {"count": 25}},
        {"name": "efs.csi.aws.com", "nodeID": "i-0abc", "topologyKeys": null}]}});
    let ManifestObject::CsiNode(read) = stored(&node) else { panic!("{node}") };
    let drivers = [("ebs.csi.aws.com".to_owned(), Some(25)), ("efs.csi.aws.com".to_owned(), None)];
    assert_eq!(read.drivers, drivers.into());
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": meta,
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
        "status": {"attached": true, "attachmentMetadata": {"devicePath": "/dev/xvdaa"}}});
    let ManifestObject::VolumeAttachment(read) = stored(&attachment) else { panic!("{attachment}") };
    let read = (read.driver.as_str(), read.node.as_str(), read.volume.as_deref());
    assert_eq!(read, ("ebs.csi.aws.com", "n", Some("pv")));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"selector": {"app": "a"}, "clusterIP": "10.0.0.1", "ports": [{"port": 80}]}, "status": {"loadBalancer": {}}});
    let ManifestObject::Service(read) = stored(&service) else { panic!("{service}") };
    assert_eq!(
        (read.meta.namespace.as_str(), read.selector),
        ("shop", Some([("app".into(), "a".into())].into()))
    );

    let kept = |kind: &str, value: &Value| {
        let mut kept = value.clone();
        super::keep(kind, &mut kept);
        kept.as_object_mut().unwrap().remove("metadata");
        kept
    };
    assert_eq!(
        kept("CSINode", &node)["spec"],
        json!({"drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": 25}}, {"name": "efs.csi.aws.com"}]})
    );
    assert_eq!(kept("Service", &service)["spec"], json!({"selector": {"app": "a"}}));
    assert_eq!(kept("VolumeAttachment", &attachment)["status"], json!({}));
}
