//! Plays the history of a seed, and checks the invariants.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::claim::{Claim, ClaimPhase};
use tenon_domain::digest::Digest;
use tenon_domain::id::ClusterName;
use tenon_domain::wake::FunctionName;
use tenon_memory_table::Backup;
use tenon_region::engine::SimulatedRegion;
use tenon_region::happening::Listeners;
use tenon_region::scenario::{self, Scenario, build};
use tenon_snapshot::Kind;
use tenon_snapshot::object::at;

use crate::accepted::invariant_newest_taken;
use crate::bounded::{bound, end_bounds};
use crate::chaos::{Chaos, Weather};
use crate::deeds::{self, Doings, wake};
use crate::empty::invariant_empty_nodes_go;
use crate::history::ClusterMoment;
use crate::invariants::{self, Found, Invariant, SettledRegion, Violation};
use crate::marks::{self, MarksSeen};
use crate::money::CostMeter;
use crate::next_tries::next_try;
use crate::opened::spread;
use crate::pace::HistoryPace;
use crate::random::Dice;
use crate::reached::{Reached, Situation};
use crate::sabotage::Sabotage;
use crate::selected::invariant_images_selected;
use crate::silence::{self, invariant_nothing_silent};
use crate::validation::invariant_ready_again;
use crate::watched::Watched;
use crate::world::CLUSTER;

/// How long a calm region may take to settle: drift rolls one node at a time, and each takes minutes.
const SETTLE_WITHIN: SignedDuration = SignedDuration::from_hours(8);
/// How long a region must have nothing to do before it counts as settled: longer than the longest sweep and the looks
/// after it, so that the sweep repairs a lost event.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(420);
/// How long after the last change of spot prices they count: the catalogue's period, and a failed refresh of it.
const PRICED_WITHIN: SignedDuration = SignedDuration::from_mins(11);
/// How many claims of a cluster may wait for their launches in a calm region: far more than the pods of a history need.
const MOST_PLANNED: usize = 80;
/// How old the table is that a restore brings back.
const RESTORE_AGE: SignedDuration = SignedDuration::from_hours(1);

/// The history to play.
#[derive(Debug, Clone, Copy)]
pub struct SimulationOptions {
    /// The seed.
    pub seed: u64,
    /// How many steps.
    pub steps: u32,
    /// Where the code is broken, if it is.
    pub sabotage: Option<Sabotage>,
    /// Its pace; the seed's own if absent.
    pub pace: Option<HistoryPace>,
}

/// The result of a history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SimulationOutcome {
    /// The number of launched instances.
    pub launches: usize,
    /// Tasks that crashed.
    pub crashes: u64,
    /// Invocations of functions.
    pub invocations: u64,
    /// Whether the table was restored.
    pub restored: bool,
    /// The situations that it reached.
    pub reached: BTreeSet<Situation>,
}

/// Plays a seed.
///
/// # Errors
/// The first [`Violation`].
pub fn simulate(options: SimulationOptions) -> Result<SimulationOutcome, Box<Violation>> {
    play(options).map(|play| play.outcome())
}

/// Plays a seed, and returns a digest of its whole table: equal histories have equal ones.
///
/// # Errors The first [`Violation`].
pub fn simulate_digest(options: SimulationOptions) -> Result<(SimulationOutcome, Digest), Box<Violation>> {
    let play = play(options)?;
    let items: Vec<String> = play.region.table().dump().map(|item| format!("{item:?}")).collect();
    Ok((play.outcome(), Digest::of_texts(items.iter().map(String::as_str))))
}

/// What the instances of a history cost in USD, until its world calms down.
///
/// # Errors The first [`Violation`].
pub(crate) fn spent(options: SimulationOptions, world: &Scenario) -> Result<f64, Box<Violation>> {
    let mut play = Play::of(options, world)?;
    for step in 0..options.steps {
        play.step = step;
        play.live()?;
    }
    Ok(play.meter.spent())
}

fn play(options: SimulationOptions) -> Result<Play, Box<Violation>> {
    let mut play = Play::of(options, &spread(bound(crate::world::scenario(options.seed))))?;
    for step in 0..options.steps {
        play.step = step;
        play.live()?;
        if play.is_restored() {
            play.live_on_restored_table()?;
            return Ok(play);
        }
    }
    play.calm_down()?;
    Ok(play)
}

/// UIDs of pods that wait for a node, without those that fit nowhere.
pub(crate) fn waiting_pods(region: &SimulatedRegion, cluster: &ClusterName) -> BTreeSet<String> {
    let Some(site) = region.site(cluster) else { return BTreeSet::new() };
    let waits =
        |pod: &Value| at(pod, "/spec/nodeName").is_none() && at(pod, "/metadata/deletionTimestamp").is_none();
    let pods = site.cluster().objects(Kind::Pod);
    let waiting = pods.iter().filter(|pod| waits(pod) && !silence::never_fits(pod));
    waiting.filter_map(|pod| at(pod, "/metadata/uid")?.as_str().map(str::to_owned)).collect()
}

