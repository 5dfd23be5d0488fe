//! Sends launches to EC2 and records what became of them.
//!
//! Decides how a launch is asked for: its stored request while its token lives, its tag after that. It doesn't retry: a
//! launch that EC2 can't take just now is put off in its own item, and the next wake goes on.
//!
//! Invariants: only what is committed is sent, byte for byte; a settlement that loses its race changes nothing, since
//! who won it settled the same launch.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClusterName, LaunchId};
use tenon_domain::launch::{EC2_CONSISTENCY, Launch, LaunchState, REPLAY_WITHIN};
use tenon_domain::tags;
use tenon_domain::unavailable::{FIRST_HOLD, Mark, Marks, UnavailableKey};
use tenon_ec2::port::{CreateFleetRequest, Instance, InstanceFilter, TagFilter, Tags};
use tenon_ec2::{Ec2, Ec2Error, ErrorClass};
use tenon_launching::build::BuiltLaunch;
use tenon_launching::template::from_stored;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::step::Change;
use tenon_state::view::{ClusterView, form_error};
use tenon_table::items::{InstanceOwner, TemplateItem, form, keys, put, set, set_expiring};
use tenon_table::{CommitError, Consistency, Expect, Table, Write, WriteCondition};
use tenon_table::{commit_through_conflicts, content_commit};

use crate::settle::{CatalogFacts, LaunchAnswer, MarkWord, SettleFailure, SettleInput, Settlement, settle};

/// Between two attempts at a launch that EC2 can't take just now; doubled each time.
const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_secs(5);
/// Never longer than this: the token must live when the launch is sent again.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_mins(1);
/// How long a claim that failed is kept.
const CLAIM_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// How long a launch without any claim left is kept.
const LAUNCH_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// How often a mark is read again because another cluster's function was faster. Then that one knew as much.
const MARK_RACES: usize = 3;
/// Pages of instances of one launch that are read at most.
const PAGES: usize = 10;

/// What sending launches came to.
#[derive(Debug, Default)]
pub(crate) struct SentLaunches {
    /// Claims that got their instance.
    pub(crate) launched: Vec<Claim>,
    /// Claims that got none.
    pub(crate) failed: Vec<Claim>,
    /// How many launches were settled, by this run or another one.
    pub(crate) settled: usize,
    /// Whether planning again at once may help.
    pub(crate) plan_again: bool,
    /// When the first launch that was put off is due.
    pub(crate) retry_at: Option<Timestamp>,
    /// Whether EC2 said something of launches from a class, for what they are.
    pub(crate) classes: bool,
}

/// What EC2 said to a launch, or when to ask.
enum SendOutcome {
    Answer(LaunchAnswer),
    PutOff(Timestamp),
    /// Not due, and nothing to write.
    NotDue(Timestamp),
}

/// A launch with its claims in its order.
pub(crate) struct DueLaunch<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) claims: Vec<&'a Claim>,
    /// Marks whose lease it took since the cluster was observed.
    pub(crate) leases: &'a [Mark],
    /// Its templates, where it was committed since the cluster was observed.
    pub(crate) templates: Vec<TemplateItem>,
}

impl<'a> DueLaunch<'a> {
    /// A launch that was committed just now.
    pub(crate) fn built(built: &'a BuiltLaunch) -> Self {
        Self {
            launch: &built.launch,
            claims: built.claims.iter().collect(),
            leases: &built.leases,
            templates: built.template_items().collect(),
        }
    }

    /// When it is sent, or looked for, next.
    pub(crate) fn due_at(&self, now: Timestamp) -> Timestamp {
        match self.launch.state {
            LaunchState::Settled { at, .. } => at,
            LaunchState::Requested { not_before, .. }
                if now.duration_since(self.launch.created_at) < REPLAY_WITHIN =>
            {
                not_before.max(now)
            }
            LaunchState::Requested { not_before, .. } => {
                not_before.max(looked_for_at(self.launch, now)).max(now)
            }
        }
    }
}

/// The launches that wait for an answer, oldest first.
pub(crate) fn due<'a>(view: &'a ClusterView) -> Vec<DueLaunch<'a>> {
    let waits = |launch: &&Launch| match launch.state {
        LaunchState::Requested { .. } => true,
        LaunchState::Settled { .. } => false,
    };
    let mut launches: Vec<&Launch> = view.launches.values().filter(waits).collect();
    launches.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    let claim = |name: &ClaimName| view.claims.get(name);
    launches
        .into_iter()
        .map(|launch| DueLaunch {
            launch,
            claims: launch.claims.iter().filter_map(|c| claim(&c.name)).collect(),
            leases: &[],
            templates: Vec::new(),
        })
        .collect()
}

