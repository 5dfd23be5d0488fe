//! What all clients of AWS's services share: one HTTP client, the role's credentials, no retries.
//!
//! Decides where credentials and endpoints come from, and how long an idle connection is trusted. Timeouts of calls are
//! the adapters'.
//!
//! Nothing here connects or reads a certificate: TLS is set up by the first call, so a function that starts for nothing
//! doesn't pay for it.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region as SdkRegion};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_types::SdkConfig;
use tenon_domain::id::Region;

/// An idle connection is given up after so long. Between invocations a function is frozen and doesn't see the other end
/// close it; a call on such a connection fails, and nothing here sends it again. Load balancers commonly close after a
/// minute, and a new connection costs some ten milliseconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// The configuration of every client: region, credentials and endpoints (`AWS_ENDPOINT_URL`, and with a service's name)
/// from the environment, HTTPS by rustls with the machine's certificates.
pub async fn sdk_config(region: &Region) -> SdkConfig {
    let http = aws_smithy_http_client::Builder::new()
        .pool_idle_timeout(IDLE_TIMEOUT)
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    aws_config::defaults(BehaviorVersion::v2026_01_12())
        .region(SdkRegion::new(region.to_string()))
        .credentials_provider(EnvironmentVariableCredentialsProvider::new())
        .retry_config(RetryConfig::disabled())
        .http_client(http)
        .load()
        .await
}
