//! The objects of one kind as its watch reported them, and the state of the watch.
//!
//! Decides the answer to a list: the objects as of the last event, or an error if the watch keeps failing. Before the
//! first list, the caller waits. It asks no server.
//!
//! Invariants: a list is complete, because a relisting replaces the objects at its end; an older version never replaces
//! a newer one; the agent's own writes are visible at once.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenon_snapshot::object::Kind;
use tenon_snapshot::{KubeError, ObjectChange, Versions};
use tokio::sync::watch;

use crate::classify::Denied;
use crate::kept::{KeptObject, ObjectName};

/// After failing for so long, a watch counts as broken. Shorter failures come from the restart of a load balancer or an
/// API server.
const TROUBLE_FOR: Duration = Duration::from_secs(10);
/// A failed watch is retried, and fails again, within this time, including the connection's timeout. So a watch without
/// a failure for longer works again, even without any event.
const TROUBLE_OVER_AFTER: Duration = Duration::from_secs(15);

/// Counts changes, and wakes the subscribers.
#[derive(Debug, Clone, Default)]
pub struct Changes(watch::Sender<Versions>);

impl Changes {
    /// Follows the counters from now on.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Versions> {
        self.0.subscribe()
    }

    fn tell(&self, change: ObjectChange) {
        self.0.send_modify(|versions| versions.count(change));
    }
}

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    kind: Kind,
    state: Mutex<CellState<T>>,
    changes: Changes,
    news: watch::Sender<()>,
}

#[derive(Debug)]
struct CellState<T> {
    objects: BTreeMap<ObjectName, T>,
    filling: Option<BTreeMap<ObjectName, T>>,
    phase: ListPhase,
    trouble: Option<ListTrouble>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListPhase {
    /// Never listed.
    Empty,
    /// Listed and watched.
    Listed,
}

#[derive(Debug, Clone)]
struct ListTrouble {
    first: Instant,
    last: Instant,
    error: KubeError,
}

/// The answer to a list.
#[derive(Debug)]
pub(crate) enum ListAnswer<T> {
    /// All objects, by namespace and name.
    Objects(Vec<T>),
    /// The first list isn't complete, and no failure has lasted.
    NotYet,
    /// The watch is broken.
    Failed(KubeError),
}

impl<T: KeptObject> Cell<T> {
    pub(crate) fn new(kind: Kind, changes: Changes) -> Self {
        let state =
            CellState { objects: BTreeMap::new(), filling: None, phase: ListPhase::Empty, trouble: None };
        Self { kind, state: Mutex::new(state), changes, news: watch::Sender::new(()) }
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    fn state(&self) -> MutexGuard<'_, CellState<T>> {
        // A panic never leaves the state inconsistent, so a poisoned lock is fine.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Signals whenever [`Cell::answer`] may have changed.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    fn tell(&self) {
        self.tell_of(ObjectChange::of(self.kind));
    }

    fn tell_of(&self, change: ObjectChange) {
        self.changes.tell(change);
        self.news.send_replace(());
    }

    /// Begins a relisting.
    pub(crate) fn begin(&self) {
        self.state().filling = Some(BTreeMap::new());
    }

    /// Adds an object of the relisting. An unchanged object stays the same shared value.
    pub(crate) fn fill(&self, name: ObjectName, object: T) {
        let mut state = self.state();
        let known = state.objects.get(&name).filter(|known| known.version() == object.version()).cloned();
        if let Some(filling) = &mut state.filling {
            filling.insert(name, known.unwrap_or(object));
        }
    }

    /// Ends the relisting, and replaces the objects.
    pub(crate) fn finish(&self) {
        let mut state = self.state();
        let mut change = ObjectChange::of(self.kind);
        if let Some(filled) = state.filling.take() {
            let goes = |object: &T| object.is_deleted();
            if filled.values().any(goes) || state.objects.keys().any(|name| !filled.contains_key(name)) {
                change = ObjectChange::of_deleted(self.kind);
            }
            state.objects = filled;
            state.phase = ListPhase::Listed;
        }
        state.trouble = None;
        drop(state);
        self.tell_of(change);
    }

    /// Adds or replaces an object.
    pub(crate) fn put(&self, name: ObjectName, object: T) {
        let mut state = self.state();
        state.trouble = None;
        let known = state.objects.get(&name);
        if known.is_some_and(|known| is_newer(known.version(), object.version())) {
            return;
        }
        let alike = known.is_some_and(|known| known.is_like(&object));
        let stayed = known.is_none_or(|known| !known.is_deleted());
        let change = match (known.is_none() && object.waits(), stayed && object.is_deleted()) {
            (true, _) => ObjectChange::Arrival,
            (false, true) => ObjectChange::of_deleted(self.kind),
            (false, false) => ObjectChange::of(self.kind),
        };
        state.objects.insert(name, object);
        drop(state);
        if !alike {
            self.tell_of(change);
        }
    }

