//! Deals waiting pods to domains before they are packed: zones, capacity types, or the values of any other label.
//!
//! Decides how many pods of a group go to which domain, so that every rule holds once all have their places. Pods
//! that a rule counts are dealt too, though they have no rule themselves: otherwise nobody could say what it counts.
//! Where no node with the label would take them, they need no domain. It doesn't decide about single nodes
//! (`neighbours`), nor whether a domain has room: what finds none is dealt again without that domain.
//!
//! Groups that are the same to a key's rules are dealt as one, so that few of them are split.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::labels;

use super::super::needs::PodGroup;
use super::super::ways::{Ways, WaysTable};
use super::census::{Census, DomainCounts};
use super::keys::{DealPurpose, asked_by_rules, keys, node_keys};
use super::rules::{PodRule, RuleKind};
use super::selectors::SelectorId;

/// A domain that a group could have, with what it costs there and how many pods have room on nodes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DomainOffer {
    /// The label's value.
    pub(crate) domain: Arc<str>,
    /// The least price of a pod on a new node; none where no new node can be there.
    pub(crate) price: Option<f64>,
    /// How many pods have room on nodes that are there.
    pub(crate) room: u32,
    /// The most pods: more found no room before.
    pub(crate) most: u32,
}

/// A label's value that pods are dealt to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pin {
    /// The label.
    pub(crate) key: Arc<str>,
    /// Its value; none for nodes without the label.
    pub(crate) value: Option<Arc<str>>,
}

/// Pods of a group, with the domains that they go to.
#[derive(Debug, Clone)]
pub(crate) struct Share {
    /// The group's index.
    pub(crate) group: usize,
    /// The domains, one a key.
    pub(crate) pins: Vec<Pin>,
    /// How many pods.
    pub(crate) pods: u32,
}

/// Pods that no domain is right for.
#[derive(Debug, Clone)]
pub(crate) struct Undealt {
    /// The group's index.
    pub(crate) group: usize,
    /// The domains of other labels that they were dealt to before.
    pub(crate) pins: Vec<Pin>,
    /// How many pods.
    pub(crate) pods: u32,
    /// The label.
    pub(crate) key: Arc<str>,
}

/// What was dealt.
#[derive(Debug, Default)]
pub(crate) struct Deal {
    /// Pods with domains, or without where they need none.
    pub(crate) shares: Vec<Share>,
    /// Pods without.
    pub(crate) undealt: Vec<Undealt>,
    /// Groups among those that follow pods which this round deals: they know where to only after it.
    pub(crate) deferred: BTreeSet<usize>,
}

/// The order in which groups are dealt: those that others must make room for first, then those that others count,
/// and those that follow others last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Apart,
    With,
    Counted,
    Spread,
    WithOthers,
}

/// Groups that are the same to a key's rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ClusterKey {
    turn: Turn,
    /// What they ask of their node, as a number: spreads that count only some nodes must know.
    asked: usize,
    rules: Vec<PodRule>,
    is: Vec<SelectorId>,
    /// All domains that the pods could have without their pins.
    domains: Vec<Arc<str>>,
    /// The most pods of each domain that they could have.
    most: Vec<u32>,
}

/// How many pods of each group wait.
pub(crate) struct WaitingPods {
    /// Those that are dealt now.
    pub(crate) now: Vec<u32>,
    /// Those, and those that are dealt later, whose rules ask already.
    pub(crate) ever: Vec<u32>,
}

