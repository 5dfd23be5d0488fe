//! The invariants of marks, over samples of a region's table.
//!
//! Decides nothing about marks: the domain does. A sample has a mark's state, not each write; the number of writes
//! between two samples shows only in its revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tenon_domain::catalog::CapacityType;
use tenon_domain::id::{ClusterName, LaunchId, Zone, ZoneId};
use tenon_domain::launch::{Launch, LaunchState};
use tenon_domain::unavailable::{Mark, MarkState, OfferingKey, UnavailableKey};
use tenon_ec2::port::CreateFleetRequest;
use tenon_memory_table::StoredItem;
use tenon_region::engine::SimulatedRegion;
use tenon_table::Key;
use tenon_table::items::{self, keys};

use crate::invariants::{Found, Invariant};

/// The bounds of a hold, and how long a mark without a probe is remembered: those of ARCHITECTURE.md, "Asking again".
const FIRST_HOLD: SignedDuration = SignedDuration::from_mins(1);
const MOST_HOLD: SignedDuration = SignedDuration::from_hours(2);
const FORGET_AFTER: SignedDuration = SignedDuration::from_hours(2);

fn found(invariant: Invariant, text: String) -> Found {
    Err((invariant, text))
}

/// The marks of a region's last sample, and the launches that ask for marked offerings.
#[derive(Default)]
pub struct MarksSeen {
    marks: BTreeMap<Arc<str>, SeenMark>,
    changes: Vec<MarkChange>,
    /// The offerings of launches.
    asked: BTreeMap<(ClusterName, LaunchId), BTreeSet<OfferingKey>>,
    /// Launches that weren't there at the look before.
    new: Vec<(ClusterName, Arc<Launch>)>,
    zones: BTreeMap<Zone, ZoneId>,
}

struct SeenMark {
    stored: Arc<StoredItem>,
    mark: Mark,
    /// The first sample with EC2's current answer.
    known_since: Timestamp,
}

/// A mark that changed since the last sample.
struct MarkChange {
    before: Option<Mark>,
    after: Mark,
}

impl MarksSeen {
    /// Looks at the marks of a region, and at its clusters' launches.
    pub fn look(&mut self, region: &SimulatedRegion) {
        let pk = keys::region_pk(&region.installation().region);
        let mut before = std::mem::take(&mut self.marks);
        self.changes.clear();
        self.new.clear();
        for (sk, stored) in region.table().peek_prefix(&pk, keys::UNAVAILABLE) {
            let known = before.remove(&sk);
            let seen = match known {
                Some(known) if Arc::ptr_eq(&known.stored, &stored) => known,
                Some(_) | None => {
                    let key = Key::new(pk.as_str(), &*sk);
                    let Ok(mark) = items::from_item::<Mark>(&key, stored.item()) else { continue };
                    let known_since = known
                        .as_ref()
                        .filter(|known| known.mark.asked_at == mark.asked_at)
                        .map_or(region.now(), |known| known.known_since);
                    let before = known.map(|known| known.mark);
                    self.changes.push(MarkChange { before, after: mark.clone() });
                    SeenMark { stored, mark, known_since }
                }
            };
            self.marks.insert(sk, seen);
        }
        for site in region.sites() {
            self.learn(region, site.name());
        }
    }

    /// Reads the offerings of a cluster's launches.
    fn learn(&mut self, region: &SimulatedRegion, cluster: &ClusterName) {
        let subnets = region.classes(cluster).into_iter().flat_map(|class| class.subnets);
        self.zones.extend(subnets.map(|subnet| (subnet.zone, subnet.zone_id)));
        for launch in region.launches(cluster) {
            let key = (cluster.clone(), launch.id.clone());
            if !self.asked.contains_key(&key) {
                let offerings = self.offerings(&launch);
                self.asked.insert(key, offerings);
                self.new.push((cluster.clone(), launch));
            }
        }
    }

    fn offerings(&self, launch: &Launch) -> BTreeSet<OfferingKey> {
        let Ok(request) = CreateFleetRequest::from_stored(&launch.request) else { return BTreeSet::new() };
        let capacity_type = CapacityType::from(request.capacity_type);
        let overrides = request.launch_templates.into_iter().flat_map(|template| template.overrides);
        overrides
            .filter_map(|from| {
                let zone_id = self.zones.get(from.zone.as_ref()?)?.clone();
                Some(OfferingKey { capacity_type, zone_id, instance_type: from.instance_type })
            })
            .collect()
    }

    /// Whether any capacity is held, due or being asked for again.
    pub(crate) fn any_in_effect(&self, now: Timestamp) -> bool {
        self.marks.values().any(|seen| seen.mark.state(now) != MarkState::Forgotten)
    }

    /// The marks of offerings that say something.
    fn offerings_marked(&self, now: Timestamp) -> impl Iterator<Item = (&OfferingKey, &SeenMark)> {
        let says = move |seen: &&SeenMark| says_something(&seen.mark, now);
        self.marks.values().filter(says).filter_map(|seen| match &seen.mark.key {
            UnavailableKey::Offering(offering) => Some((offering, seen)),
            UnavailableKey::Quota { .. }
            | UnavailableKey::Subnet(_)
            | UnavailableKey::CapacityType(_)
            | UnavailableKey::Reservation(_)
            | UnavailableKey::Request(_)
            | UnavailableKey::RequestOffering { .. } => None,
        })
    }

    fn asks(&self, cluster: &ClusterName, launch: &Launch, offering: &OfferingKey) -> bool {
        let key = (cluster.clone(), launch.id.clone());
        self.asked.get(&key).is_some_and(|offerings| offerings.contains(offering))
    }

