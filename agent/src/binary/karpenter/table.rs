//! Gauges of what the table tells: what budgets allow, and the offerings that Nodes have.
//!
//! Decides how old a price may be. It counts a NodePool's nodes as `disruption` does, and doesn't know the budget of all
//! NodePools together.
//!
//! Invariant: what isn't read yet, or is too old, isn't told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use prometheus_client::encoding::DescriptorEncoder;
use tenon_domain::api::NodePool;
use tenon_domain::budget::{DisruptionReason, allowed_disruptions};
use tenon_domain::catalog::HeldOffering;
use tenon_domain::claim::Claim;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::labels::{CAPACITY_TYPE, INSTANCE_TYPE, ZONE};
use tenon_domain::manifest::{self, ManifestObject};
use tenon_domain::pool_status::PoolConditionType;
use tenon_snapshot::object::{self, Object, text};
use tenon_table::items::SeenRecord;

use super::look::ClusterLook;
use super::scrape::GaugeFamily;

/// How often offerings are read. Prometheus scrapes every minute by default, and a read costs half a unit or more.
const READ_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// Nano-dollars of a dollar.
const NANOS: f64 = 1e9;

/// What the table told last.
#[derive(Debug, Clone, Default)]
pub(super) struct TablePicture {
    /// Nodes that budgets count, by NodePool; `None` before the claims are read.
    counted: Option<BTreeMap<String, u32>>,
    /// The offerings of instances, and when `disruption` knew them so.
    offerings: Option<(Timestamp, Vec<HeldOffering>)>,
    /// When offerings were read.
    read_at: Option<Timestamp>,
}

impl TablePicture {
    /// Takes over the claims.
    pub(super) fn observe_claims(&mut self, claims: &BTreeMap<String, Claim>) {
        let mut counted = BTreeMap::new();
        for claim in claims.values().filter(|claim| claim.phase().counts_in_budgets()) {
            let count: &mut u32 = counted.entry(claim.pool.to_string()).or_default();
            *count = count.saturating_add(1);
        }
        self.counted = Some(counted);
    }

    /// Whether offerings are to be read again.
    pub(super) fn wants_offerings(&self, now: Timestamp) -> bool {
        self.read_at.is_none_or(|at| now.duration_since(at) >= READ_EVERY)
    }

    /// Takes over what `disruption` planned from last.
    pub(super) fn observe_offerings(&mut self, seen: Option<SeenRecord>, now: Timestamp) {
        self.offerings = seen.map(|seen| (seen.offerings_known_at(), seen.offerings));
        self.read_at = Some(now);
    }

    /// Writes the gauges.
    ///
    /// # Errors Those of the writer.
    pub(super) fn encode(
        &self,
        look: &ClusterLook,
        now: Timestamp,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        self.encode_budgets(&look.pools, now, encoder)?;
        let offerings = self.of_nodes(&look.nodes, now);
        let name = "karpenter_cloudprovider_instance_type_offering_price_estimate";
        let mut family = GaugeFamily::new(encoder, name, "Price an hour of the offerings of Nodes.")?;
        for offering in &offerings {
            if let Some(price) = offering.price {
                family.sample(&labels(offering), price.nanos() as f64 / NANOS)?;
            }
        }
        let name = "karpenter_cloudprovider_instance_type_offering_available";
        let help = "Whether EC2 may be asked for another instance of the offerings of Nodes.";
        let mut family = GaugeFamily::new(encoder, name, help)?;
        for offering in &offerings {
            family.sample(&labels(offering), if offering.available { 1.0 } else { 0.0 })?;
        }
        Ok(())
    }

    fn encode_budgets(
        &self,
        pools: &[Object],
        now: Timestamp,
        encoder: &mut DescriptorEncoder<'_>,
    ) -> fmt::Result {
        let help = "Nodes of NodePools that budgets allow to be disrupted at once.";
        let mut family = GaugeFamily::new(encoder, "karpenter_nodepools_allowed_disruptions", help)?;
        let Some(counted) = &self.counted else { return Ok(()) };
        for object in pools {
            // `disruption` plans nothing for a NodePool that it can't read.
            let Ok(ManifestObject::NodePool(pool)) = manifest::read_stored(object) else { continue };
            let nodes = counted.get(pool.name.as_str()).copied().unwrap_or(0);
            for reason in DisruptionReason::ALL {
                let allowed = if is_paused(object, &pool) {
                    0
                } else {
                    allowed_disruptions(&pool.disruption.budgets, Some(reason), nodes, now)
                };
                let labels = [("nodepool", pool.name.as_str()), ("reason", reason.as_str())];
                family.sample(&labels, f64::from(allowed))?;
            }
        }
        Ok(())
    }

    /// The offerings that one of the Nodes has, unless they are too old.
    fn of_nodes(&self, nodes: &[Object], now: Timestamp) -> Vec<&HeldOffering> {
        let limit = CatalogPart::SpotPrices.stale_after();
        let fresh = self.offerings.iter().filter(|(at, _)| now.duration_since(*at) <= limit);
        let had: BTreeSet<[&str; 3]> = nodes.iter().filter_map(place_of).collect();
        let is_had = |offering: &&HeldOffering| {
            let HeldOffering { instance_type, zone, capacity_type, .. } = offering;
            had.contains(&[instance_type.as_str(), zone.as_str(), capacity_type.as_str()])
        };
        fresh.flat_map(|(_, offerings)| offerings).filter(is_had).collect()
    }
}

/// Whether the NodePool, or the whole cluster, is paused. The status follows the annotation after a moment.
fn is_paused(object: &Object, pool: &NodePool) -> bool {
    let condition = PoolConditionType::DisruptionPaused.as_str();
    let mut conditions = object::list(object, "/status/conditions").iter();
    pool.is_paused()
        || conditions.any(|one| text(one, "/type") == Some(condition) && text(one, "/status") == Some("True"))
}

/// A Node's instance type, zone and capacity type.
fn place_of(node: &Object) -> Option<[&str; 3]> {
    let label = |key: &str| {
        object::texts(node, "/metadata/labels").find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    Some([label(INSTANCE_TYPE)?, label(ZONE)?, label(CAPACITY_TYPE)?])
}

fn labels(offering: &HeldOffering) -> [(&'static str, &str); 3] {
    [
        ("instance_type", offering.instance_type.as_str()),
        ("capacity_type", offering.capacity_type.as_str()),
        ("zone", offering.zone.as_str()),
    ]
}
