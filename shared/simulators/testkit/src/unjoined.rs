//! Hours in which a NodePool's nodes don't join: a history of its own, for one invariant.
//!
//! Decides when instances stop joining, when pods arrive, and when somebody edits the NodePool and then mends what is
//! wrong. Nodes of the image joined before, so the image isn't blamed. In every second seed calls are slow. Nothing else
//! goes wrong: the stated times are of a world in which calls don't fail. No budget lets the edit replace nodes.
//!
//! The invariant knows claims from look to look, and judges the waits from the docs.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::claim::{Claim, RemovalReason};
use tenon_domain::id::{ClaimName, ClusterName, NodePoolName};
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::Scenario;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{list, name, text};
use tenon_twin::ImageDefect;

use crate::chaos::Weather;
use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant, Violation};
use crate::random::Dice;
use crate::simulate::{SimulationOptions, waiting_pods};
use crate::world::{CLUSTER, calm, node_class, plain_pool, set, small_region};

/// The types of the NodePool: each pod fills one.
const LARGE: [&str; 2] = ["m5.large", "m6i.large"];
/// Until then a first Node joins, and the round of its claim is over.
const CALM_BEFORE: SignedDuration = SignedDuration::from_mins(45);
/// Claims that are made within this time of each other are one round; a Node that hasn't joined by then doesn't.
const ROUND: SignedDuration = SignedDuration::from_mins(15);
/// After so many rounds in a row without a Node, the NodePool waits.
const ROUNDS: u32 = 2;
/// The wait after them, and the longest one; it doubles with each round between them.
const WAITS: (SignedDuration, SignedDuration) =
    (SignedDuration::from_mins(15), SignedDuration::from_hours(2));
/// A plan may be made of what was so long ago.
const PLANNED_WITHIN: SignedDuration = SignedDuration::from_secs(15);
/// A look sees the end of a claim so much later at most, with some room.
const SEEN_WITHIN: SignedDuration = SignedDuration::from_mins(2);
/// A try that is younger may still join. Its time is over a little earlier for those who look each minute.
const TRYING: SignedDuration = SignedDuration::from_mins(14);
/// When the status says what is so: after the longest time between two sweeps, and an agent's look.
const TOLD_WITHIN: SignedDuration = SignedDuration::from_mins(5);
/// When all pods run once Nodes join again: after a try that was too early, the longest wait, and the launches.
const OVER_WITHIN: SignedDuration = SignedDuration::from_mins(150);
/// Minutes of a step.
const MINUTES: u64 = 60;

/// What was seen of the launches of a cluster's claims.
#[derive(Debug, Default)]
pub struct JoinsSeen {
    launches: BTreeMap<ClaimName, JudgedLaunch>,
    /// When the NodePool was edited: only later launches count.
    edited_at: Timestamp,
}

/// A claim that got an instance.
#[derive(Debug, Clone)]
struct JudgedLaunch {
    pool: NodePoolName,
    made_at: Timestamp,
    end: JudgedEnd,
}

/// How it ended, as far as was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JudgedEnd {
    /// It hasn't, or something else ended it.
    Unknown,
    /// Its Node joined.
    Joined,
    /// No Node joined in time: known at that time.
    Failed(Timestamp),
}

/// Rounds that failed in a row.
#[derive(Debug, Clone, Copy)]
struct FailedRounds {
    count: u32,
    last: Timestamp,
}

impl JoinsSeen {
    /// Takes over the claims; returns those that are new.
    fn look(&mut self, claims: &[Arc<Claim>]) -> Vec<ClaimName> {
        let mut new = Vec::new();
        for claim in claims.iter().filter(|claim| claim.state.instance().is_some()) {
            let seen = self.launches.entry(claim.name.clone()).or_insert_with(|| {
                new.push(claim.name.clone());
                let end = JudgedEnd::Unknown;
                JudgedLaunch { pool: claim.pool.clone(), made_at: claim.created_at, end }
            });
            if seen.end != JudgedEnd::Unknown {
                continue;
            }
            if claim.state.node().is_some() {
                seen.end = JudgedEnd::Joined;
            } else if claim.state.removal() == Some(RemovalReason::RegistrationTimeout)
                && let Some(at) = claim.state.since()
            {
                seen.end = JudgedEnd::Failed(at);
            }
        }
        new
    }

