//! Dry runs: asks EC2 whether it allows launches from a class, before a pod needs one.
//!
//! Decides which class and architecture is asked about, and the time of the next question. `question` builds the
//! request, `answer` reads what EC2 says. A dry run judges its caller, so the function that launches asks, by the
//! cluster's launch role; `node-classes` reads the verdict.
//!
//! Invariants: no question while a launch is due; one question a wake; in the region one dry run of RunInstances a
//! second; a call without an answer is no verdict, and isn't repeated in the same wake.

mod answer;
mod question;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::facts::Architecture;
use tenon_domain::class_status::{ClassStatus, ConditionReason, ConditionType};
use tenon_domain::digest::Digest;
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::launch_verdict::{ClassVerdicts, LaunchVerdict, VerdictOutcome, architectures};
use tenon_domain::registry::FeatureGate;
use tenon_domain::unavailable::RequestDigest;
use tenon_domain::wait::later;
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::DryRunOutcome;
use tenon_ec2::{Denial, Ec2Error};
use tenon_launching::build::BuiltLaunch;
use tenon_runtime::{HandlerError, Ports, Signals};
use tenon_state::cluster::judged_request;
use tenon_state::observe::ClusterObservation;
use tenon_state::step::Change;
use tenon_state::view::form_error;
use tenon_table::items::{DryRunLease, TemplateItem, form, keys, set};
use tenon_table::{CommitError, Consistency, Expect, Table, Write, WriteCondition};
use tenon_table::{commit_through_conflicts, content_commit};

use answer::{DryRunAnswer, of_error};
use question::{BuiltQuestion, built, pools_digest, probe};

use crate::denials::denial;
use crate::execute::{TemplateSight, make, newest, sight, unmade};
use crate::launcher::Launcher;

/// The time between two dry runs of RunInstances in a region. EC2 refills two requests a second, which launches by
/// other tools need too ("Request throttling for the Amazon EC2 API", read November 2026).
const BETWEEN_DRY_RUNS: SignedDuration = SignedDuration::from_secs(1);
/// How long the region asks nothing after a call without an answer: throttling or a failure of EC2.
const AFTER_NO_ANSWER: SignedDuration = SignedDuration::from_secs(30);
/// How long until a request is built again that can't be built now, such as without a fresh catalogue, or while a
/// mark holds its NodePools back.
const AFTER_NO_REQUEST: SignedDuration = SignedDuration::from_mins(1);
/// How long a question waits for a launch template that EC2 doesn't show yet, which takes seconds.
const AFTER_UNSEEN_TEMPLATE: SignedDuration = SignedDuration::from_secs(5);
/// How long a question waits for launches that are being made.
const AFTER_LAUNCHES: SignedDuration = SignedDuration::from_secs(10);
/// How long an edit of NodePools may go unseen that lets a class be used for another architecture: without pending pods
/// no wake is for NodePools.
const POOLS_LOOKED_AT_EVERY: SignedDuration = SignedDuration::from_hours(1);
/// How long the lease is kept for the cluster that waits: it comes back within [`SPREAD_SECONDS`] and the second to which
/// SQS rounds a delay up. Without this, a cluster whose users edit its classes all the time could take every lease.
const KEPT_FOR_WAITING: SignedDuration = SignedDuration::from_secs(10);
/// Clusters that wait for the lease come back within so many seconds, each at its own.
const SPREAD_SECONDS: u8 = 8;

/// A class and an architecture whose launches EC2 may be asked about.
pub(crate) struct Question<'a> {
    pub(crate) class: &'a Ec2NodeClass,
    pub(crate) status: &'a ClassStatus,
    pub(crate) architecture: Architecture,
    /// When it is asked.
    pub(crate) due_at: Timestamp,
}

