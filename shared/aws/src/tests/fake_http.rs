//! An HTTP client with recorded answers, which keeps the requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;

/// A sent request.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) uri: String,
    /// The header with the signature, and with the region that it is for.
    pub(crate) authorization: String,
    pub(crate) body: Vec<u8>,
}

#[derive(Debug, Default)]
struct Log {
    answers: VecDeque<(u16, String)>,
    sent: Vec<Sent>,
}

/// A client that gets these answers in their order, and then a broken connection.
#[derive(Debug, Clone)]
pub(crate) struct FakeHttp(Arc<Mutex<Log>>);

impl FakeHttp {
    pub(crate) fn new(answers: &[(u16, &str)]) -> Self {
        let answers = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        Self(Arc::new(Mutex::new(Log { answers, sent: Vec::new() })))
    }

    /// The sent requests, in order.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.0.lock().unwrap().sent.clone()
    }
}

impl HttpConnector for FakeHttp {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let mut log = self.0.lock().unwrap();
        let body = request.body().bytes().unwrap().to_vec();
        let authorization = request.headers().get("authorization").unwrap_or_default().to_owned();
        log.sent.push(Sent { uri: request.uri().to_owned(), authorization, body });
        HttpConnectorFuture::ready(match log.answers.pop_front() {
            None => Err(ConnectorError::io("the connection broke".into())),
            Some((status, body)) => {
                let mut response = HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body));
                response.headers_mut().insert("x-amzn-requestid", "of-the-header");
                Ok(response)
            }
        })
    }
}

impl HttpClient for FakeHttp {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}
