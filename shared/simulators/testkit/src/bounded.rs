//! The bounds of a cluster's stack: worlds that have some, a user who asks for what is denied, and the invariant that
//! they hold.
//!
//! Decides from the registry entry, from the instances as they really are, and from launches and their templates.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::{ClusterName, InstanceId, InstanceType, LaunchId};
use tenon_domain::registry::{Allowances, Permission};
use tenon_ec2::port::{CreateFleetRequest, LaunchTemplateData, MetadataTokens};
use tenon_region::engine::SimulatedRegion;
use tenon_region::scenario::{Scenario, change_allowances};
use tenon_snapshot::Kind;
use tenon_snapshot::object::deleted_at;

use crate::class_deleted::again;
use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};
use crate::random::Dice;
use crate::world::set;

/// How many of a thousand worlds have bounds.
const BOUNDED: u64 = 200;
/// How often, in a thousand steps of such a world, a user asks for what is denied.
const ASKS: u64 = 20;
/// The name of a world's class.
const CLASS: &str = "default";
/// User data of a class, and a part of it in base64 at any offset: three equal bytes are always the same four digits.
const USER_DATA: &str = "#!/bin/sh\n# aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n";
const USER_DATA_ENCODED: &str = "YWFhYWFhYWFhYWFh";

/// Gives the first cluster of some worlds bounds that its pods reach.
pub(crate) fn bound(mut world: Scenario) -> Scenario {
    let mut dice = Dice::new(world.seed, 24);
    let Some(first) = world.clusters.first_mut().filter(|_| dice.permille(BOUNDED)) else { return world };
    let number = |drawn: u64| u32::try_from(drawn).unwrap_or(u32::MAX);
    first.max_nodes = dice.permille(600).then(|| number(dice.between(3, 10)));
    first.max_vcpus = dice.permille(600).then(|| number(dice.between(8, 40)));
    let families: [&[&str]; 4] = [&[], &["m*"], &["c*", "r*"], &["m5", "c6i"]];
    let families = dice.pick(&families).copied().unwrap_or_default();
    first.allowed_families = families.iter().map(|family| (*family).to_owned()).collect();
    first.allow_public_addresses = dice.permille(500).then_some(false);
    first.allow_imds_v1 = dice.permille(500).then_some(false);
    first.allow_user_data = dice.permille(500).then_some(false);
    world
}

/// Ends the bounds that keep pods waiting, as an update of the stack does.
pub(crate) fn end_bounds(region: &SimulatedRegion, cluster: &ClusterName) {
    let _ = change_allowances(region, cluster, |allowed| {
        allowed.max_nodes = None;
        allowed.max_vcpus = None;
        allowed.families.clear();
    });
}

/// A user whose class asks for what the stack denies, for a while.
pub(crate) struct ForbiddenAsks {
    dice: Dice,
    /// The longest while, in seconds.
    longest: u64,
    until: Option<Timestamp>,
}

impl ForbiddenAsks {
    pub(crate) fn new(seed: u64, longest: u64) -> Self {
        Self { dice: Dice::new(seed, 25), longest, until: None }
    }

    /// Whether the class asks for it.
    pub(crate) const fn is_on(&self) -> bool {
        self.until.is_some()
    }

    pub(crate) fn act(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        if let Some(until) = self.until {
            if until <= region.now() {
                self.end(region, cluster);
            }
            return;
        }
        let Some(allowed) = region.registry(cluster).map(|entry| entry.allowed) else { return };
        let fields = denied_fields(&allowed);
        if fields.is_empty() || !self.dice.permille(ASKS) {
            return;
        }
        edit_class(region, cluster, |class| {
            for (field, value) in fields {
                set(class, &["spec", field], value);
            }
        });
        let seconds = i64::try_from(self.dice.between(20, self.longest)).unwrap_or(60);
        self.until = region.now().checked_add(SignedDuration::from_secs(seconds)).ok();
    }

    /// Takes it back.
    pub(crate) fn end(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        if self.until.take().is_none() {
            return;
        }
        edit_class(region, cluster, |class| {
            if let Some(spec) = class.get_mut("spec").and_then(Value::as_object_mut) {
                for field in ["associatePublicIPAddress", "metadataOptions", "userData"] {
                    spec.remove(field);
                }
            }
        });
    }
}

/// Fields of a class that ask for what is denied.
fn denied_fields(allowed: &Allowances) -> Vec<(&'static str, Value)> {
    let fields = [
        (allowed.public_addresses, "associatePublicIPAddress", json!(true)),
        (allowed.imds_v1, "metadataOptions", json!({"httpTokens": "optional"})),
        (allowed.user_data, "userData", json!(USER_DATA)),
    ];
    let denied = fields.into_iter().filter(|(permission, ..)| *permission == Permission::Denied);
    denied.map(|(_, field, value)| (field, value)).collect()
}

fn edit_class(region: &SimulatedRegion, cluster: &ClusterName, change: impl FnOnce(&mut Value)) {
    let Some(site) = region.site(cluster) else { return };
    let known = site.cluster().object(Kind::Ec2NodeClass, "", CLASS);
    let Some(known) = known.filter(|class| deleted_at(class).is_none()) else { return };
    let mut class = again(&known);
    change(&mut class);
    let _ = site.cluster().apply(class);
}

