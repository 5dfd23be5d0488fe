//! Watches: the tasks that keep the cells up to date.
//!
//! Decides how a kind is listed and watched, and how often a failed watch is retried. kube-rs' watcher does the
//! recovery.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use serde_json::Value;
use tenon_snapshot::object::{Kind, Object, text};
use tenon_snapshot::pod::{PodNeedsSet, PodRef};

use crate::classify::classify_watch;
use crate::kept::{KeptObject, ObjectName, keep_object, name_of};
use crate::prune::{ObjectForm, PodForm, Prune, Pruned};
use crate::store::Cell;

/// A watch is renewed this often, and a silently dead connection is noticed 5 s later. So the store's hidden age stays
/// well below the 90 s for which a snapshot is fresh.
const WATCH_SECONDS: u32 = 30;
/// A streamed list must end within the watch's time, or it would start over for ever. After each failure the time
/// doubles, up to this limit. kube-rs accepts less than five minutes.
const LONGEST_WATCH_SECONDS: u32 = 240;
/// Objects a page of the first list. A page is parsed as a whole, and a Node is 15 KB.
const PAGE: u32 = 250;
/// The first wait after a watch failed; it doubles.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// The longest wait.
const LAST_RETRY: Duration = Duration::from_secs(5);

/// The form of the first list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// A stream of objects, which needs no page in memory on either side.
    Streamed,
    /// Pages, for servers that don't stream lists.
    Paged,
}

/// The watched kinds besides pods: those that a snapshot holds.
pub fn watched() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| *kind != Kind::Pod && kind.chunks().is_some())
}

/// Watches a kind of plain objects for ever.
pub(crate) async fn watch_objects(client: Client, cell: Arc<Cell<Object>>, listing: Listing) {
    let kind = cell.kind();
    let keep = move |value: Value| Some(keep_object(kind, value));
    follow::<ObjectForm, _>(client, &cell, |seconds| config(listing, seconds), keep).await;
}

/// Watches pods for ever. A field selector leaves out finished pods, which Tenon doesn't use.
pub(crate) async fn watch_pods(client: Client, cell: Arc<Cell<PodRef>>, listing: Listing) {
    let shapes = Mutex::new(PodNeedsSet::default());
    let keep =
        move |value: Value| shapes.lock().unwrap_or_else(PoisonError::into_inner).read(&value).map(Arc::new);
    let config = |seconds| config(listing, seconds).fields("status.phase!=Succeeded,status.phase!=Failed");
    follow::<PodForm, _>(client, &cell, config, keep).await;
}

fn config(listing: Listing, seconds: u32) -> watcher::Config {
    let config = watcher::Config::default().timeout(seconds);
    match listing {
        Listing::Streamed => config.streaming_lists(),
        Listing::Paged => config.page_size(PAGE),
    }
}

async fn follow<F: Prune, T: KeptObject>(
    client: Client,
    cell: &Cell<T>,
    config: impl Fn(u32) -> watcher::Config + Send,
    keep: impl Fn(Value) -> Option<T> + Send,
) {
    let api: Api<Pruned<F>> = Api::all_with(client, &cell.kind());
    let mut time = ListTime::default();
    let mut wait = FIRST_RETRY;
    loop {
        let mut events = std::pin::pin!(watcher(api.clone(), config(time.seconds)));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    wait = FIRST_RETRY;
                    let verdict = time.observe(&event);
                    observe(cell, event, &keep);
                    if verdict == Verdict::TooShort {
                        tracing::info!(kind = %cell.kind(), seconds = time.seconds, "giving a slow list more time");
                        break;
                    }
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
}

/// The time limit of a list.
#[derive(Debug)]
struct ListTime {
    seconds: u32,
    under_way: ListUnderWay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListUnderWay {
    List,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The limit suffices so far.
    Enough,
    /// A list started over before it was complete.
    TooShort,
}

impl Default for ListTime {
    fn default() -> Self {
        Self { seconds: WATCH_SECONDS, under_way: ListUnderWay::Nothing }
    }
}

impl ListTime {
    fn observe<F: Prune>(&mut self, event: &Event<Pruned<F>>) -> Verdict {
        match (event, self.under_way) {
            (Event::Init, ListUnderWay::List) if self.seconds < LONGEST_WATCH_SECONDS => {
                self.seconds = (self.seconds * 2).min(LONGEST_WATCH_SECONDS);
                self.under_way = ListUnderWay::Nothing;
                return Verdict::TooShort;
            }
            (Event::Init, _) => self.under_way = ListUnderWay::List,
            (Event::InitDone, _) => self.under_way = ListUnderWay::Nothing,
            (Event::InitApply(_) | Event::Apply(_) | Event::Delete(_), _) => {}
        }
        Verdict::Enough
    }
}

fn observe<F: Prune, T: KeptObject>(
    cell: &Cell<T>,
    event: Event<Pruned<F>>,
    keep: &impl Fn(Value) -> Option<T>,
) {
    let named = |object: Pruned<F>| -> Option<(ObjectName, T)> {
        Some((name_of(&object.value), keep(object.value)?))
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_begun_again_before_it_was_whole_gets_more_time() {
        let mut time = ListTime::default();
        let init = || Event::<Pruned<ObjectForm>>::Init;
        assert_eq!(time.observe(&init()), Verdict::Enough);
        assert_eq!((time.observe(&init()), time.seconds), (Verdict::TooShort, 60));
        // The next watch uses the longer time, and its list ends.
        assert_eq!(time.observe(&init()), Verdict::Enough);
        assert_eq!(time.observe(&Event::<Pruned<ObjectForm>>::InitDone), Verdict::Enough);
        assert_eq!((time.observe(&init()), time.seconds), (Verdict::Enough, 60));
        for _ in 0..10 {
            time.observe(&init());
        }
        assert_eq!(time.seconds, LONGEST_WATCH_SECONDS);
    }
}
