//! Asks EC2 about launches side by side, and passes the answers on as they come.
//!
//! Decides the order of the calls; `pace` decides how many there are at a time. A launch goes out as soon as its templates
//! are there; templates are made side by side with other launches' requests. It settles nothing.
//!
//! Invariants: a template is made once at a time, however many launches name it; each launch gets one answer; calls
//! never wait for each other's answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::task::Poll;

use futures::channel::mpsc::UnboundedSender;
use futures::stream::{FuturesUnordered, Stream, StreamExt};
use jiff::{SignedDuration, Timestamp};
use tenon_domain::id::{ClusterName, LaunchId};
use tenon_domain::launch::{EC2_CONSISTENCY, Launch, LaunchState, REPLAY_WITHIN};
use tenon_domain::tags;
use tenon_domain::wait::{doubled, later};
use tenon_ec2::port::{CreateFleetRequest, Instance, InstanceFilter, TagFilter};
use tenon_ec2::{Ec2, Ec2Error, ErrorClass};
use tenon_runtime::{HandlerError, Ports};
use tenon_state::view::ClusterView;
use tenon_table::items::{TemplateItem, keys};

use super::due::{DueLaunch, looked_for_at};
use super::pace::{CallPace, THEN_EVERY};
use super::templates::{make, unmade};
use crate::launcher::Launcher;
use crate::settle::LaunchAnswer;

/// The first wait before a postponed launch is sent again; it doubles each time.
const FIRST_BACK_OFF: SignedDuration = SignedDuration::from_secs(5);
/// The longest wait: EC2 must still remember the token when the launch is sent again.
const LONGEST_BACK_OFF: SignedDuration = SignedDuration::from_mins(1);
/// The most pages of a launch's instances.
const PAGES: usize = 10;

/// EC2's answer to a launch, or the time to ask again.
pub(crate) enum SendOutcome {
    Answer(LaunchAnswer),
    PutOff(Timestamp),
    /// Not due, so nothing is written.
    NotDue(Timestamp),
}

/// A launch and what became of its call.
pub(crate) struct AnsweredLaunch<'a> {
    pub(crate) due: &'a DueLaunch<'a>,
    pub(crate) outcome: SendOutcome,
}

/// Whom launches are asked of, and how fast.
pub(crate) struct LaunchAsker<'a, P: Ports> {
    pub(crate) ports: &'a P,
    pub(crate) launcher: Launcher<'a, P::Ec2>,
    pub(crate) pace: &'a CallPace,
}

/// Asks about each launch that the stream gives, until it ends.
///
/// # Errors
/// [`HandlerError`] for unreadable items and for the table's failures.
pub(crate) async fn ask_all<'a, P: Ports>(
    with: &LaunchAsker<'_, P>,
    mut queue: CallQueue<'a>,
    mut launches: impl Stream<Item = &'a DueLaunch<'a>> + Unpin,
    answers: UnboundedSender<AnsweredLaunch<'a>>,
) -> Result<(), HandlerError> {
    let mut calls = FuturesUnordered::new();
    let (mut all_given, mut is_waiting) = (false, false);
    loop {
        while !queue.is_empty() && with.pace.take(with.ports.now()) {
            calls.extend(queue.next().map(|call| run(with, queue.cluster, call)));
        }
        if !queue.is_empty() && !is_waiting {
            is_waiting = true;
            calls.push(run(with, queue.cluster, DueCall::Wait));
        }
        if all_given && calls.is_empty() {
            return Ok(());
        }
        let heard = poll_fn(|context| {
            if !all_given && let Poll::Ready(given) = launches.poll_next_unpin(context) {
                return Poll::Ready(AskingEvent::Launch(given));
            }
            match calls.poll_next_unpin(context) {
                Poll::Ready(Some(ended)) => Poll::Ready(AskingEvent::Call(ended)),
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            }
        });
        let answered = match heard.await {
            AskingEvent::Launch(None) => {
                all_given = true;
                Vec::new()
            }
            AskingEvent::Launch(Some(due)) => queue.add(due, with.ports.now())?.into_iter().collect(),
            AskingEvent::Call(ended) => {
                let ended = ended?;
                is_waiting &= !matches!(ended, EndedCall::Waited);
                queue.ended(ended, with.ports.now())
            }
        };
        for answer in answered {
            // Nobody hears answers only where settling has failed, and then this ends, too.
            let _ = answers.unbounded_send(answer);
        }
    }
}

