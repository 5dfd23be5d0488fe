//! Observe: what the table holds of one cluster, read once.
//!
//! Decides the order of reads: generations first, then what they are of. So whatever is written in between makes a
//! decision from this view lose its race, or its function look again; it is never missed. It doesn't decide what is
//! fresh enough, and doesn't read the agent's snapshot.
//!
//! Invariant: an item whose `expires_at` has passed isn't in a view, whether or not DynamoDB deleted it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::command::Command;
use tenon_domain::evidence::{CatalogPart, Waiting};
use tenon_domain::id::{ClaimName, ClusterName, CommandId, LaunchId, NodeClassName, NodePoolName};
use tenon_domain::launch::Launch;
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::registry::Registry;
use tenon_domain::unavailable::{Marks, Unavailable};
use tenon_domain::wake::{Cause, FunctionName};
use tenon_table::items::form::{self, Fields};
use tenon_table::items::packed::parts_of;
use tenon_table::items::{
    CatalogCache, CatalogError, CatalogMeta, Form, FormError, Generations, Halt, Parts, Seen, Template, keys,
    revision_of, steps_of,
};
use tenon_table::key::EXPIRES_AT;
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, query_all};

use crate::error::HandlerError;
use crate::ports::Ports;

/// A set of items that a function plans from, in the order in which sets are read: what names claims comes before the
/// claims. Both are committed together, so a launch that is seen is seen with its claims. The other way round a launch
/// committed between the two reads would look as if its claims were gone, and would be settled without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Its launches.
    Launches,
    /// Its disruption commands.
    Commands,
    /// Its claims.
    Claims,
    /// Its node classes, as they resolved.
    Classes,
    /// Its pools' statuses.
    Pools,
    /// Its launch templates.
    Templates,
    /// The region's marks.
    Marks,
}

/// What a function looks at.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    /// The function, whose `SEEN#` is read.
    pub function: FunctionName,
    /// Parts of the catalogue that it plans from.
    pub parts: &'a [CatalogPart],
    /// Sets of items that it plans from.
    pub sets: &'a [Want],
}

/// What tells whether anything changed: one read.
#[derive(Debug, Clone)]
pub struct Glance {
    /// The generations of all that the function plans from.
    pub generations: Generations,
    /// What its last full pass planned from.
    pub seen: Option<Seen>,
}

impl Glance {
    /// Whether a sweep may end here.
    #[must_use]
    pub fn unchanged(&self, now: Timestamp) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.unchanged(now, &self.generations))
    }
}

/// A cluster, as the table holds it.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// The moment of the pass.
    pub now: Timestamp,
    /// Its entry in the registry; none waits for the per-cluster stack.
    pub registry: Result<Registry, Waiting>,
    /// The generations that this view is of: `revision` is the condition of set-level decisions.
    pub generations: Generations,
    /// What the function's last full pass planned from.
    pub seen: Option<Seen>,
    /// What holds terminations and disruptions back.
    pub halt: Option<Halt>,
    /// Its claims.
    pub claims: BTreeMap<ClaimName, Claim>,
    /// Those of its claims whose items DynamoDB will delete.
    pub expiring: BTreeSet<ClaimName>,
    /// Its launches.
    pub launches: BTreeMap<LaunchId, Launch>,
    /// Its disruption commands.
    pub commands: BTreeMap<CommandId, Command>,
    /// Its node classes.
    pub classes: BTreeMap<NodeClassName, ClassStatus>,
    /// Its pools' statuses.
    pub pools: BTreeMap<NodePoolName, PoolStatus>,
    /// Its launch templates, by name.
    pub templates: BTreeMap<String, Template>,
    /// The region's marks.
    pub marks: Marks,
    /// The parts of the catalogue that were wanted and ever arrived.
    pub parts: Parts,
}

