//! HTTP without a server: given answers, or none.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_sdk_sqs::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_types::SdkConfig;
use aws_types::region::Region;
use serde_json::Value;

use crate::configuration::FunctionConfiguration;

/// A sent request: the operation, such as `AmazonSQS.SendMessage`, and its body.
pub(crate) type SentRequest = (String, Value);

#[derive(Debug, Default)]
struct RequestLog {
    answers: VecDeque<(u16, Value)>,
    sent: Vec<SentRequest>,
}

/// Gives its answers, one a request, and then broken connections; keeps the requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct FakeAwsHttp(Arc<Mutex<RequestLog>>);

impl FakeAwsHttp {
    pub(crate) fn new(answers: impl IntoIterator<Item = (u16, Value)>) -> Self {
        Self(Arc::new(Mutex::new(RequestLog { answers: answers.into_iter().collect(), sent: Vec::new() })))
    }

    pub(crate) fn sent(&self) -> Vec<SentRequest> {
        self.0.lock().unwrap().sent.clone()
    }

    /// A configuration of clients that send through this.
    pub(crate) fn sdk_config(&self) -> SdkConfig {
        SdkConfig::builder()
            .behavior_version(aws_config::BehaviorVersion::v2026_01_12())
            .region(Region::new("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(Credentials::new(
                "id", "secret", None, None, "tests",
            )))
            .http_client(self.clone())
            .build()
    }
}

impl HttpConnector for FakeAwsHttp {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = request.headers().get("x-amz-target").unwrap().to_owned();
        let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        let mut log = self.0.lock().unwrap();
        log.sent.push((operation, body));
        HttpConnectorFuture::ready(match log.answers.pop_front() {
            None => Err(ConnectorError::io("the connection broke".into())),
            Some((status, body)) => {
                Ok(HttpResponse::new(status.try_into().unwrap(), body.to_string().into()))
            }
        })
    }
}

impl HttpClient for FakeAwsHttp {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// The configuration of the installation `tenon` in us-east-1.
pub(crate) fn configuration() -> FunctionConfiguration {
    FunctionConfiguration::parse(|variable| {
        let value = match variable {
            "AWS_REGION" => "us-east-1",
            "TENON_ACCOUNT" => "123456789012",
            "TENON_QUEUES" => "https://sqs.us-east-1.amazonaws.com/123456789012/tenon-",
            _ => "tenon",
        };
        Some(value.to_owned())
    })
    .unwrap()
}
