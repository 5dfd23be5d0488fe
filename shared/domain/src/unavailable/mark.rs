//! One mark: what is known of a refusal, and how that changes.
//!
//! Decides for how long nothing is asked for, who may ask first, and what an answer changes. All of it is pure: a
//! transition gives the mark's next form, or nothing where there is nothing to write. Writing it under the revision of
//! the form before is the caller's.
//!
//! Invariants: between the last answer and `until` there are at least [`FIRST_HOLD`] and at most [`MOST_HOLD`]; `count`
//! goes up only by the answer of the launch that holds the lease, so the failures of one storm count once; whatever is
//! settled twice changes nothing the second time; an answer that is given again is the same.

use jiff::{SignedDuration, Timestamp};

use crate::digest::Digest;
use crate::id::{ClusterName, LaunchId};
use crate::unavailable::key::{UnavailableKey, Wanted};

/// How long nothing is asked for after the first refusal. A pool that is short for a moment has some again by then, and
/// what is cheaper elsewhere costs little for so long.
pub const FIRST_HOLD: SignedDuration = SignedDuration::from_mins(1);
/// Never longer than this between two probes: the doubling of [`FIRST_HOLD`] reaches it with the eighth refusal.
pub const MOST_HOLD: SignedDuration = SignedDuration::from_hours(2);
/// The shortest hold after an interruption: EC2 needs the capacity that it takes back. Source:
/// `UnavailableOfferingsTTL` of aws/karpenter-provider-aws `pkg/cache/cache.go`.
pub const INTERRUPTED_HOLD: SignedDuration = SignedDuration::from_mins(3);
/// A pod without another offering waits at most this long for a probe, however long the mark holds. The peer asks again
/// after the same time ([`INTERRUPTED_HOLD`]), so no pod waits longer than with it.
pub const LAST_RESORT: SignedDuration = SignedDuration::from_mins(3);
/// How long a probe may keep others from asking. A launch is answered in seconds; one that was cut is sent again by the
/// next sweep or the one after.
pub const LEASE: SignedDuration = SignedDuration::from_mins(3);
/// How long a mark that nobody asked after is remembered once it holds no more: a refusal then begins anew.
pub const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(2);

/// The jitter is at most this part of a hold, so that marks of one moment don't end in one.
const JITTER_PART: i32 = 8;
/// What is the last resort is asked for earlier by at most this part of [`LAST_RESORT`]: what was refused in
/// different moments drifts apart, so that any capacity that is back is found by the next of them, and not only once
/// in three minutes. What one launch was refused is asked for by one.
const EARLIER_PART: i32 = 4;
/// The code of what EC2 took back, for which it isn't asked again before it has it: two minutes after its warning.
pub const SPOT_INTERRUPTION: &str = "SpotInterruption";
/// The same of a capacity reservation, whose owner takes its instances back.
pub const RESERVATION_INTERRUPTION: &str = "CapacityReservationInterruption";

/// What is known of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// What is exhausted.
    pub key: UnavailableKey,
    /// Counts up with every write of the mark; 0 where its item has none.
    pub revision: u64,
    /// EC2's code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    /// EC2's words, where a request is refused for what it is.
    pub message: Option<String>,
    /// How often in a row it was refused, a storm counting once; 0 once it was had again.
    pub count: u32,
    /// When it was refused first.
    pub since: Timestamp,
    /// When EC2 was last asked, or last took an instance back.
    pub asked_at: Timestamp,
    /// Until when asking again is pointless.
    pub until: Timestamp,
    /// Of a quota: the vCPUs of the smallest type that was refused. Smaller ones may still fit.
    pub from_vcpus: Option<u32>,
    /// The launch that asks, or asked, first.
    pub probe: Option<Probe>,
    /// The cluster whose request was refused last.
    pub seen_by: ClusterName,
}

/// The right of one launch to ask for what is marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The launch's cluster.
    pub cluster: ClusterName,
    /// The launch.
    pub launch: LaunchId,
    /// Since when.
    pub at: Timestamp,
    /// Until when nobody else asks.
    pub until: Timestamp,
}

impl Probe {
    /// The lease of a launch that is planned now.
    #[must_use]
    pub fn of(asked: LaunchAsked<'_>) -> Self {
        Self {
            cluster: asked.cluster.clone(),
            launch: asked.launch.clone(),
            at: asked.planned_at,
            until: after(asked.planned_at, LEASE),
        }
    }

    fn is_of(&self, cluster: &ClusterName, launch: &LaunchId) -> bool {
        self.cluster == *cluster && self.launch == *launch
    }
}

/// What a mark means at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkState<'a> {
    /// It says nothing any more: it was had again, or is too old.
    Forgotten,
    /// It isn't asked for.
    Held,
    /// One launch asks for it; nobody else does.
    Probing(&'a Probe),
    /// Whoever takes the lease may ask.
    Due,
}

