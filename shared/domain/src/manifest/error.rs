//! Errors and warnings of manifests.
//!
//! Decides their text. One value holds all errors of a reading.

use std::fmt;

/// One error of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub struct ManifestError {
    /// The file, or another name for the object's origin; empty where the reader names the object itself.
    pub file: String,
    /// The line, counted from 1; absent if the object wasn't read from text.
    pub line: Option<u32>,
    /// The field's path, such as `spec.template.spec.requirements[0].operator`; empty for the whole document.
    pub field: String,
    /// What is wrong, and what was expected.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// `file:line: field: message (remedy)`, or `field: message (remedy)` without a file.
impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if let Some(line) = self.line {
                write!(f, "{line}:")?;
            }
            f.write_str(" ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, " ({})", self.remedy) }
    }
}

/// All errors of a reading, in the order of the files, then by line. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ManifestErrors(pub Vec<ManifestError>);

/// An error or a warning whose file isn't known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ObjectProblem {
    pub(super) line: Option<u32>,
    pub(super) field: String,
    pub(super) message: String,
    pub(super) remedy: String,
}

impl ObjectProblem {
    pub(super) fn of(self, file: &str) -> ManifestError {
        let Self { line, field, message, remedy } = self;
        ManifestError { file: file.to_owned(), line, field, message, remedy }
    }
}
