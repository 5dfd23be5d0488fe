//! The port of zonal shift over the SDK.
//!
//! Decides which of a resource's shifts are in effect: ARC marks each, and applies only one of several. Practice runs
//! are shifts too.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_arczonalshift::operation::get_managed_resource::GetManagedResourceOutput;
use aws_sdk_arczonalshift::types::{AppliedStatus, AutoshiftAppliedStatus};
use tenon_domain::id::ZoneId;
use tenon_domain::zonal_shift::{ShiftEnd, ShiftedZone};
use tenon_ec2::{Ec2Error, ZonalShift};

use crate::call;
use crate::reading::{Malformed, moment, parsed};
use crate::settings::service;

const ACTION: &str = "GetManagedResource";

/// A function looks at several clusters in thirty seconds; without an answer of ARC the last shifts stay.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

service! {
    /// ARC of an account and region.
    AwsZonalShift of aws_sdk_arczonalshift, CALL_TIMEOUT
}

impl ZonalShift for AwsZonalShift {
    async fn shifted_zones(&self, resource_arn: &str) -> Result<Vec<ShiftedZone>, Ec2Error> {
        let sent = self.client.get_managed_resource().resource_identifier(resource_arn).send().await;
        let answer = call::answer(self.report.as_ref(), ACTION, sent)?;
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
