//! The invariant of pods without a node: a finding and an Event say why.
//!
//! Decides by the cluster's pods, by `TOLD#provisioner` and by the agent's Events. It doesn't decide which pods fit:
//! the names of pods that never fit begin with `NEVER`.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::ClusterName;
use tenon_domain::journal::SubjectKind;
use tenon_domain::wake::FunctionName;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::object::text;
use tenon_snapshot::{Kind, object};
use tenon_table::items::{ToldFindings, from_item, keys};

use crate::invariants::Invariant;
use crate::world::set;

/// How long a pod may wait for its finding and Event after the last fault; failed calls are retried within minutes.
pub(crate) const TOLD_WITHIN: SignedDuration = SignedDuration::from_mins(15);

/// The name prefix of pods that never fit.
const NEVER: &str = "never-";

/// Whether the pod was created to fit nowhere.
pub(crate) fn never_fits(pod: &Value) -> bool {
    object::name(pod).starts_with(NEVER)
}

/// Creates a pod that requests more CPU than any type has, and deletes earlier ones. Every second pod also has a
/// placement field of a newer Kubernetes.
pub(crate) fn ask_for_what_isnt_there(region: &SimulatedRegion, cluster: &ClusterName, number: u64) {
    let Some(site) = region.site(cluster) else { return };
    withdraw(region, cluster);
    let mut spec = json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": "4000"}}}]});
    if number.is_multiple_of(2) {
        set(&mut spec, &["affinity", "newerThanUs"], json!({"weight": 1}));
    }
    let metadata = json!({"name": format!("{NEVER}{number}"), "namespace": "default"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    let _ = site.cluster().apply(pod);
}

/// Deletes the pods that never fit.
pub(crate) fn withdraw(region: &SimulatedRegion, cluster: &ClusterName) {
    let Some(site) = region.site(cluster) else { return };
    for pod in site.cluster().objects(Kind::Pod).iter().filter(|pod| never_fits(pod)) {
        site.cluster().delete(Kind::Pod, object::namespace(pod), object::name(pod));
    }
}

/// A cluster's pods that fit nowhere and lack a finding in the table or an Event.
pub(crate) fn untold(region: &SimulatedRegion, cluster: &ClusterName) -> BTreeSet<String> {
    let Some(site) = region.site(cluster) else { return BTreeSet::new() };
    let key = keys::told(cluster, FunctionName::Provisioner);
    let told: Option<ToldFindings> = region.table().peek(&key).and_then(|item| from_item(&key, &item).ok());
    let findings = told.into_iter().flat_map(|told| told.findings);
    let in_table: BTreeSet<String> =
        findings.filter(|found| found.kind == SubjectKind::Pod).flat_map(|found| found.names).collect();
    let notes = site.cluster().notes();
    let has_event = |pod: &Value| {
        notes.iter().any(|note| {
            note.about.kind == Kind::Pod
                && note.about.name == object::name(pod)
                && note.about.namespace == object::namespace(pod)
        })
    };
    let missing = |pod: &Value| {
        let place = format!("{}/{}", object::namespace(pod), object::name(pod));
        match (in_table.contains(&place), has_event(pod)) {
            (true, true) => None,
            (true, false) => Some(format!("{place} has no Event")),
            (false, _) => Some(format!("{place} is in no finding of the provisioner: {in_table:?}")),
        }
    };
    let pods = site.cluster().objects(Kind::Pod);
    let stays = |pod: &&Arc<Value>| never_fits(pod) && text(pod, "/metadata/deletionTimestamp").is_none();
    pods.iter().filter(stays).filter_map(|pod| missing(pod)).collect()
}

/// A pod without a node has a finding and an Event within [`TOLD_WITHIN`] of the last fault.
///
/// # Errors
/// The invariant and the pod.
pub(crate) fn invariant_nothing_silent(
    untold: &BTreeSet<String>,
    (calm_since, now): (Timestamp, Timestamp),
) -> Result<(), (Invariant, String)> {
    match untold.first() {
        Some(pod) if now.duration_since(calm_since) > TOLD_WITHIN => {
            let text = format!("a pod fits nowhere and nobody was told since {calm_since}: {pod}");
            Err((Invariant::NothingSilent, text))
        }
        Some(_) | None => Ok(()),
    }
}
