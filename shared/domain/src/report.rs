//! A planner's refusals, waits and warnings, for people.
//!
//! Decides how refusals with one cause become one [`Finding`] with a count, the most findings of a report, and the
//! identity of a finding over time. It doesn't decide when or where a finding is told.
//!
//! Invariants: a [`Report`] has no readable field, and one way out, [`Report::deliver`]; equal refusals in any order
//! give the same report.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;

use crate::evidence::Waiting;
use crate::journal::{Decision, Subject, SubjectKind};
use crate::snapshot::Unreadable;

/// Findings of one report. Each is two items of the journal, and all of them must fit one transaction of 100.
pub const FINDINGS_MOST: usize = 40;
/// Names in a sentence; the others are counted.
const NAMES_IN_SENTENCE: usize = 3;
/// Subjects of a finding that are kept by name.
pub const NAMES_KEPT: usize = 20;
/// Characters of a cause: EC2 encodes whole policies into some messages.
const WHY_CHARS: usize = 600;
/// The subject of findings about all pools of a cluster.
pub const ALL_POOLS: &str = "*";
/// The reason of a NodeClaim whose Node isn't what was expected.
pub const CONSISTENCY_CHECK_FAILED: &str = "ConsistencyCheckFailed";
/// The reason of the finding that counts those that aren't listed.
pub const OTHERS: &str = "Others";
/// A sentence of subjects that wait.
pub const WAITS: &str = "{waits}";

/// A count with its noun, such as `1 pod` or `2 pods`.
#[must_use]
pub fn counted<N: PartialEq + From<u8> + fmt::Display>(count: N, one: &str, many: &str) -> String {
    let noun = if count == N::from(1) { one } else { many };
    format!("{count} {noun}")
}

crate::words! {
    /// How Kubernetes shows a finding besides an Event. The table has its word. A later release shows it in another way, too:
    /// its Event is shown by all.
    pub enum Shown else Event {
        /// Nothing.
        Event,
        /// The condition `tenon.dev/LaunchRefused`, True, of its NodePool.
        LaunchRefused,
        /// The condition `tenon.dev/Waiting`, True, of its NodePool, or of all of them.
        Waiting,
        /// The condition `tenon.dev/DisruptionPaused`, True, of all NodePools.
        DisruptionPaused,
        /// The condition `tenon.dev/DriftsAgain`, True, of its NodeClaim.
        DriftsAgain,
        /// `Drained` of its NodeClaim is Unknown.
        DrainBlocked,
        /// `ValidationSucceeded` and `Ready` of its NodePool or EC2NodeClass are False.
        Invalid,
    }
}

/// The reason of an EC2NodeClass that is deleted and that NodeClaims use: the peer's.
pub const CLASS_IN_USE: &str = "WaitingOnNodeClaimTermination";
/// How many of these NodeClaims are named.
const USERS_NAMED: usize = 5;

/// What an EC2NodeClass that is deleted does, by the NodeClaims that use it.
#[must_use]
pub fn stays_while_used(users: &BTreeSet<&str>) -> String {
    let named: Vec<&str> = users.iter().copied().take(USERS_NAMED).collect();
    let more = match users.len().saturating_sub(named.len()) {
        0 => String::new(),
        more => format!(" and {}", counted(more, "other", "others")),
    };
    format!(
        "stays while NodeClaims `{}`{more} use it: delete their NodePools, or let these name another EC2NodeClass",
        named.join("`, `")
    )
}

/// One refusal, wait or warning, of one subject or of several alike.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// `Refused` or `Waiting`.
    pub decision: Decision,
    /// The kind of its subjects.
    pub kind: SubjectKind,
    /// The first subjects by name, at most [`NAMES_KEPT`].
    pub names: BTreeSet<String>,
    /// How many subjects there are.
    pub count: usize,
    /// What the subjects belong to, where they come and go: the finding stays the same while it has others of the group.
    /// Empty elsewhere.
    pub group: String,
    /// A CamelCase reason.
    pub reason: String,
    /// The part of the reason that makes it a different one; `why` may change without it, such as an age.
    pub condition: String,
    /// What the function `{by}` does or doesn't do to the subjects, `{}`; or [`WAITS`].
    pub sentence: String,
    /// The reason, and what to do about it.
    pub why: String,
    /// How Kubernetes shows it.
    pub shown: Shown,
    /// When what it is about is tried again by itself, where that is known. Another time is no other finding.
    pub next_try: Option<Timestamp>,
    /// Choices and rejected options, by name.
    pub details: BTreeMap<String, String>,
}

