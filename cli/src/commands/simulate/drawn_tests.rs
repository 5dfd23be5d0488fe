//! Drawn and mutated manifests through the whole of a simulation: reader, planner, documents. Whatever the text is, the
//! answer comes soon: a plan that names each pod once, or errors that say where and what.
//!
//! `TENON_DRAWN_CASES` sets the number of texts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;
use tenon_domain::id::Region;
use tenon_domain::manifest::{objects, read_files};

use super::document::Simulation;
use super::explain::Explanation;
use super::*;

/// Good documents; the drawn texts are made from them.
const SEEDS: &str = include_str!("drawn_seeds.yaml");
/// A few types keep a case short.
const TYPES: [&str; 6] = ["m5.large", "m5.xlarge", "c7g.large", "t3.micro", "g4dn.xlarge", "m5.metal"];
/// Texts of a usual run: about 5 s.
const CASES: u32 = 2500;
/// No text takes that long, unless planning has no bound.
const LONGEST: Duration = Duration::from_secs(20);

/// Values that readers and planners stumble over.
const NASTY: [&str; 40] = [
    "",
    "~",
    "null",
    "0",
    "-0",
    "-1",
    "1",
    "2",
    "7",
    "300",
    "0.5",
    "1e3",
    "1e-9",
    "1e999",
    ".inf",
    ".nan",
    "true",
    "no",
    "[]",
    "{}",
    "[1, a]",
    "{a: b}",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "4294967296",
    "2147483647",
    "1n",
    "1Ei",
    "9999999Ei",
    "0.0000000001",
    "100m",
    "!!str 1",
    "&a x",
    "*a",
    "\"\"",
    "\"a b\"",
    "topology.kubernetes.io/zone",
    "kubernetes.io/hostname",
    "karpenter.sh/capacity-type",
];

/// One change of a text.
#[derive(Debug, Clone)]
enum Mutation {
    /// A line goes.
    Drop(usize),
    /// A line is there twice.
    Twice(usize),
    /// Two lines change places.
    Swap(usize, usize),
    /// A line moves to the right or left.
    Indent(usize, usize),
    /// What follows a line's colon is another value.
    Value(usize, usize),
    /// A character somewhere.
    Insert(usize, char),
    /// The rest of the text is missing.
    Cut(usize),
    /// One scalar of one object becomes another value; the text stays good YAML.
    Scalar(usize, usize),
    /// One scalar of an object becomes one of the same object.
    Confuse(usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<u16>().prop_map(usize::from);
    let pair = (index.clone(), index.clone());
    prop_oneof![
        1 => index.clone().prop_map(Mutation::Drop),
        1 => index.clone().prop_map(Mutation::Twice),
        1 => pair.clone().prop_map(|(a, b)| Mutation::Swap(a, b)),
        1 => pair.clone().prop_map(|(a, b)| Mutation::Indent(a, b)),
        2 => pair.clone().prop_map(|(a, b)| Mutation::Value(a, b)),
        1 => (index.clone(), any::<char>()).prop_map(|(a, b)| Mutation::Insert(a, b)),
        1 => index.prop_map(Mutation::Cut),
        8 => pair.clone().prop_map(|(a, b)| Mutation::Scalar(a, b)),
        4 => pair.prop_map(|(a, b)| Mutation::Confuse(a, b)),
    ]
}

fn at<T>(all: &[T], index: usize) -> Option<&T> {
    all.get(index.checked_rem(all.len())?)
}

/// The scalars of a value, in order.
fn scalars<'v>(value: &'v mut Value, into: &mut Vec<&'v mut Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| scalars(item, into)),
        Value::Object(fields) => fields.values_mut().for_each(|field| scalars(field, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => into.push(value),
    }
}

fn mutate(text: String, mutation: &Mutation) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // A change may have emptied the text.
    if lines.is_empty() {
        return text;
    }
    let count = lines.len();
    match *mutation {
        Mutation::Drop(line) => drop(lines.remove(line % count)),
        Mutation::Twice(line) => lines.insert(line % count, lines[line % count].clone()),
        Mutation::Swap(a, b) => lines.swap(a % count, b % count),
        Mutation::Indent(line, by) => lines[line % count].insert_str(0, &" ".repeat(by % 5)),
        Mutation::Value(line, value) => {
            let line = &mut lines[line % count];
            let key = line.split_once(": ").map(|(key, _)| key.to_owned());
            *line = key.map_or_else(|| line.clone(), |key| format!("{key}: {}", NASTY[value % NASTY.len()]));
        }
        Mutation::Insert(place, character) => {
            let line = &mut lines[place % count];
            let place = line.char_indices().map(|(place, _)| place).nth(place % (line.chars().count() + 1));
            line.insert(place.unwrap_or(line.len()), character);
        }
        Mutation::Cut(line) => lines.truncate(line % count + 1),
        Mutation::Scalar(which, value) | Mutation::Confuse(which, value) => {
            let mut all = objects("", &text);
            let mut found = Vec::new();
            all.iter_mut().for_each(|object| scalars(object, &mut found));
            let other = if let Mutation::Confuse(..) = mutation {
                at(&found, value).map(|one| (**one).clone())
            } else {
                let nasty = objects("", &format!("a: {}", NASTY[value % NASTY.len()]));
                nasty.first().map(|one| one["a"].clone())
            };
            let place = which.checked_rem(found.len());
            if let (Some(place), Some(other)) = (place, other) {
                *found[place] = other;
            }
            // JSON is YAML.
            return all.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n");
        }
    }
    lines.join("\n")
}

