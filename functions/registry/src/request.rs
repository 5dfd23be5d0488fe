//! CloudFormation's requests for a custom resource, and the answers.
//!
//! Decides the forms of both, from CloudFormation's user guide, "Custom resource request objects" and "response
//! objects", read in November 2026.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The most characters of a reason: CloudFormation takes answers of 4,096 bytes at most.
const REASON_CHARACTERS: usize = 1000;

/// The kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum RequestKind {
    /// It comes into the stack.
    Create,
    /// Its properties changed.
    Update,
    /// It leaves the stack, or its creation is rolled back.
    Delete,
}

/// A request of CloudFormation.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CustomResourceRequest {
    /// Its kind.
    #[serde(rename = "RequestType")]
    pub kind: RequestKind,
    /// The signed URL for the answer; whoever has it can answer.
    #[serde(rename = "ResponseURL")]
    pub response_url: String,
    /// The stack's ARN.
    pub stack_id: String,
    /// The request.
    pub request_id: String,
    /// The resource's name in the template.
    pub logical_resource_id: String,
    /// The id from the last answer; `None` at creation.
    pub physical_resource_id: Option<String>,
    /// The properties; all scalars are strings.
    #[serde(default)]
    pub resource_properties: Map<String, Value>,
}

/// Without the URL, because a log must not hold the means to answer.
impl fmt::Debug for CustomResourceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("kind", &self.kind)
            .field("stack_id", &self.stack_id)
            .field("request_id", &self.request_id)
            .finish_non_exhaustive()
    }
}

/// Whether the request succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ResponseStatus {
    /// It did.
    #[serde(rename = "SUCCESS")]
    Success,
    /// It wasn't, and nothing changed.
    #[serde(rename = "FAILED")]
    Failed,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CustomResourceResponse {
    /// Whether the request succeeded.
    pub status: ResponseStatus,
    /// Why it wasn't; for the stack's events.
    pub reason: String,
    /// The resource's id from now on. A new id makes CloudFormation delete the old resource.
    pub physical_resource_id: String,
    /// The request's.
    pub stack_id: String,
    /// The request's.
    pub request_id: String,
    /// The request's.
    pub logical_resource_id: String,
}

impl CustomResourceResponse {
    /// The answer to a request.
    #[must_use]
    pub fn new(
        request: &CustomResourceRequest,
        physical_resource_id: String,
        done: Result<(), String>,
    ) -> Self {
        let (status, reason) = match done {
            Ok(()) => (ResponseStatus::Success, String::new()),
            Err(reason) => (ResponseStatus::Failed, reason.chars().take(REASON_CHARACTERS).collect()),
        };
        Self {
            status,
            reason,
            physical_resource_id,
            stack_id: request.stack_id.clone(),
            request_id: request.request_id.clone(),
            logical_resource_id: request.logical_resource_id.clone(),
        }
    }
}
