//! Plays a scenario's steps against its world.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::catalog::LearnedMemory;
use tenon_domain::catalog::facts::PlacementStrategy;
use tenon_domain::catalog::settings::MIB;
use tenon_domain::id::{
    ClusterName, ImageId, InstanceId, InstanceType, ParseIdError, PlacementGroupId, ReservationId, Zone,
};
use tenon_domain::registry::FeatureGate;
use tenon_domain::reservation::{MatchCriteria, ReservationKind};
use tenon_domain::wake::FunctionName;
use tenon_domain::zonal_shift::ShiftEnd;
use tenon_ec2::Ec2Error;
use tenon_ec2::port::{
    CapacityReservation, InstanceState, PlacementGroup, StatusCheck, TargetCapacityType, cluster_arn,
};
use tenon_memory_table::block_on;
use tenon_runtime::BusEvent;
use tenon_runtime::error::chain;
use tenon_simulated_cluster::SimulatedCluster;
use tenon_snapshot::{Kind, object};
use tenon_table::marks::{MarksError, Meant, clear_marks};
use tenon_twin::CapacityPool;
use tenon_twin::{Call, Fault, FaultEffect, FaultWhen, ImageDefect, Impairment, PublishedFamily};

use super::form::{Scenario, ScenarioStep};
use super::setup::change_settings;
use crate::engine::SimulatedRegion;
use crate::wiring::BusName;

/// How long a region must have nothing to do before it counts as settled: longer than a sweep, so that the sweep
/// repairs a lost event.
const SETTLED_AFTER: SignedDuration = SignedDuration::from_secs(190);

/// How far a scenario is.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// Something happened at this time, or may have.
    At(Timestamp),
    /// A step began: its number, from 0, and the step.
    Step(usize, Box<ScenarioStep>),
    /// All steps are done.
    Done,
}

/// A scenario being played.
pub struct Player {
    steps: Vec<ScenarioStep>,
    next: usize,
    waiting: Option<WaitingFor>,
    settled_since: Option<Timestamp>,
    images: std::collections::BTreeMap<String, ImageId>,
}

#[derive(Debug, Clone, Copy)]
enum WaitingFor {
    Until(Timestamp),
    Settled { at_latest: Timestamp },
}

