//! The counts of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::claim::ClaimPhase;
use tenon_domain::id::ClusterName;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_twin::{RequestOutcome, RequestRecord};

/// The result of a run. Less is better in every field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Launches: CreateFleet requests that reached EC2; those at one moment count as one.
    pub launches_tried: usize,
    /// Launches without an instance.
    pub launches_failed: usize,
    /// Overrides with an error in an answer.
    pub item_errors: usize,
    /// NodeClaims that ended without an instance.
    pub claims_failed: usize,
    /// From the first pods' creation until all of them ran.
    pub first_run: SignedDuration,
    /// The median of the later pods' waits, from creation to running.
    pub later_median: SignedDuration,
    /// The 99th percentile of the later pods' waits.
    pub later_p99: SignedDuration,
}

/// The run didn't finish: pods are still pending.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} pods are still pending at the end")]
pub struct StillWaiting(pub usize);

impl Row {
    /// Counts from the first pods on; those were created before `first_until`.
    pub(crate) fn of(
        region: &SimulatedRegion,
        cluster: &ClusterName,
        first_until: Timestamp,
    ) -> Result<Self, StillWaiting> {
        let launches = launches(&region.twin().requests());
        let failed = |phase: ClaimPhase| phase == ClaimPhase::LaunchFailed;
        let (first, later) = waits(region, cluster, first_until)?;
        Ok(Self {
            launches_tried: launches.len(),
            launches_failed: launches.values().filter(|launch| launch.instances == 0).count(),
            item_errors: launches.values().map(|launch| launch.item_errors).sum(),
            claims_failed: region.claims(cluster).iter().filter(|claim| failed(claim.phase())).count(),
            first_run: first.last().copied().unwrap_or_default(),
            later_median: share(&later, 50),
            later_p99: share(&later, 99),
        })
    }

    /// The columns in order: the heading and this row's value.
    #[must_use]
    pub fn columns(&self) -> [(&'static str, i64); 7] {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        [
            ("launches tried", count(self.launches_tried)),
            ("launches without an instance", count(self.launches_failed)),
            ("errors of overrides", count(self.item_errors)),
            ("NodeClaims failed", count(self.claims_failed)),
            ("first 500 pods run after, s", self.first_run.as_secs()),
            ("later pods wait, median, s", self.later_median.as_secs()),
            ("later pods wait, 99 of 100, s", self.later_p99.as_secs()),
        ]
    }
}

/// The requests to EC2 at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Launch {
    instances: usize,
    item_errors: usize,
}

/// All pods are equal, so the requests of one moment are, too. They count as one launch: the peer's batcher sends
/// them as one of up to 1,000 instances (aws/karpenter-provider-aws `pkg/batcher/createfleet.go`), while Tenon's
/// launches have at most 20 claims.
fn launches(requests: &[Arc<RequestRecord>]) -> BTreeMap<Timestamp, Launch> {
    let mut launches: BTreeMap<Timestamp, Launch> = BTreeMap::new();
    for request in requests {
        let instances = match &request.outcome {
            RequestOutcome::New(ids) => ids.len(),
            RequestOutcome::Refused(_) => 0,
            RequestOutcome::Replayed => continue,
        };
        let launch = launches.entry(request.at).or_default();
        launch.instances += instances;
        launch.item_errors = launch.item_errors.max(request.item_errors);
    }
    launches
}

/// The waits of the first pods and of the later ones, shortest first.
fn waits(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    first_until: Timestamp,
) -> Result<(Vec<SignedDuration>, Vec<SignedDuration>), StillWaiting> {
    let pods = region.site(cluster).map(|site| site.cluster().objects(Kind::Pod)).unwrap_or_default();
    let time = |pod: &Value, pointer: &str| -> Option<Timestamp> {
        pod.pointer(pointer).and_then(Value::as_str)?.parse().ok()
    };
    let (mut first, mut later, mut waiting) = (Vec::new(), Vec::new(), 0);
    for pod in &pods {
        let created = time(pod, "/metadata/creationTimestamp");
        let (Some(created), Some(running)) = (created, time(pod, "/status/startTime")) else {
            waiting += 1;
            continue;
        };
        let waits = if created < first_until { &mut first } else { &mut later };
        waits.push(running.duration_since(created));
    }
    first.sort_unstable();
    later.sort_unstable();
    if waiting == 0 { Ok((first, later)) } else { Err(StillWaiting(waiting)) }
}

/// A percentile of the waits.
fn share(sorted: &[SignedDuration], percent: usize) -> SignedDuration {
    let place = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_wait_that_so_many_dont_exceed() {
        let waits: Vec<SignedDuration> = (1..=200).map(SignedDuration::from_secs).collect();
        assert_eq!([50, 99].map(|percent| share(&waits, percent).as_secs()), [100, 198]);
        assert_eq!(share(&waits[..1], 99).as_secs(), 1);
        assert_eq!(share(&[], 50), SignedDuration::ZERO);
    }
}