/// How many replicas a Deployment gets at most in a long history: it has days and nights.
fn most_replicas(at: Timestamp) -> u64 {
    let hour = at.as_second().div_euclid(3600).rem_euclid(24);
    if (6..18).contains(&hour) { 20 } else { 4 }
}

struct Play {
    options: SimulationOptions,
    step: u32,
    region: SimulatedRegion,
    chaos: Arc<Chaos>,
    /// The cluster that deeds are done to.
    cluster: ClusterName,
    /// All clusters.
    watched: Vec<Watched>,
    /// Marks belong to all clusters.
    marks: MarksSeen,
    dice: Dice,
    /// The dice of the second cluster.
    second_dice: Dice,
    doings: Doings,
    reached: Reached,
    backups: Vec<(Timestamp, Backup)>,
    pace: HistoryPace,
    meter: CostMeter,
}

/// The longest time between two looks of the invariants, in seconds.
const LONGEST_PASS: i64 = 60;
/// How often, in a thousand steps of a long history, nothing happens but that a Deployment gets other replicas: between
/// two days of trouble lie quiet ones.
const ORDINARY: u64 = 900;
/// How often, in a thousand steps, a Deployment of the second cluster gets other replicas.
const SECOND_SCALES: u64 = 350;

impl Play {
    fn of(options: SimulationOptions, world: &Scenario) -> Result<Self, Box<Violation>> {
        let chaos = Arc::new(Chaos::new(options.seed, options.sabotage));
        let hooks = Arc::clone(&chaos);
        let made = build(world, &scenario::SetupOptions { hooks, ..scenario::SetupOptions::default() });
        let cluster = ClusterName::parse(CLUSTER);
        let (Ok(mut region), Ok(cluster)) = (made, cluster) else {
            return Err(Box::new(Violation {
                invariant: Invariant::PodsRun,
                seed: options.seed,
                step: 0,
                at: Timestamp::UNIX_EPOCH,
                found: "can't set up the world of this seed".to_owned(),
            }));
        };
        region.set_listeners(Listeners::None);
        let mut dice = Dice::new(options.seed, 3);
        let fair = Dice::new(options.seed, 12).permille(20);
        let pace = options.pace.unwrap_or(match (dice.permille(30), dice.permille(500)) {
            (false, _) if fair => HistoryPace::Fair,
            (false, _) => HistoryPace::Quick,
            (true, false) => HistoryPace::Slow,
            (true, true) => HistoryPace::Restored,
        });
        if pace == HistoryPace::Fair {
            chaos.set_weather(Weather::Slow);
            // A refused class waits for a launch, which a bound holds back for longer than any stated time.
            end_bounds(&region, &cluster);
        }
        Ok(Self {
            options,
            step: 0,
            region,
            chaos,
            cluster,
            watched: world.clusters.iter().filter_map(Watched::of).collect(),
            marks: MarksSeen::default(),
            dice,
            second_dice: Dice::new(options.seed, 9),
            doings: Doings::new(options.seed, pace.longest_outage()),
            reached: Reached::default(),
            backups: Vec::new(),
            pace,
            meter: CostMeter::default(),
        })
    }

    /// One step: a deed, some time, the invariants.
    fn live(&mut self) -> Result<(), Box<Violation>> {
        if self.pace == HistoryPace::Long && self.dice.permille(ORDINARY) {
            let most = most_replicas(self.region.now());
            self.doings.scale(&mut self.region, &self.cluster, most, &mut self.dice);
        } else {
            self.doings.act(&mut self.region, &self.cluster, &mut self.dice);
        }
        for other in self.watched.iter().skip(1) {
            if self.second_dice.permille(SECOND_SCALES) {
                deeds::scale(&self.region, &other.cluster, 5, &mut self.second_dice);
            }
        }
        let mut seconds = i64::try_from(self.dice.between(1, self.pace.longest_step())).unwrap_or(1);
        // The invariants compare moments: what happens between two isn't known in its order.
        while seconds > 0 {
            self.pass(SignedDuration::from_secs(seconds.min(LONGEST_PASS)))?;
            seconds -= LONGEST_PASS;
        }
        if self.pace == HistoryPace::Restored {
            self.maybe_restore();
        }
        Ok(())
    }

    fn pass(&mut self, time: SignedDuration) -> Result<(), Box<Violation>> {
        let until = self.region.now().checked_add(time).unwrap_or(Timestamp::MAX);
        self.region.run_until(until);
        self.region.take_happenings();
        self.meter.read(&self.region);
        self.judge()
    }

