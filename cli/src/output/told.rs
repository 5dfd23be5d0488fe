//! Decisions on one screen: what a claim is, then a line for each decision.
//!
//! Decides what of the details everybody asks first, and which records are told together. All details are in the other
//! formats.

use std::collections::BTreeMap;

use crate::state::Story;

/// Details that every reader asks for, with their words; the first record that has one tells it, and all that have the last
/// one.
const FACTS: [(&str, &str); 9] = [
    ("node", "Node"),
    ("instance", "instance"),
    ("pool", "NodePool"),
    ("image", "image"),
    ("pods", "for pods"),
    ("price", "planned at"),
    ("launchedPrice", "launched at"),
    ("instance_types", "types"),
    (EXHAUSTED, "no capacity for"),
];
/// The detail with what EC2 was known not to have at the plan, or refused at the launch.
const EXHAUSTED: &str = "exhausted";
/// The detail that says what allowed a disruption, told under its line.
const BUDGET: &str = "budget";
/// The currency of prices whose record doesn't say it.
const USD: &str = "USD";
/// The column of the messages.
const WIDTH: usize = 14;

/// The records of a story, newest last.
pub(crate) fn story(records: &[Story]) -> String {
    let mut text = String::new();
    for (kind, name) in subjects(records) {
        text += &facts(records, kind, name);
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let several = subjects(records).len() > 1;
    for (record, again) in lines(records) {
        text += &line(record, &again, several);
    }
    text
}

/// The subjects in the order of their first records.
fn subjects(records: &[Story]) -> Vec<(&str, &str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for record in records {
        let subject = (record.kind.as_str(), record.name.as_str());
        if !found.contains(&subject) {
            found.push(subject);
        }
    }
    found
}

/// What is known of a subject; nothing where no record says more than its name.
fn facts(records: &[Story], kind: &str, name: &str) -> String {
    let own = || records.iter().filter(|record| record.kind == kind && record.name == name);
    let detail = |key: &str| own().find_map(|record| record.details.get(key)).map(String::as_str);
    let mut told: Vec<(&str, String)> = Vec::new();
    for (key, word) in FACTS {
        let Some(value) = detail(key) else { continue };
        let value = match key {
            "instance" => ["instanceType", "zone", "capacityType"]
                .iter()
                .filter_map(|key| detail(key))
                .fold(value.to_owned(), |text, one| format!("{text}, {one}")),
            "price" => {
                let of = detail("instance_type").map(|of| format!(" for {of}")).unwrap_or_default();
                format!("{value} {} an hour{of}, the cheapest then", detail("currency").unwrap_or(USD))
            }
            "launchedPrice" => {
                let of = ["instanceType", "capacityType"].iter().filter_map(|key| detail(key));
                let of: Vec<&str> = of.collect();
                format!("{value} {} an hour for {}", detail("currency").unwrap_or(USD), of.join(", "))
            }
            "instance_types" => format!("{value}: {}", choice(detail("capacity_type"))),
            EXHAUSTED => exhausted(own().filter_map(|record| record.details.get(EXHAUSTED))),
            _ => value.to_owned(),
        };
        told.push((word, value));
    }
    if told.is_empty() {
        return String::new();
    }
    let mut text = format!("{kind} {name}\n");
    for (word, value) in told {
        text += &format!("  {word:<16}{value}\n");
    }
    text
}

/// Which of a claim's types EC2 gives.
fn choice(capacity_type: Option<&str>) -> &'static str {
    match capacity_type {
        Some("spot") => "of these EC2 chooses by price and spare capacity",
        _ => "the first, the cheapest, that EC2 has",
    }
}

/// What EC2 didn't have, each once.
fn exhausted<'a>(told: impl Iterator<Item = &'a String>) -> String {
    let mut named: Vec<&str> = Vec::new();
    for name in told.flat_map(|told| told.split(", ")) {
        if !named.contains(&name) {
            named.push(name);
        }
    }
    named.join(", ")
}

/// The records, each with the later ones that say the same: marks that come and go, refusals that are told again.
fn lines(records: &[Story]) -> Vec<(&Story, Vec<&Story>)> {
    let mut found: Vec<(&Story, Vec<&Story>)> = Vec::new();
    let mut said: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for record in records {
        let same = (record.name.as_str(), record.message.as_str());
        match said.get(&same).and_then(|at| found.get_mut(*at)) {
            Some((_, again)) => again.push(record),
            None => {
                said.insert(same, found.len());
                found.push((record, Vec::new()));
            }
        }
    }
    found
}

