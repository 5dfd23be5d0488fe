//! Dry runs: when EC2 is asked whether it allows launches from a class, and what its answers do.

use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{ClassStatus, ConditionReason, ConditionStatus, ConditionType};
use tenon_domain::id::{ClusterName, ImageId};
use tenon_domain::image::BootMode;
use tenon_domain::launch_verdict::{ClassVerdicts, LaunchVerdict, VerdictOutcome, VerdictSource};
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_ec2::port::ImageArchitecture;
use tenon_table::Key;
use tenon_table::items::form::ItemForm;
use tenon_table::items::{DryRunLease, add_step, keys, set};
use tenon_twin::NewImage;

use super::*;

const SCP: &str = "with an explicit deny in a service control policy";
const NOT_ALLOWED: &str = "because no identity-based policy allows the ec2:RunInstances action";

fn class_key(cluster: &Cluster) -> Key {
    keys::node_class(&cluster.name, &"default".parse().unwrap())
}

fn read<F: ItemForm>(cluster: &Cluster) -> F {
    let key = class_key(cluster);
    from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap()
}

/// The class awaits EC2's word, as `node-classes` writes it after a change.
fn await_validation(cluster: &Cluster) {
    let mut status: ClassStatus = read(cluster);
    status.revision += 1;
    for told in &mut status.conditions {
        if [ConditionType::ValidationSucceeded, ConditionType::Ready].contains(&told.condition) {
            told.status = ConditionStatus::Unknown;
            told.reason = ConditionReason::AwaitingValidation;
            told.since = cluster.world.clock.now();
        }
    }
    cluster.put(set(class_key(cluster), &status)).unwrap();
    cluster.put(add_step(&cluster.name)).unwrap();
}

fn awaiting(pods: usize) -> Cluster {
    let cluster = cluster(pods);
    await_validation(&cluster);
    cluster
}

fn dry_runs(cluster: &Cluster) -> u64 {
    cluster.world.ec2.calls().get(&Call::RunInstances).map_or(0, |count| count.made)
}

fn verdict(cluster: &Cluster, architecture: &Architecture) -> Option<LaunchVerdict> {
    read::<ClassVerdicts>(cluster).of(architecture).cloned()
}

fn outcomes(cluster: &Cluster) -> Vec<String> {
    let word = |verdict: LaunchVerdict| {
        let outcome = match verdict.outcome {
            VerdictOutcome::Allowed => "allowed",
            VerdictOutcome::Unused { .. } => "unused",
            VerdictOutcome::Warned { .. } => "warned",
            VerdictOutcome::Doubted { .. } => "doubted",
            VerdictOutcome::Denied { .. } => "denied",
        };
        format!("{} {outcome} by {}", verdict.architecture.as_str(), verdict.by)
    };
    read::<ClassVerdicts>(cluster).0.into_iter().map(word).collect()
}

/// Wakes until both architectures have an answer.
fn ask_all(cluster: &Cluster) {
    for _ in 0..3 {
        wake(cluster);
        advance(cluster, SignedDuration::from_secs(10));
    }
}

#[test]
fn a_class_is_asked_about_once_for_each_architecture_one_a_wake_and_a_second() {
    let cluster = awaiting(0);
    wake(&cluster);
    assert_eq!(dry_runs(&cluster), 1);
    wake(&cluster);
    assert_eq!(dry_runs(&cluster), 1, "the region asks once a second");
    advance(&cluster, SignedDuration::from_secs(10));
    wake(&cluster);
    assert_eq!(outcomes(&cluster), ["arm64 allowed by dry-run", "x86_64 allowed by dry-run"]);
    let woken = cluster.world.signals.take();
    let of_classes =
        |bell: &&RungBell| matches!(bell, RungBell::Wake { function: FunctionName::NodeClasses, .. });
    assert_eq!(woken.iter().filter(of_classes).count(), 2);
    for _ in 0..2 {
        advance(&cluster, SignedDuration::from_hours(1));
        wake(&cluster);
    }
    assert_eq!(dry_runs(&cluster), 2);
    assert!(cluster.world.ec2.instances().is_empty());
}

