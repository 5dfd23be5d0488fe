//! Tables on the environment's server.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Config, Credentials, Region};
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenon_dynamodb::DynamoTable;
use tenon_table::key;
use tokio::runtime::Runtime;

/// Names the server.
const ENDPOINT: &str = "TENON_DYNAMODB_ENDPOINT";

/// The server shares two cores with the tests and other builds: the tests check its answers, not its speed.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The tests' runtime.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// An empty table in an account of its own: DynamoDB Local keeps tables and transactions' tokens apart by access key.
pub(crate) async fn fresh_table() -> DynamoTable {
    static ACCOUNTS: AtomicU64 = AtomicU64::new(0);
    let account = format!("p{}n{}", std::process::id(), ACCOUNTS.fetch_add(1, Ordering::Relaxed));
    let endpoint = std::env::var(ENDPOINT).unwrap_or_else(|_| {
        panic!("`{ENDPOINT}` isn't set: run this by `tests/servers/dynamodb-local -- COMMAND`")
    });
    // The client that the functions use: it speaks TLS, and plain HTTP where the endpoint does.
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new(account, "secret", None, None, "tests"))
        .endpoint_url(endpoint)
        .http_client(http);
    let client = Client::from_conf(config.build());
    create(&client, "state").await;
    DynamoTable::with_call_timeout(&client, "state", CALL_TIMEOUT)
}

async fn create(client: &Client, name: &str) {
    let schema =
        |name, kind| KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect("a key");
    let attribute = |name| {
        let attribute = AttributeDefinition::builder().attribute_name(name);
        attribute.attribute_type(ScalarAttributeType::S).build().expect("an attribute")
    };
    let request = client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
    let request = request
        .key_schema(schema(key::PK, KeyType::Hash))
        .key_schema(schema(key::SK, KeyType::Range))
        .attribute_definitions(attribute(key::PK))
        .attribute_definitions(attribute(key::SK));
    request.send().await.unwrap_or_else(|error| panic!("the server makes no table: {error:?}"));
}
