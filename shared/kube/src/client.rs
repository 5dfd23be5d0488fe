//! The port [`Kube`] over kube-rs.
//!
//! Decides the request of each call. The watches' stores answer lists; `get` asks the server. It doesn't retry.
//!
//! Invariant: a list shows the client's own earlier writes.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::core::{ObjectList, Request};
use serde_json::{Map, Value, json};
use tenon_snapshot::kube::{FIELD_MANAGER, key_of};
use tenon_snapshot::object::{self, Kind, Object, ObjectKey, text};
use tenon_snapshot::pod::{PodRef, SeenPod};
use tenon_snapshot::{Deletion, Eviction, Kube, KubeError, Note, Precondition, Versions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::classify::{KubeCall, VERSION_PATH, classify, classify_eviction};
use crate::kept::{KeptObject, ObjectName, keep_object, name_of};
use crate::notes::Notes;
use crate::prune::{ObjectForm, Pruned};
use crate::resource::collection;
use crate::store::{Cell, Changes, ListAnswer};
use crate::watch::{Listing, watch_objects, watch_pods, watched};

/// The timeout of a call; the agent's next step repeats it. A leader that hangs here loses its lease.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
/// The API server itself retries an eviction for 10 s if the pod's UID has changed.
/// Source: kubernetes/pkg/registry/core/pod/storage/eviction.go, `EvictionsRetry` (1.35, read 2026-11).
const EVICTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The first lists of a large cluster take a few seconds.
const FIRST_LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Concurrent nominations: a Node has hundreds of pods, and its action waits for all of them.
const NOMINATED_AT_ONCE: usize = 32;
/// Objects a page of a kind that isn't watched.
const MOST_UNWATCHED: u32 = 500;

/// A client and its watches, which end with it.
pub struct KubeClient {
    client: Client,
    pods: Arc<Cell<PodRef>>,
    objects: BTreeMap<Kind, Arc<Cell<Object>>>,
    changes: Changes,
    notes: Notes,
    _watches: JoinSet<()>,
}

impl std::fmt::Debug for KubeClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeClient").finish_non_exhaustive()
    }
}

impl KubeClient {
    /// Starts the watches; needs a tokio runtime. The client is one of [`crate::client_of`]; `instance` is the
    /// replica's name in Events.
    #[must_use]
    pub fn start(client: Client, listing: Listing, instance: &str) -> Self {
        let changes = Changes::default();
        let pods = Arc::new(Cell::new(Kind::Pod, changes.clone()));
        let cell = |kind| (kind, Arc::new(Cell::new(kind, changes.clone())));
        let objects: BTreeMap<Kind, Arc<Cell<Object>>> = watched().map(cell).collect();
        let mut watches = JoinSet::new();
        watches.spawn(watch_pods(client.clone(), Arc::clone(&pods), listing));
        for cell in objects.values() {
            watches.spawn(watch_objects(client.clone(), Arc::clone(cell), listing));
        }
        let notes = Notes::new(client.clone(), instance);
        Self { client, pods, objects, changes, notes, _watches: watches }
    }

    /// Counters of the changes of objects.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Versions> {
        self.changes.subscribe()
    }

    /// Sends a request that [`Request`] built.
    async fn send<T: serde::de::DeserializeOwned>(
        &self,
        call: KubeCall<'_>,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, KubeError> {
        let sent = self.send_raw(request, CALL_TIMEOUT).await?;
        sent.map_err(|error| classify(call, error))
    }

    async fn send_raw<T: serde::de::DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
        timeout: Duration,
    ) -> Result<Result<T, kube::Error>, KubeError> {
        let request = match request {
            Ok(request) => request,
            Err(error) => return Ok(Err(kube::Error::BuildRequest(error))),
        };
        within(timeout, self.client.request(request)).await
    }

    /// Puts the answer of a write into the store, for the next list.
    fn observe_written(&self, key: &ObjectKey, written: &Value) {
        let held = !object::list(written, "/metadata/finalizers").is_empty();
        if let Some(cell) = self.objects.get(&key.kind) {
            if object::deleted_at(written).is_some() && !held {
                // The last finalizer is removed: the object is deleted.
                cell.change_own(&name_of(written), object::uid(written), |_| None);
            } else if text(written, "/kind") == Some(key.kind.as_str()) {
                cell.observe_own(name_of(written), keep_object(key.kind, written.clone()));
            }
        }
        if key.kind == Kind::Pod
            && let Some(pod) = SeenPod::read(written)
        {
            self.pods.observe_own(pod_name(key), Arc::new(pod));
        }
    }

    /// Marks an evicted pod as terminating for its grace period; the watch's next event has the exact time.
    fn observe_evicted(&self, key: &ObjectKey, uid: &str) {
        self.pods.change_own(&pod_name(key), uid, |pod| {
            let grace = SignedDuration::from_secs(pod.grace_seconds.unwrap_or(0));
            let at = Timestamp::now().saturating_add(grace).unwrap_or(Timestamp::MAX);
            Some(Arc::new(pod.going(at)))
        });
    }
}

