//! A function, as its runtime sees it.

use std::future::Future;

use tenon_domain::id::ClusterName;
use tenon_domain::wake::{FunctionName, WakeCause};

use crate::error::HandlerError;
use crate::ports::Ports;

/// The subject of a wake.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeScope {
    /// The region: schedules and EC2's events, which know no cluster.
    Region,
    /// One cluster.
    Cluster(ClusterName),
}

impl WakeScope {
    /// The cluster, if it is one.
    #[must_use]
    pub const fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::Region => None,
            Self::Cluster(cluster) => Some(cluster),
        }
    }
}

/// A function: observe, plan, commit, execute.
///
/// A handler ignores the cause of its wake: causes are hints, and the sweep alone reaches the same state. Between
/// wakes it keeps only caches of immutable values.
pub trait Handler: Send + Sync {
    /// Which function it is.
    fn name(&self) -> FunctionName;

    /// Handles all wakes of one scope in a batch as one.
    ///
    /// # Errors [`HandlerError`] returns the messages to the queue; committed writes stay valid.
    fn handle<P: Ports>(
        &self,
        ports: &P,
        scope: &WakeScope,
        causes: &[WakeCause],
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}
