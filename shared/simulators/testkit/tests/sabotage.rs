//! Each invariant fails under its sabotage, and only there: an invariant that can't fail checks nothing.

use tenon_testkit::{
    FirstWakes, HistoryPace, Invariant, Sabotage, SimulationOptions, Violation, drought, simulate,
    simulate_digest, storm, turns,
};

/// A sabotage, the invariant that finds it, and its pace.
const BREAKS: &[(Sabotage, Invariant, HistoryPace, u32)] = &[
    (Sabotage::InstanceDealtTwice, Invariant::OneInstancePerClaim, HistoryPace::Quick, 60),
    (Sabotage::ExtraInstances, Invariant::NothingUnowned, HistoryPace::Slow, 200),
    (Sabotage::FreshTokens, Invariant::NothingUnowned, HistoryPace::Slow, 200),
    (Sabotage::StatesGoBack, Invariant::StatesGoForward, HistoryPace::Quick, 100),
    (Sabotage::EmptyLaunches, Invariant::PodsRun, HistoryPace::Quick, 3),
    (Sabotage::CountsForgotten, Invariant::PodsCountedOnce, HistoryPace::Quick, 60),
    (Sabotage::LaunchesLost, Invariant::SettledStays, HistoryPace::Quick, 15),
    (Sabotage::NewestFlaps, Invariant::SettledStays, HistoryPace::Slow, 40),
    (Sabotage::PendingLooksAvailable, Invariant::ImagesAvailable, HistoryPace::Slow, 60),
    (Sabotage::GoingNotCounted, Invariant::BudgetsHold, HistoryPace::Slow, 60),
    (Sabotage::BudgetsOfPodsIgnored, Invariant::PodBudgetsHold, HistoryPace::Slow, 60),
    (Sabotage::JournalLost, Invariant::JournalExplains, HistoryPace::Quick, 60),
    (Sabotage::MemoryDoubled, Invariant::LearnedWithinStated, HistoryPace::Quick, 60),
    (Sabotage::ImagesMixedUp, Invariant::LearnedIsReported, HistoryPace::Quick, 60),
    (Sabotage::ClaimsOverfilled, Invariant::PlannedMemoryIsThere, HistoryPace::Quick, 60),
    (Sabotage::ShiftsUnseen, Invariant::ShiftedZonesLeftAlone, HistoryPace::Slow, 100),
    (Sabotage::DeletionsUntainted, Invariant::DeletedAreTainted, HistoryPace::Quick, 100),
    (Sabotage::StrangersOwned, Invariant::ImagesSelected, HistoryPace::Quick, 60),
    (Sabotage::RefusalsUntold, Invariant::NothingSilent, HistoryPace::Quick, 60),
    (Sabotage::ReadyAnyway, Invariant::ConditionsAgree, HistoryPace::Quick, 60),
    (Sabotage::LostProfilesRemembered, Invariant::ReadyAgain, HistoryPace::Quick, 60),
    (Sabotage::DenialsLast, Invariant::ReadyAgain, HistoryPace::Fair, 60),
    (Sabotage::FailuresForgotten, Invariant::FailedPassedOver, HistoryPace::Fair, 60),
    (Sabotage::PolicyIgnored, Invariant::ImagesAccepted, HistoryPace::Quick, 100),
    (Sabotage::RetagsUnseen, Invariant::NewestTaken, HistoryPace::Quick, 30),
    (Sabotage::StrangersAdopted, Invariant::RestoreKillsNothing, HistoryPace::Restored, 200),
];
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
/// Breaks that first wakes show.
const FIRST_WAKES: [(Sabotage, Invariant); 2] =
    [(Sabotage::EmptyBelieved, Invariant::EvidenceHeld), (Sabotage::StatesGoBack, Invariant::OrdersAgree)];

/// The number of seeds to try: not every history reaches the broken code.
const SEEDS: u64 = 24;

/// Finds the invariant among the seeds, and plays the seed that found it with whole code.
fn check(sabotage: Sabotage, expected: Invariant, play: impl Fn(u64, Option<Sabotage>) -> Option<Violation>) {
    let finds = |seed: &u64| play(*seed, Some(sabotage)).is_some_and(|found| found.invariant == expected);
    let seed = (0..SEEDS).find(finds);
    assert!(seed.is_some(), "{sabotage:?} is found by {expected:?} in none of {SEEDS} seeds");
    let whole = seed.and_then(|seed| play(seed, None));
    assert_eq!(whole, None, "seed {seed:?} with whole code, for {sabotage:?}");
}

#[test]
fn every_break_is_found_by_its_invariant() {
    for (sabotage, expected, pace, steps) in BREAKS {
        check(*sabotage, *expected, |seed, sabotage| {
            let options = SimulationOptions { seed, steps: *steps, sabotage, pace: Some(*pace) };
            simulate(options).err().map(|found| *found)
        });
    }
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
    let listed = || BREAKS.iter().map(|(sabotage, invariant, ..)| (sabotage, invariant));
    let of_first_wakes = || FIRST_WAKES.iter().map(|(sabotage, invariant)| (sabotage, invariant));
    let of_droughts = || DROUGHTS.iter().map(|(sabotage, invariant, _)| (sabotage, invariant));
    let of_turns = || TURNS.iter().map(|(sabotage, invariant, _)| (sabotage, invariant));
    let of_histories = || of_first_wakes().chain(of_droughts()).chain(of_turns());
    let all = || listed().chain([(&STORM.0, &STORM.1)]).chain(of_histories());
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