    fn maybe_restore(&mut self) {
        let now = self.region.now();
        if self.backups.last().is_none_or(|(at, _)| now.duration_since(*at) >= SignedDuration::from_mins(10))
        {
            self.backups.push((now, self.region.table().backup()));
        }
        let old_enough = |at: &Timestamp| now.duration_since(*at) >= RESTORE_AGE;
        let Some((_, backup)) = self.backups.iter().rev().find(|(at, _)| old_enough(at)) else { return };
        if self.dice.permille(100) {
            let well = |claim: &&Arc<Claim>| {
                use ClaimPhase::{Initialized, Launched, Registered};
                matches!(claim.phase(), Launched | Registered | Initialized)
            };
            for watched in &mut self.watched {
                let moment = ClusterMoment::of(&self.region, &watched.cluster);
                let instances = moment.claims.iter().filter(well).filter_map(|c| c.state.instance());
                watched.history.well_at_restore = instances.map(|i| i.id.clone()).collect();
                watched.history.restored_at = Some(now);
            }
            self.region.table().restore(backup);
            self.chaos.note_restore();
        }
    }

    fn is_restored(&self) -> bool {
        self.watched.iter().any(|watched| watched.history.restored_at.is_some())
    }

    /// After a restore no instance may be lost; a person restores everything else.
    fn live_on_restored_table(&mut self) -> Result<(), Box<Violation>> {
        for _ in 0..24 {
            self.step += 1;
            let until = self.region.now().checked_add(SignedDuration::from_mins(5)).unwrap_or(Timestamp::MAX);
            self.region.run_until(until);
            self.region.take_happenings();
            for watched in &self.watched {
                let moment = ClusterMoment::of(&self.region, &watched.cluster);
                let found = invariants::invariant_restore_kills_nothing(&moment, &watched.history);
                self.check(moment.at, found)?;
            }
        }
        Ok(())
    }

    fn calm_down(&mut self) -> Result<(), Box<Violation>> {
        self.chaos.set_weather(Weather::Calm);
        self.doings.make_peace(&mut self.region, &self.cluster);
        // Nodes become empty at last in some histories; in the others busy nodes have to settle.
        if self.dice.permille(300) {
            deeds::shrink(&self.region, &self.cluster, &mut self.dice);
        }
        for watched in &mut self.watched {
            watched.history.pending_since.clear();
        }
        let calm_since = self.region.now();
        self.tell()?;
        let deadline = self.region.now().checked_add(SETTLE_WITHIN).unwrap_or(Timestamp::MAX);
        let mut settled_since = None;
        loop {
            self.step += 1;
            self.pass(SignedDuration::from_mins(1))?;
            let now = self.region.now();
            let mut found = Ok(());
            for watched in &mut self.watched {
                let waiting = waiting_pods(&self.region, &watched.cluster);
                found =
                    found.and(invariants::invariant_pods_run(now, &waiting, &mut watched.history)).and_then(
                        |()| invariant_empty_nodes_go(&self.region, &watched.cluster, &mut watched.empty),
                    );
            }
            let found = found.and_then(|()| self.judge_times());
            self.check(now, found)?;
            self.check(now, self.runs_away())?;
            let mut unsettled = self.region.unsettled().0;
            unsettled.extend(self.waits_for_capacity());
            unsettled.extend(self.tries_again_soon());
            if now.duration_since(calm_since) < PRICED_WITHIN {
                unsettled.push("spot prices may be older than the last change".to_owned());
            }
            if unsettled.is_empty() && self.watched.iter().all(|watched| watched.history.unready.is_empty()) {
                let since = *settled_since.get_or_insert(now);
                if now.duration_since(since) >= SETTLED_AFTER {
                    return self.look_again();
                }
            } else {
                settled_since = None;
            }
            if now >= deadline {
                let text =
                    format!("not settled {SETTLE_WITHIN:#} after the last fault: {}", unsettled.join("; "));
                return self.check(now, Err((Invariant::SettledStays, text)));
            }
        }
    }

    /// A drifted claim, while capacity is marked: its replacement may be launched as soon as a mark is forgotten.
    fn waits_for_capacity(&self) -> Option<String> {
        if !self.marks.any_in_effect(self.region.now()) {
            return None;
        }
        let claims = self.watched.iter().flat_map(|watched| self.region.claims(&watched.cluster));
        let drifted = |claim: &Arc<Claim>| claim.phase() == ClaimPhase::Initialized && claim.drift.is_some();
        claims
            .into_iter()
            .find(drifted)
            .map(|claim| format!("{} drifted while capacity is marked", claim.name))
    }

    /// What Tenon has stated that it tries again before the second look is over.
    fn tries_again_soon(&self) -> Option<String> {
        let ends = self.region.now().saturating_add(self.pace.second_look()).unwrap_or(Timestamp::MAX);
        let tries = self.watched.iter().filter_map(|watched| next_try(&self.region, &watched.cluster));
        tries.filter(|(at, _)| *at <= ends).min().map(|(at, what)| format!("{what} at {at}"))
    }

