//! `/healthz`, `/readyz` and `/metrics`.
//!
//! Decides when the process must be restarted. A standby is as healthy and ready as a leader, because it takes over.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::exposition;
use super::metrics::Metrics;

/// A main loop without a turn for this long hangs. The longest step takes a minute.
const HANGS_AFTER_SECONDS: i64 = 120;

/// Serves until the handle is aborted.
///
/// # Errors
/// The address is taken.
pub(super) async fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> io::Result<JoinHandle<()>> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving health and metrics");
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(|| async { "ok" }))
        .route("/metrics", get(scrape))
        .with_state(metrics);
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!(error_type = "Health", %error, "the health server stopped");
        }
    }))
}

async fn healthz(State(metrics): State<Arc<Metrics>>) -> (StatusCode, String) {
    let ago = metrics.turned_ago();
    if ago > HANGS_AFTER_SECONDS {
        return (StatusCode::SERVICE_UNAVAILABLE, format!("the main loop hasn't run for {ago} s"));
    }
    (StatusCode::OK, "ok".to_owned())
}

async fn scrape(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, form)], exposition::body(metrics).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_loop_that_hangs_is_told() {
        let check = async |seconds, expected| {
            let metrics = Arc::new(Metrics::default());
            metrics.turn_ago(seconds);
            assert_eq!(healthz(State(metrics)).await, expected);
        };
        check(HANGS_AFTER_SECONDS, (StatusCode::OK, "ok".to_owned())).await;
        let hangs = "the main loop hasn't run for 150 s".to_owned();
        check(150, (StatusCode::SERVICE_UNAVAILABLE, hangs)).await;
    }
}
