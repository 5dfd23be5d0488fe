//! Reads CloudFormation's request, and sends the answer to its signed URL.
//!
//! Decides how: one PUT without a content type, because the signature has none. A failed PUT is an error of the
//! invocation, which Lambda repeats. A request that wants its answer elsewhere changes nothing and gets no answer.

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;
use tenon_domain::id::Region;
use tenon_lambda::{ConfigurationError, InvocationError, VariableProblem};
use tenon_runtime::error::chain;

use crate::origins::AnswerOrigins;
use crate::request::{CustomResourceRequest, CustomResourceResponse, ResponseStatus};

/// The server that a rehearsal gets its answers at. No stack sets it.
const REHEARSAL: &str = "TENON_REHEARSAL_ANSWERS";
/// The most characters of a refused URL's start in the log: a host name is no longer than 253.
const LOGGED_CHARACTERS: usize = 300;

/// Where answers of this process may go.
///
/// # Errors [`ConfigurationError`] if the rehearsal's server isn't on this machine.
pub fn origins(region: &Region) -> Result<AnswerOrigins, ConfigurationError> {
    let origins = AnswerOrigins::of_region(region);
    let Ok(value) = std::env::var(REHEARSAL) else { return Ok(origins) };
    origins.with_rehearsal(&value).ok_or_else(|| {
        let expected = "the rehearsal's server, `http://127.0.0.1:<port>`, or unset it";
        ConfigurationError {
            problems: vec![VariableProblem::Malformed { variable: REHEARSAL, value, expected }],
        }
    })
}

/// Reads an invocation's request.
///
/// # Errors [`InvocationError`] if it isn't CloudFormation's, or wants its answer elsewhere.
pub fn read(payload: Value, origins: &AnswerOrigins) -> Result<CustomResourceRequest, InvocationError> {
    let request: CustomResourceRequest = serde_json::from_value(payload).map_err(|error| {
        let message = format!("can't read CloudFormation's request: {error}");
        InvocationError { error_type: "MessageForm", message }
    })?;
    if origins.allow(&request.response_url) {
        return Ok(request);
    }
    let refused = InvocationError {
        error_type: "ForeignAnswer",
        message: format!(
            "request for stack `{}` is refused: its answer is to go to `{}`, which isn't CloudFormation's bucket of \
             this region; nothing is changed or sent",
            request.stack_id,
            start(&request.response_url)
        ),
    };
    // Lambda keeps the error with the invocation, where nobody looks for a forged one.
    tracing::error!(error_type = refused.error_type, "{}", refused.message);
    Err(refused)
}

/// Scheme and host of a URL. The rest may be the means to answer.
fn start(url: &str) -> String {
    let parts: Vec<&str> = url.splitn(4, '/').take(3).collect();
    parts.join("/").chars().take(LOGGED_CHARACTERS).collect()
}

/// Sends an answer to the URL of its request. A refusal is logged here, because otherwise only the stack's events
/// show it.
///
/// # Errors [`InvocationError`] if the PUT fails.
pub async fn respond(
    request: &CustomResourceRequest,
    answer: &CustomResourceResponse,
) -> Result<(), InvocationError> {
    if answer.status == ResponseStatus::Failed {
        tracing::warn!(error_type = "Refused", stack = answer.stack_id, "{}", answer.reason);
    }
    let failed = |message: String| InvocationError {
        error_type: "Answer",
        message: format!("answering CloudFormation: {message}"),
    };
    let body = serde_json::to_vec(answer).map_err(|error| failed(error.to_string()))?;
    let mut put = HttpRequest::new(SdkBody::from(body));
    put.set_method("PUT").map_err(|error| failed(chain(&error)))?;
    put.set_uri(request.response_url.as_str()).map_err(|error| failed(chain(&error)))?;
    let connector = Connector::builder().tls_provider(Provider::Rustls(CryptoMode::Ring)).build();
    let answered = connector.call(put).await.map_err(|error| failed(chain(&error)))?;
    if answered.status().is_success() {
        Ok(())
    } else {
        Err(failed(format!("status {}", answered.status().as_u16())))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(url: &str) -> Value {
        json!({
            "RequestType": "Create", "ResponseURL": url, "RequestId": "request", "LogicalResourceId": "Registry",
            "StackId": "arn:aws:cloudformation:us-east-1:111122223333:stack/prod/1",
        })
    }

    #[test]
    fn a_request_for_an_answer_elsewhere_is_refused_without_its_signature() {
        let origins = AnswerOrigins::of_region(&Region::parse("us-east-1").unwrap());
        let bucket = "https://cloudformation-custom-resource-response-useast1.s3.amazonaws.com/a?Signature=b";
        assert_eq!(read(request(bucket), &origins).unwrap().response_url, bucket);
        let refused = read(request("https://example.com/a?Signature=secret"), &origins).unwrap_err();
        assert_eq!(refused.error_type, "ForeignAnswer");
        assert!(refused.message.contains("to go to `https://example.com`"), "{}", refused.message);
        assert!(!refused.message.contains("secret"), "{}", refused.message);
        assert_eq!(read(json!({}), &origins).unwrap_err().error_type, "MessageForm");
    }
}
