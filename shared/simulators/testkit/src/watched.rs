//! A cluster whose invariants are checked at each step, and what they remember of it.

use tenon_domain::id::ClusterName;
use tenon_domain::registry::FeatureGate;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::ClusterForm;

use crate::accepted::invariant_images_accepted;
use crate::bounded::{BoundsSeen, invariant_cluster_bounds_hold};
use crate::budgets::{WrittenBudgets, invariant_budgets_hold, invariant_cluster_budget_holds};
use crate::class_deleted::{ClassSeen, invariant_classes_outlast_claims};
use crate::consolidated::{
    Consolidations, HeldNodes, invariant_consolidation_saves, invariant_disrupting_is_held,
    invariant_unreplaced_given_back,
};
use crate::deletions::invariant_deleted_are_tainted;
use crate::deregistered::{Deregistrations, invariant_deregistration_waited};
use crate::detached::invariant_volumes_detached;
use crate::drifted::{DriftSeen, invariant_drained_have_drifted};
use crate::empty::EmptyLong;
use crate::ended::{UnheldCommands, invariant_commands_end};
use crate::evidence::invariant_evidence_held;
use crate::expiry::{ExpiryWaits, invariant_expired_nodes_go};
use crate::history::{ClusterMoment, History};
use crate::invariants::{self, Invariant};
use crate::learned::{invariant_learned_is_reported, invariant_planned_memory_is_there};
use crate::opened::{ClosedSince, invariant_opened_in_time};
use crate::own_role::invariant_asked_by_own_role;
use crate::pace::HistoryPace;
use crate::passed_over::invariant_failed_passed_over;
use crate::pauses::{HeldInPauses, invariant_pauses_give_back, invariant_pauses_hold};
use crate::repaired::{FewSince, invariant_impaired_nodes_go, invariant_sick_nodes_go};
use crate::replaced_first::invariant_replacement_first;
use crate::rested::{PodsSeen, invariant_consolidate_after_holds};
use crate::shifts::invariant_shifted_zones_are_left_alone;
use crate::simulate::waiting_pods;
use crate::stepped::{PhasesSeen, invariant_claims_step};
use crate::turns::invariant_templates_there;
use crate::validation::invariant_conditions_agree;

/// A cluster whose invariants are checked.
pub(crate) struct Watched {
    pub(crate) cluster: ClusterName,
    pub(crate) budgets: Vec<WrittenBudgets>,
    cluster_budget: WrittenBudgets,
    pub(crate) history: History,
    pub(crate) empty: EmptyLong,
    pub(crate) sick: FewSince,
    pub(crate) impaired: FewSince,
    pub(crate) consolidations: Consolidations,
    held: HeldNodes,
    held_in_pauses: HeldInPauses,
    unheld: UnheldCommands,
    drift: DriftSeen,
    class: ClassSeen,
    deregistrations: Deregistrations,
    bounds: BoundsSeen,
    closed: ClosedSince,
    pods: PodsSeen,
    phases: PhasesSeen,
    /// The gate `NodeRepair`.
    repairs: FeatureGate,
}

impl Watched {
    /// A cluster of a world; `None` for a wrong name.
    pub(crate) fn of(form: &ClusterForm) -> Option<Self> {
        Some(Self {
            cluster: ClusterName::parse(form.name.as_str()).ok()?,
            budgets: form.objects.iter().filter_map(WrittenBudgets::of).collect(),
            cluster_budget: WrittenBudgets::of_cluster(form),
            history: History::default(),
            empty: EmptyLong::default(),
            sick: FewSince::default(),
            impaired: FewSince::default(),
            consolidations: Consolidations::default(),
            held: HeldNodes::default(),
            held_in_pauses: HeldInPauses::default(),
            unheld: UnheldCommands::default(),
            drift: DriftSeen::default(),
            class: ClassSeen::default(),
            deregistrations: Deregistrations::of(&form.objects),
            bounds: BoundsSeen::default(),
            closed: ClosedSince::default(),
            pods: PodsSeen::default(),
            phases: PhasesSeen::default(),
            repairs: if form.node_repair { FeatureGate::Enabled } else { FeatureGate::Disabled },
        })
    }

