//! A scenario's world: the region, its images, its clusters with their stacks and objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::budget::{BudgetError, BudgetNodes};
use tenon_domain::id::{ClusterName, InstallationId, InstanceType, ParseIdError, Region as RegionName, Zone};
use tenon_domain::instance_family::{FamilyPattern, FamilyPatternError};
use tenon_domain::registry::{
    Allowances, ClusterSettings, FeatureGate, GateName, Gates, Permission, Registry,
};
use tenon_ec2::data::DataError;
use tenon_ec2::port::{ImageArchitecture, Tags, cluster_arn};
use tenon_memory_table::block_on;
use tenon_memory_table::{MemoryConfig, MemoryTable, Throughput};
use tenon_runtime::Installation;
use tenon_simulated_cluster::{SimulatedCluster, SimulationConfig};
use tenon_snapshot::KubeError;
use tenon_table::items::{self, keys};
use tenon_table::{Commit, CommitToken, Table};
use tenon_twin::{
    Delays, ImageOutcome, NewImage, NotPossible, RegionTwin, Throttling, TwinConfig, TypeSelection,
    UnknownProfiles,
};

use super::form::{ClusterForm, ImageForm, Scenario};
use super::names::{UnknownName, check_names};
use crate::clock::{RegionClock, START};
use crate::engine::{EngineParts, SimulatedRegion};
use crate::gate::{Hooks, Undisturbed};
use crate::kubelet::BootTimes;
use crate::outside::OutsideCluster;
use crate::site::Site;
use crate::wiring::WiringError;

/// Deviations of a world from its scenario.
#[derive(Clone)]
pub struct SetupOptions {
    /// The seed, instead of the scenario's.
    pub seed: Option<u64>,
    /// The hooks that decide the fate of calls and events.
    pub hooks: Arc<dyn Hooks>,
    /// How stale an eventually consistent read can be.
    pub staleness_max: SignedDuration,
    /// How long EC2's answers may lag behind its changes.
    pub consistency_delay_max: SignedDuration,
    /// How long things take in EC2.
    pub delays: Delays,
    /// How long nodes take.
    pub boot: BootTimes,
    /// When the region's time begins.
    pub start: Timestamp,
}

