//! One mark: a refusal, and its changes over time.
//!
//! Decides the length of the hold, who may probe, and the effect of an answer. It is pure: a transition returns the
//! mark's next form, or `None` if nothing changes. The caller writes it under the revision of the old form.
//!
//! Invariants: between the last answer and `until` there are at least [`FIRST_HOLD`] and at most [`MOST_HOLD`]; only
//! an answer to the launch with the lease raises `count`, so the failures of one storm count once; settling twice
//! changes nothing the second time.

use jiff::{SignedDuration, Timestamp};

use crate::digest::Digest;
use crate::id::{ClusterName, LaunchId};
use crate::unavailable::key::{UnavailableKey, WantedOffering};
use crate::wait::doubled;

/// The hold after the first refusal. Capacity that is short for a moment is back by then, and the next-best offering
/// costs little for so long.
pub const FIRST_HOLD: SignedDuration = SignedDuration::from_mins(1);
/// The longest hold: doubling [`FIRST_HOLD`] reaches it with the eighth refusal.
pub const MOST_HOLD: SignedDuration = SignedDuration::from_hours(2);
/// The shortest hold after an interruption: EC2 needs the capacity that it takes back. Source:
/// `UnavailableOfferingsTTL` of aws/karpenter-provider-aws `pkg/cache/cache.go`.
pub const INTERRUPTED_HOLD: SignedDuration = SignedDuration::from_mins(3);
/// A pod without another offering waits at most this long for a probe, however long the mark holds. The peer asks again
/// after the same time ([`INTERRUPTED_HOLD`]), so no pod waits longer than with it.
pub const LAST_RESORT: SignedDuration = SignedDuration::from_mins(3);
/// How long a probe may block other launches. A launch is answered in seconds; the next sweep, or the one after,
/// sends an interrupted launch again.
pub const LEASE: SignedDuration = SignedDuration::from_mins(3);
/// How long a due mark without a probe is remembered. Later, a refusal starts a new mark.
pub const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(2);

/// The jitter is at most this part of a hold, so that marks of one moment don't end in one.
const JITTER_PART: i32 = 8;
/// A last-resort probe is earlier than [`LAST_RESORT`] by at most this part. Marks of different moments drift apart,
/// so the pods of a pool ask again more often than every three minutes. Marks of one moment stay together, and one
/// launch probes them.
const EARLIER_PART: i32 = 4;
/// The code of a spot interruption. EC2 needs the capacity until the instance is gone, two minutes after the warning.
pub const SPOT_INTERRUPTION: &str = "SpotInterruption";
/// The code of a reclaimed instance of an interruptible capacity reservation.
pub const RESERVATION_INTERRUPTION: &str = "CapacityReservationInterruption";

/// The state of a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Its subject.
    pub key: UnavailableKey,
    /// The count of writes; 0 without a stored count.
    pub revision: u64,
    /// EC2's code, such as `InsufficientInstanceCapacity`.
    pub code: String,
    /// EC2's message, if the request itself is refused.
    pub message: Option<String>,
    /// The number of refusals in a row, a storm counting once; 0 after a success.
    pub count: u32,
    /// The time of the first refusal.
    pub since: Timestamp,
    /// The time of EC2's last answer or interruption.
    pub asked_at: Timestamp,
    /// Until when asking again is pointless.
    pub until: Timestamp,
    /// For a quota, the vCPUs of the smallest refused type. Smaller types may still fit.
    pub from_vcpus: Option<u32>,
    /// The last launch with the lease.
    pub probe: Option<Probe>,
    /// The cluster of the last refused request.
    pub seen_by: ClusterName,
}

/// The right of one launch to ask for a marked offering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The launch's cluster.
    pub cluster: ClusterName,
    /// The launch.
    pub launch: LaunchId,
    /// Since when.
    pub at: Timestamp,
    /// The end of the lease.
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

/// The state of a mark at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkState<'a> {
    /// It has no effect: it was cleared, or is too old.
    Forgotten,
    /// It blocks launches.
    Held,
    /// One launch probes it; no other launch asks.
    Probing(&'a Probe),
    /// A launch may ask under its lease.
    Due,
}

