//! The simulated cluster's API server behind a gate.

use std::sync::{Arc, PoisonError};

use serde_json::Value;
use tenon_simulated_cluster::SimulatedCluster;
use tenon_snapshot::{
    Deletion, Eviction, Kind, Kube, KubeError, Note, Object, ObjectKey, PodRef, Precondition,
};

use crate::gate::{CallMoment, Evicting, Passage, TaskGate};
use crate::ports::SharedOutbox;

/// An API server behind a task's gate.
#[derive(Clone)]
pub struct GatedKube {
    inner: SimulatedCluster,
    gate: TaskGate,
    outbox: SharedOutbox,
}

impl GatedKube {
    /// The cluster's API server behind a gate.
    #[must_use]
    pub const fn new(inner: SimulatedCluster, gate: TaskGate, outbox: SharedOutbox) -> Self {
        Self { inner, gate, outbox }
    }

    /// Records the deletion of a pod that wasn't evicted. A pod that doesn't exist any longer isn't recorded.
    fn note_deletion(&self, key: &ObjectKey, uid: &str) {
        if key.kind != Kind::Pod {
            return;
        }
        let Some(pod) = self.inner.object(Kind::Pod, &key.namespace, &key.name) else { return };
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        if text("/metadata/uid") != uid {
            return;
        }
        let node = text("/spec/nodeName").to_owned();
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner).pod_deletions.push((key.clone(), node));
    }

    fn deleted_instead(&self, pod: &ObjectKey, uid: &str) -> &SimulatedCluster {
        self.note_deletion(pod, uid);
        &self.inner
    }

    async fn pass(&self, call: &'static str, moment: CallMoment) -> Result<(), KubeError> {
        match self.gate.pass(call, moment).await {
            Passage::Pass | Passage::Conflict => Ok(()),
            Passage::Fail | Passage::Denied | Passage::Broken => {
                let cause = std::io::Error::other("the connection to the API server was closed");
                Err(KubeError::Unavailable(Arc::new(cause)))
            }
        }
    }
}

macro_rules! gated {
    ($($name:literal fn $call:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        impl Kube for GatedKube {
            $(async fn $call(&self, $($arg: $type),*) -> Result<$answer, KubeError> {
                self.pass($name, CallMoment::Before).await?;
                let answer = self.inner.$call($($arg),*).await?;
                self.pass($name, CallMoment::After).await?;
                Ok(answer)
            })*

            async fn list(&self, kind: Kind) -> Result<Vec<Object>, KubeError> {
                self.pass("kube.list", CallMoment::Before).await?;
                let mut answer = Kube::list(&self.inner, kind).await?;
                self.gate.hooks().tamper_list(kind, &mut answer);
                self.pass("kube.list", CallMoment::After).await?;
                Ok(answer)
            }

            async fn patch(
                &self,
                key: &ObjectKey,
                patch: &Value,
                precondition: &Precondition,
            ) -> Result<Object, KubeError> {
                self.pass("kube.patch", CallMoment::Before).await?;
                let mut patch = patch.clone();
                self.gate.hooks().tamper_patch(&mut patch);
                let answer = Kube::patch(&self.inner, key, &patch, precondition).await?;
                self.pass("kube.patch", CallMoment::After).await?;
                Ok(answer)
            }

            async fn delete(
                &self,
                key: &ObjectKey,
                uid: &str,
                grace_seconds: Option<u32>,
            ) -> Result<Deletion, KubeError> {
                self.pass("kube.delete", CallMoment::Before).await?;
                self.note_deletion(key, uid);
                let answer = Kube::delete(&self.inner, key, uid, grace_seconds).await?;
                self.pass("kube.delete", CallMoment::After).await?;
                Ok(answer)
            }

            async fn evict(&self, pod: &ObjectKey, uid: &str) -> Result<Eviction, KubeError> {
                self.pass("kube.evict", CallMoment::Before).await?;
                let answer = match self.gate.hooks().evicting() {
                    Evicting::ByEviction => self.inner.evict(pod, uid).await?,
                    Evicting::ByDeletion => match Kube::delete(self.deleted_instead(pod, uid), pod, uid, None).await? {
                        Deletion::Accepted => Eviction::Evicted,
                        Deletion::NotFound => Eviction::NotFound,
                    },
                };
                self.pass("kube.evict", CallMoment::After).await?;
                Ok(answer)
            }
        }
    };
}

gated! {
    "kube.version" fn version() -> String;
    "kube.list" fn pods() -> Vec<PodRef>;
    "kube.apply_status" fn apply_status(object: &Value) -> Object;
    "kube.note" fn note(note: &Note) -> ();
    "kube.get" fn get(key: &ObjectKey) -> Option<Object>;
    "kube.nominate" fn nominate(pods: &[(ObjectKey, String)], node: &str) -> ();
    "kube.create" fn create(object: Value) -> Object;
}
