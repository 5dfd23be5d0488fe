//! Marks of refusals, written like a function of the cluster does, because the servers' EC2 refuses nothing.

use tenon_domain::id::{ClusterName, LaunchId, Region};
use tenon_domain::unavailable::{Mark, Refusal, RefusalCause, UnavailableKey};
use tenon_table::items::{keys, put};
use tenon_table::{Commit, CommitToken, Table as _};

use crate::account::{REGION, RehearsalAccount};
use crate::cluster::CLUSTER;

/// Writes a mark of a refusal now.
pub(crate) async fn mark(account: &RehearsalAccount, what: &str) {
    let key = UnavailableKey::parse(what).expect("a mark's key");
    let (cluster, launch) =
        (ClusterName::parse(CLUSTER).unwrap(), LaunchId::parse("launch-rehearsed").unwrap());
    let now = jiff::Timestamp::now();
    let refusal = Refusal {
        key: &key,
        code: "InsufficientInstanceCapacity",
        cluster: &cluster,
        cause: RefusalCause::Launch(&launch),
        vcpus: None,
        now,
    };
    let mark = Mark::refused(None, &refusal).expect("the first refusal marks");
    let item = keys::unavailable(&Region::parse(REGION).unwrap(), &key);
    let token = CommitToken::of_texts([what, &now.to_string()]);
    let commit = Commit { token, conditions: Vec::new(), writes: vec![put(item, &mark)] };
    account.table.commit(&commit).await.expect("the table takes it");
}
