//! Parts: rows of pods that share a shape and a bucket.
//!
//! Decides which pods' rows are stored together. Similar rows next to each other compress to half of the size of rows
//! in any order, and a pod's change touches one or two buckets. A shape with many pods is halved by its pods'
//! digests, and each half again, until a part is small. Rejected: a number of parts computed from the number of pods,
//! because one more pod could move all rows.
//!
//! Invariant: a pod's part depends only on the pods of its shape, not on earlier snapshots.

use std::collections::BTreeMap;

use tenon_domain::digest::Digest;

use super::bucket::bucket_of;
use crate::pod::{PodRef, SeenPod};

/// The most rows of a part: few enough that parts fill buckets evenly, and enough that the shape's digest, 8
/// incompressible bytes, doesn't matter.
const ROWS_A_PART: usize = 40;
/// Pods' digests have no more bits.
const MOST_CUTS: u32 = u64::BITS;

/// The rows of a bucket's parts, by shape.
pub(super) type Groups<'a> = BTreeMap<&'a str, Vec<&'a SeenPod>>;

/// The rows of each bucket, by shape, in the order of Nodes: names of neighbours begin alike.
pub(super) fn parts(pods: &[PodRef], buckets: u32) -> BTreeMap<u32, Groups<'_>> {
    let mut shapes: BTreeMap<&str, Vec<(u64, &SeenPod)>> = BTreeMap::new();
    for pod in pods {
        shapes.entry(pod.shape().digest()).or_default().push((place(&pod.key.name), pod));
    }
    let mut all: BTreeMap<u32, Groups<'_>> = BTreeMap::new();
    for (digest, mut rows) in shapes {
        rows.sort_by_key(|(place, pod)| (*place, &pod.key.name, &pod.uid));
        cut(&rows, 0, &mut |part| {
            let bucket = bucket_of(&part_name(digest, part), buckets);
            let groups = all.entry(bucket).or_default();
            groups.entry(digest).or_default().extend(part.rows.iter().map(|(_, pod)| *pod));
        });
    }
    let order = |pod: &SeenPod, other: &SeenPod| {
        (&pod.node, &pod.key.name, &pod.uid).cmp(&(&other.node, &other.key.name, &other.uid))
    };
    for rows in all.values_mut().flat_map(BTreeMap::values_mut) {
        rows.sort_by(|pod, other| order(pod, other));
    }
    all
}

/// Rows whose positions begin with the same bits.
#[derive(Debug, Clone, Copy)]
struct RowRange<'p, 'a> {
    rows: &'p [(u64, &'a SeenPod)],
    cuts: u32,
}

/// Cuts rows, given by their places, into parts.
fn cut<'a>(rows: &[(u64, &'a SeenPod)], cuts: u32, found: &mut impl FnMut(RowRange<'_, 'a>)) {
    if rows.len() <= ROWS_A_PART || cuts >= MOST_CUTS {
        if !rows.is_empty() {
            found(RowRange { rows, cuts });
        }
        return;
    }
    let bit = 1_u64 << (MOST_CUTS - 1 - cuts);
    let (low, high) = rows.split_at(rows.partition_point(|(place, _)| place & bit == 0));
    cut(low, cuts + 1, found);
    cut(high, cuts + 1, found);
}

/// The name that determines a part's bucket: its first position. So the lower half of a split part stays in its
/// bucket.
fn part_name(digest: &str, part: RowRange<'_, '_>) -> String {
    let mask = u64::MAX.checked_shr(part.cuts).map_or(u64::MAX, |below| !below);
    let begins = part.rows.first().map_or(0, |(place, _)| place & mask);
    format!("{digest}/{begins:016x}")
}

/// A pod's place among those of its shape.
fn place(name: &str) -> u64 {
    let digest = Digest::of_texts([name]);
    let [a, b, c, d, e, f, g, h, ..] = *digest.bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;

    const BUCKETS: u32 = 256;

    fn pod(n: usize, app: usize) -> PodRef {
        let pod = json!({"metadata": {"name": format!("web-{n}"), "namespace": "shop", "labels": {"app": app.to_string()}},
            "spec": {"nodeName": format!("node-{}", n % 7)}});
        Arc::new(SeenPod::read(&pod).unwrap())
    }

    /// The names in each bucket, by shape.
    fn buckets(pods: &[PodRef]) -> BTreeMap<u32, Vec<Vec<String>>> {
        let names = |rows: &Vec<&SeenPod>| rows.iter().map(|pod| pod.key.name.clone()).collect();
        let of = |groups: Groups<'_>| groups.values().map(names).collect();
        parts(pods, BUCKETS).into_iter().map(|(bucket, groups)| (bucket, of(groups))).collect()
    }

    #[test]
    fn every_pod_is_somewhere_and_parts_are_small() {
        let pods: Vec<PodRef> = (0..3_000).map(|n| pod(n, n % 3)).collect();
        let found = buckets(&pods);
        assert_eq!(found.values().flatten().map(Vec::len).sum::<usize>(), pods.len());
        // 1,000 pods of each of three shapes: 40 a part at most, and seldom more than two parts of a shape in a bucket.
        let largest = found.values().flatten().map(Vec::len).max().unwrap();
        assert!(largest <= 4 * ROWS_A_PART, "{largest}");
        let mut turned = pods.clone();
        turned.reverse();
        assert_eq!(buckets(&turned), found);
    }

    #[test]
    fn one_pod_more_touches_two_buckets_at_most() {
        let mut pods: Vec<PodRef> = Vec::new();
        let mut before = buckets(&pods);
        for n in 0..1_000 {
            pods.push(pod(n, 0));
            let after = buckets(&pods);
            let touched = (0..BUCKETS).filter(|bucket| before.get(bucket) != after.get(bucket)).count();
            assert!((1..=2).contains(&touched), "{n}: {touched}");
            before = after;
        }
    }
}