/// Sends launches one after the other and settles each.
pub(crate) async fn send_all<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    view: &ClusterView,
    launches: &[DueLaunch<'_>],
) -> Result<SentLaunches, HandlerError> {
    let mut sending = Sending::new(cluster, view);
    for due in launches {
        sending.send(ports, due).await?;
    }
    Ok(sending.sent)
}

/// Launches of one observation, being sent.
pub(crate) struct Sending<'a> {
    cluster: &'a ClusterName,
    view: &'a ClusterView,
    written: WrittenMarks,
    /// Templates that EC2 has since the cluster was observed.
    made: BTreeSet<String>,
    /// What they came to so far.
    pub(crate) sent: SentLaunches,
}

impl<'a> Sending<'a> {
    /// None of them is sent yet.
    pub(crate) fn new(cluster: &'a ClusterName, view: &'a ClusterView) -> Self {
        Self {
            cluster,
            view,
            written: WrittenMarks::new(),
            made: BTreeSet::new(),
            sent: SentLaunches::default(),
        }
    }

    /// Sends the next launch, if there is one.
    pub(crate) async fn send_next<'d, P: Ports>(
        &mut self,
        ports: &P,
        launches: &mut impl Iterator<Item = &'d DueLaunch<'d>>,
    ) -> Result<(), HandlerError> {
        match launches.next() {
            Some(due) => self.send(ports, due).await,
            None => Ok(()),
        }
    }

    /// Sends one launch and settles it.
    async fn send<P: Ports>(&mut self, ports: &P, due: &DueLaunch<'_>) -> Result<(), HandlerError> {
        let now = ports.now();
        match self.ask(ports, due, now).await? {
            SendOutcome::NotDue(at) => self.sent.put_off(at),
            SendOutcome::PutOff(at) => {
                put_off(ports, self.cluster, due.launch, at).await?;
                self.sent.put_off(at);
            }
            SendOutcome::Answer(answer) => {
                let marks: Marks = self.view.marks.iter().chain(due.leases).cloned().collect();
                let input = SettleInput {
                    // As of the answer: a call may take most of a mark's first hold.
                    now: ports.now(),
                    cluster: self.cluster,
                    launch: due.launch,
                    claims: &due.claims,
                    status: self.view.classes.get(&due.launch.class),
                    marks: &marks,
                    catalog: CatalogFacts::of(&self.view.parts),
                };
                let settlement = settle(input, &answer);
                for word in &settlement.marks {
                    write_mark(ports, input, word, &mut self.written).await?;
                }
                record(ports, self.cluster, due.launch, &settlement).await?;
                // Pods wait for what a probe is told.
                self.sent.plan_again |= !due.leases.is_empty();
                self.sent.take(settlement);
            }
        }
        Ok(())
    }

    async fn ask<P: Ports>(
        &mut self,
        ports: &P,
        due: &DueLaunch<'_>,
        now: Timestamp,
    ) -> Result<SendOutcome, HandlerError> {
        let launch = due.launch;
        let attempts = match launch.state {
            LaunchState::Requested { not_before, .. } if now < not_before => {
                return Ok(SendOutcome::NotDue(not_before));
            }
            LaunchState::Requested { attempts, .. } => attempts,
            LaunchState::Settled { at, .. } => return Ok(SendOutcome::NotDue(at)),
        };
        let age = now.duration_since(launch.created_at);
        let later = later(now, attempts);
        if age >= REPLAY_WITHIN + EC2_CONSISTENCY {
            return Ok(match find(ports, &launch.id).await {
                Ok(found) => SendOutcome::Answer(LaunchAnswer::Found(found)),
                Err(_) => SendOutcome::PutOff(later),
            });
        }
        let looked_for_at = looked_for_at(launch, now);
        if age >= REPLAY_WITHIN {
            return Ok(SendOutcome::NotDue(looked_for_at));
        }
        let request =
            CreateFleetRequest::from_stored(&launch.request).map_err(|source| HandlerError::Item {
                key: keys::launch(self.cluster, &launch.id).to_string(),
                source: Box::new(source),
            })?;
        let templates = request.launch_templates.iter().map(|template| template.name.as_str());
        for name in templates {
            if let Err(error) = self.make_template(ports, due, name).await? {
                return Ok(judged(error, later, looked_for_at));
            }
        }
        Ok(match ports.ec2().create_fleet(&request).await {
            Ok(result) => SendOutcome::Answer(LaunchAnswer::Fleet(result)),
            Err(error) => judged(error, later, looked_for_at),
        })
    }

    /// Makes a template that EC2 isn't known to have. It was observed with its launch, or this pass wrote it: it isn't read
    /// again.
    async fn make_template<P: Ports>(
        &mut self,
        ports: &P,
        due: &DueLaunch<'_>,
        name: &str,
    ) -> Result<Result<(), Ec2Error>, HandlerError> {
        if self.made.contains(name) {
            return Ok(Ok(()));
        }
        let key = keys::template(self.cluster, name);
        let written = || due.templates.iter().find(|template| template.name == name);
        // One that the table doesn't know may be in EC2 all the same: the fleet's answer says so.
        let Some(template) = self.view.templates.get(name).or_else(written).cloned() else {
            return Ok(Ok(()));
        };
        if template.made_at.is_none() {
            let request = from_stored(&template.request)
                .map_err(|source| HandlerError::Item { key: key.to_string(), source: Box::new(source) })?;
            match ports.ec2().create_launch_template(&request).await {
                Ok(_) | Err(Ec2Error::AlreadyExists { .. }) => {}
                Err(error) => return Ok(Err(error)),
            }
            let made = TemplateItem { made_at: Some(ports.now()), used_at: ports.now(), ..template };
            ports.table().commit(&content_commit(Vec::new(), vec![set(key, &made)])).await?;
        }
        self.made.insert(name.to_owned());
        Ok(Ok(()))
    }
}

