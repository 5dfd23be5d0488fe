//! Writing a snapshot: new chunks, then the manifest, then the expiry of dropped chunks.
//!
//! Decides the order and the conditions. After a crash between two writes, the previous or the new manifest is
//! readable, and repeating a write changes nothing.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tenon_domain::id::ClusterName;
use tenon_table::{
    Commit, CommitError, CommitToken, Consistency, Expect, Item, Key, Query, SkRange, Table, TableError,
    Value, Write, WriteCondition, query_all,
};

use super::index::index_key;
use super::{
    CHUNK_PREFIX, ChunkRef, Encoded, Heartbeat, Manifest, RETIRED_CHUNKS_STAY, SnapshotManifestError,
    chunk_key, heartbeat_key, manifest_key, partition,
};

/// The attribute by which the table deletes.
const EXPIRES_AT: &str = "expires_at";

/// Why a snapshot wasn't written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Another agent wrote in between: read the manifest again.
    #[error("another agent has written the manifest: read it again")]
    LostRace,
    /// The table didn't take it: try again at the next step.
    #[error("can't write the snapshot")]
    Commit(#[source] CommitError),
    /// The table didn't answer: try again at the next step.
    #[error("can't read the table")]
    Table(#[source] TableError),
    /// The manifest can't be an item.
    #[error("invalid manifest")]
    Form(#[source] SnapshotManifestError),
}

/// Writes a snapshot under a generation, conditional on the manifest that it was encoded against. Returns the new
/// manifest.
///
/// # Errors [`WriteError`] tells the caller what to do next.
pub async fn write<T: Table>(
    table: &T,
    cluster: &ClusterName,
    encoded: &Encoded,
    generation: u64,
    base: Option<&Manifest>,
) -> Result<Manifest, WriteError> {
    for chunk in &encoded.new {
        let write = Write::Put { key: chunk_key(cluster, &chunk.name), item: chunk.to_item() };
        send(table, &format!("c-{}", chunk.name.digest), vec![], write).await?;
    }
    let known = base.and_then(|manifest| manifest.index.as_ref());
    let replaced = known.filter(|known| encoded.manifest.index.as_ref() != Some(known));
    if let Some(index) = encoded.manifest.index.as_ref().filter(|index| known != Some(index)) {
        let write = Write::Put { key: index_key(cluster, &index.digest), item: index.to_item() };
        send(table, &format!("i-{}", index.digest), vec![], write).await?;
    }
    let revision = base.map_or(0, |manifest| manifest.revision);
    let manifest = Manifest { generation, revision: revision.saturating_add(1), ..encoded.manifest.clone() };
    let key = manifest_key(cluster);
    let expect = if base.is_some() { Expect::Revision(revision) } else { Expect::Absent };
    let condition = WriteCondition::Item { key: key.clone(), expect };
    let write = Write::Put { key, item: manifest.to_item().map_err(WriteError::Form)? };
    send(table, &format!("m-{generation}-{}", manifest.revision), vec![condition], write).await?;
    if let Some(replaced) = replaced {
        // The manifest is written; the next leader finds an index that stays.
        let _stays = retire(table, index_key(cluster, &replaced.digest), manifest.taken_at).await;
    }
    Ok(manifest)
}

/// Confirms a generation.
///
/// # Errors [`WriteError`] tells the caller what to do next.
pub async fn beat<T: Table>(
    table: &T,
    cluster: &ClusterName,
    heartbeat: Heartbeat,
) -> Result<(), WriteError> {
    let write =
        Write::Put { key: heartbeat_key(cluster), item: heartbeat.to_item().map_err(WriteError::Form)? };
    send(table, &format!("h-{}", heartbeat.seen_at.as_millisecond()), vec![], write).await
}

impl Encoded {
    /// Lets chunks that only the previous manifest named expire in an hour.
    ///
    /// # Errors [`WriteError`]; [`retire_orphans`] finds the rest.
    pub async fn retire_dropped<T: Table>(
        &self,
        table: &T,
        cluster: &ClusterName,
        now: Timestamp,
    ) -> Result<(), WriteError> {
        for chunk in &self.dropped {
            retire(table, chunk_key(cluster, chunk), now).await?;
        }
        Ok(())
    }
}

/// Lets all chunks outside the manifest expire in an hour: those of an interrupted agent. Returns their number.
///
/// # Errors [`WriteError`] tells the caller what to do next.
pub async fn retire_orphans<T: Table>(
    table: &T,
    cluster: &ClusterName,
    manifest: &Manifest,
    now: Timestamp,
) -> Result<usize, WriteError> {
    let chunks = manifest.chunks.iter().map(|chunk: &ChunkRef| chunk_key(cluster, chunk));
    let index = manifest.index.iter().map(|index| index_key(cluster, &index.digest));
    let named: BTreeSet<Key> = chunks.chain(index).collect();
    let query =
        Query::new(partition(cluster), SkRange::Prefix(CHUNK_PREFIX.to_owned()), Consistency::Eventual);
    let chunks = query_all(table, &query).await.map_err(WriteError::Table)?;
    let orphans =
        chunks.into_iter().filter(|(key, item)| !named.contains(key) && !item.contains_key(EXPIRES_AT));
    let mut count = 0;
    for (key, _) in orphans {
        retire(table, key, now).await?;
        count += 1;
    }
    Ok(count)
}

async fn retire<T: Table>(table: &T, key: Key, now: Timestamp) -> Result<(), WriteError> {
    let at = now.saturating_add(RETIRED_CHUNKS_STAY).unwrap_or(Timestamp::MAX).as_second();
    let token = format!("r-{at}");
    let set = Item::from([(EXPIRES_AT.to_owned(), Value::number(at))]);
    send(table, &token, vec![], Write::Set { key, set, remove: vec![] }).await
}

async fn send<T: Table>(
    table: &T,
    token: &str,
    conditions: Vec<WriteCondition>,
    write: Write,
) -> Result<(), WriteError> {
    let invalid = |message| WriteError::Commit(CommitError::Invalid { message });
    let token = CommitToken::parse(token).map_err(|error| invalid(error.to_string()))?;
    let commit = Commit { token, conditions, writes: vec![write] };
    match table.commit(&commit).await {
        Ok(()) => Ok(()),
        Err(CommitError::LostRace { .. }) => Err(WriteError::LostRace),
        Err(error) => Err(WriteError::Commit(error)),
    }
}
