//! Controllers of pods: Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs and DaemonSets.
//!
//! Decides how many pods each makes and what they need. Selectors aren't compared with templates.

use std::sync::Arc;

use crate::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use crate::api::pod::{PodShape, PodVolume};
use crate::api::workload::{DaemonSet, Workload, WorkloadKind};

use super::decode::{At, Fields};
use super::meta::{Scope, read_meta, read_template_meta};
use super::pod::{read_shape, read_storage_class_name};

const COUNT: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

/// The kind's name.
pub(super) const fn kind_name(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Deployment => "Deployment",
        WorkloadKind::ReplicaSet => "ReplicaSet",
        WorkloadKind::StatefulSet => "StatefulSet",
        WorkloadKind::Job => "Job",
        WorkloadKind::CronJob => "CronJob",
    }
}

pub(super) fn read_workload(at: At<'_>, kind: WorkloadKind) -> Option<Workload> {
    let meta = read_meta(at, Scope::Namespaced, Fields::Any)?;
    let spec = at.required_object("spec", Fields::Any)?;
    let replicas = match kind {
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => {
            spec.integer_of("replicas", COUNT).unwrap_or(1)
        }
        WorkloadKind::Job => job_pods(spec),
        WorkloadKind::CronJob => 0,
    };
    let template = match kind {
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::Job => {
            read_template(spec, &meta, kind_name(kind))?
        }
        WorkloadKind::StatefulSet => {
            let mut shape = read_template(spec, &meta, kind_name(kind))?;
            shape.volumes.extend(read_claim_templates(spec));
            shape
        }
        WorkloadKind::CronJob => {
            let job = spec.required_object("jobTemplate", Fields::Any)?;
            read_template(job.required_object("spec", Fields::Any)?, &meta, "Job")?
        }
    };
    Some(Workload { meta, kind, replicas, template: share(at, template) })
}

pub(super) fn read_daemon_set(at: At<'_>) -> Option<DaemonSet> {
    let meta = read_meta(at, Scope::Namespaced, Fields::Any)?;
    let spec = at.required_object("spec", Fields::Any)?;
    let template = read_template(spec, &meta, "DaemonSet")?;
    Some(DaemonSet { meta, template: share(at, template) })
}

/// A Job runs `parallelism` pods at a time, and no more than it has to complete.
fn job_pods(spec: At<'_>) -> u32 {
    if spec.boolean("suspend") == Some(true) {
        return 0;
    }
    let parallelism = spec.integer_of("parallelism", COUNT).unwrap_or(1);
    spec.integer_of("completions", COUNT).map_or(parallelism, |completions| parallelism.min(completions))
}

fn read_template(spec: At<'_>, controller: &ObjectMeta, kind: &str) -> Option<PodShape> {
    let template = spec.required_object("template", Fields::Any)?;
    let mut meta = read_template_meta(template);
    meta.namespace.clone_from(&controller.namespace);
    let owner = OwnerReference {
        kind: kind.to_owned(),
        name: controller.name.clone(),
        uid: controller.uid.as_ref().map(ToString::to_string).unwrap_or_default(),
        role: OwnerRole::Controller,
    };
    Some(read_shape(template.required_object("spec", Fields::Any)?, None, &meta, Some(owner)))
}

/// A StatefulSet's pods each have a claim of their own for each template, as with an ephemeral volume.
fn read_claim_templates(spec: At<'_>) -> Vec<PodVolume> {
    let Some(list) = spec.list("volumeClaimTemplates") else { return Vec::new() };
    list.items()
        .filter(|item| item.check_map(Fields::Any))
        .filter_map(|item| {
            let meta = item.required_object("metadata", Fields::Any)?;
            let volume = meta.required_text("name", "the claim template's name")?;
            Some(PodVolume::Ephemeral { volume, storage_class: read_storage_class_name(item) })
        })
        .collect()
}

fn share(at: At<'_>, shape: PodShape) -> Arc<PodShape> {
    at.context().shapes.borrow_mut().intern(shape)
}
