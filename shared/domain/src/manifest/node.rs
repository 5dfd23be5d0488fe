//! Node.
//!
//! Reads a Node's manifest. A node of another cloud has no provider id.

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::Deserializer;

use super::decode::{At, KeepUnknown, Whole};
use super::fields::{LabelKey, LabelValue, text, time};
use super::meta::{KindScope, ObjectFields};
use crate::api::node::{Node, NodeCondition, Schedulable};
use crate::api::pod::Readiness;
use crate::id::{NodeName, ProviderId};
use crate::resources::ResourceList;
use crate::taint::{Taint, TaintEffect};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeSpecFields {
    #[serde(rename = "providerID")]
    provider_id: String,
    unschedulable: bool,
    taints: Vec<KeepUnknown<Taint>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeStatus {
    capacity: ResourceList,
    allocatable: Option<ResourceList>,
    conditions: Vec<NodeConditionFields>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeConditionFields {
    #[serde(rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(default = "unknown")]
    status: String,
    #[serde(default, deserialize_with = "time")]
    last_transition_time: Option<Timestamp>,
}

fn unknown() -> String {
    "Unknown".to_owned()
}

impl<'de> Deserialize<'de> for Taint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct TaintFields {
            key: LabelKey,
            #[serde(default)]
            value: LabelValue,
            effect: TaintEffect,
            #[serde(default, rename = "timeAdded")]
            _time_added: Whole,
        }
        let TaintFields { key, value, effect, .. } = TaintFields::deserialize(deserializer)?;
        Ok(Self { key: key.0, value: value.0, effect })
    }
}

pub(super) fn read_node(at: At<'_, '_>) -> Option<Node> {
    let form: ObjectFields<NodeSpecFields, NodeStatus> = at.read()?;
    let meta = form.metadata.of_object(&at.place, KindScope::Cluster)?;
    let (spec, status) = (form.spec.unwrap_or_default(), form.status.unwrap_or_default());
    let ready = status.conditions.iter().any(|c| c.kind == "Ready" && c.status == "True");
    let condition = |NodeConditionFields { kind, status, last_transition_time }| NodeCondition {
        kind,
        status,
        since: last_transition_time,
    };
    Some(Node {
        name: NodeName::parse(meta.name.clone()).ok()?,
        meta,
        provider_id: ProviderId::parse(&spec.provider_id).ok(),
        taints: spec.taints.into_iter().map(|KeepUnknown(taint)| taint).collect(),
        schedulable: if spec.unschedulable { Schedulable::No } else { Schedulable::Yes },
        // The API server's default.
        allocatable: status.allocatable.unwrap_or_else(|| status.capacity.clone()),
        capacity: status.capacity,
        readiness: if ready { Readiness::Ready } else { Readiness::NotReady },
        conditions: status.conditions.into_iter().map(condition).collect(),
    })
}
