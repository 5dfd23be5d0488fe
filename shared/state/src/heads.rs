//! Heads: the items with a cluster's generations, read by one call, once a wake.
//!
//! Decides which items those are, and whether a function's input changed. It doesn't decide what the function reads
//! then.
//!
//! Invariant: a function reads heads before the data that their generations count.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::registry::Registry;
use tenon_domain::wake::WakeCause;
use tenon_runtime::error::HandlerError;
use tenon_runtime::ports::Ports;
use tenon_table::items::form::{self, Fields};
use tenon_table::items::{
    CatalogMeta, FormError, Generations, ItemForm, SeenRecord, keys, revision_of, steps_of,
};
use tenon_table::{Consistency, Item, Key, Table, form_digest, limits};

use crate::view::{Wants, form_error, parsed};

/// The version of the attributes behind a registry entry's digest.
const REGISTRY_FORM: &str = "registry-1";
/// Letters and digits of that digest: it tells apart the few entries that a cluster ever has.
const REGISTRY_DIGITS: usize = 12;

/// The changes of the snapshot and the catalogue that concern a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// All.
    Everything,
    /// All but changed prices, and the cluster's registry entry.
    Facts,
    /// All while a pod is pending, and the cluster's registry entry then; else none.
    PendingPods,
}

/// The generations of a function's input, and the items around them.
#[derive(Debug, Clone)]
pub struct Heads {
    /// The generations of the function's input.
    pub generations: Generations,
    /// The record of its last full pass.
    pub seen: Option<SeenRecord>,
    /// The changes that concern it.
    pub watch: Watch,
    /// The agent's count of pending pods.
    pub pending_pods: u64,
    /// How they were read; eventually consistent heads may be a moment old.
    pub consistency: Consistency,
    /// The catalogue's parts; empty if the function uses none.
    pub catalog: CatalogMeta,
    /// All items of the read.
    pub items: BTreeMap<Key, Item>,
}

/// The consistency of a glance. A sweep may see the table of a moment ago, which costs half. A wake for a change must
/// see the change, or the function would miss it until the next sweep.
#[must_use]
pub fn sharpness(causes: &[WakeCause]) -> Consistency {
    if causes.iter().all(|cause| *cause == WakeCause::Sweep) {
        Consistency::Eventual
    } else {
        Consistency::Strong
    }
}

/// Reads the heads, which show whether the function's input changed.
///
/// # Errors
/// [`HandlerError::Read`] and [`HandlerError::Item`].
pub async fn glance<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    wants: Wants<'_>,
    consistency: Consistency,
) -> Result<Heads, HandlerError> {
    let more = match consistency {
        Consistency::Strong => of_view(ports, cluster),
        // A sweep without changes needs neither.
        Consistency::Eventual => Vec::new(),
    };
    Heads::read(ports, cluster, wants, consistency, more).await
}

/// The heads that a view needs besides the generations.
#[must_use]
pub fn of_view<P: Ports>(ports: &P, cluster: &ClusterName) -> Vec<Key> {
    vec![keys::registry(&ports.installation().region, cluster), keys::halt(cluster)]
}

impl Heads {
    /// Reads the generations, and the items `more`.
    ///
    /// # Errors
    /// [`HandlerError::Read`] and [`HandlerError::Item`].
    pub async fn read<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        wants: Wants<'_>,
        consistency: Consistency,
        more: Vec<Key>,
    ) -> Result<Self, HandlerError> {
        let [revision, steps, seen, manifest, catalog] = [
            keys::revision(cluster),
            keys::steps(cluster),
            keys::seen(cluster, wants.function),
            keys::manifest(cluster),
            keys::catalog(&ports.installation().region),
        ];
        let mut asked = vec![revision.clone(), steps.clone(), seen.clone(), manifest.clone()];
        if !wants.parts.is_empty() {
            asked.push(catalog.clone());
        }
        let registry = keys::registry(&ports.installation().region, cluster);
        let counts_entry = match wants.watch {
            Watch::Facts | Watch::PendingPods => true,
            Watch::Everything => false,
        };
        if counts_entry && !more.contains(&registry) {
            asked.push(registry.clone());
        }
        asked.extend(more);
        let mut items = BTreeMap::new();
        for asked in asked.chunks(limits::BATCH_KEYS) {
            items.extend(ports.table().batch_get(asked, consistency).await?);
        }
        let counter = |key: &Key, read: fn(Option<&Item>) -> Result<u64, form::FieldError>| {
            read(items.get(key)).map_err(|field| form_error(FormError { key: key.clone(), field }))
        };
        let found: CatalogMeta = optional(&items, &catalog)?.unwrap_or_default();
        Ok(Self {
            generations: Generations {
                snapshot: counter(&manifest, |item| manifest_number(item, "generation"))?,
                revision: counter(&revision, revision_of)?,
                steps: counter(&steps, steps_of)?,
                catalog: found.generations(wants.parts),
                registry: match counts_entry {
                    true => optional(&items, &registry)?.map(registry_digest),
                    false => None,
                },
            },
            seen: optional(&items, &seen)?,
            watch: wants.watch,
            pending_pods: counter(&manifest, |item| manifest_number(item, "pending_pods"))?,
            consistency,
            catalog: found,
            items,
        })
    }

    /// One of the items; `None` if it doesn't exist.
    ///
    /// # Errors
    /// [`HandlerError::Item`].
    pub fn item<F: ItemForm>(&self, key: &Key) -> Result<Option<F>, HandlerError> {
        optional(&self.items, key)
    }

    /// The heads, if a view may use them: its decisions are conditional on the revision, which needs a consistent read.
    #[must_use]
    pub fn strong(self) -> Option<Self> {
        match self.consistency {
            Consistency::Strong => Some(self),
            Consistency::Eventual => None,
        }
    }

    /// Whether a sweep may end here.
    #[must_use]
    pub fn unchanged(&self, now: Timestamp) -> bool {
        let Some(seen) = &self.seen else { return false };
        let Generations { revision, steps, .. } = self.generations;
        // A pass must clear old refusals, even without pending pods.
        let refused = seen.refusals.is_some();
        match self.watch {
            Watch::Facts if !refused => {
                let mut generations = self.generations.clone();
                for prices in [CatalogPart::OnDemandPrices, CatalogPart::SpotPrices] {
                    if let Some(before) = seen.generations.catalog.get(&prices) {
                        generations.catalog.insert(prices, *before);
                    }
                }
                seen.unchanged(now, &generations)
            }
            Watch::PendingPods if !refused && self.pending_pods == 0 => {
                seen.unchanged(now, &Generations { revision, steps, ..seen.generations.clone() })
            }
            Watch::Everything | Watch::Facts | Watch::PendingPods => seen.unchanged(now, &self.generations),
        }
    }
}