    /// Whether a launch asks for anything in a zone, or in any zone if none is given.
    pub(crate) fn asks_in(&self, cluster: &ClusterName, launch: &Launch, zone: Option<&Zone>) -> bool {
        let zone_id = zone.and_then(|zone| self.zones.get(zone));
        let key = (cluster.clone(), launch.id.clone());
        let asked = self.asked.get(&key).into_iter().flatten();
        asked.into_iter().any(|offering| zone_id.is_none_or(|zone_id| *zone_id == offering.zone_id))
    }
}

/// Whether a mark has an effect: it counts refusals and isn't too old, or it is cleared and its time isn't over.
fn says_something(mark: &Mark, now: Timestamp) -> bool {
    if mark.count == 0 {
        return now < mark.until;
    }
    let blocked_until = mark.probe.as_ref().map_or(mark.until, |probe| probe.until.max(mark.until));
    now.duration_since(blocked_until) < FORGET_AFTER
}

/// Launches of all clusters.
pub(crate) fn launches(region: &SimulatedRegion) -> Vec<(ClusterName, Arc<Launch>)> {
    let of = |cluster: &ClusterName| {
        let cluster = cluster.clone();
        region.launches(&cluster).into_iter().map(move |launch| (cluster.clone(), launch))
    };
    region.sites().flat_map(|site| of(site.name())).collect()
}

/// A hold is at least one minute and at most two hours, and becomes longer only by the answer to a probe: the
/// failures of one storm count once.
///
/// # Errors The invariant, and the finding.
pub fn invariant_holds_bounded(seen: &MarksSeen) -> Found {
    for MarkChange { before, after } in &seen.changes {
        let hold = after.until.duration_since(after.asked_at);
        if after.count > 0 && !(FIRST_HOLD..=MOST_HOLD).contains(&hold) {
            let text = format!("mark {} holds for {hold:#} after {} refusals", after.key, after.count);
            return found(Invariant::HoldsBounded, text);
        }
        let same = before.as_ref().filter(|before| before.since == after.since && before.count > 0);
        let (from, probes) = match same {
            // A probe is two writes, its lease and its answer.
            Some(before) => {
                let writes = after.revision.saturating_sub(before.revision);
                (before.count, writes.saturating_add(u64::from(before.probe.is_some())) / 2)
            }
            None => {
                let written = before.as_ref().map_or(0, |before| before.revision);
                (1, after.revision.saturating_sub(written).saturating_sub(1) / 2)
            }
        };
        if u64::from(after.count.saturating_sub(from)) > probes {
            let text = format!(
                "mark {} went from {from} to {} refusals with at most {probes} probes",
                after.key, after.count
            );
            return found(Invariant::HoldsBounded, text);
        }
    }
    Ok(())
}

/// A mark is cleared once a later launch that got its capacity is settled.
///
/// # Errors The invariant, and the finding.
pub fn invariant_marks_clear(region: &SimulatedRegion, seen: &MarksSeen) -> Found {
    let marked: BTreeMap<&OfferingKey, &SeenMark> = seen.offerings_marked(region.now()).collect();
    if marked.is_empty() {
        return Ok(());
    }
    let settled: BTreeMap<String, Arc<Launch>> = launches(region)
        .into_iter()
        .filter(|(_, launch)| matches!(launch.state, LaunchState::Settled { .. }))
        .map(|(_, launch)| (launch.id.to_string(), launch))
        .collect();
    for given in region.twin().launches() {
        let launch = given.tags.get(tenon_domain::tags::LAUNCH).and_then(|launch| settled.get(launch));
        let (Some(launch), Some(zone_id)) = (launch, seen.zones.get(&given.zone)) else { continue };
        let offering = OfferingKey {
            capacity_type: CapacityType::from(given.capacity_type),
            zone_id: zone_id.clone(),
            instance_type: given.instance_type.clone(),
        };
        if let Some(mark) = marked.get(&offering)
            && launch.created_at > mark.known_since
        {
            let (launch, asked_at) = (&launch.id, mark.mark.asked_at);
            let text = format!(
                "launch {launch} got an instance of {offering}, but its mark of {asked_at} isn't cleared"
            );
            return found(Invariant::MarksClear, text);
        }
    }
    Ok(())
}

/// A launch that asks for a marked offering holds the mark's lease, which only one launch can hold.
///
/// # Errors The invariant, and the finding.
pub fn invariant_one_probe(region: &SimulatedRegion, seen: &MarksSeen) -> Found {
    if seen.new.is_empty() {
        return Ok(());
    }
    for (offering, known) in seen.offerings_marked(region.now()) {
        let key = &known.mark.key;
        // Between two looks a lease can be taken and given back, and be taken by another one then.
        let moved_on = |change: &MarkChange| {
            let written = change.before.as_ref().map_or(0, |before| before.revision).saturating_add(1);
            change.after.key == *key && (change.after.probe.is_none() || change.after.revision > written)
        };
        if seen.changes.iter().any(moved_on) {
            continue;
        }
        for (cluster, launch) in &seen.new {
            let probe = known.mark.probe.as_ref();
            let holds = probe.is_some_and(|probe| probe.cluster == *cluster && probe.launch == launch.id);
            let knew = launch.created_at > known.known_since;
            if knew && !holds && seen.asks(cluster, launch, offering) {
                let text = format!(
                    "{} of {cluster}, planned at {}, asks for {offering} without the lease of {:?}",
                    launch.id, launch.created_at, known.mark
                );
                return found(Invariant::OneProbe, text);
            }
        }
    }
    Ok(())
}
