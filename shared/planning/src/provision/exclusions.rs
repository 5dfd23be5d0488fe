//! Why no domain of a label is right for a group's pods.
//!
//! Decides words, not placements: it repeats what dealing asks of each domain (`topology::deal`), on the plan as it is
//! in the end, and names what is in the way there: a rule about other pods before what the pod selects itself, as
//! selecting more is no help where a rule is broken. A domain that breaks none has no room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::labels;
use tenon_domain::requirement::Requirements;

use super::UnschedulableCause;
use super::diagnose;
use super::ends::RefusedGroup;
use super::needs::{Alternative, PodGroup};
use super::pool::Pool;
use super::report::{DomainExclusion, DomainLack, DomainReach, ExcludedDomains, Reason};
use super::steps::Steps;
use super::topology::census::{Census, is_of_nodes};
use super::topology::deal::Pin;
use super::topology::rules::{Force, PodRule, RuleKind};
use super::waiting::WaitingGroups;
use super::ways::{Ways, WaysTable};

/// A plan in its end, as far as reasons ask.
pub(crate) struct EndedPlan<'p> {
    pub(crate) census: &'p Census<'p>,
    pub(crate) steps: &'p Steps,
    pub(crate) ways: &'p WaysTable,
    pub(crate) waiting: WaitingGroups,
    pub(crate) now: Timestamp,
}

/// Why no domain of a label is right.
pub(crate) struct NoDomain {
    /// The rules, and what pools lack for now in the domains that they leave.
    pub(crate) causes: Vec<UnschedulableCause>,
    /// Whether no higher limit helps.
    pub(crate) whatever_limits: bool,
}

/// The pods of a rule by domain.
struct RuleCounts<'g> {
    rule: &'g PodRule,
    counts: BTreeMap<Arc<str>, u32>,
    /// Whether it counts the group's own pods.
    itself: u32,
    /// Whether it follows the volume that they share.
    of_claim: bool,
}

/// The values of a label that new nodes can have for pods.
struct OfferedDomains {
    /// For the group, where its other rules keep it.
    here: BTreeSet<Arc<str>>,
    /// For the group.
    alone: BTreeSet<Arc<str>>,
    /// For it with other volumes.
    with_other_volumes: BTreeSet<Arc<str>>,
    /// For pods that select no nodes.
    to_any: BTreeSet<Arc<str>>,
}

