//! What the agent knows, for its process: the API server, the functions' decisions, and answered evictions.
//!
//! Decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenon_domain::claim::RemovalReason;
use tenon_domain::command::Command;
use tenon_domain::id::CommandId;
use tenon_domain::wake::FunctionName;
use tenon_table::items::{SeenRecord, keys};
use tenon_table::{Consistency, Key, Table, TableError};

use super::Agent;
use crate::converge::PodEviction;
use crate::decided::{Decided, read_items};

impl<K, T: Table, B> Agent<K, T, B> {
    /// The API server, as the agent sees it.
    #[must_use]
    pub fn kube(&self) -> Arc<K> {
        Arc::clone(&self.kube)
    }

    /// The functions' decisions, as the last convergence read them.
    #[must_use]
    pub const fn decided(&self) -> &Decided {
        &self.decided
    }

    /// Takes the evictions of the last convergence, whether it ended or not.
    pub fn take_evictions(&mut self) -> Vec<PodEviction> {
        std::mem::take(&mut self.evictions)
    }

    /// Reads the reasons of commands; unknown commands are left out.
    ///
    /// # Errors [`TableError`]: try again at the next step.
    pub async fn command_reasons(
        &self,
        commands: &BTreeSet<CommandId>,
    ) -> Result<BTreeMap<CommandId, RemovalReason>, TableError> {
        let keys: Vec<Key> = commands.iter().map(|command| keys::command(&self.cluster, command)).collect();
        let read: Vec<Command> = read_items(&self.table, &keys, Consistency::Eventual).await?;
        Ok(read.into_iter().map(|command| (command.id, command.reason)).collect())
    }

    /// Reads the record of `disruption`'s last pass, which has the offerings of instances; `None` if there is none, or
    /// a newer function wrote it.
    ///
    /// # Errors [`TableError`]: try again at the next step.
    pub async fn seen_by_disruption(&self) -> Result<Option<SeenRecord>, TableError> {
        let keys = [keys::seen(&self.cluster, FunctionName::Disruption)];
        Ok(read_items(&self.table, &keys, Consistency::Eventual).await?.into_iter().next())
    }
}
