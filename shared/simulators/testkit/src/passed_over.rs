//! The invariant of images whose instances EC2 couldn't launch: a class leaves them alone for an hour.
//!
//! Decides from the instances as they really are and from the class's manifest. Boots that never end in a Node aren't
//! judged: whether an image is to blame for them depends on what its other instances did.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::id::ClusterName;
use tenon_domain::tags;
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::at;
use tenon_twin::ImageDefect;

use crate::history::ClusterMoment;
use crate::invariants::{Found, Invariant};

/// How long a class leaves an image alone.
const PASSED_OVER_FOR: SignedDuration = SignedDuration::from_hours(1);

/// The class's form, and since when it has it: another form may try a failed image at once.
#[derive(Debug, Default)]
pub struct ClassFormSeen {
    form: Option<(Value, Timestamp)>,
    judged: usize,
}

/// No launch names an image within the hour after an instance of it failed, once a sweep has seen the failure.
///
/// # Errors The invariant, and the finding.
pub fn invariant_failed_passed_over(
    region: &SimulatedRegion,
    moment: &ClusterMoment,
    cluster: &ClusterName,
    seen: &mut ClassFormSeen,
    lag: SignedDuration,
) -> Found {
    let since = seen.look(region, cluster);
    let requests = region.twin().requests();
    let judged = std::mem::replace(&mut seen.judged, requests.len());
    let Some(since) = since else { return Ok(()) };
    let ours = |name: Option<&String>| name.is_some_and(|name| name == cluster.as_str());
    let failed = |at: Timestamp, image: &tenon_domain::id::ImageId| {
        moment.instances.iter().find(|record| {
            let ended = record.terminated_at.filter(|_| record.defect == Some(ImageDefect::Key));
            ended.is_some_and(|ended| {
                let begun = ended.max(since).saturating_add(lag).unwrap_or(Timestamp::MAX);
                let begins_again = ended.saturating_add(PASSED_OVER_FOR).unwrap_or(Timestamp::MAX);
                record.instance.image == *image && (begun..begins_again).contains(&at) && ended >= since
            })
        })
    };
    for request in requests.iter().skip(judged).filter(|request| ours(request.tags.get(tags::CLUSTER))) {
        let committed = moment.launches.iter().find(|launch| launch.token == request.client_token);
        let at = committed.map_or(request.at, |launch| launch.created_at);
        for (image, _) in &request.images {
            if let Some(record) = failed(at, image) {
                let text = format!(
                    "a launch at {at} names image {image}, of which instance {} failed at {:?}",
                    record.instance.id, record.terminated_at
                );
                return Err((Invariant::FailedPassedOver, text));
            }
        }
    }
    Ok(())
}

impl ClassFormSeen {
    /// Samples the manifest of the cluster's only class. Returns since when it is as it is.
    fn look(&mut self, region: &SimulatedRegion, cluster: &ClusterName) -> Option<Timestamp> {
        let manifests = region.site(cluster)?.cluster().objects(Kind::Ec2NodeClass);
        let manifest = manifests.first()?;
        let part = |pointer: &str| at(manifest, pointer).cloned().unwrap_or_default();
        let form = Value::Array(vec![part("/spec"), part("/metadata/annotations")]);
        match &self.form {
            Some((known, since)) if *known == form => Some(*since),
            Some(_) | None => {
                self.form = Some((form, region.now()));
                Some(region.now())
            }
        }
    }
}
