//! NodePool, `karpenter.sh/v1`.
//!
//! Decides what Karpenter 1.14's schema, its rules and its validation at run time reject
//! (kubernetes-sigs/karpenter `pkg/apis/v1/nodepool.go`, `nodepool_validation.go`).

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::api::node_pool::{
    ConsolidationPolicy, DisruptionPolicy, NodeClaimTemplate, NodeClassRef, NodePool,
};
use crate::budget::{Budget, BudgetError, DisruptionReason, Nodes};
use crate::id::{NodeClassName, NodePoolName};
use crate::requirement::Requirements;
use crate::requirement::hints::parse_word;
use crate::resources::{ResourceList, ResourceName};
use crate::taint::{Taint, TaintEffect};

use super::decode::{At, Fields};
use super::duration;
use super::meta::{META_FIELDS, Scope, read_meta};
use super::requirements::{Owner, check_key, read_requirements};

/// Fields of a resource of ours.
pub(super) const OBJECT_FIELDS: Fields<'static> =
    Fields::Only(&["apiVersion", "kind", "metadata", "spec", "status"]);
/// Karpenter's default of `expireAfter`.
const EXPIRE_AFTER: SignedDuration = SignedDuration::from_hours(720);
/// Karpenter's default of `disruption.budgets`.
const BUDGET: Budget = Budget::always(Nodes::Percent(10));
/// Karpenter's bounds.
const MAX_BUDGETS: usize = 50;
const MAX_LABELS: usize = 100;

pub(super) fn read_node_pool(at: At<'_>) -> Option<NodePool> {
    at.check_map(OBJECT_FIELDS);
    let meta = read_meta(at, Scope::Cluster, META_FIELDS);
    let fields = Fields::Only(&["template", "disruption", "limits", "weight", "replicas"]);
    let spec = at.required_object("spec", fields)?;
    let template = read_template(spec);
    let disruption = read_disruption(spec);
    let limits = spec.resources("limits");
    let weight = spec.integer_of::<u8>("weight", 1..=100).unwrap_or(0);
    let replicas = spec.integer_of::<u32>("replicas", 0..=i64::from(i32::MAX));
    if replicas.is_some() {
        check_static(spec, &limits);
    }
    let meta = meta?;
    let name = NodePoolName::parse(meta.name.clone()).ok()?;
    Some(NodePool { meta, name, template: template?, disruption, limits, weight, replicas })
}

fn check_static(spec: At<'_>, limits: &ResourceList) {
    if let Some(weight) = spec.field("weight") {
        weight.error("a static NodePool has no weight", "leave `weight` out, or `replicas`");
    }
    let Some(field) = spec.field("limits") else { return };
    for (name, limit) in field.entries() {
        if name != ResourceName::NODES.as_str() && limits.iter().any(|(known, _)| known.as_str() == name) {
            limit.error("a static NodePool has no limit but `nodes`", "leave this limit out, or `replicas`");
        }
    }
}

fn read_template(spec: At<'_>) -> Option<NodeClaimTemplate> {
    let template = spec.required_object("template", Fields::Only(&["metadata", "spec"]))?;
    let meta = template.object("metadata", Fields::Only(&["labels", "annotations"]));
    let (mut labels, mut annotations) = Default::default();
    if let Some(meta) = meta {
        labels = meta.labels("labels");
        annotations = meta.text_map("annotations");
        if let Some(field) = meta.field("labels") {
            field.entries().for_each(|(key, value)| check_key(value, key, Owner::NodePool));
        }
    }
    let fields = Fields::Only(&[
        "nodeClassRef",
        "requirements",
        "taints",
        "startupTaints",
        "expireAfter",
        "terminationGracePeriod",
    ]);
    let at = template.required_object("spec", fields)?;
    let read = read_claim_spec(at, Owner::NodePool);
    if let Some(field) = at.field("requirements")
        && labels.len() + field.items().count() > MAX_LABELS
    {
        field.error(
            format!("more than {MAX_LABELS} requirements and labels together"),
            "each label is a requirement of the NodeClaim; leave some out",
        );
    }
    let spec = read?;
    Some(NodeClaimTemplate { labels, annotations, ..spec })
}

