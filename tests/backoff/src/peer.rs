//! The peer's rule for exhausted capacity, on Tenon's own code.
//!
//! Decides the marks that functions see: a refused offering is excluded for three minutes after the refusal, without
//! regard to earlier ones, in the memory of one process. A restart forgets it; there are no leases, and no early
//! clearing. Which refusal marks what is Tenon's rule.
//!
//! Source: aws/karpenter-provider-aws v1.14, `pkg/cache/unavailableofferings.go`. In the peer, a refusal of an
//! excluded offering restarts the three minutes. Concurrent launches end within milliseconds here, so that makes no
//! difference.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::unavailable::Mark;
use tenon_region::clock::RegionClock;
use tenon_region::gate::{CallFate, CallSite, Hooks};
use tenon_table::items::{self, keys};
use tenon_table::{Commit, Item, Key, QueryPage, Write};

/// How long a refused offering is excluded.
const LEFT_OUT: SignedDuration = SignedDuration::from_mins(3);

/// The peer's memory, as the hooks of a region.
#[derive(Default)]
pub(crate) struct PeersMemory {
    refused_at: Mutex<BTreeMap<Key, Timestamp>>,
    clock: OnceLock<RegionClock>,
}

impl PeersMemory {
    /// Uses a region's clock; without one, time stands still.
    pub(crate) fn follow(&self, clock: &RegionClock) {
        let _ = self.clock.set(clock.clone());
    }

    /// Restarts the process.
    pub(crate) fn restart(&self) {
        self.with(BTreeMap::clear);
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<Key, Timestamp>) -> T) -> T {
        f(&mut self.refused_at.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> Timestamp {
        self.clock.get().map_or(Timestamp::UNIX_EPOCH, RegionClock::now)
    }

    /// The peer's mark, if it has one.
    fn known(&self, key: &Key, item: &Item) -> Option<Item> {
        let refused_at = self.with(|refused| refused.get(key).copied())?;
        let until = refused_at.checked_add(LEFT_OUT).ok()?;
        let mark: Mark = items::from_item(key, item).ok()?;
        // The peer has no last resort: a mark with this answer time reaches it only after its end.
        let mark = Mark { count: 1, since: refused_at, asked_at: until, until, probe: None, ..mark };
        (self.now() < until).then(|| items::to_item(&mark))
    }
}

fn is_mark(key: &Key) -> bool {
    key.sk.starts_with(keys::UNAVAILABLE)
}

impl Hooks for PeersMemory {
    fn call(&self, _: CallSite) -> CallFate {
        CallFate::Go
    }

    fn delivery(&self) -> Vec<SignedDuration> {
        vec![SignedDuration::ZERO]
    }

    /// Stored marks have no readers, so their writes have no condition.
    fn tamper_commit(&self, _: &'static str, commit: &mut Commit) {
        let now = self.now();
        for write in &commit.writes {
            if let Write::Set { key, set, .. } = write
                && is_mark(key)
                && items::from_item::<Mark>(key, set).is_ok_and(|mark| mark.count > 0 && mark.probe.is_none())
            {
                self.with(|refused| refused.insert(key.clone(), now));
            }
        }
        commit.conditions.retain(|condition| !is_mark(&condition.key()));
    }

    fn tamper_page(&self, _: &'static str, page: &mut QueryPage) {
        let items = std::mem::take(&mut page.items);
        page.items = items
            .into_iter()
            .filter_map(|(key, item)| {
                let item = if is_mark(&key) { self.known(&key, &item)? } else { item };
                Some((key, item))
            })
            .collect();
    }
}
