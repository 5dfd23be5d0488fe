//! The invariants of the images that a class accepts.
//!
//! Decides from the images as they really are in EC2 and from the class's manifest: which of them its policy accepts
//! is judged here again, from docs/images.md.
//!
//! Allowed is the stated lag alone: an image leaves a class at the next event, or within five minutes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tenon_domain::id::{ClusterName, ImageId};
use tenon_domain::labels::IMAGE_POLICY;
use tenon_domain::tags;
use tenon_ec2::port::{Image, ImageState, Tags};
use tenon_region::engine::SimulatedRegion;
use tenon_snapshot::Kind;
use tenon_snapshot::object::at;
use tenon_twin::RequestRecord;

use crate::invariants::{Found, Invariant};
use crate::validation::LOOKS;

/// The longest time until a sweep sees an image as it is.
pub const SEEN_WITHIN: SignedDuration = SignedDuration::from_mins(5);

/// What is known of the images of a class.
#[derive(Debug, Default)]
pub struct ImagesSeen {
    /// When the class accepted an image first without a break, and last.
    accepted: BTreeMap<ImageId, AcceptedImage>,
    judged: usize,
}

#[derive(Debug)]
struct AcceptedImage {
    since: Timestamp,
    last: Timestamp,
    held: bool,
}

/// A class's own words about images.
pub(crate) struct ImageTerms {
    required_tags: BTreeMap<String, String>,
    names: Vec<String>,
    tags: Vec<(String, String)>,
}

impl ImageTerms {
    /// Those of a manifest.
    pub(crate) fn of(manifest: &Value) -> Self {
        let annotations = at(manifest, "/metadata/annotations");
        let policy = annotations.and_then(|all| all.get(IMAGE_POLICY)).and_then(Value::as_str);
        let policy: Value = policy.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let terms = at(manifest, "/spec/amiSelectorTerms").and_then(Value::as_array);
        let terms = || terms.into_iter().flatten();
        let names = terms().filter_map(|term| term.get("name")?.as_str().map(str::to_owned));
        let texts = |map: Option<&Value>| -> Vec<(String, String)> {
            let pairs = map.and_then(Value::as_object).into_iter().flatten();
            pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        Self {
            required_tags: texts(policy.get("requiredTags")).into_iter().collect(),
            names: names.collect(),
            tags: terms().flat_map(|term| texts(term.get("tags"))).collect(),
        }
    }

    /// Whether an image of these tags is accepted.
    pub(crate) fn accepts(&self, tags: &Tags) -> bool {
        self.required_tags.iter().all(|(key, value)| tags.get(key) == Some(value))
    }

    /// Whether the class selects an image.
    pub(crate) fn selects(&self, image: &Image) -> bool {
        let tagged = |(key, value): &(String, String)| image.tags.get(key) == Some(value);
        self.names.contains(&image.name) || (!self.tags.is_empty() && self.tags.iter().all(tagged))
    }
}

impl ImagesSeen {
    /// Samples the images as they are.
    fn look(&mut self, images: &[Image], terms: &ImageTerms, now: Timestamp) {
        for image in images {
            let accepted = image.state == ImageState::Available && terms.accepts(&image.tags);
            match self.accepted.get_mut(&image.id) {
                Some(known) => {
                    if accepted {
                        known.since = if known.held { known.since } else { now };
                        known.last = now;
                    }
                    known.held = accepted;
                }
                None if accepted => {
                    let first = AcceptedImage { since: now, last: now, held: true };
                    self.accepted.insert(image.id.clone(), first);
                }
                None => {}
            }
        }
    }
}

/// Each launch that reaches EC2 names images only that are available and that the class's policy accepts, or that
/// were both at most so long ago. A launch that was committed in time may be sent again.
///
/// # Errors The invariant, and the finding.
pub fn invariant_images_accepted(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    seen: &mut ImagesSeen,
    lag: SignedDuration,
) -> Found {
    let Some(terms) = terms_of(region, cluster) else { return Ok(()) };
    let images = region.twin().images();
    let requests = region.twin().requests();
    let judged = std::mem::replace(&mut seen.judged, requests.len());
    for request in requests.iter().skip(judged) {
        if request.tags.get(tags::CLUSTER).is_none_or(|name| name != cluster.as_str()) {
            continue;
        }
        let launches = region.launches(cluster);
        let committed = launches.iter().find(|launch| launch.token == request.client_token);
        let at = committed.map_or(request.at, |launch| launch.created_at);
        for (id, state) in &request.images {
            let tags = images.iter().find(|image| image.id == *id).map(|image| &image.tags);
            let accepted = tags.is_some_and(|tags| terms.accepts(tags));
            let was = seen.accepted.get(id).is_some_and(|known| at.duration_since(known.last) <= lag);
            let now = accepted && *state == Some(ImageState::Available);
            if !was && !now {
                return Err((Invariant::ImagesAccepted, named(request, id, *state, tags)));
            }
        }
    }
    seen.look(&images, &terms, region.now());
    Ok(())
}

fn named(request: &RequestRecord, id: &ImageId, state: Option<ImageState>, tags: Option<&Tags>) -> String {
    format!("a launch at {} names image {id}, which is {state:?} with tags {tags:?}", request.at)
}

/// A class has the newest image that it selects and accepts, once that is so for as long as a sweep takes to see it.
/// Before `right_since` something else was wrong or was changed.
///
/// # Errors The invariant, and the finding.
pub fn invariant_newest_taken(
    region: &SimulatedRegion,
    cluster: &ClusterName,
    seen: &ImagesSeen,
    right_since: Timestamp,
) -> Found {
    let Some(terms) = terms_of(region, cluster) else { return Ok(()) };
    let account = &region.installation().account;
    let long_enough = |image: &Image| {
        seen.accepted.get(&image.id).is_some_and(|known| {
            let since = known.since.max(right_since);
            known.held && region.now().duration_since(since) > SEEN_WITHIN + LOOKS
        })
    };
    let images = region.twin().images();
    // A class passes over an image whose instances failed.
    let instances = region.twin().instances();
    let failed: BTreeSet<&ImageId> = instances
        .iter()
        .filter(|record| record.defect.is_some())
        .map(|record| &record.instance.image)
        .collect();
    let ours = images.iter().filter(|image| image.owner == *account && terms.selects(image));
    let ours = ours.filter(|image| !failed.contains(&image.id));
    let Some(best) = ours.filter(|image| long_enough(image)).max_by_key(|image| image.created_at) else {
        return Ok(());
    };
    for class in region.classes(cluster) {
        let older = |created_at: Timestamp| best.created_at.is_some_and(|best| created_at < best);
        if class.images.is_empty() || class.images.iter().any(|image| older(image.created_at)) {
            let has: Vec<&str> = class.images.iter().map(|image| image.name.as_str()).collect();
            let text = format!(
                "class {} has {has:?}, and accepts the newer image {} (`{}`) since {:?}: {:?}",
                class.name,
                best.id,
                best.name,
                seen.accepted.get(&best.id).map(|known| known.since),
                class.conditions,
            );
            return Err((Invariant::NewestTaken, text));
        }
    }
    Ok(())
}

/// The words of the cluster's only class.
fn terms_of(region: &SimulatedRegion, cluster: &ClusterName) -> Option<ImageTerms> {
    let manifests = region.site(cluster)?.cluster().objects(Kind::Ec2NodeClass);
    manifests.first().map(|manifest| ImageTerms::of(manifest))
}
