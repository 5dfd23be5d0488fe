//! Hashes of bytes and of other hashes, as `hashstructure` makes them for Karpenter: with the options `SlicesAsSets`,
//! `IgnoreZeroValue` and `ZeroNil`.
//!
//! It doesn't decide which fields a value has.
//!
//! Source: mitchellh/hashstructure v2.0.2 `hashstructure.go`, with `FormatV2`; Go's `hash/fnv`, `New64`.

/// 64-bit FNV-1.
const OFFSET_BASIS: u64 = 14_695_981_039_346_656_037;
const PRIME: u64 = 1_099_511_628_211;

/// Bytes. A number is given as its bytes in little-endian order.
pub(super) fn bytes(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(OFFSET_BASIS, |hash, byte| hash.wrapping_mul(PRIME) ^ u64::from(byte))
}

/// A text.
pub(super) fn text(text: &str) -> u64 {
    bytes(text.bytes())
}

/// A list, in any order. Equal items cancel each other, as with the peer.
pub(super) fn list(items: impl Iterator<Item = u64>) -> u64 {
    items.fold(0, |hash, item| hash ^ item)
}

/// A map, from the hashes of its keys and values.
pub(super) fn map(entries: impl Iterator<Item = (u64, u64)>) -> u64 {
    finished(list(entries.map(|(key, value)| pair(key, value))))
}

/// A struct, from its name and the names and hashes of its fields, in the order of their declaration.
pub(super) fn structure<'a>(name: &str, fields: impl Iterator<Item = (&'a str, u64)>) -> u64 {
    fields.fold(text(name), |hash, (field, value)| finished(hash ^ pair(text(field), value)))
}

fn pair(first: u64, second: u64) -> u64 {
    bytes(first.to_le_bytes().into_iter().chain(second.to_le_bytes()))
}

fn finished(hash: u64) -> u64 {
    bytes(hash.to_le_bytes())
}
