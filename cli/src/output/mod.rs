//! The form of results: tables for people, JSON and YAML for scripts.
//!
//! Decides the forms, not the content. A closed pipe ends the output and is no error.

mod colour;
mod table;
pub(crate) mod told;
mod yaml;

use std::io::{self, BufWriter, Write};

use serde::Serialize;

pub(crate) use colour::Colour;
pub(crate) use table::Columns;

use crate::errors::{Failure, Problem};

/// The version of every document that is printed.
pub(crate) const API_VERSION: &str = "tenon.dev/v1";

/// Bytes of a document that are written in one call: few calls, little memory.
const WRITTEN_AT_ONCE: usize = 1 << 16;

/// `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people.
    #[default]
    Table,
    /// JSON in its documented form.
    Json,
    /// The same as YAML.
    Yaml,
}

/// A document's text in JSON or YAML, with its newline; for people's tables JSON, since a table is made elsewhere.
pub(crate) fn document_text<T: Serialize>(format: OutputFormat, document: &T) -> String {
    let mut text = Vec::new();
    match make(&mut text, format, document) {
        Ok(()) => String::from_utf8_lossy(&text).into_owned(),
        Err(error) => format!("{{\"error\":\"{error}\"}}\n"),
    }
}

/// Writes a document while it is made, with its newline.
fn make<W: Write, T: Serialize>(mut out: W, format: OutputFormat, document: &T) -> io::Result<()> {
    match format {
        OutputFormat::Table | OutputFormat::Json => serde_json::to_writer_pretty(&mut out, document)?,
        OutputFormat::Yaml => yaml::write(&mut out, document)?,
    }
    out.write_all(b"\n")
}

/// Whether the output still has a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputReader {
    /// Yes.
    There,
    /// The pipe is closed.
    Gone,
}

/// Writes to standard output at once.
///
/// # Errors [`Failure`] if the write fails, except for a closed pipe.
pub(crate) fn write(text: &str) -> Result<OutputReader, Failure> {
    let mut out = io::stdout().lock();
    told_of(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Writes a document to standard output, as [`document_text`] has it, while it is made: that of a large plan is gigabytes.
///
/// # Errors [`Failure`] if the write fails, except for a closed pipe.
pub(crate) fn write_document<T: Serialize>(
    format: OutputFormat,
    document: &T,
) -> Result<OutputReader, Failure> {
    let mut out = BufWriter::with_capacity(WRITTEN_AT_ONCE, io::stdout().lock());
    told_of(make(&mut out, format, document).and_then(|()| out.flush()))
}

fn told_of(written: io::Result<()>) -> Result<OutputReader, Failure> {
    match written {
        Ok(()) => Ok(OutputReader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => {
            let message = format!("can't write to standard output: {error}");
            Err(Problem::new(message, "write to a file or terminal that takes the output").into())
        }
    }
}

/// Warnings of a result that is printed as a table: on stderr, where they don't get into a pipe.
pub(crate) fn warn(warnings: &[String]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_keeps_the_fields_order_and_quotes_what_would_be_a_number() {
        #[derive(Serialize)]
        struct Document {
            zone: &'static str,
            cpu: &'static str,
            list: Vec<u8>,
            none: Option<u8>,
        }
        let document = Document { zone: "a", cpu: "2", list: vec![1], none: None };
        assert_eq!(
            document_text(OutputFormat::Yaml, &document),
            "zone: a\ncpu: \"2\"\nlist:\n  - 1\nnone: ~\n"
        );
    }
}
