//! Observe: what the table holds of one cluster, read once.
//!
//! Decides the order of reads: generations first, then what they are of. So whatever is written in between makes a
//! decision from this view lose its race, or its function look again; it is never missed. It doesn't decide what is
//! fresh enough, and doesn't read the agent's snapshot.
//!
//! Invariants: sets that were kept from an earlier look are those that would be read; an item whose `expires_at` has passed isn't in a view, whether or not DynamoDB deleted it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::Learned;
use tenon_domain::claim::Claim;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::command::Command;
use tenon_domain::evidence::{CatalogPart, Waiting};
use tenon_domain::id::{ClaimName, ClusterName, CommandId, LaunchId, NodeClassName, NodePoolName};
use tenon_domain::launch::Launch;
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::registry::Registry;
use tenon_domain::unavailable::{Mark, Marks};
use tenon_domain::wake::{Cause, FunctionName};
use tenon_table::items::form::{self, Fields};
use tenon_table::items::packed::each_part;
use tenon_table::items::{
    CatalogCache, CatalogError, CatalogMeta, Form, FormError, Generations, Halt, Parts, Seen, Template, keys,
    revision_of, steps_of,
};
use tenon_table::key::EXPIRES_AT;
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, query_all};

use tenon_runtime::error::HandlerError;
use tenon_runtime::ports::Ports;

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

/// What a function looks at.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    /// The function, whose `SEEN#` is read.
    pub function: FunctionName,
    /// Parts of the catalogue that it plans from.
    pub parts: &'a [CatalogPart],
    /// Sets of items that it plans from.
    pub sets: &'a [Want],
    /// What it plans from of the snapshot and the catalogue.
    pub watch: Watch,
}

/// What tells whether anything changed: one read.
#[derive(Debug, Clone)]
pub struct Glance {
    /// The generations of all that the function plans from.
    pub generations: Generations,
    /// What its last full pass planned from.
    pub seen: Option<Seen>,
    /// What it plans from of the snapshot and the catalogue.
    pub watch: Watch,
    /// Pods that wait, as the agent counted them.
    pub pending_pods: u64,
}

