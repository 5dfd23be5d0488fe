//! What files count as, and what they are warned of.

use super::*;
use crate::api::storage::ClaimUsers;

fn warned(text: &str) -> (ReadManifests, Vec<String>) {
    let read = read_files(&[("a.yaml", text)]).unwrap_or_else(|errors| panic!("{text}: {errors}"));
    let warnings = read.warnings.iter().map(|warning| format!("{}: {}", warning.field, warning.message));
    let warnings = warnings.collect();
    (read, warnings)
}

fn refused(text: &str) -> String {
    read_files(&[("a.yaml", text)]).map(|_| ()).expect_err(text).to_string()
}

fn pod(spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a, labels: {{app: web}}}}\nspec: {spec}\n")
}

/// A pod with one container of these fields.
fn container(fields: &str) -> String {
    pod(&format!("{{containers: [{{name: a, {fields}}}]}}"))
}

fn names(text: &str) -> Vec<String> {
    let (read, _) = warned(text);
    expand_workloads(&read.manifests).iter().map(|pod| pod.name.to_string()).collect()
}

#[test]
fn a_job_makes_the_pods_that_are_left_to_do() {
    let check = |spec: &str, status: &str, expected: usize| {
        let job = format!(
            "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{{spec} template: {{spec: \
             {{containers: [{{name: a}}]}}}}}}\nstatus: {status}\n"
        );
        assert_eq!(names(&job).len(), expected, "{job}");
    };
    check("", "{}", 1);
    check("", "{active: 1, startTime: \"2026-01-01T00:00:00Z\"}", 1);
    check("", "{succeeded: 1, conditions: [{type: Complete, status: \"True\"}]}", 0);
    check("", "{failed: 7, conditions: [{type: Failed, status: \"True\"}]}", 0);
    check("parallelism: 3,", "{conditions: [{type: Complete, status: \"False\"}]}", 3);
    check("suspend: true, parallelism: 3,", "{}", 0);
    check("parallelism: 5, completions: 5,", "{succeeded: 3}", 2);
    check("parallelism: 2, completions: 9,", "{succeeded: 3}", 2);
    // A queue of work: nothing starts once one has succeeded.
    check("parallelism: 5,", "{succeeded: 1, active: 2}", 2);
    check("parallelism: 5,", "{}", 5);
    let indexed = "completionMode: Indexed, parallelism: 9, completions: 9, backoffLimitPerIndex: 1,";
    check(indexed, "{}", 9);
    check(indexed, "{succeeded: 2, completedIndexes: \"1,5\", failedIndexes: \"0,2-4\"}", 3);
    check(indexed, "{failedIndexes: \"0-8\"}", 0);
    check(indexed, "{failedIndexes: \"a,3-1,7\"}", 8);
}

#[test]
fn a_finished_pod_waits_for_no_node_and_its_job_makes_no_other() {
    let owned = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {containers: [{name: \
                 a}]}}}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: j-x, ownerReferences: [{kind: Job, name: j, \
                 uid: u, controller: true}]}\nspec: {containers: [{name: a}]}\nstatus: {phase: Succeeded}\n";
    assert!(names(owned).is_empty());
    assert!(!warned(owned).0.manifests.pods[0].is_unbound());
}

#[test]
fn a_stateful_set_counts_from_its_first_ordinal() {
    let set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: web}\nspec:\n  replicas: 2\n  ordinals: {start: 5}\n  \
               template: {spec: {containers: [{name: a}]}}\n  volumeClaimTemplates: [{metadata: {name: data}}]\n---\n\
               apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data-web-5}\nspec: {}\n";
    assert_eq!(names(set), ["default/statefulset/web-5", "default/statefulset/web-6"]);
    let (read, _) = warned(set);
    let pods = expand_workloads(&read.manifests);
    assert_eq!(pods[0].shape.volumes, [crate::api::pod::PodVolume::Claim("data-web-5".to_owned())]);
}

