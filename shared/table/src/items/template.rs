//! `TEMPLATE#`: a launch template of a cluster: its request, and whether EC2 has it. `TEMPLATES`: the names that leave.
//!
//! Decides the forms. `lifecycle` decides which templates leave.

use std::collections::BTreeMap;

use tenon_domain::Timestamp;
use tenon_domain::id::{ImageId, NodeClassName};

use super::form::{Attributes, FieldError, FieldProblem, Fields, ItemForm};

/// A launch template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateItem {
    /// Its name in EC2, which carries the digest of its content.
    pub name: String,
    /// The class.
    pub class: NodeClassName,
    /// The image in it.
    pub image: ImageId,
    /// When it was committed.
    pub created_at: Timestamp,
    /// When a launch last used it.
    pub used_at: Timestamp,
    /// The request that makes it, in its own stored form.
    pub request: String,
    /// When EC2 was first seen to have it.
    pub made_at: Option<Timestamp>,
}

impl ItemForm for TemplateItem {
    fn write(&self, to: &mut Attributes) {
        to.text("name", &self.name);
        to.text("class", &self.class);
        to.text("image", &self.image);
        to.time("created_at", self.created_at);
        to.time("used_at", self.used_at);
        to.text("request", &self.request);
        to.time_if("made_at", self.made_at);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            name: from.string("name")?,
            class: from.parsed("class")?,
            image: from.parsed("image")?,
            created_at: from.time("created_at")?,
            used_at: from.time("used_at")?,
            request: from.string("request")?,
            made_at: from.time_if("made_at")?,
        })
    }
}

/// Names of launch templates that are being deleted in EC2. No launch takes one of them: EC2 may delete the template
/// between the launch's look and its call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeavingTemplates {
    /// The count of changes; 0 before the first.
    pub revision: u64,
    /// Since when each name leaves.
    pub since: BTreeMap<String, Timestamp>,
}

impl ItemForm for LeavingTemplates {
    fn write(&self, to: &mut Attributes) {
        to.number("revision", self.revision);
        write_times("since", &self.since, to);
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self { revision: from.u64("revision")?, since: read_times("since", from)? })
    }
}

/// Writes a moment by name.
pub fn write_times(attribute: &'static str, times: &BTreeMap<String, Timestamp>, to: &mut Attributes) {
    to.labels(attribute, &times.iter().map(|(name, at)| (name.clone(), at.to_string())).collect());
}

/// Reads a moment by name.
///
/// # Errors
/// When it is no map of moments.
pub fn read_times(attribute: &str, from: Fields<'_>) -> Result<BTreeMap<String, Timestamp>, FieldError> {
    let invalid = |error: jiff::Error| FieldError::at(attribute, FieldProblem::Invalid(error.to_string()));
    let time = |(name, at): (String, String)| Ok((name, at.parse().map_err(invalid)?));
    from.labels(attribute)?.into_iter().map(time).collect()
}
