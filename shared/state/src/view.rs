//! A cluster's items in the table, read once.
//!
//! Decides the order of reads: generations first, then the data. So no write in between is missed: it makes the view's
//! decision lose its race, or its function look again. It doesn't decide what is fresh enough, and doesn't read the
//! agent's snapshot.
//!
//! Invariants: sets from an earlier look equal those in the table; a view has no item whose `expires_at` has passed,
//! whether or not DynamoDB has deleted it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::Learned;
use tenon_domain::claim::Claim;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::command::Command;
use tenon_domain::evidence::{CatalogPart, Waiting};
use tenon_domain::id::{ClaimName, ClusterName, CommandId, LaunchId, NodeClassName, NodePoolName, Region};
use tenon_domain::launch::Launch;
use tenon_domain::launch_verdict::ClassVerdicts;
use tenon_domain::pool_status::PoolStatus;
use tenon_domain::registry::Registry;
use tenon_domain::unavailable::{Mark, Marks};
use tenon_domain::wake::FunctionName;
use tenon_table::items::form;
use tenon_table::items::packed::each_part;
use tenon_table::items::{
    CatalogCache, CatalogError, CatalogMeta, FormError, Generations, Halt, ItemForm, LeavingTemplates,
    RefreshedParts, SeenRecord, TemplateItem, keys,
};
use tenon_table::key::EXPIRES_AT;
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, query_all};

use tenon_runtime::error::HandlerError;
use tenon_runtime::ports::Ports;

use crate::heads::{Heads, Watch, glance};

/// A set of items that a function uses, in the order of the reads: items that name claims come before the claims. A
/// launch and its claims share a commit, so a view with the launch also has its claims. In the reverse order, a launch
/// committed between the two reads would seem to have lost its claims, and would be settled without them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// Its launches.
    Launches,
    /// Its disruption commands.
    Commands,
    /// Its claims.
    Claims,
    /// Its node classes, as they resolved, with EC2's verdicts on them.
    Classes,
    /// Its pools' statuses.
    Pools,
    /// Its launch templates, and the names of those that leave.
    Templates,
    /// The region's marks.
    Marks,
}

impl Want {
    /// The prefix of its items' sort keys.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Launches => keys::LAUNCH,
            Self::Commands => keys::COMMAND,
            Self::Claims => keys::NODE_CLAIM,
            Self::Classes => keys::NODE_CLASS,
            Self::Pools => keys::NODE_POOL,
            Self::Templates => keys::TEMPLATE,
            Self::Marks => keys::UNAVAILABLE,
        }
    }
}

/// The input that a function wants.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    /// The function, whose `SEEN#` is read.
    pub function: FunctionName,
    /// The parts of the catalogue that it uses.
    pub parts: &'a [CatalogPart],
    /// The sets of items that it uses.
    pub sets: &'a [Want],
    /// The changes of the snapshot and the catalogue that concern it.
    pub watch: Watch,
}

/// The longest time that a view's sets are kept. It limits the effect of a change that no generation counts.
const KEPT_AT_MOST: SignedDuration = SignedDuration::from_mins(10);

/// A cluster's items in the table.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// The time of the pass.
    pub now: Timestamp,
    /// The end of its sets' validity: the first item expires, or they are too old. A new generation ends it earlier.
    pub holds_until: Timestamp,
    /// Its entry in the registry, which the cluster's stack writes.
    pub registry: Result<Registry, Waiting>,
    /// The generations of this view; `revision` is the condition of decisions about a whole set.
    pub generations: Generations,
    /// The record of the function's last full pass.
    pub seen: Option<SeenRecord>,
    /// A stop of terminations and disruptions.
    pub halt: Option<Halt>,
    /// Its claims.
    pub claims: BTreeMap<ClaimName, Claim>,
    /// The claims whose items have an expiry.
    pub expiring: BTreeSet<ClaimName>,
    /// Its launches.
    pub launches: BTreeMap<LaunchId, Launch>,
    /// Its disruption commands.
    pub commands: BTreeMap<CommandId, Command>,
    /// Its node classes.
    pub classes: BTreeMap<NodeClassName, ClassStatus>,
    /// EC2's verdicts on launches from them.
    pub verdicts: BTreeMap<NodeClassName, ClassVerdicts>,
    /// Its pools' statuses.
    pub pools: BTreeMap<NodePoolName, PoolStatus>,
    /// Its launch templates, by name.
    pub templates: BTreeMap<String, TemplateItem>,
    /// The names of templates that are being deleted in EC2.
    pub leaving: BTreeSet<String>,
    /// The region's marks.
    pub marks: Marks,
    /// The learned memory of nodes; empty unless [`crate::observe::observe`] fills it.
    pub learned: Arc<Learned>,
    /// The wanted parts of the catalogue, as far as they exist.
    pub parts: RefreshedParts,
    /// The parts whose refresh fails, and since when.
    pub failing: BTreeMap<CatalogPart, Timestamp>,
}

