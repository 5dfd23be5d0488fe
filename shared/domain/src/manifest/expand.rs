//! The pods that controllers would create.
//!
//! Decides which controllers create pods, and the pods' names. A controller whose pods are in the manifests creates no
//! others: such manifests are a dump of a cluster, which holds the pods already.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::meta::{OwnerReference, OwnerRole};
use crate::api::pod::{Pod, PodPhase, PodVolume, Readiness, SchedulingVerdict};
use crate::api::workload::{Workload, WorkloadKind};
use crate::id::NamespacedName;

use super::Manifests;
use super::pod::pod_uid;

/// Namespace, kind and name.
type ManifestKey<'a> = (&'a str, &'a str, &'a str);

/// The pods that the controllers would create in addition to the manifests' pods, named
/// `<kind, lower case>/<name>-<n>` within their namespace. A StatefulSet's `n` are its ordinals.
#[must_use]
pub fn expand_workloads(manifests: &Manifests) -> Vec<Pod> {
    let owners = given_owners(manifests);
    let mut pods = Vec::new();
    for workload in &manifests.workloads {
        let kind = workload.kind.as_str();
        let controlled = workload.meta.owners.iter().any(|owner| {
            let key = (workload.meta.namespace.as_str(), owner.kind.as_str(), owner.name.as_str());
            owner.role == OwnerRole::Controller && has_workload(manifests, key)
        });
        let key = (workload.meta.namespace.as_str(), kind, workload.meta.name.as_str());
        // Its Deployment creates the pods of a ReplicaSet: they mustn't count twice.
        let by_other = controlled && workload.kind == WorkloadKind::ReplicaSet;
        if !owners.contains(&key) && !by_other {
            let first = workload.first_ordinal;
            let ordinals = first..first.saturating_add(workload.replicas);
            pods.extend(ordinals.filter_map(|ordinal| make_pod(manifests, workload, ordinal)));
        }
    }
    pods
}

fn has_workload(manifests: &Manifests, (namespace, kind, name): ManifestKey<'_>) -> bool {
    manifests
        .workloads
        .iter()
        .any(|w| w.meta.namespace == namespace && w.kind.as_str() == kind && w.meta.name == name)
}

/// Controllers that own pods of the manifests, directly or through a ReplicaSet or Job.
fn given_owners(manifests: &Manifests) -> BTreeSet<ManifestKey<'_>> {
    let mut owners = BTreeSet::new();
    for pod in &manifests.pods {
        if let Some(owner) = &pod.shape.owner {
            owners.insert((pod.name.namespace.as_str(), owner.kind.as_str(), owner.name.as_str()));
            // A ReplicaSet's name is its Deployment's and a hash, so the ReplicaSet itself may be missing.
            let hash = pod.shape.labels.get("pod-template-hash").map(String::as_str);
            let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
            if let (Some(name), "ReplicaSet") = (deployment, owner.kind.as_str()) {
                owners.insert((pod.name.namespace.as_str(), "Deployment", name));
            }
        }
    }
    for workload in &manifests.workloads {
        let key = (workload.meta.namespace.as_str(), workload.kind.as_str(), workload.meta.name.as_str());
        if owners.contains(&key) {
            let above = workload.meta.owners.iter().filter(|owner| owner.role == OwnerRole::Controller);
            owners.extend(above.map(|o: &OwnerReference| (key.0, o.kind.as_str(), o.name.as_str())));
        }
    }
    owners
}

fn make_pod(manifests: &Manifests, workload: &Workload, ordinal: u32) -> Option<Pod> {
    let namespace = &workload.meta.namespace;
    let name = format!("{}/{}-{ordinal}", workload.kind.as_str().to_lowercase(), workload.meta.name);
    let mut shape = Arc::clone(&workload.template);
    if workload.kind == WorkloadKind::StatefulSet {
        let claim = |volume: &str| format!("{volume}-{}-{ordinal}", workload.meta.name);
        let exists = |name: &str| {
            let claims = &manifests.persistent_volume_claims;
            claims.iter().any(|pvc| pvc.meta.namespace == *namespace && pvc.meta.name == name)
        };
        let bind = |volume: &PodVolume| match volume {
            PodVolume::Ephemeral { volume, .. } if exists(&claim(volume)) => {
                Some(PodVolume::Claim(claim(volume)))
            }
            PodVolume::Ephemeral { .. } | PodVolume::Claim(_) => None,
        };
        let volumes: Vec<PodVolume> =
            shape.volumes.iter().map(|v| bind(v).unwrap_or_else(|| v.clone())).collect();
        if volumes != shape.volumes {
            Arc::make_mut(&mut shape).volumes = volumes;
        }
    }
    Some(Pod {
        uid: pod_uid(namespace, &name).ok()?,
        name: NamespacedName { namespace: namespace.clone(), name },
        created_at: None,
        started_at: None,
        bound_at: None,
        node: None,
        phase: PodPhase::Pending,
        readiness: Readiness::NotReady,
        scheduling: SchedulingVerdict::None,
        deleted_at: None,
        shape,
    })
}