/// The digest of a registry entry.
fn registry_digest(entry: Registry) -> String {
    form_digest(REGISTRY_FORM, |to| entry.write(to)).base36(REGISTRY_DIGITS)
}

fn manifest_number(item: Option<&Item>, name: &str) -> Result<u64, form::FieldError> {
    item.map_or(Ok(0), |item| Fields::of(item).u64(name))
}

fn optional<F: ItemForm>(items: &BTreeMap<Key, Item>, key: &Key) -> Result<Option<F>, HandlerError> {
    items.get(key).map(|item| parsed(key, item)).transpose()
}

#[cfg(test)]
mod tests {
    use tenon_domain::wake::FunctionName;

    use super::*;

    fn look(watch: Watch, pending_pods: u64, refused: Option<&str>, now: Generations) -> bool {
        let seen = SeenRecord {
            function: FunctionName::Provisioner,
            generations: generations(1, 1, 1, 1),
            deadline: None,
            wake_at: None,
            at: Timestamp::UNIX_EPOCH,
            refusals: refused.map(str::to_owned),
            told_at: None,
            offerings: Vec::new(),
            offerings_at: None,
        };
        let heads = Heads {
            generations: now,
            seen: Some(seen),
            watch,
            pending_pods,
            consistency: Consistency::Strong,
            catalog: CatalogMeta::default(),
            items: BTreeMap::new(),
        };
        heads.unchanged(Timestamp::UNIX_EPOCH)
    }

    fn generations(snapshot: u64, steps: u64, types: u64, prices: u64) -> Generations {
        let catalog = [(CatalogPart::InstanceTypes, types), (CatalogPart::SpotPrices, prices)];
        Generations { snapshot, revision: 1, steps, catalog: catalog.into(), registry: Some("1".to_owned()) }
    }

    #[test]
    fn a_function_looks_at_what_it_watches() {
        let (snapshot, steps) = (generations(2, 1, 1, 1), generations(1, 2, 1, 1));
        let (types, prices) = (generations(1, 1, 2, 1), generations(1, 1, 1, 2));
        let check = |watch, pending, refused, expected: [bool; 4]| {
            let found =
                [&snapshot, &steps, &types, &prices].map(|now| look(watch, pending, refused, now.clone()));
            assert_eq!(found, expected, "{watch:?} {pending} {refused:?}");
        };
        check(Watch::Everything, 0, None, [false; 4]);
        check(Watch::Facts, 0, None, [false, false, false, true]);
        check(Watch::Facts, 0, Some("12ab"), [false; 4]);
        check(Watch::PendingPods, 0, None, [true, false, true, true]);
        check(Watch::PendingPods, 1, None, [false; 4]);
        // One more pass clears the refusals.
        check(Watch::PendingPods, 0, Some("12ab"), [false; 4]);
    }

    #[test]
    fn a_changed_registry_entry_concerns_pods_that_wait() {
        let entry = |digest: Option<&str>| {
            let registry = digest.map(str::to_owned);
            Generations { registry, ..generations(1, 1, 1, 1) }
        };
        let check = |pending: u64, refused: Option<&str>, expected: [bool; 2]| {
            let found = [Some("1"), Some("2")]
                .map(|digest| look(Watch::PendingPods, pending, refused, entry(digest)));
            assert_eq!(found, expected, "{pending} {refused:?}");
        };
        check(1, Some("12ab"), [true, false]);
        check(1, None, [true, false]);
        check(0, None, [true, true]);
    }
}
