//! Status checks and scheduled events of instances, as EC2 tells them when it is asked.
//!
//! Decides for which clusters an answer is news. The region's sweep asks, for all of them: EC2 has no filter for a cluster's
//! tags here. A cluster asks by itself in every pass while one of its instances fails a check. `repair` decides
//! what becomes of such an instance. AWS Health tells scheduled events at once, so that they are read only for events that
//! were lost.
//!
//! Invariants: nothing else waits for an answer; a denied call is told as long as it is denied.
//!
//! Source: aws/karpenter-provider-aws `pkg/controllers/interruption/instancestatus_controller.go`. There a denied call
//! ends the reading until a restart, and nobody is told.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::Timestamp;
use tenon_domain::claim::{AnnouncementKind, Claim, ClaimPhase, InstanceAnnouncement, may_follow};
use tenon_domain::id::{ClusterName, InstanceId, Region};
use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::report::{Finding, Report};
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::{InstanceStatus, InstanceStatusFilter, ScheduledEvent, StatusCheck};
use tenon_ec2::{Ec2, Ec2Error, right_of};
use tenon_runtime::{HandlerError, Ports};
use tenon_state::pass::{AfterCommit, End, Of, Pass};
use tenon_table::items::{InstanceOwner, keys};
use tenon_table::{Consistency, Key};

use crate::audit_record::AuditRecord;
use crate::input::LifecycleInput;
use crate::observe::{read, read_many};
use crate::plan::LifecyclePlan;

/// EC2's answer about the account's running instances.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusView {
    /// Those that fail a check.
    pub impaired: BTreeMap<InstanceId, FailedCheck>,
    /// Those with a scheduled event: the first one.
    pub scheduled: BTreeMap<InstanceId, ScheduledEvent>,
}

/// A failing status check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedCheck {
    /// The check.
    pub check: StatusCheck,
    /// Since when, if EC2 tells it.
    pub since: Option<Timestamp>,
}

impl FailedCheck {
    /// The check that has failed for longest.
    fn of(status: &InstanceStatus) -> Option<Self> {
        let failed = status.impaired.iter().map(|(check, since)| Self { check: *check, since: *since });
        failed.min_by_key(|failed| failed.since.unwrap_or(Timestamp::MAX))
    }
}

/// Asks EC2 for instances that fail a check.
///
/// # Errors
/// EC2's.
pub(crate) async fn observe_checks<P: Ports>(ports: &P) -> Result<StatusView, Ec2Error> {
    let mut view = StatusView::default();
    for check in StatusCheck::ALL {
        let found = pages(ports, InstanceStatusFilter::Impaired(check)).await?;
        let failed = |status: InstanceStatus| Some((FailedCheck::of(&status)?, status.id));
        view.impaired.extend(found.into_iter().filter_map(failed).map(|(failed, id)| (id, failed)));
    }
    Ok(view)
}

async fn observe_all<P: Ports>(ports: &P) -> Result<StatusView, Ec2Error> {
    let view = observe_checks(ports).await?;
    let found = pages(ports, InstanceStatusFilter::ScheduledEvents).await?;
    let first = |status: InstanceStatus| {
        let first = status.events.into_iter().min_by_key(|event| event.starts_at);
        Some((status.id, first?))
    };
    Ok(StatusView { scheduled: found.into_iter().filter_map(first).collect(), ..view })
}

async fn pages<P: Ports>(ports: &P, of: InstanceStatusFilter) -> Result<Vec<InstanceStatus>, Ec2Error> {
    let (mut found, mut page) = (Vec::new(), None);
    loop {
        let answer = ports.ec2().describe_instance_status(of, page).await?;
        found.extend(answer.items);
        page = answer.next;
        if page.is_none() {
            return Ok(found);
        }
    }
}

/// The region's look at statuses; it writes nothing, and tells what EC2 refuses.
pub(crate) struct StatusPass<'a, P> {
    pub(crate) ports: &'a P,
}

/// What the look saw.
#[derive(Debug, Default)]
pub(crate) struct StatusesSeen {
    pub(crate) view: StatusView,
    /// Clusters for which it is news.
    pub(crate) clusters: BTreeSet<ClusterName>,
}

impl<P: Ports> Pass for StatusPass<'_, P> {
    type Ports = P;
    type Input = Result<StatusView, Ec2Error>;
    type Plan = ();
    type Done = StatusesSeen;

    fn ports(&self) -> &P {
        self.ports
    }

    fn function(&self) -> FunctionName {
        FunctionName::Lifecycle
    }

    fn of(&self) -> Of<'_> {
        Of::Region(&self.ports.installation().region)
    }

    async fn observe(&self, _: &mut StatusesSeen) -> Result<Option<Self::Input>, HandlerError> {
        Ok(Some(observe_all(self.ports).await))
    }

    fn plan(&self, seen: &Self::Input) -> ((), Report) {
        let mut report = Report::default();
        if let Err(error) = seen {
            refused(error, &self.ports.installation().region)
                .into_iter()
                .for_each(|found| report.tell(found));
        }
        ((), report)
    }

    async fn commit(
        &self,
        seen: &Self::Input,
        (): (),
        done: &mut StatusesSeen,
    ) -> Result<AfterCommit, HandlerError> {
        if let Ok(view) = seen {
            done.clusters = concerned(self.ports, view).await?;
            done.view = view.clone();
        }
        Ok(AfterCommit::Settled)
    }

    async fn execute(&self, _: &Self::Input, _: &mut StatusesSeen) -> Result<(), HandlerError> {
        Ok(())
    }

    fn end(&self, _: Self::Input, _: &StatusesSeen) -> End {
        End::default()
    }
}

