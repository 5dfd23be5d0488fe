//! The decisions that led somewhere, from the journal.
//!
//! Decides whose records belong to a story: a Node's is its claim's, a pod's is its own and that of every claim that
//! counted it. Newest last. A refusal is told once while it is tried again: its record is shown with the present next try.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenon_domain::claim::Claim;
use tenon_domain::journal::{Decision, JOURNAL_KEPT, JournalRecord, Subject, SubjectKind};
use tenon_domain::wake::FunctionName;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_table::items::{
    ClaimPods, JournalOf, LaunchedPods, ToldFinding, ToldFindings, from_item, journal_from_item, keys,
    pods_named_in_launch,
};
use tenon_table::{Consistency, SkRange, Table};

use super::StoryOf;
use super::list::{ListError, ListScope, query};

/// One decision, as it is printed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Story {
    pub(crate) at: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) decision: String,
    pub(crate) message: String,
    pub(crate) by: String,
    pub(crate) details: BTreeMap<String, String>,
    pub(crate) evidence: BTreeMap<String, u64>,
    /// Of a refusal or a wait whose function still tells its findings: whether this is one of them now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) holds: Option<bool>,
}

/// The functions whose refusals and waits are about claims and pods.
const TELL_OF_CLAIMS: [FunctionName; 3] =
    [FunctionName::Provisioner, FunctionName::Disruption, FunctionName::Lifecycle];

/// The decisions about something, newest last.
pub(crate) async fn story<T: Table>(
    table: &T,
    of: StoryOf,
    name: &str,
    scope: ListScope<'_>,
) -> Result<Vec<Story>, ListError> {
    let subject = |kind, name: &str| Subject { kind, name: name.to_owned() };
    let cluster = scope.cluster.map(JournalOf::Cluster);
    let subjects: Vec<Subject> = match of {
        StoryOf::Claim => vec![subject(SubjectKind::Claim, name)],
        StoryOf::Node => {
            let claims = claims_of_node(table, name, scope).await?;
            claims.iter().map(|claim| subject(SubjectKind::Claim, claim)).collect()
        }
        StoryOf::Pod => {
            let name = if name.contains('/') { name.to_owned() } else { format!("default/{name}") };
            let claims = claims_of_pod(table, &name, scope).await?;
            let claims = claims.iter().map(|claim| subject(SubjectKind::Claim, claim));
            std::iter::once(subject(SubjectKind::Pod, &name)).chain(claims).collect()
        }
        StoryOf::Class => vec![subject(SubjectKind::Class, name)],
        StoryOf::Image => vec![subject(SubjectKind::Image, name)],
    };
    let current = current_findings(table, scope).await?;
    let region = (of == StoryOf::Image).then_some(JournalOf::Region(scope.region));
    let journals: Vec<JournalOf<'_>> = region.into_iter().chain(cluster).collect();
    // Of decisions in one millisecond the order is that of a claim's life: their keys' revisions are of different counters.
    let mut records: BTreeSet<(Timestamp, Decision, String, Story)> = BTreeSet::new();
    for (journal, subject) in journals.iter().flat_map(|journal| subjects.iter().map(move |s| (journal, s))) {
        for (key, item) in query(table, journal.subject_pk(subject), SkRange::All).await? {
            // A record of a form that can't be read must not hide the others.
            if let Ok(mut record) = journal_from_item(&key, &item) {
                let holds = holds(&current, &record);
                if let Some(message) = present_words(&current, &record) {
                    message.clone_into(&mut record.message);
                }
                records.insert((record.at, record.decision, key.sk, Story { holds, ..told(record) }));
            }
        }
    }
    Ok(records.into_iter().map(|(_, _, _, record)| record).collect())
}

/// The present refusals and waits of the functions that tell of claims and pods.
async fn current_findings<T: Table>(
    table: &T,
    scope: ListScope<'_>,
) -> Result<Vec<(FunctionName, ToldFinding)>, ListError> {
    let Some(cluster) = scope.cluster else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for function in TELL_OF_CLAIMS {
        let key = keys::told(cluster, function);
        let told = table.get(&key, Consistency::Eventual).await?;
        let told = told.and_then(|item| from_item::<ToldFindings>(&key, &item).ok());
        let findings = told.into_iter().flat_map(|told| told.findings);
        found.extend(findings.map(|finding| (function, finding)));
    }
    Ok(found)
}

