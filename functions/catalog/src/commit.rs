//! Writes what was planned: each part by itself, then the items for people.
//!
//! A part's pieces are put one by one, then its pointer under the pointer's revision. What goes through stays; what is
//! throttled comes back with the message, and finds the rest unchanged.

use std::collections::BTreeMap;

use tenon_domain::evidence::{CatalogPart, Origin};
use tenon_entrypoint::{HandlerError, Ports, content_commit};
use tenon_table::items::{self, CatalogMeta, PartMeta, Refresh, failure_commit, keys, refresh};
use tenon_table::{Commit, CommitError, Table, Write};

use crate::observe::{catalog_error, form, meta};
use crate::plan::Plan;
use crate::types;

/// How often a pass reads the pointers again because another one was faster. What EC2 said doesn't become wrong by
/// that, and there are as many other passes as parts.
const RACES: usize = 4;

/// What went through.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Parts with new content, as their pointers are now.
    pub(crate) changed: BTreeMap<CatalogPart, PartMeta>,
    /// What the last part that didn't go through ran into.
    pub(crate) failed: Option<HandlerError>,
}

pub(crate) async fn commit<P: Ports>(ports: &P, plan: &Plan) -> Committed {
    let mut committed = Committed::default();
    for part in CatalogPart::ALL {
        match commit_part(ports, plan, part).await {
            Ok(Some(meta)) => {
                committed.changed.insert(part, meta);
            }
            Ok(None) => {}
            Err(error) => committed.failed = Some(error),
        }
    }
    committed
}

/// Writes one part; gives its pointer where the content is new.
async fn commit_part<P: Ports>(
    ports: &P,
    plan: &Plan,
    part: CatalogPart,
) -> Result<Option<PartMeta>, HandlerError> {
    let mut lost = None;
    for _ in 0..RACES {
        let before = meta(ports).await?;
        let Some(refresh) = part_writes(ports, plan, part, &before)? else { return Ok(None) };
        for piece in &refresh.pieces {
            ports.table().commit(piece).await.map_err(HandlerError::Commit)?;
        }
        match ports.table().commit(&refresh.pointer).await {
            Ok(()) => return pointer(ports, part, &before, &refresh.pointer),
            Err(CommitError::LostRace { lost: conditions }) => {
                lost = Some(CommitError::LostRace { lost: conditions })
            }
            Err(
                error @ (CommitError::Conflict { .. }
                | CommitError::TokenMismatch { .. }
                | CommitError::Throttled { .. }
                | CommitError::ItemTooLarge { .. }
                | CommitError::TooLarge { .. }
                | CommitError::Invalid { .. }
                | CommitError::Unavailable(_)),
            ) => return Err(HandlerError::Commit(error)),
        }
    }
    lost.map_or(Ok(None), |error| Err(HandlerError::Commit(error)))
}

fn part_writes<P: Ports>(
    ports: &P,
    plan: &Plan,
    part: CatalogPart,
    before: &CatalogMeta,
) -> Result<Option<Refresh>, HandlerError> {
    let region = &ports.installation().region;
    if let Some(data) = plan.refreshed.get(&part) {
        return refresh(region, before, (data, Origin::Answered), plan.now).map(Some).map_err(catalog_error);
    }
    let failed = |failure| failure_commit(region, before, part, failure, plan.now);
    Ok(plan.failed.get(&part).map(|failure| Refresh { pieces: Vec::new(), pointer: failed(failure) }))
}

/// The pointer that a commit wrote, where its generation is a new one.
fn pointer<P: Ports>(
    ports: &P,
    part: CatalogPart,
    before: &CatalogMeta,
    commit: &Commit,
) -> Result<Option<PartMeta>, HandlerError> {
    let key = keys::catalog(&ports.installation().region);
    for write in &commit.writes {
        if let Write::Set { key: written, set, .. } = write
            && *written == key
        {
            let mut after: CatalogMeta = items::from_item(&key, set).map_err(form)?;
            let generation = |meta: &CatalogMeta| meta.parts.get(&part).map_or(0, |part| part.generation);
            let changed = generation(&after) != generation(before);
            return Ok(after.parts.remove(&part).filter(|_| changed));
        }
    }
    Ok(None)
}

/// Writes the items for people one by one: half the price of transactions, and slow enough in practice not to be
/// throttled. Where it is throttled all the same, the next wake goes on with what is still different.
pub(crate) async fn commit_types<P: Ports>(ports: &P, plan: &types::Plan) -> Result<(), HandlerError> {
    let region = &ports.installation().region;
    let changed =
        plan.changed.iter().map(|record| items::set(keys::instance_type(region, &record.name), record));
    let gone = plan.gone.iter().map(|name| Write::Delete { key: keys::instance_type(region, name) });
    let seen = items::set(keys::region_seen(region, tenon_domain::wake::FunctionName::Catalog), &plan.seen);
    for write in changed.chain(gone).chain([seen]) {
        match ports.table().commit(&content_commit(Vec::new(), vec![write])).await {
            Ok(()) => {}
            Err(CommitError::Throttled { .. }) => return Ok(()),
            Err(
                error @ (CommitError::LostRace { .. }
                | CommitError::Conflict { .. }
                | CommitError::TokenMismatch { .. }
                | CommitError::ItemTooLarge { .. }
                | CommitError::TooLarge { .. }
                | CommitError::Invalid { .. }
                | CommitError::Unavailable(_)),
            ) => return Err(HandlerError::Commit(error)),
        }
    }
    Ok(())
}
