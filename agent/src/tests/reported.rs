//! What a snapshot has of objects beside pods and Nodes.

use super::*;

#[test]
fn what_nodes_attach_and_whom_services_select_is_reported() {
    let mut world = AgentFixture::new();
    let apply = |object: Value| drop(world.kube.apply(object).unwrap());
    apply(json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n"},
        "spec": {"drivers": [{"name": "ebs.csi.aws.com", "nodeID": "i-0abc", "allocatable": {"count": 25}}]}}));
    apply(
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "csi-1"},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}),
    );
    apply(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "clusterIP": "None"}}));
    world.run(3);
    let snapshot = world.snapshot();
    assert_eq!(snapshot.csi_nodes[0].drivers["ebs.csi.aws.com"], Some(25));
    assert_eq!(snapshot.volume_attachments[0].volume.as_deref(), Some("pv"));
    assert_eq!(snapshot.services[0].selector.as_ref().unwrap()["app"], "web");
    assert_eq!(snapshot.unreadable, []);
}
