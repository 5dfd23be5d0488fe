//! Reads a cluster's classes, their statuses, and EC2's resources for them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::boot::BootRecord;
use tenon_domain::catalog::CapacityType;
use tenon_domain::class_status::{ClassStatus, Seen};
use tenon_domain::evidence::{Waiting, require_heard};
use tenon_domain::id::{ClaimName, ClusterName, ImageId, NodeClassName, Region};
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::snapshot::Snapshot;
use tenon_domain::unavailable::{Mark, MarkState, RequestDigest, UnavailableKey};
use tenon_domain::wake::{FunctionName, WakeCause};
use tenon_ec2::port::cluster_arn;
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::snapshot::{self, ChunkCache, ReadError, SnapshotTooLarge};
use tenon_state::heads::{Heads, Watch, glance, sharpness};
use tenon_state::image_query::SweptImages;
use tenon_state::pass::wake_when_due;
use tenon_state::view::{ClusterView, ReadAlready, Want, Wants, form_error};
use tenon_table::items::{self, CatalogCache, Generations, SeenRecord, keys};
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, limits, query_all};

use crate::answers::{AskedClass, AskedClasses, AskedParts, ClassAnswers};
use crate::choose::KnownImages;
use crate::failed_image::{self, FailedImages};
use crate::image_snapshots::{self, UnfinishedSnapshots};
use crate::news::{ImageNews, RegionImages};
use crate::plan::{Answers, LookScope, NodeClassesInput, due};
use crate::resolve::JudgedClass;
use crate::verdicts::asks_again;
use crate::{ChangedImages, ClassesWake, choose};

/// The most clusters of a wake; others wait for their own sweep.
const CLUSTERS: usize = 200;

/// The input of a look.
const WANTS: Wants<'static> = Wants {
    function: FunctionName::NodeClasses,
    parts: &[],
    sets: &[Want::Classes],
    watch: Watch::Everything,
};

/// The clusters of the registry.
pub(crate) async fn clusters<P: Ports>(ports: &P) -> Result<Vec<ClusterName>, HandlerError> {
    let range = SkRange::Prefix(keys::CLUSTER.to_owned());
    let query = Query::new(keys::region_pk(&ports.installation().region), range, Consistency::Eventual);
    let registered = query_all(ports.table(), &query).await?;
    // Clusters' stacks write these keys, so an invalid name is skipped.
    let names =
        registered.iter().filter_map(|(key, _)| ClusterName::parse(keys::name_of(key, keys::CLUSTER)?).ok());
    Ok(names.take(CLUSTERS).collect())
}

/// The observation of a look.
pub(crate) struct NodeClassesObservation {
    /// The input of the plan, or the reason why the reported classes can't be read; the statuses stay then.
    pub(crate) found: Result<Box<NodeClassesInput>, Waiting>,
    /// The generations of the look.
    pub(crate) generations: Generations,
    /// The record of the previous look.
    pub(crate) before: Option<SeenRecord>,
}

/// Why and how a look at a cluster's classes begins.
#[derive(Clone, Copy)]
pub(crate) struct ClassesLook<'a> {
    /// What they tell of images, shifts and launches.
    pub(crate) told: &'a ClassesWake,
    /// The records of the region's images.
    pub(crate) images: &'a RegionImages,
    /// The wake's causes.
    pub(crate) causes: &'a [WakeCause],
}

