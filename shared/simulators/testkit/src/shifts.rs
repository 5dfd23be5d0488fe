//! The invariant of shifted zones.
//!
//! Decides which shifts a plan could have known: those that the classes' statuses have had for a while.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use tenon_domain::class_status::ClassSubnet;
use tenon_domain::id::{ClusterName, LaunchId, Zone};
use tenon_domain::zonal_shift::ShiftEnd;
use tenon_ec2::port::CreateFleetRequest;
use tenon_region::engine::SimulatedRegion;

use crate::history::ClusterMoment;
use crate::invariants::Invariant;

/// A plan's statuses may be one look old, and a function may be slow.
pub const KNOWN_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// Samples of the classes' zones, and the judged launches.
#[derive(Default)]
pub struct ShiftsSeen {
    /// Since when a zone is shifted away from.
    since: BTreeMap<Zone, Timestamp>,
    judged: BTreeSet<LaunchId>,
}

impl ShiftsSeen {
    /// Samples the current statuses.
    pub fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let now = region.now();
        let subnets = region.classes(cluster).into_iter().flat_map(|class| class.subnets);
        let shifted: BTreeSet<Zone> =
            subnets.filter(|subnet| is_shifted(subnet, now)).map(|subnet| subnet.zone).collect();
        self.since.retain(|zone, _| shifted.contains(zone));
        for zone in shifted {
            self.since.entry(zone).or_insert(now);
        }
    }

    fn is_known(&self, zone: &Zone, at: Timestamp) -> bool {
        self.since.get(zone).is_some_and(|since| at.duration_since(*since) > KNOWN_AFTER)
    }
}

fn is_shifted(subnet: &ClassSubnet, now: Timestamp) -> bool {
    subnet.shifted.is_some_and(|end| match end {
        ShiftEnd::At(end) => now < end,
        ShiftEnd::Open => true,
    })
}

/// No launch is planned into a zone that was known to be shifted.
///
/// # Errors The invariant, and the finding.
pub fn invariant_shifted_zones_are_left_alone(
    moment: &ClusterMoment,
    shifts: &mut ShiftsSeen,
) -> Result<(), (Invariant, String)> {
    for launch in &moment.launches {
        if !shifts.judged.insert(launch.id.clone()) {
            continue;
        }
        let Ok(request) = CreateFleetRequest::from_stored(&launch.request) else { continue };
        let overrides = request.launch_templates.iter().flat_map(|template| &template.overrides);
        let mut zones = overrides.filter_map(|with| with.zone.as_ref());
        if let Some(zone) = zones.find(|zone| shifts.is_known(zone, launch.created_at)) {
            let text = format!("launch {} names zone {zone} during its zonal shift", launch.id);
            return Err((Invariant::ShiftedZonesLeftAlone, text));
        }
    }
    Ok(())
}
