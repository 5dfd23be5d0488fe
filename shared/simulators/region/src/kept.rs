//! Items of the table as the domain's types, cached and read again only after a change, because a region is inspected
//! often.
//!
//! Invariant: the result is the table's content at that moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tenon_domain::claim::Claim;
use tenon_domain::command::Command;
use tenon_domain::id::ClusterName;
use tenon_domain::launch::Launch;
use tenon_memory_table::{MemoryTable, StoredItem};
use tenon_table::Key;
use tenon_table::items::{self, ItemForm};

/// The cached items of all clusters.
#[derive(Debug, Default)]
pub(crate) struct KeptClusters {
    pub(crate) claims: KeptItems<Claim>,
    pub(crate) launches: KeptItems<Launch>,
    pub(crate) commands: KeptItems<Command>,
}

/// The cached items of one kind, by cluster.
#[derive(Debug)]
pub(crate) struct KeptItems<T>(Mutex<BTreeMap<ClusterName, KeptRead<T>>>);

#[derive(Debug)]
struct KeptRead<T> {
    /// The table's version that `list` is of.
    version: u64,
    /// By sort key.
    items: BTreeMap<Arc<str>, ReadItem<T>>,
    list: Vec<Arc<T>>,
}

/// An item, with its value if it is readable.
type ReadItem<T> = (Arc<StoredItem>, Option<Arc<T>>);

impl<T> Default for KeptItems<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Default for KeptRead<T> {
    fn default() -> Self {
        // No table that holds an item is at this version.
        Self { version: 0, items: BTreeMap::new(), list: Vec::new() }
    }
}

impl<T: ItemForm> KeptItems<T> {
    /// The readable items of a cluster with this prefix, by sort key.
    pub(crate) fn of(&self, table: &MemoryTable, cluster: &ClusterName, prefix: &str) -> Vec<Arc<T>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !kept.contains_key(cluster) {
            kept.insert(cluster.clone(), KeptRead::default());
        }
        let Some(read) = kept.get_mut(cluster) else { return Vec::new() };
        let version = table.version();
        if read.version != version {
            let pk = items::keys::cluster_pk(cluster);
            let mut before = std::mem::take(&mut read.items);
            for (sk, stored) in table.peek_prefix(&pk, prefix) {
                let item = match before.remove(&sk) {
                    Some((known, item)) if Arc::ptr_eq(&known, &stored) => item,
                    Some(_) | None => {
                        let key = Key::new(pk.as_str(), &*sk);
                        items::from_item(&key, stored.item()).ok().map(Arc::new)
                    }
                };
                read.items.insert(sk, (stored, item));
            }
            read.list = read.items.values().filter_map(|(_, item)| item.clone()).collect();
            read.version = version;
        }
        read.list.clone()
    }
}
