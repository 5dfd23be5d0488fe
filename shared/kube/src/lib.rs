//! The agent's port of an API server over kube-rs, and the lease by which one replica leads.
//!
//! Decides the requests, the meaning of their errors, and which fields of twenty thousand pods stay in memory. The
//! agent's core, which knows only [`tenon_snapshot::Kube`], decides what to do with them.

pub mod classify;
mod client;
mod kept;
pub mod lease;
mod notes;
mod prune;
pub mod resource;
mod store;
mod watch;

use std::time::Duration;

pub use client::KubeClient;
pub use kube::{Client, Config, Error};
pub use store::Changes;
pub use watch::{Listing, watched};

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of the API server that the environment names: by `KUBECONFIG` or the pod's service account.
///
/// # Errors
/// [`Error`] without a readable configuration.
pub async fn connect() -> Result<Client, Error> {
    client_of(Config::infer().await.map_err(Error::InferConfig)?)
}

/// A client without kube-rs' own retries, which would wait whenever a PodDisruptionBudget refuses an eviction (429).
///
/// # Errors
/// [`Error`] for an invalid configuration.
pub fn client_of(mut config: Config) -> Result<Client, Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Client::try_from(config)
}

/// How this API server sends the first lists. Servers from 1.34 on stream them, unless a feature gate disables that;
/// the version doesn't show the gate, so the watch's error reports it.
///
/// # Errors
/// [`Error`] if the server doesn't answer.
pub async fn listing_of(client: &Client) -> Result<Listing, Error> {
    let version = client.apiserver_version().await?;
    let minor: u32 = version.minor.trim_end_matches('+').parse().unwrap_or(0);
    Ok(if version.major == "1" && minor < STREAMED_SINCE { Listing::Paged } else { Listing::Streamed })
}

/// Source: the feature gate `WatchList` of kube-apiserver, on by default since 1.34 (read 2026-11).
const STREAMED_SINCE: u32 = 34;
