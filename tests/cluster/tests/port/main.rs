//! The agent's port on a real API server, under the agent's own rights: each call, the meaning of each refusal, and
//! the need for every verb of its roles.
//!
//! Run by `tests/servers/control-plane -- cargo test --workspace --test port -- --ignored`.

#![expect(clippy::expect_used, reason = "helpers of an integration test fail as tests do")]

mod calls;
mod rights;

use std::time::{Duration, Instant};

use kube::api::Api;
use serde_json::{Value, json};
use tenon_cluster_tests::Cluster;
use tenon_kube::{KubeClient, Listing};
use tenon_snapshot::object::Kind;
use tenon_snapshot::{Eviction, Kube, KubeError};

use self::calls::{PortWorld, SOON, client};
use self::rights::{grants, roles, wait_for_right, without};

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn each_call_is_allowed_and_does_what_the_port_says() {
    for listing in [Listing::Streamed, Listing::Paged] {
        let mut world = PortWorld::new(listing).await;
        world.all().await.expect("the agent's own role is enough");
    }
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn budgets_refuse_evictions() {
    let mut world = PortWorld::new(Listing::Streamed).await;
    let label = world.name("app");
    let pod = world.pod(&label).await;
    let uid = world.pod_uid(&pod).await.expect("it is seen");
    // A pod that isn't ready may be evicted unless the policy requires a healthy budget; so it must run.
    let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(world.admin.client(), "default");
    let running =
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let patch = kube::api::Patch::Merge(&running);
    api.patch_status(&pod.name, &kube::api::PatchParams::default(), &patch)
        .await
        .expect("an admin may say so");
    world.budget(&label).await;
    let start = Instant::now();
    let refused = loop {
        let eviction = world.kube.evict(&pod, &uid).await.expect("it is an answer");
        if let Eviction::TooManyRequests { message } = eviction {
            break message;
        }
        assert!(start.elapsed() < SOON, "the budget doesn't cover it: {eviction:?}");
    };
    assert!(refused.contains("disruption budget"), "{refused}");
    world.budget(&label).await;
    let start = Instant::now();
    loop {
        let two = world.kube.evict(&pod, &uid).await.expect("it is an answer");
        match two {
            Eviction::TooManyRequests { message } if message.contains("more than one") => break,
            other @ (Eviction::Evicted
            | Eviction::NotFound
            | Eviction::TooManyRequests { .. }
            | Eviction::Conflict) => assert!(start.elapsed() < SOON, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn every_verb_is_needed() {
    // Each list is requested in both ways, so both rights are needed.
    let _granted = PortWorld::new(Listing::Streamed).await;
    let mut superfluous = Vec::new();
    for role in roles().iter().filter(|role| role.get("rules").is_some()) {
        for (group, resource, verb, name) in grants(role) {
            let grant = (group.as_str(), resource.as_str(), verb.as_str(), name.as_str());
            let admin = Cluster::admin().await;
            let agent = Cluster::agent().await;
            admin.apply_object(&without(role, grant)).await;
            wait_for_right(&agent, role, grant, false).await;
            let mut failed = None;
            for listing in [Listing::Streamed, Listing::Paged] {
                let kube = KubeClient::start(client().await, listing, "port");
                let mut world = PortWorld { admin: admin.clone(), agent: agent.clone(), kube, number: 0 };
                let needs_all = verb != "list" && verb != "watch";
                let told = if needs_all { world.all().await } else { world.lists().await };
                failed = failed.or(told.err());
                if failed.is_some() {
                    break;
                }
            }
            match failed {
                Some(told) => println!("without `{verb}` on `{resource}.{group}`: {told}"),
                None => superfluous.push(format!("`{verb}` on `{resource}.{group}` {name}")),
            }
            admin.apply_object(role).await;
            wait_for_right(&agent, role, grant, true).await;
        }
    }
    assert!(superfluous.is_empty(), "nothing needs {}", superfluous.join(", "));
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn a_kind_without_its_definition_is_unknown() {
    let agent = Cluster::agent().await;
    let unknown = tenon_kube::classify::classify(
        tenon_kube::classify::KubeCall { verb: "list", kind: Kind::NodePool, part: "", key: None },
        agent
            .client()
            .request::<Value>(
                kube::core::Request::new("/apis/karpenter.sh/v99/nodepools")
                    .list(&kube::api::ListParams::default())
                    .expect("a request can be made"),
            )
            .await
            .expect_err("there is no such version"),
    );
    let denied = matches!(&unknown, KubeError::Unavailable(cause) if cause.to_string().contains("`list`"));
    assert!(denied || matches!(unknown, KubeError::UnknownKind { .. }), "{unknown:?}");
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn changes_are_told_and_what_nobody_reads_is_not() {
    let world = PortWorld::new(Listing::Streamed).await;
    let name = format!("port-{}", std::process::id());
    let node =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"a": "1"}}});
    let mut changes = world.kube.changes();
    world.kube.list(Kind::Namespace).await.expect("it is allowed");
    tokio::time::sleep(Duration::from_secs(1)).await;
    changes.mark_unchanged();
    world.admin.apply_object(&node).await;
    tokio::time::timeout(SOON, changes.changed()).await.expect("it is told").expect("the watches are there");
    world.seen(Kind::Namespace, &name, |_| true).await.expect("it is seen");
}