impl Finding {
    /// A refusal for a subject; the sentence has `{}` for it.
    #[must_use]
    pub fn refused(
        subject: Subject,
        reason: impl Into<String>,
        sentence: &str,
        why: impl Into<String>,
    ) -> Self {
        let why: String = why.into().chars().take(WHY_CHARS).collect();
        Self {
            decision: Decision::Refused,
            kind: subject.kind,
            names: BTreeSet::from([subject.name]),
            count: 1,
            group: String::new(),
            reason: reason.into(),
            condition: String::new(),
            sentence: sentence.to_owned(),
            why,
            shown: Shown::Event,
            next_try: None,
            details: BTreeMap::new(),
        }
    }

    /// Something waits.
    #[must_use]
    pub fn waiting(
        subject: Subject,
        reason: impl Into<String>,
        sentence: &str,
        why: impl Into<String>,
    ) -> Self {
        Self { decision: Decision::Waiting, ..Self::refused(subject, reason, sentence, why) }
    }

    /// An object that can't be read, with the fields that are wrong.
    #[must_use]
    pub fn unreadable(object: &Unreadable) -> Self {
        let (kind, name) = match object.kind.as_str() {
            "Pod" => (SubjectKind::Pod, object.name.clone()),
            "NodePool" => (SubjectKind::Pool, object.name.clone()),
            "EC2NodeClass" => (SubjectKind::Class, object.name.clone()),
            "NodeClaim" => (SubjectKind::Claim, object.name.clone()),
            other => (SubjectKind::Object, format!("{other}/{}", object.name)),
        };
        let why = if object.errors.is_empty() {
            "the reason is unknown".to_owned()
        } else {
            object.errors.join("; ")
        };
        let shown = match kind {
            SubjectKind::Pool | SubjectKind::Class => Shown::Invalid,
            SubjectKind::Claim
            | SubjectKind::Pod
            | SubjectKind::Image
            | SubjectKind::Instance
            | SubjectKind::Command
            | SubjectKind::Object
            | SubjectKind::Catalog => Shown::Event,
        };
        let found = Self::refused(Subject { kind, name }, "Unreadable", "ignoring invalid {}", why);
        Self { condition: found.why.clone(), shown, ..found }
    }

    /// A NodePool or an EC2NodeClass that was accepted, with a part of it that is probably a mistake.
    #[must_use]
    pub fn doubtful(subject: Subject, warning: &str) -> Self {
        Self::refused(subject, "ProbablyMistaken", "check {}", warning).condition(warning)
    }

