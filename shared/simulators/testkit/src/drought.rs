//! Two clusters of a region in which EC2 has almost no capacity: a history of its own, for the invariants of marks.
//!
//! Decides when pods arrive in either cluster, and the exhausted capacity. No other fault happens, so no pod may wait
//! longer than with the peer for a launch that asks for a suitable offering.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::{ClusterName, Zone};
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::Scenario;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{at, uid};

use crate::chaos::Weather;
use crate::deeds;
use crate::invariants::{Invariant, Violation};
use crate::marks::{self, MarksSeen, launches};
use crate::random::Dice;
use crate::scarcity::Scarcity;
use crate::simulate::SimulationOptions;
use crate::storm::uncounted;
use crate::world::{DEPLOYMENTS, calm, deployment, node_class, plain_pool, small_region};

/// The clusters.
const CLUSTERS: [&str; 2] = ["east", "west"];
/// Until then the region reads its catalogue and resolves its classes.
const CALM_BEFORE: SignedDuration = SignedDuration::from_mins(2);
/// How often the peer asks again for a refused offering: its cache of unavailable offerings holds for three minutes.
const LAST_RESORT: SignedDuration = SignedDuration::from_mins(3);
/// How much later than the last resort a launch may be: the agent reports, the queue waits, and after a lost race the
/// next sweep looks again.
pub const LOOK_SLACK: SignedDuration = SignedDuration::from_secs(240);

/// Plays a drought.
///
/// # Errors
/// A [`Violation`] of one of the invariants of marks.
pub fn drought(options: SimulationOptions) -> Result<(), Box<Violation>> {
    let violation =
        |step, at, (invariant, found)| Box::new(Violation { invariant, seed: options.seed, step, at, found });
    let Some(mut drought) = Drought::new(options) else {
        let found = "can't set up the world of this seed".to_owned();
        return Err(violation(0, Timestamp::UNIX_EPOCH, (Invariant::OneProbe, found)));
    };
    for step in 0..options.steps {
        drought.act();
        let seconds = i64::try_from(drought.dice.between(1, 30)).unwrap_or(1);
        drought.pass(SignedDuration::from_secs(seconds));
        let at = drought.region.now();
        drought.judge().map_err(|found| violation(step, at, found))?;
    }
    Ok(())
}

struct Drought {
    region: SimulatedRegion,
    clusters: Vec<ClusterName>,
    dice: Dice,
    scarcity: Scarcity,
    seen: MarksSeen,
    /// Since when a pod waits for a launch, by UID.
    waits: BTreeMap<String, Timestamp>,
    weather: Weather,
}

impl Drought {
    fn new(options: SimulationOptions) -> Option<Self> {
        let weather = if options.seed.is_multiple_of(2) { Weather::Slow } else { Weather::Storm };
        let (region, hooks) = calm(&world(options.seed), options)?;
        let clusters = CLUSTERS.iter().map(|name| ClusterName::parse(*name).ok()).collect::<Option<_>>()?;
        let mut drought = Self {
            region,
            clusters,
            dice: Dice::new(options.seed, 6),
            scarcity: Scarcity::default(),
            seen: MarksSeen::default(),
            waits: BTreeMap::new(),
            weather,
        };
        drought.pass(CALM_BEFORE);
        hooks.set_weather(weather);
        drought.scarcity.dry_up_all(&drought.region);
        Some(drought)
    }

    fn pass(&mut self, time: SignedDuration) {
        let until = self.region.now().checked_add(time).unwrap_or(Timestamp::MAX);
        self.region.run_until(until);
        self.region.take_happenings();
        self.seen.look(&self.region);
    }

    fn act(&mut self) {
        let (region, dice) = (&self.region, &mut self.dice);
        let Some(cluster) = dice.pick(&self.clusters).cloned() else { return };
        // Only long droughts cause long holds.
        let often = match self.weather {
            Weather::Slow | Weather::Calm => 1000,
            Weather::Storm => 100,
        };
        match dice.below(often) {
            0..=14 => deeds::scale(region, &cluster, 5, dice),
            15..=19 => self.scarcity.dry_up_many(region, dice),
            20..=24 => self.scarcity.refill(region, dice),
            25 => self.scarcity.limit(region, dice),
            26 => self.scarcity.fill_subnet(region, &cluster, dice),
            27..=28 => self.scarcity.refuse(region, dice),
            29..=31 => self.scarcity.dry_up_all(region),
            _ => {}
        }
    }

    fn judge(&mut self) -> Result<(), (Invariant, String)> {
        marks::invariant_holds_bounded(&self.seen)?;
        marks::invariant_marks_clear(&self.region, &self.seen)?;
        marks::invariant_one_probe(&self.region, &self.seen)?;
        match self.weather {
            Weather::Slow | Weather::Calm => self.nobody_waits_longer(),
            Weather::Storm => Ok(()),
        }
    }

    /// While a pod waits for a launch, a suitable offering is asked for as often as with the peer.
    fn nobody_waits_longer(&mut self) -> Result<(), (Invariant, String)> {
        let now = self.region.now();
        let launches = launches(&self.region);
        let mut waits = BTreeMap::new();
        for cluster in &self.clusters {
            let uncounted = uncounted(&self.region, cluster);
            let pods = self.region.site(cluster).map(|site| site.cluster().objects(Kind::Pod));
            for pod in pods.into_iter().flatten().filter(|pod| uncounted.contains(uid(pod))) {
                let since = self.waits.get(uid(&pod)).copied().unwrap_or(now);
                let zone = zone_of(&pod);
                let its = launches
                    .iter()
                    .filter(|(cluster, launch)| self.seen.asks_in(cluster, launch, zone.as_ref()))
                    .map(|(_, launch)| launch.created_at);
                let asked = its.max().map_or(since, |asked| asked.max(since));
                if now.duration_since(asked) > LAST_RESORT + LOOK_SLACK {
                    let name = at(&pod, "/metadata/name").and_then(Value::as_str).unwrap_or_default();
                    let text = format!(
                        "pod {name} of {cluster} is pending, but no suitable offering was requested since {asked}"
                    );
                    return Err((Invariant::NobodyWaitsLonger, text));
                }
                waits.insert(uid(&pod).to_owned(), since);
            }
        }
        self.waits = waits;
        Ok(())
    }
}

fn zone_of(pod: &Value) -> Option<Zone> {
    let zone = at(pod, "/spec/nodeSelector/topology.kubernetes.io~1zone")?.as_str()?;
    Zone::parse(zone).ok()
}

fn world(seed: u64) -> Scenario {
    let mut dice = Dice::new(seed, 7);
    let mut cluster = |name: &str| {
        let pool = plain_pool(&["spot", "on-demand"], &json!({"consolidateAfter": "Never"}));
        let mut objects = vec![node_class(name), pool];
        objects.extend(DEPLOYMENTS.map(|name| deployment(name, &mut dice)));
        crate::world::cluster(name, objects)
    };
    let clusters = CLUSTERS.iter().map(|name| cluster(name)).collect();
    small_region(format!("drought {seed}"), seed, clusters)
}
