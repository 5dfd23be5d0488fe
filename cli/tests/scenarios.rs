//! Every scenario of tests/scenarios matches its golden transcript, and `scenario` shows differences.
#![expect(clippy::unwrap_used, reason = "helpers of an integration test aren't inside #[test] functions")]

mod common;

use std::path::{Path, PathBuf};

use common::tenon;

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/scenarios");

fn scenario(files: &[&Path]) -> (Option<i32>, String) {
    let files = files.iter().map(|file| file.to_str().unwrap());
    let arguments: Vec<&str> = std::iter::once("scenario").chain(files).collect();
    let (status, out, errors) = tenon(&arguments, "");
    (status, out + &errors)
}

fn files(extension: &str) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(SCENARIOS).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|of| of == extension)).collect();
    files.sort();
    files
}

/// A directory of this test's own, with a scenario in it.
fn copied(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("mine.yaml");
    std::fs::copy(Path::new(SCENARIOS).join("empty-cluster.yaml"), &file).unwrap();
    file
}

#[test]
fn every_scenario_plays_as_its_golden_transcript_says() {
    let scenarios = files("yaml");
    let (status, text) = scenario(&scenarios.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    assert_eq!(status, Some(0), "`tenon scenario tests/scenarios/*.yaml` says:\n{text}");
    let of_goldens: Vec<PathBuf> =
        files("golden").iter().map(|golden| golden.with_extension("yaml")).collect();
    assert_eq!(of_goldens, scenarios, "each transcript has its scenario");
}

#[test]
fn a_difference_is_shown_and_blessed_away() {
    let file = copied("differs");
    let golden = file.with_extension("golden");
    let blessed = tenon(&["scenario", file.to_str().unwrap(), "--bless"], "");
    assert_eq!(blessed.0, Some(0), "{blessed:?}");
    assert_eq!(scenario(&[&file]).0, Some(0));

    let changed = std::fs::read_to_string(&golden).unwrap().replace("3 running", "4 running");
    std::fs::write(&golden, changed).unwrap();
    let (status, text) = scenario(&[&file]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("-    cluster demo: pods: 4 running"), "{text}");
    assert!(text.contains("+    cluster demo: pods: 3 running"), "{text}");

    std::fs::remove_file(&golden).unwrap();
    let (status, text) = scenario(&[&file]);
    assert_eq!((status, text.contains("`--bless` writes it")), (Some(1), true), "{text}");
}

#[test]
fn a_directory_is_its_scenarios() {
    let file = copied("directory");
    std::fs::copy(Path::new(SCENARIOS).join("empty-cluster.golden"), file.with_extension("golden")).unwrap();
    let directory = file.parent().unwrap();
    let (status, text) = scenario(&[directory]);
    assert_eq!((status, text.contains("mine.yaml")), (Some(0), true), "{text}");
    let empty = directory.join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    let (status, text) = scenario(&[&empty]);
    assert_eq!((status, text.contains("no `*.yaml` in this directory")), (Some(2), true), "{text}");
}

#[test]
fn types_and_zones_that_the_region_lacks_are_refused() {
    let file = copied("unknown-names").with_file_name("names.yaml");
    let check = |lines: &str, expected: &str| {
        std::fs::write(&file, format!("title: x\n{lines}\nsteps:\n  - run: 1m\n")).unwrap();
        let (status, text) = scenario(&[&file]);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    };
    check(
        "types: [m5.large, m5.huge]",
        "types[1]: `m5.huge` isn't an instance type that region `us-east-1` offers: did you mean `m5.",
    );
    check("types: [m5.lagre]", "did you mean `m5.large`?");
    check(
        "zones: [us-east-9z]",
        "zones[0]: `us-east-9z` isn't a zone of region `us-east-1`: did you mean `us-east-1a`, `us-east-1b`",
    );
}

#[test]
fn types_and_zones_of_steps_that_the_scenario_lacks_are_refused() {
    let file = copied("unknown-steps").with_file_name("steps.yaml");
    let check = |step: &str, expected: &str| {
        let begin = "title: x\ntypes: [m5.large, m6i.large]\nzones: [us-east-1a]\nsteps:\n  - run: 1m\n";
        std::fs::write(&file, format!("{begin}  - {step}\n")).unwrap();
        let (status, text) = scenario(&[&file]);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(&format!("steps.yaml:{expected}")), "{expected} in\n{text}");
    };
    check(
        "capacity: {instanceType: m5.lagre, capacityType: spot, left: 0}",
        "6: steps[1].capacity.instanceType: `m5.lagre` isn't one of the scenario's `types`: did you mean `m5.large`?",
    );
    check(
        "capacity: {instanceType: m5.large, zone: us-east-1b, capacityType: spot, left: 0}",
        "6: steps[1].capacity.zone: `us-east-1b` isn't one of the scenario's `zones`: did you mean `us-east-1a`?",
    );
    check(
        "withdraw-type: m7i.large",
        "6: steps[1].withdraw-type: `m7i.large` isn't one of the scenario's `types`",
    );
    check("end-shift: us-east-1b", "6: steps[1].end-shift: `us-east-1b` isn't");
    check(
        "repeat:\n      times: 2\n      steps:\n        - reported-memory: {instanceType: m5.lrage, mebibytes: 9}",
        "9: steps[1].repeat.steps[0].reported-memory.instanceType: `m5.lrage` isn't",
    );
}

#[test]
fn a_broken_scenario_is_named_and_the_others_are_played() {
    let file = copied("broken");
    let broken = file.with_file_name("broken.yaml");
    std::fs::write(&broken, "title: x\nsteps:\n  - rum: 10m\n").unwrap();
    let good = Path::new(SCENARIOS).join("empty-cluster.yaml");
    let (status, text) = scenario(&[&broken, &good]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("broken.yaml: scenario: unknown variant `rum`"), "{text}");
    assert!(text.contains("equal"), "{text}");
}
