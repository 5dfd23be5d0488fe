//! A region's answers: the documents of `get`, `clear`, `why` and `event`, and of a running region's HTTP interface.
//!
//! Decides the documents, and which requests are invalid. The transport decides nothing: a server and its client for
//! a region on this machine, the table and the buses of an account.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenon_domain::Timestamp;
use tenon_domain::id::{ClusterName, Region};
use tenon_domain::wake::FunctionName;
use tenon_table::Table;
use tenon_table::learned::LearnedError;
use tenon_table::marks::{MarksError, Meant};

use crate::errors::{Problem, chain, nearest, quoted};
use crate::output::API_VERSION;
use crate::state::{self, BelongsTo, GetKind, ListError, ListScope, Story, StoryOf};

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ApiRequest {
    /// Items of a kind.
    Items { kind: GetKind, cluster: Option<String>, name: Option<String> },
    /// The decisions about something.
    Journal { of: StoryOf, cluster: Option<String>, name: String },
    /// Clears marks or learned memory for an operator.
    Clear(ClearBody),
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
    /// The time of the read, by the region's clock.
    pub(crate) at: String,
    pub(crate) items: Vec<Value>,
}

impl ItemList {
    fn of(kind: &str, at: Timestamp, items: Vec<Value>) -> Self {
        Self { api_version: API_VERSION.to_owned(), kind: kind.to_owned(), at: at.to_string(), items }
    }
}

/// The records to clear, in the form of the HTTP interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ClearBody {
    /// All marks.
    All,
    /// The marks of these keys.
    Named(Vec<String>),
    /// All learned memory.
    AllLearned,
    /// The learned memory of these names.
    NamedLearned(Vec<String>),
}

/// Decisions, newest last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JournalList {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) records: Vec<Story>,
}

/// A sent event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventSent {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    /// The functions that received it.
    pub(crate) functions: Vec<String>,
    /// The event.
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
pub(crate) struct TableReading<'a, T> {
    pub(crate) table: &'a T,
    pub(crate) region: &'a Region,
    pub(crate) now: Timestamp,
}

impl<T: Table> TableReading<'_, T> {
    /// Items of a kind.
    pub(crate) async fn items(
        &self,
        kind: GetKind,
        cluster: Option<&str>,
        name: Option<&str>,
    ) -> Result<ItemList, Problem> {
        let cluster = self.cluster(kind.belongs_to(), cluster).await?;
        let scope = ListScope { region: self.region, cluster: cluster.as_ref(), now: self.now };
        let items = state::list(self.table, kind, scope, name).await.map_err(|e| unreadable(&e))?;
        Ok(ItemList::of(kind.list_kind(), self.now, items))
    }

    /// Clears marks or learned memory; returns the earlier records.
    pub(crate) async fn clear(&self, what: &ClearBody) -> Result<ItemList, Problem> {
        match what {
            ClearBody::All => self.clear_marks(&Meant::All).await,
            ClearBody::Named(keys) => self.clear_marks(&Meant::Named(keys.clone())).await,
            ClearBody::AllLearned => self.clear_learned(&Meant::All).await,
            ClearBody::NamedLearned(names) => self.clear_learned(&Meant::Named(names.clone())).await,
        }
    }

    async fn clear_marks(&self, meant: &Meant) -> Result<ItemList, Problem> {
        let cleared = state::clear(self.table, self.region, meant, self.now).await;
        let items = cleared.map_err(|error| uncleared(&error))?;
        Ok(ItemList::of("UnavailableCleared", self.now, items))
    }

    async fn clear_learned(&self, meant: &Meant) -> Result<ItemList, Problem> {
        let cleared = state::unlearn(self.table, self.region, meant, self.now).await;
        let items = cleared.map_err(|error| not_unlearned(&error))?;
        Ok(ItemList::of("LearnedCleared", self.now, items))
    }

    /// The decisions about something.
    pub(crate) async fn journal(
        &self,
        of: StoryOf,
        cluster: Option<&str>,
        name: &str,
    ) -> Result<JournalList, Problem> {
        let cluster = self.cluster(of.belongs_to(), cluster).await?;
        let scope = ListScope { region: self.region, cluster: cluster.as_ref(), now: self.now };
        let records = state::story(self.table, of, name, scope).await.map_err(|e| unreadable(&e))?;
        Ok(JournalList { api_version: API_VERSION.to_owned(), kind: "JournalList".to_owned(), records })
    }

    /// The requested cluster, or the only one; `None` for the region's own items.
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

fn uncleared(error: &MarksError) -> Problem {
    match error {
        MarksError::Unknown { unknown, known } => {
            Problem::new(chain(error), marked(unknown, known)).at("KEY")
        }
        MarksError::Read(_) | MarksError::Write(_) | MarksError::Form(_) => {
            let remedy = "try again, `tenon get unavailable` shows what is left; for an account, check `--region`, \
                          `--installation` and that you may `dynamodb:Query`, `GetItem` and `UpdateItem` there";
            Problem::new(chain(error), remedy)
        }
    }
}

fn not_unlearned(error: &LearnedError) -> Problem {
    match error {
        LearnedError::Unknown { unknown, known } => {
            let wanted = unknown.first().map_or("", String::as_str);
            let near = nearest(wanted, known.iter().map(String::as_str));
            let remedy = match near.as_slice() {
                [] if known.is_empty() => "nothing to clear: no memory is learned".to_owned(),
                [] => "see `tenon get learned`".to_owned(),
                [..] => format!("use {}, or see `tenon get learned`", quoted(&near)),
            };
            Problem::new(chain(error), remedy).at("KEY")
        }
        LearnedError::Read(_) | LearnedError::Write(_) => {
            let remedy = "try again, `tenon get learned` shows what is left; for an account, check `--region`, \
                          `--installation` and that you may `dynamodb:Query`, `GetItem` and `UpdateItem` there";
            Problem::new(chain(error), remedy)
        }
    }
}

/// The marked keys, sorted by likeness to the first unknown one.
fn marked(unknown: &[String], known: &[String]) -> String {
    /// The most suggestions for a mistyped name.
    const SHOWN: usize = 8;
    let wanted = unknown.first().map_or("", String::as_str);
    let near = nearest(wanted, known.iter().map(String::as_str));
    let rest = known.iter().map(String::as_str).filter(|name| !near.contains(name));
    let all: Vec<&str> = near.iter().copied().chain(rest).collect();
    match all.as_slice() {
        [] => "nothing to clear: no capacity is marked".to_owned(),
        [..] if all.len() > SHOWN => {
            let shown: Vec<&str> = all.iter().take(SHOWN).copied().collect();
            let more = all.len() - SHOWN;
            format!("`{}` and {more} more are marked: see `tenon get unavailable`", shown.join("`, `"))
        }
        [_] => format!("only {} is marked", quoted(&all)),
        [..] => format!("use {}", quoted(&all)),
    }
}

fn unreadable(error: &ListError) -> Problem {
    Problem::new(
        chain(error),
        "try again; for an account, check `--region`, `--installation` and your permissions",
    )
}