/// The lease is the region's.
#[test]
fn a_cluster_that_waits_for_a_dry_run_goes_before_the_one_that_asked_last() {
    let cluster = awaiting(0);
    let key = keys::dry_run(&cluster.world.installation.region);
    let name = |text: &str| text.parse::<ClusterName>().unwrap();
    let put = |asked: &str, waiting: Option<&str>, seconds: i64| {
        let free_at = cluster.world.clock.now() + SignedDuration::from_secs(seconds);
        let lease = DryRunLease { revision: 1, free_at, cluster: name(asked), waiting: waiting.map(name) };
        cluster.put(set(key.clone(), &lease)).unwrap();
    };
    let waiting = || {
        let lease: DryRunLease = from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap();
        (lease.cluster, lease.waiting)
    };
    put("next", None, 5);
    wake(&cluster);
    assert_eq!((dry_runs(&cluster), waiting()), (0, (name("next"), Some(name("prod")))));
    advance(&cluster, SignedDuration::from_secs(14));
    wake(&cluster);
    assert_eq!((dry_runs(&cluster), waiting()), (1, (name("prod"), None)));
    put("prod", Some("next"), 0);
    advance(&cluster, SignedDuration::from_secs(9));
    wake(&cluster);
    assert_eq!((dry_runs(&cluster), waiting()), (1, (name("prod"), Some(name("next")))));
    // The other doesn't come.
    advance(&cluster, SignedDuration::from_secs(20));
    wake(&cluster);
    assert_eq!((dry_runs(&cluster), waiting()), (2, (name("prod"), None)));
}

#[test]
fn consent_is_asked_for_again_after_half_a_day() {
    let cluster = awaiting(0);
    ask_all(&cluster);
    for (hours, expected) in [(11, 2), (1, 3)] {
        advance(&cluster, SignedDuration::from_hours(hours));
        wake(&cluster);
        assert_eq!(dry_runs(&cluster), expected, "after {hours} h");
    }
}

#[test]
fn a_pending_pod_is_launched_for_first_and_its_launch_is_an_answer() {
    let cluster = awaiting(1);
    wake(&cluster);
    check_settled(&cluster, 1);
    assert_eq!((dry_runs(&cluster), outcomes(&cluster)), (0, vec!["arm64 allowed by launch".to_owned()]));
    advance(&cluster, SignedDuration::from_secs(10));
    wake(&cluster);
    assert_eq!(outcomes(&cluster), ["arm64 allowed by launch", "x86_64 allowed by dry-run"]);
}

/// The condition changes with each verdict, and the request doesn't.
#[test]
fn a_launch_that_is_older_than_the_last_verdict_speaks_for_the_same_request() {
    let cluster = cluster(1);
    fault(
        &cluster,
        Call::CreateFleet,
        FaultEffect::Refused(Ec2Error::Throttled { action: "CreateFleet".to_owned() }),
    );
    wake(&cluster);
    advance(&cluster, SignedDuration::from_secs(30));
    await_validation(&cluster);
    advance(&cluster, SignedDuration::from_secs(60));
    wake(&cluster);
    check_settled(&cluster, 1);
    assert!(outcomes(&cluster).contains(&"arm64 allowed by launch".to_owned()), "{:?}", outcomes(&cluster));
}

#[test]
fn throttling_is_no_verdict_and_the_region_waits() {
    let cluster = awaiting(0);
    let refused = Ec2Error::Throttled { action: "RunInstances".to_owned() };
    fault(&cluster, Call::RunInstances, FaultEffect::Refused(refused));
    wake(&cluster);
    let asked = dry_runs(&cluster);
    wake(&cluster);
    advance(&cluster, SignedDuration::from_secs(20));
    wake(&cluster);
    assert_eq!((dry_runs(&cluster), outcomes(&cluster).len()), (asked, 0));
    advance(&cluster, SignedDuration::from_secs(20));
    wake(&cluster);
    assert_eq!(outcomes(&cluster), ["x86_64 allowed by dry-run"]);
}

#[test]
fn a_changed_class_is_asked_about_again_at_once() {
    let cluster = awaiting(0);
    ask_all(&cluster);
    let image = cluster.world.ec2.add_image(NewImage::named("new", ImageArchitecture::Arm64));
    cluster.resolve(&[(image, ImageArchitecture::Arm64)]).unwrap();
    await_validation(&cluster);
    wake(&cluster);
    assert_eq!((dry_runs(&cluster), outcomes(&cluster).len()), (3, 1));
}

