//! UIDs of pods, packed: a burst writes thousands of them under one partition key.
//!
//! Decides their form: 16 bytes each where all are UUIDs, as Kubernetes makes them, otherwise a list of texts.
//!
//! Invariant: what is read equals what was written, in its order.

use std::fmt::Write as _;
use std::str::FromStr;

use tenon_domain::id::{ParseIdError, Uid};

use super::form::{Attributes, FieldError, FieldProblem, Fields};
use crate::value::Value;

/// The bytes of a UUID.
const UUID_BYTES: usize = 16;
/// The hyphens of a UUID come before these of its bytes.
const AFTER_HYPHENS: [usize; 4] = [4, 6, 8, 10];

pub(super) fn write_uids(name: &'static str, uids: &[Uid], to: &mut Attributes) {
    let packed: Option<Vec<[u8; UUID_BYTES]>> = uids.iter().map(|uid| packed(uid.as_str())).collect();
    match packed {
        Some(packed) if !packed.is_empty() => to.value(name, Value::B(packed.concat())),
        _ => to.texts(name, uids.iter().map(|uid| format!("//{uid}"))),
    }
}

/// Packed, or as texts; earlier releases wrote the pods' names into these.
pub(super) fn read_uids(name: &'static str, from: Fields<'_>) -> Result<Vec<Uid>, FieldError> {
    if !matches!(from.value_if(name), Some(Value::B(_))) {
        let texts: Vec<NamedUid> = from.texts(name)?;
        return Ok(texts.into_iter().map(|named| named.0).collect());
    }
    let invalid = |problem: String| FieldError::at(name, FieldProblem::Invalid(problem));
    let bytes = from.bytes(name)?;
    let (uuids, rest) = bytes.as_chunks::<UUID_BYTES>();
    if !rest.is_empty() {
        return Err(invalid(format!("{} bytes aren't UUIDs of {UUID_BYTES} bytes each", bytes.len())));
    }
    uuids.iter().map(|uuid| Uid::parse(unpacked(*uuid)).map_err(|error| invalid(error.to_string()))).collect()
}

/// The bytes of a UUID; `None` if it isn't in its canonical text, which is what `unpacked` makes.
fn packed(text: &str) -> Option<[u8; UUID_BYTES]> {
    let mut bytes = [0; UUID_BYTES];
    let mut digits = text.bytes().filter(|byte| *byte != b'-').map(|digit| char::from(digit).to_digit(16));
    for byte in &mut bytes {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    (unpacked(bytes) == text).then_some(bytes)
}

fn unpacked(bytes: [u8; UUID_BYTES]) -> String {
    let mut text = String::with_capacity(36);
    for (n, byte) in bytes.iter().enumerate() {
        if AFTER_HYPHENS.contains(&n) {
            text.push('-');
        }
        // Writing into a text doesn't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A UID after a name: `<namespace>/<name>/<uid>`, as earlier releases wrote it; without the name, `//<uid>`.
struct NamedUid(Uid);

impl FromStr for NamedUid {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let expected = "`<namespace>/<name>/<uid>`";
        let uid = text.splitn(3, '/').nth(2).ok_or_else(|| ParseIdError {
            kind: "counted pod",
            value: text.to_owned(),
            expected,
        })?;
        Ok(Self(Uid::parse(uid)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Item;

    const UUIDS: [&str; 2] = ["00112233-4455-6677-8899-aabbccddeeff", "f47ac10b-58cc-4372-a567-0e02b2c3d479"];

    fn uids(texts: &[&str]) -> Vec<Uid> {
        texts.iter().map(|text| Uid::parse(*text).unwrap()).collect()
    }

    fn check(texts: &[&str]) -> Value {
        let item: Item = Attributes::written(|to| write_uids("pods", &uids(texts), to));
        assert_eq!(read_uids("pods", Fields::of(&item)).unwrap(), uids(texts));
        item["pods"].clone()
    }

    #[test]
    fn uuids_take_16_bytes_each_and_other_uids_are_texts() {
        assert_eq!(check(&UUIDS).as_bytes().map(<[u8]>::len), Some(32));
        assert_eq!(check(&[]), Value::L(Vec::new()));
        for odd in [
            "5d1c",
            "00112233-4455-6677-8899-AABBCCDDEEFF",
            "00112233445566778899aabbccddeeff",
            "0011-22334455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeeff0",
            "a/b/c/d",
            "-",
        ] {
            assert!(matches!(check(&[UUIDS[0], odd]), Value::L(_)), "{odd}");
        }
    }

    #[test]
    fn pods_with_names_of_earlier_releases_are_read() {
        let read = |value: Value| read_uids("pods", Fields::of(&Item::from([("pods".to_owned(), value)])));
        let named =
            Value::L(vec![Value::text(format!("shop/web-1/{}", UUIDS[0])), Value::text("shop/web-2/5d1c")]);
        assert_eq!(read(named).unwrap(), uids(&[UUIDS[0], "5d1c"]));
        let error = read(Value::L(vec![Value::text("web")])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "attribute `pods[0]`: `web` is not a valid counted pod: expected `<namespace>/<name>/<uid>`"
        );
        let error = read(Value::B(vec![0; 17])).unwrap_err();
        assert_eq!(error.to_string(), "attribute `pods`: 17 bytes aren't UUIDs of 16 bytes each");
    }
}
