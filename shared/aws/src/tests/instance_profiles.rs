//! GetInstanceProfile.
//!
//! Shapes of the answers: "GetInstanceProfile" of the IAM API Reference and "Common errors" there (read November 2026).

use tenon_ec2::{Ec2Error, ErrorClass, InstanceProfiles};

use super::{block_on, form, instance_profiles};

const ROLE: &str = "<member><Path>/</Path><RoleName>nodes</RoleName><RoleId>AROAEXAMPLE</RoleId>\
    <Arn>arn:aws:iam::111122223333:role/nodes</Arn><CreateDate>2026-01-01T00:00:00Z</CreateDate>\
    <AssumeRolePolicyDocument>%7B%7D</AssumeRolePolicyDocument></member>";

const DATE: &str = "<CreateDate>2026-01-02T03:04:05Z</CreateDate>";

fn answer(roles: &str, date: &str) -> String {
    format!(
        "<GetInstanceProfileResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><GetInstanceProfileResult>\
         <InstanceProfile><Path>/team/</Path><InstanceProfileName>nodes</InstanceProfileName>\
         <InstanceProfileId>AIPAEXAMPLE</InstanceProfileId>\
         <Arn>arn:aws:iam::111122223333:instance-profile/team/nodes</Arn>{date}<Roles>{roles}</Roles>\
         </InstanceProfile></GetInstanceProfileResult>\
         <ResponseMetadata><RequestId>of-the-body</RequestId></ResponseMetadata></GetInstanceProfileResponse>"
    )
}

fn check(answered: &str, expected: &str) {
    let (iam, _) = instance_profiles("us-east-1", &[(200, answered)]);
    let found = block_on(iam.instance_profile("nodes")).unwrap();
    let created = found.created_at.map_or("no date".to_owned(), |at| at.to_string());
    assert_eq!(format!("{} {} {:?} {created}", found.name, found.arn, found.roles), expected);
}

#[test]
fn a_profile_has_its_arn_its_role_and_its_date() {
    let named = "nodes arn:aws:iam::111122223333:instance-profile/team/nodes";
    let role = r#"["arn:aws:iam::111122223333:role/nodes"]"#;
    check(&answer(ROLE, DATE), &format!("{named} {role} 2026-01-02T03:04:05Z"));
    check(&answer("", DATE), &format!("{named} [] 2026-01-02T03:04:05Z"));
    check(&answer(ROLE, ""), &format!("{named} {role} no date"));
}

#[test]
fn a_field_that_is_left_out_is_an_error_with_its_name() {
    let nameless = answer("", DATE).replace("<InstanceProfileName>nodes</InstanceProfileName>", "");
    let (iam, _) = instance_profiles("us-east-1", &[(200, &nameless)]);
    let said = block_on(iam.instance_profile("nodes")).unwrap_err().to_string();
    assert!(said.contains("`InstanceProfile.InstanceProfileName` is missing"), "{said}");
}

/// "AWS service endpoints", IAM: one endpoint for each partition, which is signed for in its own region.
#[test]
fn iam_is_asked_at_its_partitions_endpoint() {
    let check = |region: &'static str, endpoint: &str, signed: &str| {
        let (iam, http) = instance_profiles(region, &[(200, &answer(ROLE, DATE))]);
        block_on(iam.instance_profile("nodes")).unwrap();
        let sent = &http.sent()[0];
        assert_eq!(sent.uri, endpoint);
        assert!(sent.authorization.contains(&format!("/{signed}/iam/")), "{}", sent.authorization);
        let asked = form(sent);
        assert_eq!(asked["Action"], "GetInstanceProfile");
        assert_eq!(asked["Version"], "2010-05-08");
        assert_eq!(asked["InstanceProfileName"], "nodes");
    };
    check("us-east-1", "https://iam.amazonaws.com/", "us-east-1");
    check("eu-central-1", "https://iam.amazonaws.com/", "us-east-1");
    check("cn-north-1", "https://iam.cn-north-1.amazonaws.com.cn/", "cn-north-1");
    check("us-gov-east-1", "https://iam.us-gov.amazonaws.com/", "us-gov-west-1");
}

#[test]
fn errors_have_their_classes_and_nothing_is_asked_twice() {
    let check = |status: u16, code: &str, expected: ErrorClass| {
        let body = format!(
            "<ErrorResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><Error><Type>Sender</Type>\
             <Code>{code}</Code><Message>m</Message></Error><RequestId>of-the-body</RequestId></ErrorResponse>"
        );
        let (iam, http) = instance_profiles("us-east-1", &[(status, &body), (status, &body)]);
        let error = block_on(iam.instance_profile("nodes")).unwrap_err();
        assert_eq!(error.class(), expected, "{code}");
        assert_eq!(http.sent().len(), 1);
        error
    };
    let gone = check(404, "NoSuchEntity", ErrorClass::NotFound);
    assert!(matches!(gone, Ec2Error::NotFound { .. }), "{gone:?}");
    let denied = check(403, "AccessDenied", ErrorClass::Unauthorized);
    assert!(matches!(&denied, Ec2Error::Unauthorized { action, .. } if action == "GetInstanceProfile"));
    check(400, "Throttling", ErrorClass::Throttled);
    check(400, "ValidationError", ErrorClass::Invalid);
    check(500, "ServiceFailure", ErrorClass::Server);
    let (iam, _) = instance_profiles("us-east-1", &[]);
    let silent = block_on(iam.instance_profile("nodes")).unwrap_err();
    assert_eq!(silent, Ec2Error::NoAnswer { action: "GetInstanceProfile".to_owned() });
}