/// Deals the pods that wait. `offers` tells a group's domains of a key, under the pins that it has already, or `None`
/// if no node with the label would take its pods; domains without any room are missing.
pub(crate) fn deal<'a>(
    census: &mut Census<'_>,
    groups: &[PodGroup<'a>],
    waiting: &WaitingPods,
    ways: &WaysTable,
    mut offers: impl FnMut(&PodGroup<'a>, &Share, &Arc<str>) -> Option<Vec<DomainOffer>>,
) -> Deal {
    let all = groups.iter().zip(&waiting.now).enumerate().filter(|(_, (_, pods))| **pods > 0);
    let waiting = waiting.ever.as_slice();
    let mut dealt = Deal {
        shares: all.map(|(group, (_, pods))| Share { group, pins: Vec::new(), pods: *pods }).collect(),
        undealt: Vec::new(),
        deferred: BTreeSet::new(),
    };
    let keys = keys(groups, waiting, census);
    if keys.is_empty() {
        return dealt;
    }
    let before = census.clone();
    let decided = node_keys(groups, waiting, &keys);
    let decided = decided.into_iter().map(|(key, asked)| (key, asked, DealPurpose::Certainty));
    let ruled = keys.into_iter().map(|key| (key, BTreeSet::new(), DealPurpose::Rules));
    for (key, mut asked, purpose) in decided.chain(ruled) {
        if purpose == DealPurpose::Rules {
            asked = asked_by_rules(census, groups, waiting, &key);
        }
        let (concerned, mut shares): (Vec<Share>, Vec<Share>) =
            std::mem::take(&mut dealt.shares).into_iter().partition(|share| {
                groups.get(share.group).is_some_and(|group| purpose.concerns(group, &key, &asked))
            });
        if purpose == DealPurpose::Certainty {
            asked.clear();
        }
        let mut clusters: BTreeMap<ClusterKey, ClusterMembers> = BTreeMap::new();
        for share in concerned {
            let Some(group) = groups.get(share.group) else { continue };
            let found = offers(group, &share, &key);
            if found.is_none() && group.rules_of(&key).all(|rule| rule.kind == RuleKind::Apart) {
                shares.push(share);
                continue;
            }
            let found = found.unwrap_or_default();
            // A spread compares all domains that the pod itself could have on nodes that count, whatever it prefers.
            let labels = group
                .spread_keys()
                .filter(|of| **of != key && !labels::is_well_known(of))
                .collect::<Vec<_>>();
            let counted = ways.labelled(&group.required, &labels);
            let everywhere = match share.pins.is_empty() && group.alternatives.id == counted.id {
                true => found.clone(),
                false => {
                    let required = group.part(Vec::new(), counted);
                    offers(&required, &Share { pins: Vec::new(), ..share.clone() }, &key).unwrap_or_default()
                }
            };
            let of = ways.pinned(&group.alternatives, &share.pins);
            let most = found.iter().map(|offer| offer.most).collect();
            let cluster = ClusterKey { most, ..cluster_of(group, &of, &key, &asked, &everywhere) };
            clusters.entry(cluster).or_default().push((share, found));
        }
        for (cluster, members) in clusters {
            let mut dealing =
                Dealing { census, before: &before, groups, ways, key: &key, cluster: &cluster, purpose };
            dealing.deal(members, &mut shares, &mut dealt);
        }
        shares.sort_by_key(|share| share.group);
        dealt.shares = shares;
    }
    dealt
}

fn cluster_of(
    group: &PodGroup<'_>,
    ways: &Ways,
    key: &str,
    asked: &BTreeSet<SelectorId>,
    offers: &[DomainOffer],
) -> ClusterKey {
    let rules: Vec<PodRule> = group.rules_of(key).cloned().collect();
    let is: Vec<SelectorId> = group.is.iter().filter(|id| asked.contains(id)).copied().collect();
    let turn = rules.iter().map(|rule| match rule.kind {
        RuleKind::Apart => Turn::Apart,
        RuleKind::With if is.contains(&rule.selector) => Turn::With,
        RuleKind::With => Turn::WithOthers,
        RuleKind::Spread(_) => Turn::Spread,
    });
    let turn = turn.max().unwrap_or(Turn::Counted);
    ClusterKey {
        turn,
        asked: ways.id,
        rules,
        is,
        domains: offers.iter().map(|offer| Arc::clone(&offer.domain)).collect(),
        most: Vec::new(),
    }
}

/// The shares of a cluster, with the domains that each could have.
type ClusterMembers = Vec<(Share, Vec<DomainOffer>)>;

/// A cluster while it is dealt.
struct Dealing<'d, 'c, 'a> {
    census: &'d mut Census<'c>,
    /// The pods before this round.
    before: &'d Census<'c>,
    groups: &'d [PodGroup<'a>],
    ways: &'d WaysTable,
    key: &'d Arc<str>,
    cluster: &'d ClusterKey,
    purpose: DealPurpose,
}

