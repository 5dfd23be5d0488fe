//! What functions decided about the cluster's claims, pools and classes, as the agent tells it to Kubernetes.
//!
//! Decides what is read when. Claims are many: they are read anew only where the counters beside them say that something
//! changed. Statuses of pools and classes, and what functions tell, aren't counted, and
//! are few.
//!
//! Invariant: counters are read before what they count, so that what is missed is read the next time.

use std::collections::BTreeMap;

use tenon_domain::claim::Claim;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::ClusterName;
use tenon_domain::pool_status::PoolStatus;
use tenon_table::items::{ItemForm, ToldFindings, from_item, keys, revision_of, steps_of};
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, TableError, query_all};

/// What functions decided. An item that can't be read is left out: a newer function wrote it, and what Kubernetes shows
/// of it stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decided {
    /// Claims, by name.
    pub claims: BTreeMap<String, Claim>,
    /// Pools' statuses.
    pub pools: Vec<PoolStatus>,
    /// Classes' statuses.
    pub classes: Vec<ClassStatus>,
    /// What functions refuse and wait for.
    pub told: Vec<ToldFindings>,
    counted: Option<(u64, u64)>,
}

impl Decided {
    /// Reads it, against what was read before.
    ///
    /// # Errors
    /// [`TableError`]: try again at the next step.
    pub async fn read<T: Table>(self, table: &T, cluster: &ClusterName) -> Result<Self, TableError> {
        let heads = [keys::revision(cluster), keys::steps(cluster)];
        // One that is a moment old only delays: claims are then read again the next time.
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

fn readable<F: ItemForm>(items: &[(Key, Item)], prefix: &str) -> Vec<F> {
    let of_kind = items.iter().filter(|(key, _)| key.sk.starts_with(prefix));
    of_kind.filter_map(|(key, item)| from_item(key, item).ok()).collect()
}