impl SentLaunches {
    /// Something is to be done at that time.
    pub(crate) fn put_off(&mut self, at: Timestamp) {
        self.retry_at = Some(self.retry_at.map_or(at, |first| first.min(at)));
    }

    fn take(&mut self, settlement: Settlement) {
        self.settled += 1;
        self.classes |= settlement.marks.iter().any(|word| matches!(word.key, UnavailableKey::Request(_)));
        match settlement.failed {
            None | Some(SettleFailure::Request) => {}
            Some(SettleFailure::Capacity | SettleFailure::TemplateMissing) => self.plan_again = true,
            Some(SettleFailure::Unmarked) => {
                let at = settlement.claims.iter().filter_map(|claim| claim.state.since()).max();
                if let Some(at) = at.and_then(|at| at.checked_add(FIRST_HOLD).ok()) {
                    self.put_off(at);
                }
            }
        }
        for claim in settlement.claims {
            if claim.state.instance().is_some() { self.launched.push(claim) } else { self.failed.push(claim) }
        }
    }

    /// Both together.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.launched.extend(other.launched);
        self.failed.extend(other.failed);
        self.settled += other.settled;
        self.plan_again = other.plan_again;
        self.classes |= other.classes;
        if let Some(at) = other.retry_at {
            self.put_off(at);
        }
        self
    }
}

/// When a launch whose token is forgotten is looked for by its tag: EC2 shows by then what it launched.
fn looked_for_at(launch: &Launch, now: Timestamp) -> Timestamp {
    launch.created_at.saturating_add(REPLAY_WITHIN + EC2_CONSISTENCY).unwrap_or(now)
}

/// What an error of a call means for the launch.
fn judged(error: Ec2Error, later: Timestamp, looked_for_at: Timestamp) -> SendOutcome {
    match error.class() {
        ErrorClass::Throttled | ErrorClass::Server => SendOutcome::PutOff(later),
        // Somebody sent something else under this token: only the tag tells what became of it.
        ErrorClass::TokenMismatch => SendOutcome::PutOff(looked_for_at),
        ErrorClass::InsufficientCapacity
        | ErrorClass::Quota
        | ErrorClass::FleetCount
        | ErrorClass::AccountLimit
        | ErrorClass::PlacementGroup
        | ErrorClass::Unsupported
        | ErrorClass::SubnetFull
        | ErrorClass::ReservationFull
        | ErrorClass::TemplateMissing
        | ErrorClass::ImageUnavailable
        | ErrorClass::ServiceLinkedRoleMissing
        | ErrorClass::Unauthorized
        | ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::Invalid
        | ErrorClass::Unknown => SendOutcome::Answer(LaunchAnswer::Refused(error)),
    }
}

fn later(now: Timestamp, attempts: u32) -> Timestamp {
    let wait = FIRST_BACK_OFF.saturating_mul(2_i32.saturating_pow(attempts.min(8))).min(LONGEST_BACK_OFF);
    now.saturating_add(wait).unwrap_or(now)
}

async fn find<P: Ports>(ports: &P, launch: &LaunchId) -> Result<Vec<Instance>, Ec2Error> {
    let filter = InstanceFilter {
        tags: vec![TagFilter::equals(tags::LAUNCH, launch.as_str())],
        ..InstanceFilter::default()
    };
    let mut found = Vec::new();
    let mut page = None;
    for _ in 0..PAGES {
        let answer = ports.ec2().describe_instances(&filter, page).await?;
        found.extend(answer.items);
        page = answer.next;
        if page.is_none() {
            break;
        }
    }
    Ok(found)
}

