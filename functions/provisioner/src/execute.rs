//! Sends launches to EC2 and settles them.
//!
//! Decides how to find out a launch's result: by its stored request while EC2 remembers the token, by its tag after
//! that. It doesn't retry: a throttled launch is postponed in its own item, and the next wake continues.
//!
//! Invariants: only committed requests are sent, byte for byte; a settlement that loses its race changes nothing, since
//! the winner has settled the same launch.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClusterName, InstanceId, LaunchId};
use tenon_domain::launch::{EC2_CONSISTENCY, Launch, LaunchState, REPLAY_WITHIN};
use tenon_domain::tags;
use tenon_domain::unavailable::{FIRST_HOLD, Mark, Marks, RequestDigest, UnavailableKey};
use tenon_ec2::port::{CreateFleetRequest, Instance, InstanceFilter, TagFilter, Tags};
use tenon_ec2::{Ec2, Ec2Error, ErrorClass};
use tenon_launching::build::BuiltLaunch;
use tenon_launching::template::from_stored;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::observe::ClusterObservation;
use tenon_state::step::Change;
use tenon_state::view::ClusterView;
use tenon_table::items::{InstanceOwner, TemplateItem, keys, put, set, set_expiring};
use tenon_table::{CommitError, Expect, Table, Write};
use tenon_table::{commit_through_conflicts, content_commit};

use crate::denials;
use crate::settle::{CatalogFacts, LaunchAnswer, SettleFailure, SettleInput, Settlement, settle};
use crate::validated::{Noted, Validated};
use crate::written_marks::{WrittenMarks, write_mark};

/// The first wait before a postponed launch is sent again; it doubles each time.
const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_secs(5);
/// The longest wait: EC2 must still remember the token when the launch is sent again.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_mins(1);
/// How long a failed claim is kept.
const CLAIM_KEPT: SignedDuration = SignedDuration::from_hours(24);
/// How long a launch without instances is kept.
const LAUNCH_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The most pages of a launch's instances.
const PAGES: usize = 10;
/// Launches that are sent side by side. EC2 takes 50 mutating calls at once and 5 a second after them from an account and
/// region ("Request throttling for the Amazon EC2 API", read November 2026); the rest is for other tools.
const SIDE_BY_SIDE: usize = 20;
/// Calls for tags that are made side by side. EC2 takes 100 at once and 10 a second after them.
const TAGS_SIDE_BY_SIDE: usize = 10;
/// Most instances that are tagged in one wake: the audit tags the others.
const TAGGED_AT_ONCE: usize = 50;

/// The result of sending launches.
#[derive(Debug, Default)]
pub(crate) struct SentLaunches {
    /// Claims with an instance.
    pub(crate) launched: Vec<Claim>,
    /// Claims without one.
    pub(crate) failed: Vec<Claim>,
    /// The number of settled launches, including those that another run settled first.
    pub(crate) settled: usize,
    /// Whether another plan at once may help.
    pub(crate) plan_again: bool,
    /// When the first postponed launch is due.
    pub(crate) retry_at: Option<Timestamp>,
    /// Whether EC2's answers changed what the conditions of a class tell of its launches.
    pub(crate) classes: bool,
}

/// EC2's answer to a launch, or the time to ask again.
enum SendOutcome {
    Answer(LaunchAnswer),
    PutOff(Timestamp),
    /// Not due, so nothing is written.
    NotDue(Timestamp),
}

/// A launch and its claims, in the launch's order.
pub(crate) struct DueLaunch<'a> {
    pub(crate) launch: &'a Launch,
    pub(crate) claims: Vec<&'a Claim>,
    /// The marks that it leased since the observation.
    pub(crate) leases: &'a [Mark],
    /// Its templates, if it was committed since the observation.
    pub(crate) templates: Vec<TemplateItem>,
}

impl<'a> DueLaunch<'a> {
    /// A launch that this pass committed.
    pub(crate) fn built(built: &'a BuiltLaunch) -> Self {
        Self {
            launch: &built.launch,
            claims: built.claims.iter().collect(),
            leases: &built.leases,
            templates: built.template_items().collect(),
        }
    }

