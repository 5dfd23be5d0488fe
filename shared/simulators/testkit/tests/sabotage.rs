//! Each invariant fails under its sabotage, and only there: an invariant that can't fail checks nothing.

use tenon_testkit::{
    FirstWakes, HistoryPace, Invariant, Sabotage, SimulationOptions, Violation, drought, hostile, simulate,
    simulate_digest, storm, turns, unjoined,
};

/// Breaks that histories show: for each a test, the sabotage, the invariant that finds it, the pace, the steps, and the seed
/// from which on it is looked for. That only saves time: the first seed that finds it is told by `--nocapture`.
macro_rules! breaks {
    ($($test:ident: $sabotage:ident, $invariant:ident, $pace:ident, $steps:literal, $from:literal;)*) => {
        const BREAKS: &[(Sabotage, Invariant)] = &[$((Sabotage::$sabotage, Invariant::$invariant)),*];

        mod breaks {
            use super::*;

            $(#[test]
            fn $test() {
                check_history((Sabotage::$sabotage, Invariant::$invariant), HistoryPace::$pace, $steps, $from);
            })*
        }
    };
}

breaks! {
    instance_dealt_twice: InstanceDealtTwice, OneInstancePerClaim, Quick, 60, 0;
    extra_instances: ExtraInstances, NothingUnowned, Slow, 200, 0;
    fresh_tokens: FreshTokens, NothingUnowned, Slow, 200, 0;
    states_go_back: StatesGoBack, StatesGoForward, Quick, 100, 0;
    waits_forgotten: WaitsForgotten, ClaimsStep, Slow, 200, 49;
    empty_launches: EmptyLaunches, PodsRun, Quick, 3, 0;
    counts_forgotten: CountsForgotten, PodsCountedOnce, Quick, 60, 0;
    launches_lost: LaunchesLost, SettledStays, Quick, 30, 5;
    newest_flaps: NewestFlaps, DrainedHaveDrifted, Slow, 40, 5;
    roles_mixed_up: RolesMixedUp, AskedByOwnRole, Quick, 100, 0;
    pending_looks_available: PendingLooksAvailable, ImagesAvailable, Slow, 60, 0;
    going_not_counted: GoingNotCounted, BudgetsHold, Slow, 60, 0;
    cluster_budget_unseen: ClusterBudgetUnseen, ClusterBudgetHolds, Slow, 60, 2;
    cluster_pause_unseen: ClusterPauseUnseen, PausesHold, Slow, 60, 0;
    pool_pauses_unseen: PoolPausesUnseen, PausesHold, Fair, 120, 0;
    paused_not_undone: PausedNotUndone, PausesGiveBack, Fair, 200, 78;
    expiry_unseen: ExpiryUnseen, ExpiredNodesGo, Slow, 200, 21;
    budgets_of_pods_ignored: BudgetsOfPodsIgnored, PodBudgetsHold, Slow, 60, 0;
    journal_lost: JournalLost, JournalExplains, Quick, 60, 0;
    memory_doubled: MemoryDoubled, LearnedWithinStated, Quick, 60, 0;
    images_mixed_up: ImagesMixedUp, LearnedIsReported, Quick, 60, 0;
    claims_overfilled: ClaimsOverfilled, PlannedMemoryIsThere, Quick, 60, 0;
    shifts_unseen: ShiftsUnseen, ShiftedZonesLeftAlone, Slow, 100, 1;
    deletions_untainted: DeletionsUntainted, DeletedAreTainted, Quick, 100, 0;
    strangers_owned: StrangersOwned, ImagesSelected, Quick, 60, 1;
    refusals_untold: RefusalsUntold, NothingSilent, Quick, 60, 0;
    ready_anyway: ReadyAnyway, ConditionsAgree, Quick, 60, 0;
    lost_profiles_remembered: LostProfilesRemembered, ReadyAgain, Quick, 60, 2;
    denials_last: DenialsLast, ReadyAgain, Fair, 60, 11;
    failures_forgotten: FailuresForgotten, FailedPassedOver, Fair, 160, 47;
    policy_ignored: PolicyIgnored, ImagesAccepted, Slow, 100, 6;
    retags_unseen: RetagsUnseen, NewestTaken, Quick, 30, 28;
    emptied_forgotten: EmptiedForgotten, EmptyNodesGo, Slow, 60, 15;
    leaving_unseen: LeavingUnseen, ConsolidateAfterHolds, Long, 120, 73;
    dear_types: DearTypes, ConsolidationSaves, Quick, 60, 1;
    undone_forgotten: UndoneForgotten, DisruptingIsHeld, Quick, 60, 52;
    commands_insist: CommandsInsist, UnreplacedGivenBack, Slow, 200, 43;
    drains_forgotten: DrainsForgotten, CommandsEnd, Fair, 200, 0;
    finishes_forgotten: FinishesForgotten, CommandsEnd, Fair, 200, 0;
    hashes_mixed_up: HashesMixedUp, DrainedHaveDrifted, Fair, 120, 0;
    evicted_at_once: EvictedAtOnce, ReplacementFirst, Slow, 100, 102;
    volumes_unseen: VolumesUnseen, VolumesDetached, Slow, 60, 0;
    deregistration_unseen: DeregistrationUnseen, DeregistrationWaited, Slow, 60, 0;
    sickness_unseen: SicknessUnseen, SickNodesGo, Fair, 200, 22;
    classes_unheld: ClassesUnheld, ClassesOutlastClaims, Slow, 60, 8;
    impairment_unseen: ImpairmentUnseen, ImpairedNodesGo, Fair, 200, 13;
    bounds_unseen: BoundsUnseen, ClusterBoundsHold, Quick, 60, 7;
    permissions_unseen: PermissionsUnseen, ClusterBoundsHold, Quick, 60, 7;
    nodes_stay_closed: NodesStayClosed, OpenedInTime, Quick, 60, 0;
    strangers_adopted: StrangersAdopted, RestoreKillsNothing, Restored, 200, 15;
}

