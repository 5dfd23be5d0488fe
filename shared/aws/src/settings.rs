//! What every client of this crate has in common: no retries, stated timeouts.

use std::time::Duration;

use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;

/// A connection that takes longer isn't coming: endpoints are in the region.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// CreateFleet of type `instant` answers when it has launched or given up, which takes seconds to tens of seconds; a
/// function that calls it has 60 s in all, and needs some of them to write what came out.
const CALL_TIMEOUT: Duration = Duration::from_secs(40);

/// Retries belong to the next wake, where the budget of EC2's token buckets is known.
pub(crate) fn retries() -> RetryConfig {
    RetryConfig::disabled()
}

pub(crate) fn timeouts() -> TimeoutConfig {
    short_timeouts(CALL_TIMEOUT)
}

/// For calls that have to answer sooner.
pub(crate) fn short_timeouts(call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_timeout(call).build()
}