    /// The next time to send it, or to search for its instances.
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

/// The unsettled launches, oldest first.
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

/// A launch before it is sent: its request, or why it isn't sent.
enum PreparedLaunch {
    Request(Box<CreateFleetRequest>),
    Outcome(SendOutcome),
}

/// Sends and settles the launches.
pub(crate) async fn send_all<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    observed: &ClusterObservation,
    launches: &[DueLaunch<'_>],
) -> Result<SentLaunches, HandlerError> {
    let mut sending = Sending::new(cluster, observed);
    sending.send(ports, launches).await?;
    Ok(sending.sent)
}

/// The state while the launches of one observation are sent.
pub(crate) struct Sending<'a> {
    cluster: &'a ClusterName,
    view: &'a ClusterView,
    validated: Validated<'a>,
    written: WrittenMarks,
    /// Launch templates that exist in EC2, as this pass found out.
    made: BTreeSet<String>,
    /// The result so far.
    pub(crate) sent: SentLaunches,
}

impl<'a> Sending<'a> {
    /// Before the first launch.
    pub(crate) fn new(cluster: &'a ClusterName, observed: &'a ClusterObservation) -> Self {
        Self {
            cluster,
            view: &observed.view,
            validated: Validated::new(cluster, observed),
            written: WrittenMarks::new(),
            made: BTreeSet::new(),
            sent: SentLaunches::default(),
        }
    }

