//! The functions' findings in Kubernetes: conditions of NodePools, EC2NodeClasses and NodeClaims, and Events.
//!
//! Decides the conditions' types, and which findings are Events. It doesn't decide when a finding is told again,
//! nor which Events were sent ([`super::news`]). An Event has Karpenter's reason where it has one, because dashboards and
//! alerts look for these; the finding's own reason, which says more, ends its message then.
//!
//! Source: kubernetes-sigs/karpenter `pkg/events/reason.go`.

use std::collections::BTreeMap;

use serde_json::Value;
use tenon_domain::claim::Claim;
use tenon_domain::journal::{Decision, SubjectKind};
use tenon_domain::report::{ALL_POOLS, CLASS_IN_USE, CONSISTENCY_CHECK_FAILED, NAMES_KEPT, OTHERS, Shown};
use tenon_domain::wake::FunctionName;
use tenon_snapshot::object::{Kind, ObjectKey, text};
use tenon_snapshot::{Note, NoteKind};
use tenon_table::items::{ToldFinding, ToldFindings};

use super::conditions;
use super::news::News;
use crate::decided::Decided;

/// A condition's type and status.
type Face = (&'static str, &'static str);

/// Karpenter's condition of a NodeClaim that is as expected.
const INCONSISTENT: Face = ("ConsistentStateFound", "False");

/// The conditions of a finding on its object.
fn faces(finding: &ToldFinding) -> &'static [Face] {
    match finding.shown {
        Shown::Event if finding.reason == CONSISTENCY_CHECK_FAILED => &[INCONSISTENT],
        Shown::Event => &[],
        Shown::LaunchRefused => &[("tenon.dev/LaunchRefused", "True")],
        Shown::DisruptionPaused => &[("tenon.dev/DisruptionPaused", "True")],
        Shown::DriftsAgain => &[("tenon.dev/DriftsAgain", "True")],
        Shown::DrainBlocked => &[("Drained", "Unknown"), INCONSISTENT],
        Shown::Waiting => &[("tenon.dev/Waiting", "True")],
        Shown::Invalid => &[("ValidationSucceeded", "False"), ("Ready", "False")],
    }
}

/// An object that findings are about.
#[derive(Clone, Copy)]
pub(super) struct FindingSubject<'a> {
    pub(super) kind: SubjectKind,
    pub(super) name: &'a str,
    /// `metadata.generation`.
    pub(super) generation: u64,
}

/// The conditions of an object, overridden by those of findings about it. Where findings were cut, a claim that none names
/// isn't called consistent.
pub(super) fn with_told(
    conditions: Vec<Value>,
    told: &[ToldFindings],
    about: FindingSubject<'_>,
) -> Vec<Value> {
    let FindingSubject { kind, name, generation } = about;
    let is_about = |finding: &&ToldFinding| {
        finding.kind == kind
            && (finding.names.contains(name)
                || (kind == SubjectKind::Pool && finding.names.contains(ALL_POOLS)))
    };
    let mut found: BTreeMap<&str, (&str, &ToldFinding, Vec<&str>)> = BTreeMap::new();
    for finding in told.iter().flat_map(|told| &told.findings).filter(is_about) {
        for (condition, status) in faces(finding) {
            let messages = &mut found.entry(condition).or_insert((status, finding, Vec::new())).2;
            if !messages.contains(&finding.message.as_str()) {
                messages.push(&finding.message);
            }
        }
    }
    let (inconsistent, _) = INCONSISTENT;
    let unknown = (kind == SubjectKind::Claim && told.iter().any(may_hide_a_claim)).then_some(inconsistent);
    let is_over = |condition: &Value| {
        text(condition, "/type").is_some_and(|of| found.contains_key(of) || unknown == Some(of))
    };
    let mut all: Vec<Value> = conditions.into_iter().filter(|condition| !is_over(condition)).collect();
    all.extend(found.into_iter().map(|(condition, (status, finding, messages))| {
        conditions::form(conditions::ShownCondition {
            kind: condition,
            status,
            reason: &finding.reason,
            message: &messages.join("; "),
            since: finding.since,
            generation,
        })
    }));
    all
}

/// Whether a claim may be inconsistent though no finding names it: findings, and their names, are bounded.
fn may_hide_a_claim(told: &ToldFindings) -> bool {
    let is_cut = |finding: &ToldFinding| {
        finding.reason == OTHERS
            || (faces(finding).contains(&INCONSISTENT) && finding.names.len() >= NAMES_KEPT)
    };
    told.function == FunctionName::Lifecycle && told.findings.iter().any(is_cut)
}