impl Player {
    /// A player at the scenario's beginning.
    #[must_use]
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            steps: scenario.unrolled(),
            next: 0,
            waiting: None,
            settled_since: None,
            images: std::collections::BTreeMap::new(),
        }
    }

    /// Whether all steps are done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.waiting.is_none() && self.next >= self.steps.len()
    }

    /// Advances by one change of the region or one step, not beyond `until`.
    ///
    /// # Errors An impossible step.
    pub fn advance(&mut self, region: &mut SimulatedRegion, until: Timestamp) -> Result<Progress, String> {
        match self.waiting {
            Some(WaitingFor::Until(end)) => {
                if region.step(end.min(until)).is_none() {
                    region.run_until(end.min(until));
                    if end <= until {
                        self.waiting = None;
                    }
                }
                Ok(Progress::At(region.now()))
            }
            Some(WaitingFor::Settled { at_latest }) => Ok(self.wait_settled(region, at_latest, until)),
            None => {
                let Some(step) = self.steps.get(self.next).cloned() else { return Ok(Progress::Done) };
                let number = self.next;
                self.next += 1;
                self.begin(region, &step)?;
                Ok(Progress::Step(number, Box::new(step)))
            }
        }
    }

    fn wait_settled(
        &mut self,
        region: &mut SimulatedRegion,
        at_latest: Timestamp,
        until: Timestamp,
    ) -> Progress {
        let end = at_latest.min(until);
        let stepped = region.step(end);
        if stepped.is_none() {
            region.run_until(end);
        }
        let now = region.now();
        if region.unsettled().0.is_empty() {
            let since = *self.settled_since.get_or_insert(now);
            if now.duration_since(since) >= SETTLED_AFTER {
                self.waiting = None;
                self.settled_since = None;
            }
        } else {
            self.settled_since = None;
        }
        if now >= at_latest {
            self.waiting = None;
            self.settled_since = None;
        }
        Progress::At(now)
    }

    #[expect(clippy::too_many_lines, reason = "a table: an arm for each step")]
    fn begin(&mut self, region: &mut SimulatedRegion, step: &ScenarioStep) -> Result<(), String> {
        let after = |duration: &SignedDuration| region.now().checked_add(*duration).unwrap_or(Timestamp::MAX);
        match step {
            ScenarioStep::Run(duration) => self.waiting = Some(WaitingFor::Until(after(duration))),
            ScenarioStep::Settle(longest) => {
                self.waiting = Some(WaitingFor::Settled { at_latest: after(longest) })
            }
            ScenarioStep::Note(text) => region.note("scenario", text.clone()),
            ScenarioStep::Image(form) => {
                let id = region.make_image(form);
                self.images.insert(form.name.clone(), id);
            }
            ScenarioStep::TagImage { image, tags } => tag_image(region, self.image(image)?, tags)?,
            ScenarioStep::DeregisterImage(name) => {
                region.twin().deregister_image(self.image(name)?).map_err(|error| error.to_string())?;
            }
            ScenarioStep::DisableImage(name) => {
                region.twin().disable_image(self.image(name)?).map_err(|error| error.to_string())?;
            }
            ScenarioStep::UnshareImage(name) => region.twin().unshare_image(self.image(name)?),
            ScenarioStep::ShareImage(name) => region.twin().share_image(self.image(name)?),
            ScenarioStep::BreakImage { image, how } => {
                let defect = match how.as_str() {
                    "key" => ImageDefect::Key,
                    "boot" => ImageDefect::Boot,
                    _ => return Err(format!("`{how}` isn't `key` or `boot`")),
                };
                set_defect(region, self.image(image)?, Some(defect))?;
            }
            ScenarioStep::MendImage(name) => set_defect(region, self.image(name)?, None)?,
            ScenarioStep::InterruptSpot {} => interrupt_spot(region)?,
            ScenarioStep::StopInstance {} => push_instance(region, InstanceState::Stopping)?,
            ScenarioStep::TerminateInstance {} => push_instance(region, InstanceState::ShuttingDown)?,
            ScenarioStep::NodeCondition { condition, status, nodes } => {
                let cluster = region.sites().next().ok_or("there is no cluster")?.cluster().clone();
                for node in cluster.objects(Kind::Node).iter().take(*nodes) {
                    cluster.set_node_condition(object::name(node), condition, status);
                }
            }
            ScenarioStep::InstanceStatus { check, status, instances } => {
                set_status_check(region, check, status, *instances)?;
            }
            ScenarioStep::DeleteTemplates {} => region.twin().delete_templates(),
            ScenarioStep::RefuseLaunches { code, message } => {
                let error = Ec2Error::from_code("CreateFleet", code, message);
                let (call, when) = (Call::CreateFleet, FaultWhen::Permille(1000));
                region.twin().inject(Fault { call, when, effect: FaultEffect::Refused(error) });
            }
            ScenarioStep::AcceptLaunches {} => region.twin().clear_faults(),
            ScenarioStep::DenyCall { call, because } => region.twin().deny(named_call(call)?, because),
            ScenarioStep::AllowCall(call) => region.twin().allow(named_call(call)?),
            ScenarioStep::DenyImage { image, because } => {
                region.twin().deny_image(self.image(image)?, because);
            }
            ScenarioStep::AllowImage(name) => region.twin().allow_image(self.image(name)?),
            ScenarioStep::ThrottleCall { call, times } => throttle(region, call, *times)?,
            ScenarioStep::WithdrawType(name) => {
                let name = InstanceType::parse(name).map_err(|error| error.to_string())?;
                region.twin().withdraw_type(&name).map_err(|error| error.to_string())?;
            }
            ScenarioStep::ReportedMemory { instance_type, mebibytes } => {
                let name = InstanceType::parse(instance_type).map_err(|error| error.to_string())?;
                let memory = LearnedMemory(u64::from(*mebibytes).saturating_mul(MIB));
                region.set_reported_memory(&name, memory);
            }
            ScenarioStep::RestartFunctions {} => region.restart_functions(),
            ScenarioStep::Capacity { instance_type, zone, capacity_type, left } => {
                set_capacity(region, instance_type, zone.as_deref(), capacity_type, *left)?;
            }
            ScenarioStep::VoluntaryDisruption(gate) => {
                let gate =
                    FeatureGate::parse(gate).ok_or_else(|| format!("`{gate}` isn't a gate's state"))?;
                let cluster = first_cluster(region)?;
                change_settings(region, &cluster, |settings| settings.voluntary_disruption = gate)
                    .map_err(|error| chain(&error))?;
            }
            ScenarioStep::Clear { unavailable } => clear(region, unavailable.as_deref())?,
            ScenarioStep::Reserve { .. } | ScenarioStep::EndReservation(_) => {
                change_reservations(region, step)?
            }
            ScenarioStep::PlacementGroup { .. } => make_placement_group(region, step)?,
            ScenarioStep::ShiftZone { zone, lasts } => {
                let end = lasts.map_or(ShiftEnd::Open, |lasts| ShiftEnd::At(after(&lasts)));
                shift_zone(region, zone, Some(end))?;
            }
            ScenarioStep::EndShift(zone) => shift_zone(region, zone, None)?,
            ScenarioStep::Event(event) => {
                let aws = event.get("source").and_then(Value::as_str).is_some_and(|s| s.starts_with("aws."));
                region.route(if aws { BusName::Default } else { BusName::Tenon }, event.clone());
            }
            ScenarioStep::Message { function, body } => {
                let function =
                    FunctionName::parse(function).ok_or_else(|| format!("no function `{function}`"))?;
                region.send(function, body.clone());
            }
            ScenarioStep::Apply(objects) => {
                for object in objects {
                    cluster(region)?.apply(object.clone()).map_err(|error| error.to_string())?;
                }
            }
            ScenarioStep::Delete { kind, namespace, name } => {
                delete(cluster(region)?, kind, namespace, name)?;
            }
            ScenarioStep::Scale { name, replicas } => {
                let scaled = cluster(region)?.scale(name, |_| i64::from(*replicas));
                scaled.map_err(|error| error.to_string())?;
            }
            ScenarioStep::Grow { name, by } => {
                let grown = cluster(region)?.scale(name, |replicas| replicas.saturating_add(*by));
                grown.map_err(|error| error.to_string())?;
            }
            ScenarioStep::UpgradeKubernetes(version) => cluster(region)?.upgrade(version),
            ScenarioStep::ReleaseImages { family, version } => {
                let family = PublishedFamily::parse(family).ok_or_else(|| format!("no family `{family}`"))?;
                region.twin().release_images(family, version);
            }
            ScenarioStep::PutParameter { name, image } => {
                region.twin().put_parameter(name, self.image(image)?.as_str());
            }
            ScenarioStep::CreateInstanceProfile { name, role } => {
                create_profile(region, name, role.as_deref())?;
            }
            ScenarioStep::DeleteInstanceProfile(name) => {
                region.twin().delete_instance_profile(name).map_err(|error| error.to_string())?;
            }
            // The parser has expanded it.
            ScenarioStep::Repeat { .. } => {}
        }
        Ok(())
    }

    fn image(&self, name: &str) -> Result<&ImageId, String> {
        self.images.get(name).ok_or_else(|| format!("no image step made `{name}`"))
    }
}

