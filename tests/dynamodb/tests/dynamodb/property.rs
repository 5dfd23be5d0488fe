//! Random commands give the same results on the table in memory and on DynamoDB Local, and leave the same items.
//!
//! Two known differences are checked exactly, so that nothing else hides behind them: see [`same_outcome`] and
//! [`same_page`].

use crate::commands::{Command, commands, partitions, short};
use crate::server::{fresh_table, runtime};
use jiff::{SignedDuration, Timestamp};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenon_dynamodb::DynamoTable;
use tenon_memory_table::{MemoryConfig, MemoryTable, Throughput};
use tenon_table::{
    Commit, CommitError, CommitToken, Consistency, Item, Key, Query, QueryPage, SkRange, Table, TableError,
    Write, limits, query_all, value,
};

/// Sequences of up to 40 commands: some 5,000 calls, half a minute.
const SEQUENCES: u32 = 256;

type Judged = Result<(), TestCaseError>;

#[test]
#[ignore = "needs a server: tests/servers/dynamodb-local -- cargo test -p tenon-dynamodb-tests -- --ignored"]
fn random_commands_give_the_same_results_in_memory() {
    let runtime = runtime();
    let table = runtime.block_on(fresh_table());
    let worlds = Cell::new(0);
    let config = Config { cases: SEQUENCES, failure_persistence: None, ..Config::default() };
    let counts = Cell::new(Counts::default());
    let outcome = TestRunner::new(config).run(&commands(), |commands| {
        let world = worlds.get();
        worlds.set(world + 1);
        let mut played = Counts::default();
        let judged = runtime.block_on(play(&table, world, commands, &mut played));
        counts.set(counts.get().plus(played));
        judged
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    let counts = counts.get();
    println!("{SEQUENCES} sequences: {counts:?}");
    // A generator of refused commands alone would prove nothing.
    assert!(counts.committed > 500 && counts.lost > 100 && counts.mismatched > 20 && counts.refused > 100);
    assert!(counts.too_large > 20 && counts.read > 500);
    assert!(counts.excused < counts.lost / 10, "the known difference hides too much");
}

/// The counts of outcomes.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    committed: u64,
    lost: u64,
    mismatched: u64,
    too_large: u64,
    refused: u64,
    read: u64,
    /// Of the lost ones, those that DynamoDB Local refused for another reason.
    excused: u64,
}

impl Counts {
    fn plus(self, other: Self) -> Self {
        Self {
            committed: self.committed + other.committed,
            lost: self.lost + other.lost,
            mismatched: self.mismatched + other.mismatched,
            too_large: self.too_large + other.too_large,
            refused: self.refused + other.refused,
            read: self.read + other.read,
            excused: self.excused + other.excused,
        }
    }

    fn count(&mut self, outcome: &Result<(), CommitError>) {
        match outcome {
            Ok(()) => self.committed += 1,
            Err(CommitError::LostRace { .. }) => self.lost += 1,
            Err(CommitError::TokenMismatch { .. }) => self.mismatched += 1,
            Err(CommitError::ItemTooLarge { .. }) => self.too_large += 1,
            Err(
                CommitError::Invalid { .. }
                | CommitError::TooLarge { .. }
                | CommitError::Conflict { .. }
                | CommitError::Throttled { .. }
                | CommitError::Unavailable(_),
            ) => self.refused += 1,
        }
    }
}

fn memory_table() -> MemoryTable {
    let config = MemoryConfig {
        seed: 0,
        staleness_max: SignedDuration::ZERO,
        ttl_delay_max: SignedDuration::ZERO,
        throughput: Throughput::Off,
    };
    MemoryTable::new(config, Arc::new(|| Timestamp::UNIX_EPOCH))
}

async fn play(dynamo: &DynamoTable, world: u64, commands: Vec<Command>, counts: &mut Counts) -> Judged {
    let memory = memory_table();
    let mut sent: Vec<Commit> = Vec::new();
    for command in commands {
        match command.in_world(world) {
            Command::Get(key, consistency) => {
                let found = (memory.get(&key, consistency).await, dynamo.get(&key, consistency).await);
                same(&format!("{key}"), read(found.0), read(found.1))?;
                counts.read += 1;
            }
            Command::BatchGet(keys) => {
                let strong = Consistency::Strong;
                let found = (memory.batch_get(&keys, strong).await, dynamo.batch_get(&keys, strong).await);
                same(&format!("{keys:?}"), read(found.0), read(found.1))?;
                counts.read += 1;
            }
            Command::Query(query) => {
                same_page(&memory, dynamo, &query).await?;
                counts.read += 1;
            }
            Command::Commit(commit) => {
                same_outcome(&memory, dynamo, &commit, counts).await?;
                sent.push(commit);
            }
            Command::Repeat(back) => {
                if let Some(commit) = sent.iter().rev().nth(back) {
                    same_outcome(&memory, dynamo, commit, counts).await?;
                }
            }
        }
    }
    for pk in partitions(world) {
        let all = Query::new(pk.as_str(), SkRange::All, Consistency::Strong);
        let found = (query_all(&memory, &all).await, query_all(dynamo, &all).await);
        same(&format!("all of `{pk}`"), read(found.0), read(found.1))?;
    }
    empty(&memory, dynamo).await
}

/// Leaves the server nothing to hold: it keeps its tables in memory.
async fn empty(memory: &MemoryTable, dynamo: &DynamoTable) -> Judged {
    for (key, _) in memory.dump() {
        let token = CommitToken::parse("unused").expect("a token");
        let delete = Commit { token, conditions: Vec::new(), writes: vec![Write::Delete { key }] };
        let deleted = dynamo.commit(&delete).await;
        deleted.map_err(|error| TestCaseError::fail(format!("emptying the table: {error:?}")))?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, memory: T, dynamo: T) -> Judged {
    if memory == dynamo {
        return Ok(());
    }
    let message = format!("{what}: in memory {memory:?}, on DynamoDB {dynamo:?}");
    Err(TestCaseError::fail(short(&message)))
}

/// A read's answer, or the kind of its error: messages are each adapter's own.
fn read<T>(found: Result<T, TableError>) -> Result<T, String> {
    found.map_err(|error| match error {
        TableError::Invalid { .. } => "invalid".to_owned(),
        TableError::AnswerTooLarge { .. } => "answer too large".to_owned(),
        TableError::Throttled { .. } | TableError::Unavailable(_) => format!("{error:?}"),
    })
}

/// A commit's outcome, without the details that only one table knows.
fn outcome(found: &Result<(), CommitError>) -> String {
    match found {
        Ok(()) => "committed".to_owned(),
        Err(CommitError::Invalid { .. }) => "invalid".to_owned(),
        Err(CommitError::ItemTooLarge { key, .. }) => format!("{key} too large"),
        Err(CommitError::TooLarge { actions, .. }) => format!("{actions} actions too large"),
        Err(
            CommitError::LostRace { .. }
            | CommitError::TokenMismatch { .. }
            | CommitError::Conflict { .. }
            | CommitError::Throttled { .. }
            | CommitError::Unavailable(_),
        ) => format!("{found:?}"),
    }
}

/// DynamoDB Local checks the operands of an `Add` before conditions, and refuses the request as a whole, even if a
/// race is lost too. Nothing is written either way.
async fn same_outcome(
    memory: &MemoryTable,
    dynamo: &DynamoTable,
    commit: &Commit,
    counts: &mut Counts,
) -> Judged {
    let before = memory.backup();
    let found = (memory.commit(commit).await, dynamo.commit(commit).await);
    counts.count(&found.0);
    if let (Err(CommitError::LostRace { .. }), Err(CommitError::Invalid { .. })) = &found {
        let scratch = memory_table();
        scratch.restore(&before);
        let token = CommitToken::parse("unconditional").expect("a token");
        let alone = Commit { token, conditions: Vec::new(), writes: commit.writes.clone() };
        if let Err(CommitError::Invalid { .. }) = scratch.commit(&alone).await {
            counts.excused += 1;
            return Ok(());
        }
    }
    same(&format!("{commit:?}"), outcome(&found.0), outcome(&found.1))
}

/// Where a page ends by its bytes isn't the same, so partitions that are near it are compared as a whole.
async fn same_page(memory: &MemoryTable, dynamo: &DynamoTable, query: &Query) -> Judged {
    let what = format!("{query:?}");
    let stored: BTreeMap<Key, Item> = memory.dump().filter(|(key, _)| key.pk == query.pk).collect();
    let bytes: u64 = stored.iter().map(|(key, item)| value::item_size(key, item)).sum();
    if bytes + limits::ITEM_BYTES > limits::PAGE_BYTES {
        let found = (query_all(memory, query).await, query_all(dynamo, query).await);
        return same(&what, read(found.0), read(found.1));
    }
    let found: (Result<QueryPage, _>, Result<QueryPage, _>) =
        (memory.query(query).await, dynamo.query(query).await);
    same(&what, read(found.0), read(found.1))
}
