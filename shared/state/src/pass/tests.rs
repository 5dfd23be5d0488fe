//! Passes of a function that only refuses: its findings, and when they are told again.

use tenon_domain::journal::{Subject, SubjectKind};
use tenon_domain::report::Finding;
use tenon_harness::{EPOCH, FunctionWorld, RungBell, WorldConfig};
use tenon_memory_table::block_on;
use tenon_table::Consistency;
use tenon_table::items::{ToldFindings, from_item};

use super::*;

/// Refuses these pods, and fails at its commit on request.
struct Refusing<'a> {
    world: &'a FunctionWorld,
    cluster: ClusterName,
    pods: Vec<(&'static str, &'static str)>,
    commit: Result<AfterCommit, ()>,
    wake_at: Option<Timestamp>,
}

impl Refusing<'_> {
    fn of(world: &FunctionWorld, pods: &[(&'static str, &'static str)]) -> Vec<String> {
        let (pods, cluster) = (pods.to_vec(), "prod".parse().unwrap());
        block_on(run(&Refusing { world, cluster, pods, commit: Ok(AfterCommit::Settled), wake_at: None }))
            .unwrap();
        told(world)
    }
}

impl Pass for Refusing<'_> {
    type Ports = FunctionWorld;
    type Input = Option<SeenRecord>;
    type Plan = ();
    type Done = ();

    fn ports(&self) -> &FunctionWorld {
        self.world
    }

    fn function(&self) -> FunctionName {
        FunctionName::Provisioner
    }

    fn of(&self) -> Of<'_> {
        Of::Cluster(&self.cluster)
    }

    async fn observe(&self, (): &mut ()) -> Result<Option<Option<SeenRecord>>, HandlerError> {
        let key = keys::seen(&self.cluster, FunctionName::Provisioner);
        let item = self.world.table.get(&key, Consistency::Strong).await?;
        Ok(Some(item.map(|item| from_item(&key, &item).unwrap())))
    }

    fn plan(&self, _: &Option<SeenRecord>) -> ((), Report) {
        let mut report = Report::default();
        for (pod, why) in &self.pods {
            let subject = Subject { kind: SubjectKind::Pod, name: (*pod).to_owned() };
            let finding = Finding::refused(subject, "NoOffering", "no node for {}", *why);
            report.tell(match why.split_once(", next try at ") {
                Some((cause, at)) => finding.condition(cause).next_try(at.parse().ok()),
                None => finding.condition(*why),
            });
        }
        ((), report)
    }

    async fn commit(&self, _: &Option<SeenRecord>, (): (), (): &mut ()) -> Result<AfterCommit, HandlerError> {
        self.commit.map_err(|()| HandlerError::Waiting("the table is away".to_owned()))
    }

    async fn execute(&self, _: &Option<SeenRecord>, (): &mut ()) -> Result<(), HandlerError> {
        Ok(())
    }

    fn end(&self, before: Option<SeenRecord>, (): &()) -> End {
        End { seen: Some(SeenOf { before, ..SeenOf::default() }), wake_at: self.wake_at }
    }
}

fn world() -> FunctionWorld {
    FunctionWorld::new(&WorldConfig::default()).unwrap()
}

/// The log's lines since the last call; the journal has as many.
fn told(world: &FunctionWorld) -> Vec<String> {
    world.signals.take_log().into_iter().map(|record| record.message).collect()
}

fn records(world: &FunctionWorld) -> usize {
    world.table.dump().filter(|(key, _)| key.pk.starts_with("JOURNAL#prod#pod#")).count()
}

fn shown(world: &FunctionWorld) -> Option<ToldFindings> {
    let key = keys::told(&"prod".parse().unwrap(), FunctionName::Provisioner);
    world.table.peek(&key).map(|item| from_item(&key, &item).unwrap())
}

