//! The default scores of feasible nodes, with their weights.
//!
//! Decides by NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation with weight 1, TaintToleration
//! with 3, NodeAffinity, PodTopologySpread and InterPodAffinity with 2. ImageLocality isn't scored: simulated Nodes
//! don't tell their images, and new nodes have none.
//!
//! Source: `getDefaultPlugins` and the plugins' `Score` and `NormalizeScore` in kubernetes/kubernetes
//! `pkg/scheduler`, 1.35, read 2026-11-24.

use std::collections::BTreeMap;

use serde_json::Value;
use tenon_domain::labels;
use tenon_domain::taint::TaintEffect;

use super::super::selector::matches_node;
use super::Score;
use super::info::{NodeAmounts, NodeInfo};
use super::shape::{PodAmounts, SchedulingNeeds, ScoredNodes};
use super::terms::{Matches, SpreadRule};

/// The best score of a plugin before its weight.
const MOST: i64 = 100;
/// What a required affinity term of a pod that runs adds (`hardPodAffinityWeight`).
const REQUIRED_WEIGHT: i64 = 1;

/// A pod that is scored, among all nodes.
pub(super) struct Scoring<'a> {
    pub(super) shape: &'a SchedulingNeeds,
    pub(super) nodes: &'a BTreeMap<String, NodeInfo>,
    pub(super) matches: &'a Matches,
    pub(super) strategy: Score,
}

impl Scoring<'_> {
    /// The scores of feasible nodes, in their order.
    pub(super) fn of(&self, feasible: &[&NodeInfo]) -> Vec<i64> {
        let plugins = [
            (1, feasible.iter().map(|node| self.resources(node)).collect()),
            (1, feasible.iter().map(|node| self.balance(node)).collect()),
            (3, self.taints(feasible)),
            (2, self.node_affinity(feasible)),
            (2, self.spread(feasible)),
            (2, self.affinity(feasible)),
        ];
        let mut sums = vec![0_i64; feasible.len()];
        for (weight, scores) in plugins {
            let scores: Vec<i64> = scores;
            for (sum, score) in sums.iter_mut().zip(scores) {
                *sum += weight * score;
            }
        }
        sums
    }

    fn resources(&self, node: &NodeInfo) -> i64 {
        let NodeAmounts { allocatable, counted, .. } = node.amounts;
        let with = counted.plus(self.shape.counted);
        let of = |asked: i64, all: i64| match self.strategy {
            _ if all <= 0 => None,
            _ if asked > all => Some(0),
            Score::LeastAllocated => Some(i128::from(all - asked) * i128::from(MOST) / i128::from(all)),
            Score::MostAllocated => Some(i128::from(asked) * i128::from(MOST) / i128::from(all)),
        };
        let scores = [of(with.cpu, allocatable.cpu), of(with.memory, allocatable.memory)];
        let known: Vec<i64> =
            scores.into_iter().flatten().map(|score| i64::try_from(score).unwrap_or(0)).collect();
        let count = i64::try_from(known.len()).unwrap_or(1).max(1);
        known.iter().sum::<i64>() / count
    }

    /// Pods without requests aren't scored by balance.
    fn balance(&self, node: &NodeInfo) -> i64 {
        if self.shape.asked == PodAmounts::default() {
            return 0;
        }
        let NodeAmounts { allocatable, asked, .. } = node.amounts;
        let with = asked.plus(self.shape.asked);
        let part = |asked: i64, all: i64| (all > 0).then(|| (as_float(asked) / as_float(all)).min(1.0));
        let deviation = match (part(with.cpu, allocatable.cpu), part(with.memory, allocatable.memory)) {
            (Some(cpu), Some(memory)) => ((cpu - memory) / 2.0).abs(),
            (Some(_), None) | (None, Some(_)) | (None, None) => 0.0,
        };
        as_whole((1.0 - deviation) * as_float(MOST))
    }

    fn taints(&self, feasible: &[&NodeInfo]) -> Vec<i64> {
        let unwanted = |node: &&NodeInfo| {
            let soft = node.taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
            let left = soft.filter(|taint| !self.shape.tolerations.iter().any(|one| one.tolerates(taint)));
            i64::try_from(left.count()).unwrap_or(i64::MAX)
        };
        let counts: Vec<i64> = feasible.iter().map(unwanted).collect();
        let most = counts.iter().copied().max().unwrap_or(0);
        counts.into_iter().map(|count| if most == 0 { MOST } else { MOST - MOST * count / most }).collect()
    }

    fn node_affinity(&self, feasible: &[&NodeInfo]) -> Vec<i64> {
        let of = |node: &&NodeInfo| {
            let matching = self.shape.preferred_nodes.iter().filter(|(_, term)| {
                matches_node(std::slice::from_ref::<Value>(term), &node.labels, &node.name)
            });
            matching.map(|(weight, _)| weight).sum::<i64>()
        };
        let sums: Vec<i64> = feasible.iter().map(of).collect();
        let most = sums.iter().copied().max().unwrap_or(0);
        sums.into_iter().map(|sum| if most == 0 { sum } else { MOST * sum / most }).collect()
    }

    /// PodTopologySpread with `ScheduleAnyway`. The fewer pods, the better; domains of a label with many values weigh
    /// more, and a larger `maxSkew` waters the difference down.
    fn spread(&self, feasible: &[&NodeInfo]) -> Vec<i64> {
        let soft = &self.shape.soft_spread;
        if soft.rules.is_empty() {
            return vec![0; feasible.len()];
        }
        let placed = |node: &NodeInfo| {
            soft.scored == ScoredNodes::All || soft.rules.iter().all(|rule| node.label(&rule.key).is_some())
        };
        let among: Vec<&NodeInfo> = feasible.iter().copied().filter(|node| placed(node)).collect();
        let all: Vec<&NodeInfo> = self.nodes.values().filter(|node| placed(node)).collect();
        let rules: Vec<CountedRule<'_>> =
            soft.rules.iter().map(|rule| CountedRule::of(self, rule, &all, &among)).collect();
        let raw: Vec<Option<i64>> = feasible
            .iter()
            .map(|node| {
                let sum: f64 = rules.iter().map(|rule| rule.score(self, node)).sum();
                placed(node).then(|| as_whole(sum.round()))
            })
            .collect();
        let known = || raw.iter().copied().flatten();
        let (least, most) = (known().min().unwrap_or(0), known().max().unwrap_or(0));
        let normal = |score: Option<i64>| match score {
            None => 0,
            Some(_) if most == 0 => MOST,
            Some(score) => MOST * (most + least - score) / most,
        };
        raw.into_iter().map(normal).collect()
    }

    /// Preferred terms of the pod, and the terms of pods that run: preferred ones and required affinity.
    fn affinity(&self, feasible: &[&NodeInfo]) -> Vec<i64> {
        let mut domains: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for node in self.nodes.values() {
            for equal in node.pods.values() {
                let other = &*equal.shape;
                let own =
                    self.shape.preferred.iter().map(|(term, weight)| (self.shape, other, *term, *weight));
                let required = other.affinity.iter().map(|term| (*term, REQUIRED_WEIGHT));
                let theirs = other.preferred.iter().copied().chain(required);
                let theirs = theirs.map(|(term, weight)| (other, self.shape, term, weight));
                for (owner, counted, term, weight) in own.chain(theirs) {
                    if self.matches.of(owner, term, counted)
                        && let Some(one) = owner.terms.get(term)
                        && let Some(value) = node.label(&one.key)
                    {
                        *domains.entry((one.key.as_str(), value)).or_insert(0) += weight * equal.all;
                    }
                }
            }
        }
        if domains.is_empty() {
            return vec![0; feasible.len()];
        }
        let of = |node: &&NodeInfo| {
            let here = domains.iter().filter(|((key, value), _)| node.label(key) == Some(value));
            here.map(|(_, sum)| sum).sum::<i64>()
        };
        let sums: Vec<i64> = feasible.iter().map(of).collect();
        let (least, most) =
            (sums.iter().copied().min().unwrap_or(0), sums.iter().copied().max().unwrap_or(0));
        let range = as_float(most - least);
        let normal = |sum: i64| {
            if most > least { as_whole(as_float(MOST) * (as_float(sum - least) / range)) } else { 0 }
        };
        sums.into_iter().map(normal).collect()
    }
}

