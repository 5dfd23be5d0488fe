//! The port of instance profiles over the SDK.
//!
//! Decides how an answer is read. Where IAM answers is for the SDK to know: each partition has one endpoint and one
//! signing region.

use std::time::Duration;

use aws_sdk_iam::types::InstanceProfile as SdkInstanceProfile;
use tenon_ec2::port::InstanceProfileFacts;
use tenon_ec2::{Ec2Error, InstanceProfiles};

use crate::call;
use crate::reading::{Malformed, moment, parsed, required};
use crate::settings::service;

const ACTION: &str = "GetInstanceProfile";

/// A VPC without a way to the internet doesn't reach IAM; the function that asks has work beside it.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);

service! {
    /// IAM of an account.
    AwsInstanceProfiles of aws_sdk_iam, CALL_TIMEOUT
}

impl InstanceProfiles for AwsInstanceProfiles {
    async fn instance_profile(&self, name: &str) -> Result<InstanceProfileFacts, Ec2Error> {
        let sent = self.client.get_instance_profile().instance_profile_name(name).send().await;
        let answer = call::answer(self.report.as_ref(), ACTION, sent)?;
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