/// EC2 refused something.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// What.
    pub key: &'a UnavailableKey,
    /// EC2's code.
    pub code: &'a str,
    /// The cluster that was refused.
    pub cluster: &'a ClusterName,
    /// How.
    pub cause: RefusalCause<'a>,
    /// Of a quota: the vCPUs of the type that was refused.
    pub vcpus: Option<u32>,
    /// When.
    pub now: Timestamp,
}

/// How EC2 refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCause<'a> {
    /// As the answer to a launch.
    Launch(&'a LaunchId),
    /// By taking an instance back.
    Interruption,
}

/// A launch that asked.
#[derive(Debug, Clone, Copy)]
pub struct LaunchAsked<'a> {
    /// Its cluster.
    pub cluster: &'a ClusterName,
    /// The launch.
    pub launch: &'a LaunchId,
    /// When it was planned: what is marked later, it didn't know of.
    pub planned_at: Timestamp,
}

impl Mark {
    /// What it means now.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> MarkState<'_> {
        if now >= self.forget_at() {
            return MarkState::Forgotten;
        }
        match &self.probe {
            Some(probe) if now < probe.until => MarkState::Probing(probe),
            Some(_) | None if now < self.until => MarkState::Held,
            Some(_) | None => MarkState::Due,
        }
    }

    /// Until when nobody else may ask: the end of its hold, or of a lease that ends later.
    #[must_use]
    pub fn blocked_until(&self) -> Timestamp {
        self.probe.as_ref().map_or(self.until, |probe| probe.until.max(self.until))
    }

    /// From when on it is asked for all the same where nothing else is left.
    #[must_use]
    pub fn last_resort_at(&self) -> Timestamp {
        let asked = after(self.asked_at, LAST_RESORT.saturating_sub(self.earlier()));
        self.probe.as_ref().map_or(asked, |probe| probe.until.max(asked))
    }

    /// From when on it says nothing, and its item may go.
    #[must_use]
    pub fn forget_at(&self) -> Timestamp {
        if self.count == 0 { self.until } else { after(self.blocked_until(), FORGET_AFTER) }
    }

    /// Whether it is about this way to have a node.
    #[must_use]
    pub fn concerns(&self, wanted: &Wanted<'_>) -> bool {
        self.from_vcpus.is_none_or(|from| wanted.vcpus >= from) && self.key.concerns(wanted)
    }

    /// The mark after a refusal. Nothing where that is known already: while it holds, or somebody else probes.
    #[must_use]
    pub fn refused(before: Option<&Self>, refusal: &Refusal<'_>) -> Option<Self> {
        let Some(mark) = before else { return Some(Self::first(0, refusal)) };
        let from_vcpus = mark.lowered(refusal);
        let next = |count: u32| {
            let renewed = Self { from_vcpus, ..mark.clone() };
            Some(renewed.asked(count, refusal))
        };
        match (mark.state(refusal.now), refusal.cause) {
            (MarkState::Forgotten, _) => Some(Self::first(mark.revision, refusal)),
            (_, RefusalCause::Launch(launch)) if mark.is_probed_by(refusal.cluster, launch) => {
                next(mark.count.saturating_add(1))
            }
            // Planned before it was marked, and sent late; or an instance is taken back meanwhile.
            (MarkState::Due, _) => next(mark.count),
            (MarkState::Held | MarkState::Probing(_), _) => (from_vcpus != mark.from_vcpus).then(|| Self {
                from_vcpus,
                revision: mark.revision.saturating_add(1),
                ..mark.clone()
            }),
        }
    }

    /// The mark with the lease in a launch's hand. Nothing where another launch has it, or there is nothing to ask for.
    #[must_use]
    pub fn leased(&self, probe: Probe) -> Option<Self> {
        match self.state(probe.at) {
            MarkState::Forgotten | MarkState::Probing(_) => None,
            MarkState::Held | MarkState::Due => {
                Some(Self { probe: Some(probe), revision: self.revision.saturating_add(1), ..self.clone() })
            }
        }
    }

    /// The mark after the launch that held its lease was answered without a word on it. Nothing where it isn't that
    /// launch's.
    #[must_use]
    pub fn unanswered(&self, asked: LaunchAsked<'_>, now: Timestamp) -> Option<Self> {
        let its = self.is_probed_by(asked.cluster, asked.launch);
        (its && self.says_something(now)).then(|| self.asked_again(self.count, FIRST_HOLD, now))
    }

    /// The mark after a launch got what it is about. Nothing where the launch was planned before EC2 was last asked, so
    /// that it may have been had before it was refused.
    #[must_use]
    pub fn cleared(&self, asked: LaunchAsked<'_>, now: Timestamp) -> Option<Self> {
        let later = asked.planned_at > self.asked_at || self.is_probed_by(asked.cluster, asked.launch);
        (later && self.says_something(now)).then(|| self.tombstone(now))
    }

    /// The mark after an operator cleared it, whoever has its lease: what EC2 says to that launch is a word on no
    /// mark, so a refusal begins anew. Nothing where it says nothing any more.
    #[must_use]
    pub fn cleared_by_operator(&self, now: Timestamp) -> Option<Self> {
        self.says_something(now).then(|| self.tombstone(now))
    }

    /// Its form after the launch that probed for it got all it wanted elsewhere, so that nobody knows more than before:
    /// the next launch may ask. Nothing where another launch holds the lease.
    #[must_use]
    pub fn untried(&self, asked: LaunchAsked<'_>, now: Timestamp) -> Option<Self> {
        let its = self.is_probed_by(asked.cluster, asked.launch);
        (its && self.says_something(now)).then(|| Self {
            revision: self.revision.saturating_add(1),
            probe: None,
            ..self.clone()
        })
    }

    fn says_something(&self, now: Timestamp) -> bool {
        self.state(now) != MarkState::Forgotten
    }

    /// What is left of it: its revision, which the next write is conditional on.
    fn tombstone(&self, now: Timestamp) -> Self {
        Self { revision: self.revision.saturating_add(1), count: 0, until: now, probe: None, ..self.clone() }
    }

    fn first(revision: u64, refusal: &Refusal<'_>) -> Self {
        let mark = Self {
            key: refusal.key.clone(),
            revision,
            code: String::new(),
            message: None,
            count: 1,
            since: refusal.now,
            asked_at: refusal.now,
            until: refusal.now,
            from_vcpus: counted(refusal),
            probe: None,
            seen_by: refusal.cluster.clone(),
        };
        mark.asked(1, refusal)
    }

    fn asked(&self, count: u32, refusal: &Refusal<'_>) -> Self {
        let least = match refusal.cause {
            RefusalCause::Launch(_) => FIRST_HOLD,
            RefusalCause::Interruption => INTERRUPTED_HOLD,
        };
        Self {
            code: refusal.code.to_owned(),
            seen_by: refusal.cluster.clone(),
            ..self.asked_again(count, least, refusal.now)
        }
    }

    fn asked_again(&self, count: u32, least: SignedDuration, now: Timestamp) -> Self {
        let hold = hold(count).max(least);
        let hold = hold.saturating_add(self.jitter(count, hold)).min(MOST_HOLD);
        Self {
            revision: self.revision.saturating_add(1),
            count,
            asked_at: now,
            until: after(now, hold),
            probe: None,
            ..self.clone()
        }
    }

    /// Whole seconds, the same for the same refusals wherever it is computed.
    fn jitter(&self, count: u32, hold: SignedDuration) -> SignedDuration {
        let (key, count, since) = (self.key.to_string(), count.to_string(), self.since.to_string());
        share(hold / JITTER_PART, [key.as_str(), &count, &since])
    }

    /// How much earlier than [`LAST_RESORT`] it is asked for as one.
    fn earlier(&self) -> SignedDuration {
        if self.code == SPOT_INTERRUPTION || self.code == RESERVATION_INTERRUPTION {
            return SignedDuration::ZERO;
        }
        share(LAST_RESORT / EARLIER_PART, [self.asked_at.to_string().as_str()])
    }

    fn is_probed_by(&self, cluster: &ClusterName, launch: &LaunchId) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.is_of(cluster, launch))
    }

    /// The smallest size that is known to be refused; none is all of them.
    fn lowered(&self, refusal: &Refusal<'_>) -> Option<u32> {
        counted(refusal).zip(self.from_vcpus).map(|(a, b)| a.min(b))
    }
}

/// A share of a time: whole seconds, the same for the same texts wherever it is computed.
fn share<'a>(time: SignedDuration, texts: impl IntoIterator<Item = &'a str>) -> SignedDuration {
    let share = Digest::of_texts(texts).bytes().first().copied().map_or(0, i64::from);
    SignedDuration::from_secs(time.as_secs() * share / 256)
}

/// The vCPUs that a quota counts; nothing else has any.
fn counted(refusal: &Refusal<'_>) -> Option<u32> {
    match refusal.key {
        UnavailableKey::Quota { .. } => refusal.vcpus,
        UnavailableKey::Offering(_)
        | UnavailableKey::Subnet(_)
        | UnavailableKey::CapacityType(_)
        | UnavailableKey::Reservation(_)
        | UnavailableKey::Request(_)
        | UnavailableKey::RequestOffering { .. } => None,
    }
}

/// How long the refusal of that count holds, without jitter.
fn hold(count: u32) -> SignedDuration {
    let doublings = count.saturating_sub(1);
    FIRST_HOLD.saturating_mul(2_i32.saturating_pow(doublings)).min(MOST_HOLD)
}

fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
