//! The local HTTP interface of a running region, on 127.0.0.1 only.
//!
//! Decides routes and status codes. Requests go over a channel to the loop that moves the region, which answers
//! between its steps, so no request sees half a step. The server runs on its own thread.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::api::{ApiRequest, ClearBody, ErrorList};
use crate::errors::{Failure, Problem, quoted};
use crate::state::{GetKind, StoryOf};

/// An answer: a document, or the problem of the request.
pub(crate) type ServerAnswer = Result<Value, Problem>;

/// A request that waits for its answer.
pub(crate) struct Ask {
    pub(crate) request: ApiRequest,
    reply: oneshot::Sender<ServerAnswer>,
}

impl Ask {
    /// Answers; a client that has left is ignored.
    pub(crate) fn answer(self, answer: ServerAnswer) {
        let _ = self.reply.send(answer);
    }
}

/// A server that runs.
pub(crate) struct Server {
    /// Its port.
    pub(crate) port: u16,
    asks: Receiver<Ask>,
}

impl Server {
    /// Listens on the port; 0 is any that is free.
    ///
    /// # Errors
    /// [`Failure`] when the port is taken.
    pub(crate) fn start(port: u16) -> Result<Self, Failure> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let refused = |error: std::io::Error| {
            let remedy = format!("stop what uses it, or give another port, such as `--port {}`", other(port));
            Problem::new(format!("can't listen on port {port} of 127.0.0.1: {error}"), remedy).at("--port")
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        let port = listener.local_addr().map_err(refused)?.port();
        let (sender, asks) = channel();
        std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || serve(listener, sender))
            .map_err(refused)?;
        Ok(Self { port, asks })
    }

    /// The next request, if one arrives within `wait`.
    pub(crate) fn next(&self, wait: Duration) -> Option<Ask> {
        match self.asks.recv_timeout(wait) {
            Ok(ask) => Some(ask),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(wait);
                None
            }
        }
    }
}

const fn other(port: u16) -> u16 {
    if port < u16::MAX { port + 1 } else { 7878 }
}

type Asks = Arc<Sender<Ask>>;

#[derive(Deserialize)]
struct QueryFilter {
    kind: Option<String>,
    cluster: Option<String>,
    name: Option<String>,
}

fn serve(listener: TcpListener, asks: Sender<Ask>) {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    runtime.block_on(async move {
        let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
        let asks = Arc::new(asks);
        tokio::spawn(stop_on_interrupt(Arc::clone(&asks)));
        let router = Router::new()
            .route("/v1/items", get(items))
            .route("/v1/journal/{of}/{*name}", get(journal))
            .route("/v1/clear", post(clear))
            .route("/v1/events", post(event))
            .with_state(asks);
        // The listener lives as long as the program, so its end needs no report.
        let _ = axum::serve(listener, router).await;
    });
}

/// Ctrl-C ends the region's loop, which then prints the state.
async fn stop_on_interrupt(asks: Asks) {
    if tokio::signal::ctrl_c().await.is_ok() {
        let (reply, _) = oneshot::channel();
        let _ = asks.send(Ask { request: ApiRequest::Stop, reply });
    }
}

type Response = (StatusCode, Json<Value>);

async fn ask(asks: &Asks, request: ApiRequest) -> Response {
    let (reply, answer) = oneshot::channel();
    let ended = || Problem::new("the region has ended", "start it again with `tenon local`");
    if asks.send(Ask { request, reply }).is_err() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, ended());
    }
    match answer.await {
        Ok(Ok(document)) => (StatusCode::OK, Json(document)),
        Ok(Err(problem)) => refuse(StatusCode::BAD_REQUEST, problem),
        Err(_) => refuse(StatusCode::SERVICE_UNAVAILABLE, ended()),
    }
}

fn refuse(status: StatusCode, problem: Problem) -> Response {
    (status, Json(serde_json::to_value(ErrorList::of(problem)).unwrap_or_default()))
}

fn unknown(field: &str, given: &str, known: &[&str]) -> Response {
    let problem = Problem::new(format!("`{given}` isn't one"), format!("use {}", quoted(known))).at(field);
    refuse(StatusCode::BAD_REQUEST, problem)
}

async fn items(State(asks): State<Asks>, Query(filter): Query<QueryFilter>) -> Response {
    let given = filter.kind.unwrap_or_default();
    match GetKind::parse(&given) {
        Some(kind) => {
            ask(&asks, ApiRequest::Items { kind, cluster: filter.cluster, name: filter.name }).await
        }
        None => unknown("kind", &given, &GetKind::ALL.map(GetKind::as_str)),
    }
}

async fn journal(
    State(asks): State<Asks>,
    Path((of, name)): Path<(String, String)>,
    Query(filter): Query<QueryFilter>,
) -> Response {
    match StoryOf::parse(&of) {
        Some(of) => ask(&asks, ApiRequest::Journal { of, cluster: filter.cluster, name }).await,
        None => unknown("kind", &of, &StoryOf::ALL.map(StoryOf::as_str)),
    }
}

async fn clear(State(asks): State<Asks>, Json(body): Json<ClearBody>) -> Response {
    ask(&asks, ApiRequest::Clear(body)).await
}

async fn event(State(asks): State<Asks>, Json(event): Json<Value>) -> Response {
    ask(&asks, ApiRequest::Event(event)).await
}
