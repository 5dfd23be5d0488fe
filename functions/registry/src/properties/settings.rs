//! The settings and feature gates of a cluster.
//!
//! Decides their valid values. A setting that isn't given has the default of the registry's form.

use tenon_domain::budget::BudgetNodes;
use tenon_domain::default_spread::DefaultConstraint;
use tenon_domain::registry::{
    ClusterSettings, GateName, Gates, MinValuesPolicy, PlanPolicies, PreferencePolicy,
};

use super::reader::PropertyReader;

impl PropertyReader<'_> {
    pub(super) fn gates(&mut self) -> Gates {
        GateName::ALL.into_iter().fold(Gates::default(), |gates, gate| {
            gates.with(gate, self.gate(gate.as_str()).unwrap_or_default())
        })
    }

    pub(super) fn settings(&mut self) -> ClusterSettings {
        let default = ClusterSettings::default();
        let [learned_memory, zonal_shift, dry_runs, console_output, voluntary_disruption] =
            ["LearnedMemory", "ZonalShift", "DryRuns", "ConsoleOutput", "VoluntaryDisruption"]
                .map(|name| self.gate(name));
        let spot_request_tags = self.gate("SpotRequestTags");
        let budget = "a count such as `5`, or a percentage such as `10%`";
        let disruption_budget =
            self.parsed_if("DisruptionBudget", budget, |text| BudgetNodes::parse(text).ok());
        let preferences =
            self.parsed_if("PreferencePolicy", "`Respect` or `Ignore`", PreferencePolicy::parse);
        let min_values =
            self.parsed_if("MinValuesPolicy", "`Strict` or `BestEffort`", MinValuesPolicy::parse);
        let default_spread =
            self.list("DefaultTopologySpread", DefaultConstraint::FORM, DefaultConstraint::parse);
        ClusterSettings {
            default_spread: default_spread.into_iter().collect(),
            policies: PlanPolicies {
                preferences: preferences.unwrap_or(default.policies.preferences),
                min_values: min_values.unwrap_or(default.policies.min_values),
            },
            dry_runs: dry_runs.unwrap_or(default.dry_runs),
            console_output: console_output.unwrap_or(default.console_output),
            voluntary_disruption: voluntary_disruption.unwrap_or(default.voluntary_disruption),
            spot_request_tags: spot_request_tags.unwrap_or(default.spot_request_tags),
            disruption_budget,
            learned_memory: learned_memory.unwrap_or(default.learned_memory),
            zonal_shift: zonal_shift.unwrap_or(default.zonal_shift),
            ..default
        }
    }
}
