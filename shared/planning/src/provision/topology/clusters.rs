//! Clusters: groups that are the same to the rules of a label, and the order in which they are dealt.
//!
//! Decides that pods with less choice among domains come before others with the same turn, or before others that they
//! repel (`repelling`), whatever their priority, and
//! whether pods are dealt evenly, to few domains, or to all that their rules leave. It doesn't decide the domains
//! (`table`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::api::pod::NodeInclusionPolicy;
use tenon_domain::labels;
use tenon_domain::taint::Toleration;

use super::super::needs::PodGroup;
use super::super::ways::Ways;
use super::census::{Census, DomainCounts, is_of_nodes};
use super::deal::{DomainOffer, Share, WaitingPods};
use super::keys::asked_by_rules;
use super::repelling::turns;
use super::rules::{Force, PodRule, RuleKind};
use super::selectors::SelectorId;

/// The order in which groups are dealt: those that others must make room for first, then those that others count,
/// and those that follow others last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    Apart,
    With,
    Counted,
    Spread,
    /// By pods of others, whichever of them come first.
    SpreadByOthers,
    WithOthers,
}

impl Turn {
    fn of(group: &PodGroup<'_>, key: &str) -> Self {
        let turns = group.rules_of(key).map(|rule| match rule.kind {
            RuleKind::Apart => Self::Apart,
            RuleKind::With if group.is.contains(&rule.selector) => Self::With,
            RuleKind::With => Self::WithOthers,
            RuleKind::Spread(_) if group.is.contains(&rule.selector) => Self::Spread,
            RuleKind::Spread(_) => Self::SpreadByOthers,
        });
        match peers_of(group).next() {
            // Their nodes are those of the others.
            Some(_) => Self::WithOthers,
            None => turns.max().unwrap_or(Self::Counted),
        }
    }
}

fn is_affinity(rule: &PodRule) -> bool {
    rule.kind == RuleKind::With && rule.force == Force::Required
}

/// The pods of others that a group's pods must have on their nodes.
fn peers_of(group: &PodGroup<'_>) -> impl Iterator<Item = SelectorId> {
    group.node_rules.with.iter().filter(|selector| !group.is.contains(selector)).copied()
}

/// How pods are dealt to the domains that their rules permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DealManner {
    /// Evenly: a rule counts them by domain.
    Balanced,
    /// To few: each domain is one less for pods that come later.
    Gathered,
    /// To all at once, so that claims keep the choice: they only stay away from pods that have their domains.
    Open,
}

/// What a label's rules know of pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterRules {
    pub(super) turn: Turn,
    pub(super) rules: Vec<PodRule>,
    pub(super) is: Vec<SelectorId>,
    /// The pods of others that must be on the nodes of these.
    pub(super) peers: Vec<SelectorId>,
    /// Those of the affinity of others that match these, which have no such affinity themselves.
    pub(super) followed: Vec<SelectorId>,
    /// The nodes that its spreads count, as a number, where they don't count all.
    counted: Option<usize>,
    /// What its pods tolerate, where its spreads count only nodes that these tolerate.
    tolerated: Option<Vec<Toleration>>,
    pub(super) manner: DealManner,
}

impl ClusterRules {
    /// Whether what is dealt first may allow more of the rest later.
    fn are_of_a_spread(&self) -> bool {
        let spreads =
            |rule: &PodRule| matches!(rule.kind, RuleKind::Spread(_)) && self.is.contains(&rule.selector);
        self.rules.iter().any(spreads)
    }
}

/// Groups that are the same to a key's rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClusterKey {
    pub(super) shared: ClusterRules,
    /// What they ask of their node, as a number: spreads that count only some nodes must know.
    asked: usize,
    /// All domains that the pods could have without their pins.
    pub(super) domains: Vec<Arc<str>>,
    /// Those that they could have, with the most pods of each.
    offered: Vec<(Arc<str>, u32)>,
}

