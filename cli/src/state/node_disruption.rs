//! The one thing about a Node's disruption that an operator asks first: what takes it away, what would, or what keeps it.
//!
//! Decides its few words for a table. The sentences are the functions' own: a cause is the part of a sentence between what
//! it is about and the remedy.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::api::NodePool;
use tenon_domain::claim::{Claim, ClaimPhase, ClaimState, CommandRole, DriftReason, RemovalReason};
use tenon_domain::command::Command;
use tenon_domain::id::{ClaimName, ClusterName, CommandId};
use tenon_domain::journal::SubjectKind;
use tenon_domain::pool_annotations::rebalance_order_or_default;
use tenon_domain::wake::FunctionName;
use tenon_table::items::{ToldFinding, ToldFindings, from_item, keys};
use tenon_table::{Consistency, SkRange, Table};

use super::list::{ListError, query};

/// A Node that nothing takes away.
const NOTHING: &str = "none";
/// The reasons of `lifecycle` that are about a drain.
const OF_DRAINS: [&str; 2] = ["DrainBlocked", "LoadBalancerDeregistration"];
/// The reason of a pause, which needs no more words in a table.
const PAUSED: &str = "Paused";

/// What is known of the disruption of a cluster's claims.
#[derive(Default)]
pub(super) struct DisruptionFacts {
    /// Present refusals and waits, by claim.
    told: BTreeMap<String, ToldFinding>,
    /// Commands that are active.
    commands: BTreeMap<CommandId, Command>,
    pools: Vec<NodePool>,
    now: Timestamp,
}

impl DisruptionFacts {
    /// Reads them, for these NodePools at this time.
    pub(super) async fn read<T: Table>(
        table: &T,
        cluster: &ClusterName,
        (pools, now): (&[NodePool], Timestamp),
    ) -> Result<Self, ListError> {
        let mut told = BTreeMap::new();
        for function in [FunctionName::Disruption, FunctionName::Lifecycle] {
            let key = keys::told(cluster, function);
            let item = table.get(&key, Consistency::Eventual).await?;
            let item = item.and_then(|item| from_item::<ToldFindings>(&key, &item).ok());
            let is_ours = |finding: &ToldFinding| {
                finding.kind == SubjectKind::Claim
                    && (function == FunctionName::Disruption || OF_DRAINS.contains(&finding.reason.as_str()))
            };
            for finding in item.into_iter().flat_map(|told| told.findings).filter(is_ours) {
                told.extend(finding.names.iter().map(|name| (name.clone(), finding.clone())));
            }
        }
        let prefix = SkRange::Prefix(keys::COMMAND.to_owned());
        let items = query(table, keys::cluster_pk(cluster), prefix).await?;
        let commands = items.iter().filter_map(|(key, item)| from_item::<Command>(key, item).ok());
        let active = commands.filter(Command::is_active).map(|command| (command.id.clone(), command));
        Ok(Self { told, commands: active.collect(), pools: pools.to_vec(), now })
    }

    /// The whole sentence about what keeps the claim's Node, or holds its drain up.
    pub(super) fn message(&self, claim: &Claim) -> Option<&str> {
        self.told.get(claim.name.as_str()).map(|finding| finding.message.as_str())
    }

    /// What takes the claim's Node away, what would, or what keeps it.
    pub(super) fn words(&self, claim: &Claim) -> String {
        let why = claim.state.removal().map(|reason| format!(" ({})", reason.words())).unwrap_or_default();
        let held = self.told.get(claim.name.as_str()).map(cause);
        let held = held.as_deref();
        match &claim.state {
            ClaimState::Disrupting { command, .. } => {
                let command = self.commands.get(command);
                let why = command.map_or(why, |command| format!(" ({})", command.reason.words()));
                let waits = command.map(|command| format!("waits for {}", names(&command.replacements)));
                let told = held.map(str::to_owned).or(waits).map(|told| format!(": {told}"));
                format!("being replaced{why}{}", told.unwrap_or_default())
            }
            ClaimState::Draining { .. } => {
                format!("draining{why}{}", held.map(|held| format!(": {held}")).unwrap_or_default())
            }
            ClaimState::Drained { .. } => {
                format!("drained{why}{}", held.map(|held| format!(": {held}")).unwrap_or_default())
            }
            ClaimState::LaunchFailed { .. }
            | ClaimState::Terminating { .. }
            | ClaimState::Terminated { .. } => format!("{}{why}", claim.phase().as_str().to_lowercase()),
            ClaimState::Planned
            | ClaimState::Launched { .. }
            | ClaimState::Registered { .. }
            | ClaimState::Initialized { .. } => match (self.could(claim), held) {
                (Some(could), Some(held)) => format!("{could}, kept: {held}"),
                (Some(could), None) => could,
                (None, Some(held)) => format!("kept: {held}"),
                (None, None) => self.replaces(claim).unwrap_or_else(|| NOTHING.to_owned()),
            },
        }
    }