/// The part that `spec.template.spec` of a NodePool and `spec` of a NodeClaim have in common.
pub(super) fn read_claim_spec(at: At<'_>, owner: Owner) -> Option<NodeClaimTemplate> {
    let node_class = read_node_class_ref(at);
    let requirements: Requirements = read_requirements(at, owner);
    let taints = read_taints(at, "taints");
    let startup_taints = read_taints(at, "startupTaints");
    check_repeated(at, &taints, &startup_taints);
    let expire_after = match read_duration(at, "expireAfter", Never::Allowed) {
        Some(Lapse::After(duration)) => Some(duration),
        Some(Lapse::Never) => None,
        None => Some(EXPIRE_AFTER),
    };
    let termination_grace_period = match read_duration(at, "terminationGracePeriod", Never::Refused) {
        Some(Lapse::After(duration)) => Some(duration),
        Some(Lapse::Never) | None => None,
    };
    Some(NodeClaimTemplate {
        labels: Default::default(),
        annotations: Default::default(),
        node_class: node_class?,
        requirements,
        taints,
        startup_taints,
        expire_after,
        termination_grace_period,
    })
}

fn read_node_class_ref(at: At<'_>) -> Option<NodeClassRef> {
    let reference = at.required_object("nodeClassRef", Fields::Only(&["group", "kind", "name"]))?;
    let group = reference.required_text("group", "`group: karpenter.k8s.aws`");
    let kind = reference.required_text("kind", "`kind: EC2NodeClass`");
    reference.required_text("name", "the name of an EC2NodeClass")?;
    let name = reference.field("name")?.id(NodeClassName::parse);
    Some(NodeClassRef { group: group?, kind: kind?, name: name? })
}

/// Reads `taints` of a node, a NodePool or a NodeClaim.
pub(super) fn read_taints(at: At<'_>, key: &str) -> Vec<Taint> {
    let Some(list) = at.list(key) else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Only(&["key", "value", "effect", "timeAdded"])))
        .filter_map(|item| {
            let key = item.required_text("key", "the taint's key")?;
            if let Some(field) = item.field("key") {
                field.check_label_key(&key);
            }
            let value = item.text_of("value").unwrap_or_default();
            if let Some(field) = item.field("value") {
                field.check_label_value(&value);
            }
            item.required_text("effect", "`NoSchedule`, `PreferNoSchedule` or `NoExecute`")?;
            let effect = item.field("effect")?.word(TaintEffect::parse)?;
            Some(Taint { key, value, effect })
        })
        .collect()
}

fn check_repeated(at: At<'_>, taints: &[Taint], startup: &[Taint]) {
    let mut seen = BTreeSet::new();
    for (key, list) in [("taints", taints), ("startupTaints", startup)] {
        for taint in list {
            if seen.insert((&taint.key, taint.effect)) {
                continue;
            }
            if let Some(field) = at.field(key) {
                let effect = taint.effect.as_str();
                field.error(
                    format!("taint `{}:{effect}` is given twice", taint.key),
                    "a key and an effect may be only once in `taints` and `startupTaints` together",
                );
            }
        }
    }
}

/// A duration that may never come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lapse {
    After(SignedDuration),
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Never {
    Allowed,
    Refused,
}

fn read_duration(at: At<'_>, key: &str, never: Never) -> Option<Lapse> {
    let field = at.field(key)?;
    let text = field.text()?;
    if text == "Never" && never == Never::Allowed {
        return Some(Lapse::Never);
    }
    let duration = duration::parse_plain(text);
    if duration.is_none() {
        let remedy = match never {
            Never::Allowed => "write hours, minutes and seconds, such as `720h` or `1h30m`, or `Never`",
            Never::Refused => "write hours, minutes and seconds, such as `48h` or `1h30m`",
        };
        field.error(format!("`{text}` is not a duration"), remedy);
    }
    duration.map(Lapse::After)
}

