//! Reads of the table in memory: their view, their cost, the end of a page.

use super::TableState;
use super::buckets::Side;
use super::store::ReadMoment;
use crate::meter::{self, Operation, OperationUsage};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;
use tenon_table::key::Key;
use tenon_table::limits;
use tenon_table::port::{Consistency, Query, QueryOrder, QueryPage, SkRange, TableError, check_batch};
use tenon_table::value::Item;

impl TableState {
    pub(super) fn get(
        &mut self,
        key: &Key,
        consistency: Consistency,
        now: Timestamp,
    ) -> Result<Option<Item>, TableError> {
        key.check().map_err(|message| TableError::Invalid { message })?;
        self.admit_read(Operation::GetItem, &key.pk, now)?;
        let moment = self.moment(consistency, now);
        let found = self.store.at(key, moment);
        let units = meter::read_half_units(found.map_or(0, |stored| stored.size), consistency);
        let item = found.map(|stored| stored.item.clone());
        self.charge_read(&key.pk, units, now);
        self.meter.count(
            Operation::GetItem,
            OperationUsage { calls: 1, read_half_units: units, ..OperationUsage::default() },
        );
        Ok(item)
    }

    pub(super) fn batch_get(
        &mut self,
        keys: &[Key],
        consistency: Consistency,
        now: Timestamp,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        check_batch(keys)?;
        for key in keys {
            self.admit_read(Operation::BatchGetItem, &key.pk, now)?;
        }
        let mut items = BTreeMap::new();
        let (mut bytes, mut total) = (0, 0);
        for key in keys {
            // Each item is read from a replica of its own.
            let moment = self.moment(consistency, now);
            let found = self.store.at(key, moment);
            let size = found.map_or(0, |stored| stored.size);
            let units = meter::read_half_units(size, consistency);
            bytes += size;
            total += units;
            if bytes <= limits::BATCH_BYTES {
                items.extend(found.map(|stored| (key.clone(), stored.item.clone())));
            }
            self.charge_read(&key.pk, units, now);
        }
        let usage = OperationUsage { calls: 1, read_half_units: total, ..OperationUsage::default() };
        self.meter.count(Operation::BatchGetItem, usage);
        if bytes > limits::BATCH_BYTES {
            let what = format!("the batch of {} keys, {bytes} bytes,", keys.len());
            return Err(TableError::AnswerTooLarge { what, limit: format!("{} bytes", limits::BATCH_BYTES) });
        }
        Ok(items)
    }

    pub(super) fn query(&mut self, query: &Query, now: Timestamp) -> Result<QueryPage, TableError> {
        query.check()?;
        self.admit_read(Operation::Query, &query.pk, now)?;
        let moment = self.moment(query.consistency, now);
        let (page, bytes) = self.page(query, moment);
        let units = meter::read_half_units(bytes, query.consistency);
        self.charge_read(&query.pk, units, now);
        self.meter.count(
            Operation::Query,
            OperationUsage { calls: 1, read_half_units: units, ..OperationUsage::default() },
        );
        Ok(page)
    }

    /// The page and its bytes.
    fn page(&self, query: &Query, moment: ReadMoment) -> (QueryPage, u64) {
        let successor = match &query.range {
            SkRange::Prefix(prefix) | SkRange::After { prefix, .. } => successor(prefix),
            SkRange::All | SkRange::Between(..) => None,
        };
        let range = self.store.range(&query.pk, bounds(query, successor.as_deref()), moment);
        let (mut up, mut down) = match query.order {
            QueryOrder::Ascending => (Some(range), None),
            QueryOrder::Descending => (None, Some(range.rev())),
        };
        let found = std::iter::from_fn(|| match (&mut up, &mut down) {
            (Some(up), _) => up.next(),
            (None, Some(down)) => down.next(),
            (None, None) => None,
        });
        let most = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let mut page = QueryPage { items: Vec::new(), next: None };
        let mut bytes = 0;
        for (sk, stored) in found {
            if !page.items.is_empty() && bytes + stored.size > limits::PAGE_BYTES {
                page.next = page.items.last().map(|(key, _)| key.sk.clone());
                break;
            }
            bytes += stored.size;
            page.items.push((Key::new(query.pk.as_str(), &**sk), stored.item.clone()));
            if page.items.len() >= most {
                page.next = Some(sk.to_string());
                break;
            }
        }
        (page, bytes)
    }

    fn moment(&mut self, consistency: Consistency, now: Timestamp) -> ReadMoment {
        match consistency {
            Consistency::Strong => ReadMoment::Now,
            Consistency::Eventual => self.store.stale_moment(now),
        }
    }

    fn admit_read(&mut self, operation: Operation, pk: &str, now: Timestamp) -> Result<(), TableError> {
        if self.buckets.admits(Side::ReadHalves, pk, now) {
            return Ok(());
        }
        self.meter.count(operation, OperationUsage { calls: 1, throttled: 1, ..OperationUsage::default() });
        Err(TableError::Throttled { pk: pk.to_owned() })
    }

    pub(super) fn charge_read(&mut self, pk: &str, half_units: u64, now: Timestamp) {
        self.buckets.charge(Side::ReadHalves, pk, half_units, now);
    }
}

/// The bounds of the query's range. The query was checked: the lower bound isn't above the upper one, and equal
/// bounds have at least one inclusive side.
fn bounds<'a>(query: &'a Query, successor: Option<&'a str>) -> (Bound<&'a str>, Bound<&'a str>) {
    let before_successor = successor.map_or(Bound::Unbounded, Bound::Excluded);
    let (mut low, mut high) = match &query.range {
        SkRange::All => (Bound::Unbounded, Bound::Unbounded),
        SkRange::Prefix(prefix) => (Bound::Included(prefix.as_str()), before_successor),
        SkRange::After { after, .. } => (Bound::Excluded(after.as_str()), before_successor),
        SkRange::Between(first, last) => (Bound::Included(first.as_str()), Bound::Included(last.as_str())),
    };
    if let Some(start) = &query.start_after {
        match query.order {
            QueryOrder::Ascending => low = Bound::Excluded(start.as_str()),
            QueryOrder::Descending => high = Bound::Excluded(start.as_str()),
        }
    }
    (low, high)
}

/// The first text after all that begin with the prefix, if there is one.
fn successor(prefix: &str) -> Option<String> {
    let mut rest = prefix.to_owned();
    while let Some(last) = rest.pop() {
        // A range of characters leaves out the surrogates, which no text holds.
        if let Some(next) = (last..=char::MAX).nth(1) {
            rest.push(next);
            return Some(rest);
        }
    }
    None
}
