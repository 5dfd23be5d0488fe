//! Deeds between the steps of a simulated world: users, EC2 and bad luck.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::{ClusterName, ImageId, ZoneId};
use tenon_domain::labels::REGISTERED;
use tenon_domain::launch_verdict::VALIDATION_REFRESH;
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::ShiftEnd;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{ImageArchitecture, cluster_arn};
use tenon_region::engine::SimulatedRegion;
use tenon_region::site::Voice;
use tenon_snapshot::{Kind, object};
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen, ImageDefect, NewImage};

use crate::bounded::{ForbiddenAsks, end_bounds};
use crate::class_deleted::{ClassDeletions, again};
use crate::expiry::end_expiry;
use crate::outage::ProfileOutages;
use crate::pauses::{Pausing, end_pauses};
use crate::pipeline::Pipeline;
use crate::random::Dice;
use crate::repaired::{heal, impair, mend, sicken};
use crate::scarcity::Scarcity;
use crate::selected::ForeignImages;
use crate::silence;
use crate::taken::{announce, interrupt, interrupt_many, stop_instance};
use crate::world::{DEPLOYMENTS, image, node_class, set};

/// Deeds that may have to be undone.
pub(crate) struct Doings {
    pipeline: Pipeline,
    outages: ProfileOutages,
    classes: ClassDeletions,
    pausing: Pausing,
    forbidden: ForbiddenAsks,
    /// When something that classes depend on was last wrong, or changed.
    disturbed_at: Timestamp,
    images: Vec<ImageId>,
    /// Which Nodes become sick.
    sickness: Dice,
    /// When many instances are interrupted at once.
    storms: Dice,
    /// Which instances fail status checks.
    impairments: Dice,
    /// Those whose new instances fail.
    broken: Vec<ImageId>,
    scarcity: Scarcity,
    shifted: Option<ZoneId>,
    /// A NodePool that a user deleted.
    pool: Option<Value>,
    speaks_at: Option<Timestamp>,
    made: u64,
    /// Pods that fit nowhere.
    asked: u64,
    strangers: ForeignImages,
    selection: Selection,
    sizes: Sizes,
    /// When dry runs of RunInstances are allowed again.
    denied_until: Option<Timestamp>,
    denials: u64,
}

/// The way in which the class selects its images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Selection {
    /// By tags: the newest of them.
    #[default]
    Tags,
    /// By the name of the first image.
    First,
}

/// Which sizes the pool `default` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sizes {
    #[default]
    All,
    Larger,
    Large,
}

/// An account that isn't ours.
const STRANGER: &str = "999988887777";

impl Doings {
    /// Nothing yet. Outages last so many seconds at most.
    pub(crate) fn new(seed: u64, longest_outage: u64) -> Self {
        Self {
            pipeline: Pipeline::new(seed, longest_outage),
            outages: ProfileOutages::new(seed, longest_outage),
            classes: ClassDeletions::new(seed),
            pausing: Pausing::new(seed, longest_outage),
            forbidden: ForbiddenAsks::new(seed, longest_outage),
            sickness: Dice::new(seed, 14),
            storms: Dice::new(seed, 17),
            impairments: Dice::new(seed, 18),
            broken: Vec::new(),
            disturbed_at: Timestamp::MIN,
            images: Vec::new(),
            scarcity: Scarcity::default(),
            shifted: None,
            pool: None,
            speaks_at: None,
            made: 0,
            asked: 0,
            strangers: ForeignImages::new(),
            selection: Selection::default(),
            sizes: Sizes::default(),
            denied_until: None,
            denials: 0,
        }
    }

    /// Since when the world is right for classes: their instance profile and rights are there, their agent speaks, and
    /// nobody edited them.
    pub(crate) const fn right_since(&self) -> Timestamp {
        self.disturbed_at
    }

    /// Does one thing, and what the pipeline and the instance profile's owner do beside it.
    pub(crate) fn act(&mut self, region: &mut SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        self.act_once(region, cluster, dice);
        self.pipeline.act(region);
        self.pausing.act(region, cluster);
        if self.storms.permille(10) {
            interrupt_many(region, &mut self.storms);
        }
        if self.sickness.permille(60) {
            sicken(region, cluster, &mut self.sickness);
        }
        if self.impairments.permille(40) {
            impair(region, cluster, &mut self.impairments);
        }
        let is_wrong =
            |doings: &Self| doings.outages.is_on() || doings.classes.is_on() || doings.forbidden.is_on();
        let disturbed = is_wrong(self) || self.denied_until.is_some() || self.speaks_at.is_some();
        self.outages.act(region, cluster);
        self.classes.act(region, cluster);
        self.forbidden.act(region, cluster);
        if disturbed || is_wrong(self) {
            self.disturbed_at = region.now();
        }
    }