fn catalog() -> RegionCatalog {
    let region = Region::parse("us-east-1").unwrap();
    let mut catalog = RegionCatalog::built_in(&region, TypesScope::ForNodes).unwrap();
    catalog.types.retain(|name, _| TYPES.contains(&name.as_str()));
    catalog.offerings.offered.retain(|name, _| TYPES.contains(&name.as_str()));
    catalog.with_spot()
}

/// Whether the text was planned; panics on an answer that no user should see.
fn check(catalog: &RegionCatalog, text: &str) -> bool {
    let started = Instant::now();
    let planned = match read_files(&[("drawn.yaml", text)]) {
        Err(errors) => {
            assert!(!errors.0.is_empty());
            for error in &errors.0 {
                assert!(error.file == "drawn.yaml" && !error.message.is_empty(), "{error:?}");
                assert!(!error.remedy.is_empty(), "no remedy: {error}");
            }
            false
        }
        Ok(read) => match simulate_read(read, catalog, &SchedulingSettings::default()) {
            Err(failure) => {
                assert!(failure.0.iter().all(|problem| !problem.remedy.is_empty()), "{failure:?}");
                false
            }
            Ok(simulated) => {
                each_pod_is_told_once(&simulated);
                if let Some(pod) = simulated.input.pods.first() {
                    let explained = Explanation::of(&simulated, &pod.name.to_string());
                    assert!(!explained.unwrap().text().is_empty());
                }
                let document = Simulation::new(&simulated, None);
                assert!(!table::text(&document, Some(&document)).is_empty());
                assert!(!output::document_text(OutputFormat::Json, &document).is_empty());
                true
            }
        },
    };
    assert!(started.elapsed() < LONGEST, "{:?} for\n{text}", started.elapsed());
    planned
}

fn each_pod_is_told_once(simulated: &Simulated) {
    let Simulated { input, plan, report, .. } = simulated;
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    let claimed = plan.claims.iter().flat_map(|claim| &claim.pods);
    let placed = plan.placements.iter().map(|placed| &placed.pod);
    let refused = report.unschedulable.iter().map(|refused| &refused.pod);
    for pod in claimed.chain(placed).chain(refused) {
        *told.entry(pod.name.to_string()).or_default() += 1;
    }
    let expected: BTreeMap<String, usize> = input.pods.iter().map(|pod| (pod.name.to_string(), 1)).collect();
    assert_eq!(told, expected);
}

#[test]
fn any_text_gets_a_plan_or_errors_soon() {
    let given = std::env::var("TENON_DRAWN_CASES").ok().and_then(|cases| cases.parse().ok());
    let cases = given.unwrap_or(CASES);
    let catalog = catalog();
    assert!(check(&catalog, SEEDS), "the seeds are good");
    let seeds: Vec<&str> = SEEDS.split("---\n").collect();
    let drawn = (
        proptest::sample::subsequence(seeds.clone(), 1..=seeds.len()),
        proptest::collection::vec(mutation(), 0..4),
    );
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    // The usual run draws the same texts each time; a longer run begins with the same ones.
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let planned = std::cell::Cell::new(0_u32);
    runner
        .run(&drawn, |(documents, mutations)| {
            let text = mutations.iter().fold(documents.join("---\n"), mutate);
            planned.set(planned.get() + u32::from(check(&catalog, &text)));
            Ok(())
        })
        .unwrap();
    assert!(planned.get() > cases / 5, "only {} of {cases} texts reached the planner", planned.get());
}