    /// Removes an object.
    pub(crate) fn remove(&self, name: &ObjectName, version: &str) {
        let mut state = self.state();
        state.trouble = None;
        if state.objects.get(name).is_some_and(|known| is_newer(known.version(), version)) {
            return;
        }
        let had = state.objects.remove(name).is_some();
        drop(state);
        if had {
            self.tell_of(ObjectChange::of_deleted(self.kind));
        }
    }

    /// Shows the agent's own write at once, or the next round of the same step would plan it again. An object that the
    /// watch has removed stays removed.
    pub(crate) fn observe_own(&self, name: ObjectName, object: T) {
        let known = self.state().objects.get(&name).is_some_and(|known| known.uid() == object.uid());
        if known {
            self.put(name, object);
        }
    }

    /// Applies the agent's own deletion or change of an object before the watch reports it.
    pub(crate) fn change_own(&self, name: &ObjectName, uid: &str, change: impl FnOnce(&T) -> Option<T>) {
        let mut state = self.state();
        let Some(known) = state.objects.get(name).filter(|known| known.uid() == uid) else { return };
        match change(known) {
            Some(changed) => state.objects.insert(name.clone(), changed),
            None => state.objects.remove(name),
        };
        drop(state);
        self.tell();
    }

    /// Records a failure of the watch.
    pub(crate) fn fail(&self, error: KubeError, now: Instant) {
        let mut state = self.state();
        let gone = matches!(error, KubeError::UnknownKind { .. });
        let first = match &state.trouble {
            Some(trouble) if now.duration_since(trouble.last) < TROUBLE_OVER_AFTER => trouble.first,
            Some(_) | None => now,
        };
        state.trouble = Some(ListTrouble { first, last: now, error });
        let emptied = gone && !state.objects.is_empty();
        if gone {
            state.objects.clear();
        }
        drop(state);
        if emptied {
            self.changes.tell(ObjectChange::of(self.kind));
        }
        self.news.send_replace(());
    }

    /// The answer to a list now.
    pub(crate) fn answer(&self, now: Instant) -> ListAnswer<T> {
        let state = self.state();
        let trouble = state.trouble.as_ref();
        if let Some(error) = trouble.map(|trouble| &trouble.error).filter(|error| is_final(error)) {
            return ListAnswer::Failed(error.clone());
        }
        match (state.phase, trouble) {
            (ListPhase::Empty, Some(trouble)) if trouble.is_lasting(now) => {
                ListAnswer::Failed(trouble.error.clone())
            }
            // For a moment after a CRD is installed, the API server answers that storage is initializing.
            (ListPhase::Empty, _) => ListAnswer::NotYet,
            (ListPhase::Listed, Some(trouble)) if trouble.is_lasting(now) => {
                ListAnswer::Failed(trouble.error.clone())
            }
            (ListPhase::Listed, _) => ListAnswer::Objects(state.objects.values().cloned().collect()),
        }
    }
}

impl ListTrouble {
    fn is_lasting(&self, now: Instant) -> bool {
        let again = now.duration_since(self.last) < TROUBLE_OVER_AFTER;
        again && self.last.duration_since(self.first) >= TROUBLE_FOR
    }
}

/// Whether a retry fails again until a person acts.
fn is_final(error: &KubeError) -> bool {
    match error {
        KubeError::UnknownKind { .. } => true,
        KubeError::Unavailable(cause) => cause.is::<Denied>(),
        KubeError::NotFound { .. } | KubeError::Conflict { .. } | KubeError::Invalid { .. } => false,
    }
}

/// Whether a version is newer than another: API servers count them up (Kubernetes 1.35, `resourceVersion` is comparable).
/// Versions that aren't numbers are never newer.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tenon_snapshot::object::{Object, text};

    use super::*;

