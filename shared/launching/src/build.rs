//! Launches from planned claims: equal claims share one launch, which holds the exact CreateFleet request.
//!
//! Decides the ids, client tokens and claims of launches, and which claims are refused. `group` decides which claims
//! share a launch, `request` what it asks EC2 for, `record` what the journal says of it, `write` what commits it. It
//! doesn't choose the claims, and it sends nothing.
//!
//! Invariants: the same claims at the same time give the same launches; every claim is in exactly one launch or is
//! refused.

mod group;
mod record;
mod request;
mod write;

#[cfg(test)]
mod content_tests;
#[cfg(test)]
mod spread_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use tenon_domain::catalog::InstanceTypeOption;
use tenon_domain::claim::{Claim, CommandRole};
use tenon_domain::digest::Digest;
use tenon_domain::id::{
    ClaimName, ClientToken, ImageId, LaunchId, NodeClassName, NodeName, NodePoolName, ParseIdError, Region,
    Uid,
};
use tenon_domain::journal::{JournalRecord, Subject, SubjectKind};
use tenon_domain::labels;
use tenon_domain::launch::{Launch, LaunchCause, LaunchClaim, LaunchState};
use tenon_domain::registry::Registry;
use tenon_domain::report::{Finding, Report};
use tenon_domain::unavailable::{LaunchAsked, Mark, Marks, Probe, RequestDigest, UnavailableKey};
use tenon_domain::wake::FunctionName;
use tenon_ec2::port::CreateLaunchTemplate;
use tenon_planning::provision::PlannedClaim;
use tenon_runtime::error::chain;
use tenon_state::cluster::{ReadyClass, refused_requests};
use tenon_table::items::{ClaimPods, LaunchedPods, TemplateItem};

use crate::fleet::{Fleet, FleetInput, FleetPurpose, NoFleet, Requests, fleet};
use crate::min_values::MinValuesLost;
use crate::template::to_stored;
use crate::user_data::UserDataError;
use crate::zones::{ZoneTally, tied_zones};
use group::groups;
use record::record;
use request::{RequestParts, request};

pub use record::join_record;
pub use write::write_launch;

/// Equal on-demand claims are launched zone by zone while the plan has fewer launches than this: EC2 takes 50 mutating
/// calls at once, and other tools make some. In a larger plan whole launches take turns.
const SPREAD_UNDER: usize = 20;
/// Letters and digits of ids and tokens.
const ID_DIGITS: usize = 24;

/// Everything that launches depend on.
#[derive(Debug, Clone)]
pub struct LaunchInput<'a> {
    /// The time.
    pub now: Timestamp,
    /// The function that decides.
    pub by: FunctionName,
    /// The cluster.
    pub registry: &'a Registry,
    /// Its classes that are ready for launches.
    pub classes: &'a BTreeMap<NodeClassName, ReadyClass>,
    /// The types of its pools, by name.
    pub types: &'a BTreeMap<NodePoolName, Arc<Vec<InstanceTypeOption>>>,
    /// The region of the marks.
    pub region: &'a Region,
    /// The region's marks: capacity that EC2 refused.
    pub marks: &'a Marks,
    /// The on-demand nodes that each zone has.
    pub zones: &'a ZoneTally,
    /// The claims that replacements are launched for.
    pub replaced: &'a [ClaimName],
    /// The nodes that EC2 takes back, by the pods that leave them; other pods of launches for pending pods wait.
    pub displaced: Option<&'a BTreeMap<Uid, NodeName>>,
    /// Names of launch templates that are being deleted in EC2: no launch takes one of them.
    pub leaving: &'a BTreeSet<String>,
    /// The generations of the plan's evidence.
    pub evidence: &'a BTreeMap<String, u64>,
}

/// A launch with all that is committed with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltLaunch {
    /// The launch.
    pub launch: Launch,
    /// Its claims.
    pub claims: Vec<Claim>,
    /// The templates that its request names.
    pub templates: Vec<(ImageId, CreateLaunchTemplate)>,
    /// The names of its pods.
    pub pods: LaunchedPods,
    /// The journal's records: the reason of each claim.
    pub records: Vec<JournalRecord>,
    /// The marks that the launch probes, as the commit writes them.
    pub leases: Vec<Mark>,
}

impl BuiltLaunch {
    /// The items of its templates, as they are before EC2 has them.
    pub fn template_items(&self) -> impl Iterator<Item = TemplateItem> {
        let Launch { class, created_at, .. } = &self.launch;
        self.templates.iter().map(|(image, request)| TemplateItem {
            name: request.name.clone(),
            class: class.clone(),
            image: image.clone(),
            created_at: *created_at,
            used_at: *created_at,
            request: to_stored(request),
            made_at: None,
        })
    }
}

