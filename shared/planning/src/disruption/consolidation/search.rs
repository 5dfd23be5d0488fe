//! The search for the moves that save most.
//!
//! Decides which sets of nodes are tried. Small clusters are tried wholly. In others a set grows by the nodes that add to
//! its saving, one and then several at a time, from nothing and from all nodes. Nodes that add nothing leave it again:
//! of sets that save the same, the one that moves fewer pods wins.
//!
//! Invariants: the same input gives the same moves; no more than [`TRIALS`] sets are tried.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::money::UsdPerHour;

use super::proposal::Proposal;

/// The most sets of one look.
const TRIALS: usize = 400;

/// So many nodes are tried in all their sets.
const FEW: usize = 5;

/// Nodes of which none pays alone may pay together: so many are added at once.
const TOGETHER: [usize; 3] = [2, 3, 5];

/// The sets that were tried.
pub(crate) struct Search<F> {
    /// What a set saves; `None` if its pods have no place.
    evaluate: F,
    /// How many nodes there are.
    count: usize,
    known: BTreeMap<Vec<usize>, Proposal>,
    left: usize,
}

impl<F: FnMut(&[usize]) -> Option<Proposal>> Search<F> {
    pub(crate) fn new(count: usize, evaluate: F) -> Self {
        Self { evaluate, count, known: BTreeMap::new(), left: TRIALS }
    }

    /// The best proposal, the refusals of single nodes, and whether all was tried that should be.
    pub(crate) fn run(mut self) -> (Proposal, Vec<Proposal>, SearchEnd) {
        let all: Vec<usize> = (0..self.count).collect();
        let alone: Vec<Proposal> = all.iter().map(|index| self.of(&[*index])).collect();
        let mut best = Vec::new();
        if self.count <= FEW {
            for set in subsets(self.count) {
                self.better(&mut best, set);
            }
        } else {
            let mut grown = self.grown(Vec::new());
            for together in TOGETHER {
                grown = self.grown_by(grown, together);
            }
            self.better(&mut best, grown);
            let shrunk = self.shrunk(all);
            self.better(&mut best, shrunk);
        }
        let best = self.shrunk(best);
        let end = if self.left == 0 { SearchEnd::OutOfTrials } else { SearchEnd::Whole };
        (self.of(&best), alone, end)
    }

    fn of(&mut self, set: &[usize]) -> Proposal {
        if set.is_empty() {
            return Proposal::default();
        }
        if let Some(known) = self.known.get(set) {
            return known.clone();
        }
        if self.left == 0 {
            return Proposal::default();
        }
        self.left -= 1;
        let found = (self.evaluate)(set).unwrap_or_default();
        self.known.insert(set.to_vec(), found.clone());
        found
    }

    fn saves(&mut self, set: &[usize]) -> UsdPerHour {
        self.of(set).saves()
    }

    fn better(&mut self, best: &mut Vec<usize>, set: Vec<usize>) {
        if self.saves(&set) > self.saves(best) {
            *best = set;
        }
    }

    /// Adds each node that adds to the saving.
    fn grown(&mut self, set: Vec<usize>) -> Vec<usize> {
        self.grown_by(set, 1)
    }

    /// Adds runs of nodes that add to the saving.
    fn grown_by(&mut self, mut set: Vec<usize>, together: usize) -> Vec<usize> {
        for first in 0..self.count {
            let outside: Vec<usize> =
                (first..self.count).filter(|index| !set.contains(index)).take(together).collect();
            if outside.len() < together || outside.first() != Some(&first) {
                continue;
            }
            let mut more: BTreeSet<usize> = set.iter().copied().collect();
            more.extend(outside);
            self.better(&mut set, more.into_iter().collect());
        }
        set
    }

    /// Takes out each node without which as much is saved.
    fn shrunk(&mut self, mut set: Vec<usize>) -> Vec<usize> {
        for index in set.clone().into_iter().rev() {
            let fewer: Vec<usize> = set.iter().copied().filter(|one| *one != index).collect();
            if self.left > 0 && self.saves(&fewer) >= self.saves(&set) {
                set = fewer;
            }
        }
        set
    }
}

/// Whether a search tried what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchEnd {
    /// It did.
    Whole,
    /// Its trials ran out: a look at the changed cluster goes on.
    OutOfTrials,
}

/// All sets of so many nodes.
fn subsets(count: usize) -> Vec<Vec<usize>> {
    let mut sets = vec![Vec::new()];
    for index in 0..count {
        let with: Vec<Vec<usize>> =
            sets.iter().map(|set: &Vec<usize>| [set.as_slice(), &[index]].concat()).collect();
        sets.extend(with);
    }
    sets
}
