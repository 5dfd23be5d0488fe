//! Buckets of objects: the bucket of each object, and the number of buckets of each kind.
//!
//! Decides them so that a change rewrites one small chunk. The number of buckets is a power of two, and changes only
//! when the objects double, or shrink to an eighth; then whole buckets are split or joined.

use tenon_domain::digest::Digest;

use super::ChunkKind;

/// More buckets than this a manifest doesn't name.
pub(super) const MOST_BUCKETS: u32 = 2_048;

/// The average number of objects a bucket, at most. A chunk of 80 pods has some 1.2 KB, and the index of 20,000 pods
/// names 256 of them. Nodes are larger and alike, and rarely change.
pub(super) const fn objects_a_bucket(kind: ChunkKind) -> usize {
    match kind {
        ChunkKind::Pods => 80,
        ChunkKind::Shapes => 16,
        ChunkKind::DaemonSets
        | ChunkKind::Nodes
        | ChunkKind::Pdbs
        | ChunkKind::Volumes
        | ChunkKind::Attachments
        | ChunkKind::Services
        | ChunkKind::NodePools
        | ChunkKind::NodeClasses
        | ChunkKind::NodeClaims
        | ChunkKind::Namespaces
        | ChunkKind::Reports => 32,
    }
}

/// The number of buckets for so many objects, given the number before.
pub(super) fn bucket_count(kind: ChunkKind, objects: usize, before: u32) -> u32 {
    let most = objects_a_bucket(kind);
    let room = |buckets: u32| most.saturating_mul(usize::try_from(buckets).unwrap_or(usize::MAX));
    let mut buckets = before.clamp(1, MOST_BUCKETS);
    while objects > room(buckets) && buckets < MOST_BUCKETS {
        buckets *= 2;
    }
    while buckets > 1 && objects.saturating_mul(8) < room(buckets) {
        buckets /= 2;
    }
    buckets
}

/// The bucket of an object by its name.
pub(super) fn bucket_of(name: &str, buckets: u32) -> u32 {
    let digest = Digest::of_texts([name]);
    let [a, b, c, d, ..] = *digest.bytes();
    u32::from_be_bytes([a, b, c, d]) % buckets.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_buckets_is_stable() {
        let check = |objects: usize, before: u32, expected: u32| {
            assert_eq!(bucket_count(ChunkKind::Pods, objects, before), expected, "{objects} {before}");
        };
        check(0, 1, 1);
        check(80, 1, 1);
        check(81, 1, 2);
        check(20_000, 1, 256);
        check(20_481, 256, 512);
        check(20_000, 512, 512);
        check(5_120, 512, 512);
        check(5_119, 512, 256);
        check(0, 512, 1);
        check(10_000_000, 1, MOST_BUCKETS);
    }
}
