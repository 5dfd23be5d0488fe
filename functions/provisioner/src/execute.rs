//! Sends launches to EC2 and settles them.
//!
//! Decides how answers become settlements: one after another, in the order in which they come, while other requests are
//! under way. `ask` decides the calls, `record` what is written. A launch's result is found out by its stored request
//! while EC2 remembers the token, by its tag after that. It doesn't retry: a throttled launch is postponed in its own
//! item, and the next wake continues.
//!
//! Invariant: only committed requests are sent, byte for byte.

pub(crate) mod ask;
mod due;
mod pace;
mod record;
mod sent;
mod tag;
mod templates;

use futures::channel::mpsc;
use futures::future::try_join;
use futures::stream::{self, Stream, StreamExt};
use jiff::Timestamp;
use tenon_domain::id::ClusterName;
use tenon_domain::money::Currency;
use tenon_domain::unavailable::{Marks, RequestDigest, UnavailableKey};
use tenon_ec2::port::CreateFleetRequest;
use tenon_runtime::{HandlerError, Ports};
use tenon_state::observe::ClusterObservation;
use tenon_state::view::ClusterView;

use crate::denials::{self, DeniedLaunch, ToldAnswer};
use crate::launcher::Launcher;
use crate::settle::{CatalogFacts, MarkWord, SettleFailure, SettleInput, Settlement, settle};
use crate::validated::{Noted, Validated};
use crate::written_marks::{WrittenMarks, write_mark};
use ask::{AnsweredLaunch, CallQueue, LaunchAsker, SendOutcome, again_at, ask_all};
use record::{put_off, record};

pub(crate) use due::{DueLaunch, due};
pub(crate) use pace::CallPace;
pub(crate) use record::CLAIM_KEPT;
pub(crate) use sent::SentLaunches;
pub(crate) use tag::tag;
pub(crate) use templates::{TemplateSight, make, newest, sight, unmade};

/// Sends and settles launches.
///
/// # Errors
/// As [`send_each`].
pub(crate) async fn send_all<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    observed: &ClusterObservation,
    pace: &CallPace,
    launches: &[DueLaunch<'_>],
) -> Result<SentLaunches, HandlerError> {
    send_each(ports, cluster, observed, pace, stream::iter(launches)).await
}

/// Sends and settles the launches that the stream gives, until it ends. A failed write ends it: launches behind it
/// that were sent are found by their tokens.
///
/// # Errors
/// [`HandlerError`] for unreadable items and for the table's failures.
pub(crate) async fn send_each<'a, P: Ports>(
    ports: &P,
    cluster: &'a ClusterName,
    observed: &'a ClusterObservation,
    pace: &CallPace,
    launches: impl Stream<Item = &'a DueLaunch<'a>> + Unpin,
) -> Result<SentLaunches, HandlerError> {
    let (answers, mut answered) = mpsc::unbounded();
    let mut settling = Settling::new(cluster, observed);
    let launcher = Launcher::of(ports, cluster, &observed.view).await;
    let asker = LaunchAsker { ports, launcher, pace };
    let asking = ask_all(&asker, CallQueue::new(cluster, &observed.view), launches, answers);
    let settle = async {
        while let Some(AnsweredLaunch { due, outcome }) = answered.next().await {
            settling.settle(ports, due, outcome).await?;
        }
        Ok::<(), HandlerError>(())
    };
    try_join(asking, settle).await?;
    Ok(settling.sent)
}

/// The state while the launches of one observation are settled.
struct Settling<'a> {
    cluster: &'a ClusterName,
    view: &'a ClusterView,
    validated: Validated<'a>,
    written: WrittenMarks,
    /// The result so far.
    sent: SentLaunches,
}

impl<'a> Settling<'a> {
    fn new(cluster: &'a ClusterName, observed: &'a ClusterObservation) -> Self {
        Self {
            cluster,
            view: &observed.view,
            validated: Validated::new(cluster, observed),
            written: WrittenMarks::new(),
            sent: SentLaunches::default(),
        }
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
                let told = denials::told(ports, answer).await;
                let now = ports.now();
                match told.is_of_unseen_template().then(|| self.sight(due, now)) {
                    None | Some(TemplateSight::Denied) => self.answer(ports, due, &told).await?,
                    Some(TemplateSight::Gone) => {
                        self.answer(ports, due, &ToldAnswer::of_missing_template()).await?;
                    }
                    Some(TemplateSight::NotYet) => {
                        let at = again_at(due.launch, now);
                        put_off(ports, self.cluster, due.launch, at).await?;
                        self.sent.put_off(at);
                    }
                }
            }
        }
        Ok(())
    }

    /// What it means that EC2 doesn't find a template of the launch.
    fn sight(&self, due: &DueLaunch<'_>, now: Timestamp) -> TemplateSight {
        let request = CreateFleetRequest::from_stored(&due.launch.request);
        let names = request.iter().flat_map(|request| &request.launch_templates).map(|t| t.name.as_str());
        sight(newest(self.view, &due.templates, names, now), due.launch.created_at, now)
    }

    /// Settles a launch by EC2's answer.
    async fn answer<P: Ports>(
        &mut self,
        ports: &P,
        due: &DueLaunch<'_>,
        told: &ToldAnswer,
    ) -> Result<(), HandlerError> {
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
            currency: Currency::of_region(&ports.installation().region),
        };
        let settlement = settle(input, &told.answer);
        for word in &settlement.marks {
            write_mark(ports, input, word, &mut self.written).await?;
        }
        record(ports, self.cluster, due.launch, &settlement).await?;
        let held = self.held_until(&settlement);
        if let Some(at) = held {
            self.sent.put_off(at);
        }
        let noted = match DeniedLaunch::read(told).filter(|_| settlement.failed.is_some()) {
            Some(denied) => self.validated.deny(ports, due.launch, &denied, held).await?,
            None => self.validated.note(ports, due.launch, &settlement).await?,
        };
        match noted {
            Noted::Nothing => {}
            Noted::Consent | Noted::Denial => self.sent.classes = true,
            Noted::DoubtEnded => {
                self.sent.classes = true;
                // Pods waited for this launch.
                self.sent.plan_again = true;
            }
        }
        // Pods wait for the result of a probe.
        self.sent.plan_again |= !due.leases.is_empty();
        self.sent.take(settlement);
        Ok(())
    }

    /// When a refused request is asked for again, by the mark that it left.
    fn held_until(&self, settlement: &Settlement) -> Option<Timestamp> {
        if settlement.failed != Some(SettleFailure::Request) {
            return None;
        }
        let is_request = |word: &&MarkWord| matches!(word.key, UnavailableKey::Request(_));
        let mark = |word: &MarkWord| self.written.get(&word.key).and_then(Option::as_ref);
        let marks = settlement.marks.iter().filter(is_request).filter_map(mark);
        marks.map(|mark| mark.blocked_until().min(mark.last_resort_at())).max()
    }
}
