//! Systems Manager: GetParameters over the twin's parameters, in its JSON.
//!
//! Decides the fields beside a value. As in AWS, an answer has the parameter's own name and ARN, whatever it was asked
//! by. A parameter's version is the requested one, or 1.

use serde::Deserialize;
use serde_json::{Value, json};
use tenon_ec2::Parameters as _;
use tenon_ec2::port::{Parameter, without_selector};
use tenon_twin::RegionTwin;

use crate::error::{OwnCodes, WireError, of_service_call, refused};

/// The beginning of the service's operations.
pub(crate) const SERVICE: &[u8] = b"AmazonSSM.";
const GET_PARAMETERS: &[u8] = b"AmazonSSM.GetParameters";
const CODES: OwnCodes =
    OwnCodes { throttled: (400, "ThrottlingException"), denied: (400, "AccessDeniedException") };

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct GetParameters {
    names: Vec<String>,
}

/// The answer to a request: status and document; none if no answer comes.
pub(crate) async fn answer(twin: &RegionTwin, target: &[u8], body: &[u8]) -> Option<(u16, String)> {
    match found(twin, target, body).await {
        Ok(document) => Some((200, document.to_string())),
        Err(Some(refusal)) => {
            let document = json!({ "__type": refusal.code, "message": refusal.message });
            Some((refusal.status, document.to_string()))
        }
        Err(None) => None,
    }
}

async fn found(twin: &RegionTwin, target: &[u8], body: &[u8]) -> Result<Value, Option<WireError>> {
    if target != GET_PARAMETERS {
        let operation = String::from_utf8_lossy(target);
        return Err(Some(refused("UnknownOperationException", format!("{operation} isn't served"))));
    }
    let asked: GetParameters = serde_json::from_slice(body)
        .map_err(|error| Some(refused("ValidationException", error.to_string())))?;
    let found = twin.parameters(&asked.names).await.map_err(|error| of_service_call(error, CODES))?;
    let missing = asked.names.iter().filter(|name| found.iter().all(|parameter| parameter.name != **name));
    Ok(json!({
        "Parameters": found.iter().map(|parameter| document(twin, parameter)).collect::<Vec<Value>>(),
        "InvalidParameters": missing.collect::<Vec<&String>>(),
    }))
}

fn document(twin: &RegionTwin, parameter: &Parameter) -> Value {
    let (asked, selector) = without_selector(&parameter.name);
    let name = asked.split_once(":parameter").map_or(asked, |(_, path)| path);
    let version = selector.and_then(|version| version.parse::<u32>().ok()).unwrap_or(1);
    let mut document = json!({
        "ARN": twin.parameter_arn(name), "DataType": "text", "LastModifiedDate": 1_767_225_600.0, "Name": name,
        "Type": "String", "Value": parameter.value, "Version": version,
    });
    if let (Some(selector), Some(fields)) = (selector, document.as_object_mut()) {
        fields.insert("Selector".to_owned(), Value::from(format!(":{selector}")));
    }
    document
}