    /// The rounds of the NodePool's claims that failed in a row, as they were known at a moment.
    fn failed_rounds(&self, pool: &NodePoolName, at: Timestamp) -> FailedRounds {
        let since = later(self.edited_at, PLANNED_WITHIN);
        let counts = |one: &&JudgedLaunch| one.pool == *pool && one.made_at > since && one.made_at <= at;
        let mut launches: Vec<&JudgedLaunch> = self.launches.values().filter(counts).collect();
        launches.sort_by_key(|one| one.made_at);
        let mut found = FailedRounds { count: 0, last: Timestamp::MIN };
        let (mut round_ends, mut round_failed) = (Timestamp::MIN, false);
        for launch in launches {
            if launch.made_at >= round_ends {
                round_ends = later(launch.made_at, ROUND);
                round_failed = false;
            }
            match launch.end {
                JudgedEnd::Joined => {
                    found.count = 0;
                    // The rest of the round counts no more: its outcome is that Nodes join.
                    round_failed = true;
                }
                JudgedEnd::Failed(known) if known <= at => {
                    found.count += u32::from(!round_failed);
                    round_failed = true;
                    found.last = found.last.max(known);
                }
                JudgedEnd::Failed(_) | JudgedEnd::Unknown => {}
            }
        }
        found
    }
}

/// While a NodePool's nodes don't join it launches one instance after each wait, and its condition says why.
///
/// # Errors The invariant, and the finding.
pub fn invariant_nodes_not_joining(
    region: &SimulatedRegion,
    moment: &ClusterMoment,
    cluster: &ClusterName,
    seen: &mut JoinsSeen,
) -> Found {
    for new in seen.look(&moment.claims) {
        let Some(launch) = seen.launches.get(&new).cloned() else { continue };
        judge_launch(seen, &new, &launch)?;
    }
    let Some(site) = region.site(cluster) else { return Ok(()) };
    for pool in site.cluster().objects(Kind::NodePool) {
        let Ok(of) = NodePoolName::parse(name(&pool)) else { continue };
        let failed = seen.failed_rounds(&of, moment.at);
        let told = health(&pool);
        if failed.count >= ROUNDS && moment.at > later(failed.last, TOLD_WITHIN) && told != Some("False") {
            let text = format!(
                "no Node of NodePool {of} joined in {} rounds, the last of them at {}, and \
                 `NodeRegistrationHealthy` is {told:?}",
                failed.count, failed.last
            );
            return Err((Invariant::NodesNotJoining, text));
        }
    }
    Ok(())
}

/// A launch comes after the wait, and alone.
fn judge_launch(seen: &JoinsSeen, claim: &ClaimName, launch: &JudgedLaunch) -> Found {
    let JudgedLaunch { pool, made_at, .. } = launch;
    let known_at = made_at.saturating_sub(PLANNED_WITHIN).unwrap_or(Timestamp::MIN);
    let failed = seen.failed_rounds(pool, known_at);
    if failed.count < ROUNDS {
        return Ok(());
    }
    let until = later(failed.last, wait(failed.count));
    if later(*made_at, SEEN_WITHIN) < until {
        let text = format!(
            "claim {claim} of NodePool {pool} was made at {made_at}, though no Node joined in {} rounds: the wait \
             ends at {until}",
            failed.count
        );
        return Err((Invariant::NodesNotJoining, text));
    }
    let tries = |(which, other): &(&ClaimName, &JudgedLaunch)| {
        *which != claim
            && other.pool == *pool
            && other.made_at <= *made_at
            && made_at.duration_since(other.made_at) < TRYING
    };
    match seen.launches.iter().find(tries) {
        Some((other, _)) => {
            let text = format!(
                "claim {claim} of NodePool {pool} was made at {made_at} though {other} tries, after {} rounds in \
                 which no Node joined",
                failed.count
            );
            Err((Invariant::NodesNotJoining, text))
        }
        None => Ok(()),
    }
}

