//! Looks for an order of arrival that brings every pod of a finished assignment to its place: kube-scheduler looks at a
//! spread and at an affinity when it places the pod, and who comes later may break them.
//!
//! It shares no code with the planner. Pods that ask for the same and are counted alike come in any order among
//! themselves, so that only their numbers are searched through. A search that ends without an order says which pods
//! were left where it came furthest.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::checker::{Place, counted_domains, counts, is_counted, required_spreads};
use crate::drawn::Draw;
use tenon_domain::api::pod::{PodShape, TopologySpreadConstraint};
use tenon_planning::provision::ProvisionInput;

/// How often the search begins, each time with another preference.
const SEARCHES: u64 = 60;
/// The most numbers of pods that one search looks at.
const STATES: usize = 3_000;

/// What one rule counts, by domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Counting {
    /// By place: the domains that it may be in; none where it doesn't count.
    domains: Vec<Vec<usize>>,
    /// How many domains.
    size: usize,
    /// By shape: whether it is counted.
    shapes: Vec<bool>,
}

/// What a pod asks of counts when it comes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    /// A spread: at most so many more in the domain than elsewhere.
    Spread { count: usize, domain: Option<usize>, itself: u32, skew: u32, min_domains: usize },
    /// An affinity: pods in the domain, or none anywhere if the pod is one of those that it needs.
    With { count: usize, domain: Option<usize>, may_begin: bool },
}

/// What pods ask for when they come, and the counts and domains that they add to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    asks: Vec<Ask>,
    adds: Vec<(usize, usize)>,
}

/// Pods that come alike, as names of their places.
struct Kind<'p> {
    alike: Alike,
    places: Vec<&'p str>,
}

/// The pods that no order of arrival brings to their places.
pub(crate) fn stuck(input: &ProvisionInput, places: &[Place<'_>]) -> Vec<String> {
    let world = Arrivals::of(input, places);
    let mut best: Vec<usize> = world.kinds.iter().map(|kind| kind.places.len()).collect();
    for number in 0..SEARCHES {
        let left = Search::new(&world, number).run();
        if left.iter().sum::<usize>() < best.iter().sum() {
            best = left;
        }
        if best.iter().all(|left| *left == 0) {
            break;
        }
    }
    let left = world.kinds.iter().zip(best).flat_map(|(kind, left)| kind.places.iter().take(left));
    left.map(|place| format!("{place}: a pod that no order of arrival brings here")).collect()
}

/// The pods that are to come, and the counts before.
struct Arrivals<'p> {
    kinds: Vec<Kind<'p>>,
    counts: Vec<Vec<u32>>,
}

impl<'p> Arrivals<'p> {
    fn of(input: &ProvisionInput, places: &'p [Place<'_>]) -> Self {
        let mut shapes: Vec<&PodShape> = Vec::new();
        let mut index_of = |pod: &'p PodShape| {
            let known = shapes.iter().position(|known| *known == pod);
            known.unwrap_or_else(|| {
                shapes.push(pod);
                shapes.len() - 1
            })
        };
        let at: Vec<Vec<usize>> =
            places.iter().map(|place| place.pods.iter().map(|pod| index_of(pod)).collect()).collect();
        let mut countings = Countings { input, places, shapes: &shapes, known: Vec::new() };
        let asked: Vec<Vec<PodAsk>> = shapes.iter().map(|shape| countings.asked(shape)).collect();
        let known = countings.known;
        let mut counts: Vec<Vec<u32>> = known.iter().map(|one| vec![0; one.size]).collect();
        let mut kinds: BTreeMap<Alike, Vec<&str>> = BTreeMap::new();
        for (place, pods) in at.iter().enumerate() {
            for (position, shape) in pods.iter().enumerate() {
                let counting = known.iter().enumerate().filter(|(_, one)| one.shapes[*shape]);
                let adds =
                    counting.flat_map(|(count, one)| one.domains[place].iter().map(move |to| (count, *to)));
                let adds: Vec<(usize, usize)> = adds.collect();
                if position >= places[place].planned {
                    adds.iter().for_each(|(count, domain)| counts[*count][*domain] += 1);
                    continue;
                }
                let asks = asked[*shape].iter().map(|ask| ask.at(place, &known)).collect();
                kinds.entry(Alike { asks, adds }).or_default().push(&places[place].name);
            }
        }
        let kinds = kinds.into_iter().map(|(alike, places)| Kind { alike, places }).collect();
        Self { kinds, counts }
    }
}

