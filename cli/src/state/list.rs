//! Lists of the table, by kind.

use serde_json::{Map, Value as Json, json};
use tenon_domain::Timestamp;
use tenon_domain::boot::BootRecord;
use tenon_domain::class_status::{ConditionReason, ConditionStatus, ConditionType};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::{ClusterName, Region};
use tenon_domain::journal::SubjectKind;
use tenon_domain::pool_status::PoolConditionType;
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::report::{CLASS_IN_USE, Shown};
use tenon_domain::unavailable::{Mark, MarkState};
use tenon_domain::wake::FunctionName;
use tenon_snapshot::snapshot;
use tenon_table::items::{JournalOf, ToldFinding, ToldFindings, from_item, keys};
use tenon_table::learned::read_learned;
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, TableError, query_all};

use super::GetKind;
use super::{json, nodes};

/// Which part of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListScope<'a> {
    /// The region.
    pub(crate) region: &'a Region,
    /// The cluster; `None` for the region's own items.
    pub(crate) cluster: Option<&'a ClusterName>,
    /// The time, which decides the current day.
    pub(crate) now: Timestamp,
}

/// Why the table can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The table.
    #[error("can't read the table")]
    Table(#[from] TableError),
    /// The agent's snapshot.
    #[error("can't read the agent's snapshot")]
    Snapshot(#[from] snapshot::ReadError),
}

/// The items of a kind, by name; only that of the name where one is given.
pub(crate) async fn list<T: Table>(
    table: &T,
    kind: GetKind,
    scope: ListScope<'_>,
    name: Option<&str>,
) -> Result<Vec<Json>, ListError> {
    let cluster = || scope.cluster.map(keys::cluster_pk);
    let region = || Some(keys::region_pk(scope.region));
    let items = match kind {
        GetKind::Claims => by_prefix(table, cluster(), keys::NODE_CLAIM).await?,
        GetKind::Pools => pools(table, scope).await?,
        GetKind::Classes => classes(table, scope).await?,
        GetKind::Rollouts => by_prefix(table, cluster(), keys::COMMAND).await?,
        GetKind::Images => images(table, scope).await?,
        GetKind::Types => by_prefix(table, region(), keys::TYPE).await?,
        GetKind::Unavailable => unavailable(table, scope).await?,
        GetKind::Learned => {
            let items = read_learned(table, scope.region, scope.now).await?;
            items.iter().map(|(what, item)| json::learned(what, item)).collect()
        }
        GetKind::Nodes => nodes::nodes(table, scope).await?,
        GetKind::Catalog => catalog(table, scope).await?,
        GetKind::Events => events(table, scope).await?,
    };
    let wanted = |item: &Json| {
        let found = item.get(kind.name_attribute()).and_then(Json::as_str);
        name.is_none_or(|name| found == Some(name))
    };
    Ok(items.into_iter().filter(wanted).collect())
}

/// The clusters of the region's registry.
pub(crate) async fn clusters<T: Table>(table: &T, region: &Region) -> Result<Vec<ClusterName>, ListError> {
    let query =
        Query::new(keys::region_pk(region), SkRange::Prefix(keys::CLUSTER.to_owned()), Consistency::Eventual);
    let items = query_all(table, &query).await?;
    let name = |key: &Key| keys::name_of(key, keys::CLUSTER).and_then(|name| ClusterName::parse(name).ok());
    Ok(items.iter().filter_map(|(key, _)| name(key)).collect())
}

pub(super) async fn query<T: Table>(
    table: &T,
    pk: String,
    range: SkRange,
) -> Result<Vec<(Key, Item)>, TableError> {
    query_all(table, &Query::new(pk, range, Consistency::Eventual)).await
}

/// Items of a partition; of none where there is no such partition.
async fn by_prefix<T: Table>(table: &T, pk: Option<String>, prefix: &str) -> Result<Vec<Json>, ListError> {
    let Some(pk) = pk else { return Ok(Vec::new()) };
    let items = query(table, pk, SkRange::Prefix(prefix.to_owned())).await?;
    Ok(items.iter().map(|(_, item)| Json::Object(json::item(item))).collect())
}

/// Marks with an effect now; cleared and forgotten ones stay in the table until DynamoDB deletes them. A mark in an
/// unreadable form is shown as stored. A mark that was just cleared isn't shown.
async fn unavailable<T: Table>(table: &T, scope: ListScope<'_>) -> Result<Vec<Json>, ListError> {
    let range = SkRange::Prefix(keys::UNAVAILABLE.to_owned());
    let pk = keys::region_pk(scope.region);
    let items = query_all(table, &Query::new(pk, range, Consistency::Strong)).await?;
    let forgotten = |key: &Key, item: &Item| {
        from_item::<Mark>(key, item).is_ok_and(|mark| mark.state(scope.now) == MarkState::Forgotten)
    };
    let said = items.iter().filter(|(key, item)| !forgotten(key, item));
    Ok(said.map(|(_, item)| Json::Object(json::item(item))).collect())
}

/// NodePools, with what pauses their voluntary disruption, and what in them isn't acted on or can't be understood.
async fn pools<T: Table>(table: &T, scope: ListScope<'_>) -> Result<Vec<Json>, ListError> {
    let Some(cluster) = scope.cluster else { return Ok(Vec::new()) };
    let mut pools = by_prefix(table, Some(keys::cluster_pk(cluster)), keys::NODE_POOL).await?;
    let key = keys::registry(scope.region, cluster);
    let registry = table.get(&key, Consistency::Eventual).await?;
    let registry = registry.and_then(|item| from_item::<Registry>(&key, &item).ok());
    let by_setting =
        registry.is_some_and(|found| found.settings.voluntary_disruption == FeatureGate::Disabled);
    let paused = PoolConditionType::DisruptionPaused.as_str();
    let unsupported = PoolConditionType::Unsupported.as_str();
    for pool in pools.iter_mut().filter_map(Json::as_object_mut) {
        let conditions = pool.get("conditions").and_then(Json::as_array).into_iter().flatten();
        let kinds: Vec<&str> = conditions.clone().filter_map(|one| one.get("type")?.as_str()).collect();
        let ignored = conditions
            .filter(|one| one.get("type").and_then(Json::as_str) == Some(unsupported))
            .find_map(|one| one.get("message").cloned());
        let by = match (by_setting, kinds.contains(&paused)) {
            (true, true) => Some("by setting and annotation"),
            (true, false) => Some("by setting"),
            (false, true) => Some("by annotation"),
            (false, false) => None,
        };
        pool.insert("disruption_paused".to_owned(), json!(by));
        pool.insert("unsupported".to_owned(), json!(ignored));
    }
    Ok(pools)
}

/// Images, with what their instances showed: `boots` by cluster and class, and `failed` while a failure counts.
async fn images<T: Table>(table: &T, scope: ListScope<'_>) -> Result<Vec<Json>, ListError> {
    let pk = keys::region_pk(scope.region);
    let mut images = by_prefix(table, Some(pk.clone()), keys::IMAGE).await?;
    let boots = query(table, pk, SkRange::Prefix(keys::BOOT.to_owned())).await?;
    for image in images.iter_mut().filter_map(Json::as_object_mut) {
        let (mut shown, mut failed) = (Vec::new(), Vec::new());
        for (key, item) in &boots {
            let Ok(record) = from_item::<BootRecord>(key, item) else { continue };
            if image.get("id").and_then(Json::as_str) != Some(record.image.as_str()) {
                continue;
            }
            shown.push(Json::Object(json::item(item)));
            if let Some(failure) = record.failure.filter(|failure| scope.now < failure.until()) {
                failed.push(format!("{} ({}/{})", failure.fault, record.cluster, record.class));
            }
        }
        if !shown.is_empty() {
            image.insert("boots".to_owned(), Json::Array(shown));
        }
        if !failed.is_empty() {
            image.insert("failed".to_owned(), json!(failed));
        }
    }
    Ok(images)
}

/// EC2NodeClasses, as they resolved. One that can't be read any more isn't ready, as Kubernetes shows it. Nor is one that
/// is being deleted: nothing is launched from it.
async fn classes<T: Table>(table: &T, scope: ListScope<'_>) -> Result<Vec<Json>, ListError> {
    let Some(cluster) = scope.cluster else { return Ok(Vec::new()) };
    let mut classes = by_prefix(table, Some(keys::cluster_pk(cluster)), keys::NODE_CLASS).await?;
    classes.iter_mut().for_each(show_reasons);
    let key = keys::told(cluster, FunctionName::NodeClasses);
    let told = table.get(&key, Consistency::Eventual).await?;
    let told = told.and_then(|item| from_item::<ToldFindings>(&key, &item).ok());
    let findings = told.map(|told| told.findings).unwrap_or_default();
    for finding in &findings {
        let named = |class: &&mut Json| {
            class.get("name").and_then(Json::as_str).is_some_and(|name| finding.names.contains(name))
        };
        let shown = not_ready_by(finding);
        classes.iter_mut().filter(named).for_each(|class| show_not_ready(class, shown, finding));
    }
    Ok(classes)
}

/// The conditions of an EC2NodeClass that are False by a finding about it.
fn not_ready_by(finding: &ToldFinding) -> &'static [ConditionType] {
    if finding.shown == Shown::Invalid {
        &[ConditionType::ValidationSucceeded, ConditionType::Ready]
    } else if finding.kind == SubjectKind::Class && finding.reason == CLASS_IN_USE {
        &[ConditionType::Ready]
    } else {
        &[]
    }
}