#[test]
fn typos_in_a_pods_spec_and_containers_are_warned_of_and_named() {
    let check = |text: &str, field: &str, remedy: &str| {
        let (read, warnings) = warned(text);
        let shape = &read.manifests.pods[0].shape;
        assert_eq!(shape.unknown, [field], "{text}");
        assert_eq!(shape.meant, remedy.split('`').nth(1), "{text}");
        assert_eq!(read.warnings[0].remedy, remedy, "{warnings:?}");
    };
    let beside = |field: &str| pod(&format!("{{containers: [{{name: a}}], {field}}}"));
    check(&beside("nodeSelectr: {a: b}"), "spec.nodeSelectr", "did you mean `nodeSelector`?");
    check(&beside("dnsPolice: None"), "spec.dnsPolice", "did you mean `dnsPolicy`?");
    check(&beside("workloadRef: {name: w}"), "spec.workloadRef", "leave it out");
    let resource = container("resource: {requests: {cpu: 1}}");
    check(&resource, "spec.containers[0].resource", "did you mean `resources`?");
    let template = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: a}\nspec: {selector: {matchLabels: {a: b}}, template: \
                    {metadata: {labels: {a: b}}, spec: {containers: [{name: a}], nodeSelectr: {a: b}}}}\n";
    let (read, _) = warned(template);
    assert_eq!(read.manifests.workloads[0].template.unknown, ["spec.template.spec.nodeSelectr"]);
}

#[test]
fn typos_in_a_controllers_own_spec_are_warned_of_and_its_pods_stay() {
    let check = |head: &str, typo: &str, expected: &[&str]| {
        let template = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a}]}}";
        let text = format!("{head}metadata: {{name: a}}\nspec: {{{typo}, {template}}}\n");
        let (read, warnings) = warned(&text);
        let told: Vec<&str> = read.warnings.iter().map(|one| one.remedy.as_str()).collect();
        assert_eq!(told, expected, "{text}: {warnings:?}");
        let templates = read.manifests.workloads.iter().map(|workload| &workload.template);
        let mut all = templates.chain(read.manifests.daemon_sets.iter().map(|set| &set.template));
        assert!(all.all(|template| template.unknown.is_empty()), "{text}");
    };
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        let head = format!("apiVersion: apps/v1\nkind: {kind}\n");
        check(&head, "replcias: 3", &["did you mean `replicas`?"]);
        check(&head, "minReadySecond: 3", &["did you mean `minReadySeconds`?"]);
        check(&head, "minReadySeconds: 3, revisionHistoryLimit: 1", &[]);
    }
    let job = "apiVersion: batch/v1\nkind: Job\n";
    check(job, "paralellism: 3", &["did you mean `parallelism`?"]);
    check(job, "backoffLimit: 3, ttlSecondsAfterFinished: 60, completionMode: Indexed", &[]);
    let cron = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a}\nspec: {schedule: '* * * * *', jobTemplate: {spec: \
                {completion: 2, template: {spec: {containers: [{name: a}]}}}}}\n";
    let (read, _) = warned(cron);
    assert_eq!(read.warnings[0].field, "spec.jobTemplate.spec.completion");
    assert_eq!(read.warnings[0].message, "unknown field, so ignored");
}

#[test]
fn a_claim_with_an_access_mode_for_one_pod_has_one_user() {
    let check = |modes: &str, expected: ClaimUsers| {
        let text = format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data}}\nspec: {{{modes}}}\n"
        );
        assert_eq!(warned(&text).0.manifests.persistent_volume_claims[0].users, expected, "{modes}");
    };
    check("accessModes: [ReadWriteOncePod]", ClaimUsers::OnePod);
    check("accessModes: [ReadWriteOnce]", ClaimUsers::Many);
    check("accessModes: [ReadWriteMany, ReadWriteOncePod]", ClaimUsers::OnePod);
    check("", ClaimUsers::Many);
}

