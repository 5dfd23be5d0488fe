//! Files and standard input, as text.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;
use tenon_domain::manifest::{ManifestError, ReadManifests, line_of, objects, read_files};
use tenon_region::scenario::{SetupError, UnknownName};

use crate::errors::{Failure, Problem, chain};

/// Standard input's name among files.
const STDIN: &str = "-";

/// The remedy without a NodePool.
pub(crate) const NODE_POOL_EXAMPLE: &str = "\
add a NodePool and its EC2NodeClass with `-f`, such as:
    apiVersion: karpenter.sh/v1
    kind: NodePool
    metadata: {name: default}
    spec:
      template:
        spec:
          nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
          requirements:
            - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
    ---
    apiVersion: karpenter.k8s.aws/v1
    kind: EC2NodeClass
    metadata: {name: default}
    spec:
      amiSelectorTerms: [{alias: al2023@latest}]
      role: KarpenterNodeRole
      subnetSelectorTerms: [{tags: {karpenter.sh/discovery: CLUSTER}}]
      securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: CLUSTER}}]";

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
            "give the files in it instead"
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

/// Why the world of a scenario's text can't be made.
pub(crate) fn setup_problem(error: &SetupError, text: &str) -> Problem {
    let remedy = "change what is named, and try again";
    if let SetupError::Unknown(UnknownName { field, message }) = error {
        return Problem::new(message.clone(), remedy).at(field.clone()).on_line(line_of(text, field));
    }
    Problem::new(chain(error), remedy)
}

/// Manifests as text: each file's name and text. Standard input can be read only once.
pub(crate) struct Sources(Vec<(String, String)>);

impl Sources {
    /// Reads the files.
    ///
    /// # Errors [`Failure`] names all unreadable files, and the problems of the others.
    pub(crate) fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut problems = Vec::new();
        let mut sources = Self(Vec::new());
        for path in paths {
            match read_text(path) {
                Ok(text) => sources.0.push((name_of(path), text)),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            return Ok(sources);
        }
        if let Err(Failure(errors)) = sources.manifests() {
            problems.extend(errors);
        }
        Err(Failure(problems))
    }

    /// Their objects.
    ///
    /// # Errors
    /// Everything that is wrong with all files.
    pub(crate) fn manifests(&self) -> Result<ReadManifests, Failure> {
        let pairs: Vec<(&str, &str)> =
            self.0.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        Ok(read_files(&pairs)?)
    }

    /// Their objects as JSON; Lists are their items.
    pub(crate) fn objects(&self) -> Vec<Value> {
        self.0.iter().flat_map(|(name, text)| objects(name, text)).collect()
    }
}

/// The objects of manifests.
///
/// # Errors
/// Everything that is wrong with all files.
pub(crate) fn read_manifests(paths: &[PathBuf]) -> Result<ReadManifests, Failure> {
    Sources::read(paths)?.manifests()
}

/// The first warning of each file, field and message, with the number of the others: equal documents have equal ones.
fn each_once(warnings: &[ManifestError]) -> Vec<String> {
    type Kind<'a> = (&'a str, &'a str, &'a str);
    fn kind_of(one: &ManifestError) -> Kind<'_> {
        (&one.file, &one.field, &one.message)
    }
    let mut kinds: BTreeMap<Kind<'_>, usize> = BTreeMap::new();
    for one in warnings {
        *kinds.entry(kind_of(one)).or_default() += 1;
    }
    let mut told = Vec::new();
    for one in warnings {
        match kinds.remove(&kind_of(one)) {
            None => {}
            Some(1) => told.push(one.to_string()),
            Some(times) => told.push(format!("{one}, and {} more like it", times - 1)),
        }
    }
    told
}

/// Warnings about accepted manifests, as sentences.
pub(crate) fn warnings_of(read: &ReadManifests) -> Vec<String> {
    let mut warnings = each_once(&read.warnings);
    if !read.manifests.skipped.is_empty() {
        warnings.push(format!("ignored kinds: `{}`", read.manifests.skipped.join("`, `")));
    }
    warnings
}
