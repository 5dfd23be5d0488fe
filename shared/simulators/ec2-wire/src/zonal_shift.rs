//! ARC's answers to GetManagedResource, in its JSON.

use serde_json::{Value, json};
use tenon_domain::zonal_shift::{ShiftEnd, ShiftedZone};
use tenon_ec2::{Ec2Error, ZonalShift};
use tenon_twin::RegionTwin;

use crate::error::WireError;

/// ARC's answer about a resource.
pub(crate) async fn answer(twin: &RegionTwin, arn: &str) -> Result<String, Ec2Error> {
    let shifted = twin.shifted_zones(arn).await?;
    let of_operator = |zone: &ShiftedZone| match zone.end {
        ShiftEnd::At(end) => Some(json!({
            "appliedStatus": "APPLIED", "awayFrom": zone.zone_id.as_str(), "comment": "twin",
            "expiryTime": end.as_second(), "resourceIdentifier": arn, "startTime": 0,
            "zonalShiftId": "twin", "shiftType": "ZONAL_SHIFT",
        })),
        ShiftEnd::Open => None,
    };
    let of_aws = |zone: &ShiftedZone| match zone.end {
        ShiftEnd::At(_) => None,
        ShiftEnd::Open => {
            Some(json!({ "appliedStatus": "APPLIED", "awayFrom": zone.zone_id.as_str(), "startTime": 0 }))
        }
    };
    let document = json!({
        "arn": arn,
        "appliedWeights": {},
        "zonalShifts": shifted.iter().filter_map(of_operator).collect::<Vec<Value>>(),
        "autoshifts": shifted.iter().filter_map(of_aws).collect::<Vec<Value>>(),
        "zonalAutoshiftStatus": "ENABLED",
    });
    Ok(document.to_string())
}

/// The body of a refusal; its code is in a header.
pub(crate) fn refusal(refusal: &WireError) -> String {
    json!({ "message": refusal.message }).to_string()
}