/// The break that a history of its own shows, with its arrivals of pods.
const STORM: (Sabotage, Invariant, u32) = (Sabotage::StepsRaiseRevision, Invariant::NoStarvation, 6);
/// Breaks that droughts show, with their steps.
const DROUGHTS: [(Sabotage, Invariant, u32); 4] = [
    (Sabotage::StormsCountEach, Invariant::HoldsBounded, 200),
    (Sabotage::ClearsLost, Invariant::MarksClear, 200),
    (Sabotage::ProbesUnleased, Invariant::OneProbe, 100),
    (Sabotage::LastResortLost, Invariant::NobodyWaitsLonger, 300),
];
/// Breaks that turns of the image show, with their number.
const TURNS: [(Sabotage, Invariant, u32); 2] = [
    (Sabotage::UnneededForgotten, Invariant::TemplatesFew, 1),
    (Sabotage::TemplatesStayListed, Invariant::TemplatesThere, 2),
];
/// The break that hours without a Node that joins show, with their number.
const UNJOINED: (Sabotage, Invariant, u32) = (Sabotage::TimeoutsForgotten, Invariant::NodesNotJoining, 2);
/// Breaks that a hostile cluster shows, with its deeds.
const HOSTILE: [(Sabotage, Invariant, u32); 3] = [
    (Sabotage::PoisonStops, Invariant::NeighboursUndisturbed, 12),
    (Sabotage::SnapshotsMixedUp, Invariant::NeighboursUndisturbed, 30),
    (Sabotage::StrangersAllowed, Invariant::NothingBorrowed, 30),
];
/// Breaks that first wakes show.
const FIRST_WAKES: [(Sabotage, Invariant); 2] =
    [(Sabotage::EmptyBelieved, Invariant::EvidenceHeld), (Sabotage::StatesGoBack, Invariant::OrdersAgree)];

/// The number of seeds to try: not every history reaches the broken code.
const SEEDS: u64 = 64;

/// Finds the invariant among the seeds, and plays the seed that found it with whole code.
fn check(sabotage: Sabotage, expected: Invariant, play: impl Fn(u64, Option<Sabotage>) -> Option<Violation>) {
    let finds = |seed: &u64| play(*seed, Some(sabotage)).is_some_and(|found| found.invariant == expected);
    let seed = (0..SEEDS).find(finds);
    assert!(seed.is_some(), "{sabotage:?} is found by {expected:?} in none of {SEEDS} seeds");
    println!("{sabotage:?} is found in seed {seed:?}");
    let whole = seed.and_then(|seed| play(seed, None));
    assert_eq!(whole, None, "seed {seed:?} with whole code, for {sabotage:?}");
}

/// The same for a history, of which whole code plays what the break needed.
fn check_history((sabotage, expected): (Sabotage, Invariant), pace: HistoryPace, steps: u32, from: u64) {
    let play = |seed, steps, sabotage| {
        simulate(SimulationOptions { seed, steps, sabotage, pace: Some(pace) }).err().map(|found| *found)
    };
    let broken = |seed| play(seed, steps, Some(sabotage)).filter(|found| found.invariant == expected);
    let found = (from..from + SEEDS).find_map(|seed| Some((seed, broken(seed)?)));
    assert!(found.is_some(), "{sabotage:?} is found by {expected:?} in none of {SEEDS} seeds from {from}");
    let Some((seed, violation)) = found else { return };
    println!("{sabotage:?} is found in seed {seed}, step {}", violation.step);
    let whole = play(seed, steps.min(violation.step), None);
    assert_eq!(whole, None, "seed {seed} with whole code, for {sabotage:?}");
}