/// What asking waits for.
enum AskingEvent<'a> {
    Launch(Option<&'a DueLaunch<'a>>),
    Call(Result<EndedCall<'a>, HandlerError>),
}

/// A call that is due.
pub(crate) enum DueCall<'a> {
    /// None: the next one is due later.
    Wait,
    Make(&'a TemplateItem),
    Send(&'a DueLaunch<'a>, Box<CreateFleetRequest>),
    Find(&'a DueLaunch<'a>),
}

/// A call's result.
pub(crate) enum EndedCall<'a> {
    Waited,
    Made(&'a TemplateItem, Result<(), Ec2Error>),
    Sent(&'a DueLaunch<'a>, Result<LaunchAnswer, Ec2Error>),
    Found(&'a DueLaunch<'a>, Result<LaunchAnswer, Ec2Error>),
}

async fn run<'a, P: Ports>(
    with: &LaunchAsker<'_, P>,
    cluster: &ClusterName,
    call: DueCall<'a>,
) -> Result<EndedCall<'a>, HandlerError> {
    let LaunchAsker { ports, launcher, .. } = with;
    Ok(match call {
        DueCall::Wait => {
            ports.pause(THEN_EVERY).await;
            EndedCall::Waited
        }
        DueCall::Make(template) => {
            EndedCall::Made(template, make(*ports, launcher, cluster, template).await?)
        }
        DueCall::Send(due, request) => {
            EndedCall::Sent(due, launcher.create_fleet(&request).await.map(LaunchAnswer::Fleet))
        }
        DueCall::Find(due) => {
            EndedCall::Found(due, find(*ports, &due.launch.id).await.map(LaunchAnswer::Found))
        }
    })
}

/// The calls that wait for a slot, and the launches that wait for their templates.
pub(crate) struct CallQueue<'a> {
    cluster: &'a ClusterName,
    view: &'a ClusterView,
    /// Templates first: several launches may wait for one.
    templates: VecDeque<&'a TemplateItem>,
    launches: VecDeque<DueCall<'a>>,
    waiting: Vec<WaitingLaunch<'a>>,
    /// Templates that were made, or are being made.
    making: BTreeMap<&'a str, TemplateMaking>,
}

/// How far a template is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemplateMaking {
    UnderWay,
    Made,
}

/// A launch without some of its templates.
struct WaitingLaunch<'a> {
    due: &'a DueLaunch<'a>,
    request: Box<CreateFleetRequest>,
    missing: BTreeSet<&'a str>,
}

impl<'a> CallQueue<'a> {
    pub(crate) fn new(cluster: &'a ClusterName, view: &'a ClusterView) -> Self {
        Self {
            cluster,
            view,
            templates: VecDeque::new(),
            launches: VecDeque::new(),
            waiting: Vec::new(),
            making: BTreeMap::new(),
        }
    }