    /// The same, shown so.
    #[must_use]
    pub fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }

    /// The same, which is tried again then.
    #[must_use]
    pub fn next_try(self, next_try: Option<Timestamp>) -> Self {
        Self { next_try, ..self }
    }

    /// The same, which is another one where this changes.
    #[must_use]
    pub fn condition(self, condition: impl Into<String>) -> Self {
        Self { condition: condition.into(), ..self }
    }

    /// The same of a group, whose members may come and go.
    #[must_use]
    pub fn group(self, group: impl Into<String>) -> Self {
        Self { group: group.into(), ..self }
    }

    /// The same, with a detail.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl ToString) -> Self {
        self.details.insert(name.to_owned(), value.to_string());
        self
    }

    /// Its first subject, which stands for all of them.
    #[must_use]
    pub fn subject(&self) -> Subject {
        Subject { kind: self.kind, name: self.names.first().cloned().unwrap_or_default() }
    }

    /// The identity of the finding over time.
    #[must_use]
    pub fn identity(&self) -> String {
        let about = if self.group.is_empty() { self.subject().to_string() } else { self.group.clone() };
        format!("{about} {} {} {}", self.decision.as_str(), self.reason, self.condition)
    }

    /// One sentence for people, in the name of a function.
    #[must_use]
    pub fn message(&self, by: &str) -> String {
        let sentence = if self.sentence == WAITS {
            self.waits()
        } else {
            self.sentence.replacen("{}", &self.subjects(), 1).replacen("{by}", by, 1)
        };
        format!("{sentence}: {}", self.why)
    }

    fn subjects(&self) -> String {
        let first = self.names.first().map_or("", String::as_str);
        if self.kind == SubjectKind::Object {
            let (kind, name) = first.split_once('/').unwrap_or(("object", first));
            return format!("{kind} `{name}`");
        }
        if self.kind == SubjectKind::Pool && first == ALL_POOLS {
            return "all NodePools".to_owned();
        }
        if self.count == 1 {
            return format!("{} `{first}`", self.kind.noun());
        }
        format!("{} {} ({})", self.count, self.kind.nouns(), self.first_names())
    }

    fn waits(&self) -> String {
        if self.count == 1 {
            return format!("{} waits", self.subjects());
        }
        format!("{} {} wait ({})", self.count, self.kind.nouns(), self.first_names())
    }

    fn first_names(&self) -> String {
        let named: Vec<String> =
            self.names.iter().take(NAMES_IN_SENTENCE).map(|name| format!("`{name}`")).collect();
        let more = if self.count > NAMES_IN_SENTENCE { ", …" } else { "" };
        format!("{}{more}", named.join(", "))
    }

    /// Whether it is a condition of each NodeClaim that it names: another NodeClaim must be shown soon.
    #[must_use]
    pub fn is_shown_by_name(&self) -> bool {
        let is_condition = match self.shown {
            Shown::DrainBlocked | Shown::DriftsAgain => true,
            Shown::Event => self.reason == CONSISTENCY_CHECK_FAILED,
            Shown::LaunchRefused | Shown::Waiting | Shown::DisruptionPaused | Shown::Invalid => false,
        };
        self.kind == SubjectKind::Claim && is_condition
    }

    /// Whether both are equal except for their subjects.
    fn is_like(&self, other: &Self) -> bool {
        (self.decision, self.kind, self.shown) == (other.decision, other.kind, other.shown)
            && (&self.reason, &self.condition, &self.sentence)
                == (&other.reason, &other.condition, &other.sentence)
            && (&self.why, &self.group) == (&other.why, &other.group)
            && matches!(self.kind, SubjectKind::Pod | SubjectKind::Claim)
    }
}

/// A planner's refusals, waits and warnings. The frame of a pass hands it to the sink.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use = "what a planner refuses or waits for is told"]
pub struct Report {
    findings: Vec<Finding>,
}

impl Report {
    /// Adds a finding; one like another, of another subject, is counted with it.
    pub fn tell(&mut self, finding: Finding) {
        match self.findings.iter_mut().find(|known| known.is_like(&finding)) {
            Some(known) => {
                if finding.names.iter().all(|name| known.names.contains(name)) {
                    return;
                }
                known.count = known.count.saturating_add(finding.count);
                known.names.extend(finding.names);
                while known.names.len() > NAMES_KEPT {
                    known.names.pop_last();
                }
            }
            None => self.findings.push(finding),
        }
    }

    /// Adds a wait of all pools, of one pool or of one class.
    pub fn wait(&mut self, waiting: &Waiting) {
        let all = ALL_POOLS.to_owned();
        let (kind, name, shown) = match waiting {
            Waiting::NodeClassNotReady { class, .. } => (SubjectKind::Class, class.clone(), Shown::Event),
            Waiting::LaunchRefused { pool, .. } => (SubjectKind::Pool, pool.clone(), Shown::LaunchRefused),
            Waiting::NodesNotJoining { pool, .. }
            | Waiting::NodesNotInitialized { pool, .. }
            | Waiting::NodePoolNotReady { pool, .. } => (SubjectKind::Pool, pool.clone(), Shown::Waiting),
            Waiting::CatalogNotHydrated { .. }
            | Waiting::CatalogStale { .. }
            | Waiting::SnapshotMissing
            | Waiting::SnapshotStale { .. }
            | Waiting::SnapshotAhead { .. }
            | Waiting::SnapshotTooLarge { .. }
            | Waiting::KarpenterRuns { .. }
            | Waiting::ClusterNotRegistered
            | Waiting::TableRestored => (SubjectKind::Pool, all, Shown::Waiting),
        };
        let (subject, why) = (Subject { kind, name }, waiting.to_string());
        let found =
            Finding::waiting(subject, waiting.into_str(), "{by} waits", why).next_try(waiting.ends_at());
        self.tell(found.condition(waiting.condition().unwrap_or_default()).shown(shown));
    }

