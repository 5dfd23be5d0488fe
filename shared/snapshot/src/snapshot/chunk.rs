//! One chunk: the digest of its content, and its item.

use std::fmt;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::Value;
use tenon_domain::digest::Digest;
use tenon_table::{Item, Value as Attribute};

use super::size::{SizeBudget, SnapshotTooLarge, size_of};
use super::{ChunkKind, VERSION};

/// Hexadecimal digits of a digest: 64 bits, of which a cluster's chunks of an hour never share one.
const DIGEST_DIGITS: usize = 16;

/// A chunk as a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkRef {
    /// Its content's kind.
    pub kind: ChunkKind,
    /// Which bucket of that kind, from 0.
    pub bucket: u32,
    /// The digest of its content: 16 hexadecimal digits.
    pub digest: String,
    /// Its packed bytes.
    pub bytes: usize,
}

/// `pods/17/4f3c8a2b9d1e0f56/5120`, as manifests hold it.
impl fmt::Display for ChunkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.kind, self.bucket, self.digest, self.bytes)
    }
}

impl ChunkRef {
    /// Parses a manifest's reference.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let kind = ChunkKind::parse(parts.next()?)?;
        let bucket = parts.next()?.parse().ok()?;
        let digest = parts.next()?.to_owned();
        let bytes = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { kind, bucket, digest, bytes })
    }
}

/// A chunk with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// How manifests name it.
    pub name: ChunkRef,
    /// Its content: deflated JSON.
    pub data: Vec<u8>,
}

/// A chunk that can't be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum ChunkError {
    /// The item has no `data`.
    #[error("the chunk has no `data`")]
    NoData,
    /// The bytes aren't deflated.
    #[error("can't unpack the chunk")]
    Packing(#[source] std::io::Error),
    /// The content isn't JSON.
    #[error("the chunk isn't JSON")]
    Json(#[source] serde_json::Error),
    /// It is more than is left for the snapshot.
    #[error(transparent)]
    TooLarge(#[from] SnapshotTooLarge),
}

impl Chunk {
    /// Packs a content, given as JSON text.
    #[must_use]
    pub fn pack(kind: ChunkKind, bucket: u32, content: &str) -> Self {
        let digest = content_digest(content);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        // Writing into memory can't fail; an empty chunk would be refused by its reader.
        let written = encoder.write_all(content.as_bytes()).and_then(|()| encoder.finish());
        let data = written.unwrap_or_default();
        Self { name: ChunkRef { kind, bucket, digest, bytes: data.len() }, data }
    }

    /// The item that holds it.
    #[must_use]
    pub fn to_item(&self) -> Item {
        Item::from([
            ("v".to_owned(), Attribute::number(VERSION)),
            ("data".to_owned(), Attribute::B(self.data.clone())),
        ])
    }

    /// The content of an item and its size, if the budget has room; the budget isn't charged.
    ///
    /// # Errors [`ChunkError`] names the problem.
    pub(super) fn unpack(item: &Item, budget: SizeBudget) -> Result<(Value, u64), ChunkError> {
        let data = item.get("data").and_then(Attribute::as_bytes).ok_or(ChunkError::NoData)?;
        let text = budget.unpack(data)??;
        let size = size_of(&text);
        let mut left = budget;
        left.take(size)?;
        Ok((serde_json::from_slice(&text).map_err(ChunkError::Json)?, size))
    }
}

/// The digest by which content is addressed.
pub(crate) fn content_digest(content: &str) -> String {
    Digest::of_texts([content]).hex().get(..DIGEST_DIGITS).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_chunk_unpacks_to_what_was_packed() {
        let content = json!({"v": 1, "items": ["a"]});
        let chunk = Chunk::pack(ChunkKind::Nodes, 3, &content.to_string());
        let budget = SizeBudget::new(1000);
        assert_eq!(Chunk::unpack(&chunk.to_item(), budget).unwrap().0, content);
        assert_eq!(ChunkRef::parse(&chunk.name.to_string()), Some(chunk.name));
        assert_eq!(Chunk::unpack(&Item::new(), budget).unwrap_err().to_string(), "the chunk has no `data`");
    }

    #[test]
    fn a_chunk_that_inflates_to_more_than_is_left_is_refused_before_it_is_read() {
        let bomb = Chunk::pack(ChunkKind::Nodes, 0, &" ".repeat(64 * 1024 * 1024));
        assert!(bomb.data.len() < 70_000, "{}", bomb.data.len());
        let refused = Chunk::unpack(&bomb.to_item(), SizeBudget::new(1024 * 1024)).unwrap_err();
        assert!(matches!(refused, ChunkError::TooLarge(_)), "{refused}");
        // Few bytes with many values are no better.
        let values = Chunk::pack(ChunkKind::Nodes, 0, &format!("[{}0]", "0,".repeat(100_000)));
        let refused = Chunk::unpack(&values.to_item(), SizeBudget::new(1024 * 1024)).unwrap_err();
        assert!(matches!(refused, ChunkError::TooLarge(_)), "{refused}");
    }
}
