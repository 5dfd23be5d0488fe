//! Stable digests, for names and tokens that depend on their parts alone.
//!
//! Decides how parts become a digest, and its written form. It doesn't decide the parts.
//!
//! Invariant: each part is hashed with its length, so `["ab", "c"]` and `["a", "bc"]` differ.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

const DIGITS: [char; 36] = [
    '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k',
    'l', 'm', 'n', 'o', 'p', 'q', 'r', 's', 't', 'u', 'v', 'w', 'x', 'y', 'z',
];

/// A SHA-256 over parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of the parts in their order, each preceded by its length (64 bits, little-endian).
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            let length = u64::try_from(part.len()).unwrap_or(u64::MAX);
            hash.update(length.to_le_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// The digest of texts; see [`Digest::of`].
    pub fn of_texts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::of(parts.into_iter().map(str::as_bytes))
    }

    /// The raw 32 bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            // Writing to a String can't fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// So many lower-case letters and digits, the digest's lowest digits in base 36. Past the 50th they are `0`.
    #[must_use]
    pub fn base36(&self, length: usize) -> String {
        let mut number = self.0;
        (0..length).map(|_| DIGITS.get(divide_by_36(&mut number)).copied().unwrap_or('0')).collect()
    }
}

/// Divides the big-endian number in place and returns the remainder, below 36.
fn divide_by_36(number: &mut [u8; 32]) -> usize {
    let mut remainder = 0_u16;
    for byte in number.iter_mut() {
        let value = remainder * 256 + u16::from(*byte);
        // At most (35 * 256 + 255) / 36 = 255.
        *byte = u8::try_from(value / 36).unwrap_or(u8::MAX);
        remainder = value % 36;
    }
    usize::from(remainder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_same_on_every_machine() {
        let digest = Digest::of_texts(["default", "1"]);
        assert_eq!(digest.hex(), Digest::of([b"default".as_slice(), b"1".as_slice()]).hex());
        // `printf '\7\0\0\0\0\0\0\0default\1\0\0\0\0\0\0\0001' | sha256sum`
        assert_eq!(digest.hex(), "2130104271de105265ccd2aedb6741b90c75794beb71baf2aad31a6fa051b5ac");
        assert_eq!(digest.base36(5), "8h87n");
        assert_eq!(digest.base36(60).len(), 60);
    }

    #[test]
    fn where_a_part_ends_matters() {
        assert_ne!(Digest::of_texts(["ab", "c"]), Digest::of_texts(["a", "bc"]));
        assert_ne!(Digest::of_texts([]), Digest::of_texts([""]));
    }
}
