//! Sends the answer to CloudFormation's signed URL.
//!
//! Decides how: one PUT without a content type, because the signature has none. A failed PUT is an error of the
//! invocation, which Lambda repeats.

use aws_smithy_http_client::Connector;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;
use tenon_lambda::InvocationError;
use tenon_runtime::error::chain;

use crate::request::{CustomResourceRequest, CustomResourceResponse, ResponseStatus};

/// Reads an invocation's request.
///
/// # Errors [`InvocationError`] if it isn't CloudFormation's.
pub fn read(payload: Value) -> Result<CustomResourceRequest, InvocationError> {
    serde_json::from_value(payload).map_err(|error| {
        let message = format!("can't read CloudFormation's request: {error}");
        InvocationError { error_type: "MessageForm", message }
    })
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