impl Glance {
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

/// How long the sets of a view are kept at most: a bound on what a change that nobody counted could do.
const KEPT_AT_MOST: SignedDuration = SignedDuration::from_mins(10);

/// A cluster, as the table holds it.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// The moment of the pass.
    pub now: Timestamp,
    /// Until when its sets hold while the generations are the same: the first of their items expires then.
    pub holds_until: Timestamp,
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
    /// What was learned of nodes' memory; nothing until whoever plans nodes puts it there.
    pub learned: Arc<Learned>,
    /// The parts of the catalogue that were wanted and ever arrived.
    pub parts: Parts,
    /// The parts that can't be refreshed, since when.
    pub failing: BTreeMap<CatalogPart, Timestamp>,
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
    let Heads { generations, seen, pending_pods, .. } = heads;
    Ok(Glance { generations, seen, watch: wants.watch, pending_pods })
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
        Self::observe_since(ports, cluster, wants, cache, None).await
    }

    /// The same, for a function that kept the view of an earlier look: where neither the cluster's revision nor its
    /// steps changed, the sets are as they were, and only the region's marks are read.
    ///
    /// # Errors
    /// As [`ClusterView::observe`].
    pub async fn observe_since<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        wants: Wants<'_>,
        cache: &CatalogCache,
        kept: Option<Self>,
    ) -> Result<Self, HandlerError> {
        let heads = Heads::read(ports, cluster, wants, Consistency::Strong).await?;
        let region = &ports.installation().region;
        let now = ports.now();
        let mut parts = Parts::new();
        for (part, found) in each_part(ports.table(), region, (&heads.catalog, wants.parts), cache).await? {
            match found {
                Ok(found) => drop(parts.insert(part, found)),
                // Its pieces have expired, long after it supported any decision.
                Err(CatalogError::Missing { .. }) if is_stale(&heads.catalog, part, now) => {}
                Err(error) => return Err(catalog_error(error)),
            }
        }
        let kept = kept.filter(|kept| kept.holds(&heads.generations, now));
        let sets: BTreeSet<Want> =
            wants.sets.iter().copied().filter(|want| *want == Want::Marks || kept.is_none()).collect();
        let mut view = kept.unwrap_or_else(|| Self::empty(now));
        view = Self {
            now,
            registry: heads.registry.ok_or(Waiting::ClusterNotRegistered),
            generations: heads.generations,
            seen: heads.seen,
            halt: heads.halt,
            marks: Marks::default(),
            parts,
            failing: failing(&heads.catalog),
            ..view
        };
        for want in sets {
            view.read(ports, cluster, want).await?;
        }
        Ok(view)
    }

    fn empty(now: Timestamp) -> Self {
        Self {
            now,
            holds_until: now.saturating_add(KEPT_AT_MOST).unwrap_or(now),
            registry: Err(Waiting::ClusterNotRegistered),
            generations: Generations::default(),
            seen: None,
            halt: None,
            claims: BTreeMap::new(),
            expiring: BTreeSet::new(),
            launches: BTreeMap::new(),
            commands: BTreeMap::new(),
            classes: BTreeMap::new(),
            pools: BTreeMap::new(),
            templates: BTreeMap::new(),
            marks: Marks::default(),
            learned: Arc::default(),
            parts: Parts::new(),
            failing: BTreeMap::new(),
        }
    }

    /// Whether its sets are those of these generations: whatever changes them counts one of both up.
    fn holds(&self, generations: &Generations, now: Timestamp) -> bool {
        now < self.holds_until
            && self.generations.revision == generations.revision
            && self.generations.steps == generations.steps
    }

    /// The items of the cluster whose place begins so. They hold until the first of them expires.
    async fn query<P: Ports>(
        &mut self,
        ports: &P,
        cluster: &ClusterName,
        prefix: &str,
    ) -> Result<Vec<(Key, Item)>, HandlerError> {
        let items = read_prefix(ports.table(), keys::cluster_pk(cluster), prefix, self.now).await?;
        let first = items.iter().filter_map(|(_, item)| expires_at(item)).min();
        let first = first.and_then(|seconds| Timestamp::from_second(seconds).ok());
        self.holds_until = first.map_or(self.holds_until, |first| first.min(self.holds_until));
        Ok(items)
    }

    async fn read<P: Ports>(
        &mut self,
        ports: &P,
        cluster: &ClusterName,
        want: Want,
    ) -> Result<(), HandlerError> {
        match want {
            Want::Claims => {
                let items = self.query(ports, cluster, keys::NODE_CLAIM).await?;
                for (key, item) in &items {
                    let claim: Claim = parsed(key, item)?;
                    if item.contains_key(EXPIRES_AT) {
                        self.expiring.insert(claim.name.clone());
                    }
                    self.claims.insert(claim.name.clone(), claim);
                }
            }
            Want::Launches => {
                let items = self.query(ports, cluster, keys::LAUNCH).await?;
                self.launches = indexed(&items, |launch: &Launch| launch.id.clone())?;
            }
            Want::Commands => {
                let items = self.query(ports, cluster, keys::COMMAND).await?;
                self.commands = indexed(&items, |command: &Command| command.id.clone())?;
            }
            Want::Classes => {
                let items = self.query(ports, cluster, keys::NODE_CLASS).await?;
                self.classes = indexed(&items, |class: &ClassStatus| class.name.clone())?;
            }
            Want::Pools => {
                let items = self.query(ports, cluster, keys::NODE_POOL).await?;
                self.pools = indexed(&items, |pool: &PoolStatus| pool.name.clone())?;
            }
            Want::Templates => {
                let items = self.query(ports, cluster, keys::TEMPLATE).await?;
                self.templates = indexed(&items, |template: &Template| template.name.clone())?;
            }
            Want::Marks => {
                let pk = keys::region_pk(&ports.installation().region);
                let items = read_prefix(ports.table(), pk, keys::UNAVAILABLE, self.now).await?;
                let marks = items.iter().map(|(key, item)| parsed::<Mark>(key, item));
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
    pending_pods: u64,
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
                snapshot: counter(&manifest, |item| manifest_number(item, "generation"))?,
                revision: counter(&revision, revision_of)?,
                steps: counter(&steps, steps_of)?,
                catalog: catalog.generations(wants.parts),
            },
            seen: optional(&items, &seen)?,
            halt: optional(&items, &halt)?,
            catalog,
            pending_pods: counter(&manifest, |item| manifest_number(item, "pending_pods"))?,
        })
    }
}

fn failing(catalog: &CatalogMeta) -> BTreeMap<CatalogPart, Timestamp> {
    catalog.parts.iter().filter_map(|(part, meta)| Some((*part, meta.failing_since?))).collect()
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
    expires_at(item).is_some_and(|seconds| seconds <= now.as_second())
}

fn expires_at(item: &Item) -> Option<i64> {
    item.get(EXPIRES_AT).and_then(|value| value.as_number()).and_then(|number| number.to_i64())
}

fn manifest_number(item: Option<&Item>, name: &str) -> Result<u64, form::FieldError> {
    item.map_or(Ok(0), |item| Fields::of(item).u64(name))
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

    fn look(watch: Watch, pending_pods: u64, refused: Option<&str>, now: Generations) -> bool {
        let seen = Seen {
            function: FunctionName::Provisioner,
            generations: generations(1, 1, 1, 1),
            deadline: None,
            at: Timestamp::UNIX_EPOCH,
            refusals: refused.map(str::to_owned),
            told_at: None,
        };
        let glance = Glance { generations: now, seen: Some(seen), watch, pending_pods };
        glance.unchanged(Timestamp::UNIX_EPOCH)
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

    /// Seeds 1, 2, 7, 10, 11 and 18 of the simulation: a launch committed between both reads was settled without its
    /// claims, and its instance had no owner for ever.
    #[test]
    fn what_names_claims_is_read_before_the_claims() {
        let wanted = BTreeSet::from([Want::Claims, Want::Launches, Want::Commands]);
        assert_eq!(wanted.last(), Some(&Want::Claims));
    }
}