    /// Sends launches side by side, and settles them in their order. Those behind a failed write are sent, too: what
    /// EC2 answered them is found by their tokens.
    pub(crate) async fn send<P: Ports>(
        &mut self,
        ports: &P,
        launches: &[DueLaunch<'_>],
    ) -> Result<(), HandlerError> {
        for some in launches.chunks(SIDE_BY_SIDE) {
            let now = ports.now();
            let mut prepared = Vec::with_capacity(some.len());
            // One after the other, since launches share templates.
            for due in some {
                prepared.push(self.prepare(ports, due, now).await?);
            }
            let asked =
                some.iter().zip(prepared).map(|(due, prepared)| ask(ports, due.launch, prepared, now));
            let answers = futures::future::join_all(asked).await;
            for (due, outcome) in some.iter().zip(answers) {
                self.settle(ports, due, outcome).await?;
            }
        }
        Ok(())
    }

    /// Writes what became of a launch.
    async fn settle<P: Ports>(
        &mut self,
        ports: &P,
        due: &DueLaunch<'_>,
        outcome: SendOutcome,
    ) -> Result<(), HandlerError> {
        match outcome {
            SendOutcome::NotDue(at) => self.sent.put_off(at),
            SendOutcome::PutOff(at) => {
                put_off(ports, self.cluster, due.launch, at).await?;
                self.sent.put_off(at);
            }
            SendOutcome::Answer(answer) => {
                let answer = denials::told(ports, answer).await;
                let marks: Marks = self.view.marks.iter().chain(due.leases).cloned().collect();
                let input = SettleInput {
                    // The time of the answer: the call may have taken most of a mark's first hold.
                    now: ports.now(),
                    cluster: self.cluster,
                    launch: due.launch,
                    claims: &due.claims,
                    status: self.view.classes.get(&due.launch.class).filter(|status| {
                        let made_from = due.launch.made_from.as_ref();
                        made_from.is_none_or(|of| *of == RequestDigest::of_class(self.cluster, status))
                    }),
                    marks: &marks,
                    catalog: CatalogFacts::of(&self.view.parts),
                };
                let settlement = settle(input, &answer);
                for word in &settlement.marks {
                    write_mark(ports, input, word, &mut self.written).await?;
                }
                record(ports, self.cluster, due.launch, &settlement).await?;
                match self.validated.note(ports, due.launch, &settlement).await? {
                    Noted::Nothing => {}
                    Noted::Consent => self.sent.classes = true,
                    Noted::DoubtEnded => {
                        self.sent.classes = true;
                        // Pods waited for this launch.
                        self.sent.plan_again = true;
                    }
                }
                // Pods wait for the result of a probe.
                self.sent.plan_again |= !due.leases.is_empty();
                self.sent.take(settlement);
            }
        }
        Ok(())
    }

    /// Reads the request of a launch that may be sent, and makes its templates.
    async fn prepare<P: Ports>(
        &mut self,
        ports: &P,
        due: &DueLaunch<'_>,
        now: Timestamp,
    ) -> Result<PreparedLaunch, HandlerError> {
        let launch = due.launch;
        let attempts = match launch.state {
            LaunchState::Requested { not_before, .. } if now < not_before => {
                return Ok(PreparedLaunch::Outcome(SendOutcome::NotDue(not_before)));
            }
            LaunchState::Requested { attempts, .. } => attempts,
            LaunchState::Settled { at, .. } => return Ok(PreparedLaunch::Outcome(SendOutcome::NotDue(at))),
        };
        let age = now.duration_since(launch.created_at);
        if age >= REPLAY_WITHIN + EC2_CONSISTENCY {
            return Ok(PreparedLaunch::Outcome(match find(ports, &launch.id).await {
                Ok(found) => SendOutcome::Answer(LaunchAnswer::Found(found)),
                Err(_) => SendOutcome::PutOff(later(now, attempts)),
            }));
        }
        if age >= REPLAY_WITHIN {
            return Ok(PreparedLaunch::Outcome(SendOutcome::NotDue(looked_for_at(launch, now))));
        }
        let request =
            CreateFleetRequest::from_stored(&launch.request).map_err(|source| HandlerError::Item {
                key: keys::launch(self.cluster, &launch.id).to_string(),
                source: Box::new(source),
            })?;
        let templates = request.launch_templates.iter().map(|template| template.name.as_str());
        for name in templates {
            if let Err(error) = self.make_template(ports, due, name).await? {
                return Ok(PreparedLaunch::Outcome(judged(error, launch, now)));
            }
        }
        Ok(PreparedLaunch::Request(Box::new(request)))
    }

    /// Creates a launch template, unless it is known to exist. The template was observed with its launch, or this pass
    /// wrote it, so it isn't read again.
    pub(crate) async fn make_template<P: Ports>(
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
        // Without an item, the template may still exist: CreateFleet's answer shows it.
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
    /// Schedules a retry.
    pub(crate) fn put_off(&mut self, at: Timestamp) {
        self.retry_at = Some(self.retry_at.map_or(at, |first| first.min(at)));
    }

    fn take(&mut self, settlement: Settlement) {
        self.settled += 1;
        let of_classes = |key: &UnavailableKey| {
            matches!(key, UnavailableKey::Request(_) | UnavailableKey::CapacityType(_))
        };
        self.classes |= settlement.marks.iter().any(|word| of_classes(&word.key));
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

    /// Adds the result of a later run, whose `plan_again` counts alone.
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

/// When to search by tag for the instances of a launch whose token has expired: DescribeInstances shows them by then.
fn looked_for_at(launch: &Launch, now: Timestamp) -> Timestamp {
    launch.created_at.saturating_add(REPLAY_WITHIN + EC2_CONSISTENCY).unwrap_or(now)
}

/// Sends a prepared launch.
async fn ask<P: Ports>(ports: &P, launch: &Launch, prepared: PreparedLaunch, now: Timestamp) -> SendOutcome {
    match prepared {
        PreparedLaunch::Outcome(outcome) => outcome,
        PreparedLaunch::Request(request) => match ports.ec2().create_fleet(&request).await {
            Ok(result) => SendOutcome::Answer(LaunchAnswer::Fleet(result)),
            Err(error) => judged(error, launch, now),
        },
    }
}

/// The outcome of a failed call for the launch.
fn judged(error: Ec2Error, launch: &Launch, now: Timestamp) -> SendOutcome {
    let attempts = match launch.state {
        LaunchState::Requested { attempts, .. } => attempts,
        LaunchState::Settled { .. } => 0,
    };
    match error.class() {
        ErrorClass::Throttled | ErrorClass::Server => SendOutcome::PutOff(later(now, attempts)),
        // A different request used this token: only the tag shows the launch's instances.
        ErrorClass::TokenMismatch => SendOutcome::PutOff(looked_for_at(launch, now)),
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

/// Writes a settlement in one transaction. Its marks are written before, each in its own transaction.
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

/// Ignores a lost race: another run settled or postponed the launch.
fn unless_lost(outcome: Result<(), CommitError>) -> Result<(), HandlerError> {
    match outcome {
        Ok(()) | Err(CommitError::LostRace { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Names the instances after their claims, at a bounded rate. Best effort: the audit repairs what is missing.
pub(crate) async fn tag<P: Ports>(ports: &P, launched: &[Claim]) {
    let instances = launched.iter().filter_map(|claim| Some((claim, claim.state.instance()?)));
    let named: Vec<(&InstanceId, Tags)> = instances
        .map(|(claim, instance)| {
            let tags = [tags::CLAIM, tags::NAME].map(|tag| (tag.to_owned(), claim.name.to_string()));
            (&instance.id, Tags::from(tags))
        })
        .take(TAGGED_AT_ONCE)
        .collect();
    for some in named.chunks(TAGS_SIDE_BY_SIDE) {
        let calls = some.iter().map(|(id, tags)| ports.ec2().create_tags(std::slice::from_ref(*id), tags));
        let refused = |answer: &Result<(), Ec2Error>| {
            matches!(answer, Err(Ec2Error::Throttled { .. } | Ec2Error::Unauthorized { .. }))
        };
        if futures::future::join_all(calls).await.iter().any(refused) {
            break;
        }
    }
}
