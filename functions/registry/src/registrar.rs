//! One request of a stack, applied to the table.
//!
//! Decides who owns an entry, and the meaning of a repeated request. Another stack's entry is neither taken over nor
//! deleted: two stacks of one cluster would undo each other at each deployment. A written entry rings `provisioner`: a
//! raised bound lets pods that wait have nodes at once.

use tenon_domain::SignedDuration;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_runtime::error::chain;
use tenon_runtime::{Installation, Signals};
use tenon_table::items::{keys, set};
use tenon_table::key::REVISION;
use tenon_table::{
    Commit, CommitError, CommitToken, Consistency, Expect, Item, Key, Table, Value, Write, WriteCondition,
};

use crate::origins::check_stack;
use crate::properties;
use crate::request::{CustomResourceRequest, CustomResourceResponse, RequestKind};

/// The attribute with the stack of an entry.
const STACK: &str = "stack";

/// Handles CloudFormation's request. It never fails: a failure is an answer too.
pub async fn answer<T: Table, S: Signals>(
    table: &T,
    signals: &S,
    installation: &Installation,
    request: &CustomResourceRequest,
) -> CustomResourceResponse {
    let named = properties::cluster(&request.resource_properties);
    let physical = named.as_ref().map(|cluster| keys::registry(&installation.region, cluster).to_string());
    // A malformed name has no entry, so CloudFormation's deletion during its rollback finds nothing.
    let physical = physical.unwrap_or_else(|| "none".to_owned());
    let done = match check_stack(installation, &request.stack_id) {
        Ok(()) => apply(table, signals, installation, named.as_ref(), request).await,
        Err(reason) => Err(reason),
    };
    // A failed update keeps the resource's id.
    let kept = request.physical_resource_id.clone().filter(|_| done.is_err());
    CustomResourceResponse::new(request, kept.unwrap_or(physical), done)
}

async fn apply<T: Table, S: Signals>(
    table: &T,
    signals: &S,
    installation: &Installation,
    named: Option<&ClusterName>,
    request: &CustomResourceRequest,
) -> Result<(), String> {
    match request.kind {
        RequestKind::Create | RequestKind::Update => write(table, signals, installation, request).await,
        RequestKind::Delete => match named {
            Some(cluster) => remove(table, installation, cluster, request).await,
            None => Ok(()),
        },
    }
}

async fn write<T: Table, S: Signals>(
    table: &T,
    signals: &S,
    installation: &Installation,
    request: &CustomResourceRequest,
) -> Result<(), String> {
    let entry = properties::parse(installation, &request.resource_properties)
        .map_err(|problems| problems.join("; "))?;
    let key = keys::registry(&installation.region, &entry.cluster);
    let found = FoundRegistration::read(table, &key).await?;
    found.check(&request.stack_id, &entry.cluster, &key)?;
    let mut write = set(key.clone(), &entry);
    if let Write::Set { set, .. } = &mut write {
        set.insert(STACK.to_owned(), Value::text(&request.stack_id));
        set.insert(REVISION.to_owned(), Value::number(found.revision.unwrap_or(0).saturating_add(1)));
    }
    commit(table, request, key, found, write).await?;
    // Sweeps see the entry too, minutes later. Bounds of launches and a pause of disruption hold at once.
    for function in [FunctionName::Provisioner, FunctionName::Disruption] {
        signals.wake(function, &entry.cluster, SignedDuration::ZERO).await;
    }
    Ok(())
}

async fn remove<T: Table>(
    table: &T,
    installation: &Installation,
    cluster: &ClusterName,
    request: &CustomResourceRequest,
) -> Result<(), String> {
    let key = keys::registry(&installation.region, cluster);
    let found = FoundRegistration::read(table, &key).await?;
    // It doesn't exist, or belongs to another stack: CloudFormation rolls back a refused creation by a deletion.
    if found.stack.as_ref() != Some(&request.stack_id) {
        return Ok(());
    }
    commit(table, request, key.clone(), found, Write::Delete { key }).await
}

/// The stored entry.
struct FoundRegistration {
    revision: Option<u64>,
    stack: Option<String>,
}

impl FoundRegistration {
    async fn read<T: Table>(table: &T, key: &Key) -> Result<Self, String> {
        let item: Item = match table.get(key, Consistency::Strong).await {
            Ok(None) => return Ok(Self { revision: None, stack: None }),
            Ok(Some(item)) => item,
            Err(error) => return Err(format!("can't read item `{key}`: {}; deploy again", chain(&error))),
        };
        let revision = item.get(REVISION).and_then(Value::as_number).and_then(tenon_table::Number::to_u64);
        let revision = revision.ok_or_else(|| {
            format!(
                "item `{key}` isn't from a stack: it has no `{REVISION}`; delete the item, then deploy again"
            )
        })?;
        let stack = item.get(STACK).and_then(Value::as_text).map(str::to_owned);
        Ok(Self { revision: Some(revision), stack })
    }

    fn check(&self, stack: &str, cluster: &ClusterName, key: &Key) -> Result<(), String> {
        match (&self.revision, &self.stack) {
            (None, _) => Ok(()),
            (Some(_), Some(owner)) if owner == stack => Ok(()),
            (Some(_), owner) => {
                let owner = owner.as_deref().unwrap_or("(unknown)");
                Err(format!(
                    "cluster `{cluster}` is registered by stack `{owner}`: change it there, or delete that stack first; if \
                     that stack is gone already, delete item `{key}`, then deploy again"
                ))
            }
        }
    }
}

async fn commit<T: Table>(
    table: &T,
    request: &CustomResourceRequest,
    key: Key,
    found: FoundRegistration,
    write: Write,
) -> Result<(), String> {
    let expect = found.revision.map_or(Expect::Absent, Expect::Revision);
    let commit = Commit {
        token: CommitToken::of_texts([request.request_id.as_str(), request.stack_id.as_str()]),
        conditions: vec![WriteCondition::Item { key: key.clone(), expect }],
        writes: vec![write],
    };
    match table.commit(&commit).await {
        Ok(()) => Ok(()),
        Err(CommitError::LostRace { .. }) => {
            Err(format!("another request changed item `{key}` meanwhile: deploy again"))
        }
        Err(error) => Err(format!("can't write item `{key}`: {}; deploy again", chain(&error))),
    }
}
