//! Deflated attributes, for long repetitive values: DynamoDB charges each KB of an item at each write.
//!
//! Invariant: the unpacked size is bounded, whatever an item claims.

use std::io::{self, Read, Write as _};

use flate2::Compression;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::form::{Attributes, FieldError, FieldProblem, Fields};
use crate::value::Value;

/// Deflates bytes.
///
/// # Errors
/// None in practice: it writes into memory.
pub(crate) fn deflate(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Inflates bytes.
///
/// # Errors
/// For bytes that aren't deflated, and where there are more than `at_most` of them.
pub(crate) fn inflate(deflated: &[u8], at_most: u64) -> io::Result<Vec<u8>> {
    let mut plain = Vec::new();
    DeflateDecoder::new(deflated).take(at_most.saturating_add(1)).read_to_end(&mut plain)?;
    if plain.len() as u64 > at_most {
        return Err(io::Error::other(format!("it inflates to more than {at_most} bytes")));
    }
    Ok(plain)
}

/// Writes a text deflated.
pub(super) fn write_deflated(name: &'static str, text: &str, to: &mut Attributes) {
    match deflate(text.as_bytes()) {
        Ok(deflated) => to.value(name, Value::B(deflated)),
        Err(_) => to.text(name, text),
    }
}

/// Reads a text of at most so many bytes: deflated, or plain as earlier releases wrote it.
pub(super) fn read_deflated(name: &str, from: Fields<'_>, at_most: u64) -> Result<String, FieldError> {
    if !matches!(from.value(name)?, Value::B(_)) {
        return from.string(name);
    }
    let plain = inflate(from.bytes(name)?, at_most).map_err(|error| error.to_string());
    let text = plain.and_then(|plain| String::from_utf8(plain).map_err(|error| error.to_string()));
    text.map_err(|error| FieldError::at(name, FieldProblem::Invalid(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_deflated_is_read_up_to_a_bound() {
        let plain = b"m5.large ".repeat(1000);
        let deflated = deflate(&plain).unwrap();
        assert!(deflated.len() < 100, "{}", deflated.len());
        assert_eq!(inflate(&deflated, 9000).unwrap(), plain);
        assert_eq!(inflate(&deflated, 8999).unwrap_err().to_string(), "it inflates to more than 8999 bytes");
        assert!(inflate(b"plain", 100).is_err());
    }
}
