//! The decisions that led somewhere, from the journal.
//!
//! Decides whose records belong to a story: a Node's is its claim's, a pod's is its own and that of every claim that
//! counted it. Newest last.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenon_domain::Timestamp;
use tenon_domain::claim::Claim;
use tenon_domain::journal::{Decision, JournalRecord, Subject, SubjectKind};
use tenon_table::items::{
    ClaimPods, JournalOf, LaunchedPods, from_item, journal_from_item, keys, pods_named_in_launch,
};
use tenon_table::{SkRange, Table};

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
}

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
    let region = (of == StoryOf::Image).then_some(JournalOf::Region(scope.region));
    let journals: Vec<JournalOf<'_>> = region.into_iter().chain(cluster).collect();
    // Of decisions in one millisecond the order is that of a claim's life: their keys' revisions are of different counters.
    let mut records: BTreeSet<(Timestamp, Decision, String, Story)> = BTreeSet::new();
    for (journal, subject) in journals.iter().flat_map(|journal| subjects.iter().map(move |s| (journal, s))) {
        for (key, item) in query(table, journal.subject_pk(subject), SkRange::All).await? {
            // A record of a form that can't be read must not hide the others.
            if let Ok(record) = journal_from_item(&key, &item) {
                records.insert((record.at, record.decision, key.sk, told(record)));
            }
        }
    }
    Ok(records.into_iter().map(|(_, _, _, record)| record).collect())
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
    Ok(claims.filter(is).map(|claim| claim.name.to_string()).collect())
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
