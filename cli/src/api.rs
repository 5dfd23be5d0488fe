//! What a region answers: the documents of `get`, `why` and `event`, and of a running region's HTTP interface.
//!
//! Decides the documents and which requests are wrong. What carries them decides nothing: a server and its client for a
//! region on this machine, the table and the buses of an account.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenon_domain::Timestamp;
use tenon_domain::id::{ClusterName, Region};
use tenon_domain::wake::FunctionName;
use tenon_table::Table;

use crate::errors::{Problem, chain, quoted};
use crate::output::API_VERSION;
use crate::state::{self, BelongsTo, Kind, ListError, Scope, Story, StoryOf};

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

impl EventSent {
    /// The document of an event that went to these functions.
    pub(crate) fn of(functions: &[FunctionName], event: Value) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: "EventSent".to_owned(),
            functions: functions.iter().map(|function| function.as_str().to_owned()).collect(),
            event,
        }
    }
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
pub(crate) struct Reading<'a, T> {
    pub(crate) table: &'a T,
    pub(crate) region: &'a Region,
    pub(crate) now: Timestamp,
}

impl<T: Table> Reading<'_, T> {
    /// Items of a kind.
    pub(crate) async fn items(
        &self,
        kind: Kind,
        cluster: Option<&str>,
        name: Option<&str>,
    ) -> Result<ItemList, Problem> {
        let cluster = self.cluster(kind.belongs_to(), cluster).await?;
        let scope = Scope { region: self.region, cluster: cluster.as_ref(), now: self.now };
        let items = state::list(self.table, kind, scope, name).await.map_err(|e| unreadable(&e))?;
        Ok(ItemList { api_version: API_VERSION.to_owned(), kind: kind.list_kind().to_owned(), items })
    }

    /// The decisions about something.
    pub(crate) async fn journal(
        &self,
        of: StoryOf,
        cluster: Option<&str>,
        name: &str,
    ) -> Result<JournalList, Problem> {
        let cluster = self.cluster(of.belongs_to(), cluster).await?;
        let scope = Scope { region: self.region, cluster: cluster.as_ref(), now: self.now };
        let records = state::story(self.table, of, name, scope).await.map_err(|e| unreadable(&e))?;
        Ok(JournalList { api_version: API_VERSION.to_owned(), kind: "JournalList".to_owned(), records })
    }

    /// The cluster that is asked for, or the only one. What is the region's needs none.
    async fn cluster(&self, of: BelongsTo, wanted: Option<&str>) -> Result<Option<ClusterName>, Problem> {
        let known = state::clusters(self.table, self.region).await.map_err(|e| unreadable(&e))?;
        let names: Vec<&str> = known.iter().map(ClusterName::as_str).collect();
        let list = || quoted(&names);
        match (wanted, known.as_slice(), of) {
            (None, [only], _) => Ok(Some(only.clone())),
            (None, _, BelongsTo::Region) => Ok(None),
            (_, [], _) => {
                let message = format!("no cluster is registered in `{}`", self.region);
                let remedy = "play a scenario with one, or deploy `infra/cluster.yaml` for one";
                Err(Problem::new(message, remedy))
            }
            (Some(wanted), _, _) => {
                let found = known.iter().find(|name| name.as_str() == wanted).cloned();
                let unknown = || {
                    Problem::new(format!("there is no cluster `{wanted}`"), format!("use {}", list()))
                        .at("--cluster")
                };
                found.map(Some).ok_or_else(unknown)
            }
            (None, _, BelongsTo::Cluster) => {
                let remedy = format!("name one with `--cluster`: {}", list());
                Err(Problem::new("the region has several clusters", remedy))
            }
        }
    }
}

fn unreadable(error: &ListError) -> Problem {
    Problem::new(
        chain(error),
        "ask again; of an account, check `--region`, `--installation` and your rights first",
    )
}
