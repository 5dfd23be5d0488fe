//! Reads a cluster's classes, their statuses, and EC2's resources for them.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::catalog::CapacityType;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::evidence::{SNAPSHOT_STALE_AFTER, Waiting};
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::image::ImageRecord;
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::snapshot::Snapshot;
use tenon_domain::unavailable::{Mark, MarkState, RequestDigest, UnavailableKey};
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::cluster_arn;
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::snapshot::{self, ChunkCache, ReadError, SnapshotTooLarge};
use tenon_state::heads::{Heads, Watch, glance};
use tenon_state::image_query::may_find;
use tenon_state::view::{ClusterView, ReadAlready, Want, Wants, form_error};
use tenon_table::items::{self, CatalogCache, Generations, SeenRecord, keys};
use tenon_table::{Consistency, Key, Query, SkRange, Table, limits, query_all};

use crate::answers::{AskedClasses, ClassAnswers};
use crate::item::ClassItem;
use crate::plan::{Answers, NodeClassesInput, due};
use crate::verdicts::asks_again;
use crate::{ChangedImages, ClassesWake};

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

/// Reads the input of the plan; `None` if nothing changed.
pub(crate) async fn observe<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    told: &ClassesWake,
    sharpness: Consistency,
    chunks: &mut ChunkCache,
) -> Result<Option<NodeClassesObservation>, HandlerError> {
    let now = ports.now();
    let of_images = match &told.images {
        ChangedImages::Any => true,
        ChangedImages::These(ids) => !ids.is_empty() && concerned(ports, cluster, ids).await?,
    };
    let told = of_images || told.launches || (told.shifts && leaves_shifted_zones(ports, cluster).await?);
    let mut known = ReadAlready::default();
    if !told {
        let heads = glance(ports, cluster, WANTS, sharpness).await?;
        if ends(&heads, now) {
            return Ok(None);
        }
        known.heads = heads.strong();
    }
    let mut view = ClusterView::observe_since(ports, cluster, WANTS, &CatalogCache::new(), known).await?;
    let snapshot = match snapshot::read_classes(ports.table(), cluster, Consistency::Strong, chunks).await {
        Ok(Some(snapshot)) => snapshot,
        // Without a report of the agent, nothing is known about classes: statuses stay as they are.
        Ok(None) => return Ok(None),
        Err(ReadError::TooLarge(SnapshotTooLarge { size, most, unit })) => {
            let waiting = Waiting::SnapshotTooLarge { size, most, unit };
            let (generations, before) = (view.generations, view.seen);
            return Ok(Some(NodeClassesObservation { found: Err(waiting), generations, before }));
        }
        Err(error) => return Err(read_error(error)),
    };
    let deadline = view.seen.as_ref().and_then(|seen| seen.deadline);
    let look_at = deadline.filter(|_| !told).unwrap_or(now);
    let everything = look_at <= now;
    // The stack's version is that of its last deployment; the agent reports the API server's.
    let mut registry = view.registry.clone();
    if let (Ok(registry), Some(version)) = (&mut registry, &snapshot.kubernetes_version) {
        registry.kubernetes_version.clone_from(version);
    }
    let is_due = |class: &&Ec2NodeClass| {
        let status = view.classes.get(&class.name);
        let asks = status.zip(view.verdicts.get(&class.name));
        let asks = asks.is_some_and(|(status, verdicts)| asks_again(cluster, class, status, verdicts));
        everything || asks || due(class, status, now)
    };
    let classes: Vec<&Ec2NodeClass> = snapshot.node_classes.iter().filter(is_due).collect();
    let installation = ports.installation();
    let looked = match &registry {
        Ok(registry) if !classes.is_empty() => {
            let asked = AskedClasses { classes: &classes, registry, account: &installation.account, now };
            let arn = cluster_arn(&installation.region, &installation.account, cluster);
            let answers = ClassAnswers::ask(ports.ec2(), asked, &arn).await;
            classes.iter().map(|class| ((*class).clone(), answers.about(class, asked))).collect()
        }
        Ok(_) | Err(_) => classes.iter().map(|class| ((*class).clone(), Answers::none())).collect(),
    };
    let RefusedLaunches { refused, spot_refused } = refused_launches(ports, cluster, &view.classes).await?;
    let gone = gone(ports, cluster, &snapshot, &mut view).await?;
    let generations = Generations { snapshot: snapshot.generation, ..Generations::default() };
    let input = NodeClassesInput {
        now,
        cluster: cluster.clone(),
        account: ports.installation().account.clone(),
        registry,
        looked,
        statuses: view.classes,
        refused,
        spot_refused,
        verdicts: view.verdicts,
        gone,
        unreadable: snapshot.unreadable.into_iter().filter(|object| object.kind == "EC2NodeClass").collect(),
        snapshot: snapshot.generation,
        look_at,
    };
    Ok(Some(NodeClassesObservation { found: Ok(Box::new(input)), generations, before: view.seen }))
}

