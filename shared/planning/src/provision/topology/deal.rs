//! Deals waiting pods to domains before they are packed: zones, capacity types, or the values of any other label.
//!
//! Decides how many pods of a group go to which domain, so that every rule holds once all have their places. Pods
//! that a rule counts are dealt too, though they have no rule themselves: otherwise nobody could say what it counts.
//! Pods that only stay away from others keep all domains that are left. Where no node with the label would take them,
//! they need no domain. It doesn't decide about single nodes (`neighbours`), nor whether a domain has room: what finds
//! none is dealt again without that domain.
//!
//! Groups that are the same to a key's rules are dealt as one, so that few of them are split.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::labels;
use tenon_domain::taint::Taint;

use super::super::needs::PodGroup;
use super::super::ways::WaysTable;
use super::census::Census;
use super::clusters::{ClusterKey, ClusterMembers, DealtCluster, DomainAskers, in_order};
use super::keys::{DealPurpose, keys, node_keys};
use super::repelling::{LaterPods, NeededDomains, RepellingPods};
use super::rules::{PodRule, RuleKind};
use super::table::{DealTable, DomainPods, deal_in_turn};

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
    /// The taints of its nodes, by kind of node.
    pub(crate) taints: Vec<Vec<Taint>>,
}

/// The values of a label that pods are dealt to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pin {
    /// The label.
    pub(crate) key: Arc<str>,
    /// Its value, or several where any will do; none for nodes without the label.
    pub(crate) values: Vec<Arc<str>>,
}

impl Pin {
    /// One value.
    pub(crate) fn at(key: Arc<str>, value: Arc<str>) -> Self {
        Self { key, values: vec![value] }
    }
}

/// The domains that pods were dealt to, up to the last that is certain: what can be closed.
pub(crate) fn certain(mut pins: Vec<Pin>) -> Vec<Pin> {
    while pins.last().is_some_and(|pin| pin.values.len() > 1) {
        pins.pop();
    }
    pins
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
    let mut dealt = Deal {
        shares: all.map(|(group, (_, pods))| Share { group, pins: Vec::new(), pods: *pods }).collect(),
        undealt: Vec::new(),
        deferred: BTreeSet::new(),
    };
    let keys = keys(groups, &waiting.ever, census);
    if keys.is_empty() {
        return dealt;
    }
    let before = census.clone();
    let decided = node_keys(groups, &waiting.ever, &keys);
    let decided = decided.into_iter().map(|(key, asked)| (key, asked, DealPurpose::Certainty));
    let ruled = keys.into_iter().map(|key| (key, BTreeSet::new(), DealPurpose::Rules));
    for (key, asked, purpose) in decided.chain(ruled) {
        let askers = match purpose {
            DealPurpose::Certainty => DomainAskers::default(),
            DealPurpose::Rules => DomainAskers::of(census, groups, waiting, &key),
        };
        let asked = match purpose {
            DealPurpose::Certainty => &asked,
            DealPurpose::Rules => &askers.all,
        };
        let (concerned, mut shares): (Vec<Share>, Vec<Share>) =
            std::mem::take(&mut dealt.shares).into_iter().partition(|share| {
                groups.get(share.group).is_some_and(|group| purpose.concerns(group, &key, asked))
            });
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
            let cluster =
                ClusterKey::of(group, &key, &of, &askers, (everywhere.as_slice(), found.as_slice()));
            let members = clusters.entry(cluster);
            let members = members.or_insert_with(|| ClusterMembers { offers: found, shares: Vec::new() });
            members.shares.push(share);
        }
        let order = in_order(clusters, census, &key);
        let later = later(groups, waiting, &askers, &mut |group, share| offers(group, share, &key), &key);
        let mut repelling = RepellingPods::of(&order, later);
        for (place, together) in order.iter().enumerate() {
            let needed = repelling.needed(place, census, &key);
            let (shares, dealt) = (&mut shares, &mut dealt);
            let mut dealing =
                Dealing { census, before: &before, groups, ways, key: &key, purpose, shares, dealt };
            dealing.deal(together, &needed);
        }
        shares.sort_by_key(|share| share.group);
        dealt.shares = shares;
    }
    dealt
}