/// EC2 refused something.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Its subject.
    pub key: &'a UnavailableKey,
    /// EC2's code.
    pub code: &'a str,
    /// The cluster of the refused request.
    pub cluster: &'a ClusterName,
    /// How.
    pub cause: RefusalCause<'a>,
    /// For a quota, the vCPUs of the refused type.
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

/// An answered launch.
#[derive(Debug, Clone, Copy)]
pub struct LaunchAsked<'a> {
    /// Its cluster.
    pub cluster: &'a ClusterName,
    /// The launch.
    pub launch: &'a LaunchId,
    /// When it was planned; it didn't know of later marks.
    pub planned_at: Timestamp,
}

impl Mark {
    /// Its state now.
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

    /// The end of its hold, or of its lease if that is later.
    #[must_use]
    pub fn blocked_until(&self) -> Timestamp {
        self.probe.as_ref().map_or(self.until, |probe| probe.until.max(self.until))
    }

    /// The time from which it may be probed as the last resort.
    #[must_use]
    pub fn last_resort_at(&self) -> Timestamp {
        let asked = after(self.asked_at, LAST_RESORT.saturating_sub(self.earlier()));
        self.probe.as_ref().map_or(asked, |probe| probe.until.max(asked))
    }

    /// When it has no effect any longer, and its item may be deleted.
    #[must_use]
    pub fn forget_at(&self) -> Timestamp {
        if self.count == 0 { self.until } else { after(self.blocked_until(), FORGET_AFTER) }
    }

    /// Whether it is about this way to have a node.
    #[must_use]
    pub fn concerns(&self, wanted: &WantedOffering<'_>) -> bool {
        self.from_vcpus.is_none_or(|from| wanted.vcpus >= from) && self.key.concerns(wanted)
    }

    /// The mark after a refusal; `None` if the refusal adds nothing, because the mark holds or another launch probes
    /// it.
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
            // The launch was planned before the mark and sent late, or EC2 interrupted another instance.
            (MarkState::Due, _) => next(mark.count),
            (MarkState::Held | MarkState::Probing(_), _) => (from_vcpus != mark.from_vcpus).then(|| Self {
                from_vcpus,
                revision: mark.revision.saturating_add(1),
                ..mark.clone()
            }),
        }
    }

    /// The mark with its lease held by a launch. `None` if another launch holds it, or the mark has ended.
    #[must_use]
    pub fn leased(&self, probe: Probe) -> Option<Self> {
        match self.state(probe.at) {
            MarkState::Forgotten | MarkState::Probing(_) => None,
            MarkState::Held | MarkState::Due => {
                Some(Self { probe: Some(probe), revision: self.revision.saturating_add(1), ..self.clone() })
            }
        }
    }

    /// The mark after an answer that says nothing about it, to the launch with its lease; `None` for another launch.
    #[must_use]
    pub fn unanswered(&self, asked: LaunchAsked<'_>, now: Timestamp) -> Option<Self> {
        let its = self.is_probed_by(asked.cluster, asked.launch);
        (its && self.says_something(now)).then(|| self.asked_again(self.count, FIRST_HOLD, now))
    }

    /// The mark after a launch got its capacity; `None` if the launch was planned before EC2's last answer, because
    /// its success may be older than the refusal.
    #[must_use]
    pub fn cleared(&self, asked: LaunchAsked<'_>, now: Timestamp) -> Option<Self> {
        let later = asked.planned_at > self.asked_at || self.is_probed_by(asked.cluster, asked.launch);
        (later && self.says_something(now)).then(|| self.tombstone(now))
    }

    /// The mark after an operator clears it, with or without a lease: the answer to a probing launch doesn't count
    /// any more, and a refusal starts anew. `None` if it has no effect already.
    #[must_use]
    pub fn cleared_by_operator(&self, now: Timestamp) -> Option<Self> {
        self.says_something(now).then(|| self.tombstone(now))
    }

    /// The mark after its probing launch got all its instances from other offerings, without an answer about this
    /// one: the next launch may probe. `None` if another launch has the lease.
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

    /// Its cleared form, which keeps the revision for the next write.
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

    /// How much earlier than [`LAST_RESORT`] it may be probed.
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

/// The vCPUs of a quota; `None` for any other key.
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
    doubled(FIRST_HOLD, count.saturating_sub(1), MOST_HOLD)
}

fn after(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}