#[test]
fn a_denial_holds_for_seconds_and_then_one_launch_or_dry_run_decides() {
    let mut cluster = awaiting(0);
    cluster.world.ec2.deny(Call::RunInstances, NOT_ALLOWED);
    ask_all(&cluster);
    let denied = verdict(&cluster, &Architecture::Arm64).unwrap();
    let VerdictOutcome::Denied { reason, message, .. } = &denied.outcome else { panic!("{denied:?}") };
    assert_eq!(*reason, ConditionReason::RunInstancesAuthCheckFailed);
    assert!(message.contains("\"Action\":\"ec2:RunInstances\""), "{message}");
    cluster.world.ec2.allow(Call::RunInstances);
    for name in ["web-a", "web-b"] {
        cluster.objects.pods.push(Arc::new(SeenPod::read(&pod(name, "1500m", None)).unwrap()));
    }
    cluster.report().unwrap();
    wake(&cluster);
    advance(&cluster, SignedDuration::from_secs(300));
    wake(&cluster);
    let launches = cluster.launches().unwrap();
    assert!(launches.iter().all(|launch| launch.claims.len() == 1), "{launches:?}");
    check_settled(&cluster, 2);
    let now = verdict(&cluster, &Architecture::Arm64).unwrap();
    assert_eq!((now.outcome, now.by), (VerdictOutcome::Allowed, VerdictSource::Launch));
}

#[test]
fn what_a_service_control_policy_denies_is_tried_with_one_instance() {
    let mut cluster = awaiting(0);
    cluster.world.ec2.deny(Call::RunInstances, SCP);
    ask_all(&cluster);
    assert_eq!(outcomes(&cluster), ["arm64 doubted by dry-run", "x86_64 doubted by dry-run"]);
    for n in 0..3 {
        let name = format!("web-{n}");
        cluster.objects.pods.push(Arc::new(SeenPod::read(&pod(&name, "1500m", None)).unwrap()));
    }
    cluster.report().unwrap();
    wake(&cluster);
    let asked: Vec<u32> =
        cluster.world.ec2.requests().iter().map(|request| request.target_capacity).collect();
    assert_eq!(asked.first(), Some(&1), "{asked:?}");
    check_settled(&cluster, 2);
    // A denial beside that launch is a warning.
    cluster.objects.pods.clear();
    cluster.report().unwrap();
    advance(&cluster, SignedDuration::from_hours(12));
    ask_all(&cluster);
    assert!(outcomes(&cluster).contains(&"arm64 warned by dry-run".to_owned()), "{:?}", outcomes(&cluster));
}

#[test]
fn a_denied_fleet_asks_no_further() {
    let cluster = awaiting(0);
    cluster.world.ec2.deny(Call::CreateFleet, NOT_ALLOWED);
    wake(&cluster);
    let denied = verdict(&cluster, &Architecture::X86_64).unwrap();
    let VerdictOutcome::Denied { reason, .. } = denied.outcome else { panic!("{denied:?}") };
    assert_eq!((reason, dry_runs(&cluster)), (ConditionReason::CreateFleetAuthCheckFailed, 0));
}

/// Nobody reads the conditions of a pending pod's claim.
#[test]
fn a_denied_launch_is_the_verdict_that_a_denied_dry_run_is() {
    let check = |call: Call, expected: ConditionReason| {
        let cluster = awaiting(1);
        cluster.world.ec2.deny(call, NOT_ALLOWED);
        advance(&cluster, SignedDuration::from_secs(1));
        wake(&cluster);
        let verdicts = read::<ClassVerdicts>(&cluster).0;
        let denied = verdicts.into_iter().find(|verdict| verdict.by == VerdictSource::Launch).unwrap();
        let VerdictOutcome::Denied { reason, message, .. } = &denied.outcome else { panic!("{denied:?}") };
        assert_eq!((*reason, denied.failures), (expected, 1));
        assert!(message.contains("add the statement `{\"Effect\":\"Allow\""), "{message}");
        assert!(denied.until > cluster.world.clock.now());
        let woken = cluster.world.signals.take();
        assert!(
            woken
                .iter()
                .any(|bell| { matches!(bell, RungBell::Wake { function: FunctionName::NodeClasses, .. }) })
        );
        // A launch that succeeds ends it.
        cluster.world.ec2.allow(call);
        advance(&cluster, SignedDuration::from_secs(68));
        wake(&cluster);
        check_settled(&cluster, 1);
        assert!(outcomes(&cluster).iter().any(|told| told.ends_with("allowed by launch")));
    };
    check(Call::CreateFleet, ConditionReason::CreateFleetAuthCheckFailed);
    check(Call::CreateLaunchTemplate, ConditionReason::CreateLaunchTemplateAuthCheckFailed);
}

