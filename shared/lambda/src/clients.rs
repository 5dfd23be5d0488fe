//! Common settings of all AWS clients: one HTTP client, the role's credentials, no retries.
//!
//! Decides the sources of credentials and endpoints, and the lifetime of idle connections. Adapters decide the
//! timeouts of calls.
//!
//! It doesn't connect or read certificates: the first call sets up TLS, so an invocation without a call doesn't pay
//! for it.

use std::time::Duration;

use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region as SdkRegion};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_types::SdkConfig;
use tenon_domain::id::Region;

/// The lifetime of an idle connection. A frozen function doesn't see the other end close a connection; a call on it
/// fails, and isn't repeated here. Load balancers commonly close after a minute, and a new connection costs some ten
/// milliseconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// The configuration of every client: region, credentials and endpoints (`AWS_ENDPOINT_URL`, also for one service)
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
