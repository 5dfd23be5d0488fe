//! What each step of a scenario produced, written to be read.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::form::{Scenario, Step};
use super::play::{Player, Progress};
use super::setup::{Options, build};
use crate::engine::Region;
use crate::happening::{Happening, HappeningKind};

/// A played scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript(pub String);

/// Plays a scenario to its end and writes down what each step produced.
///
/// # Errors
/// What is wrong with the scenario, or what a step asked for that can't be.
pub fn play_to_transcript(text: &str) -> Result<Transcript, String> {
    let scenario = Scenario::parse(text).map_err(|error| error.to_string())?;
    let mut region = build(&scenario, &Options::default()).map_err(|error| chain(&error))?;
    let mut player = Player::new(&scenario);
    let mut lines = format!("# {}\n", scenario.title);
    loop {
        match player.advance(&mut region, Timestamp::MAX)? {
            Progress::Step(number, step) => {
                write_happenings(&mut lines, &mut region);
                let _ = writeln!(lines, "\n== {} {}: {}", since_start(&region), number + 1, describe(&step));
            }
            Progress::At(_) => write_happenings(&mut lines, &mut region),
            Progress::Done => break,
        }
    }
    write_happenings(&mut lines, &mut region);
    write_result(&mut lines, &region);
    Ok(Transcript(lines))
}

fn chain(error: &dyn std::error::Error) -> String {
    tenon_entrypoint::error::chain(error)
}

fn since_start(region: &Region) -> String {
    clock(region.elapsed())
}

fn clock(elapsed: jiff::SignedDuration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn describe(step: &Step) -> String {
    match step {
        Step::Note(text) => text.clone(),
        Step::Run(duration) => format!("run {duration:#}"),
        Step::Settle(longest) => format!("settle within {longest:#}"),
        Step::Apply(objects) => {
            let names = objects.iter().map(|object| {
                let text = |pointer: &str| object.pointer(pointer).and_then(serde_json::Value::as_str);
                format!("{}/{}", text("/kind").unwrap_or("?"), text("/metadata/name").unwrap_or("?"))
            });
            format!("apply {}", names.collect::<Vec<_>>().join(", "))
        }
        Step::Delete { kind, name, .. } => format!("delete {kind}/{name}"),
        Step::Image(form) => format!("make image {}", form.name),
        Step::DeregisterImage(name) => format!("deregister image {name}"),
        Step::DisableImage(name) => format!("disable image {name}"),
        Step::InterruptSpot {} => "interrupt a spot instance".to_owned(),
        Step::Capacity { instance_type, zone, capacity_type, left } => {
            let zone = zone.as_deref().unwrap_or("every zone");
            format!("leave {left} {capacity_type} {instance_type} in {zone}")
        }
        Step::Event(_) => "an event".to_owned(),
        Step::Message { function, .. } => format!("a message for {function}"),
        Step::Repeat { times, .. } => format!("repeat {times} times"),
        Step::Scale { name, replicas } => format!("scale {name} to {replicas}"),
        Step::Grow { name, by } => format!("grow {name} by {by}"),
    }
}

fn write_happenings(lines: &mut String, region: &mut Region) {
    let start: Timestamp = crate::clock::START.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    for happening in region.take_happenings() {
        if happening.kind == HappeningKind::Note && happening.subject == "scenario" {
            continue;
        }
        write_line(lines, start, &happening);
    }
}

fn write_line(lines: &mut String, start: Timestamp, happening: &Happening) {
    let at = clock(happening.at.duration_since(start));
    let kind = happening.kind.as_str();
    let _ = writeln!(lines, "{at} {kind:<8} {}: {}", happening.subject, happening.message);
}

fn write_result(lines: &mut String, region: &Region) {
    let _ = writeln!(lines, "\n== {} result", since_start(region));
    for site in region.sites() {
        let pods = site.cluster().pod_counts();
        let _ = writeln!(
            lines,
            "cluster {}: {} pods running, {} pending",
            site.name(),
            pods.running,
            pods.pending
        );
        for node in region.nodes(site.name()) {
            let _ = writeln!(
                lines,
                "  {} {} {} {}: {} pods",
                node.name, node.instance_type, node.zone, node.capacity_type, node.pods
            );
        }
        for pod in site.cluster().objects(tenon_cluster::Kind::Pod) {
            let text = |pointer: &str| pod.pointer(pointer).and_then(serde_json::Value::as_str);
            if text("/spec/nodeName").is_none() {
                let why = pod.pointer("/status/conditions/0/message").and_then(serde_json::Value::as_str);
                let _ = writeln!(
                    lines,
                    "  pod {} waits: {}",
                    text("/metadata/name").unwrap_or("?"),
                    why.unwrap_or("the scheduler hasn't seen it")
                );
            }
        }
        for claim in region.claims(site.name()) {
            let _ = writeln!(lines, "  claim {} is {}", claim.name, claim.phase());
        }
    }
    for (function, queue) in region.queues() {
        for letter in queue.dead_letters() {
            let _ = writeln!(lines, "dead letter of {function}: {}", letter.body);
        }
    }
    let unsettled = region.unsettled().0;
    if unsettled.is_empty() {
        lines.push_str("settled\n");
    } else {
        let _ = writeln!(lines, "not settled: {}", unsettled.join("; "));
    }
}