    /// Adds objects that can't be read.
    pub fn unreadable<'a>(&mut self, objects: impl IntoIterator<Item = &'a Unreadable>) {
        for object in objects {
            self.tell(Finding::unreadable(object));
        }
    }

    /// Whether there is a wait, which needs another look soon.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.findings.iter().any(|finding| finding.decision == Decision::Waiting)
    }

    /// Hands over the findings by subject: the first [`FINDINGS_MOST`], and one with the number of the rest.
    pub fn deliver(self, to: &mut impl Extend<Finding>) {
        let mut findings = self.findings;
        findings.sort_by(|a, b| {
            (a.decision, a.kind, &a.names, &a.reason).cmp(&(b.decision, b.kind, &b.names, &b.reason))
        });
        let left_out = findings.len().saturating_sub(FINDINGS_MOST);
        if left_out > 0 {
            findings.truncate(FINDINGS_MOST - 1);
            let all = Subject { kind: SubjectKind::Pool, name: ALL_POOLS.to_owned() };
            let why = format!("{} more refusals and waits aren't listed", left_out + 1);
            findings.push(Finding::refused(all, OTHERS, "{}", why));
        }
        to.extend(findings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> Subject {
        Subject { kind: SubjectKind::Pod, name: name.to_owned() }
    }

    fn told(report: Report) -> Vec<String> {
        let mut findings: Vec<Finding> = Vec::new();
        report.deliver(&mut findings);
        findings.iter().map(|finding| finding.message("provisioner")).collect()
    }

    #[test]
    fn a_thousand_pods_refused_for_one_cause_are_one_finding_that_counts_them() {
        let mut report = Report::default();
        for n in (0..1_000).rev() {
            report.tell(Finding::refused(
                pod(&format!("web/p-{n:04}")),
                "NoOffering",
                "no node for {}",
                "why",
            ));
        }
        report.tell(Finding::refused(pod("web/other"), "NoOffering", "no node for {}", "another why"));
        let expected = [
            "no node for pod `web/other`: another why",
            "no node for 1000 pods (`web/p-0000`, `web/p-0001`, `web/p-0002`, …): why",
        ];
        assert_eq!(told(report), expected);
    }

    #[test]
    fn pods_that_wait_say_so() {
        let mut report = Report::default();
        for n in 0..4 {
            report.tell(Finding::refused(pod(&format!("p-{n}")), "NodeClassNotReady", WAITS, "why"));
        }
        report.tell(Finding::refused(pod("other"), "NodeClassNotReady", WAITS, "another why"));
        let expected = ["pod `other` waits: another why", "4 pods wait (`p-0`, `p-1`, `p-2`, …): why"];
        assert_eq!(told(report), expected);
        assert_eq!(
            (counted(1_u32, "pod", "pods"), counted(0_usize, "pod", "pods")),
            ("1 pod".to_owned(), "0 pods".to_owned())
        );
    }

    #[test]
    fn the_same_said_twice_is_said_once() {
        let mut report = Report::default();
        for _ in 0..2 {
            report.tell(Finding::refused(pod("a"), "NoOffering", "no node for {}", "why"));
            report.wait(&Waiting::SnapshotMissing);
        }
        let told = told(report);
        assert_eq!(told.iter().filter(|text| text.starts_with("no node for pod `a`")).count(), 1, "{told:?}");
    }

    #[test]
    fn a_report_is_bounded_and_says_how_much_it_left_out() {
        let mut report = Report::default();
        for n in 0..100 {
            report.tell(Finding::refused(pod("a"), format!("R{n}"), "no node for {}", format!("why {n}")));
        }
        let told = told(report);
        assert_eq!(told.len(), FINDINGS_MOST);
        let left_out = "all NodePools: 61 more refusals and waits aren't listed";
        assert_eq!(told.iter().filter(|text| *text == left_out).count(), 1, "{told:?}");
    }

    #[test]
    fn an_object_that_cant_be_read_is_named_with_its_fields() {
        let object = |kind: &str, name: &str| Unreadable {
            kind: kind.to_owned(),
            name: name.to_owned(),
            errors: vec!["spec.taints[0].effect: `Never` isn't an effect".to_owned()],
        };
        let mut report = Report::default();
        report.unreadable(&[object("Node", "n"), object("NodePool", "p")]);
        let expected = [
            "ignoring invalid NodePool `p`: spec.taints[0].effect: `Never` isn't an effect",
            "ignoring invalid Node `n`: spec.taints[0].effect: `Never` isn't an effect",
        ];
        assert_eq!(told(report), expected);
    }
}