#[test]
fn steps_that_count_as_decisions_starve_the_provisioner() {
    let (sabotage, expected, steps) = STORM;
    check(sabotage, expected, |seed, sabotage| {
        storm(SimulationOptions { seed, steps, sabotage, pace: None }).err().map(|found| *found)
    });
}

#[test]
fn droughts_find_what_their_invariants_are_for() {
    for (sabotage, expected, steps) in DROUGHTS {
        check(sabotage, expected, |seed, sabotage| {
            drought(SimulationOptions { seed, steps, sabotage, pace: None }).err().map(|found| *found)
        });
    }
}

#[test]
fn turns_find_what_their_invariants_are_for() {
    for (sabotage, expected, steps) in TURNS {
        check(sabotage, expected, |seed, sabotage| {
            turns(SimulationOptions { seed, steps, sabotage, pace: None }).err().map(|found| *found)
        });
    }
}

#[test]
fn nodes_that_do_not_join_find_what_their_invariant_is_for() {
    let (sabotage, expected, steps) = UNJOINED;
    check(sabotage, expected, |seed, sabotage| {
        unjoined(SimulationOptions { seed, steps, sabotage, pace: None }).err().map(|found| *found)
    });
}

/// Long enough for the longest wait; with calls that take no time, and with slow ones.
#[test]
fn a_pool_waits_for_hours_and_launches_once_nodes_join_again() {
    for seed in 0..4 {
        let options = SimulationOptions { seed, steps: 7, sabotage: None, pace: None };
        assert_eq!(unjoined(options), Ok(()));
    }
}

#[test]
fn a_hostile_cluster_finds_what_its_invariants_are_for() {
    for (sabotage, expected, steps) in HOSTILE {
        check(sabotage, expected, |seed, sabotage| {
            hostile(SimulationOptions { seed, steps, sabotage, pace: None }).err().map(|found| *found)
        });
    }
}

/// Every fault happens beside the deletions.
#[test]
fn no_launch_fails_for_a_deleted_template_among_faults() {
    let options = SimulationOptions { seed: 1, steps: 2, sabotage: None, pace: None };
    assert_eq!(turns(options), Ok(()));
}

#[test]
fn first_wakes_find_what_their_invariants_are_for() {
    for (sabotage, expected) in FIRST_WAKES {
        check(sabotage, expected, |seed, sabotage| {
            FirstWakes::random(seed, sabotage).check().err().map(|found| *found)
        });
    }
}

#[test]
fn every_break_and_every_invariant_is_in_the_list() {
    let listed = || BREAKS.iter().map(|(sabotage, invariant)| (sabotage, invariant));
    let of_first_wakes = || FIRST_WAKES.iter().map(|(sabotage, invariant)| (sabotage, invariant));
    let of_droughts = || DROUGHTS.iter().map(|(sabotage, invariant, _)| (sabotage, invariant));
    let of_turns = || TURNS.iter().map(|(sabotage, invariant, _)| (sabotage, invariant));
    let of_hostile = || HOSTILE.iter().map(|(sabotage, invariant, _)| (sabotage, invariant));
    let of_histories = || of_first_wakes().chain(of_droughts()).chain(of_turns()).chain(of_hostile());
    let alone = [(&STORM.0, &STORM.1), (&UNJOINED.0, &UNJOINED.1)];
    let all = || listed().chain(alone).chain(of_histories());
    for sabotage in Sabotage::ALL {
        assert!(all().any(|(listed, _)| *listed == sabotage), "{sabotage:?}");
    }
    for invariant in Invariant::ALL {
        assert!(all().any(|(_, listed)| *listed == invariant), "{invariant:?}");
    }
}

#[test]
fn one_seed_is_one_history() {
    for pace in [HistoryPace::Quick, HistoryPace::Slow] {
        let options = SimulationOptions { seed: 11, steps: 60, sabotage: None, pace: Some(pace) };
        let first = simulate_digest(options).unwrap();
        assert_eq!(simulate_digest(options).unwrap(), first);
        assert_ne!(simulate_digest(SimulationOptions { seed: 12, ..options }).unwrap().1, first.1);
    }
}