/// The launches and templates that were judged.
#[derive(Default)]
pub(crate) struct BoundsSeen {
    launches: BTreeSet<LaunchId>,
    templates: BTreeSet<String>,
    /// Templates of launches that EC2 didn't have yet.
    awaited: BTreeSet<String>,
}

/// The cluster has at most the nodes and vCPUs that its stack allows, its launches ask for allowed families alone, and
/// their templates for nothing that is denied. Instances without a claim aren't counted: `NothingUnowned` is theirs.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_cluster_bounds_hold(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    moment: &ClusterMoment,
    seen: &mut BoundsSeen,
) -> Found {
    let Some(allowed) = region.registry(cluster).map(|entry| entry.allowed) else { return Ok(()) };
    let text = over_count(&allowed, moment)
        .or_else(|| barred_family(&allowed, moment, seen))
        .or_else(|| denied_content(region, &allowed, seen));
    text.map_or(Ok(()), |text| Err((Invariant::ClusterBoundsHold, text)))
}

fn over_count(allowed: &Allowances, moment: &ClusterMoment) -> Option<String> {
    let owned: BTreeSet<&InstanceId> =
        moment.claims.iter().filter_map(|claim| claim.state.instance()).map(|held| &held.id).collect();
    let live = moment.live_instances().filter(|record| owned.contains(&record.instance.id));
    let vcpus: Vec<u32> = live.map(|record| vcpus(&record.instance.instance_type)).collect();
    let (nodes, vcpus) =
        (u32::try_from(vcpus.len()).unwrap_or(u32::MAX), vcpus.into_iter().fold(0, u32::saturating_add));
    if let Some(most) = allowed.max_nodes.filter(|most| *most < nodes) {
        return Some(format!("{nodes} nodes, and MaxNodes is {most}"));
    }
    let most = allowed.max_vcpus.filter(|most| *most < vcpus)?;
    Some(format!("nodes of {vcpus} vCPUs, and MaxVcpus is {most}"))
}

/// The vCPUs of the worlds' sizes, from EC2's pages of instance types (read November 2026).
fn vcpus(instance_type: &InstanceType) -> u32 {
    match instance_type.as_str().split_once('.').map_or("", |(_, size)| size) {
        "large" => 2,
        "xlarge" => 4,
        "2xlarge" => 8,
        // One that a world gets later must not stay below every bound.
        _ => u32::MAX,
    }
}

/// A launch of a family that isn't allowed. Each launch is judged once, and its templates are noted.
fn barred_family(allowed: &Allowances, moment: &ClusterMoment, seen: &mut BoundsSeen) -> Option<String> {
    let is_allowed = |name: &InstanceType| {
        let family = name.as_str().split('.').next().unwrap_or_default();
        let matches = |pattern: &str| match pattern.strip_suffix('*') {
            Some(beginning) => family.starts_with(beginning),
            None => family == pattern,
        };
        allowed.families.is_empty() || allowed.families.iter().any(|pattern| matches(pattern.as_str()))
    };
    for launch in &moment.launches {
        if !seen.launches.insert(launch.id.clone()) {
            continue;
        }
        let Ok(request) = CreateFleetRequest::from_stored(&launch.request) else { continue };
        for template in request.launch_templates {
            let mut types = template.overrides.iter().map(|with| &with.instance_type);
            if let Some(barred) = types.find(|name| !is_allowed(name)) {
                let families: Vec<&str> = allowed.families.iter().map(|family| family.as_str()).collect();
                return Some(format!(
                    "launch {} asks for {barred}, and AllowedFamilies are {}",
                    launch.id,
                    families.join(",")
                ));
            }
            if !seen.templates.contains(&template.name) {
                seen.awaited.insert(template.name);
            }
        }
    }
    None
}

/// A launch template with what is denied. Each is judged once EC2 has it.
fn denied_content(region: &SimulatedRegion, allowed: &Allowances, seen: &mut BoundsSeen) -> Option<String> {
    let there: Vec<(String, LaunchTemplateData)> = seen
        .awaited
        .iter()
        .filter_map(|name| Some((name.clone(), region.twin().template_data(name)?)))
        .collect();
    for (name, data) in there {
        seen.awaited.remove(&name);
        if let Some(what) = denied_of(allowed, &data) {
            return Some(format!("launch template {name} has {what}, which the stack denies"));
        }
        seen.templates.insert(name);
    }
    None
}

fn denied_of(allowed: &Allowances, data: &LaunchTemplateData) -> Option<&'static str> {
    // EC2 takes no word about public addresses beside several interfaces: these get none.
    let refuses = match data.network_interfaces.as_slice() {
        [] => false,
        [one] => one.associate_public_ip == Some(false),
        several => several.iter().all(|one| one.associate_public_ip != Some(true)),
    };
    let optional =
        data.metadata_options.as_ref().is_some_and(|told| told.http_tokens == MetadataTokens::Optional);
    let own_data = data.user_data.as_ref().is_some_and(|text| text.contains(USER_DATA_ENCODED));
    let has = [
        (allowed.public_addresses, !refuses, "public addresses, or the subnet's default"),
        (allowed.imds_v1, optional, "version 1 of the metadata service"),
        (allowed.user_data, own_data, "user data of its class"),
    ];
    let mut denied = has.into_iter().filter(|(permission, has, _)| *has && *permission == Permission::Denied);
    denied.next().map(|(_, _, what)| what)
}
