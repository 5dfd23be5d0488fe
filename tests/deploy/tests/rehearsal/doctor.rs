//! `tenon doctor`, before the stacks and after them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tenon_snapshot::object::Kind;

use crate::account::ACCOUNT;
use crate::cluster::CLUSTER;
use crate::tools::tenon;
use crate::world::rehearse;

/// Checks whose service the server doesn't have.
const UNSERVED: [&str; 2] = ["on-demand-quota", "spot-quota"];

/// The exit status, and the checks by their names.
async fn doctor() -> (Option<i32>, BTreeMap<String, Value>) {
    let printed = tenon(&["doctor", "--cluster", CLUSTER, "-o", "json"]).await;
    let document: Value =
        serde_json::from_str(&printed.out).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!((&document["kind"], &document["account"]), (&json!("Doctor"), &json!(ACCOUNT)), "{document}");
    let checks = document["checks"].as_array().expect("checks").iter();
    let checks = checks.map(|check| (check["check"].as_str().unwrap().to_owned(), check.clone()));
    (printed.status, checks.collect())
}

/// The names of the checks with this status.
fn with<'a>(checks: &'a BTreeMap<String, Value>, status: &str) -> Vec<&'a str> {
    checks.iter().filter(|(_, check)| check["status"] == status).map(|(name, _)| name.as_str()).collect()
}

/// Of an account with a network and without all else.
pub(crate) async fn names_what_is_missing() {
    let (status, checks) = doctor().await;
    assert_eq!(status, Some(1), "{checks:#?}");
    assert_eq!(with(&checks, "failed"), ["cluster", "cluster-stack", "region-stack"], "{checks:#?}");
    for (name, remedy) in [
        ("cluster", "aws eks list-clusters"),
        ("region-stack", "sam deploy --stack-name tenon"),
        ("cluster-stack", "infra/cluster.yaml"),
        ("spot-role", "aws iam create-service-linked-role"),
    ] {
        let found = checks[name]["remedy"].as_str().expect("a remedy");
        assert!(found.contains(remedy), "{name}: {found}");
    }
    assert_eq!(with(&checks, "warning"), ["spot-role"]);
    assert_eq!(with(&checks, "passed"), ["credentials", "region", "security-groups", "subnets"]);
    assert_eq!(with(&checks, "unknown"), ["karpenter", "on-demand-quota", "spot-quota"]);
}

#[test]
#[ignore = "needs ministack: tests/deploy/run"]
fn an_installation_passes_until_karpenter_runs_beside_it() {
    rehearse(|world| async {
        let mut cluster = world.cluster.lock().await;
        cluster.report().await;
        let (status, checks) = doctor().await;
        assert_eq!(with(&checks, "failed"), Vec::<&str>::new(), "{checks:#?}");
        assert_eq!(status, Some(0));
        assert_eq!(with(&checks, "unknown"), UNSERVED, "{checks:#?}");
        assert_eq!(with(&checks, "notApplicable"), ["spot-role"], "the only NodePool is on demand");
        assert_eq!(with(&checks, "warning"), Vec::<&str>::new(), "{checks:#?}");

        // A gated pod gets no node, and so nothing is launched for it.
        cluster
            .apply(json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "karpenter-0",
                    "namespace": "kube-system",
                    "labels": { "app.kubernetes.io/name": "karpenter" },
                },
                "spec": { "containers": [{ "name": "controller" }], "schedulingGates": [{ "name": "rehearsal" }] },
            }))
            .await;
        let (status, checks) = doctor().await;
        assert_eq!((status, &checks["karpenter"]["status"]), (Some(1), &json!("failed")), "{checks:#?}");
        let remedy = checks["karpenter"]["remedy"].as_str().expect("a remedy");
        assert!(remedy.contains("--namespace kube-system --replicas 0"), "{remedy}");
        cluster.delete(Kind::Pod, "kube-system", "karpenter-0").await;
        assert_eq!(doctor().await.1["karpenter"]["status"], "passed");
    });
}
