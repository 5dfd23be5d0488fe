//! What a function is to its runtime.

use std::future::Future;

use tenon_domain::id::ClusterName;
use tenon_domain::wake::{FunctionName, WakeCause};

use crate::error::HandlerError;
use crate::ports::Ports;

/// What a wake is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeScope {
    /// The region: schedules and EC2's events, which know no cluster.
    Region,
    /// One cluster.
    Cluster(ClusterName),
}

/// A function: observe, plan, commit, execute.
///
/// A handler doesn't care why it was woken: causes are hints, and the sweep alone reaches the same state. It keeps
/// nothing between wakes but caches of immutable things.
pub trait Handler: Send + Sync {
    /// Which function it is.
    fn name(&self) -> FunctionName;

    /// Handles all wakes of one scope in a batch, as one.
    ///
    /// # Errors
    /// [`HandlerError`] sends the messages back to the queue; what was committed stays valid.
    fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        causes: &[WakeCause],
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}