fn read_disruption(spec: At<'_>) -> DisruptionPolicy {
    let mut policy = DisruptionPolicy {
        consolidate_after: Some(SignedDuration::ZERO),
        consolidation_policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
        budgets: vec![BUDGET],
    };
    let fields = Fields::Only(&["consolidateAfter", "consolidationPolicy", "budgets"]);
    let Some(at) = spec.object("disruption", fields) else { return policy };
    match read_duration(at, "consolidateAfter", Never::Allowed) {
        Some(Lapse::After(duration)) => policy.consolidate_after = Some(duration),
        Some(Lapse::Never) => policy.consolidate_after = None,
        None => {}
    }
    if let Some(word) = at.field("consolidationPolicy").and_then(|field| field.word(parse_policy)) {
        policy.consolidation_policy = word;
    }
    if let Some(list) = at.field("budgets") {
        // An empty list is a list: it bounds nothing, unlike an absent one.
        let budgets: Vec<Budget> =
            at.list("budgets").map(|list| list.items().filter_map(read_budget).collect()).unwrap_or_default();
        if budgets.len() > MAX_BUDGETS {
            list.error(format!("more than {MAX_BUDGETS} budgets"), "leave some out");
        }
        policy.budgets = budgets;
    }
    policy
}

fn parse_policy(text: &str) -> Result<ConsolidationPolicy, crate::requirement::hints::UnknownWordError> {
    use ConsolidationPolicy::{Balanced, WhenEmpty, WhenEmptyOrUnderutilized};
    parse_word("a consolidation policy", text, &[WhenEmpty, WhenEmptyOrUnderutilized, Balanced], |policy| {
        match policy {
            WhenEmpty => "WhenEmpty",
            WhenEmptyOrUnderutilized => "WhenEmptyOrUnderutilized",
            Balanced => "Balanced",
        }
    })
}

fn read_budget(at: At<'_>) -> Option<Budget> {
    if !at.check_map(Fields::Only(&["nodes", "schedule", "duration", "reasons"])) {
        return None;
    }
    let nodes = at.text_of("nodes").unwrap_or_else(|| "10%".to_owned());
    let (schedule, duration) = (at.text_of("schedule"), at.text_of("duration"));
    let reasons: BTreeSet<DisruptionReason> = at
        .list("reasons")
        .map(|list| list.items().filter_map(|item| item.word(DisruptionReason::parse)).collect())
        .unwrap_or_default();
    // `nodes` and the window are looked at one by one, so that both are reported.
    if let Err(error) = Nodes::parse(&nodes) {
        report_budget(at, &error);
    }
    let budget = Budget::parse("0", schedule.as_deref(), duration.as_deref());
    let budget = budget.map_err(|error| report_budget(at, &error)).ok()?;
    if let Some(problem) = budget.window.as_ref().and_then(|window| window.problem()) {
        at.warn(
            format!("the schedule can't be understood: {problem}"),
            "until it is mended this budget allows no disruption at all",
        );
    }
    Some(Budget { nodes: Nodes::parse(&nodes).ok()?, reasons, ..budget })
}

fn report_budget(at: At<'_>, error: &BudgetError) {
    let (key, message, remedy) = match error {
        BudgetError::Nodes(text) => (
            "nodes",
            format!("`{text}` is not a number of nodes"),
            "write a count such as `5`, or a percentage from `0%` to `100%`",
        ),
        BudgetError::Duration(text) => (
            "duration",
            format!("`{text}` is not a duration of a budget"),
            "write hours and minutes, such as `30m`, `8h` or `1h30m`",
        ),
        BudgetError::Schedule(text) => (
            "schedule",
            format!("`{text}` is not a schedule"),
            "write five fields such as `0 9 * * mon-fri`, or `@daily`",
        ),
        BudgetError::HalfWindow(missing) => {
            ("", format!("`schedule` and `duration` must be set together: {missing} is missing"), "add it")
        }
    };
    match at.field(key) {
        Some(field) => field.error(message, remedy),
        None => at.error(message, remedy),
    }
}
