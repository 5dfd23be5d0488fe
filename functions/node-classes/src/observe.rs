//! Reads a cluster's classes, their statuses, and EC2's resources for them.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::PlacementGroupSelector;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::evidence::{SNAPSHOT_STALE_AFTER, Waiting};
use tenon_domain::id::{ClusterName, ImageId, NodeClassName};
use tenon_domain::image::ImageRecord;
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::reservation::ReservedCapacity;
use tenon_domain::snapshot::Snapshot;
use tenon_domain::unavailable::{Mark, MarkState, RequestDigest, UnavailableKey};
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::ShiftedZone;
use tenon_ec2::port::{
    CapacityReservation, CapacityReservationFilter, Image, ImageFilter, PlacementGroup, ResourceFilter,
    SecurityGroup, Subnet, VolumeSnapshot, cluster_arn,
};
use tenon_ec2::{Ec2, Ec2Error, ZonalShift};
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::snapshot::{self, ChunkCache, ReadError, SnapshotTooLarge};
use tenon_state::heads::{Heads, Watch, glance};
use tenon_state::image_query::{describe, may_find, queries};
use tenon_state::view::{ClusterView, ReadAlready, Want, Wants, form_error};
use tenon_table::items::{self, CatalogCache, Generations, SeenRecord, keys};
use tenon_table::{Consistency, Key, Query, SkRange, Table, limits, query_all};

use crate::item::ClassItem;
use crate::plan::{AnsweredReservations, Answers, NodeClassesInput, due};
use crate::spec;
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
    let mut cache = ClassAnswers::default();
    let mut looked = Vec::new();
    for class in &snapshot.node_classes {
        if everything || due(class, view.classes.get(&class.name), now) {
            let answers = match &view.registry {
                Ok(registry) => {
                    let right = ReservedCapacity::behind(registry.gates);
                    Answers {
                        placement_groups: cache.ask_placement_groups(ports.ec2(), class).await,
                        reservations: cache.ask_reservations(ports.ec2(), class, right).await,
                        shifts: cache.ask_shifts(ports, registry).await,
                        snapshots: cache.ask_snapshots(ports.ec2(), class, registry).await,
                        ..cache.ask(ports.ec2(), class).await
                    }
                }
                Err(_) => Answers::none(),
            };
            looked.push((class.clone(), answers));
        }
    }
    let refused = refused_launches(ports, cluster, &view.classes).await?;
    let gone = gone(ports, cluster, &snapshot, &mut view).await?;
    let generations = Generations { snapshot: snapshot.generation, ..Generations::default() };
    let input = NodeClassesInput {
        now,
        cluster: cluster.clone(),
        account: ports.installation().account.clone(),
        registry: view.registry,
        looked,
        statuses: view.classes,
        refused,
        gone,
        unreadable: snapshot.unreadable.into_iter().filter(|object| object.kind == "EC2NodeClass").collect(),
        snapshot: snapshot.generation,
        look_at,
    };
    Ok(Some(NodeClassesObservation { found: Ok(Box::new(input)), generations, before: view.seen }))
}

