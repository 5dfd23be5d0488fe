//! The request of a question: a launch as a pending pod would cause it, and the dry runs that show it to EC2.
//!
//! Decides which NodePool, types and subnet stand for the launches of a class and an architecture. It calls nothing.
//!
//! Invariant: template, tags, user data, block devices and fleet parameters are those of a launch, made by the same
//! code.

use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::NodePool;
use tenon_domain::class_status::ResolvedImage;
use tenon_domain::digest::Digest;
use tenon_domain::id::{ClusterName, ImageId, NodeClassName, NodePoolName, Region, SubnetId};
use tenon_domain::image::BootMode;
use tenon_domain::launch::LaunchCause;
use tenon_domain::launch_verdict::NO_LAUNCH;
use tenon_domain::snapshot::Snapshot;
use tenon_domain::unavailable::Marks;
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::{CreateFleetRequest, FleetOverride, RunInstancesProbe};
use tenon_launching::build::{BuildError, BuiltLaunch, LaunchInput, build};
use tenon_launching::zones::ZoneTally;
use tenon_planning::provision::{PoolReadiness, sample};
use tenon_runtime::HandlerError;
use tenon_runtime::error::chain;
use tenon_state::cluster::ObservedCluster;
use tenon_state::observe::ClusterObservation;

use super::Question;

/// Letters and digits of a digest of NodePools.
const DIGEST_DIGITS: usize = 12;

/// A question's request.
pub(super) enum BuiltQuestion {
    /// The launch.
    Launch(Box<BuiltLaunch>),
    /// No NodePool takes nodes of the architecture.
    Unused {
        /// The digest of the class's NodePools.
        pools: String,
    },
    /// No launch can be made from the class.
    Refused {
        /// A sentence.
        message: String,
        /// The image that it is about.
        image: Option<ImageId>,
    },
    /// A NodePool waits for evidence, or for the answer to a launch.
    NotNow,
}

/// The dry runs of a launch.
pub(super) struct DryRuns {
    pub(super) fleet: CreateFleetRequest,
    pub(super) run: RunInstancesProbe,
}

/// Builds the launch of the first NodePool that takes nodes of the architecture. Marks don't matter: what is exhausted
/// is allowed all the same.
pub(super) fn built(
    cluster: &ClusterName,
    region: &Region,
    observed: &ClusterObservation,
    question: &Question<'_>,
) -> BuiltQuestion {
    let view = &observed.view;
    let (Ok(registry), Ok(snapshot)) = (&view.registry, &observed.snapshot) else {
        return BuiltQuestion::NotNow;
    };
    let mut world = ObservedCluster::new(cluster, registry, view, snapshot);
    world.resolve(region, &observed.compiled);
    let (marks, evidence) = (Marks::default(), BTreeMap::new());
    let input = LaunchInput {
        now: view.now,
        by: FunctionName::Provisioner,
        registry,
        classes: &world.classes,
        types: &world.types,
        region,
        marks: &marks,
        zones: &ZoneTally::default(),
        replaced: &[],
        displaced: None,
        leaving: &view.leaving,
        evidence: &evidence,
    };
    let (mut is_ready, mut refusal) = (true, None);
    for pool in world.pools_of(&question.class.name) {
        if pool.readiness != PoolReadiness::Ready {
            is_ready = false;
            continue;
        }
        let Some(claim) = sample(&pool, &question.architecture) else { continue };
        let mut built = build(&input, &[claim], &LaunchCause::PendingPods);
        match (built.launches.pop(), built.refused.pop()) {
            (Some(launch), _) => return BuiltQuestion::Launch(Box::new(launch)),
            (None, Some((_, error @ BuildError::UserData(_)))) => refusal = Some(chain(&error)),
            (None, _) => is_ready = false,
        }
    }
    match refusal {
        Some(why) => {
            let message = format!("{NO_LAUNCH}: {why}");
            BuiltQuestion::Refused { message, image: None }
        }
        None if is_ready => unbootable(cluster, region, observed, question)
            .unwrap_or_else(|| BuiltQuestion::Unused { pools: pools_digest(snapshot, &question.class.name) }),
        None => BuiltQuestion::NotNow,
    }
}