#[test]
fn an_architecture_that_no_pool_takes_is_asked_about_only_after_an_edit() {
    let mut cluster = awaiting(0);
    cluster.objects.node_pools = vec![Arc::new(pool(&[&["kubernetes.io/arch", "amd64"]]))];
    cluster.report().unwrap();
    ask_all(&cluster);
    assert_eq!(
        (outcomes(&cluster).join(", "), dry_runs(&cluster)),
        ("arm64 unused by dry-run, x86_64 allowed by dry-run".to_owned(), 1)
    );
    // The table takes the same commit again only when its token is forgotten.
    advance(&cluster, SignedDuration::from_mins(11));
    let mut edited = pool(&[]);
    edited["metadata"]["generation"] = serde_json::json!(2);
    cluster.objects.node_pools = vec![Arc::new(edited)];
    cluster.report().unwrap();
    cluster.put(add_step(&cluster.name)).unwrap();
    ask_all(&cluster);
    assert_eq!(outcomes(&cluster), ["arm64 allowed by dry-run", "x86_64 allowed by dry-run"]);
}

/// Such as the NodePool `general-purpose` of EKS Auto Mode, whose class may have the same name.
#[test]
fn a_pool_of_another_kind_of_class_keeps_no_question_waiting() {
    let mut cluster = awaiting(0);
    let mut foreign = pool(&[]);
    foreign["metadata"] = serde_json::json!({"name": "general-purpose", "uid": "pool-2"});
    foreign["spec"]["template"]["spec"]["nodeClassRef"] =
        serde_json::json!({"group": "eks.amazonaws.com", "kind": "NodeClass", "name": "default"});
    let own = pool(&[&["kubernetes.io/arch", "amd64"]]);
    cluster.objects.node_pools = vec![Arc::new(own), Arc::new(foreign.clone())];
    cluster.report().unwrap();
    ask_all(&cluster);
    let expected = ["arm64 unused by dry-run", "x86_64 allowed by dry-run"];
    assert_eq!(outcomes(&cluster), expected);
    // An edit of it is no reason to look at the class again.
    let kept = verdict(&cluster, &Architecture::Arm64);
    advance(&cluster, SignedDuration::from_mins(11));
    foreign["metadata"]["generation"] = serde_json::json!(2);
    cluster.objects.node_pools[1] = Arc::new(foreign);
    cluster.report().unwrap();
    cluster.put(add_step(&cluster.name)).unwrap();
    ask_all(&cluster);
    assert_eq!(verdict(&cluster, &Architecture::Arm64), kept);
}

#[test]
fn nothing_is_asked_where_the_clusters_stack_disables_it() {
    let cluster = awaiting(0);
    let key = keys::registry(&cluster.world.installation.region, &cluster.name);
    let mut registry: Registry = from_item(&key, &cluster.world.table.peek(&key).unwrap()).unwrap();
    registry.settings.dry_runs = FeatureGate::Disabled;
    cluster.put(set(key, &registry)).unwrap();
    wake(&cluster);
    assert_eq!((dry_runs(&cluster), outcomes(&cluster).len()), (0, 0));
}

#[test]
fn the_first_launch_finds_the_templates_of_the_dry_run() {
    let mut cluster = awaiting(0);
    ask_all(&cluster);
    let made = || cluster.world.ec2.calls()[&Call::CreateLaunchTemplate].made;
    let before = made();
    let templates: Vec<tenon_table::items::TemplateItem> = cluster.all(keys::TEMPLATE).unwrap();
    assert!(templates.iter().all(|template| template.made_at.is_some()) && before >= 2, "{templates:?}");
    cluster.objects.pods.push(Arc::new(SeenPod::read(&pod("web", "1500m", None)).unwrap()));
    cluster.report().unwrap();
    wake(&cluster);
    check_settled(&cluster, 1);
    assert_eq!(cluster.world.ec2.calls()[&Call::CreateLaunchTemplate].made, before);
}

fn image_of(cluster: &Cluster, architecture: &Architecture) -> ImageId {
    let status: ClassStatus = read(cluster);
    status.images.into_iter().find(|image| image.architecture == *architecture).unwrap().id
}

