//! The port of zonal shift over the SDK.
//!
//! Decides which of a resource's shifts are in effect: ARC marks each, and applies only one of several. Practice runs
//! are shifts too.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_arczonalshift::Client;
use aws_sdk_arczonalshift::config::{BehaviorVersion, Builder};
use aws_sdk_arczonalshift::operation::get_managed_resource::GetManagedResourceOutput;
use aws_sdk_arczonalshift::types::{AppliedStatus, AutoshiftAppliedStatus};
use aws_types::SdkConfig;
use tenon_domain::id::ZoneId;
use tenon_domain::zonal_shift::{ShiftEnd, ShiftedZone};
use tenon_ec2::{Ec2Error, ZonalShift};

use crate::call::{FailedCall, FailedCallSink};
use crate::reading::{Malformed, moment, parsed};
use crate::settings::{retries, short_timeouts};

const ACTION: &str = "GetManagedResource";

/// A function looks at several clusters in thirty seconds; without an answer of ARC the last shifts stay.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// ARC of an account and region.
#[derive(Clone)]
pub struct AwsZonalShift {
    client: Client,
    report: Option<FailedCallSink>,
}

impl std::fmt::Debug for AwsZonalShift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsZonalShift").finish_non_exhaustive()
    }
}

impl AwsZonalShift {
    /// ARC in the region of `config`, whose retries and timeouts are replaced.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        let config = Builder::from(config)
            .behavior_version(BehaviorVersion::v2026_01_12())
            .retry_config(retries())
            .timeout_config(short_timeouts(CALL_TIMEOUT))
            .build();
        Self { client: Client::from_conf(config), report: None }
    }

    /// Reports every failed call, with its request id.
    #[must_use]
    pub fn reporting(mut self, report: FailedCallSink) -> Self {
        self.report = Some(report);
        self
    }
}

impl ZonalShift for AwsZonalShift {
    async fn shifted_zones(&self, resource_arn: &str) -> Result<Vec<ShiftedZone>, Ec2Error> {
        let sent = self.client.get_managed_resource().resource_identifier(resource_arn).send();
        let answer = sent.await.map_err(|error| {
            let failed = FailedCall::of(ACTION, &error);
            if let Some(report) = &self.report {
                report(&failed);
            }
            failed.into_error()
        })?;
        in_effect(&answer).map_err(|malformed| malformed.into_error(ACTION))
    }
}

/// The active shifts, by zone; of several shifts from one zone, the one that ends last.
fn in_effect(answer: &GetManagedResourceOutput) -> Result<Vec<ShiftedZone>, Malformed> {
    let mut zones: BTreeMap<ZoneId, ShiftEnd> = BTreeMap::new();
    let mut add = |zone_id: ZoneId, end: ShiftEnd| {
        let known = zones.entry(zone_id).or_insert(end);
        *known = end.max(*known);
    };
    for shift in answer.zonal_shifts() {
        if *shift.applied_status() == AppliedStatus::Applied {
            let zone_id = parsed(Some(shift.away_from()), "zonalShifts.awayFrom")?;
            add(zone_id, ShiftEnd::At(moment(Some(shift.expiry_time()), "zonalShifts.expiryTime")?));
        }
    }
    for shift in answer.autoshifts() {
        if *shift.applied_status() == AutoshiftAppliedStatus::Applied {
            add(parsed(Some(shift.away_from()), "autoshifts.awayFrom")?, ShiftEnd::Open);
        }
    }
    Ok(zones.into_iter().map(|(zone_id, end)| ShiftedZone { zone_id, end }).collect())
}