impl Dealing<'_, '_, '_> {
    /// Deals a cluster pod by pod, then splits as few of its shares as possible.
    fn deal(&mut self, members: ClusterMembers, shares: &mut Vec<Share>, dealt: &mut Deal) {
        let Some((first, offers)) = members.first() else { return };
        let Some(group) = self.groups.get(first.group) else { return };
        let pods: u32 = members.iter().map(|(share, _)| share.pods).fold(0, u32::saturating_add);
        let mut table = DealTable::of(self, group, offers);
        let mut quotas: Vec<u32> = vec![0; offers.len()];
        for _ in 0..pods {
            let Some(domain) = table.next() else { break };
            table.take(domain);
            quotas.iter_mut().skip(domain).take(1).for_each(|quota| *quota += 1);
        }
        let domains: Vec<Arc<str>> = offers.iter().map(|offer| Arc::clone(&offer.domain)).collect();
        for (share, _) in members {
            let mut left = share.pods;
            while left > 0 {
                // A domain that takes the whole share, or the one that takes most of it.
                let whole = quotas
                    .iter()
                    .enumerate()
                    .filter(|(_, quota)| **quota >= left)
                    .min_by_key(|(_, quota)| **quota);
                let most = || {
                    quotas
                        .iter()
                        .enumerate()
                        .filter(|(_, quota)| **quota > 0)
                        .max_by_key(|(_, quota)| **quota)
                };
                let Some((domain, quota)) =
                    whole.or_else(most).map(|(domain, quota)| (domain, (*quota).min(left)))
                else {
                    break;
                };
                quotas.iter_mut().skip(domain).take(1).for_each(|of| *of -= quota);
                left -= quota;
                let Some(value) = domains.get(domain) else { break };
                let mut pins = share.pins.clone();
                pins.push(Pin { key: Arc::clone(self.key), value: Some(Arc::clone(value)) });
                if let Some(group) = self.groups.get(share.group) {
                    let asked = self.ways.pinned(&group.alternatives, &pins);
                    self.census.deal(group, &pins, &asked, quota);
                }
                shares.push(Share { group: share.group, pins, pods: quota });
            }
            if left > 0 && self.purpose == DealPurpose::Certainty {
                shares.push(Share { group: share.group, pins: share.pins, pods: left });
            } else if left > 0 && self.needs_no_domain() {
                let mut pins = share.pins.clone();
                pins.push(Pin { key: Arc::clone(self.key), value: None });
                shares.push(Share { group: share.group, pins, pods: left });
            } else if left > 0 {
                let pins = share.pins.clone();
                dealt.undealt.push(Undealt {
                    group: share.group,
                    pins,
                    pods: left,
                    key: Arc::clone(self.key),
                });
                let follows = |rule: &PodRule| {
                    rule.kind == RuleKind::With
                        && self.census.counts(self.key, rule.selector)
                            != self.before.counts(self.key, rule.selector)
                };
                if self.cluster.rules.iter().any(follows) {
                    dealt.deferred.insert(share.group);
                }
            }
        }
    }
}

impl Dealing<'_, '_, '_> {
    /// Whether the cluster's pods may run on nodes without the label: not every node has it, and only others ask for it or
    /// the pods keep away from others, who have no domain there either.
    fn needs_no_domain(&self) -> bool {
        let apart = |rule: &PodRule| match rule.kind {
            RuleKind::Apart => true,
            RuleKind::With | RuleKind::Spread(_) => false,
        };
        self.cluster.rules.iter().all(apart) && !labels::is_well_known(self.key)
    }
}

/// The state of dealing one cluster's pods.
struct DealTable<'t> {
    rules: Vec<RuleState>,
    /// By domain: the pods that would be more than another pod there stands for, of each selector that counts these.
    others: Vec<OtherState>,
    offers: &'t [DomainOffer],
    kept_out: Vec<bool>,
    counted: Vec<u32>,
    given: Vec<u32>,
}

/// One rule of the cluster while it is dealt.
struct RuleState {
    kind: RuleKind,
    counts_itself: bool,
    /// By offer.
    counts: Vec<u32>,
    /// Counts of domains that aren't offered but that count.
    elsewhere: Vec<u32>,
    domains: usize,
}

/// A spread of pods that were dealt before, which counts the cluster's pods.
struct OtherState {
    /// By offer: the least skew of such pods there.
    skews: Vec<Option<u32>>,
    counts: Vec<u32>,
}