    /// Finds a region that plans claims without end: it never settles, and each minute takes longer than the one before.
    fn runs_away(&self) -> Found {
        for watched in &self.watched {
            let moment = ClusterMoment::of(&self.region, &watched.cluster);
            let planned = moment.claims.iter().filter(|claim| claim.phase() == ClaimPhase::Planned).count();
            if planned > MOST_PLANNED {
                let text = format!("{planned} planned NodeClaims wait in cluster `{}`", watched.cluster);
                return Err((Invariant::SettledStays, text));
            }
        }
        Ok(())
    }

    /// Waits for the finding and the Event of each pod that fits nowhere. Then it deletes the pod, with which the
    /// region can't settle.
    fn tell(&mut self) -> Result<(), Box<Violation>> {
        let calm_since = self.region.now();
        loop {
            let now = self.region.now();
            let untold = silence::untold(&self.region, &self.cluster);
            self.check(now, invariant_nothing_silent(&untold, (calm_since, now)))?;
            if untold.is_empty() {
                silence::withdraw(&self.region, &self.cluster);
                return Ok(());
            }
            self.step += 1;
            self.pass(SignedDuration::from_mins(1))?;
        }
    }

    /// Wakes every function in a settled region: nothing may change.
    fn look_again(&mut self) -> Result<(), Box<Violation>> {
        let before = self.standing();
        for cluster in self.watched.iter().map(|watched| watched.cluster.clone()).collect::<Vec<_>>() {
            for function in FunctionName::ALL {
                self.region.send(function, wake(&cluster));
            }
        }
        self.pass(self.pace.second_look())?;
        for (before, after) in before.iter().zip(self.standing()) {
            let found = invariants::invariant_settled_stays(before, &after);
            self.check(self.region.now(), found)?;
        }
        Ok(())
    }

    fn standing(&self) -> Vec<SettledRegion> {
        let requests = self.region.twin().requests().len();
        let of = |watched: &Watched| {
            SettledRegion::of(&ClusterMoment::of(&self.region, &watched.cluster), requests)
        };
        self.watched.iter().map(of).collect()
    }

    fn judge(&mut self) -> Result<(), Box<Violation>> {
        let deletions = self.region.take_pod_deletions();
        let of =
            |watched: &Watched| ClusterMoment::of(&self.region, &watched.cluster).with_deletions(&deletions);
        let moments: Vec<ClusterMoment> = self.watched.iter().map(of).collect();
        let at = self.region.now();
        let judged = self.judge_marks();
        self.check(at, judged)?;
        for (watched, moment) in self.watched.iter_mut().zip(&moments) {
            let judged = watched.judge(&self.region, moment, self.step, self.pace);
            let judged = judged.and_then(|()| {
                invariant_images_selected(&self.region, &watched.cluster, self.doings.strangers())
            });
            self.reached.look(&self.region, &watched.cluster, moment, self.doings.strangers());
            if let Err((invariant, found)) = judged {
                let (seed, step) = (self.options.seed, self.step);
                return Err(Box::new(Violation { invariant, seed, step, at, found }));
            }
        }
        self.reached.look_at_launches(&moments);
        if self.pace == HistoryPace::Fair {
            let judged = self.judge_times();
            return self.check(at, judged);
        }
        Ok(())
    }

    /// The invariants of stated times, which hold while nothing goes wrong but the deeds.
    fn judge_times(&self) -> Result<(), (Invariant, String)> {
        let right_since = self.doings.right_since();
        for Watched { cluster, history, .. } in &self.watched {
            let within = (right_since, self.pace.class_lag());
            invariant_ready_again(&self.region, cluster, &history.unready, within)?;
            invariant_newest_taken(&self.region, cluster, &history.images, right_since)?;
        }
        Ok(())
    }

    fn judge_marks(&mut self) -> Result<(), (Invariant, String)> {
        self.marks.look(&self.region);
        marks::invariant_holds_bounded(&self.marks)?;
        marks::invariant_marks_clear(&self.region, &self.marks)?;
        marks::invariant_one_probe(&self.region, &self.marks)
    }

    fn check(&self, at: Timestamp, found: Result<(), (Invariant, String)>) -> Result<(), Box<Violation>> {
        let violation = |(invariant, found)| {
            Box::new(Violation { invariant, seed: self.options.seed, step: self.step, at, found })
        };
        found.map_err(violation)
    }

    fn outcome(&self) -> SimulationOutcome {
        SimulationOutcome {
            launches: self.region.twin().launches().len(),
            crashes: self.chaos.crashes(),
            invocations: self.region.usage().invocations.values().sum(),
            restored: self.is_restored(),
            reached: self.reached.0.clone(),
        }
    }
}
