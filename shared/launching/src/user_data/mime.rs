//! Multipart archives: the form in which cloud-init and nodeadm read several documents at once.
//!
//! Decides how the user's text becomes parts, and the exact bytes of an archive. It doesn't decide what the parts say.
//!
//! Invariants: a part of the user's archive keeps its headers and its body; equal parts give equal bytes; no part holds
//! the archive's boundary.
//!
//! An archive of the user is read by `mail-parser`. Ours is written here: the launch template's name comes from the
//! bytes, and mail builders make a random boundary and encode bodies.
//!
//! Source: RFC 2046, section 5.1; cloudinit.readthedocs.io/en/latest/explanation/format.html#mime-multi-part-archive.

use mail_parser::{MessageParser, MessagePart, PartType};

use super::UserDataError;

/// A shell script.
pub(super) const SHELL_SCRIPT: &str = "text/x-shellscript; charset=\"us-ascii\"";
/// nodeadm's NodeConfig.
pub(super) const NODE_CONFIG: &str = "application/node.eks.aws";

/// The boundary that the peer uses; longer where a part holds it.
const BOUNDARY: &str = "//";
/// The headers that an archive begins with, one of them.
const FIRST_HEADERS: [&str; 2] = ["mime-version:", "content-type:"];

/// A part of an archive.
pub(super) fn part(content_type: &str, body: &str) -> String {
    format!("Content-Type: {content_type}\n\n{body}")
}

/// The parts of the user's text: those of its archive, or one of the type that `kind` gives it. An empty text has none.
pub(super) fn parts_of(
    text: Option<&str>,
    kind: impl FnOnce(&str) -> &'static str,
) -> Result<Vec<String>, UserDataError> {
    let text = text.unwrap_or_default().trim_start().replace("\r\n", "\n");
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let head = text.lines().next().unwrap_or_default().to_ascii_lowercase();
    if FIRST_HEADERS.iter().any(|header| head.starts_with(header)) {
        return archived(&text).ok_or(UserDataError::Multipart);
    }
    Ok(vec![part(kind(&text), &text)])
}

/// The parts of an archive as they are; `None` for a text that is none.
fn archived(text: &str) -> Option<Vec<String>> {
    let archive = MessageParser::new().with_mime_headers().parse(text.as_bytes())?;
    let PartType::Multipart(ids) = &archive.parts.first()?.body else { return None };
    let part = |id: &u32| text_of(text, archive.parts.get(usize::try_from(*id).ok()?)?);
    ids.iter().map(part).collect()
}

/// Headers and body of a part, as they are written.
fn text_of(text: &str, part: &MessagePart<'_>) -> Option<String> {
    let start = usize::try_from(part.offset_header).ok()?;
    let end = usize::try_from(part.offset_end).ok()?;
    text.get(start..end).map(str::to_owned)
}

/// The archive of the parts, in their order.
pub(super) fn archive(parts: &[String]) -> String {
    let mut boundary = BOUNDARY.to_owned();
    while parts.iter().any(|part| part.contains(&format!("--{boundary}"))) {
        boundary.push('/');
    }
    let mut text = format!("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\n\n");
    for part in parts {
        // The line break before a boundary isn't the part's.
        text.push_str(&format!("--{boundary}\n{part}\n"));
    }
    text.push_str(&format!("--{boundary}--\n"));
    text
}
