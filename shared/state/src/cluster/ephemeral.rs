//! Claims of pods' generic ephemeral volumes.
//!
//! Decides whether the ephemeral volume of a pending pod has a place already. Kubernetes makes the claim
//! `<pod>-<volume>` with the pod, and a StorageClass that binds at once gives it a volume before the pod has a Node. A
//! pod that loses its Node comes back as another pod with another claim, so this is only for pods that have had none.
//!
//! Source: kubernetes.io/docs/concepts/storage/ephemeral-volumes, "PersistentVolumeClaim naming", read in November
//! 2026.

use std::collections::BTreeSet;
use std::sync::Arc;

use tenon_domain::api::Pod;
use tenon_domain::api::pod::PodVolume;
use tenon_domain::api::storage::PersistentVolumeClaim;

/// Claims with a volume, by namespace and name.
pub(super) struct BoundClaims<'a>(BTreeSet<(&'a str, &'a str)>);

impl<'a> BoundClaims<'a> {
    pub(super) fn of(claims: &'a [PersistentVolumeClaim]) -> Self {
        let bound = claims.iter().filter(|claim| claim.volume.is_some());
        Self(bound.map(|claim| (claim.meta.namespace.as_str(), claim.meta.name.as_str())).collect())
    }

    /// The pod, with its bound ephemeral volumes as claims. An unbound one stays as its template says, which asks for
    /// the same and lets pods share a shape.
    pub(super) fn named_by(&self, mut pod: Pod) -> Pod {
        let claimed = |volume: &PodVolume| match volume {
            PodVolume::Ephemeral { volume, .. } => {
                let claim = format!("{}-{volume}", pod.name.name);
                let is_bound = self.0.contains(&(pod.name.namespace.as_str(), claim.as_str()));
                is_bound.then_some(PodVolume::Claim(claim))
            }
            PodVolume::Claim(_) => None,
        };
        let found: Vec<Option<PodVolume>> = pod.shape.volumes.iter().map(claimed).collect();
        if found.iter().any(Option::is_some) {
            let volumes = &mut Arc::make_mut(&mut pod.shape).volumes;
            for (volume, claim) in volumes.iter_mut().zip(found) {
                if let Some(claim) = claim {
                    *volume = claim;
                }
            }
        }
        pod
    }
}
