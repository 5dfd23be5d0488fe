//! `TOLD#<function>`: a function's current findings in a cluster, for the agent to show and for people.
//!
//! Decides the form. The sink decides the two times of a finding: its beginning, and when it was last told; and which
//! findings rest.

use std::collections::BTreeSet;

use tenon_domain::Timestamp;
use tenon_domain::journal::{Decision, Subject, SubjectKind};
use tenon_domain::report::Shown;
use tenon_domain::wake::FunctionName;

use super::form::{Attributes, FieldError, Fields, ItemForm};

/// A function's findings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldFindings {
    /// The function.
    pub function: FunctionName,
    /// Its findings, by subject.
    pub findings: Vec<ToldFinding>,
    /// Findings that were told within the hour, and are over while what they are about is tried again.
    pub resting: Vec<RestingFinding>,
}

/// A finding that is over, and is no news if it comes back: then the next try failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestingFinding {
    /// Its identity over time.
    pub identity: String,
    /// Since when it was there.
    pub since: Timestamp,
    /// When it was last told.
    pub told_at: Timestamp,
}

/// A finding as last told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldFinding {
    /// Its identity over time.
    pub identity: String,
    /// The kind of its subjects.
    pub kind: SubjectKind,
    /// Its first subjects, by name.
    pub names: BTreeSet<String>,
    /// `Refused` or `Waiting`; `Unknown` of a later release, which is told as one that waits.
    pub decision: Decision,
    /// A CamelCase reason.
    pub reason: String,
    /// One sentence.
    pub message: String,
    /// How Kubernetes shows it besides an Event.
    pub shown: Shown,
    /// Since when.
    pub since: Timestamp,
    /// When it was last told.
    pub told_at: Timestamp,
    /// When what it is about is tried again, where that is known.
    pub next_try: Option<Timestamp>,
}

impl ToldFinding {
    /// Its subjects.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> {
        self.names.iter().map(|name| Subject { kind: self.kind, name: name.clone() })
    }
}

impl ItemForm for ToldFindings {
    fn write(&self, to: &mut Attributes) {
        to.text("function", self.function.as_str());
        to.list("findings", &self.findings, |finding, to| {
            to.text("identity", &finding.identity);
            to.text("kind", finding.kind.as_str());
            to.texts("names", &finding.names);
            to.text("decision", finding.decision.as_str());
            to.text("reason", &finding.reason);
            to.text("message", &finding.message);
            to.text("shown", finding.shown.as_str());
            to.time("since", finding.since);
            to.time("told_at", finding.told_at);
            to.time_if("next_try", finding.next_try);
        });
        let resting = (!self.resting.is_empty()).then_some(&self.resting);
        to.list_if("resting", resting, |finding, to| {
            to.text("identity", &finding.identity);
            to.time("since", finding.since);
            to.time("told_at", finding.told_at);
        });
    }

    fn read(from: Fields<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            function: from.word("function", FunctionName::parse)?,
            findings: from.known_list("findings", read_finding)?,
            resting: from.list_if("resting", |from| {
                Ok(RestingFinding {
                    identity: from.string("identity")?,
                    since: from.time("since")?,
                    told_at: from.time("told_at")?,
                })
            })?,
        })
    }
}

/// A word of a later release is no error: the agent would show none of the function's findings. A finding about a kind of
/// subject that this release doesn't know is left out, because it could show it on nothing.
fn read_finding(from: Fields<'_>) -> Result<ToldFinding, FieldError> {
    Ok(ToldFinding {
        identity: from.string("identity")?,
        kind: from.word("kind", SubjectKind::parse)?,
        names: from.texts("names")?,
        decision: Decision::of_any_release(from.text("decision")?),
        reason: from.string("reason")?,
        message: from.string("message")?,
        shown: Shown::of_any_release(from.text("shown")?),
        since: from.time("since")?,
        told_at: from.time("told_at")?,
        next_try: from.time_if("next_try")?,
    })
}
