//! Failed calls, and their errors.

use std::sync::{Arc, Mutex};

use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::SdkError;
use aws_sdk_ec2::operation::create_fleet::CreateFleetError;
use tenon_ec2::port::{CreateFleetRequest, DryRunOutcome};
use tenon_ec2::{Ec2, Ec2Error, ErrorClass};

use super::{block_on, ec2};
use crate::call::{CallEffect, FailedCall};

const STORED: &str = include_str!("../../../ec2/golden/create-fleet-request.v1.json");

fn request() -> CreateFleetRequest {
    CreateFleetRequest::from_stored(STORED).unwrap()
}

/// EC2's error document.
fn body(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors><RequestID>of-the-body, which is the same</RequestID></Response>"
    )
}

fn launch(status: u16, body: &str) -> Ec2Error {
    let (ec2, _) = ec2(&[(status, body)]);
    block_on(ec2.create_fleet(&request())).unwrap_err()
}

fn check(status: u16, code: &str, expected: ErrorClass) {
    assert_eq!(launch(status, &body(code, "words")).class(), expected, "{status} {code}");
}

#[test]
fn every_error_is_classified_by_its_code() {
    check(503, "RequestLimitExceeded", ErrorClass::Throttled);
    check(403, "UnauthorizedOperation", ErrorClass::Unauthorized);
    check(400, "IdempotentParameterMismatch", ErrorClass::TokenMismatch);
    check(400, "InvalidLaunchTemplateName.NotFoundException", ErrorClass::TemplateMissing);
    check(400, "InsufficientInstanceCapacity", ErrorClass::InsufficientCapacity);
    check(400, "MaxSpotInstanceCountExceeded", ErrorClass::Quota);
    check(400, "InvalidParameterValue", ErrorClass::Invalid);
    check(500, "InternalError", ErrorClass::Server);
    check(503, "Unavailable", ErrorClass::Server);
    check(400, "FluxCapacitorEmpty", ErrorClass::Unknown);
    // A server's failure is never the request's fault, whatever its code.
    check(500, "FluxCapacitorEmpty", ErrorClass::Server);
}

#[test]
fn an_error_keeps_code_message_and_the_ids_that_it_names() {
    let (ec2, _) =
        ec2(&[(400, &body("InvalidAMIID.NotFound", "The image ids '[ami-1, ami-2]' do not exist"))]);
    let error = block_on(ec2.describe_images(&Default::default(), None)).unwrap_err();
    let Ec2Error::NotFound { action, code, ids, message } = error else { panic!("{error:?}") };
    assert_eq!((action.as_str(), code.as_str()), ("DescribeImages", "InvalidAMIID.NotFound"));
    assert_eq!(message, "The image ids '[ami-1, ami-2]' do not exist");
    assert_eq!(ids, ["ami-1", "ami-2"]);
}

#[test]
fn a_failed_call_is_told_with_its_request_id() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (ec2, _) = ec2(&[(503, &body("RequestLimitExceeded", "Request limit exceeded."))]);
    let ec2 = ec2.reporting({
        let told = Arc::clone(&told);
        Arc::new(move |failed| told.lock().unwrap().push(failed.clone()))
    });
    block_on(ec2.create_fleet(&request())).unwrap_err();
    let expected = FailedCall {
        action: "CreateFleet",
        effect: CallEffect::Answered,
        status: Some(503),
        code: "RequestLimitExceeded".to_owned(),
        message: "Request limit exceeded.".to_owned(),
        request_id: Some("of-the-header".to_owned()),
    };
    assert_eq!(*told.lock().unwrap(), [expected]);
}

#[test]
fn nothing_is_asked_twice() {
    let throttled = body("RequestLimitExceeded", "Request limit exceeded.");
    let (ec2, http) = ec2(&[(503, &throttled), (503, &throttled), (503, &throttled)]);
    block_on(ec2.create_fleet(&request())).unwrap_err();
    assert_eq!(http.sent().len(), 1);
}

#[test]
fn a_launch_without_an_answer_may_have_taken_effect() {
    let no_answer = Ec2Error::NoAnswer { action: "CreateFleet".to_owned() };
    // The connection broke.
    let (ec2, _) = ec2(&[]);
    assert_eq!(block_on(ec2.create_fleet(&request())).unwrap_err(), no_answer);
    // The answer is unreadable. (The connection reports an answer cut between its elements.)
    assert_eq!(launch(200, "{}"), no_answer);
    // It timed out.
    let late: SdkError<CreateFleetError, HttpResponse> = SdkError::timeout_error("operation timeout");
    let failed = FailedCall::of("CreateFleet", &late);
    assert_eq!(failed.effect, CallEffect::Unknown);
    assert_eq!(failed.into_error(), no_answer);
}

#[test]
fn a_request_that_was_never_sent_did_nothing() {
    let unsent: SdkError<CreateFleetError, HttpResponse> = SdkError::construction_failure("no region");
    let failed = FailedCall::of("CreateFleet", &unsent);
    assert_eq!(failed.effect, CallEffect::None);
    assert_eq!(failed.into_error().class(), ErrorClass::Invalid);
}

#[test]
fn an_error_that_is_no_document_is_of_the_server_by_its_status() {
    assert_eq!(launch(503, "<html>Service Unavailable</html>").class(), ErrorClass::Server);
    assert_eq!(launch(502, "").class(), ErrorClass::Server);
    assert_eq!(launch(404, "not here").class(), ErrorClass::Unknown);
}

#[test]
fn a_launch_whose_answer_lacks_its_fleet_is_to_be_asked_again() {
    let error = launch(200, "<CreateFleetResponse></CreateFleetResponse>");
    assert_eq!(error.class(), ErrorClass::Server);
    assert!(error.to_string().contains("`FleetId` is missing"), "{error}");
}

fn dry_run(status: u16, code: &str) -> Result<DryRunOutcome, Ec2Error> {
    let (ec2, http) = ec2(&[(status, &body(code, "words"))]);
    let outcome = block_on(ec2.dry_run_create_fleet(&request()));
    assert_eq!(super::forms(&http)[0]["DryRun"], "true");
    outcome
}

#[test]
fn a_dry_run_says_whether_the_call_is_allowed() {
    assert_eq!(dry_run(412, "DryRunOperation").unwrap(), DryRunOutcome::WouldSucceed);
    let DryRunOutcome::Unauthorized { action, message, .. } = dry_run(403, "UnauthorizedOperation").unwrap()
    else {
        panic!("the caller isn't allowed")
    };
    assert_eq!((action.as_str(), message.as_str()), ("CreateFleet", "words"));
    // It is neither: it says nothing about the caller's rights.
    assert_eq!(dry_run(503, "RequestLimitExceeded").unwrap_err().class(), ErrorClass::Throttled);
    assert_eq!(dry_run(400, "InvalidParameterValue").unwrap_err().class(), ErrorClass::Invalid);
}

#[test]
fn a_dry_run_that_was_no_dry_run_is_an_error() {
    let (ec2, _) = ec2(&[(200, "<CreateFleetResponse><fleetId>fleet-1</fleetId></CreateFleetResponse>")]);
    let error = block_on(ec2.dry_run_create_fleet(&request())).unwrap_err();
    assert!(error.to_string().contains("EC2 answered a dry run as a call"), "{error}");
}