/// Whether the finding is about a record's refusal.
fn is_about((function, finding): &(FunctionName, ToldFinding), record: &JournalRecord) -> bool {
    function.as_str() == record.by
        && finding.kind == record.subject.kind
        && finding.names.contains(&record.subject.name)
        && record.details.get("reason") == Some(&finding.reason)
}

/// Whether a record's refusal holds now; `None` of what isn't told as a finding. One that is being tried again at this
/// moment doesn't.
fn holds(current: &[(FunctionName, ToldFinding)], record: &JournalRecord) -> Option<bool> {
    let is_finding = matches!(record.decision, Decision::Refused | Decision::Waiting)
        && record.details.contains_key("reason")
        && TELL_OF_CLAIMS.iter().any(|function| function.as_str() == record.by);
    is_finding.then(|| current.iter().any(|one| is_about(one, record)))
}

/// The present words of a record's refusal, if it is tried again by itself.
fn present_words<'a>(current: &'a [(FunctionName, ToldFinding)], record: &JournalRecord) -> Option<&'a str> {
    let is = |one: &&(FunctionName, ToldFinding)| {
        is_about(one, record)
            && one.1.next_try.is_some()
            && one.1.told_at.as_millisecond() == record.at.as_millisecond()
    };
    current.iter().find(is).map(|(_, finding)| finding.message.as_str())
}

fn told(record: JournalRecord) -> Story {
    let JournalRecord { subject, at, by, decision, message, details, evidence } = record;
    Story {
        at: at.to_string(),
        kind: subject.kind.as_str().to_owned(),
        name: subject.name,
        decision: decision.as_str().to_owned(),
        message,
        by,
        details,
        evidence,
        holds: None,
    }
}

/// Claims with this Node, instance or own name.
async fn claims_of_node<T: Table>(
    table: &T,
    name: &str,
    scope: ListScope<'_>,
) -> Result<BTreeSet<String>, ListError> {
    let Some(cluster) = scope.cluster else { return Ok(BTreeSet::new()) };
    let prefix = SkRange::Prefix(keys::NODE_CLAIM.to_owned());
    let items = query(table, keys::cluster_pk(cluster), prefix).await?;
    let claims = items.iter().filter_map(|(key, item)| from_item::<Claim>(key, item).ok());
    let is = |claim: &Claim| {
        let instance = claim.state.instance().is_some_and(|instance| instance.id.as_str() == name);
        let node = claim.state.node().is_some_and(|node| node.as_str() == name);
        instance || node || claim.name.as_str() == name
    };
    let found: BTreeSet<String> = claims.filter(is).map(|claim| claim.name.to_string()).collect();
    if found.is_empty() { ended_claims_of_node(table, name, scope).await } else { Ok(found) }
}

