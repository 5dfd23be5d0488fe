//! The writes of a command: its replacements with their templates, and the records of each step.

use tenon_domain::claim::LaunchFailure;
use tenon_domain::journal::{Decision, JournalRecord};
use tenon_ec2::port::CreateFleetRequest;
use tenon_table::items::{TemplateItem, add_step, from_item};

use super::*;

/// The templates that launches name, and those that the table has for them.
fn templates(cluster: &Cluster) -> (BTreeSet<String>, BTreeSet<String>) {
    let requests = cluster.launches().unwrap().into_iter().map(|launch| launch.request);
    let named = requests
        .flat_map(|request| CreateFleetRequest::from_stored(&request).unwrap().launch_templates)
        .map(|template| template.name);
    let known =
        cluster.all::<TemplateItem>(keys::TEMPLATE).unwrap().into_iter().map(|template| template.name);
    (named.collect(), known.collect())
}

/// A pod of the first node.
fn web(name: &str, cpu: &str, selects: &Value) -> Arc<SeenPod> {
    let mut made = pod(name, cpu, Some("node-0"));
    made["spec"]["nodeSelector"] = selects.clone();
    Arc::new(SeenPod::read(&made).unwrap())
}

#[test]
fn launches_of_one_command_have_each_of_their_templates_once() {
    let check = |pods: [Arc<SeenPod>; 2], expected: usize| {
        let mut cluster = cluster(1);
        let images = [("x86", ImageArchitecture::X86_64), ("arm", ImageArchitecture::Arm64)];
        let images =
            images.map(|(name, arch)| (cluster.world.ec2.add_image(NewImage::named(name, arch)), arch));
        cluster.resolve(&images).unwrap();
        cluster.objects.pods = pods.to_vec();
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(phases(&cluster, ClaimPhase::Disrupting).len(), 1);
        assert_eq!(cluster.launches().unwrap().len(), 2, "the pods need different nodes");
        let (named, known) = templates(&cluster);
        assert_eq!((named.len(), &named), (expected, &known));
    };
    let of = |arch: &str| json!({"kubernetes.io/arch": arch});
    check([web("a", "1500m", &of("amd64")), web("b", "3500m", &of("amd64"))], 1);
    check([web("a", "1500m", &of("amd64")), web("b", "1500m", &of("arm64"))], 2);
}

/// One transaction holds 100 writes. A larger command would fail every look of the cluster.
#[test]
fn a_node_whose_pods_need_too_many_nodes_stays_and_says_so() {
    let check = |pods: usize, phase: ClaimPhase, says: Option<&str>| {
        let mut cluster = cluster(1);
        // Each needs a node of its own.
        cluster.objects.pods = (0..pods).map(|n| web(&format!("web-{n}"), "3500m", &json!({}))).collect();
        cluster.report().unwrap();
        wake(&cluster);
        assert_eq!(phases(&cluster, phase).len(), 1, "{pods} pods");
        let needs = told(&cluster).into_iter().find(|message| message.contains("its pods need"));
        assert_eq!(
            needs.is_some(),
            says.is_some_and(|says| needs.iter().any(|told| told.contains(says))),
            "{needs:?}"
        );
    };
    check(25, ClaimPhase::Disrupting, None);
    check(40, ClaimPhase::Initialized, Some("its pods need 40 new nodes"));
}

#[test]
fn a_template_that_ec2_has_already_is_used_as_it_is() {
    let first = cluster(1);
    wake(&first);
    let made = first.all::<TemplateItem>(keys::TEMPLATE).unwrap().remove(0);
    // The same world needs the same template, which an earlier launch left behind.
    let second = cluster(1);
    let earlier = second.world.clock.now() - SignedDuration::from_hours(1);
    let made = TemplateItem { created_at: earlier, used_at: earlier, made_at: Some(earlier), ..made };
    second.put(set(keys::template(&second.name, &made.name), &made)).unwrap();
    wake(&second);
    assert_eq!(second.launches().unwrap().len(), 1);
    assert_eq!(second.all::<TemplateItem>(keys::TEMPLATE).unwrap(), [made]);
}

