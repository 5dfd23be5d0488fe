//! The world of a run: a scenario, or an account for manifests.
//!
//! Decides the account of manifests: the networks, images and node roles that their classes need, so that a run shows
//! Tenon and not a missing subnet. Images of aliases are AWS's own, and there. Some resources can't be invented (an image
//! by id); the class's conditions name them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tenon_domain::SignedDuration;
use tenon_domain::api::Ec2NodeClass;
use tenon_domain::api::node_class::{
    AmiSelectorTerm, InstanceProfile, NodeIdentity, SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
use tenon_domain::id::{ClusterName, Region as RegionName};
use tenon_domain::manifest::Manifests;
use tenon_domain::registry::Registry;
use tenon_memory_table::block_on;
use tenon_region::bill::CountedCalls;
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::{Hooks, Undisturbed};
use tenon_region::scenario::{
    BUILT_IN, ClusterForm, ImageForm, Scenario, ScenarioStep, SetupOptions, build, built_in,
};
use tenon_table::items::{from_item, keys, put};
use tenon_table::{Commit, CommitToken, Consistency, Table};

use crate::args::{LocalArgs, Until};
use crate::errors::{Failure, Problem, chain, did_you_mean, quoted};
use crate::input;

/// The tag by which clusters discover their resources.
const DISCOVERY: &str = "karpenter.sh/discovery";
/// How long a world of manifests is given to settle.
const SETTLE_WITHIN: SignedDuration = SignedDuration::from_hours(6);

/// A world that nothing has happened in.
pub(super) struct LocalRegion {
    pub(super) region: SimulatedRegion,
    pub(super) region_name: RegionName,
    pub(super) scenario: Scenario,
    /// The scenario's name or file.
    pub(super) name: String,
    pub(super) warnings: Vec<String>,
    /// The number of events sent from outside.
    pub(super) events_sent: u64,
    /// The calls of functions and agents.
    pub(super) calls: Arc<CountedCalls>,
}

impl LocalRegion {
    /// The world of a call.
    pub(super) fn new(args: &LocalArgs) -> Result<Self, Failure> {
        let mut warnings = Vec::new();
        let given = if args.filename.is_empty() {
            None
        } else {
            let sources = input::Sources::read(&args.filename)?;
            let read = sources.manifests()?;
            warnings.extend(input::warnings_of(&read));
            Some((read.manifests, sources.objects()))
        };
        let named = |name: &str| scenario(name).map(|(scenario, text)| (name.to_owned(), scenario, text));
        let (name, mut scenario, text) = match (&args.scenario, &given) {
            (Some(name), _) => named(name)?,
            (None, None) => named("tour")?,
            (None, Some((manifests, _))) => {
                ("manifests".to_owned(), of_manifests(manifests, args)?, String::new())
            }
        };
        if let Some((manifests, objects)) = &given {
            let Some(cluster) = scenario.clusters.first_mut() else {
                let remedy = "give a scenario with a cluster, or leave `-f` out";
                return Err(Problem::new("the scenario has no cluster for the manifests", remedy)
                    .in_file(name)
                    .into());
            };
            cluster.objects.extend(objects.iter().cloned());
            scenario.images.extend(manifests.node_classes.iter().flat_map(images_of));
        }
        if args.until == Some(Until::Settled)
            && !matches!(scenario.steps.last(), Some(ScenarioStep::Settle(_)))
        {
            scenario.steps.push(ScenarioStep::Settle(SETTLE_WITHIN));
        }
        let calls = Arc::new(CountedCalls::new(Arc::new(Undisturbed)));
        let hooks: Arc<dyn Hooks> = Arc::<CountedCalls>::clone(&calls);
        let options = SetupOptions { seed: args.seed, hooks, ..SetupOptions::default() };
        let wrong = |error: &dyn std::error::Error| {
            Failure::from(Problem::new(chain(error), "change what is named, and try again").in_file(&name))
        };
        let region = build(&scenario, &options)
            .map_err(|error| Failure::from(input::setup_problem(&error, &text).in_file(&name)))?;
        let region_name = RegionName::parse(scenario.region.as_str()).map_err(|error| wrong(&error))?;
        if let Some((manifests, _)) = &given {
            let cluster = scenario.clusters.first().map(|cluster| cluster.name.as_str());
            let classes = &manifests.node_classes;
            cluster.map_or(Ok(()), |cluster| grant(&region, &region_name, cluster, classes)).map_err(
                |message| {
                    Failure::from(Problem::new(message, "change the manifests' EC2NodeClass").in_file(&name))
                },
            )?;
        }
        Ok(Self { region, region_name, scenario, name, warnings, events_sent: 0, calls })
    }
}

/// A built-in scenario, or one of a file, and its text.
fn scenario(name: &str) -> Result<(Scenario, String), Failure> {
    let text = match built_in(name) {
        Some(text) => text.to_owned(),
        None if Path::new(name).exists() || name == "-" => input::read_text(Path::new(name))?,
        None => {
            let known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
            let otherwise = format!("give a file that exists, or one of {}", quoted(&known));
            let remedy = did_you_mean(name, known.iter().copied(), &otherwise);
            return Err(Problem::new(format!("no scenario `{name}`"), remedy).at("--scenario").into());
        }
    };
    match Scenario::parse(&text) {
        Ok(scenario) => Ok((scenario, text)),
        Err(error) => {
            let remedy = "see docs/scenarios.md for the form";
            Err(Problem::new(error.to_string(), remedy).in_file(name).into())
        }
    }
}

/// A scenario that only waits for the manifests to be served.
fn of_manifests(manifests: &Manifests, args: &LocalArgs) -> Result<Scenario, Failure> {
    if manifests.node_pools.is_empty() {
        let files: Vec<String> = args.filename.iter().map(|path| input::name_of(path)).collect();
        let message = format!("no NodePool in `{}`", files.join("`, `"));
        return Err(Problem::new(message, input::NODE_POOL_EXAMPLE).into());
    }
    Ok(Scenario {
        title: "Your manifests on a region of this machine".to_owned(),
        region: args.region.resolve()?.to_string(),
        seed: 0,
        types: Vec::new(),
        zones: Vec::new(),
        clusters: vec![ClusterForm { name: cluster_of(&manifests.node_classes), ..ClusterForm::default() }],
        images: Vec::new(),
        steps: vec![ScenarioStep::Settle(SETTLE_WITHIN)],
    })
}

/// The cluster of the classes, by the tag that discovers their networks.
pub(super) fn cluster_of(classes: &[Ec2NodeClass]) -> String {
    let discovery = classes.iter().find_map(|class| tags_of(class).remove(DISCOVERY));
    let cluster = discovery.filter(|name| ClusterName::parse(name.as_str()).is_ok());
    cluster.unwrap_or_else(|| "local".to_owned())
}

/// The tags that a class finds its subnets and security groups by; a wildcard takes any value.
fn tags_of(class: &Ec2NodeClass) -> BTreeMap<String, String> {
    let subnets = class.subnet_selector.iter().filter_map(|term| match term {
        SubnetSelectorTerm::Tags(tags) => Some(tags),
        SubnetSelectorTerm::Id(_) => None,
    });
    let groups = class.security_group_selector.iter().filter_map(|term| match term {
        SecurityGroupSelectorTerm::Tags(tags) => Some(tags),
        SecurityGroupSelectorTerm::Id(_) | SecurityGroupSelectorTerm::Name(_) => None,
    });
    let tags = subnets.chain(groups).flatten();
    tags.map(|(key, value)| (key.clone(), value.replace('*', "local"))).collect()
}

/// Images that a class's terms select, one for each architecture.
pub(super) fn images_of(class: &Ec2NodeClass) -> Vec<ImageForm> {
    let terms = class.ami_selector.iter().filter_map(|term| match term {
        AmiSelectorTerm::Match { name, tags, .. } => Some((name, tags)),
        AmiSelectorTerm::Id(_) | AmiSelectorTerm::Alias { .. } | AmiSelectorTerm::SsmParameter(_) => None,
    });
    let image = |(name, tags): (&Option<String>, &BTreeMap<String, String>), architecture: &str| ImageForm {
        name: match name {
            Some(pattern) => pattern.replace('*', "local").replace('?', "0"),
            None => format!("{}-{architecture}", class.name),
        },
        architecture: architecture.to_owned(),
        tags: tags.iter().map(|(key, value)| (key.clone(), value.replace('*', "local"))).collect(),
        takes: None,
        fails: false,
        owner: None,
        deprecated_after: None,
    };
    terms.flat_map(|term| ["x86_64", "arm64"].map(|architecture| image(term, architecture))).collect()
}

/// Adds the resources of a cluster's classes: networks with their tags, instance profiles, and the right to use their
/// roles.
pub(super) fn grant(
    region: &SimulatedRegion,
    name: &RegionName,
    cluster: &str,
    classes: &[Ec2NodeClass],
) -> Result<(), String> {
    let there = BTreeMap::from([(DISCOVERY.to_owned(), cluster.to_owned())]);
    for class in classes {
        let mut tags = tags_of(class);
        tags.entry(DISCOVERY.to_owned()).or_insert_with(|| cluster.to_owned());
        if tags != there {
            region.twin().add_network(&tags).map_err(|error| error.to_string())?;
        }
    }
    let cluster = ClusterName::parse(cluster).map_err(|error| error.to_string())?;
    let key = keys::registry(name, &cluster);
    let found = block_on(region.table().get(&key, Consistency::Strong)).map_err(|error| error.to_string())?;
    let Some(item) = found else { return Ok(()) };
    let mut registry: Registry = from_item(&key, &item).map_err(|error| chain(&error))?;
    for class in classes {
        let profile = match &class.identity {
            NodeIdentity::Role(role) => {
                registry.allowed.node_roles.insert(role.clone(), role.clone());
                role
            }
            NodeIdentity::InstanceProfile(InstanceProfile::Name(profile) | InstanceProfile::Arn(profile)) => {
                registry.allowed.instance_profiles.insert(profile.clone());
                profile
            }
        };
        // A role is used through the instance profile of its name. A profile's ARN ends in its name, and may be one of
        // the account that the manifests are from.
        let name = profile.rsplit('/').next().unwrap_or(profile);
        for known in [profile.as_str(), name] {
            region.twin().add_instance_profile(known, name);
        }
    }
    // A class may discover its network by another name than the cluster's, which is the first class's. All networks
    // here belong to this cluster, whatever their names.
    for allowed in [&mut registry.allowed.subnet_tags, &mut registry.allowed.security_group_tags] {
        allowed.insert(DISCOVERY.to_owned(), "*".to_owned());
    }
    // Allowances for another set of classes are another commit.
    let roles = registry.allowed.node_roles.keys().chain(&registry.allowed.instance_profiles);
    let token = CommitToken::of_texts(["registry of classes"].into_iter().chain(roles.map(String::as_str)));
    let commit = Commit { token, conditions: Vec::new(), writes: vec![put(key, &registry)] };
    block_on(region.table().commit(&commit)).map_err(|error| chain(&error))
}
