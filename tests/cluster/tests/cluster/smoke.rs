//! The control plane itself: the assumptions of the other tests.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{Api, ListParams};
use tenon_cluster_tests::{Cluster, alone};

const NODE: &str = "
apiVersion: v1
kind: Node
metadata:
  name: smoke
  labels: {kubernetes.io/hostname: smoke, tests: smoke}
spec: {providerID: aws:///us-east-1a/i-0123456789abcdef0}
status:
  capacity: {cpu: '4', memory: 8Gi, pods: '20'}
  allocatable: {cpu: 3800m, memory: 7Gi, pods: '20'}
";
const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {tests: smoke}
      containers: [{name: web, image: web, resources: {requests: {cpu: '1'}}}]
";

fn ready(node: Option<&Node>) -> bool {
    let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

fn running(deployment: Option<&Deployment>) -> bool {
    let status = deployment.and_then(|deployment| deployment.status.as_ref());
    status.is_some_and(|status| status.ready_replicas == Some(3))
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn a_node_that_was_created_is_kept_ready_and_runs_what_the_scheduler_binds() {
    let _alone = alone().await;
    let cluster = Cluster::admin().await;
    let namespace = cluster.namespace("smoke").await;
    cluster.create_node(NODE).await;
    let nodes: Api<Node> = Api::all(cluster.client());
    let node = cluster.wait_for(&nodes, "smoke", ready).await.expect("the node is there");
    let status = node.status.expect("the node has a status");
    let allocatable = status.allocatable.expect("what pods can have is there");
    assert_eq!(allocatable["cpu"].0, "3800m", "kwok leaves what the kubelet said");

    cluster.apply(&DEPLOYMENT.replace("NAMESPACE", &namespace)).await;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), &namespace);
    cluster.wait_for(&deployments, "web", running).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    for pod in pods.list(&ListParams::default()).await.expect("pods can be listed").items {
        let node = pod.spec.and_then(|spec| spec.node_name);
        assert_eq!(node.as_deref(), Some("smoke"), "{:?}", pod.metadata.name);
    }
    deployments.delete("web", &Default::default()).await.expect("the Deployment can be deleted");
    nodes.delete("smoke", &Default::default()).await.expect("the node can be deleted");
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn the_agents_account_may_do_nothing_that_rbac_doesnt_grant() {
    let agent = Cluster::agent().await;
    let secrets: Api<Secret> = Api::default_namespaced(agent.client());
    let refused = secrets.list(&ListParams::default()).await.expect_err("nobody grants secrets to the agent");
    let kube::Error::Api(status) = refused else { panic!("the API server refuses: {refused}") };
    assert_eq!(status.code, 403, "{}", status.message);
    assert!(status.message.contains("system:serviceaccount:tenon-system:tenon-agent"), "{}", status.message);
}