/// What a shape asks for, wherever it comes.
enum PodAsk<'p> {
    Spread { count: usize, itself: u32, rule: &'p TopologySpreadConstraint },
    With { count: usize, may_begin: bool },
}

impl PodAsk<'_> {
    fn at(&self, place: usize, known: &[Counting]) -> Ask {
        let domain = |count: usize| known[count].domains[place].first().copied();
        match *self {
            PodAsk::Spread { count, itself, rule } => Ask::Spread {
                count,
                domain: domain(count),
                itself,
                skew: rule.max_skew,
                min_domains: rule.min_domains.unwrap_or(1) as usize,
            },
            PodAsk::With { count, may_begin } => Ask::With { count, domain: domain(count), may_begin },
        }
    }
}

/// The rules of all shapes, equal ones once.
struct Countings<'c, 'p> {
    input: &'c ProvisionInput,
    places: &'p [Place<'p>],
    shapes: &'c [&'p PodShape],
    known: Vec<Counting>,
}

impl<'p> Countings<'_, 'p> {
    fn asked(&mut self, owner: &'p PodShape) -> Vec<PodAsk<'p>> {
        let mut asked = Vec::new();
        for rule in required_spreads(owner) {
            let domains = |place: &Place<'_>| counted_domains(owner, rule, place);
            let count = self.count(domains, |other| is_counted(rule, owner, other));
            let itself = u32::from(is_counted(rule, owner, owner));
            asked.push(PodAsk::Spread { count, itself, rule });
        }
        let input = self.input;
        let near = |other: &PodShape| {
            owner.required_pod_affinity.iter().all(|term| counts(input, term, owner, other))
        };
        for term in &owner.required_pod_affinity {
            let count = self.count(|place| place.values(&term.topology_key), near);
            asked.push(PodAsk::With { count, may_begin: near(owner) });
        }
        asked
    }

    fn count(
        &mut self,
        domains: impl Fn(&Place<'_>) -> BTreeSet<String>,
        counted: impl Fn(&PodShape) -> bool,
    ) -> usize {
        let by_place: Vec<BTreeSet<String>> = self.places.iter().map(domains).collect();
        let all: BTreeSet<&String> = by_place.iter().flatten().collect();
        let number = |domain: &String| all.iter().position(|one| *one == domain).unwrap();
        let one = Counting {
            domains: by_place.iter().map(|domains| domains.iter().map(number).collect()).collect(),
            size: all.len(),
            shapes: self.shapes.iter().map(|shape| counted(shape)).collect(),
        };
        let known = self.known.iter().position(|known| *known == one);
        known.unwrap_or_else(|| {
            self.known.push(one);
            self.known.len() - 1
        })
    }
}

/// One search through the numbers of pods that have come, with a preference of its own among the kinds.
struct Search<'w, 'p> {
    world: &'w Arrivals<'p>,
    counts: Vec<Vec<u32>>,
    /// By kind, how many are left.
    left: Vec<usize>,
    preferred: Vec<u64>,
    number: u64,
}

impl<'w, 'p> Search<'w, 'p> {
    fn new(world: &'w Arrivals<'p>, number: u64) -> Self {
        let mut draw = Draw::new(number);
        Self {
            world,
            counts: world.counts.clone(),
            left: world.kinds.iter().map(|kind| kind.places.len()).collect(),
            preferred: world.kinds.iter().map(|_| if number < 4 { 0 } else { draw.below(4) }).collect(),
            number,
        }
    }

    /// By kind, how many are left where it came furthest.
    fn run(mut self) -> Vec<usize> {
        let mut best = self.left.clone();
        let mut seen: BTreeSet<Vec<usize>> = BTreeSet::new();
        // The kinds that came, each with those that may come after it, the best of them last.
        let mut path: Vec<(Option<usize>, Vec<usize>)> = vec![(None, self.next())];
        while let Some((_, next)) = path.last_mut() {
            if let Some(kind) = next.pop() {
                self.left[kind] -= 1;
                if seen.insert(self.left.clone()) {
                    self.come(kind);
                    path.push((Some(kind), self.next()));
                } else {
                    self.left[kind] += 1;
                }
            } else if let Some((Some(kind), _)) = path.pop() {
                self.left[kind] += 1;
                self.go(kind);
            }
            if self.left.iter().sum::<usize>() < best.iter().sum() {
                best.clone_from(&self.left);
            }
            if best.iter().all(|left| *left == 0) || seen.len() > STATES {
                break;
            }
        }
        best
    }

    fn come(&mut self, kind: usize) {
        for (count, domain) in &self.world.kinds[kind].alike.adds {
            self.counts[*count][*domain] += 1;
        }
    }

    fn go(&mut self, kind: usize) {
        for (count, domain) in &self.world.kinds[kind].alike.adds {
            self.counts[*count][*domain] -= 1;
        }
    }

    /// The kinds that may come now. One that nobody counts comes at once, and alone.
    fn next(&self) -> Vec<usize> {
        let waits = |kind: &usize| self.left[*kind] > 0;
        let may = |kind: &usize| self.world.kinds[*kind].alike.asks.iter().all(|ask| self.permits(ask));
        let mut next: Vec<usize> = (0..self.left.len()).filter(waits).filter(may).collect();
        if let Some(free) = next.iter().find(|kind| self.world.kinds[**kind].alike.adds.is_empty()) {
            return vec![*free];
        }
        next.sort_by_cached_key(|kind| Reverse(self.urgency(*kind)));
        next
    }

    /// A pod that begins an affinity does so before any other that it looks for, or never.
    fn begins(&self, kind: usize) -> bool {
        let nobody = |count: usize| self.counts[count].iter().all(|count| *count == 0);
        self.world.kinds[kind].alike.asks.iter().any(|ask| match *ask {
            Ask::With { count, may_begin, .. } => may_begin && nobody(count),
            Ask::Spread { .. } => false,
        })
    }

    fn urgency(&self, kind: usize) -> (bool, u64, u32, u32) {
        let later = !self.number.is_multiple_of(5) && !self.begins(kind);
        let alike = &self.world.kinds[kind].alike;
        let ahead = alike.adds.iter().map(|(count, domain)| {
            let counts = &self.counts[*count];
            counts[*domain] - counts.iter().min().copied().unwrap_or(0)
        });
        let ahead: u32 = ahead.sum();
        let skew = alike.asks.iter().map(|ask| match ask {
            Ask::Spread { skew, .. } => *skew,
            Ask::With { .. } => 1000,
        });
        // Pods that ask for nothing may come at any time, so they come last, or first.
        let skew = skew.min().unwrap_or(if self.number.is_multiple_of(2) { 1000 } else { 0 });
        match self.number % 4 {
            0 | 1 => (later, self.preferred[kind], skew, ahead),
            _ => (later, self.preferred[kind], ahead, skew),
        }
    }

    fn permits(&self, ask: &Ask) -> bool {
        match *ask {
            Ask::Spread { count, domain, itself, skew, min_domains } => {
                let counts = &self.counts[count];
                let least = if counts.len() >= min_domains { counts.iter().min().copied() } else { None };
                domain.map_or(0, |domain| counts[domain]) + itself <= least.unwrap_or(0) + skew
            }
            Ask::With { count, domain, may_begin } => {
                let counts = &self.counts[count];
                domain.is_some_and(|domain| counts[domain] > 0)
                    || (may_begin && counts.iter().all(|count| *count == 0))
            }
        }
    }
}
