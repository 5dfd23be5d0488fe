//! Leader election by a lease.
//!
//! Decides, as client-go's leader election does, when a replica takes the lease, renews it and gives it up. No maintained
//! crate fits: kube-leader-election and kubert depend on older releases of kube, and the former judges another replica's
//! clock by its own.
//!
//! Invariants: a replica takes another's lease only after it saw the lease unchanged for [`DURATION`] by its own clock;
//! a leader knows by its own clock alone when to stop.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Api, PostParams};
use kube::{Client, Error};

/// How long a lease lasts without renewal.
pub const DURATION: Duration = Duration::from_secs(15);
/// A leader that failed to renew for so long stops; the others wait for [`DURATION`].
pub const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// The interval between attempts.
pub const EVERY: Duration = Duration::from_secs(2);
/// The timeout of an attempt.
const TRY_TIMEOUT: Duration = Duration::from_secs(4);

/// The holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Held {
    holder: String,
    renewed: Option<Timestamp>,
    transitions: i32,
}

/// The lease as a replica last saw it, and since when.
#[derive(Debug, Clone)]
struct LeaseSeen {
    held: Held,
    since: Instant,
}

/// What to do about a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseJudgement {
    /// This replica holds it.
    Renew,
    /// It is free.
    Take,
    /// Another replica holds it.
    Wait,
}

/// Whether this replica leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leadership {
    /// It leads until this time, and longer if it renews.
    Leads(Instant),
    /// It doesn't lead.
    Stands,
}

/// One replica's view of the lease.
pub struct Election {
    api: Api<Lease>,
    name: String,
    identity: String,
    seen: Option<LeaseSeen>,
    leads_until: Option<Instant>,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, identity, leads_until, .. } = self;
        write!(f, "Election {{ {name}, {identity}, {leads_until:?} }}")
    }
}

impl Election {
    /// A replica that doesn't lead yet. `identity` is its own: the pod's name.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            identity: identity.to_owned(),
            seen: None,
            leads_until: None,
        }
    }

    /// Takes or renews the lease, if possible. Call it every [`EVERY`].
    ///
    /// # Errors
    /// [`Error`] if the outcome is unknown. A leader then stays the leader until the time it knew before.
    pub async fn campaign(&mut self) -> Result<Leadership, Error> {
        // The time before the call is the safe side: the server renews later.
        let now = Instant::now();
        let tried = tokio::time::timeout(TRY_TIMEOUT, self.try_once(now)).await;
        let result = tried.map_err(|elapsed| Error::Service(elapsed.into())).and_then(|tried| tried);
        match result {
            Ok(Leadership::Leads(until)) => self.leads_until = Some(until),
            Ok(Leadership::Stands) => self.leads_until = None,
            Err(_) => {}
        }
        result
    }

    /// Whether it leads now, as far as it knows.
    #[must_use]
    pub fn standing(&self, now: Instant) -> Leadership {
        match self.leads_until {
            Some(until) if now < until => Leadership::Leads(until),
            Some(_) | None => Leadership::Stands,
        }
    }

    async fn try_once(&mut self, now: Instant) -> Result<Leadership, Error> {
        let Some(lease) = self.api.get_opt(&self.name).await? else {
            let lease = Lease { metadata: self.metadata(None), spec: Some(self.spec(None)) };
            return self.written(self.api.create(&PostParams::default(), &lease).await, now);
        };
        let held = held_of(&lease);
        if self.seen.as_ref().is_none_or(|seen| seen.held != held) {
            self.seen = Some(LeaseSeen { held: held.clone(), since: now });
        }
        match judge(self.seen.as_ref(), &self.identity, now) {
            LeaseJudgement::Wait => Ok(Leadership::Stands),
            LeaseJudgement::Renew | LeaseJudgement::Take => {
                let version = lease.metadata.resource_version.clone();
                let spec = Some(self.spec(lease.spec.as_ref()));
                let mut metadata = lease.metadata;
                metadata.managed_fields = None;
                metadata.resource_version = version;
                let lease = Lease { metadata, spec };
                self.written(self.api.replace(&self.name, &PostParams::default(), &lease).await, now)
            }
        }
    }

    fn written(&mut self, written: Result<Lease, Error>, now: Instant) -> Result<Leadership, Error> {
        match written {
            Ok(lease) => {
                self.seen = Some(LeaseSeen { held: held_of(&lease), since: now });
                Ok(Leadership::Leads(now + RENEW_WITHIN))
            }
            // Another replica was faster.
            Err(Error::Api(status)) if status.code == 409 => Ok(Leadership::Stands),
            Err(error) => Err(error),
        }
    }

    /// Releases the lease, so that another replica needn't wait. It tries once, because a replica that shuts down
    /// shouldn't wait for an API server.
    ///
    /// # Errors
    /// [`Error`] if the release failed: the lease expires after [`DURATION`].
    pub async fn release(&mut self) -> Result<(), Error> {
        if self.leads_until.take().is_none() {
            return Ok(());
        }
        let tried = tokio::time::timeout(TRY_TIMEOUT, self.release_once()).await;
        tried.map_err(|elapsed| Error::Service(elapsed.into())).and_then(|tried| tried)
    }

    async fn release_once(&self) -> Result<(), Error> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
        if held_of(&lease).holder != self.identity {
            return Ok(());
        }
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        lease.metadata.managed_fields = None;
        self.api.replace(&self.name, &PostParams::default(), &lease).await.map(|_| ())
    }

    fn metadata(&self, version: Option<String>) -> ObjectMeta {
        ObjectMeta { name: Some(self.name.clone()), resource_version: version, ..ObjectMeta::default() }
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let ours = before.is_some_and(|spec| spec.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let acquired = before.and_then(|spec| spec.acquire_time.clone()).filter(|_| ours);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: acquired.or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if ours { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}

fn held_of(lease: &Lease) -> Held {
    let spec = lease.spec.clone().unwrap_or_default();
    Held {
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|at| at.0),
        transitions: spec.lease_transitions.unwrap_or(0),
    }
}

fn judge(seen: Option<&LeaseSeen>, identity: &str, now: Instant) -> LeaseJudgement {
    match seen {
        None => LeaseJudgement::Take,
        Some(seen) if seen.held.holder == identity => LeaseJudgement::Renew,
        Some(seen) if seen.held.holder.is_empty() => LeaseJudgement::Take,
        Some(seen) if now.duration_since(seen.since) >= DURATION => LeaseJudgement::Take,
        Some(_) => LeaseJudgement::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anothers_lease_is_taken_only_after_it_stood_still_for_its_duration() {
        let start = Instant::now();
        let check = |holder: &str, seconds: u64, expected| {
            let held = Held { holder: holder.to_owned(), renewed: None, transitions: 0 };
            let seen = LeaseSeen { held, since: start };
            assert_eq!(judge(Some(&seen), "me", start + Duration::from_secs(seconds)), expected);
        };
        check("me", 100, LeaseJudgement::Renew);
        check("other", 0, LeaseJudgement::Wait);
        check("other", 14, LeaseJudgement::Wait);
        check("other", 15, LeaseJudgement::Take);
        check("", 0, LeaseJudgement::Take);
        assert_eq!(judge(None, "me", start), LeaseJudgement::Take);
    }

    #[test]
    fn a_leader_stops_before_its_lease_may_be_taken() {
        assert!(RENEW_WITHIN + TRY_TIMEOUT < DURATION);
    }
}
