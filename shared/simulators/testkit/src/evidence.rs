//! The evidence of decisions, compared with the table's content at their time.
//!
//! Decides which parts a decision needs: types and offerings for every decision about nodes, the prices of the
//! launched capacity type, and the agent's snapshot. It samples the table from outside, and doesn't judge moments
//! between samples.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::journal::{Decision, JournalRecord, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_memory_table::block_on;
use tenon_memory_table::{Backup, MemoryConfig, MemoryTable, Throughput};
use tenon_region::engine::SimulatedRegion;
use tenon_table::items::packed::parts_of;
use tenon_table::items::{self, CatalogCache, CatalogMeta, PartMeta, keys};
use tenon_table::{Item, Key};

use crate::invariants::{Found, Invariant};

/// A pass has the time of its beginning, and reads what arrives during it: it waits up to 40 s for a throttled table,
/// and makes ten calls of at most 400 ms each.
const READS_TAKE: SignedDuration = SignedDuration::from_secs(44);

/// The age from which a part of the catalogue, or the snapshot, supports no decision: ARCHITECTURE.md, "Evidence".
const fn stale_after(part: CatalogPart) -> SignedDuration {
    match part {
        CatalogPart::InstanceTypes | CatalogPart::Offerings => SignedDuration::from_hours(7 * 24),
        CatalogPart::OnDemandPrices => SignedDuration::from_hours(30 * 24),
        CatalogPart::SpotPrices => SignedDuration::from_hours(6),
    }
}
const SNAPSHOT_STALE_AFTER: SignedDuration = SignedDuration::from_secs(90);
/// How far the time of a snapshot may be ahead.
const CLOCK_SKEW_MOST: SignedDuration = SignedDuration::from_secs(15);

/// Reasons for pods without a node that are about the catalogue.
const SAID_OF_CATALOG: [&str; 6] = [
    "NoInstanceType",
    "InsufficientResources",
    "NoOffering",
    "AllOfferingsUnavailable",
    "ZonesShifted",
    "MinValuesNotSatisfied",
];

/// Samples of a region's table.
#[derive(Default)]
pub struct EvidenceSeen {
    /// The table at the last look.
    read: Option<Backup>,
    version: u64,
    /// The catalogue's item at the last look.
    catalog: Option<Item>,
    /// The sampled pointers, in their order.
    parts: BTreeMap<CatalogPart, Vec<PartMeta>>,
    /// The agent's last report, as of the previous look and of this one.
    heard: [Option<Timestamp>; 2],
    /// The times of both samples.
    looked: [Timestamp; 2],
    /// Judged decisions.
    judged: BTreeSet<Key>,
}

fn found(text: String) -> Found {
    Err((Invariant::EvidenceHeld, text))
}

/// No decision uses a part of the catalogue, or a snapshot, that is missing, stale or half-written.
///
/// # Errors The invariant, and the finding.
pub fn invariant_evidence_held(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    seen: &mut EvidenceSeen,
) -> Found {
    let version = region.table().version();
    if version == seen.version {
        seen.looked[1] = region.now();
        return Ok(());
    }
    seen.version = version;
    seen.hear(region, cluster);
    seen.read_catalog(region)?;
    let now = region.table().backup();
    let judged = seen.judge(&now, cluster);
    seen.read = Some(now);
    judged
}

impl EvidenceSeen {
    /// Records the time of the agent's last report.
    fn hear(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let time = |key: &Key, name: &str| -> Option<Timestamp> {
            region.table().peek(key)?.get(name)?.as_text()?.parse().ok()
        };
        let spoken = [
            time(&tenon_snapshot::snapshot::manifest_key(cluster), "taken_at"),
            time(&tenon_snapshot::snapshot::heartbeat_key(cluster), "seen_at"),
        ];
        self.heard = [self.heard[1], spoken.into_iter().flatten().max()];
        self.looked = [self.looked[1], region.now()];
    }

    /// Samples the pointers, and checks that their content is whole.
    fn read_catalog(&mut self, region: &SimulatedRegion) -> Found {
        let name = &region.installation().region;
        let key = keys::catalog(name);
        let item = region.table().peek(&key);
        if item == self.catalog {
            return Ok(());
        }
        let meta: Option<CatalogMeta> = item.as_ref().and_then(|item| items::from_item(&key, item).ok());
        self.catalog = item;
        let Some(meta) = meta else { return Ok(()) };
        for (part, pointer) in &meta.parts {
            let known = self.parts.entry(*part).or_default();
            let digest = known.last().map(|known| known.digest.as_str());
            let new = pointer.generation > 0 && digest != Some(pointer.digest.as_str());
            if known.last() != Some(pointer) {
                known.push(pointer.clone());
            }
            if new {
                check_whole(region, &meta, *part, pointer)?;
            }
        }
        Ok(())
    }

    /// Judges the decisions since the last look.
    fn judge(&mut self, now: &Backup, cluster: &ClusterName) -> Found {
        for (key, item) in now.changed_since(self.read.as_ref(), &format!("JOURNAL#{cluster}#")) {
            let Ok(record) = items::journal_from_item(&key, item) else { continue };
            // The day's index lacks the evidence; only full records are judged.
            if record.by.is_empty() || !self.judged.insert(key) {
                continue;
            }
            for part in parts_needed(&record) {
                self.check_part(&record, part)?;
            }
            if record.decision == Decision::Planned {
                self.check_snapshot(&record)?;
            }
        }
        Ok(())
    }

