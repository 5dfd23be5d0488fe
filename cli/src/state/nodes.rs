//! The Nodes of the agent's last report, with what their claims and the functions say of them.
//!
//! Decides a Node's price and its use. `node_disruption` has the words about its disruption.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use tenon_domain::api::Node;
use tenon_domain::api::pod::{Pod, Readiness};
use tenon_domain::claim::Claim;
use tenon_domain::labels;
use tenon_domain::resources::{ResourceList, ResourceName};
use tenon_domain::snapshot::Snapshot;
use tenon_snapshot::snapshot::{self, ChunkCache};
use tenon_table::items::{from_item, keys};
use tenon_table::{Consistency, Key, SkRange, Table, limits};

use super::json;
use super::list::{ListError, ListScope, query};
use super::node_disruption::DisruptionFacts;

/// The claims beside a snapshot, what is said of their disruption, and the items of its instance types.
#[derive(Default)]
struct Beside {
    claims: BTreeMap<String, Claim>,
    disruption: DisruptionFacts,
    types: BTreeMap<String, Map<String, Json>>,
}

/// The Nodes of the agent's last report.
pub(super) async fn nodes<T: Table>(table: &T, scope: ListScope<'_>) -> Result<Vec<Json>, ListError> {
    let Some(cluster) = scope.cluster else { return Ok(Vec::new()) };
    let mut cache = ChunkCache::default();
    let found = snapshot::read(table, cluster, Consistency::Strong, &mut cache).await?;
    let Some(found) = found else { return Ok(Vec::new()) };
    let beside = beside(table, scope, &found).await?;
    let mut nodes: Vec<&Node> = found.nodes.iter().collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(nodes.into_iter().map(|one| node(one, &found.pods, &beside)).collect())
}

async fn beside<T: Table>(table: &T, scope: ListScope<'_>, found: &Snapshot) -> Result<Beside, ListError> {
    let Some(cluster) = scope.cluster else { return Ok(Beside::default()) };
    let prefix = SkRange::Prefix(keys::NODE_CLAIM.to_owned());
    let items = query(table, keys::cluster_pk(cluster), prefix).await?;
    let claims = items.iter().filter_map(|(key, item)| from_item::<Claim>(key, item).ok());
    let claims = claims.filter_map(|claim| Some((claim.state.instance()?.id.to_string(), claim)));
    let disruption = DisruptionFacts::read(table, cluster, (found.node_pools.as_slice(), scope.now)).await?;
    let names = found.nodes.iter().filter_map(|node| node.meta.labels.get(labels::INSTANCE_TYPE));
    let names = names.filter_map(|name| name.parse().ok());
    let keys: Vec<Key> = names.map(|name| keys::instance_type(scope.region, &name)).collect();
    let mut types = BTreeMap::new();
    let distinct: std::collections::BTreeSet<Key> = keys.into_iter().collect();
    let distinct: Vec<Key> = distinct.into_iter().collect();
    for some in distinct.chunks(limits::BATCH_KEYS) {
        for (key, item) in table.batch_get(some, Consistency::Eventual).await? {
            types.extend(keys::name_of(&key, keys::TYPE).map(|name| (name.to_owned(), json::item(&item))));
        }
    }
    Ok(Beside { claims: claims.collect(), disruption, types })
}

fn node(node: &Node, pods: &[Pod], beside: &Beside) -> Json {
    let label = |key: &str| node.meta.labels.get(key).map(String::as_str);
    let claim = node.provider_id.as_ref().and_then(|id| beside.claims.get(id.instance.as_str()));
    let here = || pods.iter().filter(|pod| pod.node.as_ref() == Some(&node.name));
    let used = ResourceList::sum(here().map(|pod| &pod.shape.requests));
    json!({
        "name": node.name.as_str(),
        "pool": label(labels::NODEPOOL),
        "claim": claim.map(|claim| claim.name.as_str()),
        "instance_type": label(labels::INSTANCE_TYPE),
        "zone": label(labels::ZONE),
        "capacity_type": label(labels::CAPACITY_TYPE),
        "provider_id": node.provider_id.as_ref().map(ToString::to_string),
        "ready": matches!(node.readiness, Readiness::Ready),
        "deleting": node.meta.deleted_at.is_some(),
        "created_at": claim.map(|claim| claim.created_at.to_string()),
        "usd_per_hour": price(node, beside),
        "pods": here().filter(|pod| !pod.shape.is_of_daemon_set()).count(),
        "requested": resources(&used),
        "requested_percent": {
            "cpu": percent(&used, &node.allocatable, &ResourceName::CPU),
            "memory": percent(&used, &node.allocatable, &ResourceName::MEMORY),
        },
        "disruption": claim.map(|claim| beside.disruption.words(claim)),
        "disruption_message": claim.and_then(|claim| beside.disruption.message(claim)),
        "capacity": resources(&node.capacity),
        "allocatable": resources(&node.allocatable),
        "taints": node.taints.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn resources(list: &ResourceList) -> Map<String, Json> {
    list.iter().map(|(name, quantity)| (name.as_str().to_owned(), json!(quantity.to_string()))).collect()
}

fn percent(used: &ResourceList, of: &ResourceList, name: &ResourceName) -> Option<i128> {
    used.get(name).nanos().saturating_mul(100).checked_div(of.get(name).nanos())
}

/// The present price of the Node's type, as it is paid for; none of a reserved one, which is paid for already.
fn price(node: &Node, beside: &Beside) -> Option<Json> {
    let label = |key: &str| node.meta.labels.get(key).map(String::as_str);
    let item = beside.types.get(label(labels::INSTANCE_TYPE)?)?;
    match label(labels::CAPACITY_TYPE)? {
        "on-demand" => item.get("on_demand_usd_per_hour").cloned(),
        "spot" => item.get("spot_usd_per_hour")?.get(label(labels::ZONE)?).cloned(),
        _ => None,
    }
}
