//! The functions' decisions about the cluster's claims, pools and classes, for Kubernetes.
//!
//! Decides when each is read. Claims are many, and are read again only if their counters changed. Statuses of pools
//! and classes, and findings, have no counters, and are few.
//!
//! Invariant: counters are read before their items, so that the next look reads a missed change.

use std::collections::BTreeMap;

use tenon_domain::claim::Claim;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::ClusterName;
use tenon_domain::pool_status::PoolStatus;
use tenon_table::items::{ItemForm, ToldFindings, from_item, keys, revision_of, steps_of};
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, TableError, query_all};

/// Most items of one read.
const ITEMS: usize = 100;

/// The functions' decisions. An unreadable item is left out: a newer function wrote it, and Kubernetes keeps showing
/// its earlier state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// Claims, by name.
    pub claims: BTreeMap<String, Claim>,
    /// Pools' statuses.
    pub pools: Vec<PoolStatus>,
    /// Classes' statuses.
    pub classes: Vec<ClassStatus>,
    /// The functions' findings.
    pub told: Vec<ToldFindings>,
    counted: Option<(u64, u64)>,
}

impl Decided {
    /// Reads the decisions, reusing those of the last read.
    ///
    /// # Errors [`TableError`]: try again at the next step.
    pub async fn read<T: Table>(self, table: &T, cluster: &ClusterName) -> Result<Self, TableError> {
        let heads = [keys::revision(cluster), keys::steps(cluster)];
        // A slightly old item only delays: the next time reads the claims again.
        let found = table.batch_get(&heads, Consistency::Eventual).await?;
        let [revision, steps] = heads.map(|key| found.get(&key).cloned());
        // A counter that can't be read is another than before.
        let counted = revision_of(revision.as_ref()).ok().zip(steps_of(steps.as_ref()).ok());
        // Classes and pools lie beside each other: one call for both.
        let both = SkRange::Between(keys::NODE_CLASS.to_owned(), format!("{}~", keys::NODE_POOL));
        let both =
            query_all(table, &Query::new(keys::cluster_pk(cluster), both, Consistency::Eventual)).await?;
        let (classes, pools) = (readable(&both, keys::NODE_CLASS), readable(&both, keys::NODE_POOL));
        let told = read_all(table, cluster, keys::TOLD, Consistency::Eventual).await?;
        let claims = if counted.is_some() && counted == self.counted {
            self.claims
        } else {
            let claims: Vec<Claim> = read_all(table, cluster, keys::NODE_CLAIM, Consistency::Strong).await?;
            claims.into_iter().map(|claim| (claim.name.to_string(), claim)).collect()
        };
        Ok(Self { claims, pools, classes, told, counted })
    }

    /// The cluster's revision before they were read; `None` if it can't be read.
    pub(crate) fn revision(&self) -> Option<u64> {
        self.counted.map(|(revision, _)| revision)
    }
}

async fn read_all<T: Table, F: ItemForm>(
    table: &T,
    cluster: &ClusterName,
    prefix: &str,
    consistency: Consistency,
) -> Result<Vec<F>, TableError> {
    let query = Query::new(keys::cluster_pk(cluster), SkRange::Prefix(prefix.to_owned()), consistency);
    let items = query_all(table, &query).await?;
    Ok(readable(&items, prefix))
}

/// The readable items among them.
///
/// # Errors [`TableError`] if they can't be read.
pub(crate) async fn read_items<T: Table, F: ItemForm>(
    table: &T,
    keys: &[Key],
    consistency: Consistency,
) -> Result<Vec<F>, TableError> {
    let mut read = Vec::new();
    for keys in keys.chunks(ITEMS) {
        let found = table.batch_get(keys, consistency).await?;
        read.extend(found.iter().filter_map(|(key, item)| from_item(key, item).ok()));
    }
    Ok(read)
}

fn readable<F: ItemForm>(items: &[(Key, Item)], prefix: &str) -> Vec<F> {
    let of_kind = items.iter().filter(|(key, _)| key.sk.starts_with(prefix));
    of_kind.filter_map(|(key, item)| from_item(key, item).ok()).collect()
}
