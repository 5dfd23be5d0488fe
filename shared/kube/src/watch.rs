//! Watches: the tasks that keep the cells as the API server is.
//!
//! Decides how a kind is listed and followed, and how often a watch that fails is tried again. Recovery itself is
//! kube-rs' watcher's.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tenon_cluster::object::{Kind, Object, text};
use tenon_cluster::pod::{PodRef, Shapes};

use crate::classify::classify_watch;
use crate::prune::{Form, ObjectForm, PodForm, Pruned};
use crate::store::{Cell, Kept, Name, keep_object, name_of};

/// A watch is begun anew so often, and a connection that died without a word is noticed 5 s later: that what is listed is
/// older than it seems stays well below the 90 s for which a snapshot is fresh.
const WATCH_SECONDS: u32 = 30;
/// Objects a page of the first list. A page is parsed as a whole, and a Node is 15 KB.
const PAGE: u32 = 250;
/// The first wait after a watch failed; it doubles.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest wait.
const LAST_RETRY: Duration = Duration::from_secs(5);

/// How the first list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// As a stream, object by object: the server has no page to build, and we have none to hold.
    Streamed,
    /// In pages, by servers that don't stream lists.
    Paged,
}

/// Kinds that are watched as plain objects; pods come beside them.
pub const WATCHED: [Kind; 10] = [
    Kind::Node,
    Kind::Namespace,
    Kind::PersistentVolume,
    Kind::PersistentVolumeClaim,
    Kind::StorageClass,
    Kind::DaemonSet,
    Kind::PodDisruptionBudget,
    Kind::NodePool,
    Kind::Ec2NodeClass,
    Kind::NodeClaim,
];

/// Watches a kind of plain objects for ever.
pub(crate) async fn watch_objects(client: Client, cell: Arc<Cell<Object>>, listing: Listing) {
    let kind = cell.kind();
    let keep = move |value: Value| Some(keep_object(kind, value));
    follow::<ObjectForm, _>(client, &cell, config(listing), keep).await;
}

/// Watches pods for ever. Finished ones are left out by the server: nobody reads them.
pub(crate) async fn watch_pods(client: Client, cell: Arc<Cell<PodRef>>, listing: Listing) {
    let shapes = Mutex::new(Shapes::default());
    let keep =
        move |value: Value| shapes.lock().unwrap_or_else(PoisonError::into_inner).read(&value).map(Arc::new);
    let config = config(listing).fields("status.phase!=Succeeded,status.phase!=Failed");
    follow::<PodForm, _>(client, &cell, config, keep).await;
}

fn config(listing: Listing) -> watcher::Config {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    match listing {
        Listing::Streamed => config.streaming_lists(),
        Listing::Paged => config.page_size(PAGE),
    }
}

async fn follow<F: Form, T: Kept>(
    client: Client,
    cell: &Cell<T>,
    config: watcher::Config,
    keep: impl Fn(Value) -> Option<T> + Send,
) {
    let api: Api<Pruned<F>> = Api::all_with(client, &cell.kind());
    let mut events = std::pin::pin!(watcher(api, config));
    let mut wait = FIRST_RETRY;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                wait = FIRST_RETRY;
                observe(cell, event, &keep);
            }
            Err(error) => {
                let error = classify_watch(cell.kind(), error);
                tracing::debug!(kind = %cell.kind(), %error, "a watch failed");
                cell.fail(error, Instant::now());
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LAST_RETRY);
            }
        }
    }
}

fn observe<F: Form, T: Kept>(cell: &Cell<T>, event: Event<Pruned<F>>, keep: &impl Fn(Value) -> Option<T>) {
    let named =
        |object: Pruned<F>| -> Option<(Name, T)> { Some((name_of(&object.value), keep(object.value)?)) };
    match event {
        Event::Init => cell.begin(),
        Event::InitApply(object) => {
            if let Some((name, object)) = named(object) {
                cell.fill(name, object);
            }
        }
        Event::InitDone => cell.finish(),
        Event::Apply(object) => {
            if let Some((name, object)) = named(object) {
                cell.put(name, object);
            }
        }
        Event::Delete(object) => {
            let version = text(&object.value, "/metadata/resourceVersion").unwrap_or_default();
            cell.remove(&name_of(&object.value), version);
        }
    }
}