/// The pipeline's second stage.
fn tag_image(
    region: &mut SimulatedRegion,
    image: &ImageId,
    tags: &BTreeMap<String, String>,
) -> Result<(), String> {
    for (key, value) in tags {
        region.twin().tag_image(image, key, value).map_err(|error| error.to_string())?;
    }
    region.publish(&BusEvent {
        source: "ami.pipeline".to_owned(),
        detail_type: "Image Tagged".to_owned(),
        detail: json!({"ImageId": image.as_str()}),
    });
    Ok(())
}

fn set_defect(region: &SimulatedRegion, image: &ImageId, defect: Option<ImageDefect>) -> Result<(), String> {
    region.twin().set_image_defect(image, defect).map_err(|error| error.to_string())
}

fn named_call(name: &str) -> Result<Call, String> {
    Call::parse(name).ok_or_else(|| format!("no call `{name}`"))
}

/// EC2 throttles the next so many calls.
fn throttle(region: &SimulatedRegion, name: &str, times: u64) -> Result<(), String> {
    let call = named_call(name)?;
    let error = Ec2Error::from_code(name, "RequestLimitExceeded", "Request limit exceeded.");
    let when = FaultWhen::Next(times);
    region.twin().inject(Fault { call, when, effect: FaultEffect::Refused(error) });
    Ok(())
}