impl ClusterKey {
    pub(super) fn of(
        group: &PodGroup<'_>,
        key: &str,
        ways: &Ways,
        askers: &DomainAskers,
        (everywhere, found): (&[DomainOffer], &[DomainOffer]),
    ) -> Self {
        let rules: Vec<PodRule> = group.rules_of(key).cloned().collect();
        let is: Vec<SelectorId> = group.is.iter().filter(|id| askers.all.contains(id)).copied().collect();
        let honours = |rule: &PodRule| match rule.kind {
            RuleKind::Spread(terms) => terms.affinity == NodeInclusionPolicy::Honor,
            RuleKind::Apart | RuleKind::With => false,
        };
        let counted = rules.iter().any(honours).then_some(group.counted.id);
        let honours_taints = |rule: &PodRule| match rule.kind {
            RuleKind::Spread(terms) => terms.taints == NodeInclusionPolicy::Honor,
            RuleKind::Apart | RuleKind::With => false,
        };
        let tolerated = rules.iter().any(honours_taints).then(|| group.tolerations.to_vec());
        let manner = askers.manner(group, key, &rules, &is);
        let follows = |id: &SelectorId| rules.iter().any(|rule| is_affinity(rule) && rule.selector == *id);
        let followed = is.iter().filter(|id| askers.followed.contains(id) && !follows(id)).copied().collect();
        Self {
            shared: ClusterRules {
                turn: Turn::of(group, key),
                rules,
                is,
                peers: peers_of(group).collect(),
                followed,
                counted,
                tolerated,
                manner,
            },
            asked: ways.id,
            domains: everywhere.iter().map(|offer| Arc::clone(&offer.domain)).collect(),
            offered: found.iter().map(|offer| (Arc::clone(&offer.domain), offer.most)).collect(),
        }
    }
}

/// The shares of a cluster, with the domains that each could have.
pub(super) struct ClusterMembers {
    pub(super) offers: Vec<DomainOffer>,
    pub(super) shares: Vec<Share>,
}

/// A cluster that is to be dealt.
pub(super) struct DealtCluster {
    pub(super) key: ClusterKey,
    pub(super) offers: Vec<DomainOffer>,
    pub(super) shares: Vec<Share>,
    /// How many domains the pods could have.
    pub(super) choice: usize,
}

/// The clusters in the order in which they are dealt: in turns, of each those with the least choice first. Clusters of
/// one spread are dealt together.
pub(super) fn in_order(
    clusters: BTreeMap<ClusterKey, ClusterMembers>,
    census: &Census<'_>,
    key: &Arc<str>,
) -> Vec<Vec<DealtCluster>> {
    let mut all: Vec<Vec<DealtCluster>> = Vec::new();
    for (of, ClusterMembers { offers, shares }) in clusters {
        let choice = choice(census, key, &of.shared, &offers);
        let one = DealtCluster { key: of, offers, shares, choice };
        let together = |with: &&mut Vec<DealtCluster>| {
            let same = with.first().is_some_and(|first| first.key.shared == one.key.shared);
            same && one.key.shared.are_of_a_spread()
        };
        match all.last_mut().filter(together) {
            Some(with) => with.push(one),
            None => all.push(vec![one]),
        }
    }
    for together in &mut all {
        together.sort_by_key(|one| (one.choice, one.key.asked));
    }
    let mut turns = turns(&all);
    lead(&all, &mut turns);
    let mut ranked: Vec<(Turn, Vec<DealtCluster>)> = turns.into_iter().zip(all).collect();
    for (turn, together) in &mut ranked {
        // The pods that it comes before must know which domains are left.
        let sooner = together.iter_mut().filter(|one| *turn < one.key.shared.turn);
        for shared in sooner.map(|one| &mut one.key.shared).filter(|one| one.manner == DealManner::Open) {
            shared.manner = DealManner::Gathered;
        }
    }
    ranked.sort_by_key(|(turn, together)| together.first().map(|one| (*turn, one.choice, one.key.asked)));
    ranked.into_iter().map(|(_, together)| together).collect()
}

/// Pods that the affinity of others matches come before these if they have less choice: whichever of them kube-scheduler tries
/// first, the others must be there.
fn lead(all: &[Vec<DealtCluster>], turns: &mut [Turn]) {
    let firsts = || all.iter().map(|together| together.first());
    for one in firsts().flatten() {
        let ClusterRules { rules, is, .. } = &one.key.shared;
        let own: Vec<SelectorId> =
            rules.iter().filter(|rule| is_affinity(rule)).map(|rule| rule.selector).collect();
        if own.is_empty() || !own.iter().all(|selector| is.contains(selector)) {
            continue;
        }
        let offers = |domain: &Arc<str>| one.offers.iter().any(|offer| offer.domain == *domain);
        for (other, turn) in firsts().zip(turns.iter_mut()) {
            let Some(other) = other.filter(|other| other.choice < one.choice && *turn == Turn::Counted)
            else {
                continue;
            };
            let led = own.iter().any(|selector| other.key.shared.followed.contains(selector));
            if led && other.offers.iter().all(|offer| offers(&offer.domain)) {
                *turn = Turn::With;
            }
        }
    }
}

