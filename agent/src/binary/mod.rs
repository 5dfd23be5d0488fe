//! The process around the agent's core: configuration, clients of AWS and of the API server, leadership, health.
//!
//! Decides how long what may take and what ends the process. When the agent looks is [`crate::pace`]'s, what it does then
//! the core's.
//!
//! Invariants: only a leader watches, reads actions or writes; a step that is under way when the lease ends is dropped,
//! which the core survives between any two calls.

mod aws;
mod configuration;
mod drive;
mod health;
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
/// # Errors
/// What keeps it from starting: no client for the API server, or an address that is taken.
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
