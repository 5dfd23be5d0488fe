//! The invariant of drifted nodes: one that drains because it drifted has drifted.
//!
//! Decides from the manifests of the NodePools and of the class over time, from the Node's labels, and from the images and
//! prices as they really are in EC2. Neither a claim's drift mark nor its hashes are read.
//!
//! Functions see the world late, so what held at any time within the stated delay counts. What can't be decided counts as
//! drift: a missing NodePool, a class that isn't ready, whose drift is neither found nor over meanwhile, a Node that is
//! gone, and an image that EC2 refused, which a class passes over for a while. Networks, reservations and placement groups
//! don't change in a history; a claim that drains for one of them is found.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::catalog::CapacityType;
use tenon_domain::claim::{Claim, ClaimPhase, LaunchedInstance, RemovalReason};
use tenon_domain::class_status::{ConditionStatus, ConditionType};
use tenon_domain::id::{ClaimName, ClusterName, ImageId};
use tenon_ec2::port::{Image, ImageState, TargetCapacityType};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::{at, deleted_at, list, name, text, text_map};
use tenon_twin::RequestOutcome;

use crate::accepted::ImageTerms;
use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};
use crate::pace::HistoryPace;
use crate::selected::is_of;

/// How late a manifest or a class's status is known: decisions use a snapshot of 90 s, its agent reports within 10 s, and
/// a step lasts a minute.
const SNAPSHOT_LATE: SignedDuration = SignedDuration::from_secs(170);
/// How old a claim is when its type is looked for, as with the peer.
const TYPES_SEEN_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// What held since when, in the order of time.
#[derive(Debug)]
struct ChangesSeen<T>(Vec<(Timestamp, T)>);

impl<T> Default for ChangesSeen<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> ChangesSeen<T> {
    /// Notes what holds now. The first sample held since ever.
    fn note(&mut self, now: Timestamp, holds: T) {
        if self.0.last().is_none_or(|(_, last)| *last != holds) {
            let since = if self.0.is_empty() { Timestamp::MIN } else { now };
            self.0.push((since, holds));
        }
    }

    /// What held at some time between two times.
    fn between(&self, (from, to): (Timestamp, Timestamp)) -> impl Iterator<Item = &T> {
        let ends = self.0.iter().skip(1).map(|(since, _)| *since).chain([Timestamp::MAX]);
        let all = self.0.iter().zip(ends);
        all.filter(move |((since, _), end)| *since <= to && *end >= from).map(|((_, held), _)| held)
    }
}

/// What a NodePool asks for.
#[derive(Debug, PartialEq)]
struct PoolAsks {
    /// Its template without requirements: any change is drift.
    template: Value,
    requirements: Vec<Value>,
}

/// The world's changes, and the claims that were judged.
#[derive(Debug, Default)]
pub(crate) struct DriftSeen {
    /// By NodePool; `None` while it is missing.
    pools: BTreeMap<String, ChangesSeen<Option<PoolAsks>>>,
    /// The spec of the cluster's only class without the terms that select images; `None` while it is missing.
    class: ChangesSeen<Option<Value>>,
    /// The image that the class should have; `None` while it isn't ready, or several are equally new.
    newest: ChangesSeen<Option<ImageId>>,
    /// Images that EC2 refused, or couldn't start.
    doubted: BTreeSet<ImageId>,
    requests_read: usize,
    judged: BTreeSet<ClaimName>,
}

