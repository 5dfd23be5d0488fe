//! Questions to the table: the registry, the agent's report, a halt, EC2NodeClasses.

use aws_sdk_dynamodb::types::AttributeValue;
use tenon_domain::Timestamp;
use tenon_domain::api::node_class::NodeIdentity;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::{ClusterName, Region};
use tenon_domain::karpenter;
use tenon_domain::labels::CAPACITY_TYPE;
use tenon_domain::registry::Registry;
use tenon_domain::snapshot::Snapshot;
use tenon_dynamodb::DynamoTable;
use tenon_snapshot::snapshot::{self, ChunkCache};
use tenon_table::items::{Halt, from_item, keys};
use tenon_table::{Consistency, Query, SkRange, Table as _, query_all};

use super::{Answer, DoctorQuestion, Unanswered, found};
use crate::doctor::facts::{ClassFacts, RegistrationFacts, ReportFacts};
use crate::errors::chain;
use crate::state;

/// The registered clusters; `None` if there is no table.
pub(super) async fn registered(
    (client, name): (&aws_sdk_dynamodb::Client, &str),
    table: &DynamoTable,
    question: &DoctorQuestion<'_>,
) -> Answer<Option<Vec<ClusterName>>> {
    // The port's errors have no word for a missing table.
    let key = keys::catalog(question.region);
    let asked = client.get_item().table_name(name).projection_expression("pk");
    let asked = asked.key("pk", AttributeValue::S(key.pk)).key("sk", AttributeValue::S(key.sk));
    let there = found("dynamodb:GetItem", &["ResourceNotFoundException"], asked.send().await)?;
    if there.is_none() {
        return Ok(None);
    }
    let clusters = state::clusters(table, question.region).await;
    clusters.map(Some).map_err(|error| failed("dynamodb:Query", &error))
}

pub(super) async fn registration(
    table: &DynamoTable,
    region: &Region,
    cluster: &ClusterName,
) -> Answer<Option<RegistrationFacts>> {
    const RIGHT: &str = "dynamodb:GetItem";
    let key = keys::registry(region, cluster);
    let item = table.get(&key, Consistency::Strong).await.map_err(|error| failed(RIGHT, &error))?;
    let Some(item) = item else { return Ok(None) };
    let entry: Registry = from_item(&key, &item).map_err(|error| failed(RIGHT, &error))?;
    Ok(Some(RegistrationFacts {
        endpoint: entry.endpoint,
        kubernetes_version: entry.kubernetes_version,
        node_roles: entry.allowed.node_roles.into_keys().collect(),
        subnet_tags: entry.allowed.subnet_tags,
        security_group_tags: entry.allowed.security_group_tags,
    }))
}

/// The reason of a halt.
pub(super) async fn halt(table: &DynamoTable, cluster: &ClusterName) -> Answer<Option<String>> {
    const RIGHT: &str = "dynamodb:GetItem";
    let key = keys::halt(cluster);
    let item = table.get(&key, Consistency::Strong).await.map_err(|error| failed(RIGHT, &error))?;
    let Some(item) = item else { return Ok(None) };
    let halt: Halt = from_item(&key, &item).map_err(|error| failed(RIGHT, &error))?;
    Ok(Some(halt.reason))
}

pub(super) async fn report(
    table: &DynamoTable,
    cluster: &ClusterName,
    now: Timestamp,
) -> Answer<Option<ReportFacts>> {
    let mut cache = ChunkCache::default();
    let found = snapshot::read(table, cluster, Consistency::Strong, &mut cache).await;
    let found = found.map_err(|error| failed("dynamodb:BatchGetItem", &error))?;
    Ok(found.map(|snapshot| of_snapshot(&snapshot, now)))
}

fn of_snapshot(snapshot: &Snapshot, now: Timestamp) -> ReportFacts {
    let role = |identity: &NodeIdentity| match identity {
        NodeIdentity::Role(role) => Some(role.clone()),
        NodeIdentity::InstanceProfile(_) => None,
    };
    let pools = snapshot.node_pools.iter();
    let with_spot = pools.filter(|pool| pool.template.requirements.allows(CAPACITY_TYPE, "spot"));
    let pods = snapshot.pods.iter().filter(|pod| karpenter::is_labelled(pod));
    ReportFacts {
        age_seconds: now.duration_since(snapshot.seen_at).as_secs(),
        roles: snapshot.node_classes.iter().filter_map(|class| role(&class.identity)).collect(),
        node_pools: snapshot.node_pools.len(),
        spot_pools: with_spot.map(|pool| pool.name.to_string()).collect(),
        karpenter_pods: pods.map(|pod| (pod.name.namespace.clone(), pod.name.name.clone())).collect(),
    }
}

pub(super) async fn classes(table: &DynamoTable, cluster: &ClusterName) -> Answer<Vec<ClassFacts>> {
    let range = SkRange::Prefix(keys::NODE_CLASS.to_owned());
    let items = query_all(table, &Query::new(keys::cluster_pk(cluster), range, Consistency::Eventual)).await;
    let items = items.map_err(|error| failed("dynamodb:Query", &error))?;
    let statuses = items.iter().filter_map(|(key, item)| from_item::<ClassStatus>(key, item).ok());
    let facts = statuses.map(|status| ClassFacts {
        name: status.name.to_string(),
        subnets: status.subnets.len(),
        security_groups: status.security_groups.len(),
    });
    Ok(facts.collect())
}

fn failed(right: &'static str, error: &dyn std::error::Error) -> Unanswered {
    Unanswered::Failed { right, why: chain(error) }
}