/// The Events of findings.
pub(super) fn news(decided: &Decided) -> Vec<News> {
    let all =
        decided.told.iter().flat_map(|told| told.findings.iter().map(|finding| (told.function, finding)));
    // The agent sees a class's end itself, and at once.
    let told = all.filter(|(_, finding)| finding.reason != CLASS_IN_USE);
    told.flat_map(|(function, finding)| news_of(function, finding, &decided.claims)).collect()
}

fn news_of(function: FunctionName, finding: &ToldFinding, claims: &BTreeMap<String, Claim>) -> Vec<News> {
    let otherwise = if finding.decision == Decision::Refused { NoteKind::Warning } else { NoteKind::Normal };
    let (kind, reason, message) = match peers(function, finding) {
        Some((kind, reason)) => (kind, reason, format!("{} ({})", finding.message, finding.reason)),
        None => (otherwise, finding.reason.as_str(), finding.message.clone()),
    };
    let mut objects: Vec<ObjectKey> = Vec::new();
    for name in &finding.names {
        let claim = claims.get(name).filter(|_| finding.kind == SubjectKind::Claim);
        let others = claim.map(|claim| of_claim(function, reason, claim)).unwrap_or_default();
        for object in about(finding.kind, name).into_iter().chain(others) {
            if !objects.contains(&object) {
                objects.push(object);
            }
        }
    }
    let news = |about| {
        let (reason, message) = (reason.to_owned(), message.clone());
        let note = Note { about, uid: String::new(), kind, reason, message };
        News { of: finding.identity.clone(), at: finding.told_at, note }
    };
    objects.into_iter().map(news).collect()
}

/// The other objects that Karpenter tells of a claim's Event: its Node of a blocked disruption, and its NodePool too of a
/// blocked repair.
fn of_claim(function: FunctionName, reason: &str, claim: &Claim) -> Vec<ObjectKey> {
    let is_repair = reason == "NodeRepairBlocked";
    let node = claim.state.node().filter(|_| is_repair || function == FunctionName::Disruption);
    let node = node.map(|node| ObjectKey::node(node.as_str()));
    let pool = is_repair.then(|| ObjectKey::new(Kind::NodePool, "", claim.pool.as_str()));
    node.into_iter().chain(pool).collect()
}

/// Karpenter's type and reason of a finding's Event, where it has one.
fn peers(function: FunctionName, finding: &ToldFinding) -> Option<(NoteKind, &'static str)> {
    match (function, finding.kind) {
        (FunctionName::Disruption, SubjectKind::Claim) => match finding.reason.as_str() {
            "SavesTooLittle" | "MovedLately" | "SpotToSpotDisabled" | "TooFewSpotTypes"
            | "MinValuesUnmet" | "Unbalanced" | "TooYoung" | "Undone" => {
                Some((NoteKind::Normal, "Unconsolidatable"))
            }
            _ => Some((NoteKind::Normal, "DisruptionBlocked")),
        },
        (FunctionName::Disruption, SubjectKind::Pool) if finding.reason == "BudgetExhausted" => {
            Some((NoteKind::Normal, "DisruptionBlocked"))
        }
        (FunctionName::Disruption, SubjectKind::Pod) => {
            Some((NoteKind::Warning, "InvalidDoNotDisruptAnnotation"))
        }
        (FunctionName::Provisioner, SubjectKind::Pod) => Some((NoteKind::Warning, "FailedScheduling")),
        (FunctionName::Lifecycle, SubjectKind::Claim) if faces(finding).contains(&INCONSISTENT) => {
            Some((NoteKind::Warning, "FailedConsistencyCheck"))
        }
        (
            FunctionName::Catalog
            | FunctionName::Images
            | FunctionName::NodeClasses
            | FunctionName::Provisioner
            | FunctionName::Lifecycle
            | FunctionName::Interruption
            | FunctionName::Disruption,
            _,
        ) => None,
    }
}

/// The object of a subject; `None` if Kubernetes has no such kind.
fn about(kind: SubjectKind, name: &str) -> Option<ObjectKey> {
    let (kind, name) = match kind {
        SubjectKind::Claim => (Kind::NodeClaim, name),
        SubjectKind::Pod => (Kind::Pod, name),
        SubjectKind::Pool if name == ALL_POOLS => return None,
        SubjectKind::Pool => (Kind::NodePool, name),
        SubjectKind::Class => (Kind::Ec2NodeClass, name),
        SubjectKind::Object => {
            let (kind, name) = name.split_once('/')?;
            (Kind::parse(kind)?, name)
        }
        SubjectKind::Image | SubjectKind::Instance | SubjectKind::Command | SubjectKind::Catalog => {
            return None;
        }
    };
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    Some(ObjectKey::new(kind, namespace, name))
}