fn first_cluster(region: &SimulatedRegion) -> Result<ClusterName, String> {
    region
        .sites()
        .next()
        .map(|site| site.name().clone())
        .ok_or_else(|| "the scenario has no cluster".to_owned())
}

fn cluster(region: &mut SimulatedRegion) -> Result<&SimulatedCluster, String> {
    let name = first_cluster(region)?;
    Ok(region.site(&name).ok_or("the scenario has no cluster")?.cluster())
}

fn delete(cluster: &SimulatedCluster, kind: &str, namespace: &str, name: &str) -> Result<(), String> {
    let known = Kind::ALL.into_iter().find(|known| known.as_str() == kind);
    let kind = known.ok_or_else(|| format!("no kind `{kind}`"))?;
    if cluster.object(kind, namespace, name).is_none() {
        return Err(format!("no {} `{name}` to delete", kind.as_str()));
    }
    cluster.delete(kind, namespace, name);
    Ok(())
}

/// Creates an instance profile, with a role or without.
fn create_profile(region: &SimulatedRegion, name: &str, role: Option<&str>) -> Result<(), String> {
    let twin = region.twin();
    twin.create_instance_profile(name).map_err(|error| error.to_string())?;
    match role {
        Some(role) => twin.add_role_to_instance_profile(name, role).map_err(|error| error.to_string()),
        None => Ok(()),
    }
}

/// An operator clears marks, as `tenon clear` does.
fn clear(region: &SimulatedRegion, names: Option<&[String]>) -> Result<(), String> {
    let meant = names.map_or(Meant::All, |names| Meant::Named(names.to_vec()));
    let name = &region.installation().region;
    block_on(clear_marks(region.table(), name, &meant, region.now())).map(drop).map_err(
        |error| match &error {
            MarksError::Unknown { known, .. } => format!("{error}; marked are: {}", known.join(", ")),
            MarksError::Read(_) | MarksError::Write(_) | MarksError::Form(_) => chain(&error),
        },
    )
}

fn interrupt_spot(region: &mut SimulatedRegion) -> Result<(), String> {
    let spot = region
        .twin()
        .instances()
        .into_iter()
        .find(|record| {
            let instance = &record.instance;
            instance.capacity_type == TargetCapacityType::Spot && instance.state == InstanceState::Running
        })
        .ok_or("no spot instance is running")?;
    region.twin().interrupt_spot(&spot.instance.id).map_err(|error| error.to_string())
}

/// Moves the first running instance.
/// The first running instances, by id, as many as there are.
fn running(region: &SimulatedRegion, first: usize) -> Vec<InstanceId> {
    let records = region.twin().instances().into_iter();
    let running = records.filter(|record| record.instance.state == InstanceState::Running);
    running.map(|record| record.instance.id.clone()).take(first).collect()
}

fn push_instance(region: &SimulatedRegion, to: InstanceState) -> Result<(), String> {
    let first = running(region, 1).pop().ok_or("no instance is running")?;
    region.twin().push_instance(&first, to).map_err(|error| error.to_string())
}

