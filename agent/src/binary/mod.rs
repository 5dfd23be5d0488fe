//! The process around the agent's core: configuration, clients of AWS and of the API server, leadership, health.
//!
//! Decides timeouts, and what ends the process. [`crate::pace`] decides when the agent looks, the core decides its
//! steps.
//!
//! Invariants: only a leader watches, reads actions or writes; a step is dropped when the lease ends, and may be
//! dropped between any two calls.

mod aws;
mod configuration;
mod drive;
mod exposition;
mod health;
mod karpenter;
mod lead;
pub mod logging;
mod metrics;

use std::error::Error;
use std::sync::Arc;

pub use configuration::{AgentConfiguration, ConfigurationErrors};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::aws::Aws;
use self::metrics::Metrics;

/// Runs until SIGTERM.
///
/// # Errors A failed start: no client for the API server, or an address in use.
pub async fn run(configuration: AgentConfiguration) -> Result<(), Box<dyn Error + Send + Sync>> {
    let metrics = Arc::new(Metrics::default());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: finishing the current step, then releasing the lease");
        stop.send_replace(true);
    });
    let health = health::serve(configuration.listen, Arc::clone(&metrics)).await?;
    let kube = tenon_kube::connect().await?;
    let aws = Aws::new(&configuration).await;
    lead::campaign(&configuration, &kube, &aws, &metrics, stopped).await;
    health.abort();
    Ok(())
}
