//! What EC2 announced about a claim's instance, and what its pool wants of it.
//!
//! Decides the data of an announcement, and when nothing may keep its node any longer. `interruption` records it,
//! `disruption` replaces the node within budgets, `lifecycle` drains it in the end.

use jiff::{SignedDuration, Timestamp};

use super::{Claim, RemovalReason};

/// How long before a change of its instance a node is drained whatever its pool's budgets say.
const FORCED_BEFORE: SignedDuration = SignedDuration::from_hours(24);

crate::words! {
    /// Its kind. The table has its word. What a later release heard is a change too: the node is replaced within its
    /// budgets, and in time.
    pub enum AnnouncementKind else ScheduledChange {
        /// AWS Health: the instance is retired, stopped or maintained.
        ScheduledChange,
        /// EC2: the spot instance is likely to be interrupted.
        RebalanceRecommendation,
    }
}

/// An announcement about an instance that may stay for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceAnnouncement {
    /// Its kind.
    pub kind: AnnouncementKind,
    /// When it was heard.
    pub at: Timestamp,
    /// When it happens, where that is known.
    pub starts_at: Option<Timestamp>,
}

crate::words! {
    /// What a pool wants for nodes of which EC2 recommends to move the pods. The annotation has its word.
    pub enum RebalanceOrder {
        /// They stay until EC2 takes them, as with the peer.
        Ignore,
        /// They are replaced within the budgets, replacements first.
        ReplaceFirst,
        /// They are drained at once.
        Drain,
    }
}

impl InstanceAnnouncement {
    /// When nothing keeps the node any longer; `None` if that never comes.
    #[must_use]
    pub fn forced_at(&self, order: RebalanceOrder) -> Option<Timestamp> {
        match (self.kind, order) {
            (AnnouncementKind::ScheduledChange, _) => forced_at(self.starts_at?),
            (AnnouncementKind::RebalanceRecommendation, RebalanceOrder::Drain) => Some(self.at),
            (
                AnnouncementKind::RebalanceRecommendation,
                RebalanceOrder::Ignore | RebalanceOrder::ReplaceFirst,
            ) => None,
        }
    }

    /// Whether the node is replaced within the budgets.
    #[must_use]
    pub fn is_replaced(&self, order: RebalanceOrder) -> bool {
        match (self.kind, order) {
            (AnnouncementKind::ScheduledChange, _)
            | (AnnouncementKind::RebalanceRecommendation, RebalanceOrder::ReplaceFirst) => true,
            (AnnouncementKind::RebalanceRecommendation, RebalanceOrder::Ignore | RebalanceOrder::Drain) => {
                false
            }
        }
    }

    /// The reason of the node's removal for it.
    #[must_use]
    pub const fn removal(&self) -> RemovalReason {
        match self.kind {
            AnnouncementKind::ScheduledChange => RemovalReason::ScheduledChange,
            AnnouncementKind::RebalanceRecommendation => RemovalReason::RebalanceRecommended,
        }
    }
}

/// When a node is drained for a change that begins then.
#[must_use]
pub fn forced_at(starts_at: Timestamp) -> Option<Timestamp> {
    starts_at.checked_sub(FORCED_BEFORE).ok()
}

impl Claim {
    /// The claim with an announcement that is new to it; `None` if it knows one as early.
    #[must_use]
    pub fn announced(&self, new: InstanceAnnouncement) -> Option<Self> {
        // A change is certain, a recommendation isn't.
        let is_known = self.announced.is_some_and(|known| {
            let rank = |one: InstanceAnnouncement| (one.kind, one.starts_at.unwrap_or(Timestamp::MAX));
            rank(known) <= rank(new)
        });
        (!is_known).then(|| Self {
            announced: Some(new),
            revision: self.revision.saturating_add(1),
            ..self.clone()
        })
    }
}