fn set_status_check(
    region: &SimulatedRegion,
    check: &str,
    status: &str,
    instances: usize,
) -> Result<(), String> {
    let check = StatusCheck::parse(check).ok_or_else(|| format!("`{check}` isn't `instance` or `system`"))?;
    let impairment = match status {
        "impaired" => Impairment::Fails,
        "ok" => Impairment::Passes,
        other => return Err(format!("`{other}` isn't `impaired` or `ok`")),
    };
    for id in running(region, instances) {
        region.twin().set_status_check(&id, check, impairment).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Makes or ends a capacity reservation; other steps do neither.
fn change_reservations(region: &SimulatedRegion, step: &ScenarioStep) -> Result<(), String> {
    if let ScenarioStep::EndReservation(id) = step {
        let id = ReservationId::parse(id.as_str()).map_err(|error| error.to_string())?;
        return region.twin().end_reservation(&id).map_err(|error| error.to_string());
    }
    let ScenarioStep::Reserve { id, instance_type, zone, instances, instance_match_criteria, tags } = step
    else {
        return Ok(());
    };
    let wrong = |error: ParseIdError| error.to_string();
    let made = CapacityReservation {
        id: ReservationId::parse(id.as_str()).map_err(wrong)?,
        owner: region.installation().account.clone(),
        instance_type: InstanceType::parse(instance_type.as_str()).map_err(wrong)?,
        zone: Zone::parse(zone.as_str()).map_err(wrong)?,
        match_criteria: MatchCriteria::parse(instance_match_criteria)
            .ok_or_else(|| format!("`{instance_match_criteria}` isn't `open` or `targeted`"))?,
        kind: ReservationKind::Default,
        ends_at: None,
        available: *instances,
        tags: tags.clone(),
    };
    region.twin().add_reservation(made).map_err(|error| error.to_string())
}

/// Makes a placement group; other steps make none.
fn make_placement_group(region: &SimulatedRegion, step: &ScenarioStep) -> Result<(), String> {
    let ScenarioStep::PlacementGroup { id, name, strategy, partitions } = step else { return Ok(()) };
    region.twin().create_placement_group(PlacementGroup {
        id: PlacementGroupId::parse(id.as_str()).map_err(|error| error.to_string())?,
        name: name.clone(),
        strategy: PlacementStrategy::parse(strategy)
            .ok_or_else(|| format!("`{strategy}` isn't `cluster`, `partition` or `spread`"))?,
        partition_count: *partitions,
    });
    Ok(())
}

/// Shifts the first cluster away from a zone, or back.
fn shift_zone(region: &SimulatedRegion, zone: &str, end: Option<ShiftEnd>) -> Result<(), String> {
    let name = Zone::parse(zone).map_err(|error| error.to_string())?;
    let zone_id = region.twin().zone_id(&name).ok_or_else(|| format!("the region has no zone `{name}`"))?;
    let installation = region.installation();
    let arn = cluster_arn(&installation.region, &installation.account, &first_cluster(region)?);
    match end {
        Some(end) => region.twin().shift_zone(&arn, &zone_id, end),
        None => region.twin().end_shift(&arn, &zone_id),
    }
    .map_err(|error| error.to_string())
}

fn set_capacity(
    region: &SimulatedRegion,
    instance_type: &str,
    zone: Option<&str>,
    capacity_type: &str,
    left: u32,
) -> Result<(), String> {
    let instance_type = InstanceType::parse(instance_type).map_err(|error| error.to_string())?;
    let capacity_type = [TargetCapacityType::OnDemand, TargetCapacityType::Spot]
        .into_iter()
        .find(|known| known.as_str() == capacity_type)
        .ok_or_else(|| format!("`{capacity_type}` isn't `on-demand` or `spot`"))?;
    let zones = match zone {
        Some(zone) => vec![Zone::parse(zone).map_err(|error| error.to_string())?],
        None => region.zones(),
    };
    for zone in zones {
        let pool = CapacityPool { capacity_type, instance_type: instance_type.clone(), zone };
        region.twin().set_capacity(pool, Some(left));
    }
    Ok(())
}