    /// Gives a Deployment other replicas, and does nothing else but end what is over.
    pub(crate) fn scale(
        &mut self,
        region: &mut SimulatedRegion,
        cluster: &ClusterName,
        most: u64,
        dice: &mut Dice,
    ) {
        self.end_due(region, cluster);
        scale(region, cluster, most, dice);
    }

    /// Ends the agent's silence and the denial of dry runs, when their time has come.
    fn end_due(&mut self, region: &mut SimulatedRegion, cluster: &ClusterName) {
        if self.speaks_at.is_some_and(|at| at <= region.now()) {
            self.speak(region, cluster);
        }
        if self.denied_until.is_some_and(|at| at <= region.now()) {
            self.allow_dry_runs(region);
        }
    }

    fn act_once(&mut self, region: &mut SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        self.end_due(region, cluster);
        match dice.below(100) {
            0..=34 => scale(region, cluster, 7, dice),
            35..=39 => self.make_image(region, dice),
            40..=41 => self.drop_image(region, dice),
            42..=48 => interrupt(region, dice),
            49..=54 => self.scarcity.dry_up(region, dice),
            55..=56 => self.scarcity.dry_up_many(region, dice),
            57..=61 => self.scarcity.refill(region, dice),
            62..=64 => delete_node(region, cluster, dice),
            65..=67 => self.silence(region, cluster, dice),
            68..=69 => region.send(FunctionName::Images, "{\"source\": \"aws.ec2\"}".to_owned()),
            70..=71 => announce(region, dice),
            72..=73 => stop_instance(region, dice),
            74..=75 => self.scarcity.limit(region, dice),
            76..=77 => self.scarcity.fill_subnet(region, cluster, dice),
            78..=79 => self.scarcity.refuse(region, dice),
            80..=83 => self.shift(region, cluster, dice),
            84..=85 => delete_claim(region, cluster, dice),
            86 => self.delete_pool(region, cluster, dice),
            87..=89 => self.edit_class(region, cluster, dice),
            90..=92 => self.edit_pool(region, cluster),
            93..=94 => self.make_strangers_image(region),
            95..=96 => self.ask_for_what_isnt_there(region, cluster),
            97..=98 => self.deny_dry_runs(region, cluster, dice),
            _ => self.break_image(region, dice),
        }
    }

    /// Undoes deeds that would keep pods pending forever.
    pub(crate) fn make_peace(&mut self, region: &mut SimulatedRegion, cluster: &ClusterName) {
        self.speak(region, cluster);
        self.scarcity.end(region);
        self.shift_back(region, cluster);
        region.twin().clear_faults();
        region.twin().hold_spot_prices(0);
        self.allow_dry_runs(region);
        self.classes.end(region, cluster);
        self.forbidden.end(region, cluster);
        end_bounds(region, cluster);
        self.make_pool(region, cluster);
        end_pauses(region, cluster);
        end_expiry(region, cluster);
        heal(region, cluster);
        mend(region, cluster);
        self.drop_broken_images(region);
        self.pipeline.finish(region);
        self.outages.end(region, cluster);
        self.disturbed_at = region.now();
    }

    /// Deletes a NodePool, or creates a deleted one again.
    fn delete_pool(&mut self, region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        if self.pool.is_some() {
            self.make_pool(region, cluster);
            return;
        }
        let Some(site) = region.site(cluster) else { return };
        let pools = site.cluster().objects(Kind::NodePool);
        if let Some(pool) = dice.pick(&pools) {
            site.cluster().delete(Kind::NodePool, "", object::name(pool));
            self.pool = Some(Value::clone(pool));
        }
    }

    fn make_pool(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let (Some(pool), Some(site)) = (self.pool.take(), region.site(cluster)) else { return };
        let _ = site.cluster().apply(again(&pool));
    }

    /// Images of strangers, with their creation times.
    pub(crate) const fn strangers(&self) -> &ForeignImages {
        &self.strangers
    }