/// The refusal of an image whose boot mode no type has that the class's NodePools allow; `None` if they take no nodes
/// of the architecture anyway.
fn unbootable(
    cluster: &ClusterName,
    region: &Region,
    observed: &ClusterObservation,
    question: &Question<'_>,
) -> Option<BuiltQuestion> {
    let (Ok(registry), Ok(snapshot)) = (&observed.view.registry, &observed.snapshot) else { return None };
    let images = &question.status.images;
    let needs = |image: &&ResolvedImage| image.boot_mode.is_some();
    images.iter().filter(|image| image.architecture == question.architecture).find(needs)?;
    let mut view = observed.view.clone();
    for image in &mut view.classes.get_mut(&question.class.name)?.images {
        image.boot_mode = None;
    }
    let mut world = ObservedCluster::new(cluster, registry, &view, snapshot);
    world.resolve(region, &observed.compiled);
    for pool in world.pools_of(&question.class.name) {
        let Some(claim) = sample(&pool, &question.architecture) else { continue };
        let taken = pool.types.iter().find(|option| claim.instance_types.contains(&option.facts.name));
        let suits = |image: &&ResolvedImage| {
            taken.is_some_and(|option| {
                ResolvedImage { boot_mode: None, ..(*image).clone() }.suits(&option.facts)
            })
        };
        if let Some(image) = images.iter().filter(suits).find(needs) {
            return Some(unbooted(&pool.pool.name, image));
        }
    }
    None
}

fn unbooted(pool: &NodePoolName, image: &ResolvedImage) -> BuiltQuestion {
    let mode = image.boot_mode.map_or("", BootMode::as_str);
    let message = format!(
        "no instance type that NodePool `{pool}` allows boots image `{}` by boot mode `{mode}`: register the image with \
         `--boot-mode uefi-preferred`, or allow types that have it",
        image.id,
    );
    BuiltQuestion::Refused { message, image: Some(image.id.clone()) }
}

/// The digest of a class's NodePools, those that claims are planned for: an edit changes it. It is empty without any.
pub(super) fn pools_digest(snapshot: &Snapshot, class: &NodeClassName) -> String {
    let planned = |pool: &&NodePool| pool.replicas.is_none() && pool.meta.deleted_at.is_none();
    let pools = snapshot.node_pools.iter().filter(planned);
    let pools = pools.filter(|pool| pool.template.node_class.means(class));
    let texts: BTreeSet<[String; 3]> = pools
        .map(|pool| {
            let uid = pool.meta.uid.as_ref().map(ToString::to_string).unwrap_or_default();
            [pool.name.to_string(), uid, pool.meta.generation.to_string()]
        })
        .collect();
    if texts.is_empty() {
        return String::new();
    }
    Digest::of_texts(texts.iter().flatten().map(String::as_str)).base36(DIGEST_DIGITS)
}

/// The dry runs of a launch: the whole fleet, and an instance of its cheapest type. After a denial the next subnet has
/// its turn, because one that is allowed is enough; `None` for a launch without overrides.
pub(super) fn probe(built: &BuiltLaunch, failures: u32) -> Result<Option<DryRuns>, HandlerError> {
    let fleet = CreateFleetRequest::from_stored(&built.launch.request)
        .map_err(|error| HandlerError::Internal(chain(&error)))?;
    let Some(template) = fleet.launch_templates.first() else { return Ok(None) };
    let Some(with) = in_turn(&template.overrides, failures) else { return Ok(None) };
    let Some((_, made)) = built.templates.iter().find(|(_, made)| made.name == template.name) else {
        return Ok(None);
    };
    let run = RunInstancesProbe {
        launch_template: template.name.clone(),
        version: template.version.clone(),
        // The subnet has the zone; a zone of the request would take the place of the template's placement.
        with: FleetOverride { zone: None, ..with.clone() },
        capacity_type: fleet.capacity_type,
        tags: fleet.tags.clone(),
        network_interface_tags: made.data.network_interface_tags.clone(),
        // Only a template for spot has them.
        spot_request_tags: made.data.spot_request_tags.clone(),
        metadata_options: made.data.metadata_options.clone(),
        network_interfaces: made.data.network_interfaces.clone(),
        security_groups: made.data.security_groups.clone(),
    };
    Ok(Some(DryRuns { fleet, run }))
}

/// The cheapest override in a subnet.
fn in_turn(overrides: &[FleetOverride], failures: u32) -> Option<&FleetOverride> {
    let mut subnets: Vec<Option<&SubnetId>> = Vec::new();
    for with in overrides {
        if !subnets.contains(&with.subnet.as_ref()) {
            subnets.push(with.subnet.as_ref());
        }
    }
    let turn = usize::try_from(failures).unwrap_or(0).checked_rem(subnets.len())?;
    let subnet = subnets.get(turn)?;
    overrides.iter().find(|with| with.subnet.as_ref() == *subnet)
}