fn second(at: &str) -> String {
    at.split_once('.').map_or_else(|| at.to_owned(), |(second, _)| format!("{second}Z"))
}

/// How often it was told, when last, and whether it holds.
fn repeated(record: &Story, again: &[&Story]) -> String {
    let last = again.last().copied().unwrap_or(record);
    let mut told = Vec::new();
    if !again.is_empty() {
        told.push(format!("{} times, last at {}", again.len().saturating_add(1), second(&last.at)));
    }
    match last.holds {
        Some(true) => told.push("still so".to_owned()),
        Some(false) => told.push("no longer so".to_owned()),
        None => {}
    }
    if told.is_empty() { String::new() } else { format!(" ({})", told.join(", ")) }
}

fn line(record: &Story, again: &[&Story], several: bool) -> String {
    let Story { at, name, decision, message, details, .. } = record;
    let (second, again) = (second(at), repeated(record, again));
    let of = if several { format!("{name}: ") } else { String::new() };
    let mut text = format!("{second}  {decision:<WIDTH$}  {of}{message}{again}\n");
    if let Some(budget) = details.get(BUDGET) {
        text += &format!("{:22}{:WIDTH$}  {BUDGET}: {budget}\n", "", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(at: &str, decision: &str, message: &str, details: &[(&str, &str)]) -> Story {
        Story {
            at: format!("2026-01-01T00:{at}Z"),
            kind: "claim".to_owned(),
            name: "default-3k9x2".to_owned(),
            decision: decision.to_owned(),
            message: message.to_owned(),
            by: "disruption".to_owned(),
            details: details.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            evidence: BTreeMap::from([("snapshot".to_owned(), 1)]),
            holds: None,
        }
    }

    #[test]
    fn a_nodes_story_is_one_screen() {
        let told = story(&[
            record(
                "00:01",
                "Planned",
                "planned it",
                &[
                    ("pods", "a/web-1"),
                    ("price", "0.384"),
                    ("pool", "default"),
                    ("instance_type", "m5.xlarge"),
                    ("instance_types", "m5.xlarge, m5.large"),
                    ("exhausted", "m4.large on-demand in us-east-1a"),
                ],
            ),
            record(
                "00:02",
                "Launched",
                "launched it",
                &[
                    ("exhausted", "m4.large on-demand in us-east-1a, m5.xlarge on-demand in us-east-1a"),
                    ("capacityType", "on-demand"),
                    ("launchedPrice", "0.096"),
                ],
            ),
            record(
                "00:25.1",
                "Registered",
                "it registered",
                &[
                    ("node", "ip-10-0-0-4"),
                    ("instance", "i-0abc"),
                    ("instanceType", "m5.large"),
                    ("zone", "us-east-1a"),
                ],
            ),
            record("01:00", "Consolidatable", "it is underutilized", &[]),
            record("02:00", "Consolidatable", "it isn't any longer", &[]),
            record("03:00", "Consolidatable", "it is underutilized", &[]),
            record(
                "04:00",
                "Disrupting",
                "it drains when `default-mcjem` is ready",
                &[
                    ("budget", "allows 2 nodes at a time; before it, 0 were being disrupted or not ready"),
                    ("replacements", "default-mcjem"),
                ],
            ),
        ]);
        insta::assert_snapshot!(told);
    }

    #[test]
    fn a_refusal_that_is_told_again_says_when_last_and_whether_it_holds() {
        let check = |times: &[&str], holds: Option<bool>, expected: &str| {
            let refused = |at: &&str| Story { holds: Some(false), ..record(at, "Refused", "no", &[]) };
            let mut records: Vec<Story> = times.iter().map(refused).collect();
            records.last_mut().unwrap().holds = holds;
            assert_eq!(story(&records), expected);
        };
        let first = "2026-01-01T00:01:00Z  Refused         no";
        check(&["01:00"], None, &format!("{first}\n"));
        check(&["01:00"], Some(true), &format!("{first} (still so)\n"));
        check(
            &["01:00", "02:00.5", "03:00.5"],
            Some(false),
            &format!("{first} (3 times, last at 2026-01-01T00:03:00Z, no longer so)\n"),
        );
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        assert_eq!(story(&[]), "");
    }
}
