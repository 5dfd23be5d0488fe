//! The state table on DynamoDB: the port over aws-sdk-dynamodb.
//!
//! Decides how the port's calls become DynamoDB's, and their timeout. The port decides which requests are valid, and
//! checks them before they are sent; `classify` decides the meaning of errors.
//!
//! A read that fails is tried again within its time: a wake that fails comes back after minutes, and the connections of a
//! function that was frozen may be dead. A commit is tried once, because only its caller knows whether it may go through
//! twice. It doesn't cache or count, and doesn't create the table: the stack does. TLS, region and credentials are the given
//! client's.
//!
//! Invariants: a commit is at most one request; names and values are always placeholders, so no name is a reserved word.

mod classify;
mod expression;
#[cfg(test)]
mod fake_http;
mod range;
mod read;
mod value;
mod write;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::timeout::TimeoutConfig;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tenon_table::{Commit, CommitError, Consistency, Item, Key, Query, QueryPage, Table, TableError};

/// How long connecting may take, TLS included: some ten round trips within a region.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The timeout of one call. The largest answers, 16 MB, take about a second; a much longer wait would end in the
/// function's own deadline, without a reason.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// The tries of a read.
const READ_TRIES: u32 = 3;
/// The first wait between them is shorter than this.
const READ_AGAIN: Duration = Duration::from_millis(50);

/// A table of DynamoDB with the keys `pk` and `sk`, both texts. Clones share the client's connections.
#[derive(Clone)]
pub struct DynamoTable {
    /// For commits.
    client: Client,
    /// For reads, by the same connections.
    reads: Client,
    name: String,
}

impl DynamoTable {
    /// The table with this name or ARN, by the client's connections, region and credentials. The client's retries and
    /// timeouts are replaced: a commit is one attempt, and the caller acts on its error.
    #[must_use]
    pub fn new(client: &Client, name: impl Into<String>) -> Self {
        Self::with_call_timeout(client, name, CALL_TIMEOUT)
    }

    /// The same with another time for one call, for servers that are slower than DynamoDB.
    #[must_use]
    pub fn with_call_timeout(client: &Client, name: impl Into<String>, call_timeout: Duration) -> Self {
        let with = |retries: RetryConfig, attempt: Duration| {
            let timeouts = TimeoutConfig::builder()
                .connect_timeout(CONNECT_TIMEOUT)
                .operation_timeout(call_timeout)
                .operation_attempt_timeout(attempt)
                .build();
            let config = client.config().to_builder();
            Client::from_conf(config.retry_config(retries).timeout_config(timeouts).build())
        };
        let tries = RetryConfig::standard().with_max_attempts(READ_TRIES).with_initial_backoff(READ_AGAIN);
        Self {
            client: with(RetryConfig::disabled(), call_timeout),
            reads: with(tries, call_timeout / 2),
            name: name.into(),
        }
    }

    /// The table's name or ARN.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for DynamoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoTable").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Table for DynamoTable {
    async fn get(&self, key: &Key, consistency: Consistency) -> Result<Option<Item>, TableError> {
        self.read_item(key, consistency).await
    }

    async fn batch_get(
        &self,
        keys: &[Key],
        consistency: Consistency,
    ) -> Result<BTreeMap<Key, Item>, TableError> {
        self.read_batch(keys, consistency).await
    }

    async fn query(&self, query: &Query) -> Result<QueryPage, TableError> {
        self.read_page(query).await
    }

    async fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        self.send(commit).await
    }
}
