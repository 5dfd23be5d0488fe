//! The tables of manifests against kube-apiserver: it accepts and rejects them with the given words, and its defaults
//! are our reader's values for absent fields.

use serde_json::Value;
use tenon_cluster_tests::{Case, Cluster, Verdict, accepted, alone, rejected};
use tenon_domain::manifest::read_value;

/// The API server's answer to a case.
async fn told(cluster: &Cluster, case: &Case) -> Result<Value, String> {
    let answer = match &case.before {
        None => cluster.try_create(&case.manifest).await,
        Some(before) => {
            cluster.apply_object(before).await;
            let answer = cluster.try_replace(&case.manifest).await;
            cluster.delete(before).await;
            answer
        }
    };
    answer.map_err(|status| status.message)
}

/// The difference from the expected verdict.
async fn wrong(cluster: &Cluster, case: &Case) -> Option<String> {
    match (&case.server, told(cluster, case).await) {
        (Verdict::Accepted, Ok(stored)) if case.reader == Verdict::Accepted => {
            read_otherwise(&case.manifest, &stored)
        }
        (Verdict::Accepted, Ok(_)) => None,
        (Verdict::Accepted, Err(message)) => Some(message),
        (Verdict::Rejected(_), Ok(_)) => Some("it is accepted".to_owned()),
        (Verdict::Rejected(part), Err(message)) => (!message.contains(part.as_str())).then_some(message),
    }
}

/// Where our reader takes the object that is stored for another one than the manifest.
fn read_otherwise(manifest: &Value, stored: &Value) -> Option<String> {
    let mut filled = manifest.clone();
    filled["spec"] = stored["spec"].clone();
    let (written, stored) = (read_value(manifest, "written"), read_value(&filled, "stored"));
    (written != stored).then(|| format!("read otherwise than it is stored:\n{written:#?}\n{stored:#?}"))
}

#[tokio::test]
#[ignore = "needs tests/servers/control-plane"]
async fn manifests_are_accepted_and_rejected_as_the_tables_say() {
    let _alone = alone().await;
    let cluster = Cluster::admin().await;
    cluster.install_definitions().await;
    let mut found = Vec::new();
    for table in accepted().into_iter().chain(rejected()) {
        for case in &table.cases {
            let problem = wrong(&cluster, case).await;
            found.extend(problem.map(|problem| format!("{}: {}: {problem}", table.name, case.name)));
        }
    }
    assert!(found.is_empty(), "{}:\n{}", found.len(), found.join("\n"));
}
