//! AssumeRole, and EC2 by the credentials that it gives.
//!
//! Shape of the answers: "AssumeRole" of the STS API Reference and "Common errors" there (read November 2026).

use std::sync::Arc;

use tenon_ec2::port::{LaunchRole, Tags};
use tenon_ec2::{Ec2, Ec2Error, LaunchRights};

use super::{block_on, ec2, form};
use crate::{AwsEc2, FailedCall};

const ARN: &str = "arn:aws:iam::111122223333:role/tenon/tenon/us-east-1/prod";
const TAGGED: &str = "<CreateTagsResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\
    <requestId>r</requestId><return>true</return></CreateTagsResponse>";
const DENIED: &str = "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>\
    <Code>AccessDenied</Code><Message>User: arn:aws:sts::111122223333:assumed-role/provisioner/x is not authorized to \
    perform: sts:AssumeRole on resource: prod</Message></Error><RequestId>of-sts</RequestId></ErrorResponse>";

fn session(key: &str, until: &str) -> String {
    format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>\
         <AssumedRoleUser><AssumedRoleId>AROAEXAMPLE:tenon-prod</AssumedRoleId>\
         <Arn>arn:aws:sts::111122223333:assumed-role/prod/tenon-prod</Arn></AssumedRoleUser>\
         <Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>\
         <SessionToken>token</SessionToken><Expiration>{until}</Expiration></Credentials></AssumeRoleResult>\
         <ResponseMetadata><RequestId>of-sts</RequestId></ResponseMetadata></AssumeRoleResponse>"
    )
}

fn role(cluster: &str) -> LaunchRole {
    LaunchRole { arn: ARN.replace("/prod", &format!("/{cluster}")), cluster: cluster.parse().unwrap() }
}

/// Tags an instance by the rights of a cluster's role.
fn tag_by(ec2: &AwsEc2, cluster: &str) {
    let by = block_on(ec2.launching(&role(cluster))).unwrap();
    let tags = Tags::from([("Name".to_owned(), "a".to_owned())]);
    block_on(by.create_tags(&["i-1".parse().unwrap()], &tags)).unwrap();
}

#[test]
fn a_role_is_taken_once_while_its_session_lives() {
    let session = session("ASIAONE", "2999-01-01T00:00:00Z");
    let (ec2, http) = ec2(&[(200, &session), (200, TAGGED), (200, TAGGED)]);
    tag_by(&ec2, "prod");
    tag_by(&ec2.clone(), "prod");
    let sent = http.sent();
    assert_eq!(sent.len(), 3);
    assert_eq!(sent[0].uri, "https://sts.us-east-1.amazonaws.com/");
    assert!(sent[0].authorization.contains("Credential=key/"), "{}", sent[0].authorization);
    let asked = form(&sent[0]);
    assert_eq!((asked["Action"].as_str(), asked["RoleArn"].as_str()), ("AssumeRole", ARN));
    assert_eq!(asked["RoleSessionName"], "tenon-prod");
    for by_role in &sent[1..] {
        assert!(by_role.authorization.contains("Credential=ASIAONE/"), "{}", by_role.authorization);
    }
}

#[test]
fn each_cluster_has_a_session_of_its_own() {
    let [one, two] = ["ASIAONE", "ASIATWO"].map(|key| session(key, "2999-01-01T00:00:00Z"));
    let (ec2, http) = ec2(&[(200, &one), (200, TAGGED), (200, &two), (200, TAGGED)]);
    tag_by(&ec2, "prod");
    tag_by(&ec2, "next");
    let sent = http.sent();
    assert!(sent[3].authorization.contains("Credential=ASIATWO/"), "{}", sent[3].authorization);
}

#[test]
fn a_session_that_ends_soon_is_replaced() {
    let [one, two] = [("ASIAONE", "2026-01-01T00:00:00Z"), ("ASIATWO", "2999-01-01T00:00:00Z")]
        .map(|(k, u)| session(k, u));
    let (ec2, http) = ec2(&[(200, &one), (200, TAGGED), (200, &two), (200, TAGGED)]);
    tag_by(&ec2, "prod");
    tag_by(&ec2, "prod");
    assert_eq!(http.sent().iter().filter(|sent| sent.uri.contains("sts")).count(), 2);
}

#[test]
fn a_denied_role_is_no_rights_and_is_reported() {
    let (ec2, _) = ec2(&[(403, DENIED)]);
    let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hearing = Arc::clone(&heard);
    let ec2 = ec2.reporting(Arc::new(move |failed: &FailedCall| {
        hearing.lock().unwrap().push((failed.action, failed.code.clone()));
    }));
    let denied = block_on(ec2.launching(&role("prod"))).unwrap_err();
    let Ec2Error::Unauthorized { action, decoded: None, .. } = &denied else { panic!("{denied:?}") };
    assert_eq!(action, "AssumeRole");
    assert_eq!(*heard.lock().unwrap(), [("AssumeRole", "AccessDenied".to_owned())]);
    // The connection breaks.
    let silent = block_on(ec2.launching(&role("prod"))).unwrap_err();
    assert_eq!(silent, Ec2Error::NoAnswer { action: "AssumeRole".to_owned() });
}
