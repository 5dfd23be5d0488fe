//! The decisions, refusals and waits of disruption.

use std::collections::BTreeSet;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::budget::{Budget, DisruptionReason};
use tenon_domain::claim::{Consolidatable, Drift, DriftReason, RemovalReason};
use tenon_domain::class_hash::{ClassHash, PoolHash};
use tenon_domain::evidence::Waiting;
use tenon_domain::id::{ClaimName, CommandId, NamespacedName, NodePoolName, SecurityGroupId};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::labels::EXPIRE_WITHIN_BUDGETS;
use tenon_domain::money::{Currency, UsdPerHour};
use tenon_domain::pool_annotations::PoolAnnotationError;
use tenon_domain::report::{self, Finding, counted};
use tenon_domain::savings::MinimumSavings;

use super::refusal_words::{
    SPOT_TO_SPOT_DISABLED, blocked_by, budget_closed, kept_by, moved_lately, paused, rounded_percent,
    saves_too_little, too_young, unbalanced,
};
use super::{Allowance, DisruptionPause};
use crate::provision;

/// A plan. A settled world gives an empty one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DisruptionPlan {
    /// Drift that is seen for the first time, has changed or is no more, by claim.
    pub marks: Vec<DriftMark>,
    /// What old claims take over, so that nothing that isn't known drifts, by claim.
    pub adopted: Vec<Adoption>,
    /// Nodes that could go, by claim: for the first time, with other pods, or no longer.
    pub consolidatable: Vec<ConsolidatableMark>,
    /// Steps of commands that are active, by command.
    pub advances: Vec<Advance>,
    /// New commands, in the order of choice.
    pub commands: Vec<NewCommand>,
    /// The time of the next look, even without a change.
    pub wake_at: Option<Timestamp>,
    /// When the next node expires: the first sweep after it is soon enough.
    pub next_expiry: Option<Timestamp>,
}

impl DisruptionPlan {
    /// Whether nothing is to be done now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
            && self.adopted.is_empty()
            && self.consolidatable.is_empty()
            && self.advances.is_empty()
            && self.commands.is_empty()
    }
}

/// A claim's new drift.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriftMark {
    /// The claim.
    pub claim: ClaimName,
    /// Its drift; `None` clears it.
    pub drift: Option<Drift>,
}

/// What a claim of an older release didn't note at its launch, and takes from the present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// The claim.
    pub claim: ClaimName,
    /// The hash of its pool's template.
    pub pool_hash: Option<PoolHash>,
    /// The hash of its class.
    pub class_hash: Option<ClassHash>,
    /// The security groups of its class.
    pub security_groups: Option<BTreeSet<SecurityGroupId>>,
}

/// A claim whose Node could go, or can't any longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsolidatableMark {
    /// The claim.
    pub claim: ClaimName,
    /// Since when, and of which pods; `None` clears it.
    pub mark: Option<Consolidatable>,
    /// Why it stays for now, where its pool's `consolidateAfter` alone doesn't say it.
    pub stays: Option<RefusalReason>,
}

/// A step of an active command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The command.
    pub command: CommandId,
    /// The step.
    pub step: CommandStep,
}

/// The next step of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandStep {
    /// Its replacements are initialised: these candidates go from `Disrupting` to `Draining`.
    Drain {
        /// The candidates.
        candidates: Vec<ClaimName>,
    },
    /// Replacements failed: these come in their place.
    Replace {
        /// The failed replacements: they leave the command.
        failed: Vec<ClaimName>,
        /// Their successors; none if the pods fit elsewhere.
        plan: provision::ProvisionPlan,
        /// The command's attempts from now on.
        attempts: u32,
        /// The next replacement isn't planned before.
        not_before: Timestamp,
        /// Pods that wait for the answer to the replacement that asks EC2 again.
        unplanned: u32,
    },
    /// No replacement comes, its pods have no place any longer, or nothing is left to do: these candidates go back from
    /// `Disrupting` to `Initialized`.
    Undo {
        /// The candidates.
        candidates: Vec<ClaimName>,
        /// Why.
        cause: UndoCause,
    },
    /// Its candidates have left, or none belongs to it any longer.
    Finish,
}