impl<'t> DealTable<'t> {
    fn of(dealing: &Dealing<'_, '_, '_>, group: &PodGroup<'_>, offers: &'t [DomainOffer]) -> Self {
        let Dealing { census, before, key, cluster, .. } = dealing;
        let by_offer = |counts: &DomainCounts| -> Vec<u32> {
            offers.iter().map(|offer| counts.get(&offer.domain).copied().unwrap_or(0)).collect()
        };
        let rules = cluster
            .rules
            .iter()
            .map(|rule| {
                let counts = match rule.kind {
                    RuleKind::Spread(terms) => census.spread_counts(rule, terms, group),
                    // What others are dealt in this round may find no place.
                    RuleKind::With if !cluster.is.contains(&rule.selector) => {
                        before.counts(key, rule.selector)
                    }
                    RuleKind::Apart | RuleKind::With => census.counts(key, rule.selector),
                };
                let offered: BTreeSet<&str> = offers.iter().map(|offer| &*offer.domain).collect();
                let others: BTreeSet<&Arc<str>> = counts.keys().chain(&cluster.domains).collect();
                let elsewhere: Vec<u32> = others
                    .into_iter()
                    .filter(|domain| !offered.contains(&***domain))
                    .map(|domain| counts.get(domain).copied().unwrap_or(0))
                    .collect();
                RuleState {
                    kind: rule.kind,
                    counts_itself: cluster.is.contains(&rule.selector),
                    domains: offers.len() + elsewhere.len(),
                    counts: by_offer(&counts),
                    elsewhere,
                }
            })
            .collect();
        let others = cluster
            .is
            .iter()
            .map(|selector| OtherState {
                skews: offers.iter().map(|offer| census.skew_asked(key, *selector, &offer.domain)).collect(),
                counts: by_offer(&census.counts(key, *selector)),
            })
            .collect();
        let kept_out = offers
            .iter()
            .map(|offer| cluster.is.iter().any(|selector| census.keeps_out(key, *selector, &offer.domain)))
            .collect();
        let mut counted = vec![0_u32; offers.len()];
        for selector in &cluster.is {
            for (sum, count) in counted.iter_mut().zip(by_offer(&census.counts(key, *selector))) {
                *sum = sum.saturating_add(count);
            }
        }
        Self { rules, others, offers, kept_out, counted, given: vec![0; offers.len()] }
    }

    /// The domain of the next pod: one that its rules permit, by what it disturbs, by free room, by the pods that are
    /// counted there, by price.
    fn next(&self) -> Option<usize> {
        let permitted = |domain: &usize| {
            let most = self.offers.get(*domain).map_or(0, |offer| offer.most);
            self.given.get(*domain).is_some_and(|given| *given < most)
                && !self.kept_out.get(*domain).copied().unwrap_or(true)
                && self.rules.iter().all(|rule| rule.permits(*domain))
        };
        (0..self.offers.len())
            .filter(permitted)
            .min_by(|a, b| self.rank(*a).partial_cmp(&self.rank(*b)).unwrap_or(std::cmp::Ordering::Equal))
    }

    fn rank(&self, domain: usize) -> (usize, u32, bool, u32, f64) {
        let disturbed = self.others.iter().filter(|other| other.is_disturbed_by(domain)).count();
        let spread = self.rules.iter().filter(|rule| matches!(rule.kind, RuleKind::Spread(_)));
        let loads = spread.map(|rule| rule.counts.get(domain).copied().unwrap_or(0));
        let load = loads.fold(0, u32::saturating_add);
        let given = self.given.get(domain).copied().unwrap_or(0);
        let offer = self.offers.get(domain);
        let full = offer.is_none_or(|offer| offer.room <= given);
        let counted = self.counted.get(domain).copied().unwrap_or(0);
        let price = offer.and_then(|offer| offer.price).unwrap_or(f64::MAX);
        (disturbed, load, full, counted, price)
    }

    fn take(&mut self, domain: usize) {
        let one_more = |counts: &mut Vec<u32>| {
            counts.iter_mut().skip(domain).take(1).for_each(|count| *count = count.saturating_add(1));
        };
        for rule in self.rules.iter_mut().filter(|rule| rule.counts_itself) {
            one_more(&mut rule.counts);
        }
        for other in &mut self.others {
            one_more(&mut other.counts);
        }
        one_more(&mut self.counted);
        one_more(&mut self.given);
    }
}

impl RuleState {
    fn permits(&self, domain: usize) -> bool {
        let here = self.counts.get(domain).copied().unwrap_or(0);
        let nowhere = || self.counts.iter().chain(&self.elsewhere).all(|count| *count == 0);
        match self.kind {
            RuleKind::Apart => here == 0,
            RuleKind::With => here > 0 || (self.counts_itself && nowhere()),
            RuleKind::Spread(terms) => {
                let enough = u32::try_from(self.domains).is_ok_and(|domains| domains >= terms.min_domains);
                let least = self.counts.iter().chain(&self.elsewhere).min().copied().unwrap_or(0);
                let least = if enough { least } else { 0 };
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