impl Default for SetupOptions {
    fn default() -> Self {
        Self {
            seed: None,
            hooks: Arc::new(Undisturbed),
            staleness_max: SignedDuration::from_secs(1),
            consistency_delay_max: SignedDuration::from_secs(5),
            delays: Delays::default(),
            boot: BootTimes::default(),
            start: START.parse().unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

/// Why a world can't be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// An identifier is malformed.
    #[error("the scenario's world")]
    Id(#[from] ParseIdError),
    /// The region hasn't a type or a zone.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// There is no data for the region.
    #[error("the scenario's region")]
    Region(#[from] DataError),
    /// The twin can't be so.
    #[error("the scenario's region")]
    Twin(#[from] NotPossible),
    /// An object is refused by the API server.
    #[error("an object of the scenario")]
    Object(#[from] KubeError),
    /// A cluster's budget can't be understood.
    #[error("a cluster's disruptionBudget")]
    Budget(#[from] BudgetError),
    /// A cluster's families can't be understood.
    #[error("a cluster's allowedFamilies")]
    Families(#[from] FamilyPatternError),
    /// A stack can't be played.
    #[error("the stacks")]
    Wiring(#[from] WiringError),
    /// The table refused the registry.
    #[error("registering a cluster: {0}")]
    Registry(String),
}

/// Makes a scenario's world. Nothing has happened in it.
///
/// # Errors
/// [`SetupError`].
pub fn build(scenario: &Scenario, options: &SetupOptions) -> Result<SimulatedRegion, SetupError> {
    let seed = options.seed.unwrap_or(scenario.seed);
    let clock = RegionClock::at(options.start);
    let region = RegionName::parse(scenario.region.as_str())?;
    let installation = Installation {
        id: InstallationId::parse("tenon")?,
        region,
        account: "111122223333".to_owned(),
        table: "tenon".to_owned(),
    };
    let table = MemoryTable::new(
        MemoryConfig {
            staleness_max: options.staleness_max,
            throughput: Throughput::Enforced,
            ..MemoryConfig::strict(seed)
        },
        clock.as_fn(),
    );
    let twin = RegionTwin::new(twin_config(scenario, options, &installation, seed, &clock)?)?;
    for image in &scenario.images {
        twin.add_image(new_image(image, options.start));
    }
    let hooks = Arc::clone(&options.hooks);
    let mut made = SimulatedRegion::new(EngineParts { clock, table, twin, installation, hooks })?;
    for cluster in &scenario.clusters {
        add_cluster(&mut made, cluster, options, seed)?;
    }
    Ok(made)
}

fn twin_config(
    scenario: &Scenario,
    options: &SetupOptions,
    installation: &Installation,
    seed: u64,
    clock: &RegionClock,
) -> Result<TwinConfig, SetupError> {
    let mut config = TwinConfig::new(installation.region.clone(), seed, clock.as_fn());
    config.account.clone_from(&installation.account);
    config.consistency_delay_max = options.consistency_delay_max;
    config.delays = options.delays;
    config.throttling = Throttling::Enforced;
    config.unknown_profiles = UnknownProfiles::Missing;
    check_names(scenario, &config.region)?;
    if !scenario.types.is_empty() {
        let types: BTreeSet<InstanceType> =
            scenario.types.iter().map(|name| InstanceType::parse(name.as_str())).collect::<Result<_, _>>()?;
        config.types = TypeSelection::Only(types);
    }
    config.zones = scenario.zones.iter().map(|name| Zone::parse(name.as_str())).collect::<Result<_, _>>()?;
    Ok(config)
}

/// The twin's form of a scenario's image that is made now.
pub(crate) fn new_image(form: &ImageForm, now: Timestamp) -> NewImage {
    let architecture =
        if form.architecture == "arm64" { ImageArchitecture::Arm64 } else { ImageArchitecture::X86_64 };
    let mut image = NewImage::named(form.name.clone(), architecture);
    image.tags.extend(form.tags.clone());
    image.delay = form.takes;
    image.owner.clone_from(&form.owner);
    image.deprecated_at = form.deprecated_after.and_then(|after| now.checked_add(after).ok());
    if form.fails {
        image.outcome = ImageOutcome::Failed("the snapshot could not be completed".to_owned());
    }
    image
}

fn add_cluster(
    region: &mut SimulatedRegion,
    form: &ClusterForm,
    options: &SetupOptions,
    seed: u64,
) -> Result<(), SetupError> {
    let name = prepare(region, form)?;
    let cluster =
        SimulatedCluster::new(SimulationConfig { seed, ..SimulationConfig::default() }, region.now());
    for object in &form.objects {
        cluster.apply(object.clone())?;
    }
    region.add_site(Site::new(name, cluster, options.boot))?;
    Ok(())
}

/// Adds a cluster outside this process to a region, with its network and its stack, like those of [`build`]. The
/// form's objects are ignored: the cluster has its own.
///
/// # Errors [`SetupError`].
pub fn add_outside(
    region: &mut SimulatedRegion,
    form: &ClusterForm,
    cluster: Box<dyn OutsideCluster>,
) -> Result<(), SetupError> {
    let name = prepare(region, form)?;
    Ok(region.add_outside(name, cluster)?)
}

/// A cluster's network, its nodes' instance profile and its stack.
fn prepare(region: &SimulatedRegion, form: &ClusterForm) -> Result<ClusterName, SetupError> {
    let name = ClusterName::parse(form.name.as_str())?;
    let discovery = Tags::from([("karpenter.sh/discovery".to_owned(), form.name.clone())]);
    region.twin.add_network(&discovery)?;
    for role in node_roles(&name) {
        region.twin.add_instance_profile(&role, &role);
    }
    if form.zonal_shift {
        region.twin.manage(&cluster_arn(&region.installation.region, &region.installation.account, &name));
    }
    register(region, &name, form)?;
    Ok(name)
}

/// The roles of a cluster's nodes, the names of their instance profiles too: ours, and that of Karpenter's
/// getting-started guide.
fn node_roles(cluster: &ClusterName) -> [String; 2] {
    [format!("{cluster}-node"), format!("KarpenterNodeRole-{cluster}")]
}

/// The owners of images that a cluster's stack allows.
fn image_owners(form: &ClusterForm) -> BTreeSet<String> {
    if form.image_owners.is_empty() {
        return BTreeSet::from(["self".to_owned(), "amazon".to_owned()]);
    }
    form.image_owners.iter().cloned().collect()
}

/// The families of instance types that a cluster's stack allows.
fn families(form: &ClusterForm) -> Result<BTreeSet<FamilyPattern>, FamilyPatternError> {
    form.allowed_families.iter().map(|text| text.parse::<FamilyPattern>()).collect()
}

const fn gate(open: bool) -> FeatureGate {
    if open { FeatureGate::Enabled } else { FeatureGate::Disabled }
}

/// What a stack says of a permission, if it says anything.
const fn permission(said: Option<bool>) -> Permission {
    match said {
        Some(false) => Permission::Denied,
        Some(true) | None => Permission::Allowed,
    }
}

/// The role by which a cluster's stack lets its nodes be launched.
fn launch_role(installation: &Installation, cluster: &ClusterName) -> String {
    let Installation { id, region, account, .. } = installation;
    format!("arn:aws:iam::{account}:role/tenon/{id}/{region}/{cluster}")
}

/// Writes the registry entry of the cluster's stack, and makes its launch role.
fn register(region: &SimulatedRegion, name: &ClusterName, form: &ClusterForm) -> Result<(), SetupError> {
    let discovery = BTreeMap::from([("karpenter.sh/discovery".to_owned(), form.name.clone())]);
    let budget = form.disruption_budget.as_deref().map(BudgetNodes::parse);
    let launch_role = launch_role(&region.installation, name);
    region.twin.add_launch_role(&launch_role, name);
    let registry = Registry {
        installation: region.installation.id.clone(),
        cluster: name.clone(),
        endpoint: format!("https://{}.example.eks.amazonaws.com", form.name.to_lowercase()),
        certificate_authority: "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t".to_owned(),
        kubernetes_version: "1.35".to_owned(),
        service_cidr: "10.100.0.0/16".to_owned(),
        settings: ClusterSettings {
            zonal_shift: gate(form.zonal_shift),
            console_output: gate(form.console_output),
            // As the cluster's stack has it.
            spot_request_tags: FeatureGate::Enabled,
            disruption_budget: budget.transpose()?,
            ..ClusterSettings::default()
        },
        gates: Gates::default()
            .with(GateName::ReservedCapacity, gate(form.reserved_capacity))
            .with(GateName::SpotToSpotConsolidation, gate(form.spot_to_spot_consolidation))
            .with(GateName::NodeRepair, gate(form.node_repair)),
        agent_queue: format!("{}-agent-{name}", region.installation.id),
        agent_role: format!("arn:aws:iam::{}:role/{name}-tenon-agent", region.installation.account),
        launch_role: Some(launch_role),
        allowed: Allowances {
            // As if an existing profile of the role's name had been given to the stack.
            node_roles: node_roles(name).map(|role| (role.clone(), role)).into(),
            instance_profiles: node_roles(name).into_iter().take(1).collect(),
            subnet_tags: discovery.clone(),
            security_group_tags: discovery,
            image_owners: image_owners(form),
            max_nodes: form.max_nodes,
            max_vcpus: form.max_vcpus,
            families: families(form)?,
            public_addresses: permission(form.allow_public_addresses),
            imds_v1: permission(form.allow_imds_v1),
            user_data: permission(form.allow_user_data),
            ..Allowances::default()
        },
    };
    write_entry(region, &registry)
}

/// Changes settings of a cluster's registry entry, as its stack or an operator does.
///
/// # Errors
/// [`SetupError::Registry`].
pub fn change_settings(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    change: impl FnOnce(&mut ClusterSettings),
) -> Result<(), SetupError> {
    change_entry(region, cluster, |entry| change(&mut entry.settings))
}

/// Changes what a cluster's registry entry allows, as its stack does.
///
/// # Errors
/// [`SetupError::Registry`].
pub fn change_allowances(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    change: impl FnOnce(&mut Allowances),
) -> Result<(), SetupError> {
    change_entry(region, cluster, |entry| change(&mut entry.allowed))
}

fn change_entry(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    change: impl FnOnce(&mut Registry),
) -> Result<(), SetupError> {
    let found = region.registry(cluster);
    let mut entry = found.ok_or_else(|| SetupError::Registry(format!("`{cluster}` has no entry")))?;
    change(&mut entry);
    write_entry(region, &entry)
}

fn write_entry(region: &SimulatedRegion, entry: &Registry) -> Result<(), SetupError> {
    let write = items::set(keys::registry(&region.installation.region, &entry.cluster), entry);
    // Equal entries at different times are different writes.
    let token = CommitToken::of_texts(["registry", &region.table.version().to_string()]);
    let commit = Commit { token, conditions: Vec::new(), writes: vec![write] };
    block_on(region.table.commit(&commit)).map_err(|error| SetupError::Registry(error.to_string()))
}