/// The pods that a later round deals and that repel others, or that others repel.
fn later<'a>(
    groups: &[PodGroup<'a>],
    waiting: &WaitingPods,
    askers: &DomainAskers,
    offers: &mut impl FnMut(&PodGroup<'a>, &Share) -> Option<Vec<DomainOffer>>,
    key: &str,
) -> Vec<LaterPods> {
    let mut found = Vec::new();
    let waits = waiting.now.iter().zip(&waiting.ever);
    let all = groups.iter().zip(waits).enumerate().filter(|(_, (_, (now, ever)))| **now == 0 && **ever > 0);
    for (index, (group, (_, pods))) in all {
        let rules: Vec<PodRule> = group.rules_of(key).cloned().collect();
        if askers.are_repelled(&rules, &group.is) {
            let share = Share { group: index, pins: Vec::new(), pods: *pods };
            let offered = offers(group, &share).unwrap_or_default();
            let domains = offered.into_iter().map(|offer| offer.domain).collect();
            found.push(LaterPods { rules, is: group.is.to_vec(), domains });
        }
    }
    found
}

/// Clusters while they are dealt.
struct Dealing<'d, 'c, 'a> {
    census: &'d mut Census<'c>,
    /// The pods before this round.
    before: &'d Census<'c>,
    groups: &'d [PodGroup<'a>],
    ways: &'d WaysTable,
    key: &'d Arc<str>,
    purpose: DealPurpose,
    shares: &'d mut Vec<Share>,
    dealt: &'d mut Deal,
}

impl Dealing<'_, '_, '_> {
    /// Deals clusters pod by pod, then splits as few of their shares as possible.
    fn deal(&mut self, together: &[DealtCluster], needed: &NeededDomains) {
        let pods = DomainPods { key: self.key, census: &*self.census, before: self.before, needed };
        let groups = self.groups;
        let mut tables: Vec<DealTable<'_>> = together
            .iter()
            .filter_map(|cluster| {
                let group = groups.get(cluster.shares.first()?.group)?;
                Some(DealTable::of(&pods, cluster, group))
            })
            .collect();
        deal_in_turn(&mut tables);
        for table in tables {
            self.split(table);
        }
    }

    fn split(&mut self, table: DealTable<'_>) {
        let DealTable { cluster, open, given: mut quotas, .. } = table;
        for share in &cluster.shares {
            if !open.is_empty() {
                self.give(cluster, share, open.clone(), share.pods);
                continue;
            }
            let mut left = share.pods;
            while left > 0 {
                let Some((domain, quota)) = largest_part(&quotas, left) else { break };
                quotas.iter_mut().skip(domain).take(1).for_each(|of| *of -= quota);
                left -= quota;
                let Some(offer) = cluster.offers.get(domain) else { break };
                self.give(cluster, share, vec![Arc::clone(&offer.domain)], quota);
            }
            if left > 0 {
                self.leave(cluster, share, left);
            }
        }
    }

    /// Pods of a share go to domains.
    fn give(&mut self, cluster: &DealtCluster, share: &Share, values: Vec<Arc<str>>, pods: u32) {
        let offer = cluster.offers.iter().find(|offer| values.first() == Some(&offer.domain));
        let taints = offer.map(|offer| offer.taints.as_slice()).unwrap_or_default();
        let mut pins = share.pins.clone();
        pins.push(Pin { key: Arc::clone(self.key), values });
        if let Some(group) = self.groups.get(share.group) {
            let asked = self.ways.pinned(&group.alternatives, &pins);
            self.census.deal(group, &pins, (&asked, taints), pods);
        }
        self.shares.push(Share { group: share.group, pins, pods });
    }

    /// No domain is right for pods of a share.
    fn leave(&mut self, cluster: &DealtCluster, share: &Share, pods: u32) {
        let mut pins = share.pins.clone();
        if self.purpose == DealPurpose::Certainty {
            self.shares.push(Share { group: share.group, pins, pods });
            return;
        }
        let rules = &cluster.key.shared.rules;
        if needs_no_domain(rules, self.key) {
            pins.push(Pin { key: Arc::clone(self.key), values: Vec::new() });
            self.shares.push(Share { group: share.group, pins, pods });
            return;
        }
        self.dealt.undealt.push(Undealt { group: share.group, pins, pods, key: Arc::clone(self.key) });
        let follows = |rule: &PodRule| {
            rule.kind == RuleKind::With
                && self.census.counts(self.key, rule.selector) != self.before.counts(self.key, rule.selector)
        };
        if rules.iter().any(follows) {
            self.dealt.deferred.insert(share.group);
        }
    }
}

/// A domain that takes all pods that are left, or the one that takes most of them, with how many.
fn largest_part(quotas: &[u32], left: u32) -> Option<(usize, u32)> {
    let quotas = || quotas.iter().copied().enumerate();
    let whole = quotas().filter(|(_, quota)| *quota >= left).min_by_key(|(_, quota)| *quota);
    let most = || quotas().filter(|(_, quota)| *quota > 0).max_by_key(|(_, quota)| *quota);
    whole.or_else(most).map(|(domain, quota)| (domain, quota.min(left)))
}

/// Whether pods may run on nodes without the label: not every node has it, and only others ask for it or the pods keep
/// away from others, who have no domain there either.
fn needs_no_domain(rules: &[PodRule], key: &str) -> bool {
    rules.iter().all(|rule| rule.kind == RuleKind::Apart) && !labels::is_well_known(key)
}