impl Kube for KubeClient {
    async fn version(&self) -> Result<String, KubeError> {
        let call = KubeCall { verb: "get", kind: Kind::Node, part: VERSION_PATH, key: None };
        let found = within(CALL_TIMEOUT, self.client.apiserver_version()).await?;
        let found = found.map_err(|error| classify(call, error))?;
        // EKS reports minors such as `35+`.
        Ok(format!("{}.{}", found.major, found.minor.trim_end_matches('+')))
    }

    async fn list(&self, kind: Kind) -> Result<Vec<Object>, KubeError> {
        match self.objects.get(&kind) {
            Some(cell) => listed(cell).await,
            None => self.list_unwatched(kind).await,
        }
    }

    async fn pods(&self) -> Result<Vec<PodRef>, KubeError> {
        listed(&self.pods).await
    }

    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, KubeError> {
        let call = KubeCall { verb: "get", kind: key.kind, part: "", key: Some(key) };
        let request = requests(key).get(&key.name, &kube::api::GetParams::default());
        match self.send::<Value>(call, request).await {
            Ok(object) => Ok(Some(Arc::new(object))),
            Err(KubeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, object: Value) -> Result<Object, KubeError> {
        let key = key_of(&object)?;
        let call = KubeCall { verb: "create", kind: key.kind, part: "", key: Some(&key) };
        let body = serde_json::to_vec(&object).unwrap_or_default();
        let request = requests(&key).create(&kube::api::PostParams::default(), body);
        Ok(Arc::new(self.send::<Value>(call, request).await?))
    }

    async fn patch(
        &self,
        key: &ObjectKey,
        patch: &Value,
        precondition: &Precondition,
    ) -> Result<Object, KubeError> {
        let call = KubeCall { verb: "patch", kind: key.kind, part: "", key: Some(key) };
        let patch = with_precondition(patch, precondition);
        let params =
            kube::api::PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let request = requests(key).patch(&key.name, &params, &kube::api::Patch::Merge(patch));
        let written = self.send::<Value>(call, request).await?;
        self.observe_written(key, &written);
        Ok(Arc::new(written))
    }

    async fn apply_status(&self, object: &Value) -> Result<Object, KubeError> {
        let key = key_of(object)?;
        let call = KubeCall { verb: "patch", kind: key.kind, part: "/status", key: Some(&key) };
        let params = kube::api::PatchParams::apply(FIELD_MANAGER).force();
        let patch = kube::api::Patch::Apply(object);
        let request = requests(&key).patch_subresource("status", &key.name, &params, &patch);
        let written = self.send::<Value>(call, request).await?;
        self.observe_written(&key, &written);
        Ok(Arc::new(written))
    }

    async fn note(&self, note: &Note) -> Result<(), KubeError> {
        within(CALL_TIMEOUT, self.notes.tell(note)).await?
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        uid: &str,
        grace_seconds: Option<u32>,
    ) -> Result<Deletion, KubeError> {
        let call = KubeCall { verb: "delete", kind: key.kind, part: "", key: Some(key) };
        let preconditions = (!uid.is_empty())
            .then(|| kube::api::Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = kube::api::DeleteParams {
            grace_period_seconds: grace_seconds,
            preconditions,
            propagation_policy: Some(kube::api::PropagationPolicy::Background),
            ..Default::default()
        };
        let request = requests(key).delete(&key.name, &params);
        match self.send::<Value>(call, request).await {
            Ok(answer) => {
                if text(&answer, "/kind") == Some("Status") {
                    self.observe_gone(key, uid);
                } else {
                    self.observe_written(key, &answer);
                }
                Ok(Deletion::Accepted)
            }
            Err(KubeError::NotFound { .. }) => Ok(Deletion::NotFound),
            Err(error) => Err(error),
        }
    }

    async fn nominate(&self, pods: &[(ObjectKey, String)], node: &str) -> Result<(), KubeError> {
        let pods: Vec<(ObjectKey, String)> = pods.to_vec();
        let nominations = pods.into_iter().map(async |(pod, uid)| self.nominate_one(&pod, &uid, node).await);
        let mut answers = futures::stream::iter(nominations).buffer_unordered(NOMINATED_AT_ONCE);
        let mut first = Ok(());
        while let Some(answer) = answers.next().await {
            match answer {
                // A patch with another pod's UID is invalid: `field is immutable`.
                Ok(())
                | Err(KubeError::NotFound { .. } | KubeError::Conflict { .. } | KubeError::Invalid { .. }) => {
                }
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    async fn evict(&self, pod: &ObjectKey, uid: &str) -> Result<Eviction, KubeError> {
        let call = KubeCall { verb: "create", kind: Kind::Pod, part: "/eviction", key: Some(pod) };
        let body = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        });
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let params = kube::api::PostParams::default();
        let request = requests(pod).create_subresource("eviction", &pod.name, &params, body);
        match self.send_raw::<Value>(request, EVICTION_TIMEOUT).await? {
            Ok(_) => {
                self.observe_evicted(pod, uid);
                Ok(Eviction::Evicted)
            }
            Err(error) => classify_eviction(call, error),
        }
    }
}

impl KubeClient {
    async fn nominate_one(&self, pod: &ObjectKey, uid: &str, node: &str) -> Result<(), KubeError> {
        let call = KubeCall { verb: "patch", kind: Kind::Pod, part: "/status", key: Some(pod) };
        let patch = json!({"metadata": {"uid": uid}, "status": {"nominatedNodeName": node}});
        let params =
            kube::api::PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
        let patch = kube::api::Patch::Merge(patch);
        let request = requests(pod).patch_subresource("status", &pod.name, &params, &patch);
        self.send::<Value>(call, request).await.map(drop)
    }

    fn observe_gone(&self, key: &ObjectKey, uid: &str) {
        let name = pod_name(key);
        match self.objects.get(&key.kind) {
            Some(cell) => cell.change_own(&name, uid, |_| None),
            None => self.pods.change_own(&name, uid, |_| None),
        }
    }

    async fn list_unwatched(&self, kind: Kind) -> Result<Vec<Object>, KubeError> {
        let call = KubeCall { verb: "list", kind, part: "", key: None };
        let mut params = kube::api::ListParams::default().limit(MOST_UNWATCHED);
        let mut all = Vec::new();
        loop {
            let request = Request::new(collection(kind, "")).list(&params);
            let page: ObjectList<Pruned<ObjectForm>> = self.send(call, request).await?;
            all.extend(page.items.into_iter().map(|item| keep_object(kind, item.value)));
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) => params.continue_token = Some(next),
                None => break,
            }
        }
        all.sort_by_cached_key(|object| name_of(object));
        Ok(all)
    }
}

/// The objects of a cell; waits for the first list.
async fn listed<T: KeptObject>(cell: &Cell<T>) -> Result<Vec<T>, KubeError> {
    let mut news = cell.news();
    let wait = async {
        loop {
            news.mark_unchanged();
            match cell.answer(Instant::now()) {
                ListAnswer::Objects(objects) => return Ok(objects),
                ListAnswer::Failed(error) => return Err(error),
                ListAnswer::NotYet => {}
            }
            // The sender is in the cell, so it can't be closed here.
            let _closed = news.changed().await;
        }
    };
    within(FIRST_LIST_TIMEOUT, wait).await?
}

async fn within<T>(timeout: Duration, future: impl Future<Output = T> + Send) -> Result<T, KubeError> {
    tokio::time::timeout(timeout, future).await.map_err(|elapsed| KubeError::Unavailable(Arc::new(elapsed)))
}

fn requests(key: &ObjectKey) -> Request {
    Request::new(collection(key.kind, &key.namespace))
}

fn pod_name(key: &ObjectKey) -> ObjectName {
    (key.namespace.clone(), key.name.clone())
}

fn with_precondition(patch: &Value, precondition: &Precondition) -> Value {
    let mut patch = patch.clone();
    match precondition {
        Precondition::None => {}
        Precondition::ResourceVersion(version) => {
            if let Some(fields) = patch.as_object_mut()
                && let Some(metadata) =
                    fields.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()
            {
                metadata.insert("resourceVersion".to_owned(), json!(version));
            }
        }
    }
    patch
}
