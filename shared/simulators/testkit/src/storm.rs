//! A storm of claims' steps beside arriving pods: a history of its own, for one invariant.
//!
//! Decides when pods arrive and when a claim steps. Each call of a function takes a while, and a claim of the same
//! cluster steps every 50 ms, so there are always steps between a plan's observation and its commit. No other fault
//! happens.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::claim::Claim;
use tenon_domain::id::{ClaimName, ClientToken, ClusterName, LaunchId, NodeClassName, NodePoolName, Uid};
use tenon_domain::launch::{Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_memory_table::block_on;
use tenon_region::engine::SimulatedRegion;
use tenon_region::gate::TaskGate;
use tenon_region::ports::{GatedTable, Outbox};
use tenon_region::scenario::{self, build};
use tenon_state::step::Change;
use tenon_table::items::{keys, put};
use tenon_table::{Commit, CommitToken, Table};

use crate::chaos::{Chaos, Weather};
use crate::history::History;
use crate::invariants::{Invariant, Violation, counts_pods, invariant_no_starvation};
use crate::random::Dice;
use crate::simulate::SimulationOptions;
use crate::world::{CLUSTER, DEPLOYMENTS};

/// The interval between steps of claims.
const STEP_EVERY: SignedDuration = SignedDuration::from_millis(50);
/// Steps of claims between two arrivals of pods: 10 s.
const STEPS_AN_ARRIVAL: u32 = 200;
/// Until then the region reads its catalogue and resolves its class.
const CALM_BEFORE: SignedDuration = SignedDuration::from_mins(2);

/// Plays a storm with one arrival of pods a step.
///
/// # Errors
/// A [`Violation`] of [`Invariant::NoStarvation`].
pub fn storm(options: SimulationOptions) -> Result<(), Box<Violation>> {
    let violation =
        |step, at, (invariant, found)| Box::new(Violation { invariant, seed: options.seed, step, at, found });
    let Some(mut storm) = Storm::new(options) else {
        let found = "can't set up the world of this seed".to_owned();
        return Err(violation(0, Timestamp::UNIX_EPOCH, (Invariant::NoStarvation, found)));
    };
    let mut history = History::default();
    // The pods of the last arrival get time for a plan, too.
    for step in 0..options.steps.saturating_add(15) {
        if step < options.steps {
            storm.scale_up();
        }
        for _ in 0..STEPS_AN_ARRIVAL {
            storm.step_claim();
            storm.pass(STEP_EVERY);
        }
        let at = storm.region.now();
        invariant_no_starvation(at, &uncounted(&storm.region, &storm.cluster), &mut history)
            .map_err(|found| violation(step, at, found))?;
    }
    Ok(())
}

struct Storm {
    region: SimulatedRegion,
    cluster: ClusterName,
    table: GatedTable,
    claim: Claim,
    dice: Dice,
}

impl Storm {
    fn new(options: SimulationOptions) -> Option<Self> {
        let chaos = |weather| {
            let chaos = Chaos::new(options.seed, options.sabotage);
            chaos.set_weather(weather);
            Arc::new(chaos)
        };
        let hooks = chaos(Weather::Slow);
        let world = crate::world::scenario(options.seed);
        let region =
            build(&world, &scenario::SetupOptions { hooks, ..scenario::SetupOptions::default() }).ok()?;
        let cluster = ClusterName::parse(CLUSTER).ok()?;
        // The steps pass a function's gate, where its sabotage acts; its calls take no time.
        let gate = TaskGate::new("lifecycle", chaos(Weather::Calm));
        let outbox = Arc::new(Mutex::new(Outbox::default()));
        let table = GatedTable::new(region.table().clone(), gate, outbox);
        let mut dice = Dice::new(options.seed, 4);
        let claim = Claim::planned(
            ClaimName::parse("default-storm").ok()?,
            (NodePoolName::parse("default").ok()?, NodeClassName::parse("default").ok()?),
            LaunchId::parse(format!("launch-storm{}", dice.below(1000))).ok()?,
            region.now(),
        );
        let mut storm = Self { region, cluster, table, claim, dice };
        storm.pass(CALM_BEFORE);
        let token = CommitToken::of_texts(["storm"]);
        let launch = settled_launch(&storm.claim)?;
        let writes = vec![
            put(keys::claim(&storm.cluster, &storm.claim.name), &storm.claim),
            put(keys::launch(&storm.cluster, &launch.id), &launch),
        ];
        block_on(storm.table.commit(&Commit { token, conditions: Vec::new(), writes })).ok()?;
        Some(storm)
    }

    fn pass(&mut self, time: SignedDuration) {
        let until = self.region.now().checked_add(time).unwrap_or(Timestamp::MAX);
        self.region.run_until(until);
        self.region.take_happenings();
    }

    /// A claim's step: on its own revision, with the cluster's counter.
    fn step_claim(&mut self) {
        let next = Claim { revision: self.claim.revision.saturating_add(1), ..self.claim.clone() };
        let commit = Change::step(&self.cluster, self.claim.revision, &next).commit();
        if block_on(self.table.commit(&commit)).is_ok() {
            self.claim = next;
        }
    }

    fn scale_up(&mut self) {
        let Some(site) = self.region.site(&self.cluster) else { return };
        let Some(name) = self.dice.pick(&DEPLOYMENTS) else { return };
        let more = i64::try_from(self.dice.between(1, 3)).unwrap_or(1);
        let _ = site.cluster().scale(name, |replicas| replicas.saturating_add(more));
    }
}

/// The claim's launch, of no pod.
fn settled_launch(claim: &Claim) -> Option<Launch> {
    Some(Launch {
        id: claim.launch.clone(),
        revision: 1,
        pool: claim.pool.clone(),
        class: claim.class.clone(),
        token: ClientToken::parse("tenon-storm").ok()?,
        request: String::new(),
        made_from: None,
        reservation: None,
        placement: None,
        claims: vec![LaunchClaim { name: claim.name.clone(), pods: Vec::new() }],
        cause: LaunchCause::PendingPods,
        created_at: claim.created_at,
        state: LaunchState::Settled { at: claim.created_at, instances: 1 },
    })
}

/// UIDs of pending pods without a claim.
pub(crate) fn uncounted(region: &SimulatedRegion, cluster: &ClusterName) -> BTreeSet<String> {
    let now = region.now();
    let claims = region.claims(cluster);
    let live: BTreeSet<&ClaimName> = claims.iter().filter(|c| counts_pods(c, now)).map(|c| &c.name).collect();
    let launches = region.launches(cluster);
    let counted: BTreeSet<&str> = launches
        .iter()
        .flat_map(|launch| &launch.claims)
        .filter(|claim| live.contains(&claim.name))
        .flat_map(|claim| &claim.pods)
        .map(Uid::as_str)
        .collect();
    let mut waiting = crate::simulate::waiting_pods(region, cluster);
    waiting.retain(|uid| !counted.contains(uid.as_str()));
    waiting
}
