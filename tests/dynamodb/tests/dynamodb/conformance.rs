//! The shared behaviours of all adapters of the table, unchanged.

use crate::server::{fresh_table, runtime};
use jiff::{SignedDuration, Timestamp};
use tenon_dynamodb::DynamoTable;
use tenon_memory_table::conformance::{CASES, Can, Capability, CaseOutcome, Harness, run_all};

struct DynamoDbLocal;

impl Harness for DynamoDbLocal {
    type Table = DynamoTable;

    async fn fresh(&self) -> DynamoTable {
        fresh_table().await
    }

    fn can(&self, capability: Capability) -> Can {
        match capability {
            Capability::AdvanceTime | Capability::Throughput | Capability::Expiry => Can::No,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn advance(&self, by: SignedDuration) {
        panic!("nobody moves a server's time by {by}");
    }
}

#[test]
#[ignore = "needs a server: tests/servers/dynamodb-local -- cargo test -p tenon-dynamodb-tests -- --ignored"]
fn dynamodb_behaves_as_the_port_says() {
    let results = runtime().block_on(run_all(&DynamoDbLocal));
    assert_eq!(results.len(), CASES.len());
    for result in &results {
        println!("{}: {:?}", result.name, result.outcome);
    }
    let failed: Vec<_> =
        results.iter().filter(|result| matches!(result.outcome, CaseOutcome::Failed(_))).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    // This server can't simulate time, throughput and expiry; nothing else is skipped.
    let skipped = results.iter().filter(|result| matches!(result.outcome, CaseOutcome::Skipped(_))).count();
    assert_eq!(skipped, 4);
}