/// Why a command is undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UndoCause {
    /// A replacement of a consolidation failed.
    ReplacementFailed,
    /// The pods of a consolidation's candidates have no place any longer.
    NoRoom,
    /// An annotation, or a PodDisruptionBudget that never allows an eviction, keeps a node of a consolidation since.
    Held {
        /// Which.
        by: Box<RefusalReason>,
    },
    /// Replacements failed, and others could not be had in time.
    NotReplaced {
        /// When the candidates are tried again.
        again: Timestamp,
    },
    /// The candidates aren't drifted any longer.
    NoLongerDrifted,
    /// Voluntary disruption of a candidate's pool is paused. The candidates are tried again once it isn't.
    Paused {
        /// The pool.
        pool: NodePoolName,
        /// What pauses it.
        by: DisruptionPause,
    },
}

/// A command to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommand {
    /// Its id.
    pub id: CommandId,
    /// The pool of its candidates.
    pub pool: NodePoolName,
    /// The reason of the disruption.
    pub reason: RemovalReason,
    /// The disrupted claims.
    pub candidates: Vec<ClaimName>,
    /// Claims to launch as replacements, and pods that fit elsewhere. Without claims, the candidates drain at once.
    pub replacement: provision::ProvisionPlan,
    /// Pods that wait for the answer to the replacement that asks EC2 again: theirs are planned after it.
    pub unplanned: u32,
    /// What a consolidation saves at today's prices.
    pub saves: Option<UsdPerHour>,
    /// The budgets that allowed it.
    pub budget: Allowance,
}

impl NewCommand {
    /// Whether the candidates drain at once, without replacements.
    #[must_use]
    pub fn drains_at_once(&self) -> bool {
        self.replacement.claims.is_empty()
    }
}

/// The refusals, waits and warnings of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct DisruptionReport {
    /// Claims that weren't disrupted, with reasons.
    pub refusals: Vec<DisruptionRefusal>,
    /// The awaited evidence.
    pub waiting: Vec<Waiting>,
    /// Annotations that say nothing, by pod.
    pub invalid: Vec<InvalidAnnotation>,
    /// Pools whose terms of consolidation can't be read.
    pub unread: Vec<(NodePoolName, PoolAnnotationError)>,
    /// Pools with annotations that are ignored, because they can't be read.
    pub ignored: Vec<(NodePoolName, PoolAnnotationError)>,
}

/// A pod whose `karpenter.sh/do-not-disrupt` is neither `true` nor a duration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InvalidAnnotation {
    /// The pod.
    pub pod: NamespacedName,
    /// Its controller, such as `ReplicaSet/web`, if it has one.
    pub owner: Option<String>,
    /// Its value.
    pub value: String,
}

impl DisruptionReport {
    /// Adds the findings to a report.
    pub fn tell(self, to: &mut report::Report) {
        let Self { refusals, waiting, invalid, unread, ignored } = self;
        for waiting in &waiting {
            to.wait(waiting);
        }
        for DisruptionRefusal { claim, reason, waits_for } in &refusals {
            let subject = Subject { kind: SubjectKind::Claim, name: claim.to_string() };
            let sentence = "not disrupting {} now";
            // Equal for all nodes of a pool, so that they are told of in one sentence.
            let ends = waits_for.map(|wait| {
                format!("; {wait:#} after its expiry it drains all the same, as `{EXPIRE_WITHIN_BUDGETS}` of its NodePool says")
            });
            let why = format!("{reason}{}", ends.unwrap_or_default());
            let finding = Finding::refused(subject, reason.into_str(), sentence, why);
            to.tell(finding.condition(reason.cause()).next_try(reason.next_try()).shown(reason.shown()));
        }
        let closed: BTreeSet<Finding> =
            refusals.iter().filter_map(|refusal| closed_pool(&refusal.reason)).collect();
        closed.into_iter().for_each(|finding| to.tell(finding));
        for (pool, error) in unread {
            let subject = Subject { kind: SubjectKind::Pool, name: pool.to_string() };
            let sentence = "consolidating no nodes of {}";
            to.tell(Finding::refused(subject, "InvalidAnnotation", sentence, error.to_string()));
        }
        for (pool, error) in ignored {
            let subject = Subject { kind: SubjectKind::Pool, name: pool.to_string() };
            let sentence = "ignoring an annotation of {}";
            let finding = Finding::refused(subject, "InvalidAnnotation", sentence, error.to_string());
            to.tell(finding.condition(error.key));
        }
        for InvalidAnnotation { pod, owner, value } in invalid {
            // Pods of a controller have one template: another pod with its mistake is no news.
            let group = owner.map(|owner| format!("{owner} of {}", pod.namespace)).unwrap_or_default();
            let subject = Subject { kind: SubjectKind::Pod, name: pod.to_string() };
            let why =
                format!("its value `{value}` is neither `true` nor a duration such as `30m`; correct it");
            let sentence = "ignoring annotation `karpenter.sh/do-not-disrupt` of {}";
            let finding = Finding::refused(subject, "InvalidAnnotation", sentence, why);
            to.tell(finding.condition(value).group(group));
        }
    }
}

