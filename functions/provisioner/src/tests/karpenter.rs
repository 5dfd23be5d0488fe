//! A Karpenter controller in the cluster: while it works, nothing is launched for pods.

use serde_json::json;
use tenon_domain::journal::SubjectKind;
use tenon_table::items::ToldFindings;

use super::told::{told, woken};
use super::*;

/// A pod of Karpenter's Deployment: Ready on a node, or pending.
fn controller(node: Option<&str>) -> Arc<SeenPod> {
    let mut made = pod("karpenter-1", "1500m", node);
    made["metadata"]["namespace"] = json!("kube-system");
    made["metadata"]["labels"] = json!({"app.kubernetes.io/name": "karpenter"});
    if node.is_some() {
        made["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    }
    Arc::new(SeenPod::read(&made).unwrap())
}

#[test]
fn nothing_is_launched_while_karpenter_runs() {
    let mut cluster = cluster(2);
    cluster.objects.pods.push(controller(Some("system-1")));
    cluster.report().unwrap();
    wake(&cluster);
    assert_eq!(cluster.claims().unwrap(), []);
    let messages = |of| told(&cluster, of).into_iter().map(|record| record.message).collect::<Vec<_>>();
    let why = "Karpenter runs (pod `kube-system/karpenter-1`), which has the same NodePools: stop it with `kubectl scale \
               deployment -l app.kubernetes.io/name=karpenter --namespace kube-system --replicas 0`";
    assert_eq!(
        messages(SubjectKind::Pod),
        [format!("2 pods wait (`default/web-0`, `default/web-1`): {why}")]
    );
    assert_eq!(messages(SubjectKind::Pool), [format!("provisioner waits: {why}")]);
    assert_eq!(woken(&cluster), [SignedDuration::from_secs(55)]);

    // It is told once, and the first wake after its end launches.
    advance(&cluster, SignedDuration::from_secs(55));
    wake(&cluster);
    assert_eq!((told(&cluster, SubjectKind::Pod).len(), told(&cluster, SubjectKind::Pool).len()), (1, 1));
    cluster.objects.pods.pop();
    cluster.report().unwrap();
    wake(&cluster);
    let launched = phases(&cluster, ClaimPhase::Launched);
    assert!(launched > 0);
    check_settled(&cluster, launched);
    let findings = cluster.all::<ToldFindings>(keys::TOLD).unwrap().into_iter().flat_map(|of| of.findings);
    let reasons: Vec<String> = findings.map(|finding| finding.reason).collect();
    assert!(!reasons.contains(&"KarpenterRuns".to_owned()), "{reasons:?}");
}

/// Its pod may need a node itself: while it waits for one, only Tenon launches.
#[test]
fn a_karpenter_that_waits_for_a_node_gets_one() {
    let mut cluster = cluster(1);
    cluster.objects.pods.push(controller(None));
    cluster.report().unwrap();
    wake(&cluster);
    check_settled(&cluster, phases(&cluster, ClaimPhase::Launched));
    let launches = cluster.launches().unwrap();
    let counted: usize =
        launches.iter().flat_map(|launch| &launch.claims).map(|claim| claim.pods.len()).sum();
    assert_eq!(counted, 2);
}

#[test]
fn a_committed_launch_is_sent_though_karpenter_runs() {
    let mut cluster = cluster(1);
    let throttled = Ec2Error::Throttled { action: "CreateFleet".to_owned() };
    fault(&cluster, Call::CreateFleet, FaultEffect::Refused(throttled));
    wake(&cluster);
    assert_eq!(phases(&cluster, ClaimPhase::Planned), 1);
    cluster.objects.pods.push(controller(Some("system-1")));
    cluster.report().unwrap();
    advance(&cluster, SignedDuration::from_mins(1));
    wake(&cluster);
    check_settled(&cluster, 1);
}
