//! What a node reserves for a pod, beside what the pod requests.
//!
//! Decides which of both counts while a pod is resized in place: the larger, as kube-scheduler does, and the reserve alone
//! once the node says that it can never grant the resize. It doesn't decide who may resize.
//!
//! Source: kubernetes/kubernetes `staging/src/k8s.io/component-helpers/resource/helpers.go`, `determineContainerReqs` and
//! `IsPodResizeInfeasible`, read 2026-11.

use std::collections::BTreeMap;

use super::ContainerResourceFields;
use crate::resources::{ContainerResources, ResourceList};

/// What a node reserves for a pod.
#[derive(Debug, Default)]
pub(in crate::manifest) struct AllocatedResources {
    /// Whether the requests may still become the reserve.
    pub(super) resize: ResizeVerdict,
    /// By container.
    pub(super) containers: BTreeMap<String, ResourceList>,
    /// For the pod as a whole.
    pub(super) pod: ResourceList,
}

/// What a node says of a pod's resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ResizeVerdict {
    /// Nothing, or that it comes.
    #[default]
    Open,
    /// It can never grant it.
    Infeasible,
}

impl AllocatedResources {
    /// What counts of a container, or of the pod as a whole.
    pub(super) fn of(
        &self,
        asked: &ContainerResourceFields,
        reserve: Option<&ResourceList>,
    ) -> ContainerResources {
        let reserve = reserve.filter(|reserve| !reserve.is_empty());
        match (self.resize, reserve) {
            (ResizeVerdict::Infeasible, Some(reserve)) => {
                ContainerResources { requests: reserve.clone(), ..ContainerResources::default() }
            }
            (ResizeVerdict::Infeasible, None) | (ResizeVerdict::Open, _) => ContainerResources {
                requests: asked.requests.clone(),
                limits: asked.limits.clone(),
                allocated: reserve.cloned().unwrap_or_default(),
            },
        }
    }
}