/// Reads the input of the plan; `None` if nothing changed.
pub(crate) async fn observe<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    look: ClassesLook<'_>,
    chunks: &mut ChunkCache,
) -> Result<Option<NodeClassesObservation>, HandlerError> {
    let told = look.told;
    let news = match &told.images {
        ChangedImages::These(ids) if !ids.is_empty() => {
            ImageNews::read(ports, cluster, WANTS, ids, look.images).await?
        }
        ChangedImages::These(_) | ChangedImages::Any => None,
    };
    if !told.others {
        return match news {
            Some(news) => concerned(ports, cluster, told, news, chunks).await,
            None => Ok(None),
        };
    }
    let any_image = news.is_some() || told.images == ChangedImages::Any;
    let everything =
        any_image || told.launches || (told.shifts && leaves_shifted_zones(ports, cluster).await?);
    let mut known = ReadAlready::default();
    if !everything {
        let heads = glance(ports, cluster, WANTS, sharpness(look.causes)).await?;
        if ends(&heads, ports.now()) {
            wake_when_due(ports, cluster, &heads, look.causes).await;
            return Ok(None);
        }
        known.heads = heads.strong();
    }
    let view = ClusterView::observe_since(ports, cluster, WANTS, &CatalogCache::new(), known).await?;
    let snapshot = snapshot::read_classes(ports.table(), cluster, Consistency::Strong, chunks).await;
    let snapshot = match readable(snapshot)? {
        Some(Ok(snapshot)) => snapshot,
        Some(Err(waiting)) => return Ok(Some(waits(view, waiting))),
        // Without a report of the agent, nothing is known about classes: statuses stay as they are.
        None => return Ok(None),
    };
    let refusals = refusal_keys(&ports.installation().region, cluster, view.classes.values());
    let wanted: Vec<Key> = refusals.keys().cloned().collect();
    let mut marks = BTreeMap::new();
    for some in wanted.chunks(limits::BATCH_KEYS) {
        marks.extend(ports.table().batch_get(some, Consistency::Strong).await?);
    }
    let due_at = view.seen.as_ref().and_then(|seen| seen.deadline);
    let everything = everything || due_at.is_none_or(|at| at <= ports.now());
    let scope = if everything { LookScope::Everything } else { LookScope::Due };
    let facts = ClusterFacts { scope, snapshot, marks, concerned: BTreeSet::new(), swept: None, told };
    judged(ports, cluster, view, facts).await.map(Some)
}

/// Looks at the classes that a change of images concerns. A sweep looks at the others when they are due.
async fn concerned<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    told: &ClassesWake,
    news: ImageNews,
    chunks: &mut ChunkCache,
) -> Result<Option<NodeClassesObservation>, HandlerError> {
    let ImageNews { heads, classes, concerned, swept } = news;
    let found = heads.items.clone();
    let view = ClusterView::of_items(ports, cluster, heads, &classes)?;
    let snapshot = snapshot::read_classes_of(ports.table(), cluster, &found, chunks).await;
    let snapshot = match readable(snapshot)? {
        Some(Ok(snapshot)) => snapshot,
        Some(Err(waiting)) => return Ok(Some(waits(view, waiting))),
        None => return Ok(None),
    };
    let scope = if view.seen.is_some() { LookScope::Images } else { LookScope::Everything };
    let facts = ClusterFacts { scope, snapshot, marks: found, concerned, swept, told };
    judged(ports, cluster, view, facts).await.map(Some)
}

/// The snapshot, or why the function waits for another; `None` if the agent never reported.
fn readable(
    read: Result<Option<Snapshot>, ReadError>,
) -> Result<Option<Result<Snapshot, Waiting>>, HandlerError> {
    match read {
        Ok(snapshot) => Ok(snapshot.map(Ok)),
        Err(ReadError::TooLarge(SnapshotTooLarge { size, most, unit })) => {
            Ok(Some(Err(Waiting::SnapshotTooLarge { size, most, unit })))
        }
        Err(error) => Err(read_error(error)),
    }
}

fn waits(view: ClusterView, waiting: Waiting) -> NodeClassesObservation {
    NodeClassesObservation { found: Err(waiting), generations: view.generations, before: view.seen }
}

/// What a look has read besides the view.
struct ClusterFacts<'a> {
    scope: LookScope,
    snapshot: Snapshot,
    /// Items, the marks of refused launches among them.
    marks: BTreeMap<Key, Item>,
    /// The classes that a change of images concerns.
    concerned: BTreeSet<NodeClassName>,
    /// The records that may answer for EC2.
    swept: Option<Arc<SweptImages>>,
    told: &'a ClassesWake,
}