/// The marks of refused launches, by class as last resolved.
async fn refused_launches<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    statuses: &BTreeMap<NodeClassName, ClassStatus>,
) -> Result<BTreeMap<NodeClassName, Mark>, HandlerError> {
    let key = |status: &ClassStatus| {
        let request = UnavailableKey::Request(RequestDigest::of_class(cluster, status));
        (keys::unavailable(&ports.installation().region, &request), status.name.clone())
    };
    let names: BTreeMap<Key, NodeClassName> = statuses.values().map(key).collect();
    let wanted: Vec<Key> = names.keys().cloned().collect();
    let mut refused = BTreeMap::new();
    for some in wanted.chunks(limits::BATCH_KEYS) {
        for (key, item) in ports.table().batch_get(some, Consistency::Strong).await? {
            let mark: Mark = items::from_item(&key, &item).map_err(form_error)?;
            let lasts = mark.state(ports.now()) != MarkState::Forgotten;
            refused.extend(names.get(&key).filter(|_| lasts).map(|name| (name.clone(), mark)));
        }
    }
    Ok(refused)
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

/// The answers of one look: EC2 gets each query once, and classes with equal queries share the answer.
#[derive(Default)]
struct ClassAnswers {
    subnets: BTreeMap<ResourceFilter, Result<Vec<Subnet>, Ec2Error>>,
    groups: BTreeMap<ResourceFilter, Result<Vec<SecurityGroup>, Ec2Error>>,
    images: BTreeMap<ImageFilter, Result<Vec<Image>, Ec2Error>>,
    reservations: BTreeMap<CapacityReservationFilter, Result<Vec<CapacityReservation>, Ec2Error>>,
    snapshots: BTreeMap<ResourceFilter, Result<Vec<VolumeSnapshot>, Ec2Error>>,
    placement_groups: BTreeMap<PlacementGroupSelector, Result<Vec<PlacementGroup>, Ec2Error>>,
    shifts: Option<Result<BTreeSet<ShiftedZone>, Ec2Error>>,
}

impl ClassAnswers {
    async fn ask<E: Ec2>(&mut self, ec2: &E, class: &Ec2NodeClass) -> Answers {
        let (mut subnets, mut groups, mut images) = (Vec::new(), Vec::new(), Vec::new());
        for filter in spec::subnet_queries(class) {
            if !self.subnets.contains_key(&filter) {
                let answer = describe_subnets(ec2, &filter).await;
                self.subnets.insert(filter.clone(), answer);
            }
            subnets.extend(self.subnets.get(&filter).cloned());
        }
        for filter in spec::group_queries(class) {
            if !self.groups.contains_key(&filter) {
                let answer = describe_groups(ec2, &filter).await;
                self.groups.insert(filter.clone(), answer);
            }
            groups.extend(self.groups.get(&filter).cloned());
        }
        for filter in queries(&class.ami_selector).filters {
            if !self.images.contains_key(&filter) {
                let answer = describe(ec2, &filter).await;
                self.images.insert(filter.clone(), answer);
            }
            images.extend(self.images.get(&filter).cloned());
        }
        Answers {
            subnets: joined(subnets, |subnet| subnet.id.clone()),
            security_groups: joined(groups, |group| group.id.clone()),
            images: joined(images, |image| image.id.clone()),
            snapshots: Ok(Vec::new()),
            reservations: None,
            placement_groups: None,
            shifts: None,
        }
    }

    /// The placement groups of the class's selector; no query without one.
    async fn ask_placement_groups<E: Ec2>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
    ) -> Option<Result<Vec<PlacementGroup>, Ec2Error>> {
        let selector = class.placement_group.as_ref()?;
        if !self.placement_groups.contains_key(selector) {
            let answer = match ec2.describe_placement_groups(selector).await {
                Err(Ec2Error::NotFound { .. }) => Ok(Vec::new()),
                answer => answer,
            };
            self.placement_groups.insert(selector.clone(), answer);
        }
        self.placement_groups.get(selector).cloned()
    }

    /// The snapshots that the class names; no query if the cluster may use none but those of its images.
    async fn ask_snapshots<E: Ec2>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
        registry: &Registry,
    ) -> Result<Vec<VolumeSnapshot>, Ec2Error> {
        let Some(filter) = spec::snapshot_query(class, registry) else { return Ok(Vec::new()) };
        if let Some(answer) = self.snapshots.get(&filter) {
            return answer.clone();
        }
        let answer = describe_snapshots(ec2, &filter).await;
        self.snapshots.insert(filter, answer.clone());
        answer
    }

    /// The zonal shifts; no query if the cluster's settings ignore them.
    async fn ask_shifts<P: Ports>(
        &mut self,
        ports: &P,
        registry: &Registry,
    ) -> Option<Result<BTreeSet<ShiftedZone>, Ec2Error>> {
        match registry.settings.zonal_shift {
            FeatureGate::Disabled => None,
            FeatureGate::Enabled => {
                if self.shifts.is_none() {
                    let installation = ports.installation();
                    let arn = cluster_arn(&installation.region, &installation.account, &registry.cluster);
                    let answer = ports.ec2().shifted_zones(&arn).await;
                    self.shifts = Some(answer.map(BTreeSet::from_iter));
                }
                self.shifts.clone()
            }
        }
    }

    /// The class's capacity reservations; no query without the feature gate.
    async fn ask_reservations<E: Ec2>(
        &mut self,
        ec2: &E,
        class: &Ec2NodeClass,
        right: Option<ReservedCapacity>,
    ) -> Option<AnsweredReservations> {
        let right = right?;
        let mut found = Vec::new();
        for filter in spec::reservation_queries(class) {
            if !self.reservations.contains_key(&filter) {
                let answer = describe_reservations(ec2, &filter).await;
                self.reservations.insert(filter.clone(), answer);
            }
            found.extend(self.reservations.get(&filter).cloned());
        }
        let answer = joined(found, |reservation| reservation.id.clone());
        Some(AnsweredReservations { right, answer })
    }
}