impl ClusterView {
    /// Reads the function's input of a cluster.
    ///
    /// # Errors
    /// [`HandlerError::Read`] and [`HandlerError::Item`].
    pub async fn observe<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        wants: Wants<'_>,
        cache: &CatalogCache,
    ) -> Result<Self, HandlerError> {
        Self::observe_since(ports, cluster, wants, cache, ReadAlready::default()).await
    }

    /// The same, without what the function has read already. If neither the cluster's revision nor its steps changed
    /// since an earlier view, it keeps that view's sets and reads only the region's marks.
    ///
    /// # Errors
    /// As [`ClusterView::observe`].
    pub async fn observe_since<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        wants: Wants<'_>,
        cache: &CatalogCache,
        ReadAlready { heads, kept }: ReadAlready,
    ) -> Result<Self, HandlerError> {
        let heads = match heads {
            Some(heads) => heads,
            None => glance(ports, cluster, wants, Consistency::Strong).await?,
        };
        let region = &ports.installation().region;
        let now = ports.now();
        let mut parts = RefreshedParts::new();
        for (part, found) in each_part(ports.table(), region, &heads.catalog, wants.parts, cache).await? {
            match found {
                Ok(found) => drop(parts.insert(part, found)),
                // The pieces of a stale part expire long after its last use.
                Err(CatalogError::Missing { .. }) if is_stale(&heads.catalog, part, now) => {}
                Err(error) => return Err(catalog_error(error)),
            }
        }
        let kept = kept.filter(|kept| kept.holds(&heads.generations, now));
        let sets: BTreeSet<Want> =
            wants.sets.iter().copied().filter(|want| *want == Want::Marks || kept.is_none()).collect();
        let view = kept.unwrap_or_else(|| Self::empty(now));
        let mut view = Self { now, parts, ..view }.headed(region, cluster, heads)?;
        view.add(ports, cluster, &sets).await?;
        Ok(view)
    }

    /// The view of heads and of items of the cluster that the function has read consistently.
    ///
    /// # Errors
    /// [`HandlerError::Item`].
    pub fn of_items<P: Ports>(
        ports: &P,
        cluster: &ClusterName,
        heads: Heads,
        items: &[(Key, Item)],
    ) -> Result<Self, HandlerError> {
        let now = ports.now();
        let mut view = Self::empty(now).headed(&ports.installation().region, cluster, heads)?;
        for (key, item) in items.iter().filter(|(_, item)| !is_expired(item, now)) {
            view.take(key, item)?;
        }
        Ok(view)
    }

    /// With these heads, and no mark.
    fn headed(self, region: &Region, cluster: &ClusterName, heads: Heads) -> Result<Self, HandlerError> {
        let (registry, halt) =
            (heads.item(&keys::registry(region, cluster))?, heads.item(&keys::halt(cluster))?);
        Ok(Self {
            registry: registry.ok_or(Waiting::ClusterNotRegistered),
            generations: heads.generations,
            seen: heads.seen,
            halt,
            marks: Marks::default(),
            failing: failing(&heads.catalog),
            ..self
        })
    }

    /// Reads more sets of the cluster, in the order of [`Want`]. The keys of claims, classes and pools are neighbours,
    /// so one query reads all that are wanted of them.
    ///
    /// # Errors
    /// [`HandlerError::Read`] and [`HandlerError::Item`].
    pub async fn add<P: Ports>(
        &mut self,
        ports: &P,
        cluster: &ClusterName,
        sets: &BTreeSet<Want>,
    ) -> Result<(), HandlerError> {
        let (first, last) = (Want::Claims, Want::Pools);
        for want in sets.range(..first) {
            let range = SkRange::Prefix(want.prefix().to_owned());
            self.read(ports, cluster, range).await?;
        }
        let beside = sets.range(first..=last);
        if let (Some(first), Some(last)) = (beside.clone().next(), beside.last()) {
            let range = SkRange::Between(first.prefix().to_owned(), format!("{}~", last.prefix()));
            self.read(ports, cluster, range).await?;
        }
        if sets.contains(&Want::Templates) {
            let (first, last) = (Want::Templates.prefix().to_owned(), keys::LEAVING_TEMPLATES.to_owned());
            self.read(ports, cluster, SkRange::Between(first, last)).await?;
        }
        if sets.contains(&Want::Marks) {
            let pk = keys::region_pk(&ports.installation().region);
            let range = SkRange::Prefix(Want::Marks.prefix().to_owned());
            let items = read_range(ports.table(), pk, range, self.now).await?;
            self.marks = form::from_known_items::<Mark>(&items).map_err(form_error)?.into_iter().collect();
        }
        Ok(())
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
            verdicts: BTreeMap::new(),
            pools: BTreeMap::new(),
            templates: BTreeMap::new(),
            leaving: BTreeSet::new(),
            marks: Marks::default(),
            learned: Arc::default(),
            parts: RefreshedParts::new(),
            failing: BTreeMap::new(),
        }
    }

    /// Whether its sets are still valid: every change of them counts up `revision` or `steps`.
    fn holds(&self, generations: &Generations, now: Timestamp) -> bool {
        now < self.holds_until
            && self.generations.revision == generations.revision
            && self.generations.steps == generations.steps
    }

    /// Reads a range of the cluster's items. The first expiry of an item ends the sets' validity.
    async fn read<P: Ports>(
        &mut self,
        ports: &P,
        cluster: &ClusterName,
        range: SkRange,
    ) -> Result<(), HandlerError> {
        let items = read_range(ports.table(), keys::cluster_pk(cluster), range, self.now).await?;
        let first = items.iter().filter_map(|(_, item)| expires_at(item)).min();
        let first = first.and_then(|seconds| Timestamp::from_second(seconds).ok());
        self.holds_until = first.map_or(self.holds_until, |first| first.min(self.holds_until));
        for (key, item) in &items {
            self.take(key, item)?;
        }
        Ok(())
    }

    fn take(&mut self, key: &Key, item: &Item) -> Result<(), HandlerError> {
        if key.sk.starts_with(keys::NODE_CLAIM) {
            let claim: Claim = parsed(key, item)?;
            if item.contains_key(EXPIRES_AT) {
                self.expiring.insert(claim.name.clone());
            }
            self.claims.insert(claim.name.clone(), claim);
        } else if key.sk.starts_with(keys::LAUNCH) {
            let launch: Launch = parsed(key, item)?;
            self.launches.insert(launch.id.clone(), launch);
        } else if key.sk.starts_with(keys::COMMAND) {
            let command: Command = parsed(key, item)?;
            self.commands.insert(command.id.clone(), command);
        } else if key.sk.starts_with(keys::NODE_CLASS) {
            let class: ClassStatus = parsed(key, item)?;
            self.verdicts.insert(class.name.clone(), parsed(key, item)?);
            self.classes.insert(class.name.clone(), class);
        } else if key.sk.starts_with(keys::NODE_POOL) {
            let pool: PoolStatus = parsed(key, item)?;
            self.pools.insert(pool.name.clone(), pool);
        } else if key.sk.starts_with(keys::TEMPLATE) {
            let template: TemplateItem = parsed(key, item)?;
            self.templates.insert(template.name.clone(), template);
        } else if key.sk == keys::LEAVING_TEMPLATES {
            self.leaving = parsed::<LeavingTemplates>(key, item)?.since.into_keys().collect();
        }
        Ok(())
    }
}

