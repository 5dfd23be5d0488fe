//! The reads before planning: a check for changes, the cluster's state, and EC2's instances.
//!
//! Decides the order of the reads. Generations come first and then, consistently, the data, so that a write in between
//! makes the next sweep look again. EC2's instances come before their owners and launches: a launch is committed before
//! its instances exist, so a launch that a later consistent read doesn't find was never committed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tenon_domain::boot::BootRecord;
use tenon_domain::catalog::{LearnedRecord, PartData};
use tenon_domain::claim::LaunchedInstance;
use tenon_domain::evidence::{CatalogPart, Ready, SNAPSHOT_STALE_AFTER, Waiting};
use tenon_domain::id::{ClaimName, ClusterName, ImageId, InstanceId, InstanceType, LaunchId, NodeClassName};
use tenon_domain::launch::Launch;
use tenon_domain::registry::{FeatureGate, GateName, Registry};
use tenon_domain::snapshot::Snapshot;
use tenon_domain::tags;
use tenon_domain::wake::FunctionName;
use tenon_ec2::Ec2;
use tenon_ec2::port::{Instance, InstanceFilter, TagFilter};
use tenon_runtime::{HandlerError, Ports};
use tenon_snapshot::NodeAction;
use tenon_snapshot::snapshot::{ChunkCache, Heartbeat, ReadError};
use tenon_state::heads::{Heads, Watch};
use tenon_state::observe::{read_error, reported};
use tenon_state::view::{ClusterView, ReadAlready, Want, Wants, catalog_error, form_error};
use tenon_table::items::form::Fields;
use tenon_table::items::packed::{parts_of, read_meta};
use tenon_table::items::{
    CatalogCache, CatalogError, Halt, InstanceOwner, ItemForm, TypeRecord, from_item, keys,
};
use tenon_table::{Consistency, Item, Key, Query, SkRange, Table, query_all};

use crate::audit_record::AuditRecord;
use crate::boots::booting;
use crate::input::{Ec2View, LifecycleInput};
use crate::plan::{needs_launch, needs_type};
use crate::repair::needs_gates;

/// DynamoDB's limit of keys in a batch.
const BATCH: usize = 100;

/// The input of a pass; launches and facts of types are read by name besides.
const WANTS: Wants<'static> = Wants {
    function: FunctionName::Lifecycle,
    parts: &[],
    sets: &[Want::Claims, Want::Classes, Want::Pools],
    watch: Watch::Everything,
};

/// The check for changes: one read.
#[derive(Debug)]
pub struct ChangeCheck {
    /// The current generations and those of the last pass.
    pub heads: Heads,
    /// A stop of terminations.
    pub halt: Option<Halt>,
    /// The last audit.
    pub audit: AuditRecord,
    /// The agent's last report, if there is one.
    pub agent_seen_at: Option<Timestamp>,
}

/// Checks for changes, in one call.
///
/// # Errors
/// [`HandlerError`] if an item can't be read.
pub async fn observe_check<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    sharpness: Consistency,
) -> Result<ChangeCheck, HandlerError> {
    let [halt, audit, heartbeat] = [keys::halt(cluster), AuditRecord::key(cluster), keys::heartbeat(cluster)];
    let more = vec![halt.clone(), audit.clone(), heartbeat.clone()];
    let heads = Heads::read(ports, cluster, WANTS, sharpness, more).await?;
    // A manifest counts as a heartbeat: the agent sends heartbeats only when it writes no manifest.
    let manifest = keys::manifest(cluster);
    let taken_at = heads.items.get(&manifest).map(|item| Fields::of(item).time("taken_at")).transpose();
    let taken_at = taken_at.map_err(|error| unreadable(&manifest, error))?;
    let beat_at = heads.items.get(&heartbeat).map(Heartbeat::from_item).transpose();
    let beat_at = beat_at.map_err(|error| unreadable(&heartbeat, error))?.map(|beat| beat.seen_at);
    Ok(ChangeCheck {
        halt: heads.item(&halt)?,
        audit: heads.item(&audit)?.unwrap_or_default(),
        agent_seen_at: taken_at.max(beat_at),
        heads,
    })
}

/// Reads the input of the plan, except EC2's part.
///
/// # Errors
/// [`HandlerError`] if the table can't be read.
pub async fn observe<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    check: &ChangeCheck,
    now: Timestamp,
    cache: &mut ChunkCache,
) -> Result<LifecycleInput, HandlerError> {
    let known = ReadAlready { heads: Some(check.heads.clone()), kept: None };
    let view = ClusterView::observe_since(ports, cluster, WANTS, &CatalogCache::new(), known).await?;
    let mut input = LifecycleInput {
        now,
        cluster: cluster.clone(),
        region: ports.installation().region.clone(),
        claims: view.claims,
        expiring: view.expiring,
        launches: BTreeMap::new(),
        actions: observe_actions(ports, cluster).await?,
        pools: view.pools,
        classes: view.classes,
        verdicts: view.verdicts,
        snapshot: observe_snapshot(ports, cluster, cache).await?,
        types: BTreeMap::new(),
        learned: BTreeMap::new(),
        boots: BTreeMap::new(),
        ec2: None,
        gone: BTreeSet::new(),
        statuses: None,
        templates: None,
        audit: check.audit.clone(),
        consoles: None,
        node_repair: FeatureGate::Disabled,
        halt: check.halt.clone(),
    };
    observe_details(ports, &mut input).await?;
    Ok(input)
}

