//! Snapshots of images that may become a class's: EC2 launches nothing from one that isn't whole.
//!
//! Decides which images' snapshots are looked at: the account's own, which EC2 shows, of images that are newer than the
//! class's. So a class whose images are the newest costs no call. It judges nothing (`judge_image`).
//!
//! Invariants: one look asks EC2 once, for all classes; without an answer no snapshot is known, which rejects nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use tenon_domain::api::Ec2NodeClass;
use tenon_domain::class_status::ClassStatus;
use tenon_domain::id::NodeClassName;
use tenon_ec2::Ec2;
use tenon_ec2::port::{Image, ImageState, ResourceFilter, SnapshotState};

use crate::plan::Answers;

/// The most images of a class and architecture whose snapshots are looked at: the class takes the best of them.
const IMAGES: usize = 5;

/// The states of snapshots that aren't whole, by id.
pub type UnfinishedSnapshots = BTreeMap<String, SnapshotState>;

/// Asks EC2 about the snapshots of images that may become a class's.
pub(crate) async fn unfinished<E: Ec2>(
    ec2: &E,
    account: &str,
    looked: &[(Ec2NodeClass, Answers)],
    statuses: &BTreeMap<NodeClassName, ClassStatus>,
) -> UnfinishedSnapshots {
    let wanted = looked.iter().flat_map(|(class, answers)| {
        let found = answers.images.answer.as_deref().unwrap_or_default();
        candidates(found, account, statuses.get(&class.name))
    });
    let ids: BTreeSet<&String> = wanted.flat_map(snapshots).collect();
    if ids.is_empty() {
        return UnfinishedSnapshots::new();
    }
    let filter = ResourceFilter { ids: ids.into_iter().cloned().collect(), ..ResourceFilter::default() };
    let found = ec2.describe_snapshots(&filter).await.unwrap_or_default();
    let unfinished = found.into_iter().filter_map(|snapshot| Some((snapshot.id, snapshot.state?)));
    unfinished.filter(|(_, state)| *state != SnapshotState::Completed).collect()
}

/// The account's images that are newer than those of the class, newest first.
fn candidates<'a>(found: &'a [Image], account: &str, status: Option<&ClassStatus>) -> Vec<&'a Image> {
    let mut by_architecture: BTreeMap<&str, Vec<&Image>> = BTreeMap::new();
    for image in found.iter().filter(|image| image.owner == account && image.state == ImageState::Available) {
        let Some(architecture) = image.architecture else { continue };
        let taken = status.map(|status| status.images.as_slice()).unwrap_or_default();
        let mut of_this = taken.iter().filter(|taken| taken.architecture.as_str() == architecture.as_str());
        let is_newer = of_this.all(|taken| image.created_at.is_some_and(|at| at > taken.created_at));
        if is_newer {
            by_architecture.entry(architecture.as_str()).or_default().push(image);
        }
    }
    let newest = |mut images: Vec<&'a Image>| {
        images.sort_by_key(|image| Reverse(image.created_at));
        images.truncate(IMAGES);
        images
    };
    by_architecture.into_values().flat_map(newest).collect()
}

fn snapshots(image: &Image) -> impl Iterator<Item = &String> {
    image.facts.volumes.values().filter_map(|volume| volume.snapshot.as_ref())
}