/// Why no launch could be built for a claim.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The claim's class isn't ready for launches.
    #[error("EC2NodeClass `{0}` isn't ready: its conditions say what to do")]
    Class(NodeClassName),
    /// No offering with an image and a subnet is left.
    #[error(
        "no offering has both an image and a subnet: let the EC2NodeClass select images of other architectures, or subnets in \
         other zones"
    )]
    NoOverride,
    /// Another launch of the plan probes the mark first.
    #[error("another launch already asks EC2 for this capacity")]
    Taken,
    /// The types that fit into one launch don't satisfy the NodePool's `minValues`.
    #[error(transparent)]
    MinValues(#[from] MinValuesLost),
    /// The user data can't be made.
    #[error("invalid user data")]
    UserData(#[from] UserDataError),
    /// A generated id is malformed: a defect of Tenon.
    #[error("invalid id of the launch")]
    Id(#[from] ParseIdError),
}

/// Launches, and the claims without one.
#[derive(Debug, Default)]
pub struct Built {
    /// The launches, in the order of their first claims.
    pub launches: Vec<BuiltLaunch>,
    /// Groups of equal claims without a launch.
    pub refused: Vec<(Vec<ClaimName>, BuildError)>,
}

impl Built {
    /// Adds a finding for each claim without a launch. A claim that waits for another launch's probe gets none: a
    /// later pass plans it again.
    pub fn tell(&self, to: &mut Report) {
        let refused = self.refused.iter().filter(|(_, error)| !matches!(error, BuildError::Taken));
        for (names, error) in refused {
            for name in names {
                let subject = Subject { kind: SubjectKind::Claim, name: name.to_string() };
                to.tell(Finding::refused(subject, "NoLaunch", "not launching {}", chain(error)));
            }
        }
    }
}

/// Builds the launches of planned claims.
#[must_use]
pub fn build(input: &LaunchInput<'_>, claims: &[PlannedClaim], cause: &LaunchCause) -> Built {
    let mut building = Building { input, cause, taken: BTreeSet::new(), zones: input.zones.clone() };
    let mut built = Built::default();
    let groups = groups(claims);
    let mut more = SPREAD_UNDER.saturating_sub(groups.len());
    for group in groups {
        for part in building.parts(&group, &mut more) {
            match building.launch(part) {
                Ok(launch) => built.launches.extend(launch),
                Err(error) => {
                    built.refused.push((part.iter().map(|claim| claim.name.clone()).collect(), error));
                }
            }
        }
    }
    built
}

/// The state while launches are built.
struct Building<'a> {
    input: &'a LaunchInput<'a>,
    cause: &'a LaunchCause,
    /// Marks whose lease a launch of this plan takes.
    taken: BTreeSet<UnavailableKey>,
    /// The on-demand nodes of each zone, with those of the launches so far.
    zones: ZoneTally,
}

impl Building<'_> {
    /// The parts of a group that get a launch each: one for each zone of the lowest price, as long as the plan may
    /// have `more` launches.
    fn parts<'g, 'c>(&self, group: &'g [&'c PlannedClaim], more: &mut usize) -> Vec<&'g [&'c PlannedClaim]> {
        let zones = match group {
            [] => return Vec::new(),
            [_] => 1,
            [first, ..] if *more > 0 => {
                self.fleet(first).map_or(1, |(fleet, _)| tied_zones(&fleet, first).len())
            }
            [..] => 1,
        };
        let parts = zones.min(group.len()).min(1 + *more).max(1);
        *more -= parts - 1;
        // The first parts are one claim larger where the claims can't be divided.
        let (size, larger) = (group.len() / parts, group.len() % parts);
        let mut rest = group;
        let cut = |n: usize| {
            let (part, behind) = rest.split_at(size + usize::from(n < larger));
            rest = behind;
            part
        };
        (0..parts).map(cut).collect()
    }

    /// The fleet of a claim, with its class.
    fn fleet(&self, claim: &PlannedClaim) -> Result<(Fleet, &ReadyClass), BuildError> {
        let input = self.input;
        let ready = input.classes.get(&claim.class).ok_or_else(|| BuildError::Class(claim.class.clone()))?;
        let types = input.types.get(&claim.pool).map_or(&[][..], |types| types.as_slice());
        let status = &ready.status;
        let cluster = &input.registry.cluster;
        let digests = [RequestDigest::of_class(cluster, status)];
        let whole = refused_requests(cluster, &claim.pool, status);
        let of_fleet = FleetInput {
            status,
            settings: &ready.class.settings,
            types,
            marks: input.marks,
            requests: Requests { digests: &digests, whole: &whole },
            taken: &self.taken,
            purpose: match self.cause {
                LaunchCause::PendingPods => FleetPurpose::PendingPods,
                LaunchCause::Replacement(_) => FleetPurpose::Replacement,
            },
            zones: &self.zones,
            min_values: input.registry.settings.policies.min_values,
            now: input.now,
        };
        let fleet = fleet(claim, of_fleet).map_err(|why| match why {
            NoFleet::NoOverride => BuildError::NoOverride,
            NoFleet::Taken => BuildError::Taken,
            NoFleet::MinValues(lost) => BuildError::MinValues(lost),
        })?;
        Ok((fleet, ready))
    }

    /// The launch of equal claims.
    fn launch(&mut self, group: &[&PlannedClaim]) -> Result<Option<BuiltLaunch>, BuildError> {
        let Some(first) = group.first() else { return Ok(None) };
        let input = self.input;
        let cluster = &input.registry.cluster;
        let (fleet, ready) = self.fleet(first)?;
        let made_from = RequestDigest::of_class(cluster, &ready.status);
        let base = Claim {
            class_fields: Some(ready.class.spec_hash.fields()),
            class_hash: Some(ready.class.spec_hash.in_cluster(&input.registry.certificate_authority)),
            security_groups: Some(
                ready.status.security_groups.iter().map(|group| group.id.clone()).collect(),
            ),
            tenancy: fleet.tenancy,
            ..Claim::planned(
                first.name.clone(),
                (first.pool.clone(), first.class.clone()),
                launch_id(input, group)?,
                input.now,
            )
        };
        let id = base.launch.clone();
        let asked = LaunchAsked { cluster, launch: &id, planned_at: input.now };
        let marks = fleet.leases.iter().filter_map(|key| input.marks.get(key));
        let leases: Vec<Mark> = marks.filter_map(|mark| mark.leased(Probe::of(asked))).collect();
        let digits = Digest::of_texts(["token", id.as_str()]).base36(ID_DIGITS);
        let token = ClientToken::parse(format!("tenon-{digits}"))?;
        let parts =
            RequestParts { claim: first, count: group.len(), fleet: &fleet, launch: &id, token: &token };
        let (request, templates) = request(input, parts)?;
        let launch = Launch {
            id: id.clone(),
            revision: 1,
            pool: first.pool.clone(),
            class: first.class.clone(),
            token,
            request: request.to_stored(),
            made_from: Some(made_from),
            reservation: fleet.reservation.clone(),
            placement: fleet.placement.clone(),
            claims: group.iter().map(|planned| launch_claim(planned)).collect(),
            cause: self.cause.clone(),
            created_at: input.now,
            state: LaunchState::Requested { attempts: 0, not_before: input.now },
        };
        let claims = group.iter().map(|planned| claim(planned, &launch, &base)).collect();
        let records = group.iter().map(|planned| record(input, planned, &launch, &fleet)).collect();
        if let Some(zone) = tied_zones(&fleet, first).first() {
            self.zones.add(&first.pool, zone, group.len());
        }
        self.taken.extend(leases.iter().map(|mark| mark.key.clone()));
        let pods =
            LaunchedPods { launch: id, at: input.now, claims: group.iter().map(|c| claim_pods(c)).collect() };
        Ok(Some(BuiltLaunch { launch, claims, templates, pods, records, leases }))
    }
}