/// The question that is due first; `None` if dry runs are disabled, or no class awaits or has a verdict.
pub(crate) fn first_question<'a>(
    cluster: &ClusterName,
    observed: &'a ClusterObservation,
    verdicts: &BTreeMap<NodeClassName, ClassVerdicts>,
) -> Option<Question<'a>> {
    let view = &observed.view;
    let (Ok(registry), Ok(snapshot)) = (&view.registry, &observed.snapshot) else { return None };
    match registry.settings.dry_runs {
        FeatureGate::Enabled => {}
        FeatureGate::Disabled => return None,
    }
    let mut questions: Vec<Question<'a>> = Vec::new();
    for class in snapshot.node_classes.iter().filter(|class| class.meta.deleted_at.is_none()) {
        let current = |status: &&ClassStatus| status.is_of(&class.meta);
        let Some(status) = view.classes.get(&class.name).filter(current) else { continue };
        if !status.launchable() {
            continue;
        }
        let digest = RequestDigest::of_class(cluster, status);
        let request = judged_request(class, &digest);
        let known = verdicts.get(&class.name);
        for architecture in architectures(status) {
            let due_at = match known.and_then(|known| known.on(request, &architecture)) {
                Some(LaunchVerdict { outcome: VerdictOutcome::Unused { pools }, .. }) => {
                    let same = *pools == pools_digest(snapshot, &class.name);
                    if same { later(view.now, POOLS_LOOKED_AT_EVERY) } else { view.now }
                }
                Some(verdict) => verdict.until,
                None if awaits(status) => view.now,
                None => continue,
            };
            questions.push(Question { class, status, architecture, due_at });
        }
    }
    questions.into_iter().min_by(|a, b| {
        (a.due_at, &a.class.name, &a.architecture).cmp(&(b.due_at, &b.class.name, &b.architecture))
    })
}

/// Whether the class waits for EC2's first word on its launches.
pub(crate) fn awaits(status: &ClassStatus) -> bool {
    status
        .condition(ConditionType::ValidationSucceeded)
        .is_some_and(|told| told.reason == ConditionReason::AwaitingValidation)
}

/// When the first question is asked that launches kept back.
pub(crate) fn ask_after_launches(cluster: &ClusterName, observed: &ClusterObservation) -> Option<Timestamp> {
    let question = first_question(cluster, observed, &observed.view.verdicts)?;
    Some(question.due_at.max(later(observed.view.now, AFTER_LAUNCHES)))
}

/// Asks EC2 about the first question that is due. Returns the time of the next one.
pub(crate) async fn ask<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    observed: &ClusterObservation,
) -> Result<Option<Timestamp>, HandlerError> {
    let now = ports.now();
    let Some(question) = first_question(cluster, observed, &observed.view.verdicts) else { return Ok(None) };
    if question.due_at > now {
        return Ok(Some(question.due_at));
    }
    let asking = Asking { ports, cluster, observed, question };
    let mut templates = BTreeSet::new();
    let answer = match built(cluster, &ports.installation().region, observed, &asking.question) {
        BuiltQuestion::NotNow => return Ok(Some(later(now, AFTER_NO_REQUEST))),
        BuiltQuestion::Unused { pools } => VerdictOutcome::Unused { pools },
        BuiltQuestion::Refused { message, image } => {
            VerdictOutcome::Denied { reason: ConditionReason::LaunchRefused, message, image }
        }
        BuiltQuestion::Launch(built) => {
            let lease = match asking.lease(now).await? {
                Ok(lease) => lease,
                Err(at) => return Ok(Some(at)),
            };
            templates.extend(built.templates.iter().map(|(_, template)| template.name.clone()));
            match asking.dry_runs(&built).await? {
                DryRunAnswer::Verdict(outcome) => outcome,
                DryRunAnswer::Consent => VerdictOutcome::Allowed,
                DryRunAnswer::Lost => return Ok(Some(later(now, BETWEEN_DRY_RUNS))),
                DryRunAnswer::TemplateUnseen => return Ok(Some(later(now, AFTER_UNSEEN_TEMPLATE))),
                DryRunAnswer::None => return asking.postpone(lease, now).await.map(Some),
                DryRunAnswer::TemplateMissing => {
                    asking.forget_templates(&built).await?;
                    return Ok(Some(later(now, BETWEEN_DRY_RUNS)));
                }
            }
        }
    };
    asking.keep(answer, templates).await.map(Some)
}