#[test]
fn a_refusal_is_told_once_and_again_after_an_hour() {
    let world = world();
    let first = ["no node for pod `a`: full"];
    assert_eq!(Refusing::of(&world, &[("a", "full")]), first);
    assert_eq!((records(&world), shown(&world).unwrap().findings.len()), (1, 1));
    world.clock.advance(SignedDuration::from_mins(59));
    assert_eq!(Refusing::of(&world, &[("a", "full")]), [""; 0]);
    world.clock.advance(SignedDuration::from_mins(1));
    assert_eq!(Refusing::of(&world, &[("a", "full")]), first);
    assert_eq!(records(&world), 2);
    let finding = &shown(&world).unwrap().findings[0];
    assert_eq!((finding.since, finding.told_at), (EPOCH, EPOCH + SignedDuration::from_hours(1)));
}

#[test]
fn only_what_changed_is_told_and_what_is_over_is_shown_no_more() {
    let world = world();
    let _ = Refusing::of(&world, &[("a", "full")]);
    world.clock.advance(SignedDuration::from_mins(1));
    assert_eq!(Refusing::of(&world, &[("a", "full"), ("b", "tainted")]), ["no node for pod `b`: tainted"]);
    assert_eq!(shown(&world).unwrap().findings.len(), 2);
    assert_eq!(Refusing::of(&world, &[("b", "tainted")]), [""; 0]);
    assert_eq!(shown(&world).unwrap().findings.len(), 1);
    assert_eq!(Refusing::of(&world, &[]), [""; 0]);
    assert_eq!(shown(&world).unwrap().findings, []);
    // After it was over it is news again.
    assert_eq!(Refusing::of(&world, &[("a", "full")]), ["no node for pod `a`: full"]);
}

#[test]
fn another_time_of_the_next_try_is_shown_and_not_told() {
    let world = world();
    let first = "full, next try at 2026-01-01T00:03:00Z";
    let second = "full, next try at 2026-01-01T00:06:00Z";
    let message = |world: &FunctionWorld| shown(world).unwrap().findings[0].message.clone();
    assert_eq!(Refusing::of(&world, &[("a", first)]), [format!("no node for pod `a`: {first}")]);
    world.clock.advance(SignedDuration::from_mins(3));
    assert_eq!(Refusing::of(&world, &[("a", second)]), [""; 0]);
    assert_eq!((records(&world), message(&world)), (1, format!("no node for pod `a`: {second}")));
    let finding = shown(&world).unwrap().findings.remove(0);
    assert_eq!((finding.since, finding.told_at), (EPOCH, EPOCH));
    // Another cause is news.
    let other = "no quota, next try at 2026-01-01T00:06:00Z";
    assert_eq!(Refusing::of(&world, &[("a", other)]), [format!("no node for pod `a`: {other}")]);
}

#[test]
fn a_try_that_fails_is_told_once_an_hour() {
    let world = world();
    let full = |minutes: i64| {
        let at = EPOCH + SignedDuration::from_mins(minutes);
        let why: &'static str = format!("full, next try at {at}").leak();
        Refusing::of(&world, &[("a", why)])
    };
    assert_eq!(full(3).len(), 1);
    for minutes in [10, 30] {
        world.clock.advance(SignedDuration::from_mins(10));
        assert_eq!(Refusing::of(&world, &[]), [""; 0]);
        assert_eq!(shown(&world).unwrap().findings, [], "it is tried");
        assert_eq!(full(minutes), [""; 0]);
        assert_eq!(shown(&world).unwrap().findings[0].since, EPOCH);
    }
    assert_eq!(Refusing::of(&world, &[]), [""; 0]);
    world.clock.advance(SignedDuration::from_mins(40));
    assert_eq!(full(70).len(), 1);
    assert_eq!(shown(&world).unwrap().resting, []);
}

#[test]
fn what_is_refused_is_looked_at_again_within_the_hour() {
    let world = world();
    let _ = Refusing::of(&world, &[("a", "full")]);
    let key = keys::seen(&"prod".parse().unwrap(), FunctionName::Provisioner);
    let seen: SeenRecord = from_item(&key, &world.table.peek(&key).unwrap()).unwrap();
    assert_eq!(seen.deadline, Some(EPOCH + SignedDuration::from_hours(1)));
}