    pub(crate) fn next(&mut self) -> Option<DueCall<'a>> {
        self.templates.pop_front().map(DueCall::Make).or_else(|| self.launches.pop_front())
    }

    fn is_empty(&self) -> bool {
        self.templates.is_empty() && self.launches.is_empty()
    }

    /// Adds a launch; an answer at once is that it isn't due.
    pub(crate) fn add(
        &mut self,
        due: &'a DueLaunch<'a>,
        now: Timestamp,
    ) -> Result<Option<AnsweredLaunch<'a>>, HandlerError> {
        let launch = due.launch;
        let not_before = match launch.state {
            LaunchState::Requested { not_before, .. } => not_before,
            LaunchState::Settled { at, .. } => return Ok(Some(not_due(due, at))),
        };
        if now < not_before {
            return Ok(Some(not_due(due, not_before)));
        }
        let age = now.duration_since(launch.created_at);
        if age >= REPLAY_WITHIN + EC2_CONSISTENCY {
            self.launches.push_back(DueCall::Find(due));
            return Ok(None);
        }
        if age >= REPLAY_WITHIN {
            return Ok(Some(not_due(due, looked_for_at(launch, now))));
        }
        let request =
            CreateFleetRequest::from_stored(&launch.request).map_err(|source| HandlerError::Item {
                key: keys::launch(self.cluster, &launch.id).to_string(),
                source: Box::new(source),
            })?;
        let request = Box::new(request);
        let missing = self.missing(due, &request);
        if missing.is_empty() {
            self.launches.push_back(DueCall::Send(due, request));
        } else {
            self.waiting.push(WaitingLaunch { due, request, missing });
        }
        Ok(None)
    }

    /// The templates that the launch waits for. Those that nobody makes yet are due.
    fn missing(&mut self, due: &'a DueLaunch<'a>, request: &CreateFleetRequest) -> BTreeSet<&'a str> {
        let mut missing = BTreeSet::new();
        for named in &request.launch_templates {
            let Some(template) = unmade(self.view, &due.templates, &named.name) else { continue };
            match self.making.get(template.name.as_str()) {
                Some(TemplateMaking::Made) => continue,
                Some(TemplateMaking::UnderWay) => {}
                None => {
                    self.templates.push_back(template);
                    self.making.insert(&template.name, TemplateMaking::UnderWay);
                }
            }
            missing.insert(template.name.as_str());
        }
        missing
    }

    /// The answers that a call's end gives.
    pub(crate) fn ended(&mut self, ended: EndedCall<'a>, now: Timestamp) -> Vec<AnsweredLaunch<'a>> {
        match ended {
            EndedCall::Waited => Vec::new(),
            EndedCall::Sent(due, Ok(answer)) | EndedCall::Found(due, Ok(answer)) => {
                vec![AnsweredLaunch { due, outcome: SendOutcome::Answer(answer) }]
            }
            EndedCall::Sent(due, Err(error)) => {
                vec![AnsweredLaunch { due, outcome: judged(error, due.launch, now) }]
            }
            EndedCall::Found(due, Err(_)) => {
                vec![AnsweredLaunch { due, outcome: SendOutcome::PutOff(again_at(due.launch, now)) }]
            }
            EndedCall::Made(template, Ok(())) => {
                self.making.insert(&template.name, TemplateMaking::Made);
                for waiting in &mut self.waiting {
                    waiting.missing.remove(template.name.as_str());
                }
                let there = self.waiting.extract_if(.., |waiting| waiting.missing.is_empty());
                self.launches.extend(there.map(|launch| DueCall::Send(launch.due, launch.request)));
                Vec::new()
            }
            EndedCall::Made(template, Err(error)) => {
                // The next launch that names it tries again.
                self.making.remove(template.name.as_str());
                let name = template.name.as_str();
                let refused = self.waiting.extract_if(.., |waiting| waiting.missing.contains(name));
                let answer = |waiting: WaitingLaunch<'a>| AnsweredLaunch {
                    due: waiting.due,
                    outcome: judged(error.clone(), waiting.due.launch, now),
                };
                refused.map(answer).collect()
            }
        }
    }
}

fn not_due<'a>(due: &'a DueLaunch<'a>, at: Timestamp) -> AnsweredLaunch<'a> {
    AnsweredLaunch { due, outcome: SendOutcome::NotDue(at) }
}

/// How often the launch was put off.
fn attempts(launch: &Launch) -> u32 {
    match launch.state {
        LaunchState::Requested { attempts, .. } => attempts,
        LaunchState::Settled { .. } => 0,
    }
}

/// The outcome of a failed call for the launch.
fn judged(error: Ec2Error, launch: &Launch, now: Timestamp) -> SendOutcome {
    match error.class() {
        ErrorClass::Throttled | ErrorClass::Server => SendOutcome::PutOff(again_at(launch, now)),
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

/// When a launch that is put off now is sent again.
pub(super) fn again_at(launch: &Launch, now: Timestamp) -> Timestamp {
    later(now, doubled(FIRST_BACK_OFF, attempts(launch), LONGEST_BACK_OFF))
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
