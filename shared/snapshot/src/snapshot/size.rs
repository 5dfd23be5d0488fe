//! The largest snapshot when unpacked, so that one cluster can't exhaust a function that all clusters share.
//!
//! Decides how size is counted. A chunk of some KB may inflate a thousandfold, and JSON takes many times its text in
//! memory, so text and values both count, and a chunk named twice counts twice. Reading stops at the first chunk
//! beyond the limit; no snapshot is read in part.
//!
//! The numbers follow from the functions' memory in template.yaml: `tests/memory.rs` measures the worst contents, and
//! asserts that they fit beside the caches of other clusters.

use std::io::Read as _;

use flate2::bufread::DeflateDecoder;

use super::ChunkError;

/// The size limit of a snapshot. 1,000 nodes with 20,000 pods need less than half of it.
pub const SNAPSHOT_SIZE_MOST: u64 = 64 * MIB;
/// The size limit of a snapshot's EC2NodeClasses, for functions that read nothing else: some thousand classes.
pub const CLASSES_SIZE_MOST: u64 = 16 * MIB;
/// The size limit of the caches of all clusters, in a function that reads whole snapshots.
pub const KEPT_SIZE_MOST: u64 = SNAPSHOT_SIZE_MOST;
/// More chunks no agent writes: each kind in all of its buckets.
pub const CHUNKS_MOST: usize = 11 * 2_048;

const MIB: u64 = 1024 * 1024;
/// The count of a value besides its text: a tree node and an object's field, or an error's sentence.
const OF_A_VALUE: u64 = 96;
/// The count of a chunk besides its content: its names.
const OF_A_CHUNK: u64 = 256;
/// The most sentences that are kept about an unreadable object, and the longest: a malformed report must not grow in
/// memory.
const SENTENCES: usize = 8;
const SENTENCE_BYTES: usize = 256;

/// A snapshot that is more than its reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot is too large: at least {size} of {most} {unit}")]
pub struct SnapshotTooLarge {
    /// The size up to the limit.
    pub size: u64,
    /// The most that is read.
    pub most: u64,
    /// The unit: unpacked bytes, or chunks.
    pub unit: &'static str,
}

/// The remaining size of a snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizeBudget {
    used: u64,
    most: u64,
}

impl SizeBudget {
    pub(super) const fn new(most: u64) -> Self {
        Self { used: 0, most }
    }

    /// Takes a part of it.
    pub(super) fn take(&mut self, size: u64) -> Result<(), SnapshotTooLarge> {
        self.used = self.used.saturating_add(size);
        if self.used > self.most { Err(self.too_large()) } else { Ok(()) }
    }

    /// Unpacks data that fits the budget.
    pub(super) fn unpack(&self, data: &[u8]) -> Result<Result<Vec<u8>, SnapshotTooLarge>, ChunkError> {
        let left = self.most.saturating_sub(self.used);
        let mut text = Vec::new();
        let unpacked = DeflateDecoder::new(data).take(left.saturating_add(1)).read_to_end(&mut text);
        unpacked.map_err(ChunkError::Packing)?;
        let fits = u64::try_from(text.len()).is_ok_and(|bytes| bytes <= left);
        let more = Self { used: self.used.saturating_add(left).saturating_add(1), ..*self };
        Ok(if fits { Ok(text) } else { Err(more.too_large()) })
    }

    const fn too_large(self) -> SnapshotTooLarge {
        SnapshotTooLarge { size: self.used, most: self.most, unit: "bytes, values counted" }
    }
}

/// The size of a chunk's content. Separators in texts count as well: it is never too small.
pub(super) fn size_of(text: &[u8]) -> u64 {
    let separators = text.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    count(text.len()).saturating_add(count(separators).saturating_mul(OF_A_VALUE)).saturating_add(OF_A_CHUNK)
}

/// The sentences that are kept about an unreadable object.
pub(super) fn kept<T: ToString>(errors: &[T]) -> Vec<String> {
    let mut kept: Vec<String> = errors.iter().take(SENTENCES).map(|error| cut(error.to_string())).collect();
    if let Some(more) = errors.len().checked_sub(SENTENCES).filter(|more| *more > 0) {
        kept.push(format!("and {more} more"));
    }
    kept
}

/// The first sentence, which each pod of an unreadable shape repeats.
pub(super) fn first(errors: &[String]) -> Vec<String> {
    errors.first().map(|error| cut(error.clone())).into_iter().collect()
}

fn cut(mut sentence: String) -> String {
    if sentence.len() > SENTENCE_BYTES {
        let end = (0..=SENTENCE_BYTES).rev().find(|at| sentence.is_char_boundary(*at)).unwrap_or(0);
        sentence.truncate(end);
        sentence.push_str(" ...");
        sentence.shrink_to_fit();
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_values_count() {
        assert_eq!(size_of(b"1"), 1 + 256);
        assert_eq!(size_of(b"[0,0]"), 5 + 2 * 96 + 256);
        let mut budget = SizeBudget::new(1000);
        budget.take(600).unwrap();
        assert_eq!(budget.take(500).unwrap_err().size, 1100);
    }

    #[test]
    fn what_is_wrong_with_an_object_is_cut() {
        let errors: Vec<String> = (0..20).map(|n| format!("{n}{}", "ü".repeat(300))).collect();
        let kept = kept(&errors);
        assert_eq!((kept.len(), kept.last().unwrap().as_str()), (9, "and 12 more"));
        assert!(kept.iter().all(|sentence| sentence.len() <= SENTENCE_BYTES + 4));
        assert_eq!(first(&errors).len(), 1);
    }
}