/// The data that a look has read already.
#[derive(Debug, Default)]
pub struct ReadAlready {
    /// The heads, read consistently in the same wake.
    pub heads: Option<Heads>,
    /// The view of an earlier look.
    pub kept: Option<ClusterView>,
}

fn failing(catalog: &CatalogMeta) -> BTreeMap<CatalogPart, Timestamp> {
    catalog.parts.iter().filter_map(|(part, meta)| Some((*part, meta.failing_since?))).collect()
}

fn is_stale(catalog: &CatalogMeta, part: CatalogPart, now: Timestamp) -> bool {
    let refreshed_at = catalog.parts.get(&part).and_then(|found| found.refreshed_at);
    refreshed_at.is_none_or(|at| now.duration_since(at) > part.stale_after())
}

/// The handler's error for an item's.
#[must_use]
pub fn form_error(error: FormError) -> HandlerError {
    HandlerError::Item { key: error.key.to_string(), source: Box::new(error.field) }
}

/// The handler's error for the catalogue's.
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

/// All unexpired items of a partition's range, read consistently.
async fn read_range<T: Table>(
    table: &T,
    pk: String,
    range: SkRange,
    now: Timestamp,
) -> Result<Vec<(Key, Item)>, HandlerError> {
    let query = Query::new(pk, range, Consistency::Strong);
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

pub(crate) fn parsed<F: ItemForm>(key: &Key, item: &Item) -> Result<F, HandlerError> {
    form::from_item(key, item).map_err(form_error)
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
