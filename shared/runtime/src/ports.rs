//! The ports that a handler is generic over.

use std::future::Future;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tenon_domain::id::{ClusterName, InstallationId, Region};
use tenon_domain::journal::JournalRecord;
use tenon_domain::wake::FunctionName;
use tenon_ec2::Ec2Ports;
use tenon_table::Table;

/// An installation, whose id every key, tag and event carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The installation's id.
    pub id: InstallationId,
    /// Its region.
    pub region: Region,
    /// Its account, twelve digits.
    pub account: String,
    /// Its state table's name or ARN, for people who change an item by hand.
    pub table: String,
}

/// Everything outside of a handler.
pub trait Ports: Send + Sync {
    /// The state table.
    type Table: Table;
    /// EC2 and the services beside it.
    type Ec2: Ec2Ports;
    /// Doorbells.
    type Signals: Signals;

    /// The state table.
    fn table(&self) -> &Self::Table;
    /// EC2 and the services beside it.
    fn ec2(&self) -> &Self::Ec2;
    /// Doorbells.
    fn signals(&self) -> &Self::Signals;
    /// The time. A handler reads it once and uses that value for all decisions.
    fn now(&self) -> Timestamp;
    /// Waits within the invocation, before a call is repeated.
    fn pause(&self, time: SignedDuration) -> impl Future<Output = ()> + Send;
    /// The installation.
    fn installation(&self) -> &Installation;
}

/// Doorbells: which function should look, and when. They are best effort and give no result: the adapter logs a
/// failure, and the sweep reaches the same state.
pub trait Signals: Send + Sync {
    /// Puts events on the bus `tenon`.
    fn publish(&self, events: &[BusEvent]) -> impl Future<Output = ()> + Send;
    /// Rings a cluster's agent: there are actions to read.
    fn ring_agent(&self, cluster: &ClusterName) -> impl Future<Output = ()> + Send;
    /// Writes a record into the function's log.
    fn log(&self, record: &JournalRecord);
    /// Wakes a function for a cluster after a while, at most [`WAKE_AT_MOST`].
    fn wake(
        &self,
        function: FunctionName,
        cluster: &ClusterName,
        after: SignedDuration,
    ) -> impl Future<Output = ()> + Send;
}

/// The longest delay of an SQS message; a later look is left to the sweep.
pub const WAKE_AT_MOST: SignedDuration = SignedDuration::from_mins(15);

/// One of our events, without the bus's envelope.
#[derive(Debug, Clone, PartialEq)]
pub struct BusEvent {
    /// `source`.
    pub source: String,
    /// `detail-type`.
    pub detail_type: String,
    /// `detail`; carries the installation.
    pub detail: Value,
}

impl BusEvent {
    /// An event of the installation with source `tenon`.
    #[must_use]
    pub fn new(
        installation: &Installation,
        cluster: Option<&ClusterName>,
        detail_type: &str,
        detail: Value,
    ) -> Self {
        let mut detail = match detail {
            Value::Object(fields) => fields,
            other
            @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                serde_json::Map::from_iter([("value".to_owned(), other)])
            }
        };
        detail.insert("installation".to_owned(), json!(installation.id.as_str()));
        if let Some(cluster) = cluster {
            detail.insert("cluster".to_owned(), json!(cluster.as_str()));
        }
        Self {
            source: "tenon".to_owned(),
            detail_type: detail_type.to_owned(),
            detail: Value::Object(detail),
        }
    }
}

/// The body of a wake that one function sends to another's queue.
#[must_use]
pub fn wake_body(installation: &Installation, cluster: &ClusterName) -> String {
    json!({
        "source": "tenon",
        "detail-type": "Wake",
        "detail": { "installation": installation.id.as_str(), "cluster": cluster.as_str() },
    })
    .to_string()
}