/// The wait after so many rounds.
fn wait(rounds: u32) -> SignedDuration {
    let (first, longest) = WAITS;
    let doubled = 1_i32.checked_shl(rounds.saturating_sub(ROUNDS)).unwrap_or(i32::MAX);
    first.checked_mul(doubled).map_or(longest, |wait| wait.min(longest))
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// The status of the NodePool's condition `NodeRegistrationHealthy`.
fn health(pool: &Value) -> Option<&str> {
    let mut conditions = list(pool, "/status/conditions").iter();
    let healthy = conditions.find(|one| text(one, "/type") == Some("NodeRegistrationHealthy"))?;
    text(healthy, "/status")
}

/// Plays so many hours in which nodes don't join, and the time after them.
///
/// # Errors
/// A [`Violation`] of [`Invariant::NodesNotJoining`].
pub fn unjoined(options: SimulationOptions) -> Result<(), Box<Violation>> {
    let violation =
        |step, at, (invariant, found)| Box::new(Violation { invariant, seed: options.seed, step, at, found });
    let Some(mut hours) = Hours::new(options) else {
        let found = "can't set up the world of this seed".to_owned();
        return Err(violation(0, Timestamp::UNIX_EPOCH, (Invariant::NodesNotJoining, found)));
    };
    hours.set_defect(Some(ImageDefect::Boot));
    // So many that the condition forgets all failures once they run.
    hours.scale_up(4, 6);
    for step in 0..options.steps {
        let arrival = hours.dice.below(MINUTES);
        for minute in 0..MINUTES {
            if minute == arrival {
                hours.scale_up(1, 2);
            }
            hours.look().map_err(|found| violation(step, hours.region.now(), found))?;
        }
    }
    hours.edit().map_err(|found| violation(options.steps, hours.region.now(), found))?;
    hours.set_defect(None);
    hours.mend().map_err(|found| violation(options.steps, hours.region.now(), found))
}

struct Hours {
    region: SimulatedRegion,
    cluster: ClusterName,
    seen: JoinsSeen,
    dice: Dice,
}

impl Hours {
    fn new(options: SimulationOptions) -> Option<Self> {
        let (region, hooks) = calm(&world(options.seed), options)?;
        let cluster = ClusterName::parse(CLUSTER).ok()?;
        let dice = Dice::new(options.seed, 10);
        let mut hours = Self { region, cluster, seen: JoinsSeen::default(), dice };
        hours.pass(CALM_BEFORE);
        if !options.seed.is_multiple_of(2) {
            hooks.set_weather(Weather::Slow);
        }
        Some(hours)
    }

    fn pass(&mut self, time: SignedDuration) {
        let until = later(self.region.now(), time);
        self.region.run_until(until);
        self.region.take_happenings();
    }

    /// A minute, and what it shows.
    fn look(&mut self) -> Found {
        self.pass(SignedDuration::from_mins(1));
        let moment = ClusterMoment::of(&self.region, &self.cluster);
        invariant_nodes_not_joining(&self.region, &moment, &self.cluster, &mut self.seen)
    }

    /// The next instances of the image never join, or do again.
    fn set_defect(&self, defect: Option<ImageDefect>) {
        for image in self.region.twin().images() {
            let _ = self.region.twin().set_image_defect(&image.id, defect);
        }
    }

    fn scale_up(&mut self, least: u64, most: u64) {
        let Some(site) = self.region.site(&self.cluster) else { return };
        let more = i64::try_from(self.dice.between(least, most)).unwrap_or(1);
        let _ = site.cluster().scale("web", |replicas| replicas.saturating_add(more));
    }

    /// Somebody edits the NodePool's template: what was known of its launches says nothing now.
    fn edit(&mut self) -> Found {
        let pool = self.region.site(&self.cluster).and_then(|site| {
            let mut pool = Value::clone(&*site.cluster().object(Kind::NodePool, "", "default")?);
            set(&mut pool, &["spec", "template", "metadata", "labels"], json!({"edited": "yes"}));
            site.cluster().apply(pool).ok()
        });
        self.seen.edited_at = self.region.now();
        for _ in 0..TOLD_WITHIN.as_mins() {
            self.look()?;
        }
        let pools = self.region.site(&self.cluster).map(|site| site.cluster().objects(Kind::NodePool));
        let told = pools.iter().flatten().any(|pool| health(pool) == Some("False"));
        if pool.is_none() || told {
            let text =
                "`NodeRegistrationHealthy` is False after an edit of the NodePool's template".to_owned();
            return Err((Invariant::NodesNotJoining, text));
        }
        Ok(())
    }

    /// Nodes join again: all pods run after the longest wait, and the condition says so.
    fn mend(&mut self) -> Found {
        let deadline = later(self.region.now(), OVER_WITHIN);
        while !waiting_pods(&self.region, &self.cluster).is_empty() {
            if self.region.now() > deadline {
                let waiting = waiting_pods(&self.region, &self.cluster).len();
                let text = format!("{waiting} pods wait {OVER_WITHIN:#} after nodes join again");
                return Err((Invariant::NodesNotJoining, text));
            }
            self.look()?;
        }
        self.pass(TOLD_WITHIN);
        self.look()?;
        let pools = self.region.site(&self.cluster).map(|site| site.cluster().objects(Kind::NodePool));
        for pool in pools.unwrap_or_default() {
            let told = health(&pool);
            if told != Some("True") {
                let text = format!("nodes join again, and `NodeRegistrationHealthy` is {told:?}");
                return Err((Invariant::NodesNotJoining, text));
            }
        }
        Ok(())
    }
}

fn world(seed: u64) -> Scenario {
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]});
    let mut pool = plain_pool(&["on-demand"], &disruption);
    let requirements = json!([
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": LARGE},
    ]);
    set(&mut pool, &["spec", "template", "spec", "requirements"], requirements);
    let web = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}],
            }},
        },
    });
    let objects = vec![node_class(CLUSTER), pool, web];
    small_region(format!("unjoined {seed}"), seed, vec![crate::world::cluster(CLUSTER, objects)])
}