    /// Checks the invariants of one cluster.
    pub(crate) fn judge(
        &mut self,
        region: &SimulatedRegion,
        moment: &ClusterMoment,
        step: u32,
        pace: HistoryPace,
    ) -> Result<(), (Invariant, String)> {
        let history = &mut self.history;
        invariants::invariant_one_instance_per_claim(moment)?;
        invariants::invariant_states_go_forward(moment, history)?;
        invariants::invariant_nothing_unowned(moment, history)?;
        invariant_claims_step(region, &self.cluster, (moment, pace), &mut self.phases)?;
        let (launches, requests) = (region.twin().launches(), region.twin().requests());
        invariant_asked_by_own_role(requests.get(history.requests_judged..).unwrap_or_default())?;
        invariants::invariant_images_available(&launches, &requests, history)?;
        let waits = ExpiryWaits::of(region, &self.cluster);
        invariant_budgets_hold((moment, &waits), &self.budgets, history)?;
        invariant_cluster_budget_holds((moment, &waits), &self.cluster_budget, history)?;
        history.pauses.look(region, &self.cluster);
        invariant_pauses_hold((moment, &waits), &history.pauses)?;
        let held = (&history.pauses, &mut self.held_in_pauses);
        invariant_pauses_give_back(region, &self.cluster, (moment, pace), held)?;
        invariant_expired_nodes_go(moment, &waits)?;
        invariant_consolidate_after_holds(region, &self.cluster, moment, &mut self.pods)?;
        let waiting = waiting_pods(region, &self.cluster);
        if let Some(site) = region.site(&self.cluster) {
            let evictions = site.cluster().evictions();
            let new = evictions.get(history.evictions_judged..).unwrap_or_default();
            invariant_replacement_first(moment, new, &history.joined_at)?;
            invariants::invariant_pod_budgets_hold(moment, &evictions, history)?;
            history.crowded_out.observe(moment, &waiting, site.cluster());
        }
        invariant_evidence_held(region, &self.cluster, &mut history.evidence)?;
        invariant_planned_memory_is_there(moment, &mut history.memory_judged)?;
        history.shifts.look(region, &self.cluster);
        invariant_shifted_zones_are_left_alone(moment, &mut history.shifts)?;
        invariant_deleted_are_tainted(region, &self.cluster)?;
        invariant_opened_in_time(region, &self.cluster, &mut self.closed)?;
        invariant_volumes_detached(region, &self.cluster, moment)?;
        invariant_deregistration_waited(region, moment, &mut self.deregistrations)?;
        invariant_cluster_bounds_hold(region, &self.cluster, moment, &mut self.bounds)?;
        if self.repairs == FeatureGate::Enabled {
            invariant_sick_nodes_go(region, &self.cluster, (moment, pace), &mut self.sick)?;
        }
        invariant_classes_outlast_claims(region, &self.cluster, moment, &mut self.class)?;
        invariant_impaired_nodes_go(region, &self.cluster, (moment, pace), &mut self.impaired)?;
        invariant_conditions_agree(region, &self.cluster)?;
        history.unready.look(region, &self.cluster);
        invariant_images_accepted(region, &self.cluster, &mut history.images, pace.class_lag())?;
        let (form, lag) = (&mut history.class_form, pace.class_lag());
        invariant_failed_passed_over(region, moment, &self.cluster, form, lag)?;
        invariant_templates_there(moment)?;
        invariant_consolidation_saves(region, &self.cluster, moment, &mut self.consolidations)?;
        invariant_disrupting_is_held(region, &self.cluster, &moment.claims)?;
        invariant_unreplaced_given_back(region, &self.cluster, (moment, pace), &mut self.held)?;
        invariant_commands_end(region, &self.cluster, (moment, pace), &mut self.unheld)?;
        invariant_drained_have_drifted(region, &self.cluster, (moment, pace), &mut self.drift)?;
        invariants::invariant_pods_counted_once(moment, &waiting, &history.crowded_out)?;
        if step.is_multiple_of(20) {
            invariant_learned_is_reported(region)?;
            history.journal.read(region);
            invariants::invariant_journal_explains(moment, history)?;
        }
        Ok(())
    }
}