/// Asks AWS, and puts the input of the plan together.
async fn judged<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    mut view: ClusterView,
    facts: ClusterFacts<'_>,
) -> Result<NodeClassesObservation, HandlerError> {
    let now = ports.now();
    let ClusterFacts { scope, snapshot, marks, concerned, swept, told } = facts;
    // The stack's version is that of its last deployment; the agent reports the API server's.
    let mut registry = view.registry.clone();
    if let (Ok(registry), Some(version)) = (&mut registry, &snapshot.kubernetes_version) {
        registry.kubernetes_version.clone_from(version);
    }
    let boots = match &swept {
        Some(swept) => swept.boots.iter().filter(|boot| boot.cluster == *cluster).cloned().collect(),
        None => boots(ports, cluster).await?,
    };
    let reserved = registry.as_ref().is_ok_and(|found| ReservedCapacity::behind(&found.gates).is_some());
    let asked = |class: &Ec2NodeClass| {
        let status = view.classes.get(&class.name);
        let asks = status.zip(view.verdicts.get(&class.name));
        let asks = asks.is_some_and(|(status, verdicts)| asks_again(cluster, class, status, verdicts));
        let failed = status.is_some_and(|status| failed_image::is_due(class, status, &boots, now));
        if scope == LookScope::Everything || asks || failed || due(class, status, now) {
            return Some(AskedParts::Everything);
        }
        // Launches are subtracted from the counts of reservations since the query, so all have one time.
        let counted = reserved && !class.reservation_selector.is_empty();
        let parts = if counted { AskedParts::Everything } else { AskedParts::Images };
        concerned.contains(&class.name).then_some(parts)
    };
    let classes: Vec<AskedClass<'_>> = snapshot
        .node_classes
        .iter()
        .filter_map(|class| Some(AskedClass { class, parts: asked(class)? }))
        .collect();
    let installation = ports.installation();
    let looked: Vec<(Ec2NodeClass, Answers)> = match &registry {
        Ok(registry) if !classes.is_empty() => {
            let (swept, account) = (swept.as_deref(), installation.account.as_str());
            let asked = AskedClasses { classes: &classes, swept, registry, account, now };
            answered(ports, cluster, asked, &view.classes, LookNews { told, boots: &boots }).await
        }
        Ok(_) | Err(_) => classes.iter().map(|class| (class.class.clone(), Answers::none())).collect(),
    };
    let unfinished =
        image_snapshots::unfinished(ports.ec2(), &installation.account, &looked, &view.classes).await;
    let refusals = refusal_keys(&installation.region, cluster, view.classes.values());
    let RefusedLaunches { refused, spot_refused } = refused_launches(now, &refusals, &marks)?;
    let EndingClasses { gone, used } = ending(ports, cluster, &snapshot, &mut view).await?;
    let generations = Generations { snapshot: snapshot.generation, ..Generations::default() };
    let look_at = view.seen.as_ref().and_then(|seen| seen.deadline).unwrap_or(now);
    let input = NodeClassesInput {
        now,
        cluster: cluster.clone(),
        account: installation.account.clone(),
        registry,
        looked,
        unfinished,
        statuses: view.classes,
        refused,
        spot_refused,
        boots,
        verdicts: view.verdicts,
        gone,
        used,
        unreadable: snapshot.unreadable.into_iter().filter(|object| object.kind == "EC2NodeClass").collect(),
        snapshot: snapshot.generation,
        scope,
        look_at,
    };
    Ok(NodeClassesObservation { found: Ok(Box::new(input)), generations, before: view.seen })
}

/// What a look was told of images.
#[derive(Clone, Copy)]
struct LookNews<'a> {
    told: &'a ClassesWake,
    /// What instances showed.
    boots: &'a [BootRecord],
}