#[test]
fn a_real_pod_gets_no_warning() {
    let text = "\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  automountServiceAccountToken: false
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  ephemeralContainers: [{name: debug, image: busybox, targetContainerName: a}]
  hostUsers: false
  imagePullSecrets: [{name: s}]
  os: {name: linux}
  preemptionPolicy: PreemptLowerPriority
  readinessGates: [{conditionType: example.com/ready}]
  restartPolicy: Always
  runtimeClassName: gvisor
  securityContext: {fsGroup: 1}
  serviceAccount: a
  serviceAccountName: a
  volumes: [{name: v, configMap: {name: c}}, {name: p, projected: {sources: []}}]
  initContainers: [{name: i, image: b, restartPolicy: Always, restartPolicyRules: []}]
  containers:
    - name: a
      image: b
      imagePullPolicy: IfNotPresent
      command: [a]
      args: [b]
      env: [{name: A, value: b}]
      lifecycle: {preStop: {sleep: {seconds: 5}}}
      livenessProbe: {httpGet: {path: /, port: 80}}
      ports: [{name: http, containerPort: 80}]
      resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: File
      volumeMounts: [{name: v, mountPath: /v}]
";
    let (read, warnings) = warned(text);
    assert_eq!(warnings, [""; 0]);
    assert_eq!(read.manifests.pods[0].shape.unknown, [""; 0]);
}

/// A text with one field that an API server refuses, unless it has accepted the object.
fn check_refused(text: &str, field: &str, message: &str) {
    let (_, warnings) = warned(text);
    let expected = format!("{field}: {message}: an API server refuses it");
    assert_eq!(warnings, [expected], "{text}");
    let accepted = text.replace("metadata: {name: a", "metadata: {uid: u, name: a");
    assert_eq!(warned(&accepted).1, [""; 0], "{accepted}");
}

#[test]
fn what_an_api_server_refuses_is_warned_of() {
    let check = check_refused;
    let resources = |of: &str| container(&format!("resources: {of}"));
    let requests = "spec.containers[0].resources.requests";
    let half = resources("{limits: {nvidia.com/gpu: 500m}}");
    check(&half, "spec.containers[0].resources.limits[nvidia.com/gpu]", "`500m` is a part of a device");
    let gpu = format!("{requests}[nvidia.com/gpu]");
    check(&resources("{requests: {nvidia.com/gpu: 1}}"), &gpu, "the request has no limit");
    let unlike = resources("{requests: {nvidia.com/gpu: 1}, limits: {nvidia.com/gpu: 2}}");
    check(&unlike, &gpu, "the request `1` isn't the limit `2`");
    let above = resources("{requests: {cpu: 2}, limits: {cpu: 1}}");
    check(&above, &format!("{requests}.cpu"), "the request `2` exceeds the limit `1`");
    let beside = |field: &str| pod(&format!("{{containers: [{{name: a}}], {field}}}"));
    let level = "{resources: {requests: {cpu: 1}}, containers: [{name: a, resources: {requests: {cpu: 2}}}]}";
    let message = "`1` is less than the containers' requests, `2`";
    check(&pod(level), "spec.resources.requests.cpu", message);
    check(
        &beside("tolerations: [{key: a, operator: Exists, value: b}]"),
        "spec.tolerations[0].value",
        "operator `Exists` takes no value",
    );
    check(
        &beside("tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 3}]"),
        "spec.tolerations[0].tolerationSeconds",
        "`tolerationSeconds` needs `effect: NoExecute`",
    );
    let spread = "maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule";
    check(
        &beside(&format!("topologySpreadConstraints: [{{{spread}}}, {{{spread}}}]")),
        "spec.topologySpreadConstraints[1]",
        "another constraint has the same `topologyKey` and `whenUnsatisfiable`",
    );
    let keys = "spec.topologySpreadConstraints[0].matchLabelKeys";
    check(
        &beside(&format!("topologySpreadConstraints: [{{{spread}, matchLabelKeys: [app]}}]")),
        keys,
        "`matchLabelKeys` need a `labelSelector`",
    );
    let both = "matchLabelKeys: [app], labelSelector: {matchLabels: {app: web}}";
    check(
        &beside(&format!("topologySpreadConstraints: [{{{spread}, {both}}}]")),
        keys,
        "`labelSelector` has `app` too",
    );
    check(
        &container("ports: [{hostPort: 80, containerPort: 80}, {hostPort: 80, containerPort: 81}]"),
        "spec.containers[0].ports[1]",
        "host port `80` is given twice",
    );
    let of_addresses = |a: &str, b: &str| {
        let port = |n: u16, ip: &str| format!("{{hostPort: 80, containerPort: {n}, hostIP: \"{ip}\"}}");
        container(&format!("ports: [{}, {}]", port(80, a), port(81, b)))
    };
    let same = of_addresses("10.0.0.1", "10.0.0.1");
    check(&same, "spec.containers[0].ports[1]", "host port `80` is given twice");
    // An API server compares the addresses as they are written.
    assert_eq!(warned(&of_addresses("", "0.0.0.0")).1, [""; 0]);
}