/// What a person is told of a call that EC2 refuses. The next sweep repeats one that failed for the moment.
fn refused(error: &Ec2Error, region: &Region) -> Option<Finding> {
    let remedy = match error {
        Ec2Error::Throttled { .. } | Ec2Error::ServerError { .. } | Ec2Error::NoAnswer { .. } => return None,
        Ec2Error::Unauthorized { action, .. } => {
            format!("; allow function `lifecycle` the action `{}`", right_of(action))
        }
        Ec2Error::NotFound { .. }
        | Ec2Error::AlreadyExists { .. }
        | Ec2Error::IdempotentParameterMismatch { .. }
        | Ec2Error::Refused { .. }
        | Ec2Error::Invalid { .. }
        | Ec2Error::Unknown { .. } => String::new(),
    };
    let subject = Subject { kind: SubjectKind::Object, name: format!("Region/{region}") };
    let sentence = "not replacing nodes of {} whose instances fail status checks";
    Some(Finding::refused(subject, "InstanceStatusUnknown", sentence, format!("{error}{remedy}")))
}

/// The clusters of instances that fail a check, or that have an event which their claim doesn't know.
///
/// # Errors
/// [`HandlerError`] if the table can't be read.
async fn concerned<P: Ports>(ports: &P, view: &StatusView) -> Result<BTreeSet<ClusterName>, HandlerError> {
    let ids: BTreeSet<&InstanceId> = view.impaired.keys().chain(view.scheduled.keys()).collect();
    let mut clusters = BTreeSet::new();
    let mut unsure: BTreeMap<Key, (ClusterName, InstanceId)> = BTreeMap::new();
    let asked = ids.into_iter().map(keys::instance).collect();
    for (key, item) in read_many(ports, asked, Consistency::Strong).await? {
        let owner: InstanceOwner = read(&key, &item)?;
        if view.impaired.contains_key(&owner.instance) {
            clusters.insert(owner.cluster);
        } else {
            unsure.insert(keys::claim(&owner.cluster, &owner.claim), (owner.cluster, owner.instance));
        }
    }
    let asked = unsure.keys().cloned().collect();
    for (key, item) in read_many(ports, asked, Consistency::Strong).await? {
        let Some((cluster, instance)) = unsure.get(&key) else { continue };
        let is_news = match read::<Claim>(&key, &item) {
            Ok(claim) => {
                let event = view.scheduled.get(instance);
                event.is_some_and(|event| announced_by(&claim, event, ports.now()).is_some())
            }
            // The look at its cluster fails by itself; here it would hide the news of other clusters.
            Err(_) => true,
        };
        if is_news {
            clusters.insert(cluster.clone());
        }
    }
    Ok(clusters)
}

/// The check that an instance fails, and since when: where EC2 doesn't tell that, since it was first seen to.
pub(crate) fn failed_check(
    instance: &InstanceId,
    input: &LifecycleInput,
) -> Option<(StatusCheck, Timestamp)> {
    let FailedCheck { check, since } = input.statuses.as_ref()?.impaired.get(instance)?;
    let seen_since = || input.audit.impaired.get(instance).copied().unwrap_or(input.now);
    Some((*check, since.unwrap_or_else(seen_since)))
}

/// Remembers which instances of the cluster fail a check, if they are others than those of the last answer.
pub(crate) fn remember(input: &LifecycleInput, plan: &mut LifecyclePlan) {
    if input.statuses.is_none() {
        return;
    }
    let held = input.claims.values().filter(|claim| !claim.phase().is_final());
    let held = held.filter_map(|claim| claim.state.instance());
    let failed = held.filter_map(|held| Some((held.id.clone(), failed_check(&held.id, input)?.1)));
    let impaired: BTreeMap<InstanceId, Timestamp> = failed.collect();
    if impaired != input.audit.impaired {
        let record = plan.audit.record.get_or_insert_with(|| input.audit.next());
        *record = AuditRecord { impaired, ..std::mem::take(record) };
    }
}

/// The claim with a scheduled event of its instance that is new to it, and what is said of it.
pub(crate) fn announced(claim: &Claim, input: &LifecycleInput) -> Option<(Claim, String)> {
    let held = claim.state.instance()?;
    let event = input.statuses.as_ref()?.scheduled.get(&held.id)?;
    let announced = announced_by(claim, event, input.now)?;
    let message = format!(
        "NodeClaim `{}` is replaced within its NodePool's budgets, or drained a day before: EC2 scheduled `{}` of instance \
         `{}` at `{}`",
        claim.name,
        event.code,
        held.id,
        event.starts_at.unwrap_or(input.now)
    );
    Some((announced, message))
}

fn announced_by(claim: &Claim, event: &ScheduledEvent, now: Timestamp) -> Option<Claim> {
    if !may_follow(claim.phase(), ClaimPhase::Draining) {
        return None;
    }
    let (kind, starts_at) = (AnnouncementKind::ScheduledChange, event.starts_at.or(Some(now)));
    claim.announced(InstanceAnnouncement { kind, at: now, starts_at })
}