#[test]
fn a_replacement_that_failed_is_planned_anew_and_named_no_more() {
    let cluster = cluster(1);
    wake(&cluster);
    let began = cluster.world.clock.now();
    let failed = phases(&cluster, ClaimPhase::Planned).remove(0);
    let failure = LaunchFailure { reason: "InsufficientCapacityError".to_owned(), message: String::new() };
    cluster.world.clock.advance(SignedDuration::from_secs(10));
    let at = cluster.world.clock.now();
    let ended = failed.stepped(ClaimState::LaunchFailed { at, failure }).unwrap();
    let step = vec![set(keys::claim(&cluster.name, &ended.name), &ended), add_step(&cluster.name)];
    block_on(cluster.world.table.commit(&tenon_table::content_commit(Vec::new(), step))).unwrap();
    cluster.beat(at).unwrap();
    wake(&cluster);
    let planned: Vec<ClaimName> =
        phases(&cluster, ClaimPhase::Planned).into_iter().map(|claim| claim.name).collect();
    assert_eq!((planned.len(), cluster.launches().unwrap().len()), (1, 2));
    let command = cluster.all::<Command>(keys::COMMAND).unwrap().remove(0);
    assert_eq!(command.replacements, planned);
    let CommandState::Replacing { since, attempts, not_before, .. } = command.state else {
        panic!("{command:?}")
    };
    assert_eq!((since, attempts), (began, 1));
    assert!(not_before > at, "{not_before}");
    // It drains for the new one.
    initialize(&cluster);
    wake(&cluster);
    assert_eq!(phases(&cluster, ClaimPhase::Draining).len(), 1);
}

#[test]
fn a_node_whose_drift_is_over_is_given_back_and_told() {
    let cluster = cluster(1);
    wake(&cluster);
    assert_eq!(actions(&cluster)[0].kind, ActionKind::Disrupt);
    let before = ImageId::parse("ami-0123456789abcdef0").unwrap();
    cluster.world.clock.advance(SignedDuration::from_secs(10));
    cluster.resolve(&[(before, ImageArchitecture::X86_64)]).unwrap();
    cluster.beat(cluster.world.clock.now()).unwrap();
    wake(&cluster);
    let kept = phases(&cluster, ClaimPhase::Initialized).remove(0);
    assert_eq!((kept.name.as_str(), kept.drift), ("default-0", None));
    assert_ne!(actions(&cluster)[0].kind, ActionKind::Disrupt);
    let command = cluster.all::<Command>(keys::COMMAND).unwrap().remove(0);
    assert!(matches!(command.state, CommandState::Done { .. }), "{command:?}");
    let told = told(&cluster);
    assert!(told.contains(&"keeping NodeClaim `default-0`: it is no longer drifted".to_owned()), "{told:?}");
}

#[test]
fn each_step_of_a_claim_is_told_in_its_journal() {
    let cluster = cluster(1);
    wake(&cluster);
    let replacement = phases(&cluster, ClaimPhase::Planned).remove(0).name;
    initialize(&cluster);
    wake(&cluster);
    let of_claim = |pk: &str| pk == "JOURNAL#prod#claim#default-0";
    let items = cluster.world.table.dump().filter(|(key, _)| of_claim(&key.pk));
    let told: Vec<JournalRecord> = items.map(|(key, item)| from_item(&key, &item).unwrap()).collect();
    let decisions: Vec<Decision> = told.iter().map(|record| record.decision).collect();
    assert_eq!(decisions, [Decision::Drifted, Decision::Disrupting, Decision::Draining], "{told:?}");
    assert!(told.iter().all(|record| record.by == "disruption" && !record.evidence.is_empty()), "{told:?}");
    assert_eq!(told[0].details["from"], "ami-0123456789abcdef0");
    assert_eq!(told[1].details["replacements"], replacement.as_str());
    let disrupting = "disrupting NodeClaim `default-0` (drifted): it drains when its replacement";
    assert_eq!(told[1].message, format!("{disrupting} `{replacement}` is ready"));
    assert_eq!(told[2].message, "draining NodeClaim `default-0` (drifted): its replacement is ready");
    let of_replacement = format!("JOURNAL#prod#claim#{replacement}");
    let mut planned = cluster.world.table.dump().filter(|(key, _)| key.pk == of_replacement);
    let planned: JournalRecord = planned.next().map(|(key, item)| from_item(&key, &item).unwrap()).unwrap();
    let begins = format!("planned NodeClaim `{replacement}` to replace `default-0`, for ");
    assert!(planned.message.starts_with(&begins), "{}", planned.message);
    // A day's list names them, too.
    let days =
        cluster.world.table.dump().filter(|(key, _)| {
            key.pk.starts_with("JOURNAL#prod#day#") && key.sk.contains("#claim#default-0#")
        });
    assert_eq!(days.count(), 3);
}

