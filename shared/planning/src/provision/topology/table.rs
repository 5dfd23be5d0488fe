//! Which domains the rules of a cluster of pods permit, and which of these is best for the next pod.
//!
//! Decides the order of clusters with the same rules: those with less choice come first, and again as soon as a spread
//! allows more of them. It doesn't decide which pods of a cluster go to which of its domains (`deal`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::needs::PodGroup;
use super::census::{Census, DomainCounts};
use super::clusters::{DealManner, DealtCluster};
use super::deal::DomainOffer;
use super::repelling::NeededDomains;
use super::rules::{PodRule, RuleKind};

/// The pods of a label's domains, now and before this round.
pub(super) struct DomainPods<'d, 'c> {
    pub(super) key: &'d Arc<str>,
    pub(super) census: &'d Census<'c>,
    pub(super) before: &'d Census<'c>,
    /// Those that pods which are dealt later need.
    pub(super) needed: &'d NeededDomains,
}

/// The state of dealing one cluster's pods.
pub(super) struct DealTable<'t> {
    pub(super) cluster: &'t DealtCluster,
    /// All domains that the pods may go to, where nobody must know which.
    pub(super) open: Vec<Arc<str>>,
    /// By offer.
    pub(super) given: Vec<u32>,
    rules: Vec<RuleState>,
    /// By domain: the pods that would be more than another pod there stands for, of each selector that counts these.
    others: Vec<OtherState>,
    kept_out: Vec<bool>,
    /// By offer: whether pods that must be on the same nodes are elsewhere.
    astray: Vec<bool>,
    /// By offer: whether pods whose affinity matches these are only elsewhere. If one of these comes first, they must follow.
    strays: Vec<bool>,
    /// By offer: how much pods that are dealt later need it for themselves.
    needed: Vec<u32>,
    counted: Vec<u32>,
    left: u32,
    /// No domain was right for the next pod, when it was looked for last.
    is_stuck: bool,
}

/// One rule of the cluster while it is dealt.
struct RuleState {
    kind: RuleKind,
    counts_itself: bool,
    /// By offer.
    counts: Vec<u32>,
    /// Counts of domains that aren't offered but that count.
    elsewhere: DomainCounts,
}

/// A spread of pods that were dealt before, which counts the cluster's pods.
struct OtherState {
    /// By offer: the least skew of such pods there.
    skews: Vec<Option<u32>>,
    counts: Vec<u32>,
}