fn launch_claim(planned: &PlannedClaim) -> LaunchClaim {
    LaunchClaim { name: planned.name.clone(), pods: planned.pods.iter().map(|pod| pod.uid.clone()).collect() }
}

fn claim_pods(planned: &PlannedClaim) -> ClaimPods {
    ClaimPods { claim: planned.name.clone(), pods: planned.pods.iter().map(|pod| pod.name.clone()).collect() }
}

fn launch_id(input: &LaunchInput<'_>, group: &[&PlannedClaim]) -> Result<LaunchId, BuildError> {
    let now = input.now.to_string();
    let head = [input.registry.installation.as_str(), input.registry.cluster.as_str(), &now];
    let names = group.iter().map(|claim| claim.name.as_str());
    let digest = Digest::of_texts(head.into_iter().chain(names)).base36(ID_DIGITS);
    Ok(LaunchId::parse(format!("launch-{digest}"))?)
}

/// A claim of a launch, whose claims share what `base` has of their class.
fn claim(planned: &PlannedClaim, launch: &Launch, base: &Claim) -> Claim {
    Claim {
        name: planned.name.clone(),
        pool_hash: Some(planned.pool_hash),
        pool_fields: Some(planned.pool_fields.clone()),
        role: match &launch.cause {
            LaunchCause::PendingPods => CommandRole::None,
            LaunchCause::Replacement(command) => CommandRole::Replacement(command.clone()),
        },
        terms: Some(planned.terms),
        min_values: planned.min_values,
        // Every Node has its pool's name as a label anyway.
        labels: planned.labels.clone().into_iter().filter(|(key, _)| key != labels::NODEPOOL).collect(),
        requests: planned.requests.clone(),
        ..base.clone()
    }
}
