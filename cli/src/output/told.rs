//! Decisions on one screen: what a claim is, then a line for each decision.
//!
//! Decides what of the details everybody asks first, and which records are told together. All details are in the other
//! formats.

use std::collections::BTreeMap;

use crate::state::Story;

/// Details that every reader asks for, with their words; the first record that has one tells it.
const FACTS: [(&str, &str); 7] = [
    ("node", "Node"),
    ("instance", "instance"),
    ("pool", "NodePool"),
    ("image", "image"),
    ("pods", "for pods"),
    ("price", "price"),
    ("exhausted", "no capacity for"),
];
/// The detail that says what allowed a disruption, told under its line.
const BUDGET: &str = "budget";
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
    for (record, times) in lines(records) {
        text += &line(record, times, several);
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
    let detail = |key: &str| own().find_map(|record| record.details.get(key));
    let mut told: Vec<(&str, String)> = Vec::new();
    for (key, word) in FACTS {
        let Some(value) = detail(key) else { continue };
        let beside = match key {
            "instance" => ["instanceType", "zone", "capacityType"]
                .iter()
                .filter_map(|key| detail(key))
                .fold(String::new(), |text, one| format!("{text}, {one}")),
            "price" => " an hour, when it was planned".to_owned(),
            _ => String::new(),
        };
        told.push((word, format!("{value}{beside}")));
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

/// The records, with the number of those that are told with each: marks that come and go say the same again.
fn lines(records: &[Story]) -> Vec<(&Story, usize)> {
    let mut found: Vec<(&Story, usize)> = Vec::new();
    let mut said: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for record in records {
        let same = (record.name.as_str(), record.message.as_str());
        match said.get(&same).and_then(|at| found.get_mut(*at)) {
            Some((_, times)) => *times += 1,
            None => {
                said.insert(same, found.len());
                found.push((record, 1));
            }
        }
    }
    found
}

fn line(record: &Story, times: usize, several: bool) -> String {
    let Story { at, name, decision, message, details, .. } = record;
    let second = at.split_once('.').map_or_else(|| at.clone(), |(second, _)| format!("{second}Z"));
    let of = if several { format!("{name}: ") } else { String::new() };
    let again = if times > 1 { format!(" ({times} times)") } else { String::new() };
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
        }
    }

    #[test]
    fn a_nodes_story_is_one_screen() {
        let told = story(&[
            record(
                "00:01",
                "Planned",
                "planned it",
                &[("pods", "a/web-1"), ("price", "0.384"), ("pool", "default")],
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
                &[("budget", "2 nodes at a time, 0 going before it"), ("replacements", "default-mcjem")],
            ),
        ]);
        insta::assert_snapshot!(told);
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        assert_eq!(story(&[]), "");
    }
}
