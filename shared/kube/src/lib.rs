//! The agent's port of an API server over kube-rs, and the lease by which one replica leads.
//!
//! Decides requests, what their errors mean, and what is kept in memory of twenty thousand pods. It doesn't decide what
//! anybody does about it: that is the agent's core, which knows only [`tenon_snapshot::Kube`].

pub mod classify;
mod client;
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
pub use watch::{Listing, WATCHED};

/// A connection is given up after so long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of the API server that the environment names: a pod's service account, or `KUBECONFIG`.
///
/// # Errors
/// [`Error`]: there is neither, or it can't be read.
pub async fn connect() -> Result<Client, Error> {
    client_of(Config::infer().await.map_err(Error::InferConfig)?)
}

/// A client as the port needs it: without kube-rs' own retries, which wait where a PodDisruptionBudget says no (429).
///
/// # Errors
/// [`Error`]: the configuration can't be used.
pub fn client_of(mut config: Config) -> Result<Client, Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Client::try_from(config)
}

/// How this API server gives its first lists: lists are streamed by all that are 1.34 or newer, unless their feature
/// gates say otherwise, which a version doesn't tell and the watch's error does.
///
/// # Errors
/// [`Error`]: it doesn't answer.
pub async fn listing_of(client: &Client) -> Result<Listing, Error> {
    let version = client.apiserver_version().await?;
    let minor: u32 = version.minor.trim_end_matches('+').parse().unwrap_or(0);
    Ok(if version.major == "1" && minor < STREAMED_SINCE { Listing::Paged } else { Listing::Streamed })
}

/// Source: the feature gate `WatchList` of kube-apiserver, on by default since 1.34 (read 2026-11).
const STREAMED_SINCE: u32 = 34;