fn show_not_ready(class: &mut Json, shown: &[ConditionType], finding: &ToldFinding) {
    let is_shown = |named: &str| shown.iter().any(|condition| condition.as_str() == named);
    let conditions = class.get_mut("conditions").and_then(Json::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Json::as_object_mut) {
        if condition.get("type").and_then(Json::as_str).is_some_and(is_shown) {
            condition.insert("status".to_owned(), json!(ConditionStatus::False.as_str()));
            condition.insert("reason".to_owned(), json!(finding.reason));
            condition.insert("message".to_owned(), json!(finding.message));
            condition.insert("since".to_owned(), json!(finding.since.to_string()));
        }
    }
}

/// Gives conditions the reason that Kubernetes shows: the exact one, and their own type where they hold.
fn show_reasons(class: &mut Json) {
    let conditions = class.get_mut("conditions").and_then(Json::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Json::as_object_mut) {
        if let Some(exact) = condition.remove("exact_reason") {
            condition.insert("reason".to_owned(), exact);
        }
        let word = |field: &str| condition.get(field).and_then(Json::as_str);
        let holds = word("reason") == Some(ConditionReason::Holds.as_str());
        let shown = word("type").and_then(ConditionType::parse).filter(|_| holds);
        if let Some(condition_type) = shown {
            condition.insert("reason".to_owned(), json!(condition_type.reason_of_true()));
        }
    }
}