/// Reads by name what claims need: launches that may be finished, facts about types, learned memory, and what images
/// showed; and the cluster's gates, if a Node is unhealthy.
async fn observe_details<P: Ports>(ports: &P, input: &mut LifecycleInput) -> Result<(), HandlerError> {
    let launches: BTreeSet<LaunchId> = input
        .claims
        .values()
        .filter(|claim| needs_launch(claim, &input.expiring))
        .map(|claim| claim.launch.clone())
        .collect();
    let starting = input.claims.values().filter(|claim| needs_type(claim));
    let starting: Vec<&LaunchedInstance> = starting.filter_map(|claim| claim.state.instance()).collect();
    let wanted_types: BTreeSet<InstanceType> =
        starting.iter().map(|instance| instance.instance_type.clone()).collect();
    let learned: BTreeSet<(&InstanceType, &ImageId)> =
        starting.iter().map(|instance| (&instance.instance_type, &instance.image)).collect();
    let launch_keys = launches.iter().map(|id| keys::launch(&input.cluster, id));
    let type_keys = wanted_types.iter().map(|name| keys::instance_type(&input.region, name));
    let own = |(name, image)| keys::learned(&input.region, name, image, &input.cluster);
    let learned_keys = learned.into_iter().map(own);
    let boots: BTreeSet<(&NodeClassName, &ImageId)> = input
        .claims
        .values()
        .filter_map(|claim| booting(claim).map(|instance| (&claim.class, &instance.image)))
        .collect();
    let boot = |(class, image)| keys::boot(&input.region, &input.cluster, class, image);
    let boot_keys = boots.into_iter().map(boot);
    let registry = keys::registry(&input.region, &input.cluster);
    let gates = needs_gates(input).then(|| registry.clone());
    let wanted = launch_keys.chain(type_keys).chain(learned_keys).chain(boot_keys).chain(gates).collect();
    for (key, item) in read_many(ports, wanted, Consistency::Strong).await? {
        if key == registry {
            let registry: Registry = read(&key, &item)?;
            input.node_repair = registry.gates.of(GateName::NodeRepair);
        } else if key.sk.starts_with(keys::LAUNCH) {
            let launch: Launch = read(&key, &item)?;
            input.launches.insert(launch.id.clone(), launch);
        } else if key.sk.starts_with(keys::LEARNED) {
            let record: LearnedRecord = read(&key, &item)?;
            input.learned.insert((record.instance_type.clone(), record.image.clone()), record);
        } else if key.sk.starts_with(keys::BOOT) {
            let record: BootRecord = read(&key, &item)?;
            input.boots.insert((record.class.clone(), record.image.clone()), record);
        } else {
            let record: TypeRecord = read(&key, &item)?;
            input.types.insert(record.name.clone(), record);
        }
    }
    let unwritten = wanted_types.into_iter().filter(|name| !input.types.contains_key(name)).collect();
    observe_new_types(ports, input, unwritten).await
}

/// Reads types without an item from the packed catalogue. Planners use that catalogue before the items are written, so
/// a node may exist first; without the facts it would lack labels that the plan counted on.
async fn observe_new_types<P: Ports>(
    ports: &P,
    input: &mut LifecycleInput,
    unwritten: BTreeSet<InstanceType>,
) -> Result<(), HandlerError> {
    if unwritten.is_empty() {
        return Ok(());
    }
    let (part, cache) = (CatalogPart::InstanceTypes, CatalogCache::new());
    let read = async {
        // Consistently: a Node's labels are set once, and a stale pointer has no types.
        let meta = read_meta(ports.table(), &input.region, Consistency::Strong).await?;
        parts_of(ports.table(), &input.region, &meta, &[part], &cache).await
    };
    let parts = match read.await {
        Ok(parts) => parts,
        // The next refresh repairs a broken part; meanwhile nodes register without the facts.
        Err(CatalogError::Missing { .. } | CatalogError::Corrupt { .. } | CatalogError::Pack { .. }) => {
            return Ok(());
        }
        Err(error) => return Err(catalog_error(error)),
    };
    if let Some(PartData::InstanceTypes(known)) = parts.get(&part).map(|found| &*found.data) {
        let records = unwritten.iter().filter_map(|name| known.get(name)).map(|f| TypeRecord::described(f));
        input.types.extend(records.map(|record| (record.name.clone(), record)));
    }
    Ok(())
}

async fn observe_actions<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
) -> Result<BTreeMap<ClaimName, NodeAction>, HandlerError> {
    let range = SkRange::Prefix(keys::ACTION.to_owned());
    let query = Query::new(keys::cluster_pk(cluster), range, Consistency::Strong);
    let items = query_all(ports.table(), &query).await?;
    let action = |(key, item): &(Key, Item)| {
        let action = NodeAction::from_item(item).map_err(|error| unreadable(key, error))?;
        Ok((action.claim.clone(), action))
    };
    items.iter().map(action).collect()
}