/// A claim that begins to drain because it drifted differs from what its NodePool and its class ask for, or did so within
/// the time that functions take to see a change.
///
/// # Errors The invariant, and the finding.
pub(crate) fn invariant_drained_have_drifted(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    (moment, pace): (&ClusterMoment, HistoryPace),
    seen: &mut DriftSeen,
) -> Found {
    seen.look(region, cluster, moment);
    let late = pace.class_lag() + SNAPSHOT_LATE;
    for claim in &moment.claims {
        let drains = matches!(claim.phase(), ClaimPhase::Draining | ClaimPhase::Drained);
        if !drains || claim.state.removal() != Some(RemovalReason::Drifted) {
            continue;
        }
        if seen.judged.insert(claim.name.clone()) && !seen.may_have_drifted(region, cluster, claim, late) {
            let image = claim.state.instance().map(|instance| &instance.image);
            let text = format!(
                "claim {} of {} with image {image:?} drains because it drifted, but it is as its NodePool and its \
                 class ask for it: {:?}",
                claim.name, claim.pool, claim.state
            );
            return Err((Invariant::DrainedHaveDrifted, text));
        }
    }
    Ok(())
}

impl DriftSeen {
    /// Samples the manifests, the images and EC2's refusals.
    fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName, moment: &ClusterMoment) {
        let Some(site) = region.site(cluster) else { return };
        let manifests = site.cluster().objects(Kind::NodePool);
        let asked_by = |pool: &str| {
            manifests.iter().find(|manifest| name(manifest) == pool).and_then(|manifest| asks(manifest))
        };
        let names: BTreeSet<String> =
            manifests.iter().map(|pool| name(pool).to_owned()).chain(self.pools.keys().cloned()).collect();
        for pool in names {
            let asked = asked_by(&pool);
            self.pools.entry(pool).or_default().note(moment.at, asked);
        }
        let classes = site.cluster().objects(Kind::Ec2NodeClass);
        let class = classes.first().filter(|class| deleted_at(class).is_none());
        self.class.note(moment.at, class.map(|class| class_asks(class)));
        self.newest.note(moment.at, class.and_then(|class| newest(region, cluster, class)));
        let requests = region.twin().requests();
        for request in requests.iter().skip(self.requests_read) {
            let refused = matches!(request.outcome, RequestOutcome::Refused(_));
            let named = request.images.iter();
            let doubted = named.filter(|(_, state)| refused || *state != Some(ImageState::Available));
            self.doubted.extend(doubted.map(|(image, _)| image.clone()));
        }
        self.requests_read = requests.len();
        let failed = moment.instances.iter().filter(|record| record.defect.is_some());
        self.doubted.extend(failed.map(|record| record.instance.image.clone()));
    }

    /// Whether a claim drifted within so long, or that can't be decided.
    fn may_have_drifted(
        &self,
        region: &SimulatedRegion,
        cluster: &ClusterName,
        claim: &Claim,
        late: SignedDuration,
    ) -> bool {
        let Some(instance) = claim.state.instance() else { return true };
        let Some(labels) = labels_of(region, cluster, claim) else { return true };
        let Some(pool) = self.pools.get(claim.pool.as_str()) else { return true };
        let around = |at: Timestamp, late: SignedDuration| {
            let (from, to) = (at.checked_sub(late), at.checked_add(late));
            (from.unwrap_or(Timestamp::MIN), to.unwrap_or(Timestamp::MAX))
        };
        let (now, planned) = (around(region.now(), late), around(claim.created_at, SNAPSHOT_LATE));
        let of_pool = pool.between(now).any(|asked| {
            let Some(asked) = asked else { return true };
            let differs = |known: &PoolAsks| known.template != asked.template;
            pool.between(planned).any(|known| known.as_ref().is_none_or(differs))
                || asked.requirements.iter().any(|requirement| !is_met(requirement, &labels))
        });
        let of_class = self.class.between(now).any(|asked| {
            asked.is_none() || self.class.between(planned).any(|known| known.is_none() || known != asked)
        });
        let is_new = region.now().duration_since(claim.created_at) < TYPES_SEEN_AFTER;
        of_pool
            || of_class
            || self.newest.between(now).any(|newest| newest.as_ref() != Some(&instance.image))
            || self.doubted.contains(&instance.image)
            || !(is_new || is_sold(region, instance))
    }
}

