//! HTTP without a server: given answers, or none. It tests answers that no local server gives.

use crate::DynamoTable;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, HttpClient, Region, RuntimeComponents};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use serde_json::Value as Json;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// The table `state` over this client.
pub(crate) fn table(http: impl HttpClient + 'static) -> DynamoTable {
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("id", "secret", None, None, "tests"))
        .http_client(http);
    DynamoTable::new(&Client::from_conf(config.build()), "state")
}

/// Gives its answers, one a request and the last one again and again, and keeps the requests: operation and body.
#[derive(Debug, Clone)]
pub(crate) struct FakeDynamoHttp {
    answers: Arc<Mutex<VecDeque<(u16, Json)>>>,
    requests: Arc<Mutex<Vec<(String, Json)>>>,
}

impl FakeDynamoHttp {
    pub(crate) fn new(answers: impl IntoIterator<Item = (u16, Json)>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, requests: Arc::default() }
    }

    pub(crate) fn requests(&self) -> Vec<(String, Json)> {
        self.requests.lock().unwrap().clone()
    }
}

impl HttpConnector for FakeDynamoHttp {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let operation = request.headers().get("x-amz-target").unwrap().to_owned();
        let body = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
        self.requests.lock().unwrap().push((operation, body));
        let mut answers = self.answers.lock().unwrap();
        let (status, body) = match answers.len() {
            1 => answers.front().cloned(),
            _ => answers.pop_front(),
        }
        .unwrap();
        let response = HttpResponse::new(status.try_into().unwrap(), body.to_string().into());
        HttpConnectorFuture::ready(Ok(response))
    }
}

impl HttpClient for FakeDynamoHttp {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// Never answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence;

impl HttpConnector for Silence {
    fn call(&self, _: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(std::future::pending())
    }
}

impl HttpClient for Silence {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(*self)
    }
}