async fn put_off<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    launch: &Launch,
    at: Timestamp,
) -> Result<(), HandlerError> {
    let attempts = match launch.state {
        LaunchState::Requested { attempts, .. } => attempts.saturating_add(1),
        LaunchState::Settled { .. } => return Ok(()),
    };
    let state = LaunchState::Requested { attempts, not_before: at };
    let next = Launch { revision: launch.revision.saturating_add(1), state, ..launch.clone() };
    let mut change = Change::of(cluster);
    change.replace(Expect::Revision(launch.revision), set(keys::launch(cluster, &launch.id), &next));
    change.count();
    unless_lost(commit_through_conflicts(ports.table(), &change.commit()).await)
}

/// Marks as this pass wrote or read them since it looked.
type WrittenMarks = BTreeMap<UnavailableKey, Option<Mark>>;

/// Writes what EC2 said of one mark, under the revision that the mark had. Marks are all clusters': whoever loses the
/// race looks what the mark is now.
async fn write_mark<P: Ports>(
    ports: &P,
    input: SettleInput<'_>,
    word: &MarkWord,
    written: &mut WrittenMarks,
) -> Result<(), HandlerError> {
    let key = keys::unavailable(&ports.installation().region, &word.key);
    let known = written.entry(word.key.clone()).or_insert_with(|| input.marks.get(&word.key).cloned());
    for _ in 0..MARK_RACES {
        let Some(next) = word.next(known.as_ref(), input.asked(), input.now) else { return Ok(()) };
        let expect = known.as_ref().map_or(Expect::Absent, |mark| Expect::Revision(mark.revision));
        let condition = WriteCondition::Item { key: key.clone(), expect };
        let commit = content_commit(vec![condition], vec![set(key.clone(), &next)]);
        match commit_through_conflicts(ports.table(), &commit).await {
            Ok(()) => {
                *known = Some(next);
                return Ok(());
            }
            Err(CommitError::LostRace { .. }) => {
                let items = ports.table().batch_get(std::slice::from_ref(&key), Consistency::Strong).await?;
                let item = items.get(&key);
                *known = item.map(|item| form::from_item(&key, item)).transpose().map_err(form_error)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Writes a settlement as one. Its marks were written before, each of which stands alone.
async fn record<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    before: &Launch,
    settlement: &Settlement,
) -> Result<(), HandlerError> {
    let launch = &settlement.launch;
    let launch_key = keys::launch(cluster, &launch.id);
    let all_failed = settlement.claims.iter().all(|claim| claim.phase().is_final());
    let now = settlement.claims.first().and_then(|claim| claim.state.since()).unwrap_or_else(|| ports.now());
    let after = |kept: SignedDuration| now.saturating_add(kept).unwrap_or(now);
    let settled = if all_failed {
        set_expiring(launch_key, launch, after(LAUNCH_KEPT))
    } else {
        set(launch_key, launch)
    };
    let mut change = Change::of(cluster);
    change.replace(Expect::Revision(before.revision), settled);
    change.count();
    for claim in &settlement.claims {
        let before = Expect::Revision(claim.revision.saturating_sub(1));
        let Some(instance) = claim.state.instance() else {
            change.last_of_claim(before, claim, after(CLAIM_KEPT));
            continue;
        };
        change.claim(before, claim);
        let owner = InstanceOwner {
            instance: instance.id.clone(),
            cluster: cluster.clone(),
            claim: claim.name.clone(),
            offering: settlement.offerings.get(&instance.id).cloned(),
        };
        change.write(put(keys::instance(&instance.id), &owner));
    }
    if settlement.failed == Some(SettleFailure::TemplateMissing) {
        let request = CreateFleetRequest::from_stored(&before.request);
        let names = request.iter().flat_map(|request| &request.launch_templates).map(|t| t.name.clone());
        for name in names {
            change.write(Write::Delete { key: keys::template(cluster, &name) });
        }
    }
    for record in &settlement.records {
        change.record(record, launch.revision);
    }
    unless_lost(commit_through_conflicts(ports.table(), &change.commit()).await)
}

/// A lost race: somebody else settled the launch.
fn unless_lost(outcome: Result<(), CommitError>) -> Result<(), HandlerError> {
    match outcome {
        Ok(()) | Err(CommitError::LostRace { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Names the instances after their claims. Best effort: the audit repairs what is missing.
pub(crate) async fn tag<P: Ports>(ports: &P, launched: &[Claim]) {
    for claim in launched {
        let Some(instance) = claim.state.instance() else { continue };
        let named = Tags::from([tags::CLAIM, tags::NAME].map(|tag| (tag.to_owned(), claim.name.to_string())));
        let answer = ports.ec2().create_tags(std::slice::from_ref(&instance.id), &named).await;
        if matches!(answer, Err(Ec2Error::Throttled { .. } | Ec2Error::Unauthorized { .. })) {
            break;
        }
    }
}