/// AWS's answers about these classes.
async fn answered<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    asked: AskedClasses<'_>,
    statuses: &BTreeMap<NodeClassName, ClassStatus>,
    news: LookNews<'_>,
) -> Vec<(Ec2NodeClass, Answers)> {
    let installation = ports.installation();
    let arn = cluster_arn(&installation.region, &installation.account, cluster);
    let mut answers = ClassAnswers::ask(ports.ec2(), asked, &arn).await;
    for AskedClass { class, .. } in asked.classes {
        let status = statuses.get(&class.name);
        if status.is_some_and(|status| returns(&answers, class, asked, status, news)) {
            answers.ask_for_images(ports.ec2(), class, asked).await;
        }
    }
    asked.classes.iter().map(|of| (of.class.clone(), answers.about(*of, asked))).collect()
}

/// Whether a class would take an image by a record that is older than the class's status, though no event named the
/// image and the class doesn't have it. EC2 may have said since that the image is no longer the class's.
fn returns(
    answers: &ClassAnswers,
    class: &Ec2NodeClass,
    asked: AskedClasses<'_>,
    status: &ClassStatus,
    news: LookNews<'_>,
) -> bool {
    let older = asked.swept.is_some_and(|swept| swept.sweep.at <= status.resolved_at);
    if !older || !answers.has_records_of(class, asked) {
        return false;
    }
    let AskedClasses { registry, account, now, .. } = asked;
    let selected = answers.images_of(class, asked);
    let Ok(found) = &selected.answer else { return false };
    let judged = JudgedClass { class, registry, account, now };
    let known = KnownImages {
        previous: &status.images,
        told: "",
        refused: &status.refused_images,
        failed: &FailedImages::of(news.boots, class, now),
        unfinished: &UnfinishedSnapshots::new(),
    };
    let Seen::Holds(images) = choose::images(judged, &selected, found, known).seen else {
        return false;
    };
    let named = |id: &ImageId| match &news.told.images {
        ChangedImages::These(named) => named.contains(id),
        ChangedImages::Any => false,
    };
    images.iter().any(|image| !named(&image.id) && status.images.iter().all(|held| held.id != image.id))
}

/// What images of the cluster's classes showed when their instances booted. A record of another release that can't be
/// read says nothing.
async fn boots<P: Ports>(ports: &P, cluster: &ClusterName) -> Result<Vec<BootRecord>, HandlerError> {
    let pk = keys::region_pk(&ports.installation().region);
    let query = Query::new(pk, SkRange::Prefix(keys::boots(cluster)), Consistency::Strong);
    let records = query_all(ports.table(), &query).await?;
    Ok(records.iter().filter_map(|(key, item)| items::from_item(key, item).ok()).collect())
}

/// The marks of refused launches.
struct RefusedLaunches {
    /// By class as last resolved.
    refused: BTreeMap<NodeClassName, Mark>,
    /// Of spot as such.
    spot_refused: Option<Mark>,
}

/// The keys of the marks of refused launches, by class, and of spot as such; none without a class.
pub(crate) fn refusal_keys<'a>(
    region: &Region,
    cluster: &ClusterName,
    statuses: impl Iterator<Item = &'a ClassStatus>,
) -> BTreeMap<Key, Option<NodeClassName>> {
    let key = |status: &ClassStatus| {
        let request = UnavailableKey::Request(RequestDigest::of_class(cluster, status));
        (keys::unavailable(region, &request), Some(status.name.clone()))
    };
    let mut wanted: BTreeMap<Key, Option<NodeClassName>> = statuses.map(key).collect();
    if !wanted.is_empty() {
        let spot = UnavailableKey::CapacityType(CapacityType::Spot);
        wanted.insert(keys::unavailable(region, &spot), None);
    }
    wanted
}