/// Deals the pods of clusters with the same rules, those with less choice first.
pub(super) fn deal_in_turn(tables: &mut [DealTable<'_>]) {
    while let Some((index, domain)) = next_of(tables) {
        let some_wait = tables.iter().any(|table| table.is_stuck && table.left > 0);
        let Some(table) = tables.get_mut(index) else { return };
        let before = if some_wait { table.floor() } else { u64::MAX };
        table.take(domain);
        let allows_more = some_wait && table.floor() > before;
        let Some(name) = table.offers().get(domain).map(|offer| Arc::clone(&offer.domain)) else { return };
        for (other, table) in tables.iter_mut().enumerate().filter(|(_, table)| table.left > 0) {
            if other != index {
                table.see(&name);
            }
            if allows_more {
                table.is_stuck = false;
            }
        }
    }
}

/// The first cluster whose next pod has a domain, and that domain.
fn next_of(tables: &mut [DealTable<'_>]) -> Option<(usize, usize)> {
    for (index, table) in tables.iter_mut().enumerate().filter(|(_, table)| table.left > 0) {
        if table.is_stuck {
            continue;
        }
        match table.next() {
            Some(domain) => return Some((index, domain)),
            None => table.is_stuck = true,
        }
    }
    // Each compares its own domains, so that others may have made room unseen.
    let mut waiting = tables.iter().enumerate().filter(|(_, table)| table.left > 0);
    waiting.find_map(|(index, table)| Some((index, table.next()?)))
}

impl<'t> DealTable<'t> {
    pub(super) fn of(pods: &DomainPods<'_, '_>, cluster: &'t DealtCluster, group: &PodGroup<'_>) -> Self {
        let DomainPods { key, census, needed, .. } = pods;
        let (offers, shared) = (cluster.offers.as_slice(), &cluster.key.shared);
        let by_offer = |counts: &DomainCounts| -> Vec<u32> {
            offers.iter().map(|offer| counts.get(&offer.domain).copied().unwrap_or(0)).collect()
        };
        let rules = shared.rules.iter().map(|rule| RuleState::of(pods, rule, cluster, group)).collect();
        let mut counted = vec![0_u32; offers.len()];
        let mut others = Vec::with_capacity(shared.is.len());
        for selector in &shared.is {
            let counts = by_offer(&census.counts(key, *selector));
            for (sum, count) in counted.iter_mut().zip(&counts) {
                *sum = sum.saturating_add(*count);
            }
            let skews = offers.iter().map(|offer| census.skew_asked(key, *selector, &offer.domain)).collect();
            others.push(OtherState { skews, counts });
        }
        let kept_out = offers
            .iter()
            .map(|offer| shared.is.iter().any(|selector| census.keeps_out(key, *selector, &offer.domain)))
            .collect();
        let peers: Vec<DomainCounts> =
            shared.peers.iter().map(|selector| census.counts(key, *selector)).collect();
        let has_all = |offer: &DomainOffer| {
            peers.iter().all(|counts| counts.get(&offer.domain).is_some_and(|count| *count > 0))
        };
        let astray = offers.iter().map(|offer| !has_all(offer)).collect();
        let mut strays = vec![false; offers.len()];
        for selector in &shared.followed {
            let counts = by_offer(&census.counts(key, *selector));
            if counts.iter().any(|count| *count > 0) {
                strays.iter_mut().zip(&counts).for_each(|(stray, count)| *stray |= *count == 0);
            }
        }
        let needed = by_offer(needed);
        let mut table = Self {
            cluster,
            open: Vec::new(),
            given: vec![0; offers.len()],
            rules,
            others,
            kept_out,
            astray,
            strays,
            needed,
            counted,
            left: cluster.shares.iter().map(|share| share.pods).fold(0, u32::saturating_add),
            is_stuck: false,
        };
        if shared.manner == DealManner::Open {
            let unlimited =
                |(domain, offer): &(usize, &DomainOffer)| offer.most == u32::MAX && table.permits(*domain);
            let open = offers.iter().enumerate().filter(unlimited);
            let open: Vec<Arc<str>> = open.map(|(_, offer)| Arc::clone(&offer.domain)).collect();
            if !open.is_empty() {
                table.left = 0;
            }
            table.open = open;
        }
        table
    }

    fn offers(&self) -> &'t [DomainOffer] {
        &self.cluster.offers
    }

    /// Whether the next pod may go to a domain.
    fn permits(&self, domain: usize) -> bool {
        let most = self.offers().get(domain).map_or(0, |offer| offer.most);
        self.given.get(domain).is_some_and(|given| *given < most)
            && !self.kept_out.get(domain).copied().unwrap_or(true)
            && self.rules.iter().all(|rule| rule.permits(domain))
    }

    /// The domain of the next pod: one that its rules permit, by the pods that it must have on its node, by what it
    /// disturbs, by pods that would have to follow it, by free room, by how much others need it, by the pods that are counted
    /// there, by price.
    fn next(&self) -> Option<usize> {
        (0..self.offers().len())
            .filter(|domain| self.permits(*domain))
            .min_by(|a, b| self.rank(*a).partial_cmp(&self.rank(*b)).unwrap_or(Ordering::Equal))
    }

    fn rank(&self, domain: usize) -> (bool, usize, u32, bool, bool, u32, u32, f64) {
        let astray = self.astray.get(domain).copied().unwrap_or(false);
        let disturbed = self.others.iter().filter(|other| other.is_disturbed_by(domain)).count();
        let spread = self.rules.iter().filter(|rule| matches!(rule.kind, RuleKind::Spread(_)));
        let loads = spread.map(|rule| rule.counts.get(domain).copied().unwrap_or(0));
        let load = loads.fold(0, u32::saturating_add);
        let given = self.given.get(domain).copied().unwrap_or(0);
        let offer = self.offers().get(domain);
        let full = offer.is_none_or(|offer| offer.room <= given);
        let counted = self.counted.get(domain).copied().unwrap_or(0);
        let counted = match self.cluster.key.shared.manner {
            DealManner::Balanced => counted,
            // Each domain without such pods stays free for those that they are apart from.
            DealManner::Gathered | DealManner::Open => u32::from(counted == 0),
        };
        let price = offer.and_then(|offer| offer.price).unwrap_or(f64::MAX);
        let needed = self.needed.get(domain).copied().unwrap_or(0);
        let strays = self.strays.get(domain).copied().unwrap_or(false);
        (astray, disturbed, load, strays, full, needed, counted, price)
    }

    /// The next pod goes to a domain.
    fn take(&mut self, domain: usize) {
        self.left = self.left.saturating_sub(1);
        one_more(&mut self.given, domain);
        self.count(domain);
    }

    /// A pod with the same rules goes to a domain.
    fn see(&mut self, domain: &Arc<str>) {
        if let Ok(offered) = self.offers().binary_search_by(|offer| offer.domain.cmp(domain)) {
            self.count(offered);
            return;
        }
        for rule in self.rules.iter_mut().filter(|rule| rule.counts_itself) {
            let count = rule.elsewhere.entry(Arc::clone(domain)).or_insert(0);
            *count = count.saturating_add(1);
        }
    }

    fn count(&mut self, domain: usize) {
        for rule in self.rules.iter_mut().filter(|rule| rule.counts_itself) {
            one_more(&mut rule.counts, domain);
        }
        for other in &mut self.others {
            one_more(&mut other.counts, domain);
        }
        one_more(&mut self.counted, domain);
    }

    /// How many pods are in each domain at least: where more are, spreads allow more.
    fn floor(&self) -> u64 {
        let spreads = self.rules.iter().filter(|rule| matches!(rule.kind, RuleKind::Spread(_)));
        spreads.map(|rule| u64::from(rule.least())).sum()
    }
}

fn one_more(counts: &mut [u32], domain: usize) {
    counts.iter_mut().skip(domain).take(1).for_each(|count| *count = count.saturating_add(1));
}

impl RuleState {
    fn of(pods: &DomainPods<'_, '_>, rule: &PodRule, cluster: &DealtCluster, group: &PodGroup<'_>) -> Self {
        let DomainPods { key, census, before, .. } = pods;
        let counts_itself = cluster.key.shared.is.contains(&rule.selector);
        let counts = match rule.kind {
            RuleKind::Spread(terms) => census.spread_counts(rule, terms, group),
            // What others are dealt in this round may find no place.
            RuleKind::With if !counts_itself => before.counts(key, rule.selector),
            RuleKind::With => census.counts(key, rule.selector),
            RuleKind::Apart => census.most_counts(key, rule.selector),
        };
        let offered: BTreeSet<&str> = cluster.offers.iter().map(|offer| &*offer.domain).collect();
        let others: BTreeSet<&Arc<str>> = counts.keys().chain(&cluster.key.domains).collect();
        let elsewhere: BTreeMap<Arc<str>, u32> = others
            .into_iter()
            .filter(|domain| !offered.contains(&***domain))
            .map(|domain| (Arc::clone(domain), counts.get(domain).copied().unwrap_or(0)))
            .collect();
        let by_offer = cluster.offers.iter().map(|offer| counts.get(&offer.domain).copied().unwrap_or(0));
        Self { kind: rule.kind, counts_itself, counts: by_offer.collect(), elsewhere }
    }

    /// The fewest pods of a domain.
    fn least(&self) -> u32 {
        self.counts.iter().chain(self.elsewhere.values()).min().copied().unwrap_or(0)
    }

    fn permits(&self, domain: usize) -> bool {
        let here = self.counts.get(domain).copied().unwrap_or(0);
        let nowhere = || self.counts.iter().chain(self.elsewhere.values()).all(|count| *count == 0);
        match self.kind {
            RuleKind::Apart => here == 0,
            RuleKind::With => here > 0 || (self.counts_itself && nowhere()),
            RuleKind::Spread(terms) => {
                let domains = self.counts.len() + self.elsewhere.len();
                let enough = u32::try_from(domains).is_ok_and(|domains| domains >= terms.min_domains);
                let least = if enough { self.least() } else { 0 };
                here + u32::from(self.counts_itself) <= least.saturating_add(terms.max_skew)
            }
        }
    }
}

impl OtherState {
    /// Whether another pod in a domain is one too many for a pod that is there.
    fn is_disturbed_by(&self, domain: usize) -> bool {
        let Some(skew) = self.skews.get(domain).copied().flatten() else { return false };
        let here = self.counts.get(domain).copied().unwrap_or(0);
        let least = self.counts.iter().min().copied().unwrap_or(0);
        here + 1 > least.saturating_add(skew)
    }
}