/// Its status belongs to an earlier spec, so nodes from it count as current.
#[test]
fn a_class_that_is_not_resolved_yet_drifts_nothing() {
    let mut cluster = cluster(1);
    let mut changed = Value::clone(&*cluster.objects.node_classes[0]);
    changed["metadata"]["generation"] = json!(2);
    cluster.objects.node_classes = vec![Arc::new(changed)];
    cluster.report().unwrap();
    wake(&cluster);
    assert!(cluster.claims().unwrap().iter().all(|claim| claim.drift.is_none()));
    assert!(cluster.all::<Command>(keys::COMMAND).unwrap().is_empty());
}

/// The sentences of the journal that the function wrote.
fn told(cluster: &Cluster) -> Vec<String> {
    let items = cluster.world.table.dump().filter(|(key, _)| key.pk.starts_with("JOURNAL#prod#"));
    let records = items.filter_map(|(key, item)| from_item::<JournalRecord>(&key, &item).ok());
    records.filter(|record| record.by == "disruption").map(|record| record.message).collect()
}

#[test]
fn missing_evidence_is_told() {
    let cluster = cluster(1);
    cluster.world.clock.advance(SignedDuration::from_mins(5));
    wake(&cluster);
    let told = told(&cluster);
    assert!(told[0].starts_with("disruption waits: "), "{told:?}");
}

#[test]
fn a_replacement_that_can_not_be_launched_is_told() {
    let mut cluster = cluster(1);
    let mut class = Value::clone(&*cluster.objects.node_classes[0]);
    class["spec"]["userData"] = json!("MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nx");
    cluster.objects.node_classes = vec![Arc::new(class)];
    cluster.report().unwrap();
    wake(&cluster);
    assert_eq!(cluster.launches().unwrap().len(), 0);
    let told = told(&cluster);
    assert!(told.iter().any(|told| told.starts_with("not launching NodeClaim `")), "{told:?}");
}

/// A pod of Karpenter's Deployment that works.
fn karpenter() -> Arc<SeenPod> {
    let mut made = pod("karpenter-1", "1", Some("system-1"));
    made["metadata"]["namespace"] = json!("kube-system");
    made["metadata"]["labels"] = json!({"app.kubernetes.io/name": "karpenter"});
    made["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    Arc::new(SeenPod::read(&made).unwrap())
}

#[test]
fn no_command_begins_while_karpenter_runs() {
    let mut cluster = cluster(2);
    cluster.objects.pods.push(karpenter());
    cluster.report().unwrap();
    wake(&cluster);
    assert!(cluster.all::<Command>(keys::COMMAND).unwrap().is_empty());
    assert_eq!(cluster.claims().unwrap().iter().filter(|claim| claim.drift.is_some()).count(), 2);
    let messages = told(&cluster);
    let begins = [
        "disruption waits: Karpenter runs (pod `kube-system/karpenter-1`)",
        "not disrupting 2 NodeClaims (`default-0`, `default-1`) now: Karpenter runs, which has the same NodePools",
    ];
    for expected in begins {
        assert!(messages.iter().any(|told| told.starts_with(expected)), "{expected}: {messages:?}");
    }
    cluster.objects.pods.pop();
    cluster.report().unwrap();
    wake(&cluster);
    assert_eq!(cluster.all::<Command>(keys::COMMAND).unwrap().len(), 1, "the budget is one");
}