    /// Changes the class's image selectors, while some of EC2's answers are late.
    fn edit_class(&mut self, region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        let Some(site) = region.site(cluster) else { return };
        self.selection = match self.selection {
            Selection::Tags => Selection::First,
            Selection::First => Selection::Tags,
        };
        let mut class = node_class(cluster.as_str());
        if self.selection == Selection::First {
            set(&mut class, &["spec", "amiSelectorTerms"], json!([{"name": image("node-0").name}]));
        }
        let _ = site.cluster().apply(class);
        self.disturbed_at = region.now();
        for call in [Call::DescribeImages, Call::DescribeSubnets, Call::DescribeSecurityGroups] {
            if dice.permille(600) {
                let error = Ec2Error::Throttled { action: call.as_str().to_owned() };
                let when = FaultWhen::Next(dice.between(1, 5));
                region.twin().inject(Fault { call, when, effect: FaultEffect::Refused(error) });
            }
        }
    }

    /// Restricts the pool to larger types, then to large ones, then allows all again. Every pod fits on one of each,
    /// so it needs no undoing; a node replaced meanwhile may need several replacements.
    fn edit_pool(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        self.sizes = match self.sizes {
            Sizes::All => Sizes::Larger,
            Sizes::Larger => Sizes::Large,
            Sizes::Large => Sizes::All,
        };
        let Some(site) = region.site(cluster) else { return };
        let pools = site.cluster().objects(Kind::NodePool);
        let Some(known) = pools.iter().find(|pool| object::name(pool) == "default") else { return };
        let mut pool = Value::clone(known);
        let key = "karpenter.k8s.aws/instance-size";
        if let Some(asked) =
            pool.pointer_mut("/spec/template/spec/requirements").and_then(Value::as_array_mut)
        {
            asked.retain(|requirement| requirement["key"] != key);
            let sizes: &[&str] = match self.sizes {
                Sizes::All => &[],
                Sizes::Larger => &["xlarge", "2xlarge"],
                Sizes::Large => &["large"],
            };
            if !sizes.is_empty() {
                asked.push(json!({"key": key, "operator": "In", "values": sizes}));
            }
        }
        let _ = site.cluster().apply(pool);
    }

    /// A stranger shares an image that looks like ours.
    fn make_strangers_image(&mut self, region: &SimulatedRegion) {
        let ours = image("node-0");
        let mut theirs = NewImage::named(ours.name, ImageArchitecture::X86_64);
        theirs.tags.extend(ours.tags);
        theirs.owner = Some(STRANGER.to_owned());
        self.strangers.insert(region.twin().add_image(theirs), region.now());
    }

    /// A policy denies RunInstances for a while, and the class's owner asks for another validation.
    fn deny_dry_runs(&mut self, region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        let why = if dice.permille(300) {
            "with an explicit deny in a service control policy"
        } else {
            "because no identity-based policy allows the ec2:RunInstances action"
        };
        region.twin().deny(Call::RunInstances, why);
        let seconds = i64::try_from(dice.between(30, 600)).unwrap_or(60);
        self.denied_until = region.now().checked_add(SignedDuration::from_secs(seconds)).ok();
        self.denials += 1;
        let Some(site) = region.site(cluster) else { return };
        for known in site.cluster().objects(Kind::Ec2NodeClass) {
            let mut class = Value::clone(&known);
            let value = json!(self.denials.to_string());
            set(&mut class, &["metadata", "annotations", VALIDATION_REFRESH], value);
            let _ = site.cluster().apply(class);
        }
    }

    fn allow_dry_runs(&mut self, region: &SimulatedRegion) {
        if self.denied_until.take().is_some() {
            self.disturbed_at = region.now();
            region.twin().allow(Call::RunInstances);
        }
    }

    /// A user makes a pod that gets no node.
    fn ask_for_what_isnt_there(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        self.asked += 1;
        silence::ask_for_what_isnt_there(region, cluster, self.asked);
    }

    /// Shifts the cluster away from a zone, or back; where zonal shift isn't on for it that is refused.
    fn shift(&mut self, region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        if self.shifted.is_some() {
            self.shift_back(region, cluster);
            return;
        }
        let minutes = SignedDuration::from_mins(i64::try_from(dice.between(2, 60)).unwrap_or(30));
        let until = region.now().checked_add(minutes).unwrap_or(Timestamp::MAX);
        let end = if dice.permille(300) { ShiftEnd::Open } else { ShiftEnd::At(until) };
        let zone = dice.pick(&region.zones()).and_then(|zone| region.twin().zone_id(zone));
        if let Some(zone) = zone
            && region.twin().shift_zone(&arn(region, cluster), &zone, end).is_ok()
        {
            self.shifted = Some(zone);
        }
    }