/// Why no domain of the label that failed last is right for a group; `None` if none failed.
pub(crate) fn no_domain(
    pools: &mut [Pool<'_>],
    refused: &RefusedGroup<'_, '_>,
    plan: &EndedPlan<'_>,
) -> Option<NoDomain> {
    let RefusedGroup { group, .. } = *refused;
    let of_nodes = || group.needs_neighbours().then(|| Arc::from(labels::HOSTNAME));
    let key: Arc<str> = refused.key.cloned().or_else(of_nodes)?;
    let mut for_now = Vec::new();
    let lack = match plan.waiting.awaited(group, plan.census) {
        Some(awaited) => awaited,
        None => lack(pools, refused, &key, plan, &mut for_now),
    };
    let whatever_limits = match &lack {
        DomainLack::Value { excluded, .. } => {
            !excluded.iter().any(|one| matches!(one.why, DomainExclusion::Limited | DomainExclusion::NoRoom))
        }
        DomainLack::Peers
        | DomainLack::PeersWait { .. }
        | DomainLack::PeersWaitBack { .. }
        | DomainLack::LabelOfPeers => true,
        DomainLack::Label | DomainLack::RoomWithPeers | DomainLack::RoomWithOthers => false,
    };
    let reason = Reason::NoDomain { key: key.to_string(), rules: group.rules_text(&key), lack };
    let first = UnschedulableCause { pool: None, reason };
    Some(NoDomain { causes: std::iter::once(first).chain(for_now).collect(), whatever_limits })
}

fn lack(
    pools: &mut [Pool<'_>],
    refused: &RefusedGroup<'_, '_>,
    key: &Arc<str>,
    plan: &EndedPlan<'_>,
    for_now: &mut Vec<UnschedulableCause>,
) -> DomainLack {
    let RefusedGroup { group, pins, .. } = *refused;
    let follows_itself = |rule: &PodRule| group.is.contains(&rule.selector);
    let required = || group.rules_of(key).filter(|rule| rule.force == Force::Required);
    let follows_only = required().next().is_some() && required().all(|rule| rule.kind == RuleKind::With);
    if is_of_nodes(key) && follows_only {
        return match required().all(follows_itself) {
            true => DomainLack::RoomWithPeers,
            false => DomainLack::RoomWithOthers,
        };
    }
    let offered = OfferedDomains::of(pools, group, key, pins, plan.ways);
    if offered.to_any.is_empty() && !is_of_nodes(key) && !plan.census.has_label(key) {
        return DomainLack::Label;
    }
    let lost = |rule: &PodRule| {
        rule.kind == RuleKind::With
            && !follows_itself(rule)
            && !group.shares_claim(rule.selector)
            && plan.census.most_counts(key, rule.selector).values().all(|pods| *pods == 0)
    };
    if required().any(lost) {
        return DomainLack::LabelOfPeers;
    }
    let mut found: BTreeMap<DomainExclusion, Vec<String>> = BTreeMap::new();
    for (domain, broken) in by_rule(group, key, plan.census, &offered) {
        let why = match broken.or_else(|| offered.beyond(group, key, &domain, pins)) {
            Some(why) => why,
            None => {
                let mut pins = pins.to_vec();
                pins.push(Pin::at(Arc::clone(key), Arc::clone(&domain)));
                let there = group.part(group.pods.clone(), plan.ways.pinned(&group.alternatives, &pins));
                ruled_out(pools, &there, key, plan).unwrap_or_else(|| {
                    no_room(pools, &there, offered.here.contains(&domain), plan.now, for_now)
                })
            }
        };
        found.entry(why).or_default().push(domain.to_string());
    }
    for_now.sort();
    for_now.dedup();
    let excluded = found.into_iter().map(|(why, domains)| ExcludedDomains { why, domains }).collect();
    let chosen = |ways: &Ways| ways.iter().all(|one| one.asked.get(key).is_some());
    let reach = match chosen(&group.required) || is_of_nodes(key) {
        true => DomainReach::Chosen,
        false => DomainReach::Any,
    };
    DomainLack::Value { excluded, reach }
}

/// The other label whose domains in this one all break a rule.
fn ruled_out(
    pools: &mut [Pool<'_>],
    there: &PodGroup<'_>,
    key: &Arc<str>,
    plan: &EndedPlan<'_>,
) -> Option<DomainExclusion> {
    let required = there.rules.iter().filter(|rule| rule.force == Force::Required);
    let others = required.map(|rule| &rule.key).filter(|other| *other != key && !is_of_nodes(other));
    let mut others = others.collect::<BTreeSet<&Arc<str>>>().into_iter();
    let other = others.find(|other| {
        let offered = OfferedDomains::of(pools, there, other, &[], plan.ways);
        let found = by_rule(there, other, plan.census, &offered);
        let mut here = found.iter().filter(|(domain, _)| offered.here.contains(domain)).peekable();
        here.peek().is_some() && here.all(|(_, broken)| broken.is_some())
    });
    other.map(|other| DomainExclusion::OtherLabel { key: other.to_string() })
}

/// Why the nodes of a domain that breaks no rule have no room, and what the pools lack for now there.
fn no_room(
    pools: &[Pool<'_>],
    there: &PodGroup<'_>,
    is_offered: bool,
    now: Timestamp,
    for_now: &mut Vec<UnschedulableCause>,
) -> DomainExclusion {
    if there.needs_others() {
        return DomainExclusion::NoNeighbour;
    }
    let reasons = pools.iter().map(|pool| (pool, diagnose::cause(pool, there, now)));
    let reasons: Vec<(&Pool<'_>, Option<Reason>)> = reasons.collect();
    let passes = |reason: &Reason| {
        reason.is_limit()
            || matches!(reason, Reason::AllOfferingsUnavailable { .. } | Reason::ZonesShifted { .. })
    };
    let of_pools: Vec<UnschedulableCause> = reasons
        .iter()
        .filter_map(|(pool, reason)| {
            let reason = reason.as_ref().filter(|reason| passes(reason))?.clone();
            Some(UnschedulableCause { pool: Some(pool.input.pool.name.clone()), reason })
        })
        .collect();
    let is_limited = of_pools.iter().any(|cause| cause.reason.is_limit());
    let why = match (reasons.iter().any(|(_, reason)| reason.is_none()), of_pools.is_empty()) {
        (true, _) => return DomainExclusion::NoRoom,
        (false, true) if is_offered => DomainExclusion::NoRoom,
        (false, true) => DomainExclusion::NotOffered,
        (false, false) if is_limited => DomainExclusion::Limited,
        (false, false) => DomainExclusion::Unavailable,
    };
    for_now.extend(of_pools);
    why
}

/// The domains, each with the rule about other pods that it breaks.
fn by_rule(
    group: &PodGroup<'_>,
    key: &Arc<str>,
    census: &Census<'_>,
    offered: &OfferedDomains,
) -> Vec<(Arc<str>, Option<DomainExclusion>)> {
    let counts = |rule: &PodRule| {
        let mut counts = match rule.kind {
            RuleKind::Spread(terms) => census.spread_counts(rule, terms, group),
            RuleKind::Apart | RuleKind::With => census.counts(key, rule.selector),
        };
        for domain in &offered.alone {
            counts.entry(Arc::clone(domain)).or_insert(0);
        }
        counts
    };
    let rules: Vec<RuleCounts<'_>> = group
        .rules_of(key)
        .map(|rule| RuleCounts {
            rule,
            counts: counts(rule),
            itself: u32::from(group.is.contains(&rule.selector)),
            of_claim: group.shares_claim(rule.selector),
        })
        .collect();
    let counted = rules.iter().flat_map(|of| of.counts.keys());
    let domains: BTreeSet<&Arc<str>> =
        counted.chain(&offered.with_other_volumes).chain(&offered.to_any).collect();
    let broken_in = |domain: &Arc<str>| {
        let keeps_out = group.is.iter().any(|selector| census.keeps_out(key, *selector, domain));
        // Of several rules the one that no other skew would end.
        let broken = rules.iter().filter_map(|of| of.broken_in(domain)).max();
        broken.max(keeps_out.then_some(DomainExclusion::KeptOut))
    };
    domains.into_iter().map(|domain| (Arc::clone(domain), broken_in(domain))).collect()
}

impl OfferedDomains {
    fn of(
        pools: &mut [Pool<'_>],
        group: &PodGroup<'_>,
        key: &Arc<str>,
        pins: &[Pin],
        ways: &WaysTable,
    ) -> Self {
        let open = Alternative { asked: Requirements::default(), fields: Vec::new() };
        let mut of = |asked: Arc<Ways>| -> BTreeSet<Arc<str>> {
            let group = group.part(Vec::new(), asked);
            let ready = pools.iter_mut().filter(|pool| pool.is_ready());
            ready.flat_map(|pool| pool.domains(&group, key).keys().cloned().collect::<Vec<_>>()).collect()
        };
        Self {
            here: of(ways.pinned(&group.alternatives, pins)),
            alone: of(Arc::clone(&group.alternatives)),
            with_other_volumes: of(Arc::clone(&group.counted)),
            to_any: of(ways.of(vec![open])),
        }
    }

    /// What keeps a group from a domain, if that is a selection.
    fn beyond(
        &self,
        group: &PodGroup<'_>,
        key: &Arc<str>,
        domain: &Arc<str>,
        pins: &[Pin],
    ) -> Option<DomainExclusion> {
        if self.here.contains(domain) {
            return None;
        }
        if self.alone.contains(domain) {
            let pins = pins.iter().map(|pin| match pin.values.is_empty() {
                true => format!("no `{}`", pin.key),
                false => format!("`{} In [{}]`", pin.key, pin.values.join(", ")),
            });
            return Some(DomainExclusion::OtherRules { beside: pins.collect::<Vec<_>>().join(" and ") });
        }
        let allows = |ways: &Ways| ways.iter().any(|one| one.asked.allows(key, domain));
        if self.with_other_volumes.contains(domain) || (allows(&group.counted) && !allows(&group.required)) {
            return Some(DomainExclusion::VolumesElsewhere);
        }
        let unselected = self.to_any.contains(domain) || !allows(&group.counted);
        unselected.then_some(DomainExclusion::NotSelected)
    }
}

impl RuleCounts<'_> {
    /// How another pod in a domain would break the rule.
    fn broken_in(&self, domain: &Arc<str>) -> Option<DomainExclusion> {
        let here = self.counts.get(domain).copied().unwrap_or(0);
        match self.rule.kind {
            RuleKind::Apart => (here > 0).then_some(DomainExclusion::HoldsAvoided),
            RuleKind::With => {
                let first = self.itself > 0 && self.counts.values().all(|count| *count == 0);
                (here == 0 && !first).then_some(match self.of_claim {
                    true => DomainExclusion::SharedVolumeElsewhere,
                    false => DomainExclusion::NoneToFollow,
                })
            }
            RuleKind::Spread(terms) => {
                let enough = u32::try_from(self.counts.len()).is_ok_and(|found| found >= terms.min_domains);
                let least = if enough { self.counts.values().min().copied().unwrap_or(0) } else { 0 };
                let over = here.saturating_add(self.itself) > least.saturating_add(terms.max_skew);
                over.then_some(match enough {
                    true => DomainExclusion::Ahead { pods: here.saturating_sub(least) },
                    false => DomainExclusion::TooFewDomains { min_domains: terms.min_domains },
                })
            }
        }
    }
}
