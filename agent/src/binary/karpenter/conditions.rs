//! Gauges of conditions, and of deleted objects: of NodeClaims, NodePools and EC2NodeClasses.
//!
//! Decides the kinds. Their names begin with `operator_`, as with the peer.
//!
//! Source: awslabs/operatorpkg `status/controller.go`, `status/metrics.go` (read 2026-11).

use std::fmt;

use jiff::Timestamp;
use prometheus_client::encoding::DescriptorEncoder;
use serde_json::Value;
use tenon_snapshot::object::{self, Object, text};

use super::labels::{LabelPairs, filled};
use super::look::ClusterLook;
use super::objects::seconds;
use super::scrape::GaugeFamily;

/// Writes them.
///
/// # Errors Those of the writer.
pub(super) fn encode(look: &ClusterLook, now: Timestamp, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let kinds = [("nodeclaim", &look.claims), ("nodepool", &look.pools), ("ec2nodeclass", &look.classes)];
    for (kind, objects) in kinds {
        let name = format!("operator_{kind}_status_condition_count");
        let mut family = GaugeFamily::new(encoder, &name, "Conditions as they are, each 1.")?;
        for (object, condition) in conditions(objects) {
            family.sample(&labels(object, condition), 1.0)?;
        }
        let name = format!("operator_{kind}_status_condition_current_status_seconds");
        let mut family = GaugeFamily::new(encoder, &name, "Time since conditions have their status.")?;
        for (object, condition) in conditions(objects) {
            if let Some(since) = object::time(condition, "/lastTransitionTime") {
                family.sample(&labels(object, condition), seconds(since, now))?;
            }
        }
        let name = format!("operator_{kind}_termination_current_time_seconds");
        let mut family =
            GaugeFamily::new(encoder, &name, "Time since the deletion of objects that aren't gone.")?;
        for object in objects {
            if let Some(deleted) = object::deleted_at(object) {
                family.sample(&[("name", object::name(object))], seconds(deleted, now))?;
            }
        }
    }
    Ok(())
}

fn conditions(objects: &[Object]) -> impl Iterator<Item = (&Object, &Value)> {
    objects.iter().flat_map(|object| {
        let of = object::list(object, "/status/conditions").iter();
        of.map(move |condition| (object, condition))
    })
}

fn labels<'a>(object: &'a Object, condition: &'a Value) -> LabelPairs<'a> {
    let part = |pointer| text(condition, pointer).unwrap_or_default();
    filled([
        ("name", object::name(object)),
        ("type", part("/type")),
        ("status", part("/status")),
        ("reason", part("/reason")),
    ])
}
