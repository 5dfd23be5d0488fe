//! Common settings of this crate's clients: no retries, explicit timeouts.

use std::time::Duration;

use aws_smithy_types::retry::RetryConfig;
use aws_smithy_types::timeout::TimeoutConfig;

/// A connection that takes longer isn't coming: endpoints are in the region.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// CreateFleet of type `instant` answers after the launch, within tens of seconds. A function has 60 s, and needs
/// some of them to write the result.
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
