//! A pod from its row and its shape; `project::pod_row` writes rows.
//!
//! Decides what each field of a row means. It doesn't find the shape.
//!
//! Invariant: a pod whose shape or row can't be read is named with its namespace, if that is known.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tenon_domain::api::pod::{Pod, PodPhase, Readiness, SchedulingVerdict};
use tenon_domain::id::{NamespacedName, NodeName, ParseIdError, Uid};
use tenon_domain::manifest;
use tenon_domain::snapshot::Unreadable;

use super::content::{ReadShape, UnreadableShape, whole_name};

pub(super) fn read_row(row: &Value, shape: &ReadShape) -> Result<Pod, Unreadable> {
    let field = |index: usize| row.get(index).and_then(Value::as_str).unwrap_or_default();
    let seconds = |index: usize| Timestamp::from_second(row.get(index)?.as_i64()?).ok();
    let name = field(0).to_owned();
    let unreadable = |UnreadableShape { namespace, errors }| {
        let name = whole_name(&namespace, &name);
        Unreadable { kind: "Pod".to_owned(), name, errors }
    };
    let mut shape = shape.clone().map_err(unreadable)?;
    let namespace = shape.namespace.clone();
    let malformed = |error: ParseIdError| {
        unreadable(UnreadableShape { namespace: namespace.clone(), errors: vec![error.to_string()] })
    };
    if let Some(own) = own_labels(row) {
        let own = own.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        Arc::make_mut(&mut shape).labels.extend(own);
    }
    let node = match field(3) {
        "" => None,
        node => Some(NodeName::parse(node).map_err(malformed)?),
    };
    let flags = field(5);
    let scheduling = if flags.contains('g') {
        SchedulingVerdict::Gated
    } else if flags.contains('n') && node.is_none() {
        SchedulingVerdict::Nominated
    } else if flags.contains('u') {
        SchedulingVerdict::Unschedulable
    } else {
        SchedulingVerdict::None
    };
    // A pod that is bound has its name in the place of its UID, and names are only their namespace's own.
    let own_uid = Some(field(1)).filter(|uid| node.is_none() || *uid != name).map(Uid::parse);
    let uid = own_uid.unwrap_or_else(|| manifest::pod_uid(&shape.namespace, &name));
    Ok(Pod {
        uid: uid.map_err(malformed)?,
        name: NamespacedName { namespace: shape.namespace.clone(), name },
        created_at: if node.is_none() { seconds(2) } else { None },
        started_at: seconds(6),
        bound_at: if node.is_some() { seconds(2) } else { None },
        node,
        phase: PodPhase::parse(field(4)).unwrap_or_default(),
        readiness: if flags.contains('r') { Readiness::Ready } else { Readiness::NotReady },
        scheduling,
        deleted_at: seconds(7),
        shape,
    })
}

/// The labels of a pod that its shape lacks.
pub(super) fn own_labels(row: &Value) -> Option<&Map<String, Value>> {
    row.get(8).and_then(Value::as_object)
}
