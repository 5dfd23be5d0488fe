//! Writes a plan: each part by itself, then the items for people.
//!
//! A part's pieces are written one by one, then its pointer under the pointer's revision. Written parts stay; after
//! throttling the event returns, and the next pass finds them unchanged.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::wake::FunctionName;
use tenon_runtime::{HandlerError, Ports};
use tenon_table::content_commit;
use tenon_table::items::{
    self, CatalogMeta, PartMeta, Refresh, Substitute, TypesClaim, failed, keys, refresh,
    refresh_without_answer,
};
use tenon_table::{CommitError, Expect, Table, Write, WriteCondition};

use crate::observe::{catalog_error, meta};
use crate::plan::{CatalogPlan, StandIn};
use crate::types::{TypesPlan, TypesRight};

/// How often a pass reads the pointers again after a lost race. EC2's answer stays valid, and there are as many other
/// passes as parts.
const RACES: usize = 4;

/// A part to announce as refreshed.
#[derive(Debug)]
pub(crate) struct Refreshed {
    /// Its pointer, as it is now.
    pub(crate) meta: PartMeta,
    /// Since when it couldn't be refreshed, where it now could.
    pub(crate) failed_since: Option<Timestamp>,
}

/// The written parts.
#[derive(Debug, Default)]
pub(crate) struct CommittedParts {
    /// Parts with new content, and those that could be refreshed again.
    pub(crate) refreshed: BTreeMap<CatalogPart, Refreshed>,
    /// The error of the last part that wasn't written.
    pub(crate) failed: Option<HandlerError>,
}

pub(crate) async fn commit<P: Ports>(ports: &P, plan: &CatalogPlan) -> CommittedParts {
    let mut committed = CommittedParts::default();
    for part in plan.refreshed.keys().chain(plan.failed.keys()) {
        match commit_part(ports, plan, *part).await {
            Ok(Some(refreshed)) => {
                committed.refreshed.insert(*part, refreshed);
            }
            Ok(None) => {}
            Err(error) => committed.failed = Some(error),
        }
    }
    committed
}

/// Writes one part; announces it if its content is new or was missing.
async fn commit_part<P: Ports>(
    ports: &P,
    plan: &CatalogPlan,
    part: CatalogPart,
) -> Result<Option<Refreshed>, HandlerError> {
    let mut lost = None;
    for _ in 0..RACES {
        let mut before = meta(ports).await?;
        if let (true, Some(known)) = (plan.broken.contains(&part), before.parts.get_mut(&part)) {
            known.packed_until = None;
        }
        let Some(writes) = part_writes(ports, plan, part, &before)? else { return Ok(None) };
        for piece in &writes.pieces {
            ports.table().commit(piece).await.map_err(HandlerError::Commit)?;
        }
        match ports.table().commit(&writes.pointer).await {
            Ok(()) => return Ok(refreshed(before.parts.get(&part), writes.after)),
            Err(CommitError::LostRace { lost: conditions }) => {
                lost = Some(CommitError::LostRace { lost: conditions })
            }
            Err(error) => return Err(HandlerError::Commit(error)),
        }
    }
    lost.map_or(Ok(None), |error| Err(HandlerError::Commit(error)))
}

fn part_writes<P: Ports>(
    ports: &P,
    plan: &CatalogPlan,
    part: CatalogPart,
    before: &CatalogMeta,
) -> Result<Option<Refresh>, HandlerError> {
    let (region, now) = (&ports.installation().region, plan.now);
    if let Some(data) = plan.refreshed.get(&part) {
        return refresh(region, before, data, now).map(Some).map_err(catalog_error);
    }
    let Some(failure) = plan.failed.get(&part) else { return Ok(None) };
    Ok(Some(match plan.stand_ins.get(&part) {
        Some(StandIn { data, origin }) => {
            refresh_without_answer(region, before, Substitute { data, origin: origin.clone() }, failure, now)
                .map_err(catalog_error)?
        }
        None => failed(region, before, part, failure, now),
    }))
}

/// The announcement of a part's new pointer; `None` if only its date or its error changed.
fn refreshed(before: Option<&PartMeta>, after: PartMeta) -> Option<Refreshed> {
    let failed_since =
        before.and_then(|before| before.failing_since).filter(|_| after.failing_since.is_none());
    let is_new = after.generation != before.map_or(0, |before| before.generation);
    (is_new || failed_since.is_some()).then_some(Refreshed { meta: after, failed_since })
}

/// Writes the items for people one by one, at half the price of transactions, and slowly enough to avoid throttling
/// in practice. After throttling, the claim ends by itself, and a later wake writes the remaining differences.
pub(crate) async fn commit_types<P: Ports>(ports: &P, plan: &TypesPlan) -> Result<(), HandlerError> {
    let region = &ports.installation().region;
    let claim = match plan.right {
        TypesRight::Few => None,
        TypesRight::Taken => return Ok(()),
        TypesRight::Claims { before, claim } => {
            if !write_claim(ports, claim, before).await? {
                return Ok(());
            }
            Some(claim)
        }
    };
    let changed =
        plan.changed.iter().map(|record| items::set(keys::instance_type(region, &record.name), record));
    let gone = plan.gone.iter().map(|name| Write::Delete { key: keys::instance_type(region, name) });
    let seen = items::set(keys::region_seen(region, FunctionName::Catalog), &plan.seen);
    for write in changed.chain(gone).chain([seen]) {
        match ports.table().commit(&content_commit(Vec::new(), vec![write])).await {
            Ok(()) => {}
            Err(CommitError::Throttled { .. }) => return Ok(()),
            Err(error) => return Err(HandlerError::Commit(error)),
        }
    }
    if let Some(claim) = claim {
        let ended = TypesClaim { revision: claim.revision.saturating_add(1), until: ports.now() };
        write_claim(ports, ended, claim.revision).await?;
    }
    Ok(())
}

/// Writes a claim, or its end; whether nobody else wrote it first.
async fn write_claim<P: Ports>(ports: &P, claim: TypesClaim, before: u64) -> Result<bool, HandlerError> {
    let key = keys::types_claim(&ports.installation().region);
    let expect = if before == 0 { Expect::Absent } else { Expect::Revision(before) };
    let condition = WriteCondition::Item { key: key.clone(), expect };
    match ports.table().commit(&content_commit(vec![condition], vec![items::set(key, &claim)])).await {
        Ok(()) => Ok(true),
        Err(CommitError::LostRace { .. } | CommitError::Conflict { .. } | CommitError::Throttled { .. }) => {
            Ok(false)
        }
        Err(error) => Err(HandlerError::Commit(error)),
    }
}