/// A NodePool whose budgets allow no disruption at all for a reason that a claim of it has. One whose budgets are only used
/// up tells it of its claims.
fn closed_pool(reason: &RefusalReason) -> Option<Finding> {
    let RefusalReason::BudgetExhausted { pool, allowed: 0, of: Some(of), .. } = reason else {
        return None;
    };
    let subject = Subject { kind: SubjectKind::Pool, name: pool.to_string() };
    let why = format!("its budgets allow none now for the reason `{}`", of.as_str());
    let finding = Finding::refused(subject, reason.into_str(), "disrupting no nodes of {}", why);
    Some(finding.condition(of.as_str()))
}

/// A claim that drifted and isn't disrupted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionRefusal {
    /// The claim.
    pub claim: ClaimName,
    /// Why.
    pub reason: RefusalReason,
    /// How long after its expiry its node drains whatever keeps it.
    pub waits_for: Option<SignedDuration>,
}

/// Why a candidate stays, and when that may change by itself.
#[derive(Debug, Clone)]
pub(crate) struct NotDisrupted {
    pub(crate) reason: RefusalReason,
    pub(crate) again: Option<Timestamp>,
}

/// Why a claim isn't disrupted now. Its name is stable.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum RefusalReason {
    /// It replaced a node for the drift that it has itself.
    DriftsAgain {
        /// Which.
        drift: DriftReason,
        /// Until when it stays.
        until: Timestamp,
    },
    /// Its last command got no replacement.
    NotReplacedLately {
        /// When it is tried again.
        until: Timestamp,
    },
    /// The nodes that the cluster allows for all pools together are being disrupted.
    ClusterBudgetExhausted {
        /// How many it allows.
        allowed: u32,
        /// How many are being disrupted or aren't ready.
        going: u32,
    },
    /// The pool's budgets allow no more.
    BudgetExhausted {
        /// The pool.
        pool: NodePoolName,
        /// The number that the budgets allow.
        allowed: u32,
        /// The number of nodes that are leaving or not ready.
        going: u32,
        /// The reason for which they do; none for what budgets can't name.
        of: Option<DisruptionReason>,
        /// The budget that allows none, where one does.
        closed: Option<Box<Budget>>,
    },
    /// An annotation of the node, or of a pod on it, blocks disruption.
    DoNotDisrupt {
        /// The pod; none for the node itself.
        pod: Option<NamespacedName>,
        /// The annotation's end, if it has one.
        until: Option<Timestamp>,
    },
    /// PodDisruptionBudgets forbid the eviction of a pod.
    BlockedByPdb {
        /// The pod.
        pod: NamespacedName,
        /// The budgets.
        pdbs: Vec<String>,
    },
    /// Its pods would have no place.
    Unschedulable {
        /// Which, and why.
        pods: Vec<provision::Unschedulable>,
    },
    /// Its pods would need more new nodes than one command launches.
    TooManyReplacements {
        /// How many.
        count: usize,
    },
    /// Its pool doesn't exist.
    PoolNotFound {
        /// The pool.
        pool: NodePoolName,
    },
    /// Voluntary disruption is paused.
    Paused {
        /// Its pool.
        pool: NodePoolName,
        /// What pauses it.
        by: DisruptionPause,
    },
    /// Cheaper nodes for its pods wouldn't save enough.
    SavesTooLittle {
        /// Its pool.
        pool: NodePoolName,
        /// The saving.
        saves: UsdPerHour,
        /// The saving in hundredths of a percent.
        hundredths: u64,
        /// What the pool asks for.
        least: MinimumSavings,
        /// The currency of the amounts.
        currency: Currency,
    },
    /// Too many of its pods were moved lately.
    MovedLately {
        /// Its pool.
        pool: NodePoolName,
        /// How many.
        moved: usize,
        /// How long the pool lets them rest.
        rest: SignedDuration,
    },
    /// Its pool lets no node of that age be consolidated.
    TooYoung {
        /// Its pool.
        pool: NodePoolName,
        /// The least age.
        lifetime: SignedDuration,
        /// When it has that age.
        until: Timestamp,
    },
    /// Its last consolidation was undone.
    Undone {
        /// It isn't tried again before, unless its pods change.
        until: Timestamp,
    },
    /// Only another spot node would be cheaper, and the gate is closed.
    SpotToSpotDisabled,
    /// Too few types of spot nodes would be cheaper.
    TooFewSpotTypes {
        /// How many would be.
        found: usize,
    },
    /// The cheaper types haven't the values that the pool's `minValues` ask for.
    MinValuesUnmet {
        /// The pool of the replacement.
        pool: NodePoolName,
    },
    /// The saving isn't worth the disruption, by the policy `Balanced`.
    Unbalanced {
        /// The pool with the policy.
        pool: NodePoolName,
        /// The saving's share of the pool's price, in hundredths of a percent.
        saved: u64,
        /// The share that its disruption asks for, in hundredths of a percent.
        asked: u64,
    },
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BudgetExhausted { pool, allowed: 0, closed, .. } => {
                budget_closed(f, pool, closed.as_deref())
            }
            Self::BudgetExhausted { pool, allowed, going, .. } => {
                let (nodes, are) =
                    (counted(*allowed, "node", "nodes"), if *going == 1 { "is" } else { "are" });
                write!(
                    f,
                    "NodePool `{pool}` allows {nodes} at a time, and {going} {are} already being replaced or not ready"
                )
            }
            Self::DriftsAgain { drift, until } => write!(
                f,
                "it replaced a node for the same drift ({drift}), and its own replacement would drift again: correct its NodePool or EC2NodeClass, which asks for what nodes don't get; next try at `{until:.0}`"
            ),
            Self::NotReplacedLately { until } => write!(
                f,
                "its replacement failed and no other could be had: the records of its replacements say why; next try at `{until:.0}`"
            ),
            Self::ClusterBudgetExhausted { allowed, going } => {
                let (nodes, are) =
                    (counted(*allowed, "node", "nodes"), if *going == 1 { "is" } else { "are" });
                write!(
                    f,
                    "the cluster allows {nodes} of all NodePools at a time, by the parameter `DisruptionBudget` of its stack, and {going} {are} already being replaced or not ready"
                )
            }
            Self::DoNotDisrupt { pod, until } => kept_by(f, pod.as_ref(), *until),
            Self::BlockedByPdb { pod, pdbs } => blocked_by(f, pod, pdbs),
            Self::Unschedulable { pods } => {
                write!(f, "no other node, existing or new, can take {} of its pods", pods.len())?;
                pods.first().map_or(Ok(()), |pod| write!(f, ": {}", pod.message()))
            }
            Self::TooManyReplacements { count } => write!(
                f,
                "its pods need {count} new nodes, more than one command launches: allow larger instance types in its NodePool, \
                 or delete the Node to drain it first"
            ),
            Self::PoolNotFound { pool } => {
                write!(f, "NodePool `{pool}` doesn't exist: create it again, or delete the NodeClaim")
            }
            Self::Paused { pool, by } => paused(f, pool, *by),
            Self::MovedLately { pool, moved, rest } => moved_lately(f, pool, *moved, *rest),
            Self::SavesTooLittle { pool, saves, hundredths, least, currency } => {
                let saving = match least {
                    MinimumSavings::Share(_) => rounded_percent(*hundredths),
                    MinimumSavings::Amount(_) => MinimumSavings::Amount(*saves).words(*currency),
                };
                saves_too_little(f, pool, &saving, &least.words(*currency))
            }
            Self::TooYoung { pool, lifetime, until } => too_young(f, pool, *lifetime, *until),
            Self::Undone { until } => write!(
                f,
                "its last consolidation was undone, and would fail the same way: next try at `{until:.0}`, or once its pods change"
            ),
            Self::SpotToSpotDisabled => f.write_str(SPOT_TO_SPOT_DISABLED),
            Self::TooFewSpotTypes { found } => write!(
                f,
                "{} of spot nodes would be cheaper, and 15 are needed so that the next one isn't interrupted soon: allow more types",
                counted(u32::try_from(*found).unwrap_or(u32::MAX), "type", "types")
            ),
            Self::MinValuesUnmet { pool } => write!(
                f,
                "the types that would be cheaper have fewer values than `minValues` of NodePool `{pool}` ask for: allow more types, or lower `minValues`"
            ),
            Self::Unbalanced { pool, saved, asked } => unbalanced(f, pool, *saved, *asked),
        }
    }
}

/// Between attempts at a replacement; doubled each time.
pub(crate) const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_secs(10);
/// Never longer than this.
pub(crate) const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_mins(5);