    fn node(version: u32, label: &str) -> Object {
        Arc::new(json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version.to_string(),
            "labels": {"l": label}}}))
    }

    fn name() -> ObjectName {
        (String::new(), "a".to_owned())
    }

    fn listed() -> (Cell<Object>, watch::Receiver<Versions>) {
        let changes = Changes::default();
        let cell = Cell::new(Kind::Node, changes.clone());
        cell.begin();
        cell.fill(name(), node(5, "x"));
        assert!(matches!(cell.answer(Instant::now()), ListAnswer::NotYet));
        cell.finish();
        (cell, changes.subscribe())
    }

    fn labels(cell: &Cell<Object>) -> Vec<String> {
        match cell.answer(Instant::now()) {
            ListAnswer::Objects(all) => all
                .iter()
                .map(|node| text(node, "/metadata/labels/l").unwrap_or_default().to_owned())
                .collect(),
            other @ (ListAnswer::NotYet | ListAnswer::Failed(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_older_version_never_takes_a_newer_ones_place() {
        let (cell, changes) = listed();
        cell.put(name(), node(7, "y"));
        cell.put(name(), node(6, "x"));
        assert_eq!(labels(&cell), ["y"]);
        cell.remove(&name(), "6");
        assert_eq!(labels(&cell), ["y"]);
        cell.remove(&name(), "8");
        assert!(labels(&cell).is_empty());
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn what_nobody_reads_wakes_nobody() {
        let (cell, mut changes) = listed();
        changes.mark_unchanged();
        cell.put(name(), node(9, "x"));
        assert!(!changes.has_changed().unwrap());
        cell.put(name(), node(10, "z"));
        assert!(changes.has_changed().unwrap());
    }

    #[test]
    fn a_deletion_is_counted_once() {
        let (cell, changes) = listed();
        let deletions = || changes.borrow().deletions;
        let deleted = |version: u32| {
            Arc::new(json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version.to_string(),
                "deletionTimestamp": "2026-01-01T00:00:00Z"}}))
        };
        cell.put(name(), node(6, "y"));
        assert_eq!(deletions(), 0);
        cell.put(name(), deleted(7));
        cell.put(name(), deleted(8));
        assert_eq!(deletions(), 1);
        // A relisting finds it terminating, then it is removed.
        cell.begin();
        cell.fill(name(), deleted(9));
        cell.finish();
        assert_eq!(deletions(), 2);
        cell.remove(&name(), "10");
        assert_eq!(deletions(), 3);
    }

    #[test]
    fn own_changes_are_seen_at_once_and_wake_no_dead() {
        let (cell, mut changes) = listed();
        changes.mark_unchanged();
        cell.observe_own(name(), node(6, "own"));
        assert_eq!(labels(&cell), ["own"]);
        assert!(changes.has_changed().unwrap());
        cell.remove(&name(), "7");
        cell.observe_own(name(), node(6, "late"));
        assert!(labels(&cell).is_empty());
    }

    #[test]
    fn a_relisting_is_seen_at_its_end_and_keeps_what_is_the_same() {
        let (cell, _changes) = listed();
        let ListAnswer::Objects(before) = cell.answer(Instant::now()) else { panic!() };
        cell.begin();
        assert_eq!(labels(&cell), ["x"]);
        cell.fill(name(), node(5, "x"));
        cell.finish();
        let ListAnswer::Objects(after) = cell.answer(Instant::now()) else { panic!() };
        assert!(Arc::ptr_eq(&before[0], &after[0]));
    }

    #[test]
    fn only_a_lasting_trouble_is_told() {
        let (cell, _changes) = listed();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let error = || KubeError::Unavailable(Arc::new(std::io::Error::other("refused")));
        let check = |seconds, failed: bool| {
            assert_eq!(
                matches!(cell.answer(at(seconds)), ListAnswer::Failed(_)),
                failed,
                "after {seconds} s"
            );
        };
        cell.fail(error(), at(0));
        check(1, false);
        cell.fail(error(), at(9));
        check(9, false);
        cell.fail(error(), at(12));
        check(12, true);
        // A broken watch would have failed again by now.
        check(28, false);
        cell.fail(error(), at(40));
        check(41, false);
    }

    #[test]
    fn a_first_list_waits_for_what_passes_and_not_for_rights() {
        let cell: Cell<Object> = Cell::new(Kind::Node, Changes::default());
        cell.fail(KubeError::Unavailable(Arc::new(std::io::Error::other("initializing"))), Instant::now());
        assert!(matches!(cell.answer(Instant::now()), ListAnswer::NotYet));
        let denied = Denied { verb: "list", resource: "nodes".to_owned(), message: String::new() };
        cell.fail(KubeError::Unavailable(Arc::new(denied)), Instant::now());
        assert!(matches!(cell.answer(Instant::now()), ListAnswer::Failed(_)));
    }

    #[test]
    fn a_kind_that_is_not_served_is_told_at_once_and_has_no_objects() {
        let (cell, _changes) = listed();
        cell.fail(KubeError::UnknownKind { kind: Kind::NodePool }, Instant::now());
        assert!(matches!(cell.answer(Instant::now()), ListAnswer::Failed(KubeError::UnknownKind { .. })));
        cell.begin();
        cell.finish();
        assert!(labels(&cell).is_empty());
    }
}