/// How a glance reads: a sweep may see the table of a moment ago, which costs half. Whoever was rung for a change must
/// see the change, or would wait for the next sweep.
#[must_use]
pub fn sharpness(causes: &[Cause]) -> Consistency {
    if causes.iter().all(|cause| *cause == Cause::Sweep) {
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
) -> Result<Glance, HandlerError> {
    let heads = Heads::read(ports, cluster, wants, consistency).await?;
    Ok(Glance { generations: heads.generations, seen: heads.seen })
}

impl ClusterView {
    /// Reads all that the function wants of a cluster.
    ///
    /// # Errors
    /// [`HandlerError::Read`] and [`HandlerError::Item`].
    pub async fn observe<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        wants: Wants<'_>,
        cache: &CatalogCache,
    ) -> Result<Self, HandlerError> {
        let heads = Heads::read(ports, cluster, wants, Consistency::Strong).await?;
        let region = &ports.installation().region;
        let now = ports.now();
        let mut parts = Parts::new();
        for part in wants.parts {
            match parts_of(ports.table(), region, (&heads.catalog, &[*part]), cache).await {
                Ok(found) => parts.extend(found),
                // Its pieces have expired, long after it supported any decision.
                Err(CatalogError::Missing { .. }) if is_stale(&heads.catalog, *part, now) => {}
                Err(error) => return Err(catalog_error(error)),
            }
        }
        let mut view = Self {
            now,
            registry: heads.registry.ok_or(Waiting::ClusterNotRegistered),
            generations: heads.generations,
            seen: heads.seen,
            halt: heads.halt,
            claims: BTreeMap::new(),
            expiring: BTreeSet::new(),
            launches: BTreeMap::new(),
            commands: BTreeMap::new(),
            classes: BTreeMap::new(),
            pools: BTreeMap::new(),
            templates: BTreeMap::new(),
            marks: Marks::default(),
            parts,
        };
        for want in wants.sets.iter().collect::<BTreeSet<_>>() {
            view.read(ports, cluster, *want).await?;
        }
        Ok(view)
    }

    async fn read<P: Ports>(
        &mut self,
        ports: &P,
        cluster: &ClusterName,
        want: Want,
    ) -> Result<(), HandlerError> {
        let (table, now) = (ports.table(), self.now);
        let pk = keys::cluster_pk(cluster);
        match want {
            Want::Claims => {
                let items = read_prefix(table, pk, keys::NODE_CLAIM, now).await?;
                for (key, item) in &items {
                    let claim: Claim = parsed(key, item)?;
                    if item.contains_key(EXPIRES_AT) {
                        self.expiring.insert(claim.name.clone());
                    }
                    self.claims.insert(claim.name.clone(), claim);
                }
            }
            Want::Launches => {
                let items = read_prefix(table, pk, keys::LAUNCH, now).await?;
                self.launches = indexed(&items, |launch: &Launch| launch.id.clone())?;
            }
            Want::Commands => {
                let items = read_prefix(table, pk, keys::COMMAND, now).await?;
                self.commands = indexed(&items, |command: &Command| command.id.clone())?;
            }
            Want::Classes => {
                let items = read_prefix(table, pk, keys::NODE_CLASS, now).await?;
                self.classes = indexed(&items, |class: &ClassStatus| class.name.clone())?;
            }
            Want::Pools => {
                let items = read_prefix(table, pk, keys::NODE_POOL, now).await?;
                self.pools = indexed(&items, |pool: &PoolStatus| pool.name.clone())?;
            }
            Want::Templates => {
                let items = read_prefix(table, pk, keys::TEMPLATE, now).await?;
                self.templates = indexed(&items, |template: &Template| template.name.clone())?;
            }
            Want::Marks => {
                let pk = keys::region_pk(&ports.installation().region);
                let items = read_prefix(table, pk, keys::UNAVAILABLE, now).await?;
                let marks = items.iter().map(|(key, item)| parsed::<Unavailable>(key, item));
                self.marks = marks.collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }
}

/// The single items of a cluster, read by one call.
struct Heads {
    registry: Option<Registry>,
    generations: Generations,
    seen: Option<Seen>,
    halt: Option<Halt>,
    catalog: CatalogMeta,
}

impl Heads {
    async fn read<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        wants: Wants<'_>,
        consistency: Consistency,
    ) -> Result<Self, HandlerError> {
        let region = &ports.installation().region;
        let [registry, revision, steps, seen, halt, manifest, catalog] = [
            keys::registry(region, cluster),
            keys::revision(cluster),
            keys::steps(cluster),
            keys::seen(cluster, wants.function),
            keys::halt(cluster),
            keys::manifest(cluster),
            keys::catalog(region),
        ];
        let mut asked =
            vec![revision.clone(), steps.clone(), seen.clone(), manifest.clone(), catalog.clone()];
        match consistency {
            Consistency::Strong => asked.extend([registry.clone(), halt.clone()]),
            // Neither changes what a sweep that has nothing to do would do.
            Consistency::Eventual => {}
        }
        let items = ports.table().batch_get(&asked, consistency).await?;
        let counter = |key: &Key, read: fn(Option<&Item>) -> Result<u64, form::FieldError>| {
            read(items.get(key)).map_err(|field| form_error(FormError { key: key.clone(), field }))
        };
        let catalog: CatalogMeta = optional(&items, &catalog)?.unwrap_or_default();
        Ok(Self {
            registry: optional(&items, &registry)?,
            generations: Generations {
                snapshot: counter(&manifest, snapshot_generation)?,
                revision: counter(&revision, revision_of)?,
                steps: counter(&steps, steps_of)?,
                catalog: catalog.generations(wants.parts),
            },
            seen: optional(&items, &seen)?,
            halt: optional(&items, &halt)?,
            catalog,
        })
    }
}

fn is_stale(catalog: &CatalogMeta, part: CatalogPart, now: Timestamp) -> bool {
    let refreshed_at = catalog.parts.get(&part).and_then(|found| found.refreshed_at);
    refreshed_at.is_none_or(|at| now.duration_since(at) > part.stale_after())
}

/// An item's error as the handler's.
#[must_use]
pub fn form_error(error: FormError) -> HandlerError {
    HandlerError::Item { key: error.key.to_string(), source: Box::new(error.field) }
}

/// The catalogue's error as the handler's.
#[must_use]
pub fn catalog_error(error: CatalogError) -> HandlerError {
    match error {
        CatalogError::Read(error) => HandlerError::Read(error),
        CatalogError::Form(error) => form_error(error),
        CatalogError::Missing { .. } | CatalogError::Corrupt { .. } | CatalogError::Pack { .. } => {
            HandlerError::Item { key: "CATALOG".to_owned(), source: Box::new(error) }
        }
    }
}

/// All items of a partition whose place begins so, read consistently, without those that expired.
async fn read_prefix<T: Table>(
    table: &T,
    pk: String,
    prefix: &str,
    now: Timestamp,
) -> Result<Vec<(Key, Item)>, HandlerError> {
    let query = Query::new(pk, SkRange::Prefix(prefix.to_owned()), Consistency::Strong);
    let mut items = query_all(table, &query).await?;
    items.retain(|(_, item)| !is_expired(item, now));
    Ok(items)
}

/// Whether DynamoDB may already have deleted the item.
#[must_use]
pub fn is_expired(item: &Item, now: Timestamp) -> bool {
    let expires_at =
        item.get(EXPIRES_AT).and_then(|value| value.as_number()).and_then(|number| number.to_i64());
    expires_at.is_some_and(|seconds| seconds <= now.as_second())
}

fn snapshot_generation(item: Option<&Item>) -> Result<u64, form::FieldError> {
    item.map_or(Ok(0), |item| Fields::of(item).u64("generation"))
}

fn optional<F: Form>(items: &BTreeMap<Key, Item>, key: &Key) -> Result<Option<F>, HandlerError> {
    items.get(key).map(|item| parsed(key, item)).transpose()
}

fn parsed<F: Form>(key: &Key, item: &Item) -> Result<F, HandlerError> {
    form::from_item(key, item).map_err(form_error)
}

fn indexed<F: Form, K: Ord>(
    items: &[(Key, Item)],
    name: impl Fn(&F) -> K,
) -> Result<BTreeMap<K, F>, HandlerError> {
    let named = items.iter().map(|(key, item)| {
        let value: F = parsed(key, item)?;
        Ok((name(&value), value))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds 1, 2, 7, 10, 11 and 18 of the simulation: a launch committed between both reads was settled without its
    /// claims, and its instance had no owner for ever.
    #[test]
    fn what_names_claims_is_read_before_the_claims() {
        let wanted = BTreeSet::from([Want::Claims, Want::Launches, Want::Commands]);
        assert_eq!(wanted.last(), Some(&Want::Claims));
    }
}
