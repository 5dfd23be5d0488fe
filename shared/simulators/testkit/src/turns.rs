//! Days in which a class's image turns: a history of its own, for the invariants of launch templates.
//!
//! Decides when there is a newer image and when it is taken back. Each turn makes all nodes drift, and lasts until the
//! templates of the image before must be gone. Every second seed has all faults.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenon_domain::claim::ClaimState;
use tenon_domain::id::{ClusterName, ImageId};
use tenon_domain::registry::{FeatureGate, Registry};
use tenon_domain::tags;
use tenon_ec2::Ec2;
use tenon_ec2::port::{CreateFleetRequest, LaunchTemplateFilter, TagFilter};
use tenon_memory_table::block_on;
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::Scenario;
use tenon_table::items::{TemplateItem, from_item, keys, set};
use tenon_table::{Table, content_commit};

use crate::chaos::Weather;
use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant, Violation};
use crate::random::Dice;
use crate::simulate::SimulationOptions;
use crate::world::{CLUSTER, calm, deployment, image, node_class, plain_pool, small_region};

/// Until then the region reads its catalogue and resolves its class.
const CALM_BEFORE: SignedDuration = SignedDuration::from_mins(2);
/// How old a launch may be whose template stays whatever its class says: a look every six hours notes that nothing
/// needs it, and a day later another one deletes it.
const NEEDED_WITHIN: SignedDuration = SignedDuration::from_hours(37);
/// The hours of a turn: its last launch is older then.
const HOURS_A_TURN: u32 = 39;
/// The reason of a claim whose launch's template EC2 lacks.
const NO_TEMPLATE: &str = "LaunchTemplateNotFound";

/// No launch fails because EC2 lacks its template: nobody but Tenon deletes templates.
///
/// # Errors The invariant, and the finding.
pub fn invariant_templates_there(moment: &ClusterMoment) -> Found {
    for claim in &moment.claims {
        if let ClaimState::LaunchFailed { failure, .. } = &claim.state
            && failure.reason == NO_TEMPLATE
        {
            let text = format!("claim {} got no instance: {}", claim.name, failure.message);
            return Err((Invariant::TemplatesThere, text));
        }
    }
    Ok(())
}

/// EC2 has no template of the cluster that neither an image of a class nor a launch of the last days needs.
///
/// # Errors The invariant, and the finding.
pub fn invariant_templates_few(region: &SimulatedRegion, cluster: &ClusterName) -> Found {
    let now = region.now();
    let launches = region.launches(cluster);
    let recent = launches.iter().filter(|launch| now.duration_since(launch.created_at) < NEEDED_WITHIN);
    let requests = recent.filter_map(|launch| CreateFleetRequest::from_stored(&launch.request).ok());
    let named: BTreeSet<String> =
        requests.flat_map(|request| request.launch_templates).map(|template| template.name).collect();
    let classes = region.classes(cluster);
    let images: BTreeSet<&ImageId> =
        classes.iter().flat_map(|class| &class.images).map(|image| &image.id).collect();
    let is_of_class = |name: &str| {
        let key = keys::template(cluster, name);
        let item = region.table().peek(&key).and_then(|item| from_item::<TemplateItem>(&key, &item).ok());
        item.is_some_and(|item| images.contains(&item.image))
    };
    for name in templates(region, cluster) {
        if !named.contains(&name) && !is_of_class(&name) {
            let text =
                format!("EC2 has launch template {name}, which nothing has needed for {NEEDED_WITHIN:#}");
            return Err((Invariant::TemplatesFew, text));
        }
    }
    Ok(())
}

/// The names of the cluster's templates in EC2.
fn templates(region: &SimulatedRegion, cluster: &ClusterName) -> Vec<String> {
    let of_cluster = LaunchTemplateFilter {
        names: Vec::new(),
        tags: vec![TagFilter::equals(tags::CLUSTER, cluster.as_str())],
    };
    let (mut found, mut page) = (Vec::new(), None);
    while let Ok(answer) = block_on(region.twin().describe_launch_templates(&of_cluster, page)) {
        found.extend(answer.items.into_iter().map(|template| template.name));
        page = answer.next;
        if page.is_none() {
            break;
        }
    }
    found
}

/// Plays so many turns.
///
/// # Errors
/// A [`Violation`] of one of the invariants of launch templates.
pub fn turns(options: SimulationOptions) -> Result<(), Box<Violation>> {
    let violation =
        |step, at, (invariant, found)| Box::new(Violation { invariant, seed: options.seed, step, at, found });
    let Some(mut turns) = Turns::new(options) else {
        let found = "can't set up the world of this seed".to_owned();
        return Err(violation(0, Timestamp::UNIX_EPOCH, (Invariant::TemplatesThere, found)));
    };
    for step in 0..options.steps {
        turns.turn();
        for _ in 0..HOURS_A_TURN {
            turns.pass(SignedDuration::from_hours(1));
            let moment = ClusterMoment::of(&turns.region, &turns.cluster);
            invariant_templates_there(&moment).map_err(|found| violation(step, moment.at, found))?;
        }
        // Among faults a look may fail, and the next one is six hours later.
        if turns.weather == Weather::Calm {
            let found = invariant_templates_few(&turns.region, &turns.cluster);
            found.map_err(|found| violation(step, turns.region.now(), found))?;
        }
    }
    Ok(())
}

struct Turns {
    region: SimulatedRegion,
    cluster: ClusterName,
    weather: Weather,
    /// The newer image, while there is one.
    newer: Option<ImageId>,
    made: u32,
}

impl Turns {
    fn new(options: SimulationOptions) -> Option<Self> {
        let weather = if options.seed.is_multiple_of(2) { Weather::Calm } else { Weather::Storm };
        let (region, hooks) = calm(&world(options.seed), options)?;
        let cluster = ClusterName::parse(CLUSTER).ok()?;
        without_dry_runs(&region, &cluster)?;
        let mut turns = Self { region, cluster, weather, newer: None, made: 0 };
        turns.pass(CALM_BEFORE);
        hooks.set_weather(weather);
        Some(turns)
    }

    fn pass(&mut self, time: SignedDuration) {
        let until = self.region.now().checked_add(time).unwrap_or(Timestamp::MAX);
        self.region.run_until(until);
        self.region.take_happenings();
    }

    /// Makes a newer image, or takes it back, so that the class resolves to the first one again.
    fn turn(&mut self) {
        if let Some(newer) = self.newer.take() {
            let _ = self.region.twin().deregister_image(&newer);
            return;
        }
        self.made += 1;
        self.newer = Some(self.region.make_image(&image(&format!("node-{}", self.made))));
    }
}

/// A dry run would find a missing template before a launch does.
fn without_dry_runs(region: &SimulatedRegion, cluster: &ClusterName) -> Option<()> {
    let key = keys::registry(&region.installation().region, cluster);
    let mut registry: Registry = from_item(&key, &region.table().peek(&key)?).ok()?;
    registry.settings.dry_runs = FeatureGate::Disabled;
    let commit = content_commit(Vec::new(), vec![set(key, &registry)]);
    block_on(region.table().commit(&commit)).ok()
}

fn world(seed: u64) -> Scenario {
    let mut dice = Dice::new(seed, 10);
    let mut web = deployment("web", &mut dice);
    crate::world::set(&mut web, &["spec", "replicas"], json!(2));
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]});
    let pool = plain_pool(&["on-demand"], &disruption);
    small_region(
        format!("turns {seed}"),
        seed,
        vec![crate::world::cluster(CLUSTER, vec![node_class(CLUSTER), pool, web])],
    )
}