    fn shift_back(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        if let Some(zone) = self.shifted.take() {
            let _ = region.twin().end_shift(&arn(region, cluster), &zone);
        }
    }

    fn speak(&mut self, region: &mut SimulatedRegion, cluster: &ClusterName) {
        self.speaks_at = None;
        self.disturbed_at = region.now();
        region.set_voice(cluster, Voice::Speaks);
    }

    fn silence(&mut self, region: &mut SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
        let seconds = i64::try_from(dice.between(20, 240)).unwrap_or(60);
        self.speaks_at = region.now().checked_add(SignedDuration::from_secs(seconds)).ok();
        region.set_voice(cluster, Voice::Silent);
    }

    fn make_image(&mut self, region: &mut SimulatedRegion, dice: &mut Dice) {
        self.made += 1;
        let mut form = crate::world::image(&format!("node-{}", self.made));
        form.fails = dice.permille(200);
        form.takes = Some(SignedDuration::from_secs(i64::try_from(dice.between(1, 300)).unwrap_or(60)));
        self.images.push(region.make_image(&form));
    }

    /// Breaks the newest image for its next instances, but never the first one: older ones mostly have no next instances.
    fn break_image(&mut self, region: &SimulatedRegion, dice: &mut Dice) {
        let Some(image) = self.images.last().cloned() else { return };
        let defect = if dice.permille(500) { ImageDefect::Key } else { ImageDefect::Boot };
        if region.twin().set_image_defect(&image, Some(defect)).is_ok() {
            self.broken.push(image);
        }
    }

    /// Somebody takes broken images away: classes would try them again each hour.
    fn drop_broken_images(&mut self, region: &SimulatedRegion) {
        for image in self.broken.drain(..) {
            let _ = region.twin().deregister_image(&image);
            self.images.retain(|other| *other != image);
        }
    }

    /// Takes an image away, but never the first: something must be left to launch from.
    fn drop_image(&mut self, region: &mut SimulatedRegion, dice: &mut Dice) {
        let index = usize::try_from(dice.below(u64::try_from(self.images.len()).unwrap_or(0))).unwrap_or(0);
        if index < self.images.len() {
            let image = self.images.remove(index);
            // A failed or pending image can't be disabled; enabling always works.
            if dice.permille(500) || region.twin().disable_image(&image).is_err() {
                let _ = region.twin().deregister_image(&image);
            }
        }
    }
}

fn arn(region: &SimulatedRegion, cluster: &ClusterName) -> String {
    cluster_arn(&region.installation().region, &region.installation().account, cluster)
}

/// Gives one of the Deployments fewer pods than so many.
pub(crate) fn scale(region: &SimulatedRegion, cluster: &ClusterName, below: u64, dice: &mut Dice) {
    let Some(site) = region.site(cluster) else { return };
    let Some(name) = dice.pick(&DEPLOYMENTS) else { return };
    let replicas = i64::try_from(dice.below(below)).unwrap_or(0);
    let _ = site.cluster().scale(name, |_| replicas);
}

/// Takes all pods of most of the Deployments.
pub(crate) fn shrink(region: &SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
    let Some(site) = region.site(cluster) else { return };
    for name in DEPLOYMENTS.iter().filter(|_| dice.permille(900)) {
        let _ = site.cluster().scale(name, |_| 0);
    }
}

/// Deletes a Node that has registered: before, nobody could tell its instance from one that never joins, and its class
/// would leave the image alone for an hour.
fn delete_node(region: &mut SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
    let Some(site) = region.site(cluster) else { return };
    let registered =
        |node: &Value| node.pointer("/metadata/labels").is_some_and(|all| all.get(REGISTERED).is_some());
    let Some(name) = dice.pick(&site.node_names()).cloned() else { return };
    let nodes = site.cluster().objects(Kind::Node);
    if nodes.iter().any(|node| object::name(node) == name && registered(node)) {
        site.cluster().delete(Kind::Node, "", &name);
    }
}

fn delete_claim(region: &mut SimulatedRegion, cluster: &ClusterName, dice: &mut Dice) {
    let Some(site) = region.site(cluster) else { return };
    if let Some(claim) = dice.pick(&site.cluster().objects(Kind::NodeClaim)) {
        site.cluster().delete(Kind::NodeClaim, "", object::name(claim));
    }
}

/// An event that wakes a function for a cluster, as another function would send it.
pub(crate) fn wake(cluster: &ClusterName) -> String {
    json!({"source": "tenon", "detail-type": "Wake", "detail": {"installation": "tenon", "cluster": cluster.as_str()}})
        .to_string()
}
