//! The region of `get`, `clear`, `why` and `event`: one on this machine, or an account's.
//!
//! Decides which of the two a call means, and the advice if this build can't reach it. Both give the same documents,
//! because both read a table through its port.

use serde_json::Value;

use crate::api::{ClearBody, EventSent, ItemList, JournalList};
use crate::args::TargetArgs;
use crate::client::Client;
use crate::errors::Failure;
use crate::state::{GetKind, StoryOf};

/// A region that answers.
pub(crate) trait Target {
    /// Items of a kind; only that of the name where one is given.
    fn items(&self, kind: GetKind, cluster: Option<&str>, name: Option<&str>) -> Result<ItemList, Failure>;
    /// The decisions about something, newest last.
    fn journal(&self, of: StoryOf, cluster: Option<&str>, name: &str) -> Result<JournalList, Failure>;
    /// Clears marks or learned memory; returns the earlier records.
    fn clear(&self, what: &ClearBody) -> Result<ItemList, Failure>;
    /// Sends an event to the functions that its bus's rules name.
    fn send(&self, event: &Value) -> Result<EventSent, Failure>;
}

/// The region that a call means.
///
/// # Errors
/// [`Failure`] where this build can't reach it.
pub(crate) fn open(args: &TargetArgs) -> Result<Box<dyn Target>, Failure> {
    match args.local {
        Some(port) => Ok(Box::new(Client::new(port))),
        None => open_account(args),
    }
}

#[cfg(feature = "aws")]
fn open_account(args: &TargetArgs) -> Result<Box<dyn Target>, Failure> {
    let region = args.region.resolve()?;
    Ok(Box::new(crate::account::Account::open(region, args.installation.clone(), args.table.as_deref())?))
}

#[cfg(not(feature = "aws"))]
fn open_account(args: &TargetArgs) -> Result<Box<dyn Target>, Failure> {
    let (region, installation) = (args.region.resolve()?, &args.installation);
    let message = format!(
        "this build of tenon reads no AWS account, so not installation `{installation}` in `{region}`"
    );
    let remedy = "add `--local` to ask a region that `tenon local` runs on this machine; for an account, build it with \
                  `cargo build --release --bin tenon --features aws`, or query the table with `aws dynamodb query`";
    Err(crate::errors::Problem::new(message, remedy).at("--local").into())
}