/// The marks of refused launches.
struct RefusedLaunches {
    /// By class as last resolved.
    refused: BTreeMap<NodeClassName, Mark>,
    /// Of spot as such.
    spot_refused: Option<Mark>,
}

/// The marks of refused launches; none without a class.
async fn refused_launches<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    statuses: &BTreeMap<NodeClassName, ClassStatus>,
) -> Result<RefusedLaunches, HandlerError> {
    let key = |status: &ClassStatus| {
        let request = UnavailableKey::Request(RequestDigest::of_class(cluster, status));
        (keys::unavailable(&ports.installation().region, &request), status.name.clone())
    };
    let names: BTreeMap<Key, NodeClassName> = statuses.values().map(key).collect();
    let spot = UnavailableKey::CapacityType(CapacityType::Spot);
    let spot = keys::unavailable(&ports.installation().region, &spot);
    let spot = (!names.is_empty()).then_some(&spot);
    let wanted: Vec<Key> = names.keys().chain(spot).cloned().collect();
    let (mut refused, mut spot_refused) = (BTreeMap::new(), None);
    for some in wanted.chunks(limits::BATCH_KEYS) {
        for (key, item) in ports.table().batch_get(some, Consistency::Strong).await? {
            let mark: Mark = items::from_item(&key, &item).map_err(form_error)?;
            let lasts = mark.state(ports.now()) != MarkState::Forgotten;
            match names.get(&key) {
                _ if !lasts => {}
                Some(name) => drop(refused.insert(name.clone(), mark)),
                None => spot_refused = Some(mark),
            }
        }
    }
    Ok(RefusedLaunches { refused, spot_refused })
}

/// Whether a class of the cluster selects one of these images, or may.
async fn concerned<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    ids: &BTreeSet<ImageId>,
) -> Result<bool, HandlerError> {
    let installation = ports.installation();
    let range = SkRange::Prefix(keys::NODE_CLASS.to_owned());
    let query = Query::new(keys::cluster_pk(cluster), range, Consistency::Strong);
    let classes = query_all(ports.table(), &query).await?;
    let classes: Vec<ClassItem> = items::from_items(&classes).map_err(form_error)?;
    let wanted: Vec<Key> = ids.iter().map(|id| keys::image(&installation.region, id)).collect();
    for some in wanted.chunks(limits::BATCH_KEYS) {
        let found = ports.table().batch_get(some, Consistency::Strong).await?;
        for key in some {
            // An image without a record may match any class.
            let Some(item) = found.get(key) else { return Ok(true) };
            let record: ImageRecord = items::from_item(key, item).map_err(form_error)?;
            let concerns = |class: &ClassItem| {
                class.status.images.iter().any(|image| image.id == record.id)
                    || class
                        .images
                        .filters
                        .iter()
                        .any(|filter| may_find(filter, &record, &installation.account))
            };
            if classes.iter().any(concerns) {
                return Ok(true);
            }
        }
    }
    Ok(false)
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
fn ends(heads: &Heads, now: jiff::Timestamp) -> bool {
    let generations = Generations { snapshot: heads.generations.snapshot, ..Generations::default() };
    heads.seen.as_ref().is_some_and(|seen| seen.unchanged(now, &generations))
}

/// Deleted classes: a fresh snapshot has them neither as readable nor as unreadable, and no claim uses them.
async fn gone<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    snapshot: &Snapshot,
    view: &mut ClusterView,
) -> Result<BTreeSet<NodeClassName>, HandlerError> {
    if snapshot.age(ports.now()) > SNAPSHOT_STALE_AFTER {
        return Ok(BTreeSet::new());
    }
    let mut there: BTreeSet<&str> = snapshot.node_classes.iter().map(|class| class.name.as_str()).collect();
    there.extend(snapshot.unreadable.iter().map(|object| object.name.as_str()));
    let mut gone: BTreeSet<NodeClassName> =
        view.classes.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
    if !gone.is_empty() {
        view.add(ports, cluster, &BTreeSet::from([Want::Claims])).await?;
        for claim in view.claims.values() {
            gone.remove(&claim.class);
        }
    }
    Ok(gone)
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
