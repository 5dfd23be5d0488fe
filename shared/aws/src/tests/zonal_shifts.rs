//! GetManagedResource.

use tenon_ec2::{ErrorClass, ZonalShift};

use super::{block_on, zonal_shift};

const ARN: &str = "arn:aws:eks:us-east-1:111122223333:cluster/prod";

fn operators(zone: &str, status: &str) -> String {
    format!(
        r#"{{"appliedStatus": "{status}", "awayFrom": "{zone}", "comment": "c", "expiryTime": 1790000000,
            "resourceIdentifier": "{ARN}", "startTime": 1789990000, "zonalShiftId": "z"}}"#
    )
}

fn answer(operators: &[String], autoshifts: &str) -> String {
    let shifts = operators.join(",");
    format!(
        r#"{{"arn": "{ARN}", "appliedWeights": {{}}, "zonalShifts": [{shifts}], "autoshifts": [{autoshifts}]}}"#
    )
}

fn check(answered: &str, expected: &[&str]) {
    let (arc, _) = zonal_shift(&[(200, answered)]);
    let found = block_on(arc.shifted_zones(ARN)).unwrap();
    let told: Vec<String> = found.iter().map(|zone| format!("{} {}", zone.zone_id, zone.end)).collect();
    assert_eq!(told, expected);
}

#[test]
fn a_shift_that_is_applied_is_in_effect() {
    let one = |status| operators("use1-az1", status);
    let aws = r#"{"appliedStatus": "APPLIED", "awayFrom": "use1-az2", "startTime": 1789990000}"#;
    check(&answer(&[], ""), &[]);
    check(&answer(&[one("APPLIED")], ""), &["use1-az1 until 2026-09-21T14:13:20Z"]);
    check(&answer(&[one("NOT_APPLIED")], aws), &["use1-az2 until AWS ends the autoshift"]);
    let of_the_same_zone = operators("use1-az2", "APPLIED");
    check(&answer(&[of_the_same_zone], aws), &["use1-az2 until AWS ends the autoshift"]);
}

#[test]
fn the_resource_is_named_by_its_arn() {
    let (arc, http) = zonal_shift(&[(200, &answer(&[], ""))]);
    block_on(arc.shifted_zones(ARN)).unwrap();
    let uri = &http.sent()[0].uri;
    assert_eq!(
        uri,
        "https://arc-zonal-shift.us-east-1.amazonaws.com/managedresources/arn%3Aaws%3Aeks%3Aus-east-1%3A111122223333%3Acluster%2Fprod"
    );
}

#[test]
fn errors_have_their_classes_and_nothing_is_asked_twice() {
    let check = |status: u16, code: &str, expected: ErrorClass| {
        let body = format!(r#"{{"__type": "{code}", "message": "m"}}"#);
        let (arc, http) = zonal_shift(&[(status, &body), (status, &body)]);
        assert_eq!(block_on(arc.shifted_zones(ARN)).unwrap_err().class(), expected, "{code}");
        assert_eq!(http.sent().len(), 1);
    };
    check(404, "ResourceNotFoundException", ErrorClass::NotFound);
    check(403, "AccessDeniedException", ErrorClass::Unauthorized);
    check(429, "ThrottlingException", ErrorClass::Throttled);
    check(500, "InternalServerException", ErrorClass::Server);
}
