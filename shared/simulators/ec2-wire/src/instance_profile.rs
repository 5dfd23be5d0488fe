//! IAM: GetInstanceProfile over the twin's profiles, on its Query protocol.
//!
//! Decides the fields that the port doesn't have: ids, and dates and documents of roles.

use tenon_domain::Timestamp;
use tenon_ec2::InstanceProfiles as _;
use tenon_ec2::port::InstanceProfileFacts;
use tenon_twin::RegionTwin;

use crate::error::{OwnCodes, WireError, of_service_call, refused, service_document};
use crate::form::FormFields;
use crate::xml::Xml;

/// The API's version, by which a request is told from one to EC2.
const VERSION: &str = "2010-05-08";
const CODES: OwnCodes = OwnCodes { throttled: (400, "Throttling"), denied: (403, "AccessDenied") };

/// Whether a request is one to IAM.
pub(crate) fn is_asked(body: &[u8]) -> bool {
    FormFields::parse(body).is_ok_and(|mut form| form.text("Version").as_deref() == Some(VERSION))
}

/// The answer to a request: status and document; none if no answer comes.
pub(crate) async fn answer(twin: &RegionTwin, body: &[u8], request_id: &str) -> Option<(u16, String)> {
    match found(twin, body).await {
        Ok(facts) => Some((200, document(&facts, request_id))),
        Err(Some(refusal)) => Some((refusal.status, service_document(&refusal, request_id))),
        Err(None) => None,
    }
}

async fn found(twin: &RegionTwin, body: &[u8]) -> Result<InstanceProfileFacts, Option<WireError>> {
    let name = read(body).map_err(Some)?;
    twin.instance_profile(&name).await.map_err(|error| {
        let missing = error.class() == tenon_ec2::ErrorClass::NotFound;
        let refusal = of_service_call(error, CODES)?;
        Some(if missing { WireError { status: 404, ..refusal } } else { refusal })
    })
}

fn read(body: &[u8]) -> Result<String, WireError> {
    let mut form = FormFields::parse(body)?;
    form.text("Version");
    let action = form.required("Action")?;
    if action != "GetInstanceProfile" {
        return Err(refused("InvalidAction", format!("Could not find operation {action}")));
    }
    let name = form.required("InstanceProfileName")?;
    form.finish()?;
    Ok(name)
}

fn document(facts: &InstanceProfileFacts, request_id: &str) -> String {
    Xml::document("GetInstanceProfileResponse", |xml| {
        xml.within("GetInstanceProfileResult", |xml| {
            xml.within("InstanceProfile", |xml| {
                xml.text("Path", "/");
                xml.text("InstanceProfileName", &facts.name);
                xml.text("InstanceProfileId", "AIPATWIN");
                xml.text("Arn", &facts.arn);
                xml.maybe("CreateDate", facts.created_at);
                xml.within("Roles", |xml| facts.roles.iter().for_each(|arn| role(xml, arn)));
            });
        });
        xml.within("ResponseMetadata", |xml| xml.text("RequestId", request_id));
    })
}

fn role(xml: &mut Xml, arn: &str) {
    xml.within("member", |xml| {
        xml.text("Path", "/");
        xml.text("RoleName", arn.rsplit('/').next().unwrap_or(arn));
        xml.text("RoleId", "AROATWIN");
        xml.text("Arn", arn);
        xml.text("CreateDate", Timestamp::UNIX_EPOCH);
        xml.text("AssumeRolePolicyDocument", "%7B%7D");
    });
}