    fn check_part(&self, record: &JournalRecord, part: CatalogPart) -> Found {
        let pointers = self.parts.get(&part).map_or(&[][..], Vec::as_slice);
        let said = || format!("{} of {} at {}", record.decision.as_str(), record.subject, record.at);
        let times = pointers.iter().filter_map(|pointer| pointer.refreshed_at);
        let Some(refreshed_at) = times.filter(|at| *at <= record.at).max() else {
            // A part may be refreshed between two samples; its generation shows that it existed before.
            let named = record.evidence.get(part.as_str()).copied().unwrap_or(0);
            let under_way = record.at.saturating_add(READS_TAKE).unwrap_or(record.at);
            let arrived = |pointer: &PartMeta| pointer.refreshed_at.is_some_and(|at| at <= under_way);
            let is_named = |pointer: &PartMeta| (1..=pointer.generation).contains(&named);
            return if pointers.iter().any(|pointer| is_named(pointer) || arrived(pointer)) {
                Ok(())
            } else {
                let at = pointers.iter().filter_map(|pointer| pointer.refreshed_at).min();
                let at = at.map_or_else(|| "which hasn't yet".to_owned(), |at| format!("at {at}"));
                found(format!("{} was decided before `{part}` arrived, {at}", said()))
            };
        };
        let age = record.at.duration_since(refreshed_at);
        if age > stale_after(part) {
            return found(format!("{} was decided from stale `{part}` of {refreshed_at}", said()));
        }
        if record.decision != Decision::Planned {
            return Ok(());
        }
        let newest = pointers.iter().map(|pointer| pointer.generation).max().unwrap_or(0);
        match record.evidence.get(part.as_str()) {
            Some(generation) if (1..=newest).contains(generation) => Ok(()),
            generation => found(format!(
                "{} was decided from generation {generation:?} of `{part}`, which didn't exist",
                said()
            )),
        }
    }

    /// If the agent reported between two samples, the evidence of a decision between them is unknown.
    fn check_snapshot(&self, record: &JournalRecord) -> Found {
        let [looked_before, looked] = self.looked;
        let [before, now] = self.heard;
        if record.evidence.get("snapshot").is_none_or(|generation| *generation == 0) {
            return found(format!("{} was planned without a snapshot", record.subject));
        }
        let known = before == now && (looked_before..=looked).contains(&record.at);
        let stale = now.is_none_or(|heard| record.at.duration_since(heard) > SNAPSHOT_STALE_AFTER);
        let ahead = now.is_some_and(|heard| heard.duration_since(record.at) > CLOCK_SKEW_MOST);
        if known && ahead {
            return found(format!("{} was planned from a snapshot of the future, {now:?}", record.subject));
        }
        if known && stale {
            return found(format!(
                "{} was planned from a stale snapshot, last confirmed at {now:?}",
                record.subject
            ));
        }
        Ok(())
    }
}

/// The parts that a decision needs.
fn parts_needed(record: &JournalRecord) -> Vec<CatalogPart> {
    let detail = |name: &str| record.details.get(name).map(String::as_str);
    let mut needed = vec![CatalogPart::InstanceTypes, CatalogPart::Offerings];
    let by_planner = record.by == FunctionName::Provisioner.as_str();
    match (record.decision, record.subject.kind) {
        (Decision::Planned, _) => match detail("capacity_type") {
            Some("spot") => needed.push(CatalogPart::SpotPrices),
            Some("on-demand") => needed.push(CatalogPart::OnDemandPrices),
            Some(_) | None => {}
        },
        (Decision::Refused, SubjectKind::Pod)
            if by_planner && detail("reason").is_some_and(|reason| SAID_OF_CATALOG.contains(&reason)) => {}
        _ => needed.clear(),
    }
    needed
}

/// Checks that a pointer's content exists, matches its digest, and isn't empty. It reads a copy, because the region's
/// own table counts every read.
fn check_whole(region: &SimulatedRegion, meta: &CatalogMeta, part: CatalogPart, pointer: &PartMeta) -> Found {
    let config = MemoryConfig { throughput: Throughput::Off, ..MemoryConfig::strict(0) };
    let now = region.now();
    let copy = MemoryTable::new(config, Arc::new(move || now));
    copy.restore(&region.table().backup());
    let name = &region.installation().region;
    let read = block_on(parts_of(&copy, name, meta, &[part], &CatalogCache::new()));
    let generation = pointer.generation;
    match read.map(|mut parts| parts.remove(&part)) {
        Ok(Some(whole)) if whole.data.count() as u64 == pointer.count && pointer.count > 0 => Ok(()),
        Ok(_) => found(format!(
            "generation {generation} of `{part}` is empty, or has fewer entries than its pointer says"
        )),
        Err(error) => found(format!("generation {generation} of `{part}` is half-written: {error}")),
    }
}
