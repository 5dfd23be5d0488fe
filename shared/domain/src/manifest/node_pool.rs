//! NodePool, `karpenter.sh/v1`.
//!
//! Rejects what Karpenter 1.14's schema, its rules and its validation at run time reject
//! (kubernetes-sigs/karpenter `pkg/apis/v1/nodepool.go`, `nodepool_validation.go`).

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use serde::Deserialize;

use super::decode::{At, NameUnknown, Place, Whole};
use super::fields::{Lapse, MOST, PlainDuration, labels, texts, within};
use super::meta::{KindScope, ObjectFields};
use super::requirements::{RequirementEntry, RequirementsOwner, check_key, requirements};
use crate::api::node_pool::{
    ConsolidationPolicy, DisruptionPolicy, NodeClaimTemplate, NodeClassRef, NodePool,
};
use crate::budget::{Budget, BudgetError, BudgetNodes, DisruptionReason};
use crate::id::NodePoolName;
use crate::labels::{BUDGET_TIME_ZONE, PAUSE_DISRUPTION};
use crate::pool_annotations::budget_time_zone;
use crate::resources::{ResourceList, ResourceName};
use crate::taint::Taint;

/// Karpenter's default of `expireAfter`.
const EXPIRE_AFTER: SignedDuration = SignedDuration::from_hours(720);
/// Karpenter's default of `disruption.budgets`.
const BUDGET: Budget = Budget::always(BudgetNodes::Percent(10));
/// Karpenter's bounds.
const MAX_BUDGETS: usize = 50;
const MAX_LABELS: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PoolSpec {
    template: Option<NodeClaimTemplateFields>,
    disruption: DisruptionFields,
    limits: ResourceList,
    #[serde(deserialize_with = "within::<1, 100, _, _>")]
    weight: Option<u8>,
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    replicas: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeClaimTemplateFields {
    metadata: TemplateMeta,
    spec: Option<NodeClaimSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    #[serde(deserialize_with = "labels")]
    labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "texts")]
    annotations: BTreeMap<String, String>,
}