/// A soft constraint with the pods of its domains.
struct CountedRule<'r> {
    rule: &'r SpreadRule,
    domains: BTreeMap<&'r str, i64>,
    weight: f64,
}

impl<'r> CountedRule<'r> {
    fn of(
        scoring: &Scoring<'_>,
        rule: &'r SpreadRule,
        all: &[&'r NodeInfo],
        feasible: &[&'r NodeInfo],
    ) -> Self {
        if rule.key == labels::HOSTNAME {
            return Self { rule, domains: BTreeMap::new(), weight: weight_of(feasible.len()) };
        }
        let mut domains: BTreeMap<&str, i64> =
            feasible.iter().map(|node| (node.label(&rule.key).unwrap_or_default(), 0)).collect();
        for node in all.iter().filter(|node| rule.includes(scoring.shape, node)) {
            if let Some(count) = domains.get_mut(node.label(&rule.key).unwrap_or_default()) {
                *count += scoring.pods_of(rule, node);
            }
        }
        let weight = weight_of(domains.len());
        Self { rule, domains, weight }
    }

    fn score(&self, scoring: &Scoring<'_>, node: &NodeInfo) -> f64 {
        let Some(value) = node.label(&self.rule.key) else { return 0.0 };
        let count = if self.rule.key == labels::HOSTNAME {
            scoring.pods_of(self.rule, node)
        } else {
            self.domains.get(value).copied().unwrap_or(0)
        };
        as_float(count) * self.weight + as_float(self.rule.max_skew - 1)
    }
}

impl Scoring<'_> {
    fn pods_of(&self, rule: &SpreadRule, node: &NodeInfo) -> i64 {
        let counted = node.pods.values().filter(|equal| {
            !rule.counts_nobody
                && equal.shape.namespace == self.shape.namespace
                && self.matches.of(self.shape, rule.term, &equal.shape)
        });
        counted.map(|equal| equal.staying).sum()
    }
}

fn weight_of(domains: usize) -> f64 {
    as_float(i64::try_from(domains).unwrap_or(i64::MAX).saturating_add(2)).ln()
}

#[expect(clippy::cast_precision_loss, reason = "kube-scheduler does the same")]
fn as_float(number: i64) -> f64 {
    number as f64
}

#[expect(clippy::cast_possible_truncation, reason = "a score, which kube-scheduler cuts off too")]
fn as_whole(number: f64) -> i64 {
    number as i64
}