/// Each part of the catalogue as an item.
async fn catalog<T: Table>(table: &T, scope: ListScope<'_>) -> Result<Vec<Json>, ListError> {
    let found = table.get(&keys::catalog(scope.region), Consistency::Eventual).await?;
    let attributes = found.map(|item| json::item(&item)).unwrap_or_default();
    let part = |part: CatalogPart| {
        let mut item = attributes.get(part.as_str())?.as_object()?.clone();
        item.insert("part".to_owned(), json!(part.as_str()));
        Some(Json::Object(item))
    };
    Ok(CatalogPart::ALL.into_iter().filter_map(part).collect())
}

/// Today's decisions about the cluster and about the region, in order.
async fn events<T: Table>(table: &T, scope: ListScope<'_>) -> Result<Vec<Json>, ListError> {
    let mut lines: Vec<(String, Map<String, Json>)> = Vec::new();
    let cluster = scope.cluster.map(JournalOf::Cluster);
    for of in cluster.into_iter().chain([JournalOf::Region(scope.region)]) {
        let found = query(table, of.day_pk(scope.now), SkRange::All).await?;
        lines.extend(found.iter().map(|(key, item)| (key.sk.clone(), json::item(item))));
    }
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(lines.into_iter().map(|(_, line)| Json::Object(line)).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tenon_domain::journal::Decision;

    use super::*;

    #[test]
    fn a_class_that_cant_be_read_any_more_is_shown_as_not_ready() {
        let at = Timestamp::UNIX_EPOCH;
        let finding = ToldFinding {
            identity: String::new(),
            kind: SubjectKind::Class,
            names: BTreeSet::from(["default".to_owned()]),
            decision: Decision::Refused,
            reason: "Unreadable".to_owned(),
            message: "ignoring it".to_owned(),
            shown: Shown::Invalid,
            since: at,
            told_at: at,
            next_try: None,
        };
        let condition = |name: &str, status: &str| json!({ "type": name, "status": status });
        let mut class = json!({ "conditions": [condition("AMIsReady", "True"), condition("Ready", "True")] });
        show_not_ready(&mut class, not_ready_by(&finding), &finding);
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "Unreadable", "message": "ignoring it",
            "since": "1970-01-01T00:00:00Z"
        });
        assert_eq!(class["conditions"], json!([condition("AMIsReady", "True"), ready]));
        let ending = ToldFinding { reason: CLASS_IN_USE.to_owned(), shown: Shown::Event, ..finding };
        let healthy = [condition("ValidationSucceeded", "True"), condition("Ready", "True")];
        let mut class = json!({ "conditions": healthy });
        show_not_ready(&mut class, not_ready_by(&ending), &ending);
        assert_eq!(class["conditions"][0], condition("ValidationSucceeded", "True"));
        assert_eq!(class["conditions"][1]["status"], "False");
        assert_eq!(class["conditions"][1]["reason"], "WaitingOnNodeClaimTermination");
    }
}
