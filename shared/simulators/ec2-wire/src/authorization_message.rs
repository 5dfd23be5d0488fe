//! STS: DecodeAuthorizationMessage over the twin's denials, on its Query protocol.

use tenon_ec2::{AuthorizationMessages as _, DecodedMessage};
use tenon_twin::RegionTwin;

use crate::error::{OwnCodes, WireError, of_service_call, refused, service_document};
use crate::form::FormFields;
use crate::xml::Xml;

/// The API's version, by which a request is told from one to EC2.
const VERSION: &str = "2011-06-15";
const CODES: OwnCodes = OwnCodes { throttled: (400, "Throttling"), denied: (403, "AccessDenied") };

/// Whether a request is one to STS.
pub(crate) fn is_asked(body: &[u8]) -> bool {
    FormFields::parse(body).is_ok_and(|mut form| form.text("Version").as_deref() == Some(VERSION))
}

/// The answer to a request: status and document; none if no answer comes.
pub(crate) async fn answer(twin: &RegionTwin, body: &[u8], request_id: &str) -> Option<(u16, String)> {
    match found(twin, body).await {
        Ok(message) => Some((200, document(&message, request_id))),
        Err(Some(refusal)) => Some((refusal.status, service_document(&refusal, request_id))),
        Err(None) => None,
    }
}

async fn found(twin: &RegionTwin, body: &[u8]) -> Result<DecodedMessage, Option<WireError>> {
    let encoded = read(body).map_err(Some)?;
    twin.decoded_message(&encoded).await.map_err(|error| of_service_call(error, CODES))
}

fn read(body: &[u8]) -> Result<String, WireError> {
    let mut form = FormFields::parse(body)?;
    form.text("Version");
    let action = form.required("Action")?;
    if action != "DecodeAuthorizationMessage" {
        return Err(refused("InvalidAction", format!("Could not find operation {action}")));
    }
    let encoded = form.required("EncodedMessage")?;
    form.finish()?;
    Ok(encoded)
}

fn document(message: &DecodedMessage, request_id: &str) -> String {
    Xml::document("DecodeAuthorizationMessageResponse", |xml| {
        xml.within("DecodeAuthorizationMessageResult", |xml| xml.text("DecodedMessage", message.content()));
        xml.within("ResponseMetadata", |xml| xml.text("RequestId", request_id));
    })
}