#[test]
fn a_selector_that_an_api_server_refuses_is_warned_of() {
    let set = |selector: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: a}}\nspec: {{{selector} template: {{metadata: \
             {{labels: {{a: b}}}}, spec: {{containers: [{{name: a}}]}}}}}}\n"
        )
    };
    check_refused(&set(""), "spec.selector", "required, but not given");
    let other = set("selector: {matchLabels: {a: c}},");
    check_refused(&other, "spec.selector", "selects other pods than the template's");
    for empty in ["{}", "{matchLabels: {}}"] {
        let message = "selects nothing: `matchLabels` or `matchExpressions` are required";
        check_refused(&set(&format!("selector: {empty},")), "spec.selector", message);
    }
    let message = "operator `In` of `a` needs at least one value";
    let unreadable = set("selector: {matchExpressions: [{key: a, operator: In}]},");
    check_refused(&unreadable, "spec.selector", message);
    assert_eq!(warned(&set("selector: {matchLabels: {a: b}},")).1, [""; 0]);
}

#[test]
fn a_file_without_objects_is_warned_of() {
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nitems: {items}\n");
    let (empty, null, nested) =
        (list("[]"), list("null"), list("[{apiVersion: v1, kind: PodList, items: null}]"));
    for text in ["", "\n# nothing\n", "---\n---\n", &empty, &null, &nested] {
        assert_eq!(warned(text).1, [": it holds no object"], "{text}");
    }
}

#[test]
fn lists_have_items() {
    let list = |items: &str| format!("apiVersion: v1\nkind: List\nmetadata: {{}}\n{items}\n");
    assert!(refused(&list("")).contains("items: required, but not given"));
    assert!(refused(&list("items: {a: b}")).contains("a.yaml:4: items: expected a list"));
    assert!(refused("apiVersion: v1\nkind: PodList\nitems: 3\n").contains("items: expected a list"));
}

#[test]
fn a_former_version_of_a_kind_is_an_error_and_another_groups_kind_is_skipped() {
    let of = |version: &str, kind: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n")
    };
    let former = refused(&of("extensions/v1beta1", "Deployment"));
    assert!(former.contains("has no kind `Deployment` (write `apps/v1`)"), "{former}");
    for (version, kind) in [("extensions/v1beta1", "Ingress"), ("foo.io/v1", "Pod")] {
        assert_eq!(warned(&of(version, kind)).0.manifests.skipped, [kind]);
    }
}

#[test]
fn a_number_beyond_a_bound_is_told_the_bound() {
    let told = refused(&pod("{containers: [{name: a}], priority: 99999999999}"));
    assert!(
        told.contains("expected an integer from -2147483648 to 2147483647, found `99999999999`"),
        "{told}"
    );
}
