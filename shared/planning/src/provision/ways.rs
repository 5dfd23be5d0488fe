//! What groups ask of a node, each distinct value once: the same question about it is answered once.
//!
//! Decides nothing. Values get their numbers in the order in which the groups are looked at, which is the groups' own
//! order, so that the input's order changes nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use tenon_domain::requirement::{Requirement, Requirements};

use super::needs::Alternative;
use super::topology::deal::Pin;

/// Ways to satisfy what a pod asks of its node, ORed.
#[derive(Debug)]
pub(crate) struct Ways {
    /// Its number: equal ways have the same.
    pub(crate) id: usize,
    all: Vec<Alternative>,
    /// Those that a node without a name yet can satisfy.
    pub(crate) for_new_nodes: Vec<Requirements>,
}

impl Deref for Ways {
    type Target = [Alternative];

    fn deref(&self) -> &[Alternative] {
        &self.all
    }
}

/// All ways of a plan.
#[derive(Debug, Default)]
pub(crate) struct WaysTable {
    known: RefCell<BTreeMap<Vec<Alternative>, Arc<Ways>>>,
    pinned: RefCell<BTreeMap<usize, PinnedWays>>,
}

/// The ways of pods in domains.
type PinnedWays = BTreeMap<Vec<Pin>, Arc<Ways>>;

impl WaysTable {
    /// Begins again: numbers are those of one plan.
    pub(crate) fn forget(&self) {
        self.known.borrow_mut().clear();
        self.pinned.borrow_mut().clear();
    }

    /// The ways with these alternatives.
    pub(crate) fn of(&self, all: Vec<Alternative>) -> Arc<Ways> {
        let mut known = self.known.borrow_mut();
        if let Some(ways) = known.get(&all) {
            return Arc::clone(ways);
        }
        let for_new_nodes = all.iter().filter_map(Alternative::for_new_node).collect();
        let ways = Arc::new(Ways { id: known.len(), for_new_nodes, all: all.clone() });
        known.insert(all, Arc::clone(&ways));
        ways
    }

    /// The same on nodes that have these labels.
    pub(crate) fn labelled(&self, ways: &Arc<Ways>, keys: &[&Arc<str>]) -> Arc<Ways> {
        if keys.is_empty() {
            return Arc::clone(ways);
        }
        let mut all = ways.all.clone();
        for alternative in &mut all {
            keys.iter().for_each(|key| alternative.asked.add(Requirement::exists(key)));
        }
        self.of(all)
    }

    /// The ways of pods in these domains.
    pub(crate) fn pinned(&self, ways: &Arc<Ways>, pins: &[Pin]) -> Arc<Ways> {
        if pins.is_empty() {
            return Arc::clone(ways);
        }
        if let Some(known) = self.pinned.borrow().get(&ways.id).and_then(|known| known.get(pins)) {
            return Arc::clone(known);
        }
        let mut all = ways.all.clone();
        all.retain_mut(|alternative| {
            pins.iter().all(|pin| {
                alternative.ask(match pin.values.is_empty() {
                    false => Requirement::one_of(&pin.key, pin.values.iter().map(|value| &**value)),
                    true => Requirement::does_not_exist(&pin.key),
                })
            })
        });
        let made = self.of(all);
        self.pinned.borrow_mut().entry(ways.id).or_default().insert(pins.to_vec(), Arc::clone(&made));
        made
    }
}
