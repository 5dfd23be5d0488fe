//! A volume that is attached still though its pod is gone: kube-scheduler counts it twice for a pod that comes back to
//! it. The simulated cluster's kube-scheduler does the same.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use tenon_cluster_tests::{Cluster, alone, clear};
use tenon_domain::manifest;

const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: attached, labels: {kubernetes.io/hostname: attached}}
status:
  capacity: {cpu: '4', memory: 8Gi, pods: '20'}
  allocatable: {cpu: '4', memory: 8Gi, pods: '20'}
";
const ATTACHMENT: &str = "
apiVersion: storage.k8s.io/v1
kind: VolumeAttachment
metadata: {name: attached}
spec: {attacher: ebs.csi.aws.com, nodeName: attached, source: {persistentVolumeName: attached}}
";
const POD: &str = "
apiVersion: storage.k8s.io/v1
kind: CSINode
metadata: {name: attached}
spec: {drivers: [{name: ebs.csi.aws.com, nodeID: attached, allocatable: {count: 1}}]}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: attached}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  csi: {driver: ebs.csi.aws.com, volumeHandle: attached}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: attached, namespace: NAMESPACE, annotations: {pv.kubernetes.io/bind-completed: 'yes'}}
spec:
  storageClassName: ''
  volumeName: attached
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: database, namespace: NAMESPACE}
spec:
  containers: [{name: database, image: database}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: attached}}]
";

/// Whether kube-scheduler refused the pod because of its node's limit on volumes.
fn refused(pod: Option<&Pod>) -> bool {
    let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| {
        one.type_ == "PodScheduled"
            && one.message.as_deref().is_some_and(|why| why.contains("1 node(s) exceed max volume count"))
    })
}

fn is_placed(pod: Option<&Pod>) -> bool {
    pod.and_then(|pod| pod.spec.as_ref()?.node_name.as_ref()).is_some()
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn a_pod_comes_back_to_its_attached_volume_only_after_that_is_detached() {
    let _alone = alone().await;
    let cluster = Cluster::admin().await;
    cluster.install_definitions().await;
    clear(&cluster).await;
    let namespace = cluster.namespace("attached").await;
    cluster.create_node(NODE).await;
    cluster.apply(ATTACHMENT).await;
    cluster.apply(&POD.replace("NAMESPACE", &namespace)).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client(), &namespace);
    cluster.wait_for(&pods, "database", refused).await;
    for attachment in manifest::objects("attachment", ATTACHMENT) {
        let api = cluster.api_of(&attachment).await;
        let _gone = api.delete("attached", &DeleteParams::default()).await.expect("it can be deleted");
    }
    cluster.wait_for(&pods, "database", is_placed).await;
    clear(&cluster).await;
}
