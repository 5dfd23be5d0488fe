//! GetParameters.
//!
//! Shapes of the answers: "GetParameters" and "Parameter" of the AWS Systems Manager API Reference, and "Working with
//! shared parameters" of its user guide (read November 2026).

use serde_json::{Value, json};
use tenon_ec2::{Ec2Error, ErrorClass, Parameters};

use super::{block_on, parameters};

const ARN: &str = "arn:aws:ssm:us-east-1:111122223333:parameter/golden/ami";
const SHARED: &str = "arn:aws:ssm:us-east-1:444455556666:parameter/golden/ami";
const PUBLIC: &str =
    "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id";

fn own(value: &str) -> Value {
    json!({
        "ARN": ARN, "DataType": "text", "LastModifiedDate": 1_767_225_600.123, "Name": "/golden/ami",
        "Type": "String", "Value": value, "Version": 3,
    })
}

fn found(answered: &[Value], invalid: &[&str], asked: &[&str]) -> Result<Vec<String>, Ec2Error> {
    let body = json!({ "InvalidParameters": invalid, "Parameters": answered }).to_string();
    let (ssm, _) = parameters(&[(200, &body)]);
    let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
    let found = block_on(ssm.parameters(&asked))?;
    Ok(found.into_iter().map(|parameter| format!("{} {}", parameter.name, parameter.value)).collect())
}

fn check(answered: &[Value], invalid: &[&str], asked: &[&str], expected: &[String]) {
    assert_eq!(found(answered, invalid, asked).unwrap(), expected);
}

#[test]
fn an_answer_is_told_by_what_was_asked_for() {
    check(&[own("ami-1")], &[], &["/golden/ami"], &["/golden/ami ami-1".to_owned()]);
    check(&[own("ami-1")], &[], &[ARN], &[format!("{ARN} ami-1")]);
    let shared = json!({ "ARN": SHARED, "Name": SHARED, "Type": "String", "Value": "ami-2", "Version": 1 });
    check(&[shared], &[], &[SHARED], &[format!("{SHARED} ami-2")]);
}

#[test]
fn answers_are_in_the_order_of_the_request_and_missing_ones_are_left_out() {
    let public = json!({ "Name": PUBLIC, "Type": "String", "Value": "ami-9", "Version": 12 });
    let expected = [format!("{PUBLIC} ami-9"), "/golden/ami ami-1".to_owned()];
    check(&[own("ami-1"), public], &["/gone"], &[PUBLIC, "/gone", "/golden/ami"], &expected);
    check(&[], &["/gone"], &["/gone"], &[]);
}

#[test]
fn a_selector_is_a_parameter_of_its_own() {
    let mut selected = own("ami-old");
    selected["Selector"] = json!(":1");
    let expected =
        ["/golden/ami ami-1".to_owned(), "/golden/ami:1 ami-old".to_owned(), format!("{ARN}:1 ami-old")];
    let asked = format!("{ARN}:1");
    check(&[selected, own("ami-1")], &[], &["/golden/ami", "/golden/ami:1", &asked], &expected);
    let mut unmarked = own("ami-old");
    unmarked["Version"] = json!(1);
    check(&[unmarked, own("ami-1")], &[], &["/golden/ami", "/golden/ami:1", &asked], &expected);
}

#[test]
fn an_answer_that_cannot_be_read_is_an_error_with_its_field() {
    let said = found(&[own("ami-1")], &[], &["/other"]).unwrap_err().to_string();
    assert!(said.contains("`Parameters.Name` is `/golden/ami`, which wasn't asked for"), "{said}");
    let mut empty = own("ami-1");
    empty.as_object_mut().unwrap().remove("Value");
    let said = found(&[empty], &[], &["/golden/ami"]).unwrap_err().to_string();
    assert!(said.contains("`Parameters.Value` is missing"), "{said}");
}

#[test]
fn the_request_names_all_parameters() {
    let body = json!({ "InvalidParameters": ["/a", "/b"], "Parameters": [] }).to_string();
    let (ssm, http) = parameters(&[(200, &body)]);
    block_on(ssm.parameters(&["/a".to_owned(), "/b".to_owned()])).unwrap();
    let sent = &http.sent()[0];
    assert_eq!(sent.uri, "https://ssm.us-east-1.amazonaws.com/");
    let asked: Value = serde_json::from_slice(&sent.body).unwrap();
    assert_eq!(asked, json!({ "Names": ["/a", "/b"] }));
}

#[test]
fn errors_have_their_classes_and_nothing_is_asked_twice() {
    let check = |status: u16, code: &str, expected: ErrorClass| {
        let body = json!({ "__type": code, "message": "m" }).to_string();
        let (ssm, http) = parameters(&[(status, &body), (status, &body)]);
        let error = block_on(ssm.parameters(&["/a".to_owned()])).unwrap_err();
        assert_eq!(error.class(), expected, "{code}");
        assert_eq!(http.sent().len(), 1);
        error
    };
    let denied = check(400, "AccessDeniedException", ErrorClass::Unauthorized);
    assert!(matches!(&denied, Ec2Error::Unauthorized { action, .. } if action == "GetParameters"));
    check(400, "ThrottlingException", ErrorClass::Throttled);
    check(400, "ValidationException", ErrorClass::Invalid);
    check(400, "InvalidKeyId", ErrorClass::Invalid);
    check(500, "InternalServerError", ErrorClass::Server);
    let (ssm, _) = parameters(&[]);
    let silent = block_on(ssm.parameters(&["/a".to_owned()])).unwrap_err();
    assert_eq!(silent, Ec2Error::NoAnswer { action: "GetParameters".to_owned() });
}
