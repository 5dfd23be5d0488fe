//! An installation in an AWS account: its table, its bus and its queues.
//!
//! Decides the connection: credentials like the AWS CLI, endpoints from the environment, one TLS client for all
//! services. [`crate::api`] decides the documents, as for a region on this machine.
//!
//! Names are those of `template.yaml`: the bus is named like the installation, and the table too unless it is restored.

mod send;

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_sdk_dynamodb::config::{ProvideCredentials as _, Region as SdkRegion};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_types::SdkConfig;
use serde_json::Value;
use tenon_domain::Timestamp;
use tenon_domain::id::{InstallationId, Region};
use tenon_dynamodb::DynamoTable;
use tokio::runtime::Runtime;

use crate::api::{ClearBody, EventSent, ItemList, JournalList, TableReading};
use crate::errors::{Failure, Problem, chain};
use crate::state::{GetKind, StoryOf};
use crate::target::Target;

/// How long one call of the table may take. People wait longer than functions, from further away.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// An installation of an account, in one region.
pub(crate) struct Account {
    runtime: Runtime,
    config: SdkConfig,
    region: Region,
    installation: InstallationId,
    table: DynamoTable,
}

impl Account {
    /// Prepares the clients and checks the credentials, without a request to the installation.
    ///
    /// # Errors [`Failure`] without credentials.
    pub(crate) fn open(
        region: Region,
        installation: InstallationId,
        table: Option<&str>,
    ) -> Result<Self, Failure> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| {
                Problem::new(
                    format!("can't start the async runtime: {error}"),
                    "free memory or file descriptors",
                )
            })?;
        let config = runtime.block_on(config(&region));
        runtime.block_on(check_credentials(&config))?;
        let client = aws_sdk_dynamodb::Client::new(&config);
        let name = table.unwrap_or(installation.as_str());
        let table = DynamoTable::with_call_timeout(&client, name, CALL_TIMEOUT);
        Ok(Self { runtime, config, region, installation, table })
    }

    fn reading(&self) -> TableReading<'_, DynamoTable> {
        TableReading { table: &self.table, region: &self.region, now: Timestamp::now() }
    }
}

impl Target for Account {
    fn items(&self, kind: GetKind, cluster: Option<&str>, name: Option<&str>) -> Result<ItemList, Failure> {
        Ok(self.runtime.block_on(self.reading().items(kind, cluster, name))?)
    }

    fn journal(&self, of: StoryOf, cluster: Option<&str>, name: &str) -> Result<JournalList, Failure> {
        Ok(self.runtime.block_on(self.reading().journal(of, cluster, name))?)
    }

    fn clear(&self, what: &ClearBody) -> Result<ItemList, Failure> {
        Ok(self.runtime.block_on(self.reading().clear(what))?)
    }

    fn send(&self, event: &Value) -> Result<EventSent, Failure> {
        Ok(self.runtime.block_on(send::send(self, event, Timestamp::now()))?)
    }
}

/// The configuration of all clients in a region.
pub(crate) async fn config(region: &Region) -> SdkConfig {
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let region = SdkRegion::new(region.as_str().to_owned());
    aws_config::defaults(BehaviorVersion::latest()).region(region).http_client(http).load().await
}

/// The SDK notices missing credentials only when it signs, and reports them deep in the chain of sources.
///
/// # Errors [`Problem`] without credentials.
pub(crate) async fn check_credentials(config: &SdkConfig) -> Result<(), Problem> {
    let remedy = "sign in with `aws sso login`, or name a profile by `AWS_PROFILE`; to ask a region on this machine, \
                  add `--local`";
    let wrong = |why: String| Problem::new(format!("no AWS credentials: {why}"), remedy);
    let provider = config.credentials_provider().ok_or_else(|| wrong("nothing provides them".to_owned()))?;
    provider.provide_credentials().await.map(drop).map_err(|error| wrong(chain(&error)))
}