#[test]
fn a_refusal_of_the_image_names_it() {
    let cluster = awaiting(0);
    let image = image_of(&cluster, &Architecture::X86_64);
    let words = format!("Not authorized for images: [{image}]");
    let refused = Ec2Error::from_code("RunInstances", "AuthFailure", &words);
    fault(&cluster, Call::RunInstances, FaultEffect::Refused(refused));
    wake(&cluster);
    let denied = verdict(&cluster, &Architecture::X86_64).unwrap();
    let VerdictOutcome::Denied { reason, image: of, message } = denied.outcome else { panic!("{denied:?}") };
    assert_eq!((reason, of), (ConditionReason::LaunchRefused, Some(image)), "{message}");
}

#[test]
fn an_image_that_no_type_of_the_pools_boots_is_refused_without_a_question() {
    let mut cluster = cluster(0);
    let mut status: ClassStatus = read(&cluster);
    for image in &mut status.images {
        image.boot_mode = Some(BootMode::LegacyBios);
    }
    cluster.put(set(class_key(&cluster), &status)).unwrap();
    await_validation(&cluster);
    cluster.objects.node_pools = vec![Arc::new(pool(&[&["kubernetes.io/arch", "arm64"]]))];
    cluster.report().unwrap();
    ask_all(&cluster);
    let denied = verdict(&cluster, &Architecture::Arm64).unwrap();
    let VerdictOutcome::Denied { image, message, .. } = denied.outcome else { panic!("{denied:?}") };
    assert_eq!(image, Some(image_of(&cluster, &Architecture::Arm64)));
    assert!(message.contains("by boot mode `legacy-bios`"), "{message}");
    assert_eq!(dry_runs(&cluster), 0);
}

#[test]
fn an_encoded_denial_is_decoded_once_where_that_is_allowed() {
    let content = |deny: bool| {
        let arn = "arn:aws:ec2:us-east-1:111122223333:volume/*";
        format!(
            r#"{{"allowed":false,"explicitDeny":{deny},"context":{{"principal":{{"arn":"secret"}},"action":"ec2:RunInstances","resource":"{arn}"}}}}"#
        )
    };
    let asked = |explicit: bool, allowed: bool| {
        let cluster = awaiting(0);
        cluster.world.ec2.deny_encoded(Call::RunInstances, content(explicit));
        if !allowed {
            cluster.world.ec2.deny(Call::DecodeAuthorizationMessage, NOT_ALLOWED);
        }
        wake(&cluster);
        let calls = cluster.world.ec2.calls();
        assert_eq!(calls.get(&Call::DecodeAuthorizationMessage).map_or(0, |count| count.made), 1);
        match verdict(&cluster, &Architecture::X86_64).unwrap().outcome {
            VerdictOutcome::Denied { message, .. } => format!("denied: {message}"),
            VerdictOutcome::Doubted { message } => format!("doubted: {message}"),
            VerdictOutcome::Allowed | VerdictOutcome::Unused { .. } | VerdictOutcome::Warned { .. } => {
                panic!("neither denied nor doubted")
            }
        }
    };
    let check = |told: String, starts: &str, has: &str| {
        assert!(told.starts_with(starts) && told.contains(has), "{told}");
        assert!(!told.contains("secret") && !told.contains("111122223333"), "{told}");
    };
    check(asked(false, true), "denied", "on resource `volume`: no policy allows it; add the statement");
    check(asked(true, true), "doubted", "on resource `volume`: a policy denies it explicitly");
    check(asked(false, false), "denied", "decode it with `aws sts decode-authorization-message`");
}

#[test]
fn a_launch_role_that_cant_be_taken_denies_the_class_with_the_remedy() {
    let cluster = awaiting(0);
    cluster.world.ec2.remove_launch_role(tenon_harness::cluster::LAUNCH_ROLE);
    wake(&cluster);
    let denied = verdict(&cluster, &Architecture::X86_64).unwrap();
    let VerdictOutcome::Denied { reason, message, .. } = denied.outcome else { panic!("{denied:?}") };
    assert_eq!(reason, ConditionReason::CreateLaunchTemplateAuthCheckFailed);
    assert!(
        message.starts_with("can't take launch role `arn:aws:iam::111122223333:role/tenon/"),
        "{message}"
    );
    assert_eq!(dry_runs(&cluster), 0);
}