/// The latest claims with this Node, instance or own name whose items have expired: by the journal, from today back. A
/// day's list has sentences, which name them; a claim's own records say whether they are its.
async fn ended_claims_of_node<T: Table>(
    table: &T,
    name: &str,
    scope: ListScope<'_>,
) -> Result<BTreeSet<String>, ListError> {
    let Some(journal) = scope.cluster.map(JournalOf::Cluster) else { return Ok(BTreeSet::new()) };
    let quoted = format!("`{name}`");
    let day = SignedDuration::from_hours(24);
    let days = (0..=JOURNAL_KEPT.as_hours() / 24).scan(scope.now, |at, _| {
        let this = *at;
        *at = at.saturating_sub(day).unwrap_or(Timestamp::MIN);
        Some(this)
    });
    for at in days {
        let lines = query(table, journal.day_pk(at), SkRange::All).await?;
        let records = lines.iter().filter_map(|(key, item)| journal_from_item(key, item).ok());
        let names_it = |record: &JournalRecord| {
            record.subject.kind == SubjectKind::Claim
                && (record.subject.name == name || record.message.contains(&quoted))
        };
        let claims: BTreeSet<String> = records.filter(names_it).map(|record| record.subject.name).collect();
        let mut found = BTreeSet::new();
        for claim in claims {
            let subject = Subject { kind: SubjectKind::Claim, name: claim.clone() };
            let records = query(table, journal.subject_pk(&subject), SkRange::All).await?;
            let mut records = records.iter().filter_map(|(key, item)| journal_from_item(key, item).ok());
            let has =
                |record: &JournalRecord, key: &str| record.details.get(key).is_some_and(|of| of == name);
            if claim == name || records.any(|record| has(&record, "node") || has(&record, "instance")) {
                found.insert(claim);
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(BTreeSet::new())
}

/// Claims launched for a pod, by the journal; by the launches, as far as earlier releases wrote the names there.
async fn claims_of_pod<T: Table>(
    table: &T,
    name: &str,
    scope: ListScope<'_>,
) -> Result<BTreeSet<String>, ListError> {
    let Some(cluster) = scope.cluster else { return Ok(BTreeSet::new()) };
    let launched = query(table, keys::launched_pods_pk(cluster), SkRange::All).await?;
    let launched = launched.iter().filter_map(|(key, item)| from_item::<LaunchedPods>(key, item).ok());
    let prefix = SkRange::Prefix(keys::LAUNCH.to_owned());
    let launches = query(table, keys::cluster_pk(cluster), prefix).await?;
    let before = launches.iter().flat_map(|(_, launch)| pods_named_in_launch(launch));
    let counts = |claim: &ClaimPods| claim.pods.iter().any(|pod| pod.to_string() == name);
    let claims = launched.flat_map(|launched| launched.claims).chain(before).filter(counts);
    Ok(claims.map(|claim| claim.claim.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use tenon_domain::report::Shown;

    use tenon_memory_table::{MemoryConfig, MemoryTable, block_on};
    use tenon_table::items::DecisionCounter;
    use tenon_table::items::Journal;
    use tenon_table::{Commit, CommitToken};

    use super::*;

    #[test]
    fn a_refusal_has_its_present_next_try() {
        let at = Timestamp::UNIX_EPOCH;
        let finding = ToldFinding {
            identity: "a".to_owned(),
            kind: SubjectKind::Pod,
            names: BTreeSet::from(["default/a".to_owned()]),
            decision: Decision::Refused,
            reason: "AllOfferingsUnavailable".to_owned(),
            message: "next try at 2".to_owned(),
            shown: Shown::Event,
            since: at,
            told_at: at,
            next_try: Some(at),
        };
        let current = [(FunctionName::Provisioner, finding)];
        let check = |reason: &str, by: FunctionName, expected: Option<&str>| {
            let subject = Subject { kind: SubjectKind::Pod, name: "default/a".to_owned() };
            let told = "next try at 1".to_owned();
            let record = JournalRecord::new(subject, at, by.as_str(), Decision::Refused, told);
            let record = record.detail("reason", reason);
            assert_eq!(present_words(&current, &record), expected);
            assert_eq!(holds(&current, &record), Some(expected.is_some()));
        };
        check("AllOfferingsUnavailable", FunctionName::Provisioner, Some("next try at 2"));
        check("AllOfferingsUnavailable", FunctionName::Disruption, None);
        check("ZonesShifted", FunctionName::Provisioner, None);
    }

    #[test]
    fn a_node_whose_claims_item_has_expired_has_its_story() {
        let (cluster, region) = ("prod".parse().unwrap(), "us-east-1".parse().unwrap());
        let config = MemoryConfig { staleness_max: SignedDuration::ZERO, ..MemoryConfig::strict(1) };
        let table = MemoryTable::new(config, std::sync::Arc::new(|| Timestamp::UNIX_EPOCH));
        let ended = Timestamp::UNIX_EPOCH;
        let subject = Subject { kind: SubjectKind::Claim, name: "default-3k9x2".to_owned() };
        let told = "instance `i-1` of Node `node-1` is gone".to_owned();
        let record = JournalRecord::new(subject, ended, "lifecycle", Decision::Terminated, told);
        let record = record.detail("instance", "i-1").detail("node", "node-1");
        let writes = Journal::of(JournalOf::Cluster(&cluster)).writes(&record, DecisionCounter::Subject(1));
        let token = CommitToken::of_texts(["ended"]);
        let commit = Commit { token, conditions: Vec::new(), writes: writes.into() };
        block_on(table.commit(&commit)).unwrap();
        let days = |days: i64| ended.saturating_add(SignedDuration::from_hours(24 * days)).unwrap();
        let found = |name: &str, now: Timestamp| {
            let scope = ListScope { region: &region, cluster: Some(&cluster), now };
            block_on(story(&table, StoryOf::Node, name, scope)).unwrap().len()
        };
        for name in ["node-1", "i-1", "default-3k9x2"] {
            assert_eq!((found(name, days(3)), found(name, days(31))), (1, 0), "{name}");
        }
        assert_eq!(found("node-2", days(3)), 0);
    }
}
