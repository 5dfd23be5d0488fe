//! Controllers of pods: Deployments, ReplicaSets, StatefulSets, Jobs, CronJobs and DaemonSets.
//!
//! Decides how many pods each creates and what they need: of a Job, those that its status leaves to do. A selector that
//! doesn't fit its template gets a warning in files, and nothing else depends on it.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::decode::{At, ManifestSource, Place, Whole, Wrong, reread};
use super::fields::{MOST, within};
use super::meta::{KindScope, Metadata, ObjectFields};
use super::pod::{ClaimTemplate, PodSpec, PodSurroundings};
use crate::api::meta::{ObjectMeta, OwnerReference, OwnerRole};
use crate::api::pod::{LabelSelector, PodShape, PodVolume};
use crate::api::workload::{DaemonSet, Workload, WorkloadKind};

/// `spec` of a controller. A Job has other counts than a Deployment, and a CronJob contains a Job. Its serde name is
/// [`super::unread::CONTROLLER`].
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename = "tenon:controller spec", rename_all = "camelCase")]
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
    ordinals: Ordinals,
    template: Option<PodTemplate>,
    volume_claim_templates: Vec<ClaimTemplate>,
    job_template: Option<JobTemplate>,
}

/// The numbers of a StatefulSet's pods.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ordinals {
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    start: Option<u32>,
}

/// `status` of a Job.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct JobStatus {
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    active: Option<u32>,
    #[serde(deserialize_with = "within::<0, MOST, _, _>")]
    succeeded: Option<u32>,
    failed_indexes: String,
    conditions: Vec<JobCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
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
    let (meta, spec, replicas) = match kind {
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::StatefulSet => {
            let (meta, spec, _) = read_controller::<IgnoredAny>(at)?;
            let replicas = spec.replicas.unwrap_or(1);
            (meta, spec, replicas)
        }
        WorkloadKind::Job => {
            let (meta, spec, status) = read_controller::<JobStatus>(at)?;
            let replicas = spec.pods_of_job(&status.unwrap_or_default());
            (meta, spec, replicas)
        }
        WorkloadKind::CronJob => {
            let (meta, spec, _) = read_controller::<IgnoredAny>(at)?;
            (meta, spec, 0)
        }
    };
    let place = at.place.key("spec");
    let first_ordinal = match kind {
        WorkloadKind::StatefulSet => spec.ordinals.start.unwrap_or(0),
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet | WorkloadKind::Job | WorkloadKind::CronJob => 0,
    };
    let template = match kind {
        WorkloadKind::Job => template(spec.template, &place, &meta, kind.as_str())?,
        WorkloadKind::Deployment | WorkloadKind::ReplicaSet => {
            let shape = template(spec.template, &place, &meta, kind.as_str())?;
            check_selector(at, &meta, &shape);
            shape
        }
        WorkloadKind::StatefulSet => {
            let mut shape = template(spec.template, &place, &meta, kind.as_str())?;
            check_selector(at, &meta, &shape);
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
    Some(Workload { meta, kind, replicas, first_ordinal, template: share(at, template) })
}

pub(super) fn read_daemon_set(at: At<'_, '_>) -> Option<DaemonSet> {
    let (meta, spec, _) = read_controller::<IgnoredAny>(at)?;
    let template = template(spec.template, &at.place.key("spec"), &meta, "DaemonSet")?;
    check_selector(at, &meta, &template);
    Some(DaemonSet { meta, template: share(at, template) })
}

/// Metadata, `spec` and `status`. Only a Job's status is read; the agent sends no other.
fn read_controller<'de, T: Deserialize<'de>>(
    at: At<'_, 'de>,
) -> Option<(ObjectMeta, ControllerSpec, Option<T>)> {
    let mut form: ObjectFields<ControllerSpec, T> = at.read()?;
    let spec = form.spec(&at.place)?;
    Some((form.metadata.of_object(&at.place, KindScope::Namespaced)?, spec, form.status))
}

/// An API server refuses a controller of `apps/v1` whose selector doesn't select its template's pods.
fn check_selector(at: At<'_, '_>, meta: &ObjectMeta, template: &PodShape) {
    if at.place.context().source == ManifestSource::Server || meta.uid.is_some() {
        return;
    }
    let spec = at.place.key("spec");
    let place = spec.key("selector");
    let Some(written) = at.value.pointer("/spec/selector").filter(|selector| !selector.is_null()) else {
        place.warn("required, but not given: an API server refuses it", "add the labels of its template");
        return;
    };
    let labels = "write labels of `spec.template.metadata.labels`";
    match reread::<LabelSelector, Wrong>(written) {
        Err(wrong) => {
            let (message, remedy) = wrong.told();
            place.warn(format!("{message}: an API server refuses it"), remedy);
        }
        Ok(selector) if selector.requirements.is_empty() => place.warn(
            "selects nothing: `matchLabels` or `matchExpressions` are required: an API server refuses it",
            labels,
        ),
        Ok(selector) if !selector.matches(&template.labels) => {
            place.warn("selects other pods than the template's: an API server refuses it", labels);
        }
        Ok(_) => {}
    }
}

impl ControllerSpec {
    /// A Job runs up to `parallelism` pods at once, limited by the `completions` that it still needs. Without
    /// `completions` it starts no other pod once one has succeeded.
    fn pods_of_job(&self, status: &JobStatus) -> u32 {
        if self.suspend || status.is_finished() {
            return 0;
        }
        let succeeded = status.succeeded.unwrap_or(0);
        // The API server's default.
        let completions = self.completions.or(self.parallelism.is_none().then_some(1));
        let needed = match completions {
            Some(completions) => completions.saturating_sub(succeeded).saturating_sub(status.failed()),
            None if succeeded > 0 => status.active.unwrap_or(0),
            None => u32::MAX,
        };
        self.parallelism.unwrap_or(1).min(needed)
    }
}

impl JobStatus {
    /// How many indexes have failed for good; what isn't an index or a range, as in `0,2-4`, is none.
    fn failed(&self) -> u32 {
        let count = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            last.checked_sub(first)?.checked_add(1)
        };
        self.failed_indexes.split(',').filter_map(count).fold(0, u32::saturating_add)
    }

    /// Whether it starts no other pod: it has ended, or is about to.
    fn is_finished(&self) -> bool {
        const ENDS: [&str; 4] = ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"];
        self.conditions
            .iter()
            .any(|condition| condition.status == "True" && ENDS.contains(&condition.kind.as_str()))
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
    let meta = ObjectMeta { namespace: controller.namespace.clone(), uid: controller.uid.clone(), ..meta };
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
        shape.meant = at.place.context().meant();
    }
    at.place.context().shapes.borrow_mut().intern(shape)
}