/// The results of several queries, each object once. One failed query fails all.
fn joined<T, K: Ord>(
    answers: Vec<Result<Vec<T>, Ec2Error>>,
    id: impl Fn(&T) -> K,
) -> Result<Vec<T>, Ec2Error> {
    let mut all = BTreeMap::new();
    for answer in answers {
        all.extend(answer?.into_iter().map(|found| (id(&found), found)));
    }
    Ok(all.into_values().collect())
}

async fn describe_subnets<E: Ec2>(ec2: &E, filter: &ResourceFilter) -> Result<Vec<Subnet>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        match ec2.describe_subnets(&filter).await {
            Err(error) => match without_missing(&filter, error)? {
                Some(rest) => filter = rest,
                None => return Ok(Vec::new()),
            },
            answer => return answer,
        }
    }
}

async fn describe_groups<E: Ec2>(ec2: &E, filter: &ResourceFilter) -> Result<Vec<SecurityGroup>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        match ec2.describe_security_groups(&filter).await {
            Err(error) => match without_missing(&filter, error)? {
                Some(rest) => filter = rest,
                None => return Ok(Vec::new()),
            },
            answer => return answer,
        }
    }
}

async fn describe_snapshots<E: Ec2>(
    ec2: &E,
    filter: &ResourceFilter,
) -> Result<Vec<VolumeSnapshot>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        match ec2.describe_snapshots(&filter).await {
            Err(error) => match without_missing(&filter, error)? {
                Some(rest) => filter = rest,
                None => return Ok(Vec::new()),
            },
            answer => return answer,
        }
    }
}

async fn describe_reservations<E: Ec2>(
    ec2: &E,
    filter: &CapacityReservationFilter,
) -> Result<Vec<CapacityReservation>, Ec2Error> {
    let mut filter = filter.clone();
    loop {
        let error = match ec2.describe_capacity_reservations(&filter).await {
            Err(error) => error,
            answer => return answer,
        };
        let ids = ResourceFilter { ids: filter.ids.clone(), ..ResourceFilter::default() };
        match without_missing(&ids, error)? {
            Some(rest) => filter.ids = rest.ids,
            None => return Ok(Vec::new()),
        }
    }
}

/// The filter without unknown ids, so that one wrong id doesn't hide the others; `None` if no id is left. Each call
/// removes at least one id, so retrying ends.
fn without_missing(filter: &ResourceFilter, error: Ec2Error) -> Result<Option<ResourceFilter>, Ec2Error> {
    if let Ec2Error::NotFound { ids: missing, .. } = &error {
        let ids: Vec<String> = filter.ids.iter().filter(|id| !missing.contains(id)).cloned().collect();
        if ids.len() < filter.ids.len() {
            return Ok((!ids.is_empty()).then(|| ResourceFilter { ids, ..filter.clone() }));
        }
    }
    Err(error)
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