/// The templates of a question.
enum TemplatesMade {
    /// EC2 has them.
    All,
    /// EC2 didn't make one.
    Refused(Ec2Error),
    /// Something else changed the cluster.
    Lost,
}

/// A question on its way.
struct Asking<'a, P> {
    ports: &'a P,
    cluster: &'a ClusterName,
    observed: &'a ClusterObservation,
    question: Question<'a>,
}

impl<P: Ports> Asking<'_, P> {
    /// Takes the region's right to one dry run; otherwise the time to try again.
    async fn lease(&self, now: Timestamp) -> Result<Result<DryRunLease, Timestamp>, HandlerError> {
        let known = self.known_lease().await?;
        let taken_until = known.as_ref().map(|known| self.not_before(known)).filter(|at| *at > now);
        if let (Some(known), Some(at)) = (&known, taken_until) {
            self.wait_for(known).await?;
            return Ok(Err(later(at, self.spread(now))));
        }
        let revision = known.map_or(0, |known| known.revision);
        let taken = DryRunLease {
            revision: revision.saturating_add(1),
            free_at: later(now, BETWEEN_DRY_RUNS),
            cluster: self.cluster.clone(),
            waiting: None,
        };
        let before = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        Ok(if self.write_lease(&taken, before).await? {
            Ok(taken)
        } else {
            Err(later(now, self.spread(now)))
        })
    }

    async fn known_lease(&self) -> Result<Option<DryRunLease>, HandlerError> {
        let key = keys::dry_run(&self.ports.installation().region);
        let items = self.ports.table().batch_get(std::slice::from_ref(&key), Consistency::Strong).await?;
        items.get(&key).map(|item| form::from_item(&key, item)).transpose().map_err(form_error)
    }

    /// When this cluster may ask: once the lease is free, and a cluster that waits had its turn.
    fn not_before(&self, known: &DryRunLease) -> Timestamp {
        match &known.waiting {
            Some(first) if first != self.cluster => later(known.free_at, KEPT_FOR_WAITING),
            Some(_) | None => known.free_at,
        }
    }

    /// Lets this cluster go first, if no other waits. The revision stays: whoever has the lease may still postpone it.
    async fn wait_for(&self, known: &DryRunLease) -> Result<(), HandlerError> {
        if known.waiting.is_none() && known.cluster != *self.cluster {
            let asked = DryRunLease { waiting: Some(self.cluster.clone()), ..known.clone() };
            self.write_lease(&asked, Expect::Revision(known.revision)).await?;
        }
        Ok(())
    }

    /// Whether nobody else wrote it first.
    async fn write_lease(&self, lease: &DryRunLease, before: Expect) -> Result<bool, HandlerError> {
        let key = keys::dry_run(&self.ports.installation().region);
        let condition = WriteCondition::Item { key: key.clone(), expect: before };
        let commit = content_commit(vec![condition], vec![set(key, lease)]);
        match commit_through_conflicts(self.ports.table(), &commit).await {
            Ok(()) => Ok(true),
            Err(CommitError::LostRace { .. } | CommitError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the whole region wait after a call without an answer: its clusters share EC2's request rate.
    async fn postpone(&self, taken: DryRunLease, now: Timestamp) -> Result<Timestamp, HandlerError> {
        let (revision, free_at) = (taken.revision, later(now, AFTER_NO_ANSWER));
        // A cluster that came to wait meanwhile keeps its turn.
        let waiting = self.known_lease().await?.and_then(|known| known.waiting);
        let next = DryRunLease { revision: revision.saturating_add(1), free_at, waiting, ..taken };
        self.write_lease(&next, Expect::Revision(revision)).await?;
        Ok(later(free_at, self.spread(now)))
    }

    /// One to so many seconds, by cluster and time.
    fn spread(&self, now: Timestamp) -> SignedDuration {
        let digest = Digest::of_texts([self.cluster.as_str(), now.to_string().as_str()]);
        let share = digest.bytes().first().map_or(0, |byte| byte % SPREAD_SECONDS);
        SignedDuration::from_secs(i64::from(share) + 1)
    }

    /// Makes the launch's templates, and asks about CreateFleet, then RunInstances.
    async fn dry_runs(&self, built: &BuiltLaunch) -> Result<DryRunAnswer, HandlerError> {
        let Question { status, architecture, .. } = &self.question;
        let images = status.images.iter().filter(|image| image.architecture == *architecture);
        let images: BTreeSet<ImageId> = images.map(|image| image.id.clone()).collect();
        let reason = ConditionReason::CreateLaunchTemplateAuthCheckFailed;
        let launcher = Launcher::of(self.ports, self.cluster, &self.observed.view).await;
        match self.make_templates(&launcher, built).await? {
            TemplatesMade::All => {}
            TemplatesMade::Refused(error) => {
                let denial = self.denial(&error).await;
                return Ok(of_error(&error, reason, &images, denial));
            }
            TemplatesMade::Lost => return Ok(DryRunAnswer::Lost),
        }
        let Some(probe) = probe(built, self.failures())? else { return Ok(DryRunAnswer::None) };
        let fleet = launcher.dry_run_create_fleet(&probe.fleet).await;
        let denial = self.dry_run_denial(&fleet).await;
        if let Some(unseen) = self.unseen_template(denial.as_ref(), built) {
            return Ok(unseen);
        }
        match answer::read(fleet, ConditionReason::CreateFleetAuthCheckFailed, &images, denial) {
            DryRunAnswer::Consent => {}
            other @ (DryRunAnswer::Verdict(_)
            | DryRunAnswer::None
            | DryRunAnswer::TemplateMissing
            | DryRunAnswer::TemplateUnseen
            | DryRunAnswer::Lost) => return Ok(other),
        }
        let run = launcher.dry_run_run_instances(&probe.run).await;
        let denial = self.dry_run_denial(&run).await;
        if let Some(unseen) = self.unseen_template(denial.as_ref(), built) {
            return Ok(unseen);
        }
        Ok(answer::read(run, ConditionReason::RunInstancesAuthCheckFailed, &images, denial))
    }

    /// The answer to a dry run that is denied because EC2 doesn't find the template.
    fn unseen_template(&self, denial: Option<&Denial>, built: &BuiltLaunch) -> Option<DryRunAnswer> {
        let now = self.ports.now();
        denial.filter(|denial| denial.is_of_unseen_template())?;
        let written: Vec<TemplateItem> = built.template_items().collect();
        let names = written.iter().map(|template| template.name.as_str());
        Some(match sight(newest(&self.observed.view, &written, names, now), now, now) {
            TemplateSight::NotYet => DryRunAnswer::TemplateUnseen,
            TemplateSight::Gone | TemplateSight::Denied => DryRunAnswer::TemplateMissing,
        })
    }

    /// What EC2's words and STS tell of a denied dry run.
    async fn dry_run_denial(&self, result: &Result<DryRunOutcome, Ec2Error>) -> Option<Denial> {
        match result {
            Ok(DryRunOutcome::Unauthorized { action, decoded: None, message }) => {
                Some(denial(self.ports, action, message).await)
            }
            Ok(DryRunOutcome::Unauthorized { decoded: Some(_), .. } | DryRunOutcome::WouldSucceed) => None,
            Err(error) => self.denial(error).await,
        }
    }

    /// The same of a denied call.
    async fn denial(&self, error: &Ec2Error) -> Option<Denial> {
        let Ec2Error::Unauthorized { action, decoded: None, message } = error else { return None };
        Some(denial(self.ports, action, message).await)
    }

    /// Commits the templates as a launch does, and creates them in EC2: the first launch finds them. Their commit
    /// raises the cluster's revision: meanwhile no name of them can leave for its deletion.
    async fn make_templates(
        &self,
        launcher: &Launcher<'_, P::Ec2>,
        built: &BuiltLaunch,
    ) -> Result<TemplatesMade, HandlerError> {
        let view = &self.observed.view;
        let mut change = Change::of(self.cluster);
        let mut is_new = false;
        for template in built.template_items().filter(|made| !view.templates.contains_key(&made.name)) {
            change.write(set(keys::template(self.cluster, &template.name), &template));
            is_new = true;
        }
        if is_new {
            let revision = view.generations.revision;
            change.condition(WriteCondition::Cluster { cluster: self.cluster.clone(), revision });
            match commit_through_conflicts(self.ports.table(), &change.commit()).await {
                Ok(()) => {}
                Err(CommitError::LostRace { .. } | CommitError::Conflict { .. }) => {
                    return Ok(TemplatesMade::Lost);
                }
                Err(error) => return Err(error.into()),
            }
        }
        let written: Vec<TemplateItem> = built.template_items().collect();
        for (_, template) in &built.templates {
            let Some(template) = unmade(view, &written, &template.name) else { continue };
            if let Err(error) = make(self.ports, launcher, self.cluster, template).await? {
                return Ok(TemplatesMade::Refused(error));
            }
        }
        Ok(TemplatesMade::All)
    }

    /// Forgets templates that EC2 doesn't have any longer: the next question makes them again.
    async fn forget_templates(&self, built: &BuiltLaunch) -> Result<(), HandlerError> {
        let mut change = Change::of(self.cluster);
        for (_, template) in &built.templates {
            change.write(Write::Delete { key: keys::template(self.cluster, &template.name) });
        }
        change.count();
        Ok(commit_through_conflicts(self.ports.table(), &change.commit()).await?)
    }

    fn before(&self) -> Option<&LaunchVerdict> {
        let known = self.observed.view.verdicts.get(&self.question.class.name)?;
        known.of(&self.question.architecture)
    }

    /// The denials in a row of this request.
    fn failures(&self) -> u32 {
        let digest = RequestDigest::of_class(self.cluster, self.question.status);
        self.before().filter(|before| before.digest == digest).map_or(0, |before| before.failures)
    }

    /// Writes the verdict, and wakes `node-classes` if it is news. Returns the time of the next question.
    async fn keep(
        &self,
        outcome: VerdictOutcome,
        templates: BTreeSet<String>,
    ) -> Result<Timestamp, HandlerError> {
        let Question { class, status, architecture, .. } = &self.question;
        let now = self.ports.now();
        let digest = RequestDigest::of_class(self.cluster, status);
        let request = judged_request(class, &digest);
        let verdict = LaunchVerdict {
            templates,
            ..LaunchVerdict::of_dry_run(self.before(), request, architecture, outcome, now)
        };
        let until = verdict.until;
        let known = self.before().filter(|before| before.counts_for(request));
        let is_news = known.is_none_or(|known| known.outcome != verdict.outcome);
        let mut verdicts = self.observed.view.verdicts.clone();
        let next = verdicts.remove(&class.name).unwrap_or_default().with(verdict);
        let soon = later(now, BETWEEN_DRY_RUNS);
        if !write(self.ports, self.cluster, status, &next).await? {
            return Ok(soon);
        }
        if is_news {
            self.ports.signals().wake(FunctionName::NodeClasses, self.cluster, SignedDuration::ZERO).await;
        }
        verdicts.insert(class.name.clone(), next);
        let following = first_question(self.cluster, self.observed, &verdicts);
        Ok(following.map_or(until, |following| following.due_at.max(soon)))
    }
}

/// Writes a class's verdicts beside its status. Whether the class is as observed.
pub(crate) async fn write<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    status: &ClassStatus,
    verdicts: &ClassVerdicts,
) -> Result<bool, HandlerError> {
    let mut change = Change::of(cluster);
    change.replace(Expect::Revision(status.revision), set(keys::node_class(cluster, &status.name), verdicts));
    change.count();
    match commit_through_conflicts(ports.table(), &change.commit()).await {
        Ok(()) => Ok(true),
        Err(CommitError::LostRace { .. } | CommitError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
