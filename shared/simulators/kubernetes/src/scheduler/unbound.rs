//! The pods that wait for a node, in the order in which they were created.
//!
//! Decides nothing. It follows the changes of pods one by one, since a moment changes a few pods of thousands.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_snapshot::object::{self, Object, text};

use super::shape::SchedulingNeeds;
use crate::store::StoredName;

/// A waiting pod's place in the order: creation time, namespace, name.
pub(super) type UnboundPlace = (String, String, String);

/// A pod that waits, as it was read last.
#[derive(Debug, Clone)]
pub(super) struct UnboundPod {
    pub(super) pod: Object,
    pub(super) shape: Arc<SchedulingNeeds>,
    pub(super) nominated: Option<String>,
}

/// The pods that wait.
#[derive(Debug, Default)]
pub(super) struct UnboundPods {
    by_place: BTreeMap<UnboundPlace, UnboundPod>,
    by_name: BTreeMap<StoredName, UnboundPlace>,
    changed: BTreeSet<StoredName>,
}

impl UnboundPods {
    /// A pod came, changed or went.
    pub(super) fn touch(&mut self, name: StoredName) {
        self.changed.insert(name);
    }

    /// All of them may have another shape.
    pub(super) fn touch_all(&mut self) {
        self.changed.extend(self.by_name.keys().cloned());
    }

    /// The pods that changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<StoredName> {
        std::mem::take(&mut self.changed)
    }

    /// A pod doesn't wait any longer.
    pub(super) fn remove(&mut self, name: &StoredName) -> Option<UnboundPod> {
        self.by_name.remove(name).and_then(|place| self.by_place.remove(&place))
    }

    /// The pod as it was read before.
    pub(super) fn named(&self, name: &StoredName) -> Option<&UnboundPod> {
        self.by_place.get(self.by_name.get(name)?)
    }

    /// A pod waits, or changed while it waits: its place stays.
    pub(super) fn set(&mut self, name: StoredName, waiting: UnboundPod) {
        let same = |known: &UnboundPod| object::uid(&known.pod) == object::uid(&waiting.pod);
        let known = self.by_name.get(&name).and_then(|place| self.by_place.get_mut(place));
        match known.filter(|known| same(known)) {
            Some(known) => *known = waiting,
            None => {
                let _other = self.remove(&name);
                let place = place(&waiting.pod);
                self.by_name.insert(name, place.clone());
                self.by_place.insert(place, waiting);
            }
        }
    }

    pub(super) fn get(&self, place: &UnboundPlace) -> Option<&UnboundPod> {
        self.by_place.get(place)
    }

    /// All of them, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &UnboundPod> {
        self.by_place.values()
    }
}

pub(super) fn place(pod: &Object) -> UnboundPlace {
    let created = text(pod, "/metadata/creationTimestamp").unwrap_or_default().to_owned();
    (created, object::namespace(pod).to_owned(), object::name(pod).to_owned())
}
