//! The port of instance profiles over the SDK.
//!
//! Decides how an answer is read. Where IAM answers is for the SDK to know: each partition has one endpoint and one
//! signing region.

use std::time::Duration;

use aws_sdk_iam::Client;
use aws_sdk_iam::config::{BehaviorVersion, Builder};
use aws_sdk_iam::types::InstanceProfile as SdkInstanceProfile;
use aws_types::SdkConfig;
use tenon_ec2::port::InstanceProfileFacts;
use tenon_ec2::{Ec2Error, InstanceProfiles};

use crate::call::{FailedCall, FailedCallSink};
use crate::reading::{Malformed, moment, parsed, required};
use crate::settings::{retries, short_timeouts};

const ACTION: &str = "GetInstanceProfile";

/// A VPC without a way to the internet doesn't reach IAM; the function that asks has work beside it.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// IAM of an account.
#[derive(Clone)]
pub struct AwsInstanceProfiles {
    client: Client,
    report: Option<FailedCallSink>,
}

impl std::fmt::Debug for AwsInstanceProfiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AwsInstanceProfiles").finish_non_exhaustive()
    }
}

impl AwsInstanceProfiles {
    /// IAM of the partition of `config`'s region. Its retries and timeouts are replaced.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        let config = Builder::from(config)
            .behavior_version(BehaviorVersion::v2026_01_12())
            .retry_config(retries())
            .timeout_config(short_timeouts(CALL_TIMEOUT))
            .build();
        Self { client: Client::from_conf(config), report: None }
    }

    /// Reports every failed call, with its request id.
    #[must_use]
    pub fn reporting(mut self, report: FailedCallSink) -> Self {
        self.report = Some(report);
        self
    }
}

impl InstanceProfiles for AwsInstanceProfiles {
    async fn instance_profile(&self, name: &str) -> Result<InstanceProfileFacts, Ec2Error> {
        let sent = self.client.get_instance_profile().instance_profile_name(name).send();
        let answer = sent.await.map_err(|error| {
            let failed = FailedCall::of(ACTION, &error);
            if let Some(report) = &self.report {
                report(&failed);
            }
            failed.into_error()
        })?;
        required(answer.instance_profile(), "InstanceProfile")
            .and_then(facts)
            .map_err(|malformed| malformed.into_error(ACTION))
    }
}

fn facts(profile: &SdkInstanceProfile) -> Result<InstanceProfileFacts, Malformed> {
    let role = |role: &aws_sdk_iam::types::Role| parsed(Some(role.arn()), "InstanceProfile.Roles.Arn");
    // The SDK reads an absent date as the beginning of time.
    let dated = Some(profile.create_date()).filter(|date| date.secs() != 0);
    Ok(InstanceProfileFacts {
        name: parsed(Some(profile.instance_profile_name()), "InstanceProfile.InstanceProfileName")?,
        arn: parsed(Some(profile.arn()), "InstanceProfile.Arn")?,
        roles: profile.roles().iter().map(role).collect::<Result<_, _>>()?,
        created_at: dated.map(|date| moment(Some(date), "InstanceProfile.CreateDate")).transpose()?,
    })
}