/// The fields that `spec.template.spec` of a NodePool and `spec` of a NodeClaim share.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeClaimSpec {
    pub(super) node_class_ref: Option<NodeClassRef>,
    pub(super) requirements: Option<Vec<RequirementEntry>>,
    pub(super) taints: Vec<Taint>,
    pub(super) startup_taints: Vec<Taint>,
    pub(super) expire_after: Option<Lapse>,
    pub(super) termination_grace_period: Option<PlainDuration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DisruptionFields {
    consolidate_after: Option<Lapse>,
    consolidation_policy: Option<ConsolidationPolicy>,
    budgets: Option<Vec<WrittenBudget>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenBudget {
    nodes: Option<String>,
    schedule: Option<String>,
    duration: Option<String>,
    reasons: BTreeSet<DisruptionReason>,
}

pub(super) fn read_node_pool(at: At<'_, '_>) -> Option<NodePool> {
    let mut form: ObjectFields<NameUnknown<PoolSpec>, Whole> = at.read()?;
    let meta = std::mem::take(&mut form.metadata).of_object(&at.place, KindScope::Cluster);
    let NameUnknown(spec) = form.spec(&at.place)?;
    let place = at.place.key("spec");
    if spec.replicas.is_some() {
        check_static(&spec, &place);
    }
    let template = spec.template.map(|template| template.into_domain(&place.key("template")));
    if template.is_none() {
        place.missing("template", "a map");
    }
    let mut disruption = spec.disruption.into_domain(&place.key("disruption"));
    let meta = meta?;
    if let Some(written) = meta.annotations.get(BUDGET_TIME_ZONE) {
        let zone = budget_time_zone(written).map_err(|error| error.to_string());
        if let Err(error) = &zone {
            let metadata = at.place.key("metadata");
            metadata
                .key("annotations")
                .warn(error.clone(), "until then its budgets with schedules allow no disruption");
        }
        for budget in &mut disruption.budgets {
            budget.window = budget.window.take().map(|window| window.in_zone(zone.clone()));
        }
    }
    let pause = meta.annotations.get(PAUSE_DISRUPTION).map(String::as_str);
    if let Some(written) = pause.filter(|written| !matches!(*written, "true" | "false")) {
        let metadata = at.place.key("metadata");
        metadata.key("annotations").warn(
            format!("annotation `{PAUSE_DISRUPTION}` is `{written}`; write `true` or `false`"),
            "any value but `false` pauses voluntary disruption",
        );
    }
    Some(NodePool {
        name: NodePoolName::parse(meta.name.clone()).ok()?,
        meta,
        template: template??,
        disruption,
        limits: spec.limits,
        weight: spec.weight.unwrap_or(0),
        replicas: spec.replicas,
        unknown: Vec::new(),
        warnings: Vec::new(),
    })
}

fn check_static(spec: &PoolSpec, place: &Place<'_>) {
    if spec.weight.is_some() {
        place.key("weight").error("a static NodePool has no weight", "leave `weight` out, or `replicas`");
    }
    let limits = place.key("limits");
    for (name, _) in spec.limits.iter().filter(|(name, _)| **name != ResourceName::NODES) {
        let message = "a static NodePool has no limit but `nodes`";
        limits.key(name.as_str()).error(message, "leave this limit out, or `replicas`");
    }
}

impl NodeClaimTemplateFields {
    fn into_domain(self, place: &Place<'_>) -> Option<NodeClaimTemplate> {
        let TemplateMeta { labels, annotations } = self.metadata;
        let metadata = place.key("metadata");
        for key in labels.keys() {
            check_key(&metadata.key("labels").key(key), key, RequirementsOwner::NodePool);
        }
        let Some(spec) = self.spec else {
            place.missing("spec", "a map");
            return None;
        };
        let place = place.key("spec");
        if labels.len() + spec.requirements.as_ref().map_or(0, Vec::len) > MAX_LABELS {
            place.key("requirements").error(
                format!("more than {MAX_LABELS} requirements and labels together"),
                "each label is a requirement of the NodeClaim; leave some out",
            );
        }
        let template = spec.into_domain(&place, RequirementsOwner::NodePool)?;
        Some(NodeClaimTemplate { labels, annotations, ..template })
    }
}

impl NodeClaimSpec {
    /// The template, without labels and annotations.
    pub(super) fn into_domain(
        self,
        place: &Place<'_>,
        owner: RequirementsOwner,
    ) -> Option<NodeClaimTemplate> {
        if self.node_class_ref.is_none() {
            place.missing("nodeClassRef", "the EC2NodeClass's group, kind and name");
        }
        let requirements = requirements(self.requirements, place, owner);
        check_repeated(place, &self.taints, &self.startup_taints);
        Some(NodeClaimTemplate {
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            node_class: self.node_class_ref?,
            requirements,
            taints: self.taints,
            startup_taints: self.startup_taints,
            expire_after: self.expire_after.map_or(Some(EXPIRE_AFTER), |Lapse(after)| after),
            termination_grace_period: self.termination_grace_period.map(|PlainDuration(period)| period),
        })
    }
}

fn check_repeated(place: &Place<'_>, taints: &[Taint], startup: &[Taint]) {
    let mut seen = BTreeSet::new();
    for (key, list) in [("taints", taints), ("startupTaints", startup)] {
        for taint in list.iter().filter(|taint| !seen.insert((&taint.key, taint.effect))) {
            place.key(key).error(
                format!("taint `{}:{}` is given twice", taint.key, taint.effect.as_str()),
                "keep one: `taints` and `startupTaints` together allow each key and effect once",
            );
        }
    }
}

impl DisruptionFields {
    fn into_domain(self, place: &Place<'_>) -> DisruptionPolicy {
        let list = place.key("budgets");
        let budgets = self.budgets.map_or_else(
            || vec![BUDGET],
            // Unlike an absent list, an empty one limits nothing.
            |budgets| {
                let read = |(index, budget): (usize, WrittenBudget)| budget.into_domain(&list.index(index));
                budgets.into_iter().enumerate().filter_map(read).collect()
            },
        );
        if budgets.len() > MAX_BUDGETS {
            list.error(format!("more than {MAX_BUDGETS} budgets"), "leave some out");
        }
        DisruptionPolicy {
            consolidate_after: self
                .consolidate_after
                .map_or(Some(SignedDuration::ZERO), |Lapse(after)| after),
            consolidation_policy: self
                .consolidation_policy
                .unwrap_or(ConsolidationPolicy::WhenEmptyOrUnderutilized),
            budgets,
        }
    }
}

impl WrittenBudget {
    fn into_domain(self, place: &Place<'_>) -> Option<Budget> {
        // `nodes` and the window are checked separately, so that errors of both are reported.
        let nodes = BudgetNodes::parse(self.nodes.as_deref().unwrap_or("10%"));
        let window = Budget::parse("0", self.schedule.as_deref(), self.duration.as_deref());
        for error in nodes.as_ref().err().into_iter().chain(window.as_ref().err()) {
            report_budget(place, error);
        }
        let (nodes, window) = (nodes.ok()?, window.ok()?);
        if let Some((window, problem)) =
            window.window.as_ref().and_then(|window| Some((window, window.problem()?)))
        {
            place.key("schedule").warn(
                format!("`{}` can't be understood: {problem}", window.schedule()),
                "correct it: until then this budget allows no disruption",
            );
        }
        Some(Budget { nodes, reasons: self.reasons, ..window })
    }
}

fn report_budget(place: &Place<'_>, error: &BudgetError) {
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
            let message = format!("`schedule` and `duration` must be set together: {missing} is missing");
            return place.error(message, "add it");
        }
    };
    place.key(key).error(message, remedy);
}