async fn observe_snapshot<P: Ports>(
    ports: &P,
    cluster: &ClusterName,
    cache: &mut ChunkCache,
) -> Result<Result<Ready<Snapshot>, Waiting>, HandlerError> {
    match reported(ports, cluster, cache).await {
        // The agent is writing, or a restored table lacks the chunks. It counts as a stale snapshot, so that decisions
        // without a snapshot continue.
        Err(ReadError::Torn { .. }) => Ok(Err(Waiting::SnapshotStale { age: SNAPSHOT_STALE_AFTER })),
        found => found.map_err(read_error),
    }
}

/// Reads the cluster's instances from EC2, then the owners of instances without a claim from the table.
///
/// # Errors
/// [`HandlerError`] if EC2 or the table fails.
pub async fn observe_ec2<P: Ports>(ports: &P, input: &mut LifecycleInput) -> Result<(), HandlerError> {
    let filter = InstanceFilter {
        tags: vec![
            TagFilter::equals(tags::INSTALLATION, ports.installation().id.as_str()),
            TagFilter::equals(tags::CLUSTER, input.cluster.as_str()),
        ],
        ..InstanceFilter::default()
    };
    let mut view = Ec2View::default();
    let mut page = None;
    loop {
        let found = ports.ec2().describe_instances(&filter, page).await?;
        view.instances.extend(found.items.into_iter().map(|instance| (instance.id.clone(), instance)));
        page = found.next;
        if page.is_none() {
            break;
        }
    }
    observe_owners(ports, input, &mut view).await?;
    input.ec2 = Some(view);
    Ok(())
}

async fn observe_owners<P: Ports>(
    ports: &P,
    input: &mut LifecycleInput,
    view: &mut Ec2View,
) -> Result<(), HandlerError> {
    let held: BTreeSet<&InstanceId> =
        input.claims.values().filter_map(|claim| Some(&claim.state.instance()?.id)).collect();
    let running = |instance: &&Instance| !instance.state.is_going();
    let unowned: Vec<&Instance> =
        view.instances.values().filter(running).filter(|instance| !held.contains(&instance.id)).collect();
    // An ended claim may still have a running instance, whose launch is read as well.
    let named: BTreeSet<&str> = view
        .instances
        .values()
        .filter(running)
        .filter(|instance| {
            input.claims.values().all(|claim| {
                claim.phase().is_final() || claim.state.instance().is_none_or(|held| held.id != instance.id)
            })
        })
        .filter_map(|instance| instance.tags.get(tags::LAUNCH).map(String::as_str))
        .collect();
    let mut wanted: Vec<Key> = unowned.iter().map(|instance| keys::instance(&instance.id)).collect();
    let parsed = named.iter().filter_map(|id| LaunchId::parse(*id).ok());
    wanted.extend(parsed.map(|id| keys::launch(&input.cluster, &id)));
    let mut owners = BTreeMap::new();
    for (key, item) in read_many(ports, wanted, Consistency::Strong).await? {
        if key.sk.starts_with(keys::LAUNCH) {
            let launch: Launch = read(&key, &item)?;
            input.launches.insert(launch.id.clone(), launch);
        } else {
            let owner: InstanceOwner = read(&key, &item)?;
            owners.insert(owner.instance.clone(), owner);
        }
    }
    let known = |id: &str| input.launches.keys().any(|launch| launch.as_str() == id);
    view.unknown_launches = named.into_iter().filter(|id| !known(id)).map(str::to_owned).collect();
    view.owners = owners;
    Ok(())
}

/// The clusters of instances; instances that Tenon didn't launch have none.
///
/// # Errors
/// [`HandlerError`] if the table can't be read.
pub async fn observe_clusters<P: Ports>(
    ports: &P,
    instances: &BTreeSet<InstanceId>,
) -> Result<BTreeSet<ClusterName>, HandlerError> {
    let keys = instances.iter().map(keys::instance).collect();
    let items = read_many(ports, keys, Consistency::Strong).await?;
    items.iter().map(|(key, item)| Ok(read::<InstanceOwner>(key, item)?.cluster)).collect()
}

pub(crate) async fn read_many<P: Ports>(
    ports: &P,
    keys: Vec<Key>,
    consistency: Consistency,
) -> Result<BTreeMap<Key, Item>, HandlerError> {
    let mut found = BTreeMap::new();
    for batch in keys.chunks(BATCH) {
        found.extend(ports.table().batch_get(batch, consistency).await?);
    }
    Ok(found)
}

pub(crate) fn read<T: ItemForm>(key: &Key, item: &Item) -> Result<T, HandlerError> {
    from_item(key, item).map_err(form_error)
}

fn unreadable(key: &Key, error: impl std::error::Error + Send + Sync + 'static) -> HandlerError {
    HandlerError::Item { key: key.to_string(), source: Box::new(error) }
}
