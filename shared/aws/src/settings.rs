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

/// The client of a service beside EC2: its type, how it is made, and how its failed calls are reported.
macro_rules! service {
    ($(#[$about:meta])* $name:ident of $sdk:ident, $timeout:expr) => {
        $(#[$about])*
        #[derive(Clone)]
        pub struct $name {
            client: $sdk::Client,
            report: Option<$crate::call::FailedCallSink>,
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl $name {
            /// The service in the region of `config`, whose retries and timeouts are replaced.
            #[must_use]
            pub fn new(config: &aws_types::SdkConfig) -> Self {
                let config = $sdk::config::Builder::from(config)
                    .behavior_version($sdk::config::BehaviorVersion::v2026_01_12())
                    .retry_config($crate::settings::retries())
                    .timeout_config($crate::settings::short_timeouts($timeout))
                    .build();
                Self { client: $sdk::Client::from_conf(config), report: None }
            }

            /// Reports every failed call, with its request id.
            #[must_use]
            pub fn reporting(mut self, report: $crate::call::FailedCallSink) -> Self {
                self.report = Some(report);
                self
            }
        }
    };
}
pub(crate) use service;

/// For calls that have to answer sooner.
pub(crate) fn short_timeouts(call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT).operation_timeout(call).build()
}
