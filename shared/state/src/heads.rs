//! The single items of a cluster that tell what it is at: read by one call, once in a wake.
//!
//! Decides which items those are, and whether anything changed that a function plans from. It doesn't decide what is
//! read then.
//!
//! Invariant: whoever plans from heads reads them before what their generations count.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenon_domain::evidence::CatalogPart;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::WakeCause;
use tenon_runtime::error::HandlerError;
use tenon_runtime::ports::Ports;
use tenon_table::items::form::{self, Fields};
use tenon_table::items::{
    CatalogMeta, FormError, Generations, ItemForm, SeenRecord, keys, revision_of, steps_of,
};
use tenon_table::{Consistency, Item, Key, Table};

use crate::view::{Wants, form_error, parsed};

/// Which changes of the snapshot and the catalogue a function plans from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// All.
    Everything,
    /// All but prices alone.
    Facts,
    /// None while no pod waits, and all while one does.
    PendingPods,
}

/// What tells whether anything changed: one read.
#[derive(Debug, Clone)]
pub struct Heads {
    /// The generations of all that the function plans from.
    pub generations: Generations,
    /// What its last full pass planned from.
    pub seen: Option<SeenRecord>,
    /// What it plans from of the snapshot and the catalogue.
    pub watch: Watch,
    /// Pods that wait, as the agent counted them.
    pub pending_pods: u64,
    /// Whether they may be those of a moment ago.
    pub consistency: Consistency,
    /// The catalogue's parts; none where the function plans from none.
    pub catalog: CatalogMeta,
    /// All that was read.
    pub items: BTreeMap<Key, Item>,
}

/// How a glance reads: a sweep may see the table of a moment ago, which costs half. Whoever was rung for a change must
/// see the change, or would wait for the next sweep.
#[must_use]
pub fn sharpness(causes: &[WakeCause]) -> Consistency {
    if causes.iter().all(|cause| *cause == WakeCause::Sweep) {
        Consistency::Eventual
    } else {
        Consistency::Strong
    }
}

/// Looks whether anything changed that the function plans from.
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
        // Neither changes what a sweep that has nothing to do would do.
        Consistency::Eventual => Vec::new(),
    };
    Heads::read(ports, cluster, wants, consistency, more).await
}

/// The heads that a view has beside those that tell of changes.
pub(crate) fn of_view<P: Ports>(ports: &P, cluster: &ClusterName) -> Vec<Key> {
    vec![keys::registry(&ports.installation().region, cluster), keys::halt(cluster)]
}

impl Heads {
    /// Reads those that tell of changes, and more.
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
        let mut asked = more;
        asked.extend([revision.clone(), steps.clone(), seen.clone(), manifest.clone()]);
        if !wants.parts.is_empty() {
            asked.push(catalog.clone());
        }
        let items = ports.table().batch_get(&asked, consistency).await?;
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
            },
            seen: optional(&items, &seen)?,
            watch: wants.watch,
            pending_pods: counter(&manifest, |item| manifest_number(item, "pending_pods"))?,
            consistency,
            catalog: found,
            items,
        })
    }

    /// One of those that were read; nothing where it isn't there.
    ///
    /// # Errors
    /// [`HandlerError::Item`].
    pub fn item<F: ItemForm>(&self, key: &Key) -> Result<Option<F>, HandlerError> {
        optional(&self.items, key)
    }

    /// Those that a view may be made from: what a set decision is conditional on is read consistently.
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
        // What was refused must be forgotten once it is no more.
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
            at: Timestamp::UNIX_EPOCH,
            refusals: refused.map(str::to_owned),
            told_at: None,
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
        Generations { snapshot, revision: 1, steps, catalog: catalog.into() }
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
        // What was refused is forgotten by one look more.
        check(Watch::PendingPods, 0, Some("12ab"), [false; 4]);
    }
}