/// What a NodePool asks for; `None` while it is deleted.
fn asks(manifest: &Value) -> Option<PoolAsks> {
    if deleted_at(manifest).is_some() {
        return None;
    }
    let mut template = at(manifest, "/spec/template").cloned().unwrap_or_default();
    let spec = template.get_mut("spec").and_then(Value::as_object_mut);
    let requirements = spec.and_then(|spec| spec.remove("requirements"));
    let requirements = requirements.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    Some(PoolAsks { template, requirements })
}

/// What a class asks for, but for its images.
fn class_asks(manifest: &Value) -> Value {
    let mut spec = at(manifest, "/spec").cloned().unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("amiSelectorTerms");
    }
    spec
}

/// The newest image that a class selects and accepts, once its status is of that manifest and ready.
fn newest(region: &SimulatedRegion, cluster: &ClusterName, manifest: &Value) -> Option<ImageId> {
    let status = region.classes(cluster).into_iter().find(|status| is_of(status, manifest))?;
    status.condition(ConditionType::Ready).filter(|ready| ready.status == ConditionStatus::True)?;
    let terms = ImageTerms::of(manifest);
    let account = &region.installation().account;
    let fits = |image: &&Image| {
        image.state == ImageState::Available
            && image.owner == *account
            && terms.selects(image)
            && terms.accepts(&image.tags)
    };
    let images = region.twin().images();
    let created_at = images.iter().filter(fits).map(|image| image.created_at).max()?;
    let mut newest = images.iter().filter(fits).filter(|image| image.created_at == created_at);
    let first = newest.next()?;
    newest.next().is_none().then(|| first.id.clone())
}

/// The labels of a claim's Node.
fn labels_of(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    claim: &Claim,
) -> Option<BTreeMap<String, String>> {
    let node = region.site(cluster)?.cluster().object(Kind::Node, "", claim.state.node()?.as_str())?;
    Some(text_map(&node, "/metadata/labels"))
}

/// Whether labels meet a requirement. The worlds' requirements are all `In`.
fn is_met(requirement: &Value, labels: &BTreeMap<String, String>) -> bool {
    let value = text(requirement, "/key").and_then(|key| labels.get(key));
    let mut values = list(requirement, "/values").iter().filter_map(Value::as_str);
    text(requirement, "/operator") == Some("In")
        && value.is_some_and(|value| values.any(|asked| asked == value))
}

/// Whether EC2 sells an instance's type in its zone, paid in its way.
fn is_sold(region: &SimulatedRegion, instance: &LaunchedInstance) -> bool {
    let paid = match instance.capacity_type {
        CapacityType::Spot => TargetCapacityType::Spot,
        CapacityType::OnDemand | CapacityType::Reserved => TargetCapacityType::OnDemand,
    };
    region.twin().price(paid, &instance.instance_type, &instance.zone).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn what_ended_before_a_time_or_began_after_it_doesnt_count() {
        let mut seen = ChangesSeen::default();
        for (second, held) in [(10, 'a'), (20, 'a'), (30, 'b'), (40, 'a')] {
            seen.note(at(second), held);
        }
        let check = |from: i64, to: i64, expected: &[char]| {
            let held: Vec<char> = seen.between((at(from), at(to))).copied().collect();
            assert_eq!(held, expected, "from {from} to {to}");
        };
        check(0, 5, &['a']);
        check(0, 29, &['a']);
        check(25, 35, &['a', 'b']);
        check(31, 39, &['b']);
        check(41, 50, &['a']);
        check(0, 50, &['a', 'b', 'a']);
    }

    #[test]
    fn a_requirement_is_met_by_the_label_that_it_names() {
        let labels = BTreeMap::from([("size".to_owned(), "large".to_owned())]);
        let check = |requirement: Value, expected: bool| assert_eq!(is_met(&requirement, &labels), expected);
        check(serde_json::json!({"key": "size", "operator": "In", "values": ["large", "xlarge"]}), true);
        check(serde_json::json!({"key": "size", "operator": "In", "values": ["xlarge"]}), false);
        check(serde_json::json!({"key": "family", "operator": "In", "values": ["m5"]}), false);
    }
}
