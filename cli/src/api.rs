//! What a running region answers: the documents of its local HTTP interface.
//!
//! Decides the documents and which requests are wrong. The server carries them, the client prints them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenon_domain::Timestamp;
use tenon_domain::id::{ClusterName, Region};
use tenon_table::{MemoryTable, block_on};

use crate::errors::Problem;
use crate::output::API_VERSION;
use crate::state::{self, Kind, ListError, Scope, Story, StoryOf};

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Request {
    /// Items of a kind.
    Items { kind: Kind, cluster: Option<String>, name: Option<String> },
    /// The decisions about something.
    Journal { of: StoryOf, cluster: Option<String>, name: String },
    /// An event for the buses.
    Event(Value),
    /// The end of the program.
    Stop,
}

/// Items of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ItemList {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) items: Vec<Value>,
}

/// Decisions, newest last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JournalList {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) records: Vec<Story>,
}

/// An event that was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventSent {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The functions whose queues got it.
    pub(crate) functions: Vec<String>,
    /// The event as it was sent.
    pub(crate) event: Value,
}

/// Errors, as they are printed with `-o json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorList {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) errors: Vec<Problem>,
}

impl ErrorList {
    /// The document of a problem.
    pub(crate) fn of(problem: Problem) -> Self {
        Self { api_version: API_VERSION.to_owned(), kind: "Error".to_owned(), errors: vec![problem] }
    }
}

/// A region's table, and where one looks from.
pub(crate) struct Reading<'a> {
    pub(crate) table: &'a MemoryTable,
    pub(crate) region: &'a Region,
    pub(crate) now: Timestamp,
}

impl Reading<'_> {
    /// Items of a kind.
    pub(crate) fn items(
        &self,
        kind: Kind,
        cluster: Option<&str>,
        name: Option<&str>,
    ) -> Result<ItemList, Problem> {
        let cluster = self.cluster(cluster)?;
        let scope = Scope { region: self.region, cluster: &cluster, now: self.now };
        let items = block_on(state::list(self.table, kind, scope, name)).map_err(|e| unreadable(&e))?;
        Ok(ItemList { api_version: API_VERSION.to_owned(), kind: kind.list_kind().to_owned(), items })
    }

    /// The decisions about something.
    pub(crate) fn journal(
        &self,
        of: StoryOf,
        cluster: Option<&str>,
        name: &str,
    ) -> Result<JournalList, Problem> {
        let cluster = self.cluster(cluster)?;
        let scope = Scope { region: self.region, cluster: &cluster, now: self.now };
        let records = block_on(state::story(self.table, of, name, scope)).map_err(|e| unreadable(&e))?;
        Ok(JournalList { api_version: API_VERSION.to_owned(), kind: "JournalList".to_owned(), records })
    }

    /// The cluster that is asked for, or the only one.
    fn cluster(&self, wanted: Option<&str>) -> Result<ClusterName, Problem> {
        let known = block_on(state::clusters(self.table, self.region)).map_err(|e| unreadable(&e))?;
        let names: Vec<&str> = known.iter().map(ClusterName::as_str).collect();
        let list = crate::errors::quoted(&names);
        match (wanted, known.as_slice()) {
            (Some(wanted), _) => {
                known.iter().find(|name| name.as_str() == wanted).cloned().ok_or_else(|| {
                    Problem::new(format!("there is no cluster `{wanted}`"), format!("use {list}"))
                        .at("--cluster")
                })
            }
            (None, [only]) => Ok(only.clone()),
            (None, []) => Err(Problem::new("the region has no cluster", "play a scenario with one")),
            (None, _) => Err(Problem::new(
                "the region has several clusters",
                format!("name one with `--cluster`: {list}"),
            )),
        }
    }
}

fn unreadable(error: &ListError) -> Problem {
    Problem::new(error.to_string(), "ask again")
}
