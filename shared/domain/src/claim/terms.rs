//! A claim's terms from its pool: its expiry, the limit of its drain, and the time that load balancers have in it.
//!
//! Decides how they are written. An edited template changes only later claims, because a NodeClaim's spec can't change.
//! Source: kubernetes-sigs/karpenter `pkg/apis/v1/nodeclaim.go`.

use jiff::{SignedDuration, Timestamp};

use crate::api::NodePool;
use crate::claim::Claim;
use crate::manifest::duration::{format_plain, parse_plain};
use crate::pool_annotations::load_balancer_deregistration;

/// How an expiry is written that never comes.
const NEVER: &str = "Never";

/// `spec.expireAfter` and `spec.terminationGracePeriod` of a NodeClaim, and an annotation of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The claim's lifetime, after which it is replaced; `None` for no limit.
    pub expire_after: Option<SignedDuration>,
    /// The longest drain; `None` for no limit.
    pub termination_grace_period: Option<SignedDuration>,
    /// How long load balancers had to deregister its instance, when it was made; see
    /// [`Claim::load_balancer_deregistration`].
    pub load_balancer_deregistration: Option<SignedDuration>,
}

impl Terms {
    /// The terms of a claim that is created for a pool now.
    #[must_use]
    pub fn of(pool: &NodePool) -> Self {
        Self {
            expire_after: pool.template.expire_after,
            termination_grace_period: pool.template.termination_grace_period,
            load_balancer_deregistration: load_balancer_deregistration(pool).ok().flatten(),
        }
    }

    /// When a claim with this creation time expires.
    #[must_use]
    pub fn expires_at(&self, created_at: Timestamp) -> Option<Timestamp> {
        created_at.checked_add(self.expire_after?).ok()
    }

    /// When a drain that begins now must end, given another deadline.
    #[must_use]
    pub fn deadline(&self, now: Timestamp, other: Option<Timestamp>) -> Option<Timestamp> {
        let own =
            self.termination_grace_period.map(|grace| now.saturating_add(grace).unwrap_or(Timestamp::MAX));
        own.into_iter().chain(other).min()
    }

    /// `expireAfter` as Karpenter's resources write it: `720h`, or `Never`.
    #[must_use]
    pub fn expire_after_text(&self) -> String {
        self.expire_after.map_or_else(|| NEVER.to_owned(), format_plain)
    }

    /// `terminationGracePeriod` as Karpenter's resources write it.
    #[must_use]
    pub fn termination_grace_period_text(&self) -> Option<String> {
        self.termination_grace_period.map(format_plain)
    }

    /// The time of load balancers as the pool's annotation writes it.
    #[must_use]
    pub fn load_balancer_deregistration_text(&self) -> Option<String> {
        self.load_balancer_deregistration.map(format_plain)
    }

    /// Reads [`Terms::expire_after_text`].
    #[must_use]
    pub fn parse_expire_after(text: &str) -> Option<Option<SignedDuration>> {
        if text == NEVER { Some(None) } else { parse_plain(text).map(Some) }
    }

    /// Reads [`Terms::termination_grace_period_text`], or [`Terms::load_balancer_deregistration_text`].
    #[must_use]
    pub fn parse_duration(text: &str) -> Option<SignedDuration> {
        parse_plain(text)
    }
}

impl Claim {
    /// The claim's terms. An old claim without terms has its pool's current ones; `None` if the pool is unknown.
    #[must_use]
    pub fn terms_or(&self, pool: Option<&NodePool>) -> Option<Terms> {
        self.terms.or_else(|| pool.map(Terms::of))
    }

    /// How long load balancers have to deregister the claim's instance. As all annotations of a pool, this one counts as
    /// it is now; once the pool is gone, as it was when the claim was made.
    #[must_use]
    pub fn load_balancer_deregistration(&self, pool: Option<&NodePool>) -> Option<SignedDuration> {
        match pool {
            Some(pool) => load_balancer_deregistration(pool).ok().flatten(),
            None => self.terms.and_then(|terms| terms.load_balancer_deregistration),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_as_they_are_written() {
        let check = |expire_after: Option<i64>, grace: Option<i64>, texts: (&str, Option<&str>)| {
            let terms = Terms {
                expire_after: expire_after.map(SignedDuration::from_secs),
                termination_grace_period: grace.map(SignedDuration::from_secs),
                load_balancer_deregistration: grace.map(SignedDuration::from_secs),
            };
            assert_eq!(terms.load_balancer_deregistration_text(), terms.termination_grace_period_text());
            let grace = terms.termination_grace_period_text();
            assert_eq!((terms.expire_after_text().as_str(), grace.as_deref()), texts);
            assert_eq!(Terms::parse_expire_after(texts.0), Some(terms.expire_after));
            assert_eq!(texts.1.and_then(Terms::parse_duration), terms.termination_grace_period);
        };
        check(None, None, ("Never", None));
        check(Some(2_592_000), Some(30), ("720h", Some("30s")));
        check(Some(5_400), Some(3_661), ("1h30m", Some("1h1m1s")));
        check(Some(0), Some(0), ("0s", Some("0s")));
        assert_eq!(Terms::parse_expire_after("soon"), None);
    }

    #[test]
    fn the_earlier_deadline_holds() {
        let at = |second| Timestamp::from_second(second).ok();
        let terms = |grace| Terms {
            expire_after: None,
            termination_grace_period: Option::<i64>::map(grace, SignedDuration::from_secs),
            load_balancer_deregistration: None,
        };
        let check = |grace, other, expected| {
            assert_eq!(terms(grace).deadline(Timestamp::UNIX_EPOCH, other), expected);
        };
        check(None, None, None);
        check(Some(60), None, at(60));
        check(None, at(120), at(120));
        check(Some(60), at(120), at(60));
        check(Some(300), at(120), at(120));
    }
}
