//! The kubelets of the region's instances: they create their Nodes, and the cloud deletes those of terminated
//! instances.
//!
//! Decides when a Node is created, and when it is deleted outside the agent: once EC2 reports its instance as
//! terminated, like the cloud's node-lifecycle controller. A stopping instance keeps its Node, because its heartbeats
//! come from elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kubelet::{BootTimes, node_of};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};
use tenon_ec2::port::InstanceState;
use tenon_simulated_cluster::NodeSpec;
use tenon_twin::InstanceRecord;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::live::agent::AgentNews;
use crate::live::cluster::ClusterLog;

/// The wait after an API server that gave no answer.
const RETRY: Duration = Duration::from_secs(1);
/// The status of a conflict: the Node is there already.
const CONFLICT: u16 = 409;
/// The status of a missing object.
const NOT_FOUND: u16 = 404;

/// A change of an instance.
#[derive(Debug)]
pub(crate) enum MachinePower {
    /// It runs.
    On(Box<InstanceRecord>),
    /// It stops or is terminated.
    Off(Box<InstanceRecord>),
}

/// An instance that ran.
struct Machine {
    node: String,
    booting: AbortHandle,
}

/// Serves the instances of a cluster until the region ends.
pub(crate) async fn serve(
    client: Client,
    boot: BootTimes,
    mut powers: UnboundedReceiver<MachinePower>,
    log: ClusterLog,
) {
    let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
    while let Some(power) = powers.recv().await {
        match power {
            MachinePower::On(record) => {
                let Some(spec) = node_of(&record, boot, None) else { continue };
                let (provider, node) = (spec.provider_id.clone(), spec.name.clone());
                let booting = tokio::spawn(join(client.clone(), spec, log.clone())).abort_handle();
                machines.insert(provider, Machine { node, booting });
            }
            MachinePower::Off(record) => {
                let provider = record.instance.provider_id().to_string();
                let Some(machine) = machines.get(&provider) else { continue };
                machine.booting.abort();
                if record.instance.state == InstanceState::Terminated {
                    // By now EC2 has forgotten its name.
                    let node = machine.node.clone();
                    machines.remove(&provider);
                    tokio::spawn(leave(client.clone(), node, provider, log.clone()));
                }
            }
        }
    }
}

/// Boots, and makes the Node.
async fn join(client: Client, spec: NodeSpec, log: ClusterLog) {
    sleep(Duration::try_from(spec.joins_after).unwrap_or_default()).await;
    let nodes: Api<Node> = Api::all(client);
    let node = match serde_json::from_value::<Node>(node(&spec)) {
        Ok(node) => node,
        Err(error) => return log.tell(AgentNews::Trouble(format!("the Node of `{}`: {error}", spec.name))),
    };
    loop {
        match nodes.create(&PostParams::default(), &node).await {
            Ok(_) => return,
            Err(Error::Api(status)) if status.code == CONFLICT => return,
            Err(error) => log.tell(AgentNews::Trouble(format!("Node `{}` can't join: {error}", spec.name))),
        }
        sleep(RETRY).await;
    }
}

/// Deletes the Node of an instance that is no more, if it is still that instance's.
async fn leave(client: Client, name: String, provider: String, log: ClusterLog) {
    let nodes: Api<Node> = Api::all(client);
    loop {
        let found = match nodes.get_opt(&name).await {
            Ok(found) => found,
            Err(error) => {
                log.tell(AgentNews::Trouble(format!("Node `{name}` can't be read: {error}")));
                sleep(RETRY).await;
                continue;
            }
        };
        let of_instance =
            |node: &Node| node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref()) == Some(&provider);
        if !found.as_ref().is_some_and(of_instance) {
            return;
        }
        match nodes.delete(&name, &DeleteParams::default()).await {
            Ok(_) => return,
            Err(Error::Api(status)) if status.code == NOT_FOUND => return,
            Err(error) => log.tell(AgentNews::Trouble(format!("Node `{name}` can't be deleted: {error}"))),
        }
        sleep(RETRY).await;
    }
}

/// The Node as its kubelet registers it: not ready, with its size. The source of its heartbeats sets the rest.
fn node(spec: &NodeSpec) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": spec.name, "labels": spec.labels},
        "spec": {"providerID": spec.provider_id, "taints": spec.taints},
        "status": {
            "capacity": spec.capacity,
            "allocatable": spec.allocatable,
            "addresses": [{"type": "Hostname", "address": spec.name}],
        },
    })
}
