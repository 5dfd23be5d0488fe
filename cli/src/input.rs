//! Files and standard input, as text.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use tenon_domain::manifest::{Read as ReadManifests, read_files};

use crate::errors::{Failure, Problem};

/// Standard input's name among files.
const STDIN: &str = "-";

/// A file's name in messages.
pub(crate) fn name_of(path: &Path) -> String {
    if path == Path::new(STDIN) { "<stdin>".to_owned() } else { path.display().to_string() }
}

/// A file's bytes; `-` is standard input.
///
/// # Errors
/// [`Problem`] names the file.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, Problem> {
    let unreadable = |error: std::io::Error| {
        let remedy = if error.kind() == ErrorKind::NotFound {
            "give a file that exists, or `-` for standard input"
        } else if error.kind() == ErrorKind::IsADirectory {
            "give its files one by one, each with `-f`"
        } else {
            "give a file that can be read"
        };
        Problem::new(format!("can't be read: {error}"), remedy).in_file(name_of(path))
    };
    if path == Path::new(STDIN) {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(unreadable)?;
        return Ok(bytes);
    }
    std::fs::read(path).map_err(unreadable)
}

/// A file's text; `-` is standard input.
///
/// # Errors
/// [`Problem`] names the file.
pub(crate) fn read_text(path: &Path) -> Result<String, Problem> {
    String::from_utf8(read_bytes(path)?).map_err(|error| {
        let text = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let lines = text.iter().filter(|byte| **byte == b'\n').count() + 1;
        Problem::new("not UTF-8 text", "save the file as UTF-8")
            .in_file(name_of(path))
            .on_line(u32::try_from(lines).ok())
    })
}

/// The objects of manifests.
///
/// # Errors
/// Everything that is wrong with all files.
pub(crate) fn read_manifests(paths: &[PathBuf]) -> Result<ReadManifests, Failure> {
    let mut problems = Vec::new();
    let mut texts = Vec::new();
    for path in paths {
        match read_text(path) {
            Ok(text) => texts.push((name_of(path), text)),
            Err(problem) => problems.push(problem),
        }
    }
    let pairs: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    match read_files(&pairs) {
        Ok(read) if problems.is_empty() => Ok(read),
        Ok(_) => Err(Failure(problems)),
        Err(errors) => {
            problems.extend(errors.0.into_iter().map(Problem::from));
            Err(Failure(problems))
        }
    }
}

/// What is worth knowing of manifests that were accepted, as sentences.
pub(crate) fn warnings_of(read: &ReadManifests) -> Vec<String> {
    let mut warnings: Vec<String> = read.warnings.iter().map(ToString::to_string).collect();
    if !read.manifests.skipped.is_empty() {
        warnings.push(format!("kinds that aren't looked at: `{}`", read.manifests.skipped.join("`, `")));
    }
    warnings
}
