//! A scenario's transcript, for reading.
//!
//! Decides its form: each step with the happenings until the next one, and the changed state after it. Times are
//! counted from the step's beginning, so that a new step changes no other step's lines.

use std::fmt::Write as _;

use jiff::{SignedDuration, Timestamp};

use super::form::{Scenario, ScenarioError, ScenarioStep};
use super::play::{Player, Progress};
use super::setup::{SetupError, SetupOptions, build};
use super::standing::standing;
use crate::engine::SimulatedRegion;
use crate::happening::{Happening, HappeningKind, for_people};

/// A played scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcript(pub String);

/// Why a scenario can't be played.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// Its form is wrong.
    #[error(transparent)]
    Form(#[from] ScenarioError),
    /// Its world can't be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// A step is impossible.
    #[error("{0}")]
    Step(String),
}

/// Plays a scenario to its end, and writes its transcript.
///
/// # Errors [`PlayError`].
pub fn play_to_transcript(text: &str) -> Result<Transcript, PlayError> {
    let scenario = Scenario::parse(text)?;
    let mut region = build(&scenario, &SetupOptions::default())?;
    let mut player = Player::new(&scenario);
    let mut writer =
        Writer { text: format!("# {}\n", scenario.title), began: region.now(), stands: standing(&region) };
    loop {
        match player.advance(&mut region, Timestamp::MAX).map_err(PlayError::Step)? {
            Progress::Step(number, step) => {
                // The immediate happenings of a step belong to it.
                let happened = region.take_happenings();
                writer.stand(&region);
                writer.begin(&region, number, &step);
                writer.happened(happened);
            }
            Progress::At(_) => writer.happened(region.take_happenings()),
            Progress::Done => break,
        }
    }
    writer.end(&region);
    Ok(Transcript(writer.text))
}

struct Writer {
    text: String,
    /// When the step began.
    began: Timestamp,
    /// How things stood after the last step.
    stands: Vec<String>,
}

impl Writer {
    fn begin(&mut self, region: &SimulatedRegion, number: usize, step: &ScenarioStep) {
        self.began = region.now();
        let _ = writeln!(self.text, "\n{}. [{}] {}", number + 1, clock(region.elapsed()), describe(step));
    }

    fn happened(&mut self, happened: Vec<Happening>) {
        for happening in for_people(happened) {
            if happening.kind == HappeningKind::Note && happening.subject == "scenario" {
                continue;
            }
            let at = short_clock(happening.at.duration_since(self.began));
            let Happening { kind, subject, message, .. } = &happening;
            let _ = writeln!(self.text, "   +{at} {:<8} {subject}: {message}", kind.as_str());
        }
    }

    /// The region's state, if it changed.
    fn stand(&mut self, region: &SimulatedRegion) {
        let stands = standing(region);
        if stands != self.stands {
            for line in &stands {
                let _ = writeln!(self.text, "   = {line}");
            }
            self.stands = stands;
        }
    }

    fn end(&mut self, region: &SimulatedRegion) {
        let _ = writeln!(self.text, "\nresult after {}", clock(region.elapsed()));
        for line in standing(region) {
            let _ = writeln!(self.text, "   {line}");
        }
        for (function, queue) in region.queues() {
            for letter in queue.dead_letters() {
                let _ = writeln!(self.text, "   dead letter of {function}: {}", letter.body);
            }
        }
        let unsettled = region.unsettled().0;
        if unsettled.is_empty() {
            self.text.push_str("   settled\n");
        } else {
            let _ = writeln!(self.text, "   not settled: {}", unsettled.join("; "));
        }
    }
}