    /// Why the Node would go.
    fn could(&self, claim: &Claim) -> Option<String> {
        let pool = self.pools.iter().find(|pool| pool.name == claim.pool);
        let order = rebalance_order_or_default(pool);
        let announced = claim
            .announced
            .filter(|announced| announced.is_replaced(order) || announced.forced_at(order).is_some());
        if let Some(announced) = announced {
            let at = announced.starts_at.map(|at| format!(" at {at:.0}")).unwrap_or_default();
            return Some(format!("{}{at}", announced.removal().words()));
        }
        let ends = claim.terms_or(pool).and_then(|terms| terms.expires_at(claim.created_at));
        if claim.phase() == ClaimPhase::Initialized && ends.is_some_and(|ends| ends <= self.now) {
            return Some(RemovalReason::Expired.words().to_owned());
        }
        match (&claim.drift, &claim.consolidatable) {
            (Some(drift), _) => Some(format!("drifted: {}", drifted(drift.reason))),
            (None, Some(mark)) => {
                let reason =
                    mark.pods.as_ref().map_or(RemovalReason::Empty, |_| RemovalReason::Underutilized);
                Some(reason.words().to_owned())
            }
            (None, None) => None,
        }
    }

    /// The Nodes' claims that wait for this one.
    fn replaces(&self, claim: &Claim) -> Option<String> {
        let CommandRole::Replacement(command) = &claim.role else { return None };
        self.commands.get(command).map(|command| format!("replaces {}", names(&command.candidates)))
    }
}

fn names(claims: &[ClaimName]) -> String {
    claims.iter().map(ClaimName::as_str).collect::<Vec<_>>().join(",")
}

/// What a new Node would have instead.
const fn drifted(reason: DriftReason) -> &'static str {
    match reason {
        DriftReason::NodePoolDrifted => "its NodePool was edited",
        DriftReason::RequirementsDrifted => "its labels don't meet its NodePool",
        DriftReason::InstanceTypeNotFound => "its NodePool no longer has its type",
        DriftReason::NodeClassDrift => "its EC2NodeClass was edited",
        DriftReason::SecurityGroupDrift => "other security groups",
        DriftReason::AmiDrift => "another image",
        DriftReason::SubnetDrift => "other subnets",
        DriftReason::CapacityReservationDrift => "another reservation",
        DriftReason::PlacementGroupDrift => "another placement group",
    }
}