/// The marks among these items that aren't forgotten.
fn refused_launches(
    now: Timestamp,
    refusals: &BTreeMap<Key, Option<NodeClassName>>,
    found: &BTreeMap<Key, Item>,
) -> Result<RefusedLaunches, HandlerError> {
    let (mut refused, mut spot_refused) = (BTreeMap::new(), None);
    for (key, class) in refusals {
        let Some(item) = found.get(key) else { continue };
        let mark: Mark = items::from_item(key, item).map_err(form_error)?;
        if mark.state(now) == MarkState::Forgotten {
            continue;
        }
        match class {
            Some(name) => drop(refused.insert(name.clone(), mark)),
            None => spot_refused = Some(mark),
        }
    }
    Ok(RefusedLaunches { refused, spot_refused })
}

/// Whether the cluster avoids zones that a zonal shift moved it away from.
async fn leaves_shifted_zones<P: Ports>(ports: &P, cluster: &ClusterName) -> Result<bool, HandlerError> {
    let key = keys::registry(&ports.installation().region, cluster);
    let found = ports.table().batch_get(std::slice::from_ref(&key), Consistency::Eventual).await?;
    let Some(item) = found.get(&key) else { return Ok(false) };
    let registry: Registry = items::from_item(&key, item).map_err(form_error)?;
    Ok(registry.settings.zonal_shift == FeatureGate::Enabled)
}

/// Whether a sweep ends here: only a new snapshot concerns classes, steps of claims don't.
fn ends(heads: &Heads, now: Timestamp) -> bool {
    let generations = Generations { snapshot: heads.generations.snapshot, ..Generations::default() };
    heads.seen.as_ref().is_some_and(|seen| seen.unchanged(now, &generations))
}

/// Deleted classes.
struct EndingClasses {
    /// A fresh snapshot has them neither as readable nor as unreadable, and no claim uses them.
    gone: BTreeSet<NodeClassName>,
    /// The snapshot has them, with their claims that haven't ended.
    used: BTreeMap<NodeClassName, BTreeSet<ClaimName>>,
}

async fn ending<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    snapshot: &Snapshot,
    view: &mut ClusterView,
) -> Result<EndingClasses, HandlerError> {
    let deleted = snapshot.node_classes.iter().filter(|class| class.meta.deleted_at.is_some());
    let mut used: BTreeMap<NodeClassName, BTreeSet<ClaimName>> =
        deleted.map(|class| (class.name.clone(), BTreeSet::new())).collect();
    let mut gone = lacking(snapshot, view, ports.now());
    if !gone.is_empty() || !used.is_empty() {
        view.add(ports, cluster, &BTreeSet::from([Want::Claims])).await?;
        for claim in view.claims.values() {
            gone.remove(&claim.class);
            if let Some(users) = used.get_mut(&claim.class).filter(|_| !claim.phase().is_final()) {
                users.insert(claim.name.clone());
            }
        }
    }
    Ok(EndingClasses { gone, used })
}

/// Classes that a fresh snapshot lacks.
fn lacking(snapshot: &Snapshot, view: &ClusterView, now: Timestamp) -> BTreeSet<NodeClassName> {
    if require_heard(snapshot.seen_at, now).is_err() {
        return BTreeSet::new();
    }
    let mut there: BTreeSet<&str> = snapshot.node_classes.iter().map(|class| class.name.as_str()).collect();
    there.extend(snapshot.unreadable.iter().map(|object| object.name.as_str()));
    view.classes.keys().filter(|name| !there.contains(name.as_str())).cloned().collect()
}

fn read_error(error: ReadError) -> HandlerError {
    match error {
        ReadError::Table(error) => HandlerError::Read(error),
        ReadError::Torn { .. } => HandlerError::Waiting(error.to_string()),
        ReadError::Manifest(_) | ReadError::Chunk { .. } | ReadError::TooLarge(_) => {
            HandlerError::Item { key: "snapshot".to_owned(), source: Box::new(error) }
        }
    }
}
