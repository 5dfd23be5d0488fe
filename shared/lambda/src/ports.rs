//! The ports of a handler over AWS's services.

use std::sync::Arc;

use aws_types::SdkConfig;
use jiff::{SignedDuration, Timestamp};
use tenon_aws::{
    AwsAuthorizationMessages, AwsEc2, AwsInstanceProfiles, AwsParameters, AwsPricing, AwsZonalShift,
    FailedCall, FailedCallSink,
};
use tenon_dynamodb::DynamoTable;
use tenon_ec2::Ec2Account;
use tenon_runtime::{Installation, Ports};

use crate::clients::sdk_config;
use crate::configuration::FunctionConfiguration;
use crate::signals::AwsSignals;

/// EC2 and the services beside it.
type AwsAccount = Ec2Account<
    AwsEc2,
    AwsPricing,
    AwsZonalShift,
    AwsParameters,
    AwsInstanceProfiles,
    AwsAuthorizationMessages,
>;

/// The table, EC2 and the queues of a configuration.
#[derive(Debug)]
pub struct AwsPorts {
    table: DynamoTable,
    ec2: AwsAccount,
    signals: AwsSignals,
    installation: Installation,
}

impl AwsPorts {
    /// Ports with the role's credentials. Nothing is connected before it is used.
    pub async fn connect(configuration: &FunctionConfiguration) -> Self {
        Self::new(&Box::pin(sdk_config(&configuration.installation.region)).await, configuration)
    }

    /// The ports, with clients from `sdk`, whose retries and timeouts are replaced.
    #[must_use]
    pub fn new(sdk: &SdkConfig, configuration: &FunctionConfiguration) -> Self {
        let installation = configuration.installation.clone();
        let report: FailedCallSink = Arc::new(tell);
        Self {
            table: DynamoTable::new(&aws_sdk_dynamodb::Client::new(sdk), configuration.table.clone()),
            ec2: Ec2Account {
                ec2: AwsEc2::new(sdk).reporting(Arc::clone(&report)),
                pricing: AwsPricing::new(sdk, installation.region.clone()).reporting(Arc::clone(&report)),
                zonal_shift: AwsZonalShift::new(sdk).reporting(Arc::clone(&report)),
                parameters: AwsParameters::new(sdk).reporting(Arc::clone(&report)),
                instance_profiles: AwsInstanceProfiles::new(sdk).reporting(Arc::clone(&report)),
                authorization_messages: AwsAuthorizationMessages::new(sdk).reporting(report),
            },
            signals: AwsSignals::new(sdk, configuration),
            installation,
        }
    }
}

/// The handler handles the failed call; only this line has the request's id.
fn tell(failed: &FailedCall) {
    tracing::warn!(
        action = failed.action,
        code = failed.code,
        status = failed.status,
        aws_request_id = failed.request_id,
        "a call failed: {}",
        failed.message
    );
}

impl Ports for AwsPorts {
    type Table = DynamoTable;
    type Ec2 = AwsAccount;
    type Signals = AwsSignals;

    fn table(&self) -> &DynamoTable {
        &self.table
    }

    fn ec2(&self) -> &Self::Ec2 {
        &self.ec2
    }

    fn signals(&self) -> &AwsSignals {
        &self.signals
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn pause(&self, time: SignedDuration) {
        tokio::time::sleep(time.unsigned_abs()).await;
    }

    fn installation(&self) -> &Installation {
        &self.installation
    }
}