/// How many domains are left to pods, before any of them is dealt.
fn choice(census: &Census<'_>, key: &Arc<str>, shared: &ClusterRules, offers: &[DomainOffer]) -> usize {
    let apart = shared.rules.iter().filter(|rule| rule.kind == RuleKind::Apart);
    let apart: Vec<DomainCounts> = apart.map(|rule| census.most_counts(key, rule.selector)).collect();
    let is_left = |offer: &&DomainOffer| {
        let mut here = apart.iter().map(|counts| counts.get(&offer.domain).copied().unwrap_or(0));
        here.all(|count| count == 0)
            && !shared.is.iter().any(|selector| census.keeps_out(key, *selector, &offer.domain))
    };
    offers.iter().filter(is_left).count()
}

/// Who asks about the pods of a label's domains.
#[derive(Debug, Default)]
pub(super) struct DomainAskers {
    /// The selectors of all its rules.
    pub(super) all: BTreeSet<SelectorId>,
    /// Those of its spreads and its affinity.
    counting: BTreeSet<SelectorId>,
    /// Those of the spreads and the affinity of any label.
    certain: BTreeSet<SelectorId>,
    /// Those of the required affinity of waiting pods.
    followed: BTreeSet<SelectorId>,
    /// Those of the anti-affinity of waiting pods, with the last turn of such pods.
    repelling: BTreeMap<SelectorId, Turn>,
    /// Those of them that match waiting pods.
    repelled: BTreeSet<SelectorId>,
}

impl DomainAskers {
    pub(super) fn of(census: &Census<'_>, groups: &[PodGroup<'_>], waiting: &WaitingPods, key: &str) -> Self {
        let mut askers = Self { all: asked_by_rules(census, groups, &waiting.ever, key), ..Self::default() };
        askers.counting.extend(census.skewed(key));
        askers.certain.extend(census.skewed_anywhere());
        let ever = || {
            let waits = waiting.now.iter().zip(&waiting.ever);
            let waits = groups.iter().zip(waits).filter(|(_, (_, ever))| **ever > 0);
            waits.map(|(group, (now, _))| (group, *now))
        };
        for (group, now) in ever() {
            // Pods that are dealt in a later round come after all of this one.
            let turn = if now == 0 { Turn::WithOthers } else { Turn::of(group, key) };
            for rule in group.rules.iter().filter(|rule| !is_of_nodes(&rule.key)) {
                match (rule.kind, *rule.key == *key) {
                    (RuleKind::Apart, true) => {
                        let last = askers.repelling.entry(rule.selector).or_insert(turn);
                        *last = turn.max(*last);
                    }
                    (RuleKind::Apart, false) => {}
                    (RuleKind::With | RuleKind::Spread(_), here) => {
                        askers.counting.extend(here.then_some(rule.selector));
                        askers.followed.extend((here && is_affinity(rule)).then_some(rule.selector));
                        askers.certain.insert(rule.selector);
                    }
                }
            }
        }
        if !askers.repelling.is_empty() {
            let is = ever().flat_map(|(group, _)| group.is.iter().copied());
            askers.repelled = is.filter(|id| askers.repelling.contains_key(id)).collect();
        }
        askers
    }

    /// Whether pods have anti-affinity, or that of others keeps them out of domains.
    pub(super) fn are_repelled(&self, rules: &[PodRule], is: &[SelectorId]) -> bool {
        is.iter().any(|id| self.repelling.contains_key(id))
            || rules.iter().any(|rule| rule.kind == RuleKind::Apart)
    }

    /// How pods are dealt that have these rules and are this to the label's rules.
    fn manner(&self, group: &PodGroup<'_>, key: &str, rules: &[PodRule], is: &[SelectorId]) -> DealManner {
        let binds = |rule: &PodRule| rule.kind == RuleKind::With || is.contains(&rule.selector);
        // Where no rule asks, it must only be certain where the pods are.
        let nobody = rules.is_empty() && is.is_empty();
        if nobody || is.iter().any(|id| self.counting.contains(id)) || rules.iter().any(binds) {
            return DealManner::Balanced;
        }
        let turn = Turn::of(group, key);
        let comes_later = |id: &SelectorId| self.repelling.get(id).is_some_and(|last| *last >= turn);
        let spreads = |rule: &PodRule| matches!(rule.kind, RuleKind::Spread(_));
        let must_be_certain = !labels::is_well_known(key)
            || rules.iter().any(spreads)
            || group.is.iter().any(|id| self.certain.contains(id));
        let closes_domains =
            is.iter().any(comes_later) || rules.iter().any(|rule| self.repelled.contains(&rule.selector));
        match must_be_certain || closes_domains {
            true => DealManner::Gathered,
            false => DealManner::Open,
        }
    }
}
