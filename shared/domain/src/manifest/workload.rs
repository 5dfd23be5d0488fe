//! Controllers of pods: Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs and DaemonSets.
//!
//! Decides how many pods each creates and what they need. It doesn't compare selectors with templates.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::decode::{At, ManifestSource, Place, Whole};
use super::fields::{MOST, within};
use super::meta::{KindScope, Metadata, ObjectFields};
use super::pod::{ClaimTemplate, PodSpec, PodSurroundings};
use crate::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use crate::api::pod::{PodShape, PodVolume};
use crate::api::workload::{DaemonSet, Workload, WorkloadKind};

/// `spec` of a controller. A Job has other counts than a Deployment, and a CronJob contains a Job.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ControllerSpec {
    #[serde(rename = "selector")]
    _selector: Whole,
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    replicas: Option<u32>,
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    parallelism: Option<u32>,
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    completions: Option<u32>,
    suspend: bool,
    template: Option<PodTemplate>,
    volume_claim_templates: Vec<ClaimTemplate>,
    job_template: Option<JobTemplate>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodTemplate {
    metadata: Metadata,
    spec: Option<PodSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: Option<Box<ControllerSpec>>,
}

pub(super) fn read_workload(at: At<'_, '_>, kind: WorkloadKind) -> Option<Workload> {
    let (meta, spec) = read_controller(at)?;
    let replicas = match kind {
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => {
            spec.replicas.unwrap_or(1)
        }
        WorkloadKind::Job => spec.pods_of_job(),
        WorkloadKind::CronJob => 0,
    };
    let place = at.place.key("spec");
    let template = match kind {
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::Job => {
            template(spec.template, &place, &meta, kind.as_str())?
        }
        WorkloadKind::StatefulSet => {
            let mut shape = template(spec.template, &place, &meta, kind.as_str())?;
            let claims = place.key("volumeClaimTemplates");
            shape.volumes.extend(claimed(spec.volume_claim_templates, &claims));
            shape
        }
        WorkloadKind::CronJob => {
            let job = place.key("jobTemplate");
            let Some(spec) = spec.job_template.and_then(|template| template.spec) else {
                job.missing("spec", "a Job's `spec`");
                return None;
            };
            template(spec.template, &job.key("spec"), &meta, "Job")?
        }
    };
    Some(Workload { meta, kind, replicas, template: share(at, template) })
}

pub(super) fn read_daemon_set(at: At<'_, '_>) -> Option<DaemonSet> {
    let (meta, spec) = read_controller(at)?;
    let template = template(spec.template, &at.place.key("spec"), &meta, "DaemonSet")?;
    Some(DaemonSet { meta, template: share(at, template) })
}

fn read_controller(at: At<'_, '_>) -> Option<(ObjectMeta, ControllerSpec)> {
    let mut form: ObjectFields<ControllerSpec, IgnoredAny> = at.read()?;
    let spec = form.spec(&at.place)?;
    Some((form.metadata.of_object(&at.place, KindScope::Namespaced)?, spec))
}

impl ControllerSpec {
    /// A Job runs up to `parallelism` pods at once, limited by its `completions`.
    fn pods_of_job(&self) -> u32 {
        let at_once = if self.suspend { 0 } else { self.parallelism.unwrap_or(1) };
        at_once.min(self.completions.unwrap_or(u32::MAX))
    }
}

fn template(
    template: Option<PodTemplate>,
    spec: &Place<'_>,
    controller: &ObjectMeta,
    kind: &str,
) -> Option<PodShape> {
    let place = spec.key("template");
    let Some(template) = template else {
        spec.missing("template", "a map");
        return None;
    };
    let Some(pods) = template.spec else {
        place.missing("spec", "a map");
        return None;
    };
    let meta = template.metadata.of_template(KindScope::Namespaced);
    let meta = ObjectMeta { namespace: controller.namespace.clone(), ..meta };
    let owner = OwnerReference {
        kind: kind.to_owned(),
        name: controller.name.clone(),
        uid: controller.uid.as_ref().map(ToString::to_string).unwrap_or_default(),
        role: OwnerRole::Controller,
    };
    let around = PodSurroundings { owner: Some(owner), ..PodSurroundings::default() };
    Some(pods.into_shape(&place.key("spec"), &meta, around))
}

/// Each pod of a StatefulSet has its own PersistentVolumeClaim for each template, as with an ephemeral volume.
fn claimed(templates: Vec<ClaimTemplate>, place: &Place<'_>) -> Vec<PodVolume> {
    let claim = |(index, template): (usize, ClaimTemplate)| {
        let volume = template.metadata.name;
        if volume.is_empty() {
            place.index(index).key("metadata").missing("name", "the claim template's name");
        }
        PodVolume::Ephemeral { volume, storage_class: template.spec.storage_class_name }
    };
    templates.into_iter().enumerate().map(claim).collect()
}

fn share(at: At<'_, '_>, mut shape: PodShape) -> Arc<PodShape> {
    // The controller's pods come from its template. A server also has the pods themselves.
    if at.place.context().source == ManifestSource::File {
        shape.unknown = at.place.context().named();
    }
    at.place.context().shapes.borrow_mut().intern(shape)
}