fn clock(elapsed: SignedDuration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Hours only where there are some.
fn short_clock(elapsed: SignedDuration) -> String {
    let seconds = elapsed.as_secs();
    if seconds < 3600 { format!("{:02}:{:02}", seconds / 60, seconds % 60) } else { clock(elapsed) }
}

#[expect(clippy::too_many_lines, reason = "one line a step")]
fn describe(step: &ScenarioStep) -> String {
    match step {
        ScenarioStep::Note(text) => text.clone(),
        ScenarioStep::Run(duration) => format!("run {duration:#}"),
        ScenarioStep::Settle(longest) => format!("settle within {longest:#}"),
        ScenarioStep::Apply(objects) => {
            let names = objects.iter().map(|object| {
                let text = |pointer: &str| object.pointer(pointer).and_then(serde_json::Value::as_str);
                format!("{}/{}", text("/kind").unwrap_or("?"), text("/metadata/name").unwrap_or("?"))
            });
            format!("apply {}", names.collect::<Vec<_>>().join(", "))
        }
        ScenarioStep::Delete { kind, name, .. } => format!("delete {kind}/{name}"),
        ScenarioStep::Image(form) => format!("make image {}", form.name),
        ScenarioStep::TagImage { image, tags } => {
            let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("the pipeline tags image {image}: {}", tags.join(", "))
        }
        ScenarioStep::DeregisterImage(name) => format!("deregister image {name}"),
        ScenarioStep::DisableImage(name) => format!("disable image {name}"),
        ScenarioStep::UnshareImage(name) => {
            format!("the owner of image {name} takes the right to launch it")
        }
        ScenarioStep::ShareImage(name) => format!("the owner of image {name} gives the right to launch it"),
        ScenarioStep::BreakImage { image, how } if how == "key" => {
            format!("the KMS key of image {image} denies its use")
        }
        ScenarioStep::BreakImage { image, .. } => {
            format!("instances of image {image} never join from now on")
        }
        ScenarioStep::MendImage(name) => format!("mend image {name}"),
        ScenarioStep::InterruptSpot {} => "interrupt a spot instance".to_owned(),
        ScenarioStep::StopInstance {} => "somebody stops an instance".to_owned(),
        ScenarioStep::TerminateInstance {} => "somebody terminates an instance".to_owned(),
        ScenarioStep::InstanceStatus { check, status, instances: 1 } => {
            format!("the {check} status check of an instance is {status}")
        }
        ScenarioStep::InstanceStatus { check, status, instances } => {
            format!("the {check} status checks of {instances} instances are {status}")
        }
        ScenarioStep::NodeCondition { condition, status, nodes: 1 } => {
            format!("condition {condition} of a Node becomes {status}")
        }
        ScenarioStep::NodeCondition { condition, status, nodes } => {
            format!("condition {condition} of {nodes} Nodes becomes {status}")
        }
        ScenarioStep::DeleteTemplates {} => "somebody deletes all launch templates".to_owned(),
        ScenarioStep::RefuseLaunches { code, .. } => format!("EC2 refuses launches: {code}"),
        ScenarioStep::AcceptLaunches {} => "EC2 takes launches again".to_owned(),
        ScenarioStep::DenyCall { call, .. } => format!("a policy denies {call}"),
        ScenarioStep::AllowCall(call) => format!("policies allow {call}"),
        ScenarioStep::DenyImage { image, .. } => format!("a policy denies launches of image {image}"),
        ScenarioStep::AllowImage(image) => format!("policies allow launches of image {image}"),
        ScenarioStep::ThrottleCall { call, times: 1 } => format!("EC2 throttles the next {call}"),
        ScenarioStep::ThrottleCall { call, times } => format!("EC2 throttles the next {times} {call}"),
        ScenarioStep::ReportedMemory { instance_type, mebibytes } => {
            format!("kubelets on {instance_type} report {mebibytes} MiB of memory from now on")
        }
        ScenarioStep::RestartFunctions {} => "the functions restart without their caches".to_owned(),
        ScenarioStep::ReleaseImages { family, version } => format!("AWS releases {family} {version}"),
        ScenarioStep::PutParameter { name, image } => format!("parameter {name} names image {image}"),
        ScenarioStep::CreateInstanceProfile { name, role: Some(role) } => {
            format!("create instance profile {name} with role {role}")
        }
        ScenarioStep::CreateInstanceProfile { name, role: None } => {
            format!("create instance profile {name} without a role")
        }
        ScenarioStep::DeleteInstanceProfile(name) => format!("delete instance profile {name}"),
        ScenarioStep::UpgradeKubernetes(version) => format!("upgrade Kubernetes to {version}"),
        ScenarioStep::WithdrawType(name) => format!("EC2 withdraws {name}"),
        ScenarioStep::Capacity { instance_type, zone, capacity_type, left } => {
            let zone = zone.as_deref().unwrap_or("every zone");
            format!("leave {left} {capacity_type} {instance_type} in {zone}")
        }
        ScenarioStep::VoluntaryDisruption(gate) => format!("set VoluntaryDisruption={gate}"),
        ScenarioStep::Clear { unavailable } => {
            let what = unavailable.as_ref().map_or_else(|| "all marks".to_owned(), |keys| keys.join(", "));
            format!("an operator clears {what}")
        }
        ScenarioStep::Reserve { id, instance_type, zone, instances, .. } => {
            format!("reserve {instances} {instance_type} in {zone} as {id}")
        }
        ScenarioStep::PlacementGroup { id, name, strategy, .. } => {
            format!("make {strategy} placement group {name} ({id})")
        }
        ScenarioStep::EndReservation(id) => format!("reservation {id} ends"),
        ScenarioStep::ShiftZone { zone, lasts: Some(lasts) } => {
            format!("an operator shifts the cluster away from {zone} for {lasts:#}")
        }
        ScenarioStep::ShiftZone { zone, lasts: None } => format!("AWS shifts the cluster away from {zone}"),
        ScenarioStep::EndShift(zone) => format!("the shift away from {zone} ends"),
        ScenarioStep::Event(_) => "an event".to_owned(),
        ScenarioStep::Message { function, .. } => format!("a message for {function}"),
        ScenarioStep::Repeat { times, .. } => format!("repeat {times} times"),
        ScenarioStep::Scale { name, replicas } => format!("scale {name} to {replicas}"),
        ScenarioStep::Grow { name, by } => format!("grow {name} by {by}"),
    }
}