/// The message comes back, and may do so for long.
#[test]
fn a_pass_that_fails_tells_all_the_same_and_once() {
    let world = world();
    let fails = |pods| {
        let (world, cluster) = (&world, "prod".parse().unwrap());
        let pass = Refusing { world, cluster, pods, commit: Err(()), wake_at: None };
        assert!(block_on(run(&pass)).is_err());
        told(world)
    };
    assert_eq!(fails(vec![("a", "full")]), ["no node for pod `a`: full"]);
    assert_eq!(fails(vec![("a", "full")]), [""; 0]);
}

#[test]
fn a_pass_ends_after_its_rounds() {
    let world = world();
    let (pods, cluster) = (vec![("a", "full")], "prod".parse().unwrap());
    let pass = Refusing { world: &world, cluster, pods, commit: Ok(AfterCommit::LookAgain), wake_at: None };
    block_on(run(&pass)).unwrap();
    assert_eq!(told(&world).len(), 1);
    assert!(world.signals.take().iter().all(|rung| !matches!(rung, RungBell::Event(_))));
}

/// The delays of the messages that functions sent themselves since the last call.
fn delays(world: &FunctionWorld) -> Vec<SignedDuration> {
    let rung = world.signals.take().into_iter();
    rung.filter_map(|rung| match rung {
        RungBell::Wake { after, .. } => Some(after),
        RungBell::Event(_) | RungBell::Agent(_) => None,
    })
    .collect()
}

/// Sweeps of an unchanged world are no passes: none of them would plan the look anew.
#[test]
fn the_last_sweep_before_a_far_look_sends_its_message() {
    let (world, cluster): (_, ClusterName) = (world(), "prod".parse().unwrap());
    let ends = |at: Timestamp| {
        let (world, cluster, commit) = (&world, cluster.clone(), Ok(AfterCommit::Settled));
        block_on(run(&Refusing { world, cluster, pods: Vec::new(), commit, wake_at: Some(at) })).unwrap();
        let key = keys::seen(&"prod".parse().unwrap(), FunctionName::Provisioner);
        let seen: SeenRecord = from_item(&key, &world.table.peek(&key).unwrap()).unwrap();
        (delays(world), seen)
    };
    let near = EPOCH + WAKE_AT_MOST;
    let (sent, seen) = ends(near);
    assert_eq!((sent, seen.wake_at), (vec![WAKE_AT_MOST], None));
    let far = EPOCH + SignedDuration::from_mins(40);
    let (sent, seen) = ends(far);
    assert_eq!((sent, seen.wake_at), (Vec::new(), Some(far)));
    let wakes = |minutes: i64, causes: &[WakeCause]| {
        let heads = Heads {
            generations: seen.generations.clone(),
            seen: Some(seen.clone()),
            watch: crate::heads::Watch::Everything,
            pending_pods: 0,
            consistency: Consistency::Strong,
            catalog: tenon_table::items::CatalogMeta::default(),
            items: std::collections::BTreeMap::new(),
        };
        world.clock.advance((EPOCH + SignedDuration::from_mins(minutes)).duration_since(world.clock.now()));
        block_on(wake_when_due(&world, &cluster, &heads, causes));
        delays(&world)
    };
    assert_eq!(wakes(36, &[WakeCause::Sweep]), []);
    assert_eq!(wakes(37, &[WakeCause::SnapshotChanged]), []);
    assert_eq!(wakes(38, &[WakeCause::Sweep]), [SignedDuration::from_mins(2)]);
    assert_eq!(wakes(39, &[WakeCause::SnapshotChanged, WakeCause::Sweep]), [SignedDuration::from_mins(1)]);
    assert_eq!(wakes(40, &[WakeCause::Sweep]), []);
}
