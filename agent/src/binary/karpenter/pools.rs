//! Gauges of NodePools: what they may have, and what they have.
//!
//! Decides nothing: `lifecycle` sums what they have, and the agent shows it in their status.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use tenon_domain::manifest;
use tenon_domain::resources::ResourceList;
use tenon_snapshot::object::{self, Object};

use super::labels::{amount, resource_type};
use super::scrape::GaugeFamily;

/// Their names, help, and the field of each.
const LISTS: [(&str, &str, &str); 2] = [
    ("karpenter_nodepools_limit", "Limits of NodePools.", "/spec/limits"),
    ("karpenter_nodepools_usage", "Resources that NodePools have.", "/status/resources"),
];

/// Writes them.
///
/// # Errors Those of the writer.
pub(super) fn encode(pools: &[Object], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, pointer) in LISTS {
        let mut family = GaugeFamily::new(encoder, name, help)?;
        for pool in pools {
            let list: ResourceList = object::at(pool, pointer).and_then(manifest::part).unwrap_or_default();
            for (resource, quantity) in list.iter() {
                let of = resource_type(resource.as_str());
                let labels = [("resource_type", of.as_str()), ("nodepool", object::name(pool))];
                family.sample(&labels, amount(resource, quantity))?;
            }
        }
    }
    Ok(())
}
