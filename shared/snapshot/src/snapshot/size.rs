//! How large a snapshot may be once it is unpacked, so that no cluster's ends a function that all clusters share.
//!
//! Decides what counts: a chunk of some KB deflates a thousandfold, and JSON takes many times its text once it is read, so
//! both the text and the values in it count, and whatever a manifest names twice counts twice. Reading stops at the first
//! chunk that is too much; nothing is read in part.
//!
//! The numbers are bounded by the functions' memory in template.yaml: `tests/memory.rs` measures what the worst contents
//! take, and asserts that they fit beside what is kept of other clusters.

use std::io::Read as _;

use flate2::bufread::DeflateDecoder;

use super::ChunkError;

/// What a whole snapshot may be. 1,000 nodes with 20,000 pods are less than half of it.
pub const SNAPSHOT_SIZE_MOST: u64 = 64 * MIB;
/// What the EC2NodeClasses of a snapshot may be, for functions that read nothing else of it: some thousand of them.
pub const CLASSES_SIZE_MOST: u64 = 16 * MIB;
/// What is kept of all clusters' snapshots between wakes, in a function that reads whole ones.
pub const KEPT_SIZE_MOST: u64 = SNAPSHOT_SIZE_MOST;
/// More chunks no agent writes: each kind in all of its buckets.
pub const CHUNKS_MOST: usize = 11 * 2_048;

const MIB: u64 = 1024 * 1024;
/// What a value counts beside its text: it is a node of a tree and a field of an object, or a sentence of what is wrong
/// with it.
const OF_A_VALUE: u64 = 96;
/// What a chunk counts beside its content: its names.
const OF_A_CHUNK: u64 = 256;
/// So many sentences are kept of what is wrong with an object, and so much of each: whoever reports nonsense has nobody keep
/// more of it than was reported.
const SENTENCES: usize = 8;
const SENTENCE_BYTES: usize = 256;

/// A snapshot that is more than its reader takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot is too large: at least {size} of {most} {unit}")]
pub struct SnapshotTooLarge {
    /// As far as it was read.
    pub size: u64,
    /// The most that is read.
    pub most: u64,
    /// What of: bytes once unpacked, or chunks.
    pub unit: &'static str,
}

/// What is left of a snapshot's size.
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

    /// Unpacks what has a place in it.
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

/// What is kept of what is wrong with an object.
pub(super) fn kept<T: ToString>(errors: &[T]) -> Vec<String> {
    let mut kept: Vec<String> = errors.iter().take(SENTENCES).map(|error| cut(error.to_string())).collect();
    if let Some(more) = errors.len().checked_sub(SENTENCES).filter(|more| *more > 0) {
        kept.push(format!("and {more} more"));
    }
    kept
}

/// The first of these sentences: what is kept for each pod of a shape that can't be read.
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
