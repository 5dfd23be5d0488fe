//! Service.
//!
//! Reads only its selector: kube-scheduler spreads the pods of a Service.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::decode::At;
use super::meta::{KindScope, ObjectFields, Unread};
use crate::api::workload::Service;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServiceSpec {
    selector: Option<BTreeMap<String, String>>,
}

pub(super) fn read_service(at: At<'_, '_>) -> Option<Service> {
    let form: ObjectFields<ServiceSpec, Unread> = at.read()?;
    Some(Service {
        selector: form.spec.unwrap_or_default().selector,
        meta: form.metadata.of_object(&at.place, KindScope::Namespaced)?,
    })
}