/// The cause in a finding's sentence.
fn cause(finding: &ToldFinding) -> String {
    if finding.reason == PAUSED {
        return "paused".to_owned();
    }
    let why = finding.message.split_once(": ").map_or(finding.message.as_str(), |(_, why)| why);
    let end = [": ", "; "].iter().filter_map(|end| why.find(end)).min().unwrap_or(why.len());
    why.get(..end).unwrap_or(why).replace('`', "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tenon_domain::claim::{Consolidatable, Drift, InstanceAnnouncement, LaunchedInstance, Terms};
    use tenon_domain::command::CommandState;
    use tenon_domain::id::{LaunchId, NodeClassName, NodePoolName};
    use tenon_domain::journal::Decision;
    use tenon_domain::report::Shown;
    use tenon_domain::{SignedDuration, claim::AnnouncementKind};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn instance() -> LaunchedInstance {
        LaunchedInstance {
            id: "i-1".parse().unwrap(),
            instance_type: "m5.large".parse().unwrap(),
            zone: "us-east-1a".parse().unwrap(),
            subnet: None,
            capacity_type: tenon_domain::catalog::CapacityType::OnDemand,
            reservation: None,
            placement: None,
            image: "ami-1".parse().unwrap(),
        }
    }

    fn claim(change: impl FnOnce(&mut Claim)) -> Claim {
        let of = (NodePoolName::parse("default").unwrap(), NodeClassName::parse("default").unwrap());
        let name = ClaimName::parse("default-3k9x2").unwrap();
        let mut claim = Claim::planned(name, of, LaunchId::parse("launch-1").unwrap(), at(0));
        claim.state =
            ClaimState::Initialized { instance: instance(), node: "node-1".parse().unwrap(), at: at(60) };
        change(&mut claim);
        claim
    }

    fn facts(told: Option<(&str, &str)>) -> DisruptionFacts {
        let name = "default-3k9x2".to_owned();
        let finding = |(reason, message): (&str, &str)| ToldFinding {
            identity: "a".to_owned(),
            kind: SubjectKind::Claim,
            names: BTreeSet::from([name.clone()]),
            decision: Decision::Refused,
            reason: reason.to_owned(),
            message: message.to_owned(),
            shown: Shown::Event,
            since: at(0),
            told_at: at(0),
            next_try: None,
        };
        let id = CommandId::parse("command-1").unwrap();
        let command = Command {
            id: id.clone(),
            revision: 1,
            pool: NodePoolName::parse("default").unwrap(),
            reason: RemovalReason::Drifted,
            drifted_to: None,
            candidates: vec![ClaimName::parse("default-old00").unwrap()],
            replacements: vec![ClaimName::parse("default-new00").unwrap()],
            state: CommandState::Draining { since: at(0) },
            created_at: at(0),
        };
        DisruptionFacts {
            told: told.map(|told| (name.clone(), finding(told))).into_iter().collect(),
            commands: BTreeMap::from([(id, command)]),
            pools: Vec::new(),
            now: at(1000),
        }
    }

    fn check(change: impl FnOnce(&mut Claim), told: Option<(&str, &str)>, expected: &str) {
        assert_eq!(facts(told).words(&claim(change)), expected);
    }

    const KEPT: (&str, &str) = (
        "DoNotDisrupt",
        "not disrupting NodeClaim `default-3k9x2` now: pod `a/web-1` has `karpenter.sh/do-not-disrupt`: remove the \
         annotation to allow it",
    );

    #[test]
    fn a_node_that_stays_says_what_it_is_and_what_keeps_it() {
        let (from, to) = ("a".to_owned(), "b".to_owned());
        let drift =
            |reason| Drift { reason, since: at(0), from: from.clone(), to: to.clone(), fields: Vec::new() };
        check(|_| {}, None, "none");
        check(
            |claim| claim.role = CommandRole::Replacement(CommandId::parse("command-1").unwrap()),
            None,
            "replaces default-old00",
        );
        check(
            |claim| claim.drift = Some(drift(DriftReason::AmiDrift)),
            Some(KEPT),
            "drifted: another image, kept: pod a/web-1 has karpenter.sh/do-not-disrupt",
        );
        check(
            |claim| claim.drift = Some(drift(DriftReason::AmiDrift)),
            Some(("Paused", "x")),
            "drifted: another image, kept: paused",
        );
        check(
            |claim| claim.consolidatable = Some(Consolidatable { since: at(0), pods: None }),
            None,
            "empty",
        );
        let terms = |seconds| Terms {
            expire_after: Some(SignedDuration::from_secs(seconds)),
            termination_grace_period: None,
            load_balancer_deregistration: None,
        };
        check(|claim| claim.terms = Some(terms(1000)), None, "expired");
        check(|claim| claim.terms = Some(terms(1001)), None, "none");
        let announced = |kind, starts_at| InstanceAnnouncement { kind, at: at(0), starts_at };
        check(
            |claim| claim.announced = Some(announced(AnnouncementKind::ScheduledChange, Some(at(60)))),
            None,
            "scheduled change at 1970-01-01T00:01:00Z",
        );
        // Its NodePool ignores it.
        check(
            |claim| claim.announced = Some(announced(AnnouncementKind::RebalanceRecommendation, None)),
            None,
            "none",
        );
    }

    #[test]
    fn a_node_that_goes_says_what_it_waits_for() {
        let disrupting = |claim: &mut Claim| {
            let command = CommandId::parse("command-1").unwrap();
            let (instance, node) = (instance(), "node-1".parse().unwrap());
            claim.state = ClaimState::Disrupting { instance, node, command, at: at(60) };
        };
        check(disrupting, None, "being replaced (drifted): waits for default-new00");
        check(disrupting, Some(("Paused", "x")), "being replaced (drifted): paused");
        let draining = |claim: &mut Claim| {
            let (instance, node) = (instance(), Some("node-1".parse().unwrap()));
            let reason = RemovalReason::Drifted;
            claim.state = ClaimState::Draining { instance, node, reason, at: at(60), deadline: None };
        };
        check(draining, None, "draining (drifted)");
        let blocked = "NodeClaim `default-3k9x2` isn't drained yet: PodDisruptionBudget `a/web` keeps pod `a/web-1` and 1 other: \
                       make its other pods Ready, add replicas, or allow a disruption";
        check(
            draining,
            Some(("DrainBlocked", blocked)),
            "draining (drifted): PodDisruptionBudget a/web keeps pod a/web-1 and 1 other",
        );
    }
}
